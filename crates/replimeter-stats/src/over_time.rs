//! Figures over time of a quantity that is observed at irregular instants: each observation counts with the time that it
//! stands for, so a stall counts with its length and not with the few observations made during it.

use replimeter_model::{record::Distribution, time::Nanos};

use crate::{
    share::wilson,
    signed::{BEYOND, Count, SignedHistogram},
    student::{Z95, student_point},
};

/// Time of one count of the weighted histogram, in nanoseconds.
const UNIT: i64 = 100_000;
/// Maximum number of windows; twice as many are merged in pairs.
const WINDOWS: usize = 128;
/// Initial length of a window, in nanoseconds.
const FIRST_LENGTH: i64 = 20_000_000;
/// Minimum number of windows whose spread is estimated.
const MIN_WINDOWS: usize = 8;

/// The distribution over time of an observed quantity.
#[derive(Clone, Debug, Default)]
pub struct OverTime {
    observed: SignedHistogram,
    weighted: SignedHistogram,
    /// Time that did not fill a count yet, in nanoseconds.
    rest: i64,
}

impl OverTime {
    /// Adds an observation that stands for a time.
    pub fn record(&mut self, value: Nanos, stands_for: Nanos) {
        self.observed.record(value);
        let time = self.rest + stands_for.0.max(0);
        self.rest = time % UNIT;
        self.weighted
            .record_n(value, Count::try_from(time / UNIT).unwrap_or(Count::MAX));
    }

    /// Returns the observations by time, a count for each 0.1 ms; a lone observation has one.
    #[must_use]
    pub fn histogram(&self) -> &SignedHistogram {
        if self.weighted.count() == 0 {
            &self.observed
        } else {
            &self.weighted
        }
    }

    /// Returns the mean over time.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        self.histogram().mean()
    }

    /// Returns the largest observation.
    #[must_use]
    pub fn max(&self) -> Option<Nanos> {
        self.observed.max()
    }

    /// Returns the value that is not exceeded in the share `p` of the time, for `p` ≥ ½. `None` when fewer than
    /// [`BEYOND`] observations lie at or beyond it: those of the `1 − p` of the time with the largest values.
    #[must_use]
    pub fn quantile(&self, p: f64) -> Option<Nanos> {
        self.observed.quantile(p)?;
        let value = self.histogram().quantile(p)?;
        let below = self.observed.count_below(value);
        (self.observed.count() - below >= BEYOND).then_some(value)
    }

    /// Returns the reported distribution, without intervals; `count` is the number of observations.
    #[must_use]
    pub fn distribution(&self) -> Distribution {
        let us = |nanos: Option<Nanos>| nanos.map(Nanos::as_micros);
        Distribution {
            count: self.observed.count(),
            min_us: us(self.observed.min()),
            mean_us: self.mean().map(|nanos| nanos / 1e3),
            stdev_us: self.histogram().stdev().map(|nanos| nanos / 1e3),
            p50_us: us(self.quantile(0.5)),
            p90_us: us(self.quantile(0.9)),
            p95_us: us(self.quantile(0.95)),
            p99_us: us(self.quantile(0.99)),
            p999_us: us(self.quantile(0.999)),
            max_us: us(self.max()),
            ..Distribution::default()
        }
    }
}

/// Returns a value for every `step` from the first observation to the last one: that of the nearest observation, none
/// where it is farther than `reach`. Takes observations `(time, value)` in order of time.
#[must_use]
pub fn at_regular_times(observed: &[(f64, f64)], step: f64, reach: f64) -> Vec<f64> {
    let (Some((first, _)), Some((last, _))) = (observed.first(), observed.last()) else {
        return Vec::new();
    };
    let mut nearest = 0;
    let mut regular = Vec::new();
    let mut ticks = 0u32;
    loop {
        let time = first + f64::from(ticks) * step;
        if time > *last || step <= 0.0 {
            return regular;
        }
        let distance = |index: usize| observed.get(index).map(|(at, _)| (at - time).abs());
        while distance(nearest + 1) < distance(nearest) && nearest + 1 < observed.len() {
            nearest += 1;
        }
        if (observed[nearest].0 - time).abs() <= reach {
            regular.push(observed[nearest].1);
        }
        ticks += 1;
    }
}

/// A mean over time with its interval, in bounded memory.
#[derive(Clone, Debug)]
pub struct TimeMean {
    length: i64,
    observations: u64,
    /// Time and the integral of the quantity over it, for each window.
    windows: Vec<(f64, f64)>,
    /// The same for each start of the servers; empty where starts are not separated.
    starts: Vec<(f64, f64)>,
}

impl Default for TimeMean {
    fn default() -> Self {
        Self {
            length: FIRST_LENGTH,
            observations: 0,
            windows: Vec::new(),
            starts: Vec::new(),
        }
    }
}

/// Returns half of the width of the 95 % interval of `mean`, that of independent parts with these times and integrals:
/// Student's, for the linearized ratio of their sums (Cochran 1977, §6.3). `None` below two parts.
fn students_half(parts: &[(f64, f64)], mean: f64) -> Option<f64> {
    let count = parts.len() as f64;
    let time: f64 = parts.iter().map(|(time, _)| time).sum();
    let squares: f64 = parts
        .iter()
        .map(|(time, sum)| (sum - mean * time).powi(2))
        .sum();
    let point = student_point(0.975, count - 1.0)?;
    let error = (squares * count / (count - 1.0)).sqrt() / time;
    Some(point * error)
}

/// Joins parts in pairs.
pub(crate) fn join(windows: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let sum = |pair: &[(f64, f64)]| {
        pair.iter()
            .fold((0.0, 0.0), |sum, next| (sum.0 + next.0, sum.1 + next.1))
    };
    windows.chunks(2).map(sum).collect()
}

/// Returns half of the width of the 95 % interval of `mean` from windows of these times and integrals: the largest result of
/// several lengths, as dependence that is longer than a window does not show between windows. `None` below eight.
pub(crate) fn widest_half(mut windows: Vec<(f64, f64)>, mean: f64) -> Option<f64> {
    let mut widest: Option<f64> = None;
    while windows.len() >= MIN_WINDOWS {
        let half = students_half(&windows, mean)?;
        widest = Some(widest.unwrap_or(0.0).max(half));
        windows = join(&windows);
    }
    widest
}

impl TimeMean {
    /// Adds an observation at a time since the start of the run, and the time that it stands for.
    pub fn record(&mut self, since: Nanos, value: f64, stands_for: Nanos) {
        let since = since.0.max(0);
        while since / self.length >= WINDOWS as i64 {
            self.windows = join(&self.windows);
            self.length *= 2;
        }
        let index = usize::try_from(since / self.length).unwrap_or(WINDOWS - 1);
        if self.windows.len() <= index {
            self.windows.resize(index + 1, (0.0, 0.0));
        }
        let time = stands_for.0.max(0) as f64;
        for part in [Some(&mut self.windows[index]), self.starts.last_mut()]
            .into_iter()
            .flatten()
        {
            part.0 += time;
            part.1 += time * value;
        }
        self.observations += 1;
    }

    /// Separates the observations that follow, which are of a new start of the servers. Their times are those of measuring
    /// ([`crate::measured_time`]).
    pub fn begin_start(&mut self) {
        self.starts.push((0.0, 0.0));
    }

    /// Returns the mean over time; `None` when no time was observed.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        let (time, sum) = self
            .windows
            .iter()
            .fold((0.0, 0.0), |sum, next| (sum.0 + next.0, sum.1 + next.1));
        (time > 0.0).then(|| sum / time)
    }

    /// Returns half of the width of the 95 % interval: that of windows, with the largest result of several lengths, as
    /// dependence that is longer than a window does not show between windows; or that of starts, if it is larger. `None`
    /// below eight windows and two starts.
    fn half_width(&self) -> Option<f64> {
        let mean = self.mean()?;
        let observed = |parts: &[(f64, f64)]| -> Vec<(f64, f64)> {
            let observed = parts.iter().filter(|(time, _)| *time > 0.0);
            observed.copied().collect()
        };
        let starts = observed(&self.starts);
        let of_starts = (starts.len() > 1)
            .then(|| students_half(&starts, mean))
            .flatten();
        let of_windows = widest_half(observed(&self.windows), mean);
        of_starts.into_iter().chain(of_windows).reduce(f64::max)
    }

    /// Returns the number of observations divided by that of independent ones with the same error of a share, at least 1;
    /// 1 where the run is too short to estimate it.
    #[must_use]
    pub fn inflation(&self) -> f64 {
        let error = self.half_width().unwrap_or_default() / Z95;
        let share = self.mean().unwrap_or_default().clamp(0.0, 1.0);
        if share * (1.0 - share) > 0.0 {
            (error.powi(2) * self.observations as f64 / (share * (1.0 - share))).max(1.0)
        } else {
            1.0
        }
    }

    /// Returns the 95 % interval of a share of the time (the observations are 0 or 1): Wilson's, for the number of
    /// independent observations that would have the same error; all, where the share is 0 or 1.
    /// `None` when the run is too short.
    #[must_use]
    pub fn share_interval(&self) -> Option<[f64; 2]> {
        let (share, half) = (self.mean()?.clamp(0.0, 1.0), self.half_width()?);
        let trials = self.observations as f64;
        let independent = if half > 0.0 {
            share * (1.0 - share) * (Z95 / half).powi(2)
        } else {
            trials
        };
        let effective = independent.min(trials);
        Some(wilson(share * effective, effective))
    }
}

#[cfg(test)]
mod tests {
    use replimeter_model::random::Random;

    use super::*;

    #[test]
    fn observations_count_with_their_time() {
        let mut over = OverTime::default();
        for _ in 0..5400 {
            over.record(Nanos(0), Nanos(10_000_000));
        }
        for poll in 0..60 {
            over.record(Nanos(50 + poll * 100), Nanos(100_000_000));
        }
        let mean = over.mean().unwrap();
        assert!((mean - 300.0).abs() < 1e-6, "{mean}");
        assert_eq!(over.quantile(0.5), Some(Nanos(0)));
        let p95 = over.quantile(0.95).unwrap().0;
        assert!((2940..=3060).contains(&p95), "{p95}");
        assert_eq!(over.quantile(0.99), None, "six observations beyond");
        assert_eq!(over.max(), Some(Nanos(5950)));
        assert_eq!(over.distribution().count, 5460);
    }

    #[test]
    fn equal_large_observations_have_a_quantile() {
        // Above 2,048 a bar of the histogram has several values: those of a plateau are all at the quantile, none below.
        let mut over = OverTime::default();
        for _ in 0..1_000 {
            over.record(Nanos(0), Nanos(10_000_000));
        }
        for poll in 0..100 {
            over.record(Nanos(5_000_000 + poll % 3), Nanos(100_000_000));
        }
        let p99 = over.quantile(0.99).unwrap().0;
        assert!((4_997_000..=5_005_000).contains(&p99), "{p99}");
        assert!(over.quantile(0.9).is_some());
    }

    #[test]
    fn time_below_a_count_is_carried_over() {
        let mut over = OverTime::default();
        for poll in 0..1000 {
            over.record(Nanos(poll / 500), Nanos(70_000));
        }
        assert_eq!(over.histogram().count(), 700);
        assert!((over.mean().unwrap() - 0.5).abs() < 0.01);
    }

    #[test]
    fn values_at_regular_times_are_of_the_nearest_observation() {
        let observed = [(0.0, 1.0), (1.0, 2.0), (4.0, 5.0), (20.0, 9.0)];
        let regular = at_regular_times(&observed, 1.0, 3.0);
        assert_eq!(
            regular,
            [1.0, 2.0, 2.0, 5.0, 5.0, 5.0, 5.0, 5.0, 9.0, 9.0, 9.0, 9.0]
        );
        assert!(at_regular_times(&[], 1.0, 3.0).is_empty());
    }

    #[test]
    fn lone_observation_is_the_mean() {
        let mut over = OverTime::default();
        over.record(Nanos(7), Nanos(0));
        assert_eq!(over.mean(), Some(7.0));
    }

    #[test]
    fn share_of_a_run_without_events_has_an_upper_bound() {
        let mut share = TimeMean::default();
        for poll in 0..1000 {
            share.record(Nanos(poll * 10_000_000), 0.0, Nanos(10_000_000));
        }
        let [low, high] = share.share_interval().unwrap();
        assert!(low == 0.0 && high > 0.0 && high < 0.005, "{high}");
    }

    #[test]
    fn short_run_has_no_interval() {
        let mut share = TimeMean::default();
        for poll in 0..5 {
            share.record(Nanos(poll * 20_000_000), 1.0, Nanos(20_000_000));
        }
        assert_eq!(share.share_interval(), None);
    }

    /// Stalls of 0.5 s on average, every 5 s, in runs of 120 s; a look takes 10 ms, and 100 ms in a stall.
    #[test]
    fn share_of_stalls_is_covered() {
        let mut random = Random::new(3);
        let (mut covered, runs) = (0, 400);
        for _ in 0..runs {
            let mut share = TimeMean::default();
            let (mut now, mut until, mut stalled) = (0.0f64, 0.0f64, true);
            while now < 120.0 {
                while until <= now {
                    stalled = !stalled;
                    let mean = if stalled { 0.5 } else { 4.5 };
                    until += -mean * (1.0 - random.uniform()).ln();
                }
                let gap = if stalled { 0.1 } else { 0.01 };
                let nanos = |seconds: f64| Nanos((seconds * 1e9) as i64);
                share.record(nanos(now), f64::from(u8::from(stalled)), nanos(gap));
                now += gap;
            }
            let [low, high] = share.share_interval().unwrap();
            covered += u32::from(low <= 0.1 && 0.1 <= high);
        }
        assert!(covered * 10 >= runs * 9, "{covered} of {runs}");
    }
}
