//! The estimated distribution: its quantiles, their intervals, and its reported figures.

use replimeter_model::{
    random::Random,
    record::{Distribution, EstimateBounds},
    time::Nanos,
};

use super::likelihood::{Fit, Problem};
use crate::{
    dependence,
    signed::{BEYOND, rank_of},
};

/// Resamples behind an interval, and the steps that each of them gets.
const RESAMPLES: usize = 100;
const RESAMPLE_STEPS: usize = 6;
const RESAMPLE_TOLERANCE: f64 = 0.05;
/// The bootstrap's seed: the same brackets always give the same interval.
const SEED: u64 = 0x5EED_0F1E_A50F_1976;
/// Mass below which an interval is treated as empty.
const NOTHING: f64 = 1e-9;
/// Quantiles that get confidence intervals.
const LEVELS: [f64; 4] = [0.5, 0.9, 0.95, 0.99];

/// A quantile of an estimate: in (`low`, `high`]; the brackets do not determine where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantile {
    /// Lower end of the innermost interval; `None` when it has none.
    pub low: Option<Nanos>,
    /// Its middle, or its upper end when there is no lower one.
    pub point: Nanos,
    /// Its upper end.
    pub high: Nanos,
}

/// The non-parametric maximum likelihood estimate.
#[derive(Clone, Debug)]
pub struct Npmle {
    pub(super) intervals: Vec<(Nanos, Nanos)>,
    pub(super) problem: Problem,
    pub(super) fit: Fit,
    pub(super) count: u64,
}

impl Npmle {
    /// Returns the innermost intervals (low, high], ascending, with their masses, which
    /// sum to 1. A low end of `i64::MIN` is open.
    pub fn intervals(&self) -> impl Iterator<Item = (Nanos, Nanos, f64)> + '_ {
        self.intervals
            .iter()
            .zip(&self.fit.masses)
            .map(|(&(low, high), &mass)| (low, high, mass))
    }

    /// Returns an upper bound of the distance of the log-likelihood from its maximum.
    #[must_use]
    pub fn gap(&self) -> f64 {
        self.fit.gap
    }

    /// Returns the number of iterations.
    #[must_use]
    pub fn steps(&self) -> usize {
        self.fit.steps
    }

    /// Returns the quantile `p` (0 to 1).
    #[must_use]
    pub fn quantile(&self, p: f64) -> Quantile {
        self.quantile_of(&self.fit.masses, p)
    }

    /// Returns the number of brackets that show on which side of the quantile `p` their time lies:
    /// all but those that contain its innermost interval and others.
    #[must_use]
    pub fn informative_brackets(&self, p: f64) -> f64 {
        let at = Self::reached(&self.fit.masses, p);
        let runs = self.problem.runs.iter().zip(&self.problem.weights);
        runs.filter(|((from, to), _)| !(*from..*to).contains(&at) || to - from == 1)
            .map(|(_, weight)| weight)
            .sum()
    }

    fn quantile_of(&self, masses: &[f64], p: f64) -> Quantile {
        let (low, high) = self
            .intervals
            .get(Self::reached(masses, p))
            .copied()
            .unwrap_or_default();
        let low = (low.0 != i64::MIN).then_some(low);
        Quantile {
            low,
            point: low.map_or(high, |low| low.midpoint(high)),
            high,
        }
    }

    /// Returns the index of the innermost interval in which the distribution reaches `p`.
    fn reached(masses: &[f64], p: f64) -> usize {
        let mut sum = 0.0;
        let mut last = 0;
        for (at, mass) in masses
            .iter()
            .enumerate()
            .filter(|(_, mass)| **mass > NOTHING)
        {
            sum += mass;
            last = at;
            if sum >= p - NOTHING {
                break;
            }
        }
        last
    }

    /// Returns 95 % confidence intervals of the quantiles `levels`, each given with the factor
    /// by which dependence between neighbors inflates its variance, in microseconds; none for a
    /// quantile without a factor. They end where the estimate does, and are then widened by
    /// `systematic`, an error that is the same for all brackets, on either side.
    ///
    /// Percentiles of a bootstrap: 100 resamples of the brackets on the grid, each re-estimated;
    /// from the 2.5 % point of the innermost intervals' lower ends to the 97.5 % point of their
    /// upper ends, since the position within an innermost interval is uncertain, too. The distance
    /// of both from the estimate is scaled by √factor. Where brackets are wide the estimate's
    /// error decreases more slowly than 1/√n (Groeneboom & Wellner 1992), and there the plain
    /// bootstrap is not proved correct; with the outer ends its simulated coverage was 92 to 98 %
    /// (100 to 3,000 rounds, polling periods from half to twice the spread of the lag).
    #[must_use]
    pub fn bootstrap<const N: usize>(
        &self,
        levels: [(f64, Option<f64>); N],
        systematic: Nanos,
    ) -> [Option<[f64; 2]>; N] {
        if levels.iter().all(|(_, factor)| factor.is_none()) {
            return [None; N];
        }
        let mut random = Random::new(SEED);
        let mut found: Vec<[(Nanos, Nanos); N]> = Vec::with_capacity(RESAMPLES);
        let even = 1.0 / self.intervals.len() as f64;
        // Empty intervals may have mass in a resample.
        let start: Vec<f64> = self
            .fit
            .masses
            .iter()
            .map(|mass| 0.9 * mass + 0.1 * even)
            .collect();
        for _ in 0..RESAMPLES {
            let weights: Vec<f64> = self
                .problem
                .weights
                .iter()
                .map(|weight| random.poisson(*weight))
                .collect();
            if weights.iter().all(|weight| *weight == 0.0) {
                continue;
            }
            let fit = self
                .problem
                .fit(&weights, start.clone(), RESAMPLE_TOLERANCE, RESAMPLE_STEPS);
            found.push(levels.map(|(p, _)| {
                let quantile = self.quantile_of(&fit.masses, p);
                (quantile.low.unwrap_or(quantile.high), quantile.high)
            }));
        }
        let held = self.held();
        let smallest = held.first().map_or(f64::MIN, |(low, _, _)| *low);
        let largest = held.last().map_or(f64::MAX, |(_, high, _)| *high);
        let mut at = 0;
        levels.map(|(p, factor)| {
            let own = self.quantile(p);
            let mut lows: Vec<Nanos> = found.iter().map(|levels| levels[at].0).collect();
            let mut highs: Vec<Nanos> = found.iter().map(|levels| levels[at].1).collect();
            at += 1;
            lows.sort_unstable();
            highs.sort_unstable();
            let rank = |p: f64| {
                usize::try_from(rank_of(p, found.len() as u64))
                    .unwrap_or(1)
                    .saturating_sub(1)
            };
            let low = lows.get(rank(0.025)).copied().unwrap_or(own.point);
            let high = highs.get(rank(0.975)).copied().unwrap_or(own.point);
            let scale = factor?.max(1.0).sqrt();
            Some([-1.0, 1.0].map(|side| {
                let reach_us = if side < 0.0 {
                    own.point.micros_since(low)
                } else {
                    high.micros_since(own.point)
                };
                let end = own.point.as_micros() + side * reach_us.max(0.0) * scale;
                end.clamp(smallest, largest) + side * systematic.as_micros()
            }))
        })
    }

    /// Returns the intervals with mass in microseconds, ascending, and their masses. The low end of
    /// one that has none is its high end.
    fn held(&self) -> Vec<(f64, f64, f64)> {
        self.intervals()
            .filter(|(_, _, mass)| *mass > NOTHING)
            .map(|(low, high, mass)| {
                let low = if low.0 == i64::MIN { high } else { low };
                (low.as_micros(), high.as_micros(), mass)
            })
            .collect()
    }

    /// Returns the reported figures, and how closely the brackets determine them. `inflation`
    /// returns the factor by which dependence between neighbors inflates the variance of the share
    /// of samples up to a quantile and its value; where it is `None`, or fewer than ten effective samples lie beyond
    /// a quantile, there are no confidence intervals; for `systematic` see [`Self::bootstrap`]. `between` returns the interval
    /// around a quantile, in µs, that the spread between starts of the servers gives; the confidence interval reaches at
    /// least as far, and by `systematic` farther.
    #[must_use]
    pub fn figures(
        &self,
        inflation: impl Fn(f64, Nanos) -> Option<f64>,
        between: impl Fn(f64, f64) -> Option<[f64; 2]>,
        systematic: Nanos,
    ) -> (Distribution, EstimateBounds) {
        let stated = |p: f64| {
            let beyond = self.count.saturating_sub(rank_of(p, self.count));
            (beyond >= BEYOND).then(|| self.quantile(p))
        };
        let point = |p: f64| stated(p).map(|quantile| quantile.point.as_micros());
        let within = |p: f64| {
            stated(p).map(|quantile| {
                [quantile.low.unwrap_or(quantile.high), quantile.high].map(Nanos::as_micros)
            })
        };
        let held = self.held();
        let mean: f64 = held
            .iter()
            .map(|(low, high, mass)| low.midpoint(*high) * mass)
            .sum();
        let variance: f64 = held
            .iter()
            .map(|(low, high, mass)| (low.midpoint(*high) - mean).powi(2) * mass)
            .sum();
        let samples = self.count as f64;
        let median = stated(0.5);
        let levels = LEVELS.map(|p| {
            let factor = stated(p)
                .and_then(|quantile| inflation(p, quantile.point))
                .and_then(|inflation| dependence::of_quantile(inflation, samples * (1.0 - p)));
            (p, factor)
        });
        let mut intervals = self.bootstrap(levels, systematic);
        let error = systematic.as_micros();
        for (interval, p) in intervals.iter_mut().zip(LEVELS) {
            let between = point(p).and_then(|point| between(p, point));
            let between = between.map(|[low, high]| [low - error, high + error]);
            *interval = dependence::wider(*interval, between);
        }
        let [p50_us_ci95, p90_us_ci95, p95_us_ci95, p99_us_ci95] = intervals;
        let distribution = Distribution {
            count: self.count,
            min_us: held.first().map(|(low, _, _)| *low),
            mean_us: Some(mean),
            stdev_us: (self.count > 1)
                .then(|| (variance * samples / (samples - 1.0)).max(0.0).sqrt()),
            p50_us: point(0.5),
            p90_us: point(0.9),
            p95_us: point(0.95),
            p99_us: point(0.99),
            p999_us: point(0.999),
            max_us: held.last().map(|(_, high, _)| *high),
            p50_us_ci95,
            p90_us_ci95,
            p95_us_ci95,
            p99_us_ci95,
            inflation: median.and_then(|median| inflation(0.5, median.point)),
            ..Distribution::default()
        };
        let bounds = EstimateBounds {
            p50_us: within(0.5),
            p90_us: within(0.9),
            p99_us: within(0.99),
            steps: self.fit.steps as u64,
            likelihood_gap: self.fit.gap,
            systematic_us: systematic.as_micros(),
        };
        (distribution, bounds)
    }
}
