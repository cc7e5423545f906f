//! Rates of events with confidence intervals, from batches of the run.

use replimeter_model::{load::Rate, time::Nanos};
use statrs::distribution::{ChiSquared, ContinuousCDF};

/// Batches of the interval: fewer and longer ones depend less on one another.
const BATCHES: usize = 20;
/// Minimum number of batches for an interval.
const MIN_BATCHES: usize = 8;
/// Minimum number of events for batches, two for each: with fewer, the count itself is more
/// precise.
const FEW: u64 = 2 * BATCHES as u64;
/// Maximum number of windows; twice as many are merged in pairs.
const WINDOWS: usize = 256;
/// Initial length of a window, in nanoseconds.
const FIRST_LENGTH: i64 = 50_000_000;

/// The 97.5 % points of Student's distribution for 7 to 19 degrees of freedom.
const T95: [f64; 13] = [
    2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093,
];

/// Returns the rate of a counter, from readings `(when, count)` in order of time.
///
/// The interval is that of batch means (Schmeiser 1982): the readings are combined to at most
/// twenty batches, whose rates are treated as independent. `None` for fewer than eight
/// batches, and no rate for fewer than two readings.
#[must_use]
pub fn of_readings(readings: &[(Nanos, u64)]) -> Rate {
    let (Some(first), Some(last)) = (readings.first(), readings.last()) else {
        return Rate::default();
    };
    let per_s = |from: &(Nanos, u64), to: &(Nanos, u64)| {
        let seconds = (to.0 - from.0).0 as f64 / 1e9;
        (seconds > 0.0).then(|| (to.1 as f64 - from.1 as f64) / seconds)
    };
    let steps = readings.len() - 1;
    let batches = steps.min(BATCHES);
    let rates: Vec<f64> = (0..batches)
        .filter_map(|batch| {
            per_s(
                &readings[batch * steps / batches],
                &readings[(batch + 1) * steps / batches],
            )
        })
        .collect();
    with_interval(per_s(first, last), &rates)
}

/// Returns the mean with an interval from the rates of its batches.
fn with_interval(mean: Option<f64>, rates: &[f64]) -> Rate {
    let count = rates.len() as f64;
    let middle = rates.iter().sum::<f64>() / count;
    let stdev = (rates.len() > 1).then(|| {
        (rates
            .iter()
            .map(|rate| (rate - middle).powi(2))
            .sum::<f64>()
            / (count - 1.0))
            .sqrt()
    });
    let half = stdev
        .filter(|_| rates.len() >= MIN_BATCHES)
        .map(|stdev| T95[(rates.len() - MIN_BATCHES).min(T95.len() - 1)] * stdev / count.sqrt());
    let end = |sign: f64| Some(mean? + sign * half?);
    Rate {
        mean,
        stdev,
        ci95: [end(-1.0), end(1.0)].into(),
    }
}

/// Counts events in windows of time, in bounded memory.
#[derive(Clone, Debug)]
pub struct Counter {
    origin: Nanos,
    length: i64,
    counts: Vec<u64>,
    /// The window of the last event, and its begin and end, counted from the origin: events arrive
    /// nearly in order, and a division is expensive.
    last: usize,
    begins: i64,
    ends: i64,
}

impl Counter {
    /// Returns a counter that starts at `origin`.
    #[must_use]
    pub fn new(origin: Nanos) -> Self {
        Self {
            origin,
            length: FIRST_LENGTH,
            counts: Vec::new(),
            last: 0,
            begins: 0,
            ends: 0,
        }
    }

    /// Counts an event; events before the origin are ignored.
    #[inline]
    pub fn record(&mut self, at: Nanos) {
        let since = (at - self.origin).0;
        if self.begins <= since && since < self.ends {
            self.counts[self.last] += 1;
        } else {
            self.add(since, 1);
        }
    }

    fn add(&mut self, since: i64, count: u64) {
        if since < 0 {
            return;
        }
        while since / self.length >= WINDOWS as i64 {
            self.halve();
        }
        let index = usize::try_from(since / self.length).unwrap_or(WINDOWS - 1);
        if self.counts.len() <= index {
            self.counts.resize(index + 1, 0);
        }
        self.counts[index] += count;
        self.last = index;
        self.begins = index as i64 * self.length;
        self.ends = self.begins + self.length;
    }

    /// Doubles the length of the windows.
    fn halve(&mut self) {
        self.counts = self
            .counts
            .chunks(2)
            .map(|pair| pair.iter().sum())
            .collect();
        self.length *= 2;
        (self.begins, self.ends) = (0, 0);
    }

    /// Adds the events of another counter, shifted by `later`. Both store windows, so an event may
    /// move by the length of one.
    pub fn merge(&mut self, other: &Self, later: Nanos) {
        while self.length < other.length {
            self.halve();
        }
        for (index, count) in other
            .counts
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0)
        {
            self.add(index as i64 * other.length + later.0, *count);
        }
    }

    /// Returns the events per second until `end`, with the interval of [`of_readings`]; for few events with that of a
    /// Poisson count (Garwood 1936), which treats them as independent, has an upper end for zero events, and is never
    /// negative.
    #[must_use]
    pub fn rate(&self, end: Nanos) -> Rate {
        let whole = ((end - self.origin).0.max(0) / self.length) as usize;
        let mut readings = vec![(self.origin, 0)];
        let mut sum = 0;
        for index in 0..whole {
            // Windows without events count, too.
            sum += self.counts.get(index).copied().unwrap_or(0);
            readings.push((self.origin + Nanos((index as i64 + 1) * self.length), sum));
        }
        let rate = of_readings(&readings);
        let seconds = (whole as i64 * self.length) as f64 / 1e9;
        if sum >= FEW || seconds <= 0.0 {
            return rate;
        }
        let [low, high] = poisson(sum);
        Rate {
            ci95: [Some(low / seconds), Some(high / seconds)].into(),
            ..rate
        }
    }
}

/// Returns the 95 % interval of the mean of a Poisson distribution with this count, by chi-squared
/// quantiles.
fn poisson(count: u64) -> [f64; 2] {
    let quantile = |freedom: u64, level: f64| {
        ChiSquared::new(freedom as f64).map_or(0.0, |chi| chi.inverse_cdf(level) / 2.0)
    };
    [quantile(2 * count, 0.025), quantile(2 * count + 2, 0.975)]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn few_events_have_a_poisson_interval() {
        // Garwood's table: 0, 1, 5 and 30 events.
        for (count, low, high) in [
            (0, 0.0, 3.689),
            (1, 0.025, 5.572),
            (5, 1.623, 11.668),
            (30, 20.241, 42.827),
        ] {
            let [below, above] = poisson(count);
            assert!(
                (below - low).abs() < 1e-3 && (above - high).abs() < 1e-3,
                "{count}: {below} {above}"
            );
        }
        let mut counter = Counter::new(Nanos(0));
        let rate = counter.rate(Nanos(10_000_000_000));
        assert_eq!((rate.mean, rate.ci95.low), (Some(0.0), Some(0.0)));
        assert!(
            (rate.ci95.high.unwrap() - 0.3689).abs() < 1e-4,
            "none in ten seconds is not never: {rate:?}"
        );
        counter.record(Nanos(9_900_000_000));
        let rate = counter.rate(Nanos(10_000_000_000));
        assert!(
            rate.ci95.low.unwrap() > 0.0 && rate.ci95.high.unwrap() > rate.mean.unwrap(),
            "{rate:?}"
        );
    }

    #[test]
    fn steady_count_has_a_narrow_interval() {
        let readings: Vec<(Nanos, u64)> = (0..=100i64)
            .map(|at| (Nanos(at * 100_000_000), at as u64 * 50))
            .collect();
        let rate = of_readings(&readings);
        assert_eq!(
            (rate.mean, rate.ci95.low, rate.ci95.high),
            (Some(500.0), Some(500.0), Some(500.0))
        );
    }

    #[test]
    fn too_few_readings_have_no_interval_or_rate() {
        assert_eq!(of_readings(&[]), Rate::default());
        assert_eq!(of_readings(&[(Nanos(0), 5)]).mean, None);
        let few: Vec<(Nanos, u64)> = (0..5)
            .map(|at| (Nanos(at * 1_000_000_000), at as u64))
            .collect();
        let rate = of_readings(&few);
        assert_eq!((rate.mean, rate.ci95.low), (Some(1.0), None));
    }

    #[test]
    fn stall_lowers_the_rate() {
        let mut counter = Counter::new(Nanos(0));
        for event in 0..1000i64 {
            // A thousand in the first of ten seconds.
            counter.record(Nanos(event * 1_000_000));
        }
        let rate = counter.rate(Nanos(10_000_000_000));
        assert_eq!(rate.mean, Some(100.0));
        assert!(
            rate.stdev.unwrap() > 100.0 && rate.ci95.low.unwrap() < 0.0,
            "{rate:?}"
        );
    }

    #[test]
    fn rate_interval_covers_at_its_nominal_rate() {
        let mut state = 7u64;
        let mut covered = 0;
        for _ in 0..400 {
            let mut counter = Counter::new(Nanos(0));
            let mut at = 0.0;
            loop {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let uniform = ((state >> 11) as f64 + 1.0) / (1u64 << 53) as f64;
                at += -uniform.ln() * 1e9 / 200.0;
                if at >= 10e9 {
                    break;
                }
                counter.record(Nanos(at as i64));
            }
            let rate = counter.rate(Nanos(10_000_000_000));
            covered +=
                u32::from(rate.ci95.low.unwrap() <= 200.0 && 200.0 <= rate.ci95.high.unwrap());
        }
        // Nominal 95 %; three standard errors of a share of 400 are 3.3 %.
        assert!(covered >= 367, "{covered} of 400");
    }

    #[test]
    fn merged_counters_have_all_events() {
        let mut merged = Counter::new(Nanos(0));
        let mut other = Counter::new(Nanos(7));
        for event in 0..1000i64 {
            merged.record(Nanos(event * 1_000_000));
            other.record(Nanos(7 + event * 30_000_000));
        }
        merged.merge(&other, Nanos(10_000_000_000));
        let rate = merged.rate(Nanos(40_000_000_000));
        assert_eq!(rate.mean, Some(50.0));
    }

    proptest! {
        #[test]
        fn no_event_is_lost_and_memory_is_bounded(times in proptest::collection::vec(0i64..400_000_000_000, 1..200)) {
            let mut counter = Counter::new(Nanos(0));
            for at in &times {
                counter.record(Nanos(*at));
            }
            prop_assert_eq!(counter.counts.iter().sum::<u64>(), times.len() as u64);
            prop_assert!(counter.counts.len() <= WINDOWS);
        }
    }
}
