//! A distribution accumulated sample by sample, with its windows over the run.

use replimeter_model::{
    record::{Distribution, Window},
    time::Nanos,
};

use crate::{signed::SignedHistogram, windows::Windows};

/// The 97.5 % point of the standard normal distribution.
const Z95: f64 = 1.959_963_984_540_054;

/// Samples of one kind.
#[derive(Clone, Debug, Default)]
pub struct Series {
    all: SignedHistogram,
    windows: Windows,
}

impl Series {
    /// Adds a sample at the time `at` of the run.
    pub fn record(&mut self, at: Nanos, value: Nanos) {
        self.all.record(value);
        self.windows.record(at, value);
    }

    /// Returns the samples.
    #[must_use]
    pub fn histogram(&self) -> &SignedHistogram {
        &self.all
    }

    /// Returns the windows of the run.
    #[must_use]
    pub fn windows(&self) -> Vec<Window> {
        self.windows.rows()
    }

    /// Returns the inflation by dependence at `value` ([`Windows::inflation`]).
    #[must_use]
    pub fn inflation(&self, value: Nanos) -> Option<f64> {
        self.windows.inflation(value)
    }

    /// Returns a 95 % confidence interval of the quantile `p`.
    ///
    /// Order statistics at the ranks n·p ± z·√(f·n·p·(1 − p)), where f is the inflation by
    /// dependence ([`Windows::inflation`]); for f = 1 this is the distribution-free interval of
    /// David & Nagaraja (2003, §7.1). `None` when the quantile itself cannot be given, the run is
    /// too short to estimate the dependence, or a rank is outside the sample.
    #[must_use]
    pub fn interval(&self, p: f64) -> Option<[f64; 2]> {
        let count = self.all.count() as f64;
        let inflation = self.windows.inflation(self.all.quantile(p)?)?;
        let half = Z95 * (inflation * count * p * (1.0 - p)).sqrt();
        let (low, high) = ((count * p - half).floor(), (count * p + half).ceil() + 1.0);
        if low < 1.0 || high > count {
            return None;
        }
        Some([
            self.all.at_rank(low as u64)?.as_micros(),
            self.all.at_rank(high as u64)?.as_micros(),
        ])
    }

    /// Returns the reported distribution.
    #[must_use]
    pub fn distribution(&self) -> Distribution {
        let median = self.all.quantile(0.5);
        let interval = |p: f64| median.and_then(|_| self.interval(p));
        Distribution {
            p50_us_ci95: interval(0.5),
            p90_us_ci95: interval(0.9),
            p95_us_ci95: interval(0.95),
            p99_us_ci95: interval(0.99),
            p999_us_ci95: interval(0.999),
            inflation: median.and_then(|median| self.windows.inflation(median)),
            ..distribution(&self.all)
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
