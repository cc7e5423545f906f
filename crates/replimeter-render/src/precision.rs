//! The precision of a distribution's figures, so that no digit is printed that its error bar does not
//! support.

use replimeter_model::record::{Distribution, StartSpread};

/// The 97.5 % point of the standard normal distribution.
const Z95: f64 = 1.96;

/// Half-widths of a distribution's figures, in µs.
#[derive(Clone, Copy, Debug)]
pub struct Precision<'a> {
    distribution: &'a Distribution,
    /// The error of each single time, in µs.
    each_us: f64,
}

/// Returns half of an interval's width.
fn half([low, high]: [f64; 2]) -> f64 {
    (high - low) / 2.0
}

/// Returns the error, reduced if necessary so that the value, rounded to the place of its first digit, stays
/// in its interval.
fn inside(value: f64, error: f64, [low, high]: [f64; 2]) -> f64 {
    let mut error = error;
    // Twelve digits are more than are ever printed.
    for _ in 0..12 {
        if error <= 0.0 || !error.is_finite() {
            break;
        }
        let step = 10f64.powf((error.log10() + 1e-9).floor());
        if (low..=high).contains(&((value / step).round() * step)) || !(low..=high).contains(&value)
        {
            break;
        }
        error /= 10.0;
    }
    error
}

impl<'a> Precision<'a> {
    /// Precision of exact times.
    pub fn exact(distribution: &'a Distribution) -> Self {
        Self::within(distribution, 0.0)
    }

    /// Precision of times that are the upper ends of brackets with these widths.
    pub fn of_brackets(widths: &Distribution, distribution: &'a Distribution) -> Self {
        let width_us = widths.p50_us.or(widths.mean_us).unwrap_or(0.0);
        Self::within(distribution, width_us / 2.0)
    }

    /// Precision of an estimate whose median is known to lie between these ends.
    pub fn between(distribution: &'a Distribution, median: Option<[f64; 2]>) -> Self {
        Self::within(distribution, median.map_or(0.0, half))
    }

    /// Precision of times that are known to ± `each_us`; so is their mean, since offsets of clocks do not average out.
    pub fn within(distribution: &'a Distribution, each_us: f64) -> Self {
        Self {
            distribution,
            each_us,
        }
    }

    /// Returns the error of a single time, of the minimum and of the maximum.
    pub fn single(self) -> f64 {
        self.each_us
    }

    /// Returns the error of the mean, and of the standard deviation: 1.96 standard errors, widened for
    /// dependence. The standard deviation of times with a long tail is hardly more precise than their mean
    /// (its variance is (κ − 1)/4 of the mean's, κ the kurtosis).
    pub fn mean(self) -> f64 {
        let inflation = self.distribution.inflation.unwrap_or(1.0);
        let stdev = self.distribution.stdev_us.unwrap_or(0.0);
        let error = Z95 * stdev * (inflation / self.distribution.count.max(1) as f64).sqrt();
        error.max(self.each_us)
    }

    /// Returns the error of a quantile: half of its interval, or of the range of the starts' own quantiles, or, if it has neither,
    /// that of the next quantile towards the median. It is never so large that the value, rounded to it, would be outside its
    /// own interval, since both are printed next to each other.
    pub fn quantile(self, p: f64) -> f64 {
        let of = self.distribution;
        let range = |starts: Option<StartSpread>| starts.map(|starts| [starts.min, starts.max]);
        let levels = [
            (0.999, of.p999_us, of.p999_us_ci95),
            (0.99, of.p99_us, of.p99_us_ci95.or(range(of.p99_us_starts))),
            (0.95, of.p95_us, of.p95_us_ci95.or(range(of.p95_us_starts))),
            (0.9, of.p90_us, of.p90_us_ci95.or(range(of.p90_us_starts))),
            (0.5, of.p50_us, of.p50_us_ci95),
        ];
        // Below the median, the median's own interval is used.
        let mut up_to = levels
            .into_iter()
            .filter(|(level, ..)| *level <= p.max(0.5) + 1e-9);
        let Some((level, value, ends)) =
            up_to.find_map(|(level, value, ends)| Some((level, value, ends?)))
        else {
            return self.each_us;
        };
        let error = half(ends).max(self.each_us);
        match value.filter(|_| (level - p).abs() < 1e-9) {
            Some(value) => inside(value, error, ends),
            None => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounded_value_stays_in_its_interval() {
        for (value, ends, bracket, shown) in [
            (549.6, [516.0, 579.0], 250.0, "550"),
            (127.5, [115.0, 141.0], 220.0, "130"),
            (100.4, [99.0, 102.0], 400.0, "100"),
        ] {
            let of = Distribution {
                count: 9,
                p50_us: Some(value),
                p50_us_ci95: Some(ends),
                ..Distribution::default()
            };
            let widths = Distribution {
                p50_us: Some(bracket),
                ..Distribution::default()
            };
            let half = Precision::of_brackets(&widths, &of).quantile(0.5);
            assert_eq!(crate::figures::Unit::Micro.show_within(value, half), shown);
        }
    }

    #[test]
    fn tail_without_an_interval_has_the_precision_of_its_starts() {
        let of = Distribution {
            count: 1_000,
            p50_us: Some(300.0),
            p50_us_ci95: Some([290.0, 310.0]),
            p95_us: Some(912.3),
            p95_us_starts: Some(StartSpread {
                min: 460.0,
                median: 610.0,
                max: 2_400.0,
            }),
            ..Distribution::default()
        };
        let half = Precision::exact(&of).quantile(0.95);
        assert_eq!(crate::figures::Unit::Micro.show_within(912.3, half), "900");
    }

    #[test]
    fn precision_is_the_larger_of_interval_and_bracket() {
        let distribution = Distribution {
            count: 100,
            stdev_us: Some(50.0),
            p50_us_ci95: Some([90.0, 110.0]),
            p90_us_ci95: Some([100.0, 300.0]),
            ..Distribution::default()
        };
        let mut widths = Distribution::default();
        let of = |widths: &Distribution| {
            let precision = Precision::of_brackets(widths, &distribution);
            [0.25, 0.5, 0.9, 0.99].map(|p| precision.quantile(p))
        };
        assert_eq!(
            of(&widths),
            [10.0, 10.0, 100.0, 100.0],
            "the next one towards the median"
        );
        widths.p50_us = Some(60.0);
        assert_eq!(of(&widths), [30.0, 30.0, 100.0, 100.0]);
        assert!((Precision::exact(&distribution).mean() - 9.8).abs() < 1e-9);
        assert_eq!(
            Precision::exact(&Distribution::default()).quantile(0.5),
            0.0
        );
    }
}
