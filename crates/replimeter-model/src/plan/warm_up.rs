//! The warm-up: the beginning of a measurement, which is not counted.

use std::{fmt, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::PlanError;
use crate::time_span::TimeSpan;

/// The beginning of a measurement, which is not counted; written as a number of rounds, or as a time with
/// its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WarmUp {
    /// This many rounds.
    Rounds(u64),
    /// All rounds that begin before this time has passed.
    Time(TimeSpan),
}

impl WarmUp {
    /// Returns the time, for a measurement without rounds.
    ///
    /// # Errors
    /// When it is a number of rounds.
    pub(super) fn time(self, command: &str) -> Result<TimeSpan, PlanError> {
        match self {
            Self::Time(span) => Ok(span),
            Self::Rounds(0) => Ok(TimeSpan::default()),
            Self::Rounds(rounds) => Err(PlanError::Contradiction(format!(
                "warm-up = {rounds}: {command} has no rounds; give a time with its unit, such as 2s"
            ))),
        }
    }

    /// Returns the time, or `None` for a number of rounds.
    #[must_use]
    pub fn as_time(self) -> Option<TimeSpan> {
        match self {
            Self::Time(span) => Some(span),
            Self::Rounds(_) => None,
        }
    }
}

impl FromStr for WarmUp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rounds = text.parse().map(Self::Rounds).ok();
        rounds.or_else(|| text.parse().map(Self::Time).ok()).ok_or_else(|| {
            format!("`{text}` is not a warm-up; write a number of rounds, such as 50, or a time, such as 2s")
        })
    }
}

impl fmt::Display for WarmUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rounds(rounds) => rounds.fmt(f),
            Self::Time(span) => span.fmt(f),
        }
    }
}

impl Serialize for WarmUp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Rounds(rounds) => rounds.serialize(serializer),
            Self::Time(span) => span.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for WarmUp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = WarmUp;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of rounds or a time")
            }

            fn visit_u64<E: de::Error>(self, rounds: u64) -> Result<WarmUp, E> {
                Ok(WarmUp::Rounds(rounds))
            }

            fn visit_i64<E: de::Error>(self, rounds: i64) -> Result<WarmUp, E> {
                let rounds = u64::try_from(rounds);
                let negative = |_| E::custom("a warm-up must be 0 rounds or more");
                rounds.map(WarmUp::Rounds).map_err(negative)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<WarmUp, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

impl JsonSchema for WarmUp {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "WarmUp".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["integer", "string"],
            "description": "A number of rounds, or a time with its unit",
            "examples": [50, "2s"]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_rounds_and_a_unit_makes_a_time() {
        for (text, want) in [
            ("50", WarmUp::Rounds(50)),
            ("0", WarmUp::Rounds(0)),
            ("2s", WarmUp::Time(TimeSpan::from_secs(2))),
            ("300ms", WarmUp::Time(TimeSpan::from_millis(300))),
        ] {
            assert_eq!(text.parse(), Ok(want));
            assert_eq!(want.to_string(), text);
            let written = serde_json::to_value(want).unwrap();
            assert_eq!(serde_json::from_value::<WarmUp>(written).unwrap(), want);
        }
        for text in ["", "-1", "2 rounds", "1.5", "s"] {
            assert!(text.parse::<WarmUp>().is_err(), "{text}");
        }
        assert!(serde_json::from_str::<WarmUp>("-1").is_err());
    }

    #[test]
    fn commands_without_rounds_accept_a_time_only() {
        let time = |text: &str| text.parse::<WarmUp>().unwrap().time("load");
        assert_eq!(time("2s").unwrap(), TimeSpan::from_secs(2));
        assert_eq!(time("0").unwrap(), TimeSpan::default());
        let refused = time("50").unwrap_err().to_string();
        assert!(refused.contains("load has no rounds"), "{refused}");
    }
}
