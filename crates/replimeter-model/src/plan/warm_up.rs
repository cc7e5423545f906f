//! The warm-up: the beginning of a measurement, which is not counted.

use std::{fmt, str::FromStr};

use super::{
    PlanError,
    checks::{HOUR, at_most, part_of},
    contradiction,
};
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

/// Checks the warm-up of a command without rounds: a time of at most `most`, which is a part of the duration unless it is the default.
pub fn of(
    command: &str,
    duration: TimeSpan,
    default: WarmUp,
    most: TimeSpan,
) -> impl Fn(&str, &WarmUp) -> Result<(), PlanError> {
    move |field, value| {
        if let WarmUp::Rounds(rounds @ 1..) = value {
            return contradiction(format!(
                "warm-up = {rounds}: {command} has no rounds; give a time with its unit, such as 2s"
            ));
        }
        let [time, default] = [*value, default].map(|one| one.as_time().unwrap_or_default());
        at_most(most, "a warm-up")(field, &time)?;
        part_of(Some(duration), default)(field, &time)
    }
}

/// Rejects an implausible warm-up of a command with rounds.
///
/// # Errors
/// With the key and the value.
pub fn of_rounds(field: &str, value: &WarmUp) -> Result<(), PlanError> {
    value
        .as_time()
        .map_or(Ok(()), |time| at_most(HOUR, "a warm-up")(field, &time))
}

impl WarmUp {
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

serde_as_number_or_text!(
    WarmUp,
    "description": "A number of rounds, or a time with its unit",
    "examples": [50, "2s"]
);

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
        let second = TimeSpan::from_secs(1);
        let check = of("load", second, WarmUp::Time(second), second);
        let check = |text: &str| check("warm_up", &text.parse().unwrap());
        assert!(check("1s").is_ok() && check("0").is_ok());
        let refused = check("50").unwrap_err().to_string();
        assert!(refused.contains("load has no rounds"), "{refused}");
    }
}
