//! Lists of payload sizes: `1000`, `1000..10000:1000`, or several with commas.

use std::{fmt, str::FromStr};

/// Maximum number of steps of one sweep.
const MAX_STEPS: usize = 1000;

/// Payload sizes in bytes, in the order in which they are measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes {
    text: String,
    steps: Vec<u64>,
}

/// Reason why a text is not a list of [`Sizes`].
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SizesError {
    /// A part is neither a number of bytes nor a range.
    #[error("`{0}` is not a size in bytes, nor a range FROM..TO:STEP such as 1000..10000:1000")]
    Syntax(String),
    /// The range ends before it starts.
    #[error("the range `{0}` ends before it starts; write it upwards, such as 1000..10000:1000")]
    Downwards(String),
    /// The range never advances.
    #[error("the range `{0}` has a step of 0")]
    NoStep(String),
    /// A size of 0 cannot be written.
    #[error("`{0}` contains a size of 0 bytes; the smallest is 1")]
    Zero(String),
    /// Too many steps.
    #[error("`{0}` makes more than {MAX_STEPS} steps")]
    TooMany(String),
}

impl Sizes {
    /// Returns the sizes in bytes, in order; never empty.
    #[must_use]
    pub fn steps(&self) -> &[u64] {
        &self.steps
    }
}

fn number(text: &str, whole: &str) -> Result<u64, SizesError> {
    let syntax = || SizesError::Syntax(whole.to_owned());
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(syntax());
    }
    match text.parse() {
        Ok(0) => Err(SizesError::Zero(whole.to_owned())),
        Ok(bytes) => Ok(bytes),
        Err(_) => Err(syntax()),
    }
}

impl FromStr for Sizes {
    type Err = SizesError;

    fn from_str(text: &str) -> Result<Self, SizesError> {
        let mut steps = Vec::new();
        for part in text.split(',').map(str::trim) {
            let Some((from, rest)) = part.split_once("..") else {
                steps.push(number(part, part)?);
                continue;
            };
            let (to, step) = rest
                .split_once(':')
                .ok_or_else(|| SizesError::Syntax(part.to_owned()))?;
            let (from, to) = (number(from, part)?, number(to, part)?);
            let step = match step {
                "0" => return Err(SizesError::NoStep(part.to_owned())),
                step => number(step, part)?,
            };
            if to < from {
                return Err(SizesError::Downwards(part.to_owned()));
            }
            if (to - from) / step >= MAX_STEPS as u64 {
                return Err(SizesError::TooMany(part.to_owned()));
            }
            steps.extend((0..=(to - from) / step).map(|index| from + index * step));
        }
        if steps.len() > MAX_STEPS {
            return Err(SizesError::TooMany(text.to_owned()));
        }
        Ok(Self {
            text: text.to_owned(),
            steps,
        })
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

serde_as_text!(
    Sizes,
    "description": "Payload bytes: A..B:STEP, single sizes, or several with commas",
    "pattern": "^[0-9., :]+$",
    "examples": ["1000..10000:1000", "100,1000,10000"]
);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn steps(text: &str) -> Result<Vec<u64>, SizesError> {
        text.parse::<Sizes>().map(|sizes| sizes.steps().to_vec())
    }

    #[test]
    fn sizes_are_parsed_from_numbers_ranges_and_lists() {
        assert_eq!(steps("1000").unwrap(), [1000]);
        assert_eq!(steps("10..35:10").unwrap(), [10, 20, 30]);
        assert_eq!(steps("5,10..20:5, 7").unwrap(), [5, 10, 15, 20, 7]);
        assert_eq!(steps("1000,1000..10000:1000").unwrap().len(), 11);
    }

    #[test]
    fn invalid_text_is_refused_with_the_reason() {
        assert!(matches!(steps("10..1:5"), Err(SizesError::Downwards(_))));
        assert!(matches!(steps("1..10:0"), Err(SizesError::NoStep(_))));
        assert!(matches!(steps("0"), Err(SizesError::Zero(_))));
        assert!(matches!(
            steps("1..18446744073709551615:1"),
            Err(SizesError::TooMany(_))
        ));
        for text in [
            "",
            "1..2",
            "a..b:c",
            "1k",
            "-1",
            "1,,2",
            "99999999999999999999",
        ] {
            assert!(matches!(steps(text), Err(SizesError::Syntax(_))), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[0-9.,:x-]{0,30}") {
            let _ = steps(&text);
        }
    }
}
