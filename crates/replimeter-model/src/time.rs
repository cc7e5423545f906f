//! Points and differences on the measuring clock.

use std::ops::{Add, Sub};

use serde::{Deserialize, Serialize};

/// Nanoseconds on the run's one monotonic clock, or a signed difference of two
/// such points. Negative differences are meaningful (a replica may show a row
/// before the primary acknowledges it) and are never clamped.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Nanos(pub i64);

impl Nanos {
    /// Returns the value in microseconds, the unit of every report.
    #[must_use]
    pub fn as_micros(self) -> f64 {
        self.0 as f64 / 1e3
    }

    /// Returns the difference to an earlier point in microseconds, also one that is too large for [`Nanos`].
    #[must_use]
    pub fn micros_since(self, earlier: Self) -> f64 {
        (i128::from(self.0) - i128::from(earlier.0)) as f64 / 1e3
    }

    /// Returns the later of the two points.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self(self.0.max(other.0))
    }

    /// Returns the point halfway between two points; exact to half a nanosecond.
    #[must_use]
    pub fn midpoint(self, other: Self) -> Self {
        Self(self.0.midpoint(other.0))
    }
}

impl Add for Nanos {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl Sub for Nanos {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl From<std::time::Duration> for Nanos {
    /// Saturates at about 292 years.
    fn from(duration: std::time::Duration) -> Self {
        Self(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_keep_their_sign() {
        let ack = Nanos(1_000);
        let visible = Nanos(400);
        assert_eq!((visible - ack).as_micros(), -0.6);
        assert_eq!(visible.micros_since(ack), -0.6);
    }

    #[test]
    fn largest_difference_does_not_wrap() {
        let whole = Nanos(i64::MAX).micros_since(Nanos(i64::MIN));
        assert_eq!(whole, u64::MAX as f64 / 1e3);
    }

    #[test]
    fn midpoint_of_a_bracket_is_computed() {
        assert_eq!(Nanos(-10).midpoint(Nanos(30)), Nanos(10));
    }
}
