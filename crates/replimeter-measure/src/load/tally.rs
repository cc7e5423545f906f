//! What a load's threads add up to, in bounded memory.

use std::collections::BTreeMap;

use replimeter_model::{load::LoadError, time::Nanos};
use replimeter_stats::{rate::Counter, signed::SignedHistogram};

/// The most kinds of errors that are told apart.
const MOST_KINDS: usize = 64;

/// One pass that was completed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pass {
    /// When it was to begin.
    pub(super) intended: Nanos,
    /// When it began.
    pub(super) began: Nanos,
    /// When it ended.
    pub(super) ended: Nanos,
}

/// Figures of one load; counts only between [`begin`](Self::begin) and
/// [`end`](Self::end), which may be called several times.
#[derive(Debug)]
pub(super) struct Tally {
    since: Option<Nanos>,
    /// Counted time of the stretches before.
    pub(super) counted: Nanos,
    counter: Counter,
    pub(super) passes: u64,
    pub(super) latency: SignedHistogram,
    pub(super) service: SignedHistogram,
    pub(super) retries: u64,
    pub(super) failed: u64,
    errors: BTreeMap<Option<u16>, LoadError>,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            since: None,
            counted: Nanos(0),
            counter: Counter::new(Nanos(0)),
            passes: 0,
            latency: SignedHistogram::default(),
            service: SignedHistogram::default(),
            retries: 0,
            failed: 0,
            errors: BTreeMap::new(),
        }
    }
}

impl Tally {
    /// Counts from now on.
    pub(super) fn begin(&mut self, now: Nanos) {
        self.since.get_or_insert(now);
    }

    /// Counts no more.
    pub(super) fn end(&mut self, now: Nanos) {
        if let Some(since) = self.since.take() {
            self.counted = self.counted + (now - since);
        }
    }

    /// A pass that was completed.
    pub(super) fn pass(&mut self, pass: &Pass) {
        let Some(since) = self.since.filter(|since| pass.ended >= *since) else { return };
        self.passes += 1;
        // The clock of the counter stands still between the stretches.
        self.counter.record(self.counted + (pass.ended - since));
        self.latency.record(pass.ended - pass.intended);
        self.service.record(pass.ended - pass.began);
    }

    /// A pass that is begun again.
    pub(super) fn retry(&mut self) {
        self.retries += u64::from(self.since.is_some());
    }

    /// A pass that was given up.
    pub(super) fn failure(&mut self) {
        self.failed += u64::from(self.since.is_some());
    }

    /// An error, with its number if it has one.
    pub(super) fn error(&mut self, code: Option<u16>, words: &str) {
        if self.since.is_none() || !self.errors.contains_key(&code) && self.errors.len() >= MOST_KINDS {
            return;
        }
        let known = self.errors.entry(code).or_insert_with(|| LoadError { code, count: 0, message: words.to_owned() });
        known.count += 1;
    }

    /// Passes per second, with an interval.
    pub(super) fn throughput(&self) -> replimeter_model::load::Rate {
        self.counter.rate(self.counted)
    }

    /// The errors met, the most frequent first.
    pub(super) fn errors(&self) -> Vec<LoadError> {
        let mut errors: Vec<LoadError> = self.errors.values().cloned().collect();
        errors.sort_by_key(|error| std::cmp::Reverse(error.count));
        errors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_ends_in_a_counted_stretch_counts() {
        let mut tally = Tally::default();
        let second = 1_000_000_000;
        let at = |tally: &mut Tally, ended: i64| {
            tally.pass(&Pass { intended: Nanos(ended - 3), began: Nanos(ended - 2), ended: Nanos(ended) });
        };
        at(&mut tally, 5);
        tally.begin(Nanos(10));
        at(&mut tally, 20);
        tally.error(Some(1213), "deadlock");
        tally.retry();
        tally.end(Nanos(10 + second));
        at(&mut tally, 30 + second);
        tally.begin(Nanos(100 * second));
        at(&mut tally, 100 * second + 5);
        tally.end(Nanos(101 * second));
        assert_eq!((tally.passes, tally.retries, tally.failed, tally.counted), (2, 1, 0, Nanos(2 * second)));
        assert_eq!(tally.throughput().mean, Some(1.0), "the pause between the stretches does not count");
        assert_eq!((tally.latency.max(), tally.service.max()), (Some(Nanos(3)), Some(Nanos(2))));
        assert_eq!(tally.errors()[0].count, 1);
    }
}
