//! Means over time of quantities that stalls decide, with intervals from whole stalls.
//!
//! A quantity such as the number of exposed transactions grows with the square of a stall's length, so its mean is that of a
//! few long stalls, and the time between them is worth little. The independent units are therefore stalls, each with the
//! time until the next one (cycles of a regenerative process; Asmussen 2003, §VI). Their number is small and their sizes are
//! skewed, so the interval is the bootstrap-t of the logarithm of the mean (Efron & Tibshirani 1993, §12.5; Hall 1992, §3.10),
//! and reaches at least as far as that of windows of time, which see dependence between stalls.
//!
//! No resample holds a stall that is longer than all that were seen. How much those would add is extrapolated from the
//! largest ones (Hill 1975), with the upper 97.5 % limit of the tail's exponent. Where that could be several times the
//! mean, or too few stalls were seen, there is no interval.

use replimeter_model::{random::Random, time::Nanos};
use statrs::distribution::{ChiSquared, ContinuousCDF};

use crate::over_time::{join, widest_half};

/// Minimum number of stalls for an interval.
pub const MIN_STALLS: usize = 20;
/// Upper end of an interval over the mean beyond which the longest stalls decide it, and there is no interval.
pub const MAX_UPPER: f64 = 4.0;

/// Maximum number of windows; twice as many are merged in pairs.
const WINDOWS: usize = 8_192;
/// Maximum number of windows from whose spread an error is estimated.
const COARSE_WINDOWS: usize = 128;
/// Initial length of a window, in nanoseconds.
const FIRST_LENGTH: i64 = 20_000_000;
/// A stall is over when the quantity has fallen to the value that it does not exceed in this share of the time.
const OVER: f64 = 0.25;
/// Resamples of the bootstrap.
const RESAMPLES: usize = 1_000;
/// Minimum number of the largest stalls from which a tail is extrapolated; it is a tenth of them, if that is more.
const TAIL: usize = 10;

/// A time, and the integrals of the quantities over it.
#[derive(Clone, Copy, Debug)]
struct Part<const N: usize> {
    time: f64,
    sums: [f64; N],
}

impl<const N: usize> Part<N> {
    const EMPTY: Self = Self {
        time: 0.0,
        sums: [0.0; N],
    };

    fn add(&mut self, other: &Self) {
        self.time += other.time;
        for (sum, more) in self.sums.iter_mut().zip(other.sums) {
            *sum += more;
        }
    }

    fn joined(pair: &[Self]) -> Self {
        let mut whole = Self::EMPTY;
        pair.iter().for_each(|part| whole.add(part));
        whole
    }
}

/// Quantities over time, in bounded memory. The first one decides what a stall is.
#[derive(Clone, Debug)]
pub struct Stalls<const N: usize> {
    length: i64,
    windows: Vec<Part<N>>,
}

impl<const N: usize> Default for Stalls<N> {
    fn default() -> Self {
        Self {
            length: FIRST_LENGTH,
            windows: Vec::new(),
        }
    }
}

/// Means over time with their 95 % intervals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StallMeans<const N: usize> {
    /// The number of stalls.
    pub stalls: u64,
    /// The mean of each quantity; `None` when no time was observed.
    pub means: [Option<f64>; N],
    /// Its 95 % interval; `None` below [`MIN_STALLS`], or where stalls longer than those seen may decide the mean.
    pub intervals: [Option<[f64; 2]>; N],
}

impl<const N: usize> Stalls<N> {
    /// Adds an observation at a time since the start of the run, and the time that it stands for.
    pub fn record(&mut self, since: Nanos, values: [f64; N], stands_for: Nanos) {
        let since = since.0.max(0);
        while since / self.length >= WINDOWS as i64 {
            self.windows = self.windows.chunks(2).map(Part::joined).collect();
            self.length *= 2;
        }
        let index = usize::try_from(since / self.length).unwrap_or(WINDOWS - 1);
        if self.windows.len() <= index {
            self.windows.resize(index + 1, Part::EMPTY);
        }
        let time = stands_for.0.max(0) as f64;
        self.windows[index].add(&Part {
            time,
            sums: values.map(|value| value * time),
        });
    }

    /// Returns the means alone, which take little time; `None` when no time was observed.
    #[must_use]
    pub fn plain_means(&self) -> [Option<f64>; N] {
        let whole = Part::joined(&self.windows);
        let mean_of = |of: usize| (whole.time > 0.0).then(|| whole.sums[of] / whole.time);
        std::array::from_fn(mean_of)
    }

    /// Returns the means and their intervals.
    #[must_use]
    pub fn means(&self) -> StallMeans<N> {
        let observed = self.windows.iter().filter(|part| part.time > 0.0);
        let windows: Vec<Part<N>> = observed.copied().collect();
        let whole = Part::joined(&windows);
        let cycles = cycles(&windows, &whole);
        let means = self.plain_means();
        let interval_of = |of: usize| {
            let mean = means[of].filter(|mean| *mean > 0.0)?;
            let pairs = |parts: &[Part<N>]| -> Vec<(f64, f64)> {
                let pair = |part: &Part<N>| (part.time, part.sums[of]);
                parts.iter().map(pair).collect()
            };
            let mut coarse = pairs(&windows);
            let calm = quantile(&coarse, OVER);
            while coarse.len() > COARSE_WINDOWS {
                coarse = join(&coarse);
            }
            interval(&pairs(&cycles), &coarse, mean, calm)
        };
        StallMeans {
            stalls: cycles.len() as u64,
            means,
            intervals: std::array::from_fn(interval_of),
        }
    }
}

/// Returns the value that a quantity does not exceed in this share of the time, from windows of time and its integral.
fn quantile(windows: &[(f64, f64)], share: f64) -> f64 {
    let mut sorted: Vec<(f64, f64)> = windows
        .iter()
        .map(|(time, sum)| (sum / time, *time))
        .collect();
    sorted.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut left = share * sorted.iter().map(|(_, time)| time).sum::<f64>();
    for (value, time) in &sorted {
        left -= time;
        if left <= 0.0 {
            return *value;
        }
    }
    sorted.last().map_or(0.0, |(value, _)| *value)
}

/// Returns the cycles of a run, each from the beginning of a stall to that of the next one. A stall begins when the first
/// quantity is as far above its mean as its lower quartile is below it, and is over when it has fallen to that quartile: noise
/// that crosses one level does not begin and end stalls. What lies before the first stall is added to the last cycle.
fn cycles<const N: usize>(windows: &[Part<N>], whole: &Part<N>) -> Vec<Part<N>> {
    let first: Vec<(f64, f64)> = windows
        .iter()
        .map(|part| (part.time, part.sums[0]))
        .collect();
    let mean = whole.sums[0] / whole.time;
    let calm = quantile(&first, OVER).min(mean);
    let high = 2.0 * mean - calm;
    let mut before = Part::EMPTY;
    let mut cycles: Vec<Part<N>> = Vec::new();
    let mut stalled = false;
    for part in windows {
        let value = part.sums[0] / part.time;
        if !stalled && value > high {
            stalled = true;
            cycles.push(Part::EMPTY);
        } else if value <= calm {
            stalled = false;
        }
        cycles.last_mut().unwrap_or(&mut before).add(part);
    }
    if let Some(last) = cycles.last_mut() {
        last.add(&before);
    }
    cycles
}

/// Returns the mean of a quantity over parts with these times and integrals, and its relative standard error (the linearized
/// ratio of sums; Cochran 1977, §6.3). Takes sums over the parts, so that a resample needs none of its own parts.
fn ratio(count: f64, sums: [f64; 5]) -> (f64, f64) {
    let [time, sum, time_time, sum_sum, time_sum] = sums;
    let mean = sum / time;
    let squares = sum_sum - 2.0 * mean * time_sum + mean * mean * time_time;
    let error = (squares.max(0.0) * count / (count - 1.0)).sqrt() / time;
    (mean, error / mean)
}

/// Returns the 95 % interval of a positive mean, from the cycles of stalls, windows of time, and the value of calm time.
fn interval(
    cycles: &[(f64, f64)],
    windows: &[(f64, f64)],
    mean: f64,
    calm: f64,
) -> Option<[f64; 2]> {
    if cycles.len() < MIN_STALLS {
        return None;
    }
    let by_windows = widest_half(windows.to_vec(), mean)? / mean;
    let [low, high] = bootstrap_t(cycles)?;
    let ends = [
        mean * (-by_windows.max(low)).exp(),
        mean * by_windows.max(high).exp(),
    ];
    let high = ends[1].max(with_longer_stalls(cycles, mean, calm)?);
    (high <= MAX_UPPER * mean).then_some([ends[0], high])
}

/// Returns the distances of the logarithm of a mean to the lower and to the upper end of its 95 % interval.
fn bootstrap_t(cycles: &[(f64, f64)]) -> Option<[f64; 2]> {
    let count = cycles.len();
    let terms = |(time, sum): &(f64, f64)| [*time, *sum, time * time, sum * sum, time * sum];
    let add = |mut all: [f64; 5], cycle: &(f64, f64)| {
        let terms = terms(cycle);
        all.iter_mut()
            .zip(terms)
            .for_each(|(sum, term)| *sum += term);
        all
    };
    let (mean, error) = ratio(count as f64, cycles.iter().fold([0.0; 5], add));
    // Fixed seed: always the same resamples.
    let mut random = Random::new(0);
    let mut deviations: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let drawn = (0..count).map(|_| &cycles[random.below(count)]);
            let (drawn, error) = ratio(count as f64, drawn.fold([0.0; 5], add));
            (drawn / mean).ln() / error
        })
        .filter(|deviation| deviation.is_finite())
        .collect();
    if 2 * deviations.len() < RESAMPLES {
        return None;
    }
    deviations.sort_by(f64::total_cmp);
    let at = |share: f64| deviations[((deviations.len() - 1) as f64 * share).round() as usize];
    Some([at(0.975) * error, -at(0.025) * error])
}

/// Returns the mean with what stalls longer than those seen may add: the sum of the largest ones is replaced by that of a
/// Pareto distribution, whose exponent is the upper 97.5 % limit of Hill's estimate (k·γ̂/γ is a gamma variable). `None` where
/// such a distribution has no mean.
fn with_longer_stalls(cycles: &[(f64, f64)], mean: f64, calm: f64) -> Option<f64> {
    let above = |(time, sum): &(f64, f64)| (sum - calm * time).max(0.0);
    let mut sizes: Vec<f64> = cycles.iter().map(above).collect();
    sizes.sort_by(|one, other| other.total_cmp(one));
    let count = TAIL.max(sizes.len() / 10);
    let (largest, others) = sizes.split_at_checked(count)?;
    let limit = *others.first()?;
    let sum: f64 = largest.iter().sum();
    if sum <= 0.0 {
        return Some(mean);
    }
    let excess: f64 = largest.iter().map(|size| (size / limit).ln()).sum();
    let lowest = ChiSquared::new(2.0 * count as f64).ok()?.inverse_cdf(0.025);
    let exponent = 2.0 * excess / lowest;
    let time: f64 = cycles.iter().map(|(time, _)| time).sum();
    let extrapolated = count as f64 * limit / (1.0 - exponent);
    (exponent < 1.0).then(|| mean + (extrapolated - sum).max(0.0) / time)
}

#[cfg(test)]
mod tests;
