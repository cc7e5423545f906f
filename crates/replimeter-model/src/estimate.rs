//! A figure with its interval.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A 95 % confidence interval: `[low, high]` in JSON, or null for none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Interval {
    /// Lower end; `None` for an open end, or without an interval.
    pub low: Option<f64>,
    /// Upper end; `None` for an open end, or without an interval.
    pub high: Option<f64>,
}

impl Interval {
    /// Both ends of the interval.
    #[must_use]
    pub fn ends(&self) -> Option<[f64; 2]> {
        Some([self.low?, self.high?])
    }
}

impl From<[Option<f64>; 2]> for Interval {
    fn from([low, high]: [Option<f64>; 2]) -> Self {
        Self { low, high }
    }
}

impl From<[f64; 2]> for Interval {
    fn from(ends: [f64; 2]) -> Self {
        ends.map(Some).into()
    }
}

impl From<Option<[f64; 2]>> for Interval {
    fn from(ends: Option<[f64; 2]>) -> Self {
        ends.map(Self::from).unwrap_or_default()
    }
}

impl Serialize for Interval {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let ends = [self.low, self.high];
        let any = ends.iter().any(Option::is_some);
        any.then_some(ends).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Interval {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let ends = Option::<[Option<f64>; 2]>::deserialize(deserializer)?;
        Ok(ends.map(Self::from).unwrap_or_default())
    }
}

impl JsonSchema for Interval {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Interval".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Option::<[Option<f64>; 2]>::json_schema(generator)
    }
}

/// A figure and its 95 % confidence interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Estimate {
    /// The figure; null without one.
    pub value: Option<f64>,
    /// Interval of the figure; null without one. An end that is null is open.
    pub ci95: Interval,
}

impl Estimate {
    /// A figure without an interval.
    #[must_use]
    pub fn of(value: f64) -> Self {
        Self {
            value: Some(value),
            ci95: Interval::default(),
        }
    }

    /// A figure and the ends of its interval, as rows have them.
    #[must_use]
    pub fn with_ends(value: Option<f64>, ends: Option<[f64; 2]>) -> Self {
        Self {
            value,
            ci95: ends.into(),
        }
    }

    /// Both ends of the interval.
    #[must_use]
    pub fn ends(&self) -> Option<[f64; 2]> {
        self.ci95.ends()
    }

    /// Returns whether the interval excludes `value`; `None` without an interval.
    #[must_use]
    pub fn excludes(&self, value: f64) -> Option<bool> {
        self.ends().map(|[low, high]| value < low || high < value)
    }
}
