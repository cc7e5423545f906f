//! Standard deviations of figures and of their differences.

use super::{POWER, RESAMPLES};
use crate::student::{Z95, student_point, student_share};

/// A value with a standard deviation to each side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The value.
    pub value: f64,
    /// A standard deviation towards smaller values.
    pub below: f64,
    /// A standard deviation towards larger ones.
    pub above: f64,
    /// Degrees of freedom; infinite where the deviations are known exactly.
    pub freedom: f64,
}

/// Returns the point below which this share of Student's distribution lies; not a number without a degree of freedom.
pub(super) fn student(share: f64, freedom: f64) -> f64 {
    student_point(share, freedom).unwrap_or(f64::NAN)
}

impl Spread {
    /// Returns the interval at a level such as 0.95; the value itself is always in it.
    #[must_use]
    pub fn interval(&self, level: f64) -> [f64; 2] {
        let reach = student(0.5 + level / 2.0, self.freedom);
        [
            self.value - reach * self.below,
            self.value + reach * self.above,
        ]
    }

    /// Returns the probability of a value at least this far from 0 if the true value were 0
    /// (two-sided). It is not smaller than the resamples can show: where they did not spread at all
    /// it is one over their number, or 1 for a value of 0.
    #[must_use]
    pub fn p_value(&self) -> f64 {
        let towards = if self.value > 0.0 {
            self.below
        } else {
            self.above
        };
        if self.value == 0.0 {
            return 1.0;
        }
        if towards <= 0.0 {
            return 1.0 / RESAMPLES as f64;
        }
        let below = student_share(-self.value.abs() / towards, self.freedom);
        (2.0 * below.unwrap_or(f64::NAN)).min(1.0)
    }

    /// Returns the smallest difference from 0 that four of five such comparisons would show at this
    /// level.
    #[must_use]
    pub fn detectable_from(&self, level: f64) -> f64 {
        let reach = student(0.5 + level / 2.0, self.freedom) + student(POWER, self.freedom);
        reach * self.below.max(self.above)
    }

    /// Returns the spread of the value's logarithm; `None` unless the value is certainly positive.
    #[must_use]
    pub fn log(&self) -> Option<Self> {
        let low = self.value - Z95 * self.below;
        if self.value <= 0.0 || low <= 0.0 {
            return None;
        }
        let below = (self.value / low).ln() / Z95;
        let above = ((self.value + Z95 * self.above) / self.value).ln() / Z95;
        Some(Self {
            value: self.value.ln(),
            below,
            above,
            freedom: self.freedom,
        })
    }
}

/// Returns `b` − `a` (Zou & Donner 2008).
#[must_use]
pub fn difference(a: &Spread, b: &Spread) -> Spread {
    let size = |spread: &Spread| (spread.below.powi(2) + spread.above.powi(2)) / 2.0;
    let (of_a, of_b) = (size(a), size(b));
    let freedom = match of_a + of_b {
        whole if whole > 0.0 => {
            whole.powi(2) / (of_a.powi(2) / a.freedom + of_b.powi(2) / b.freedom)
        }
        _ => a.freedom.min(b.freedom),
    };
    Spread {
        value: b.value - a.value,
        below: b.below.hypot(a.above),
        above: b.above.hypot(a.below),
        // For two sides without spread it is infinite over infinite.
        freedom: if freedom.is_nan() {
            f64::INFINITY
        } else {
            freedom
        },
    }
}

/// Returns the logarithm of `b` over `a`; `None` unless both are certainly positive.
#[must_use]
pub fn log_ratio(a: &Spread, b: &Spread) -> Option<Spread> {
    Some(difference(&a.log()?, &b.log()?))
}

/// Corrects p-values for their number (Holm 1979): the probability that any figure without a difference falls below 5
/// % is then at most 5 %, regardless of their dependence.
#[must_use]
pub fn holm(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|one, other| p_values[*one].total_cmp(&p_values[*other]));
    let mut adjusted = vec![1.0; p_values.len()];
    let mut largest: f64 = 0.0;
    for (rank, index) in order.into_iter().enumerate() {
        largest = largest.max((p_values[index] * (p_values.len() - rank) as f64).min(1.0));
        adjusted[index] = largest;
    }
    adjusted
}
