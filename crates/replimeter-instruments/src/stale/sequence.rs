//! The sequence of rounds of a part: warm-up, pairs for the overhead, immediate reads, and the curve.

use std::sync::{atomic::Ordering, mpsc::Sender};

use replimeter_engine::ServerError;
use replimeter_model::{
    plan::{StopCondition, WarmUp},
    time::Nanos,
};

use super::{rows::scrambled, shared::Shared};
use crate::stale::{
    results::{StalePhase, StaleRead, StaleRound, Verdict},
    settings::{ReadDelays, StalePace, StalePlan},
    summary::offsets,
};

/// Maximum offset of a curve that determines its own offsets.
const MAX_OFFSET: Nanos = Nanos(10_000_000_000);
/// Maximum offset of such a curve when delays are not measured but some reads were stale.
const UNSEEN: Nanos = Nanos(100_000_000);
/// Maximum total waiting time of all rounds at one offset of a curve, in all starts.
const BUDGET: i64 = 10_000_000_000;
/// Minimum number of rounds at an offset, in all starts.
const MIN_ROUNDS: u64 = 10;
/// A warm-up by rounds may take at most the time limit divided by this number.
const WARM_UP: i64 = 10;
/// The rounds for the overhead may take at most the time limit divided by this number.
const OVERHEAD: i64 = 5;

/// How a round ended.
pub(super) enum Ended {
    /// It was observed.
    Round(StaleRound),
    /// Its write was lost; the next round follows.
    Nothing,
    /// The run must end.
    Over,
}

/// What runs rounds one by one.
pub(super) trait Rounds {
    /// Runs the round of this number, whose first read is due at `offset` after the acknowledgement; `with` synchronous reads.
    fn round(
        &mut self,
        phase: StalePhase,
        round: u64,
        offset: Nanos,
        with: bool,
    ) -> Result<Ended, ServerError>;
}

/// All rounds of a part.
pub(super) struct Sequence<'a, R> {
    pub(super) shared: &'a Shared<'a>,
    pub(super) plan: &'a StalePlan,
    pub(super) rounds: R,
    /// Whether reads are synchronous, and their connections kept between rounds.
    pub(super) synced: bool,
    pub(super) keeps: bool,
    pub(super) out: Sender<StaleRound>,
    pub(super) next: u64,
    /// Maximum time from an acknowledgement to the answer that showed the write.
    pub(super) longest: Option<Nanos>,
}

impl<R: Rounds> Sequence<'_, R> {
    /// Runs all rounds; returns the number of the next one.
    pub(super) fn run(mut self) -> Result<u64, ServerError> {
        self.parts().map(|_| self.next)
    }

    fn parts(&mut self) -> Result<bool, ServerError> {
        let synced = self.synced;
        // After a large transaction every round can take seconds: the warm-up and the overhead only get
        // a share of the total time.
        let plan = self.plan;
        let share = |part: i64| match plan.until {
            StopCondition::Rounds(_) => None,
            StopCondition::Elapsed(span) => Some(Nanos(Nanos::from(span.0).0 / part)),
        };
        let began = self.shared.clock.now();
        let mut warmed = 0;
        loop {
            let over = match plan.warm_up {
                WarmUp::Rounds(rounds) => warmed >= rounds || self.spent(began, share(WARM_UP)),
                WarmUp::Time(span) => self.spent(began, Some(Nanos::from(span.0))),
            };
            if over {
                break;
            }
            if !self.round(StalePhase::WarmUp, Nanos(0), synced)? {
                return Ok(false);
            }
            warmed += 1;
        }
        if synced && self.keeps {
            let pairs = match self.plan.until {
                StopCondition::Rounds(rounds) => {
                    (rounds * u64::from(plan.starts) / 10).clamp(50, 500)
                }
                StopCondition::Elapsed(_) => 200,
            };
            let pairs = plan.part(pairs);
            let began = self.shared.clock.now();
            for pair in 0..pairs {
                if self.spent(began, share(OVERHEAD)) {
                    break;
                }
                // Alternating order, so that a drift affects both alike.
                let first = pair % 2 == 1;
                for with in [first, !first] {
                    let phase = if with {
                        StalePhase::Synced
                    } else {
                        StalePhase::Plain
                    };
                    if !self.round(phase, Nanos(0), with)? {
                        return Ok(false);
                    }
                }
            }
        }
        let began = self.shared.clock.now();
        let mut done = 0;
        loop {
            let over = match self.plan.until {
                StopCondition::Rounds(rounds) => done >= rounds,
                StopCondition::Elapsed(span) => {
                    self.shared.clock.now() - began >= Nanos::from(span.0)
                }
            };
            if over {
                break;
            }
            if !self.round(StalePhase::AtOnce, Nanos(0), synced)? {
                return Ok(false);
            }
            done += 1;
        }
        let curve = self.curve();
        self.shared
            .of_curve
            .store(curve.len() as u64, Ordering::Relaxed);
        let began = self.shared.clock.now();
        for offset in curve {
            if self.spent(began, share(1)) {
                break;
            }
            if !self.round(StalePhase::Curve, offset, synced)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns whether this time is over, if there is a limit.
    fn spent(&self, since: Nanos, share: Option<Nanos>) -> bool {
        share.is_some_and(|share| self.shared.clock.now() - since >= share)
    }

    /// Returns the offsets of all rounds of the curve, in random order.
    fn curve(&self) -> Vec<Nanos> {
        let wanted = match &self.plan.read_delays {
            ReadDelays::None => return Vec::new(),
            ReadDelays::Auto => offsets(self.longest, MAX_OFFSET),
            ReadDelays::At(spans) => spans.iter().map(|span| Nanos::from(span.0)).collect(),
        };
        let mut all: Vec<Nanos> = Vec::new();
        // Rounds with an immediate read are done already.
        for offset in wanted.into_iter().filter(|offset| offset.0 > 0) {
            let affordable = u64::try_from(BUDGET / offset.0)
                .unwrap_or(0)
                .max(MIN_ROUNDS);
            let most = self.plan.part(affordable);
            let rounds = usize::try_from(self.plan.curve_rounds.min(most)).unwrap_or(0);
            all.extend(std::iter::repeat_n(offset, rounds));
        }
        // Fisher & Yates, so that a stall affects all offsets alike.
        for at in (1..all.len()).rev() {
            let random = scrambled(self.plan.seed ^ scrambled(at as u64));
            let other = usize::try_from(random % (at as u64 + 1)).unwrap_or(0);
            all.swap(at, other);
        }
        all
    }

    /// Runs one round; returns false when the run must end.
    fn round(&mut self, phase: StalePhase, offset: Nanos, with: bool) -> Result<bool, ServerError> {
        if self.shared.halted() {
            return Ok(false);
        }
        let round = self.next;
        self.next += 1;
        match self.rounds.round(phase, round, offset, with)? {
            Ended::Over => return Ok(false),
            Ended::Nothing => return Ok(!self.shared.halted()),
            Ended::Round(round) => {
                if phase == StalePhase::AtOnce {
                    self.learn_delay(round.ack, &round.reads);
                }
                let _ = self.out.send(round);
            }
        }
        Ok(true)
    }

    /// Records the longest delay of immediate stale reads, for the curve.
    #[inline]
    fn learn_delay(&mut self, ack: Nanos, reads: &[StaleRead]) {
        if reads.iter().all(|read| read.verdict != Verdict::Stale) {
            return;
        }
        // Without waiting for visibility the delay is unknown, so the curve extends at least this
        // far.
        if self.plan.pace != StalePace::Visible {
            self.longest = Some(UNSEEN);
        }
        if let Some(shown) = reads.iter().filter_map(|read| read.fresh_end).max() {
            let delay = shown - ack;
            self.longest = Some(self.longest.map_or(delay, |longest| longest.max(delay)));
        }
    }
}
