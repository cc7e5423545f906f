//! Writes one round after another and has every reader read it.

use std::sync::{
    Arc,
    atomic::Ordering,
    mpsc::{Receiver, Sender},
};

use replimeter_engine::ServerError;
use replimeter_model::{
    plan::{ReadDelays, SessionReset, StalePace, StalePlan, StopCondition, WarmUp},
    stale::{StalePhase, StaleRead, StaleRound, Verdict},
    time::Nanos,
};
use replimeter_stats::stale::offsets;

use super::{
    connections::{ReadCommand, Reader, Writer},
    rows::{RowAllocation, RowHistory, scrambled},
    shared::Shared,
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
const PRICE: i64 = 5;
/// Maximum number of consecutive writes lost to conflicts.
const MAX_LOST: u32 = 100;

/// All readers.
pub(super) enum ReaderPool {
    /// A single reader, used by the writing thread itself: no thread has to be woken.
    One(Box<Reader>),
    /// Several readers, each with a thread.
    Several {
        orders: Vec<Sender<ReaderTask>>,
        answers: Receiver<Result<Option<StaleRead>, ServerError>>,
    },
}

/// A task of a reader's thread.
pub(super) enum ReaderTask {
    Read(Arc<ReadCommand>),
    Reset(SessionReset),
}

impl ReaderPool {
    fn observe(
        &mut self,
        shared: &Shared<'_>,
        order: ReadCommand,
    ) -> Result<Option<Vec<StaleRead>>, ServerError> {
        match self {
            Self::One(reader) => Ok(reader.observe(shared, &order)?.map(|read| vec![read])),
            Self::Several { orders, .. } => {
                let order = Arc::new(order);
                orders
                    .iter()
                    .for_each(|reader| _ = reader.send(ReaderTask::Read(Arc::clone(&order))));
                self.gather()
            }
        }
    }

    /// Returns one answer from each thread.
    fn gather(&mut self) -> Result<Option<Vec<StaleRead>>, ServerError> {
        let Self::Several { orders, answers } = self else {
            return Ok(Some(Vec::new()));
        };
        let mut reads = Vec::with_capacity(orders.len());
        let mut ended = false;
        for _ in 0..orders.len() {
            // A thread that has ended left its error with the scope.
            match answers.recv() {
                Ok(Ok(Some(read))) => reads.push(read),
                Ok(Ok(None)) => ended = true,
                Ok(Err(error)) => return Err(error),
                Err(_) => return Ok(None),
            }
        }
        reads.sort_by_key(|read| read.reader);
        Ok((!ended).then_some(reads))
    }

    fn reset(&mut self, pool: SessionReset) -> Result<bool, ServerError> {
        match self {
            Self::One(reader) => reader.reset(pool).map(|()| true),
            Self::Several { orders, answers } => {
                orders
                    .iter()
                    .for_each(|reader| _ = reader.send(ReaderTask::Reset(pool)));
                for _ in 0..orders.len() {
                    match answers.recv() {
                        Ok(Ok(_)) => {}
                        Ok(Err(error)) => return Err(error),
                        Err(_) => return Ok(false),
                    }
                }
                Ok(true)
            }
        }
    }
}

/// Executes the tasks of a reader's thread until the sender is dropped.
pub(super) fn read_on(
    mut reader: Reader,
    shared: &Shared<'_>,
    tasks: &Receiver<ReaderTask>,
    answers: &Sender<Result<Option<StaleRead>, ServerError>>,
) {
    while let Ok(task) = tasks.recv() {
        let answer = match task {
            ReaderTask::Read(order) => reader.observe(shared, &order),
            ReaderTask::Reset(pool) => reader.reset(pool).map(|()| None),
        };
        if answers.send(answer).is_err() {
            break;
        }
    }
}

/// The writing thread.
pub(super) struct RoundWriter<'a> {
    pub(super) shared: &'a Shared<'a>,
    pub(super) plan: &'a StalePlan,
    pub(super) rows: RowAllocation,
    pub(super) held: RowHistory,
    pub(super) readers: usize,
    pub(super) plain: Writer,
    pub(super) synced: Option<Writer>,
    pub(super) pool: SessionReset,
    pub(super) reader_pool: ReaderPool,
    pub(super) out: Sender<StaleRound>,
    pub(super) next: u64,
    /// Maximum time from an acknowledgement to the answer that showed the write.
    pub(super) longest: Option<Nanos>,
    /// Number of consecutive writes lost to conflicts.
    pub(super) lost: u32,
}

impl RoundWriter<'_> {
    /// Runs all rounds; returns the number of the next one.
    pub(super) fn run(mut self) -> Result<u64, ServerError> {
        self.parts().map(|_| self.next)
    }

    fn parts(&mut self) -> Result<bool, ServerError> {
        let synced = self.synced.is_some();
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
        if synced && self.pool == SessionReset::Keep {
            let pairs = match self.plan.until {
                StopCondition::Rounds(rounds) => {
                    (rounds * u64::from(plan.starts) / 10).clamp(50, 500)
                }
                StopCondition::Elapsed(_) => 200,
            };
            let pairs = plan.part(pairs);
            let began = self.shared.clock.now();
            for pair in 0..pairs {
                if self.spent(began, share(PRICE)) {
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
        let row = self.rows.row_of(round);
        let until_shown = self.plan.pace == StalePace::Visible;
        let mut reset = None;
        if with && self.pool != SessionReset::Keep {
            let from = self.shared.clock.now();
            if let Some(writer) = &mut self.synced {
                writer.reset(self.pool)?;
            }
            if !self.reader_pool.reset(self.pool)? {
                return Ok(false);
            }
            reset = Some([from, self.shared.clock.now()]);
        }
        let writer = match &mut self.synced {
            Some(synced) if with => synced,
            _ => &mut self.plain,
        };
        let at = self.rows.index(row);
        let Some(wrote) = writer.write(self.shared, row, round, self.held.at(at))? else {
            return Ok(self.gives_up());
        };
        self.lost = 0;
        if wrote.holds {
            self.held.record_write(at, round);
        }
        let reads = if wrote.foreign {
            self.held.record_foreign_write(row, round);
            // Another client changed the row before it was read.
            let unread = |reader| StaleRead::new(reader, wrote.ack, wrote.ack, Verdict::Foreign);
            Some((0..self.readers).map(unread).collect())
        } else {
            let since = self.held.own_since(row);
            let order = ReadCommand {
                row,
                round,
                since,
                ack: wrote.ack,
                offset,
                gtid: wrote.gtid,
                synced: with,
                until_shown,
            };
            self.reader_pool.observe(self.shared, order)?
        };
        let Some(mut reads) = reads else {
            return Ok(false);
        };
        if reads.iter().any(|read| read.verdict == Verdict::Foreign) {
            self.held.record_foreign_write(row, round);
        }
        for read in reads
            .iter_mut()
            .filter(|read| read.verdict == Verdict::Stale)
        {
            read.behind = self.rows.behind(row, read.seen, round);
        }
        if phase == StalePhase::AtOnce {
            self.learn_delay(wrote.ack, &reads);
        }
        let (send, ack, conflicts) = (wrote.send, wrote.ack, wrote.conflicts);
        let _ = self.out.send(StaleRound {
            phase,
            round,
            row,
            offset,
            send,
            ack,
            conflicts,
            reset,
            reads,
        });
        Ok(true)
    }

    /// Counts a write lost to conflicts; returns whether the run continues.
    fn gives_up(&mut self) -> bool {
        self.lost += 1;
        self.shared.lost.fetch_add(1, Ordering::Relaxed);
        if self.lost >= MAX_LOST {
            self.shared.all_lost.store(true, Ordering::Relaxed);
            return false;
        }
        !self.shared.halted()
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
