//! Durations as text: always with a unit (`250us`, `10ms`, `30s`).

use std::{fmt, str::FromStr, time::Duration};

use jiff::SignedDuration;
/// A non-negative duration that reads and prints with its unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeSpan(pub Duration);

/// Reason why a text is not a [`TimeSpan`].
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "`{text}` is not a duration; write a number with a unit (us, ms, s, m or h), such as 10ms or 30s"
)]
pub struct TimeSpanError {
    text: String,
}

impl TimeSpan {
    /// Returns a duration of this number of milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }

    /// Returns a duration of this number of seconds.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self(Duration::from_secs(secs))
    }
}

impl FromStr for TimeSpan {
    type Err = TimeSpanError;

    fn from_str(text: &str) -> Result<Self, TimeSpanError> {
        let refuse = || TimeSpanError {
            text: text.to_owned(),
        };
        // ISO 8601 ("PT1S") is accepted by the parser but is not Replimeter's notation.
        if !text.starts_with(|first: char| first.is_ascii_digit()) {
            return Err(refuse());
        }
        if text == "0" {
            return Ok(Self(Duration::ZERO));
        }
        let signed: SignedDuration = text.parse().map_err(|_| refuse())?;
        Duration::try_from(signed).map(Self).map_err(|_| refuse())
    }
}

impl fmt::Display for TimeSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        let (unit, name) = match nanos {
            0 => return f.write_str("0s"),
            n if n % 1_000_000_000 == 0 => (1_000_000_000, "s"),
            n if n % 1_000_000 == 0 => (1_000_000, "ms"),
            n if n % 1_000 == 0 => (1_000, "us"),
            _ => (1, "ns"),
        };
        write!(f, "{}{name}", nanos / unit)
    }
}

serde_as_text!(
    TimeSpan,
    "description": "A time with its unit",
    "pattern": "^(0|[0-9].*[a-zµ])$",
    "examples": ["250us", "10ms", "30s", "2m"]
);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn usual_notations_are_parsed() {
        for (text, nanos) in [
            ("250us", 250_000),
            ("10ms", 10_000_000),
            ("1.5ms", 1_500_000),
            ("30s", 30_000_000_000),
            ("2m", 120_000_000_000),
            ("0", 0),
        ] {
            assert_eq!(
                text.parse::<TimeSpan>().unwrap().0.as_nanos(),
                nanos,
                "{text}"
            );
        }
    }

    #[test]
    fn missing_unit_and_negative_time_are_refused() {
        for text in [
            "",
            "10",
            "-5ms",
            "ten ms",
            "PT1S",
            "5 parsecs",
            "1e9999s",
            "99999999999999999999s",
        ] {
            assert!(text.parse::<TimeSpan>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn printed_value_parses_back(nanos in 0u64..10_000_000_000_000) {
            let span = TimeSpan(Duration::from_nanos(nanos));
            prop_assert_eq!(span.to_string().parse::<TimeSpan>().unwrap(), span);
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,40}") {
            let _ = text.parse::<TimeSpan>();
        }
    }
}
