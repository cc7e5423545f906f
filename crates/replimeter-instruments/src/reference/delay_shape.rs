//! The delays after which the reference server shows its rows.

use std::{fmt, str::FromStr, time::Duration};

use replimeter_model::{random::Random, serde_as_text, time_span::TimeSpan};

/// Maximum constant delay of the reference server.
const MAX_DELAY: TimeSpan = TimeSpan::from_secs(1);
/// Most delays of [`DelayShape::Bimodal`], in milliseconds, and their share.
const NEAR: (f64, f64) = (1.0, 0.7);
/// The others, in milliseconds.
const FAR: f64 = 20.0;
/// Median of [`DelayShape::HeavyTailed`], in milliseconds.
const MEDIAN: f64 = 1.0;
/// Standard deviation of its logarithm: 1 % of the delays are above 33 ms.
const SIGMA: f64 = 1.5;
/// Its maximum, in milliseconds.
const LONGEST: f64 = 100.0;

/// How the delays of the reference server are distributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DelayShape {
    /// Always the same.
    Constant(TimeSpan),
    /// 1 ms for 70 % of the rows, 20 ms for the others.
    Bimodal,
    /// Log-normal, with a median of 1 ms and σ = 1.5, at most 100 ms.
    HeavyTailed,
}

impl DelayShape {
    /// Draws the delay of a row.
    #[must_use]
    pub fn draw(self, random: &mut Random) -> Duration {
        let millis = match self {
            Self::Constant(delay) => return delay.0,
            Self::Bimodal if random.fraction() < NEAR.1 => NEAR.0,
            Self::Bimodal => FAR,
            Self::HeavyTailed => (MEDIAN * (SIGMA * random.normal()).exp()).min(LONGEST),
        };
        Duration::from_secs_f64(millis / 1e3)
    }
}

impl fmt::Display for DelayShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constant(delay) => delay.fmt(f),
            Self::Bimodal => f.write_str("bimodal"),
            Self::HeavyTailed => f.write_str("heavy-tailed"),
        }
    }
}

impl FromStr for DelayShape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "bimodal" => Ok(Self::Bimodal),
            "heavy-tailed" => Ok(Self::HeavyTailed),
            time => match time.parse::<TimeSpan>() {
                Ok(delay) if delay <= MAX_DELAY => Ok(Self::Constant(delay)),
                Ok(_) => Err(format!("a delay of the reference is at most {MAX_DELAY}")),
                Err(_) => Err(format!(
                    "`{time}` is no delay; write a time (1ms), bimodal or heavy-tailed"
                )),
            },
        }
    }
}

serde_as_text!(
    DelayShape,
    "description": "A time with its unit, or a distribution of delays",
    "pattern": "^(0|[0-9].*[a-zµ]|bimodal|heavy-tailed)$",
    "examples": ["0", "1ms", "bimodal", "heavy-tailed"]
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_parse_and_print() {
        for text in ["0s", "1ms", "100ms", "bimodal", "heavy-tailed"] {
            assert_eq!(text.parse::<DelayShape>().unwrap().to_string(), text);
        }
        for text in ["", "2s", "gaussian", "-1ms"] {
            assert!(text.parse::<DelayShape>().is_err(), "{text}");
        }
    }

    #[test]
    fn delays_have_the_stated_distribution() {
        let draws = |shape: DelayShape| {
            let mut random = Random::numbered(1);
            let mut all: Vec<Duration> = (0..10_000).map(|_| shape.draw(&mut random)).collect();
            all.sort_unstable();
            all.iter().map(Duration::as_secs_f64).collect::<Vec<_>>()
        };
        let bimodal = draws(DelayShape::Bimodal);
        let near = bimodal.iter().filter(|delay| **delay < 2e-3).count();
        assert!((6_800..=7_200).contains(&near), "{near}");
        let tailed = draws(DelayShape::HeavyTailed);
        assert!(
            (0.93e-3..=1.07e-3).contains(&tailed[5_000]),
            "{}",
            tailed[5_000]
        );
        assert!(
            (25e-3..=40e-3).contains(&tailed[9_900]),
            "{}",
            tailed[9_900]
        );
        assert!(tailed[9_999] <= 0.1);
    }
}
