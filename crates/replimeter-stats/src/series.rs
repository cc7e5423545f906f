//! A distribution accumulated sample by sample, with its windows over the run.

use replimeter_model::{
    record::{Distribution, Window},
    time::Nanos,
};

use crate::{
    by_start::{self, ByStart, is_tail, ranks},
    dependence::{self, Residuals},
    signed::SignedHistogram,
    windows::Windows,
};

/// Samples of one kind.
#[derive(Clone, Debug, Default)]
pub struct Series {
    samples: ByStart,
    windows: Windows,
}

impl Series {
    /// Adds a sample at the time `at` of the run.
    pub fn record(&mut self, at: Nanos, value: Nanos) {
        self.samples.record(value);
        self.windows.record(at, value);
    }

    /// Separates the samples that follow, which are of a new start of the servers.
    pub fn begin_start(&mut self) {
        self.samples.begin_start();
    }

    /// Returns the samples.
    #[must_use]
    pub fn histogram(&self) -> &SignedHistogram {
        self.samples.all()
    }

    /// Returns the windows of the run.
    #[must_use]
    pub fn windows(&self) -> Vec<Window> {
        self.windows.rows()
    }

    /// Returns the factor by which dependence inflates the variance of the share of samples up to `value`: that of neighbors
    /// ([`dependence::inflation`]) or that of starts ([`dependence::of_starts`]), the larger one; `None` when the run is too
    /// short to estimate it.
    #[must_use]
    pub fn inflation(&self, value: Nanos) -> Option<f64> {
        let neighbors = dependence::inflation(&[Residuals::of(&self.windows.counts(value))])?;
        Some(neighbors.max(self.samples.inflation(value)))
    }

    /// Returns a 95 % confidence interval of the quantile `p`, in µs.
    ///
    /// Order statistics at the ranks n·p ± z·√(f·n·p·(1 − p)), where f is the factor of
    /// [`dependence::of_quantile`]; for f = 1 this is the distribution-free interval of David &
    /// Nagaraja (2003, §7.1). It is missing when the quantile itself cannot be given, the run is too short
    /// to estimate the dependence, or fewer than ten effective samples lie beyond the quantile. The interval reaches at
    /// least as far as [`Series::between_starts`], which needs none of these. A tail of too few stalls or starts has none
    /// ([`Series::enough_clusters`]).
    #[must_use]
    pub fn interval(&self, p: f64) -> Option<[f64; 2]> {
        self.ends(p).filter(|_| self.enough_clusters(p))
    }

    /// Returns what the quantile `p` is at least (97.5 %), in µs: the lower end of the interval that few stalls or starts would give. What
    /// they miss only makes the quantile larger.
    #[must_use]
    pub fn at_least(&self, p: f64) -> Option<f64> {
        self.ends(p).map(|[low, _]| low)
    }

    /// Returns the interval of a quantile, however few stalls or starts lie beyond it.
    fn ends(&self, p: f64) -> Option<[f64; 2]> {
        let value = self.histogram().quantile(p)?;
        let count = self.histogram().count() as f64;
        let factor = self
            .inflation(value)
            .and_then(|inflation| dependence::of_quantile(inflation, count * p.min(1.0 - p)));
        let [low, high] = ranks(p, count, factor.unwrap_or(1.0));
        let by_ranks = factor
            .filter(|_| low >= 1.0 && high <= count)
            .and_then(|_| self.samples.between_ranks([low, high]));
        let between = self.between_starts(p, value.as_micros());
        dependence::wider(by_ranks, between)
    }

    /// Returns whether the samples beyond the quantile `p` are of enough stalls and starts for an interval; true for the median.
    #[must_use]
    pub fn enough_clusters(&self, p: f64) -> bool {
        let Some(value) = self.histogram().quantile(p) else {
            return false;
        };
        let windows = self.windows.counts(value);
        let beyond: Vec<u64> = windows
            .iter()
            .map(|(count, at_most)| by_start::beyond(p, *count, *at_most))
            .collect();
        self.samples.enough(p, value) && (!is_tail(p) || dependence::enough_stalls(&beyond))
    }

    /// Returns the 95 % interval around `value`, an estimate of the quantile `p` in µs, that the variation between starts
    /// gives; `None` below two starts with at least five samples beyond their quantile.
    #[must_use]
    pub fn between_starts(&self, p: f64, value: f64) -> Option<[f64; 2]> {
        self.samples.between(p, value)
    }

    /// Returns the reported distribution.
    #[must_use]
    pub fn distribution(&self) -> Distribution {
        let median = self.histogram().quantile(0.5);
        let interval = |p: f64| median.and_then(|_| self.interval(p));
        let p99 = interval(0.99);
        Distribution {
            p50_us_ci95: interval(0.5),
            p90_us_ci95: interval(0.9),
            p95_us_ci95: interval(0.95),
            p99_us_ci95: p99,
            p999_us_ci95: interval(0.999),
            p90_us_starts: self.samples.spread(0.9),
            p95_us_starts: self.samples.spread(0.95),
            p99_us_starts: self.samples.spread(0.99),
            p99_us_at_least: match p99 {
                Some(_) => None,
                None => self.at_least(0.99),
            },
            inflation: median.and_then(|median| self.inflation(median)),
            ..distribution(self.histogram())
        }
    }
}

/// Returns a histogram's figures, without intervals.
#[must_use]
pub fn distribution(histogram: &SignedHistogram) -> Distribution {
    let us = |nanos: Option<Nanos>| nanos.map(Nanos::as_micros);
    Distribution {
        count: histogram.count(),
        min_us: us(histogram.min()),
        mean_us: histogram.mean().map(|nanos| nanos / 1e3),
        stdev_us: histogram.stdev().map(|nanos| nanos / 1e3),
        p50_us: us(histogram.quantile(0.5)),
        p90_us: us(histogram.quantile(0.9)),
        p95_us: us(histogram.quantile(0.95)),
        p99_us: us(histogram.quantile(0.99)),
        p999_us: us(histogram.quantile(0.999)),
        max_us: us(histogram.max()),
        ..Distribution::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use replimeter_model::random::Random;

    #[test]
    fn small_samples_have_no_quantile() {
        let mut series = Series::default();
        for value in 0..19 {
            series.record(Nanos(value), Nanos(value * 1000));
        }
        let distribution = series.distribution();
        assert_eq!(
            (
                distribution.count,
                distribution.p50_us,
                distribution.p50_us_ci95
            ),
            (19, None, None)
        );
        assert_eq!(
            (distribution.min_us, distribution.max_us),
            (Some(0.0), Some(18.0))
        );
    }

    #[test]
    fn median_interval_covers_at_its_nominal_rate() {
        // 400 runs of 200 uniform samples on [0, 10^6) ns; the median is 500 µs.
        let mut random = Random::new(1);
        let mut covered = 0;
        for _ in 0..400 {
            let mut series = Series::default();
            for round in 0..200i64 {
                series.record(
                    Nanos(round * 10_000_000),
                    Nanos((random.bits() % 1_000_000) as i64),
                );
            }
            let [low, high] = series.interval(0.5).unwrap();
            covered += u32::from(low <= 500.0 && 500.0 <= high);
        }
        // Nominal 95 %; three standard errors of a share of 400 are 3.3 %.
        assert!(covered >= 367, "{covered} of 400");
    }
}
