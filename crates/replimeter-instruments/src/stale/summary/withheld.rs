//! Rounds that would have begun while others waited.
//!
//! Rounds follow one another: while one waits for a stalled replica no other begins, so the stall would count as one
//! round. The expected interval of rounds is their median one; where two rounds are farther apart, rounds are added at that
//! interval, as Tene's correction for coordinated omission does (HdrHistogram, `recordValueWithExpectedInterval`). A
//! replica shows writes in their order, so a write that is acknowledged while an earlier one is not shown is not shown
//! either: its first read would be stale, and it would become visible when the earlier one does, or later. Nothing is added
//! for a slow write or read, of whose time the staleness is unknown.

use replimeter_model::time::Nanos;
use replimeter_stats::{measured_time::MeasuredTime, over_time::TimeMean, signed::SignedHistogram};

use crate::stale::{
    results::{StaleRead, StaleRound, Verdict},
    summary::visible::Visible,
};

/// Significant digits of the intervals between rounds.
const DIGITS: u8 = 2;
/// Minimum number of intervals for their median.
const MIN_INTERVALS: u64 = 10;
/// The median is computed again each time the number of intervals grows by this part.
const GROWTH: u64 = 8;
/// Intervals up to this many times the median are no wait.
const WAIT: i64 = 2;
/// Maximum number of rounds that are added for one wait; beyond it they are farther apart.
const MAX_ADDED: i64 = 100_000;

/// A round that awaits the next one.
#[derive(Clone, Copy, Debug)]
struct Previous {
    ack: Nanos,
    /// From the acknowledgement: start of the last read that did not show the write, and of the first that did.
    last_stale: Option<Nanos>,
    fresh: Option<Nanos>,
    /// From the acknowledgement: when it was over, as far as this reader is concerned.
    over: Nanos,
    stale: bool,
}

/// Rounds at their expected interval.
#[derive(Clone, Debug)]
pub(super) struct Withheld {
    previous: Option<Previous>,
    time: MeasuredTime,
    origin: Option<Nanos>,
    total: Nanos,
    intervals: SignedHistogram,
    /// Longest time for which this reader did not show a write.
    longest_wait: Nanos,
    median: Nanos,
    /// Number of intervals at which the median is computed again.
    again: u64,
    /// Rounds and added ones: whether the first read was stale.
    share: TimeMean,
    rounds: u64,
    added: u64,
}

impl Default for Withheld {
    fn default() -> Self {
        Self {
            previous: None,
            time: MeasuredTime::default(),
            origin: None,
            total: Nanos(0),
            intervals: SignedHistogram::new(DIGITS),
            longest_wait: Nanos(0),
            median: Nanos(0),
            again: MIN_INTERVALS,
            share: TimeMean::default(),
            rounds: 0,
            added: 0,
        }
    }
}

impl Withheld {
    /// Separates the rounds that follow, which are of a new start of the servers: the time between two starts is no wait.
    pub(super) fn begin_start(&mut self, visible: &mut Visible) {
        self.close(visible);
        self.time.begin_start();
        self.share.begin_start();
    }

    /// Adds an immediate round, and to `visible` the brackets of the rounds that would have begun before it.
    pub(super) fn record(&mut self, round: &StaleRound, read: &StaleRead, visible: &mut Visible) {
        let since = |at: Nanos| at - round.ack;
        let this = Previous {
            ack: round.ack,
            last_stale: read.last_stale.map(since),
            fresh: read.fresh_begin.map(since),
            over: since(read.fresh_begin.unwrap_or(read.end)),
            stale: read.verdict == Verdict::Stale,
        };
        if let Some(before) = self.previous.replace(this) {
            self.between(before, round.ack, visible);
        }
        self.rounds += 1;
        self.share_of(round.ack, this.stale);
    }

    /// Ends the round that no other follows, and adds the brackets of the rounds that would have begun during it to
    /// `visible`: a stall may outlive the rounds.
    pub(super) fn close(&mut self, visible: &mut Visible) {
        let last = self.previous.take();
        let waited = |last: &Previous| self.median.0 > 0 && last.over.0 > WAIT * self.median.0;
        if let Some(last) = last.filter(waited) {
            self.between(last, last.ack + last.over, visible);
        }
    }

    fn share_of(&mut self, at: Nanos, stale: bool) {
        let stale = f64::from(u8::from(stale));
        let at = self.time.of(at);
        let origin = *self.origin.get_or_insert(at);
        self.share.record(at - origin, stale, Nanos(1));
    }

    fn between(&mut self, before: Previous, next: Nanos, visible: &mut Visible) {
        let apart = next - before.ack;
        self.total = self.total + Nanos(apart.0.max(0));
        self.intervals.record(apart);
        // Of a longer interval the rest is a slow write, or another reader's wait.
        let waited = before.fresh.or(before.last_stale).filter(|_| before.stale);
        let waited = waited.unwrap_or_default().min(apart);
        self.longest_wait = self.longest_wait.max(waited);
        if self.intervals.count() >= self.again {
            self.again += (self.again / GROWTH).max(1);
            let middle = self.intervals.count().div_ceil(2);
            self.median = self.intervals.at_rank(middle).unwrap_or_default();
        }
        if self.median.0 <= 0 || apart.0 <= WAIT * self.median.0 {
            return;
        }
        let step = self.median.0.max(apart.0 / MAX_ADDED);
        let mut passed = Nanos(step);
        // The next round itself stands for the last interval.
        while passed.0 + step / 2 < apart.0 {
            let after = |at: Nanos| at - passed;
            let Some(last_stale) = before.last_stale.map(after).filter(|at| at.0 > 0) else {
                // Then the write was shown: a slow answer, of which the staleness is unknown.
                return;
            };
            visible.record_immediate(Some(last_stale), before.fresh.map(after));
            self.added += 1;
            self.share_of(before.ack + passed, true);
            passed = passed + Nanos(step);
        }
    }

    /// Returns the share of stale rounds with the added ones, in percent; `None` without rounds.
    pub(super) fn percent(&self) -> Option<f64> {
        Some(self.share.mean()? * 100.0)
    }

    /// Returns its 95 % interval, in percent.
    pub(super) fn percent_ci95(&self) -> Option<[f64; 2]> {
        Some(self.share.share_interval()?.map(|end| end * 100.0))
    }

    /// Returns the number of added rounds.
    pub(super) fn count(&self) -> u64 {
        self.added
    }

    /// Returns the longest time from a round to the next one.
    pub(super) fn longest(&self) -> Option<Nanos> {
        self.intervals.max()
    }

    /// Returns the longest time for which this reader did not show a write, if it is more than the share of time beyond the
    /// quantile `p`, which then describes this one wait.
    pub(super) fn decides(&self, p: f64) -> Option<Nanos> {
        let decides = |wait: &Nanos| {
            wait.0 > WAIT * self.median.0 && wait.0 as f64 > (1.0 - p) * self.total.0 as f64
        };
        Some(self.longest_wait).filter(decides)
    }

    /// Returns the factor of dependence between rounds, with the added ones.
    pub(super) fn inflation(&self) -> f64 {
        if self.added == 0 {
            1.0
        } else {
            self.share.inflation()
        }
    }
}

#[cfg(test)]
mod tests;
