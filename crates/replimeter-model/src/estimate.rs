//! A figure with its interval.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A figure and its 95 % confidence interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Estimate {
    /// The figure; null when there is none.
    pub value: Option<f64>,
    /// Lower end of the interval; null when there is too little to tell.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
}

impl Estimate {
    /// A figure without an interval.
    #[must_use]
    pub fn of(value: f64) -> Self {
        Self {
            value: Some(value),
            low: None,
            high: None,
        }
    }

    /// Both ends of the interval.
    #[must_use]
    pub fn ends(&self) -> Option<[f64; 2]> {
        Some([self.low?, self.high?])
    }

    /// Whether the interval leaves `value` out; `None` without an interval.
    #[must_use]
    pub fn excludes(&self, value: f64) -> Option<bool> {
        self.ends().map(|[low, high]| value < low || high < value)
    }
}
