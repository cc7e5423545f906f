//! Student's distribution, for intervals from few observations.

use replimeter_model::estimate::Estimate;
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

/// The 97.5 % point of the standard normal distribution.
pub(crate) const Z95: f64 = 1.959_963_984_540_054;
/// Degrees of freedom beyond which it is computed as the normal distribution.
const NORMAL: f64 = 1e6;

/// Returns the point below which this share of the distribution lies; `None` without a degree of freedom.
#[must_use]
pub fn student_point(share: f64, freedom: f64) -> Option<f64> {
    if freedom > NORMAL {
        return Some(Normal::standard().inverse_cdf(share));
    }
    let student = StudentsT::new(0.0, 1.0, freedom).ok()?;
    Some(student.inverse_cdf(share))
}

/// Returns the share of the distribution below a point; `None` without a degree of freedom.
pub(crate) fn student_share(point: f64, freedom: f64) -> Option<f64> {
    if freedom > NORMAL {
        return Some(Normal::standard().cdf(point));
    }
    let student = StudentsT::new(0.0, 1.0, freedom).ok()?;
    Some(student.cdf(point))
}

/// Returns half of the width of the 95 % interval of a mean of independent values; `None` below two.
#[must_use]
pub fn mean_reach(values: &[f64]) -> Option<f64> {
    let count = values.len() as f64;
    let point = student_point(0.975, count - 1.0)?;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some(point * (squares / (count - 1.0) / count).sqrt())
}

/// Returns the mean of independent values with its 95 % interval; unknown without a value, and if one of them is not finite.
#[must_use]
pub fn mean(values: &[f64]) -> Estimate {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    if !mean.is_finite() {
        return Estimate::default();
    }
    let reach = mean_reach(values);
    Estimate {
        value: Some(mean),
        ci95: reach.map(|reach| [mean - reach, mean + reach]).into(),
    }
}

/// Returns the geometric mean of independent positive values; its interval is that of the mean of their logarithms.
#[must_use]
pub fn geometric_mean(values: &[f64]) -> Estimate {
    let logs: Vec<f64> = values.iter().map(|value| value.ln()).collect();
    let mean = mean(&logs);
    Estimate {
        value: mean.value.map(f64::exp),
        ci95: mean.ends().map(|ends| ends.map(f64::exp)).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_of_few_values_has_a_wide_interval() {
        // 4.303 · 1 / √3.
        assert!((mean_reach(&[1.0, 2.0, 3.0]).unwrap() - 2.484).abs() < 0.001);
        assert_eq!((mean_reach(&[1.0]), mean_reach(&[])), (None, None));
    }

    #[test]
    fn critical_values_match_the_table() {
        for (freedom, wanted) in [
            (1.0, 12.706),
            (2.0, 4.303),
            (10.0, 2.228),
            (60.0, 2.000),
            (1e9, 1.960),
            (f64::INFINITY, 1.960),
        ] {
            let point = student_point(0.975, freedom).unwrap();
            assert!((point - wanted).abs() < 0.001, "{freedom}: {point}");
            let share = student_share(point, freedom).unwrap();
            assert!((share - 0.975).abs() < 1e-6, "{freedom}: {share}");
        }
        for none in [0.0, -1.0, f64::NAN] {
            assert_eq!(student_point(0.975, none), None);
            assert_eq!(student_share(1.0, none), None);
        }
    }
}
