//! Counts of a load's threads, in bounded memory.

use std::collections::BTreeMap;

use replimeter_engine::ErrorClass;
use replimeter_model::{
    load::{LoadError, Retried},
    time::Nanos,
};
use replimeter_stats::{rate::Counter, signed::SignedHistogram};

/// Maximum number of distinct errors.
const MAX_ERROR_KINDS: usize = 64;
/// Maximum number of distinct seconds: ten hours.
const MAX_SECONDS: usize = 36_000;
const SECOND: i64 = 1_000_000_000;

/// Counts of one thread, or of several together.
#[derive(Debug)]
pub(super) struct LoadStatistics {
    counter: Counter,
    /// Counts of whole seconds, including the current one.
    seconds: Vec<u32>,
    pub(super) operations: u64,
    pub(super) statements: u64,
    /// When the last of them ended, since counting began.
    pub(super) last: Nanos,
    pub(super) service: SignedHistogram,
    /// Latency from the intended start, if that differs: in an open loop.
    response: Option<SignedHistogram>,
    pub(super) retries: BTreeMap<ErrorClass, u64>,
    pub(super) failed: u64,
    errors: BTreeMap<Option<u16>, LoadError>,
}

impl LoadStatistics {
    pub(super) fn new(open: bool) -> Self {
        Self {
            counter: Counter::new(Nanos(0)),
            seconds: Vec::new(),
            operations: 0,
            statements: 0,
            last: Nanos(0),
            service: SignedHistogram::default(),
            response: open.then(SignedHistogram::default),
            retries: BTreeMap::new(),
            failed: 0,
            errors: BTreeMap::new(),
        }
    }

    /// Counts a completed operation, by its start; start and end are since counting began.
    #[inline]
    pub(super) fn operation(
        &mut self,
        [since, ended]: [Nanos; 2],
        response: Nanos,
        service: Nanos,
        statements: u64,
    ) {
        self.operations += 1;
        self.statements += statements;
        self.last = ended;
        self.counter.record(since);
        self.service.record(service);
        if let Some(histogram) = &mut self.response {
            histogram.record(response);
        }
        let second = (since.0 / SECOND) as usize;
        if second >= self.seconds.len() {
            self.seconds.resize((second + 1).min(MAX_SECONDS), 0);
        }
        if let Some(count) = self.seconds.get_mut(second) {
            *count += 1;
        }
    }

    /// Counts a retry.
    pub(super) fn retry(&mut self, why: ErrorClass) {
        *self.retries.entry(why).or_default() += 1;
    }

    /// Counts an error, with its number if it has one.
    pub(super) fn error(&mut self, code: Option<u16>, words: &str) {
        if !self.errors.contains_key(&code) && self.errors.len() >= MAX_ERROR_KINDS {
            return;
        }
        let known = self.errors.entry(code).or_insert_with(|| LoadError {
            code,
            count: 0,
            message: words.to_owned(),
        });
        known.count += 1;
    }

    /// Adds another thread's counts of the same time.
    pub(super) fn merge(&mut self, other: &Self) {
        self.counter.merge(&other.counter, Nanos(0));
        self.last = self.last.max(other.last);
        self.add(other);
        if self.seconds.len() < other.seconds.len() {
            self.seconds.resize(other.seconds.len(), 0);
        }
        for (mine, theirs) in self.seconds.iter_mut().zip(&other.seconds) {
            *mine += theirs;
        }
    }

    /// Adds the counts of a later window, which began `after` the beginning of this one; the time in
    /// between does not count. Only the first seconds are kept.
    pub(super) fn append(&mut self, later: &Self, after: Nanos) {
        self.counter.merge(&later.counter, after);
        self.last = after + later.last;
        self.add(later);
        let whole = (after.0 / SECOND) as usize;
        self.seconds.resize(whole.min(MAX_SECONDS), 0);
        let left = MAX_SECONDS - self.seconds.len();
        self.seconds.extend(later.seconds.iter().take(left));
    }

    fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.statements += other.statements;
        self.service.merge(&other.service);
        match (&mut self.response, &other.response) {
            (Some(mine), Some(theirs)) => mine.merge(theirs),
            (None, Some(theirs)) => self.response = Some(theirs.clone()),
            _ => {}
        }
        for (why, count) in &other.retries {
            *self.retries.entry(*why).or_default() += count;
        }
        self.failed += other.failed;
        for (code, error) in &other.errors {
            if let Some(known) = self.errors.get_mut(code) {
                known.count += error.count;
            } else if self.errors.len() < MAX_ERROR_KINDS {
                self.errors.insert(*code, error.clone());
            }
        }
    }

    /// Returns latencies from the intended starts.
    pub(super) fn response(&self) -> &SignedHistogram {
        self.response.as_ref().unwrap_or(&self.service)
    }

    /// Returns operations per second, with an interval.
    pub(super) fn throughput(&self, counted: Nanos) -> replimeter_model::load::Rate {
        self.counter.rate(counted)
    }

    /// Returns the counts of each whole second of the counted time.
    pub(super) fn per_second(&self, counted: Nanos) -> Vec<u64> {
        let whole = ((counted.0 / SECOND).max(0) as usize).min(MAX_SECONDS);
        (0..whole)
            .map(|second| u64::from(self.seconds.get(second).copied().unwrap_or(0)))
            .collect()
    }

    /// Returns the errors, the most frequent first.
    pub(super) fn errors(&self) -> Vec<LoadError> {
        let mut errors: Vec<LoadError> = self.errors.values().cloned().collect();
        errors.sort_by_key(|error| std::cmp::Reverse(error.count));
        errors
    }

    /// Returns the retries by reason.
    pub(super) fn retried(&self) -> Vec<Retried> {
        self.retries
            .iter()
            .map(|(why, count)| Retried {
                kind: why.name().to_owned(),
                count: *count,
            })
            .collect()
    }
}

/// Measures the mean processor time for recording one of `operations` operations, including its reading
/// of the clock, with latencies in a server's range.
#[must_use]
pub fn recording_cost(operations: u32) -> std::time::Duration {
    let clock = crate::clock::Clock::start();
    let mut random = replimeter_model::random::Random::numbered(1);
    let mut statistics = LoadStatistics::new(true);
    let (began, before) = (clock.now(), crate::clock::thread_cpu());
    for _ in 0..operations {
        let at = clock.now();
        // From 50 µs to 1 ms.
        let took = 50_000 + (random.bits() >> 44) as i64;
        statistics.operation([at - began; 2], Nanos(took + 7_000), Nanos(took), 1);
    }
    let took = crate::clock::thread_cpu() - before;
    std::hint::black_box(&statistics);
    took / operations.max(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(operations: &[(i64, i64)], open: bool) -> LoadStatistics {
        let mut statistics = LoadStatistics::new(open);
        for (since, service) in operations {
            statistics.operation([Nanos(*since); 2], Nanos(service + 5), Nanos(*service), 2);
        }
        statistics
    }

    #[test]
    fn intervals_exclude_the_pauses_between_them() {
        let mut first = of(&[(1, 10), (SECOND - 1, 20)], true);
        first.error(Some(1213), "deadlock");
        first.retry(ErrorClass::Deadlock);
        let mut second = of(&[(5, 30)], true);
        second.error(Some(1213), "another");
        second.failed += 1;
        first.append(&second, Nanos(2 * SECOND));
        assert_eq!(
            (first.operations, first.statements, first.failed),
            (3, 6, 1)
        );
        assert_eq!(first.throughput(Nanos(3 * SECOND)).mean, Some(1.0));
        assert_eq!(first.per_second(Nanos(3 * SECOND)), [2, 0, 1]);
        assert_eq!(
            (first.errors()[0].count, first.errors()[0].message.as_str()),
            (2, "deadlock")
        );
        assert_eq!(
            first.retried(),
            [Retried {
                kind: "deadlock".to_owned(),
                count: 1
            }]
        );
        assert_eq!(
            (first.response().max(), first.service.max()),
            (Some(Nanos(35)), Some(Nanos(30)))
        );
    }

    proptest! {
        #[test]
        fn merged_threads_equal_one_thread(
            a in proptest::collection::vec((0i64..20 * SECOND, 1i64..1_000_000), 0..60),
            b in proptest::collection::vec((0i64..400 * SECOND, 1i64..1_000_000), 0..60),
        ) {
            let mut merged = of(&a, true);
            merged.merge(&of(&b, true));
            let all: Vec<(i64, i64)> = a.iter().chain(&b).copied().collect();
            let whole = of(&all, true);
            let counted = Nanos(400 * SECOND);
            prop_assert_eq!(merged.per_second(counted), whole.per_second(counted));
            prop_assert_eq!(merged.throughput(counted).mean, whole.throughput(counted).mean);
            prop_assert_eq!(merged.service.quantile(0.5), whole.service.quantile(0.5));
            prop_assert_eq!((merged.operations, merged.response().max()), (whole.operations, whole.response().max()));
        }
    }
}
