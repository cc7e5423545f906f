//! A cell of a table: a figure as data, which the renderers round, or words.

use replimeter_model::{estimate::Estimate, load::Rate};

use crate::{
    figures::{Unit, count},
    format::Format,
};

/// A cell of a table.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Words, or figures that are put together.
    Text(String),
    /// A count.
    Count(u64),
    /// A time in microseconds that is known to ± `half_us`, 0 for no error; shown in `unit`.
    Time {
        /// Microseconds.
        us: f64,
        /// Half of its interval.
        half_us: f64,
        /// In which it is shown.
        unit: Unit,
    },
    /// The ends of an interval of times, in microseconds.
    Interval {
        /// Both, in microseconds.
        ends_us: [f64; 2],
        /// In which they are shown.
        unit: Unit,
    },
    /// A figure with the ends of its interval, where that is known.
    Figure {
        /// The figure.
        value: f64,
        /// The ends of its interval.
        ends: Option<[f64; 2]>,
        /// How it is rounded.
        format: Format,
    },
    /// A figure of each of several servers.
    Several {
        /// The figures.
        values: Vec<f64>,
        /// How they are rounded.
        format: Format,
    },
    /// Words of any length: outputs without charts show how they begin.
    Long(String),
    /// Words that lead to a file or a place on the page.
    Link {
        /// The words.
        text: String,
        /// Where they lead.
        href: String,
    },
    /// No figure, and why.
    Missing(&'static str),
}

/// So many characters of long words are shown.
const LONG: usize = 60;
/// So many figures stand side by side; of more there are the smallest and the largest.
const SIDE_BY_SIDE: usize = 3;
/// Why a cell has no figure: the sample cannot carry it.
const TOO_FEW: &str = "too few samples";

impl Cell {
    /// A figure that is not there.
    pub const NONE: Self = Self::Missing("not measured");

    /// A time that is known to ± `half_us`, or missing.
    pub fn time(us: Option<f64>, half_us: f64, unit: Unit) -> Self {
        us.map_or(Self::Missing(TOO_FEW), |us| Self::Time {
            us,
            half_us,
            unit,
        })
    }

    /// The ends of an interval, or missing.
    pub fn interval(ends_us: Option<[f64; 2]>, unit: Unit) -> Self {
        ends_us.map_or(Self::Missing(TOO_FEW), |ends_us| Self::Interval {
            ends_us,
            unit,
        })
    }

    /// A figure of each of several servers.
    pub fn several(values: Vec<f64>, format: Format) -> Self {
        if values.is_empty() {
            return Self::NONE;
        }
        Self::Several { values, format }
    }

    /// Words, or missing where there are none.
    pub fn words(text: &str) -> Self {
        if text.is_empty() {
            return Self::NONE;
        }
        text.into()
    }

    /// What stands in it, without a unit; of long words how they begin.
    #[must_use]
    pub fn shown(&self) -> String {
        match self {
            Self::Text(text) | Self::Link { text, .. } => text.clone(),
            Self::Long(text) => match text.char_indices().nth(LONG) {
                Some((at, _)) => format!("{}…", &text[..at]),
                None => text.clone(),
            },
            Self::Count(number) => count(*number),
            Self::Time { us, half_us, unit } => unit.show_within(*us, *half_us),
            Self::Interval { ends_us, unit } => unit.show_interval(*ends_us).join(" to "),
            Self::Figure {
                value,
                ends,
                format,
            } => format.show(*value, *ends),
            Self::Several { values, format } if values.len() <= SIDE_BY_SIDE => {
                let shown = values.iter().map(|value| format.show(*value, None));
                shown.collect::<Vec<_>>().join(", ")
            }
            Self::Several { values, format } => {
                let ends = [f64::min, f64::max].map(|pick| values.iter().copied().reduce(pick));
                ends.map(|end| format.text(end)).join(" to ")
            }
            Self::Missing(_) => "–".to_owned(),
        }
    }
}

impl Format {
    /// A figure without an interval.
    pub fn cell(self, value: Option<f64>) -> Cell {
        self.within(value, None)
    }

    /// A figure with the ends of its interval.
    pub fn within(self, value: Option<f64>, ends: Option<[f64; 2]>) -> Cell {
        value.map_or(Cell::NONE, |value| Cell::Figure {
            value,
            ends,
            format: self,
        })
    }

    /// An estimate with its interval.
    pub fn estimate(self, of: &Estimate) -> Cell {
        self.within(of.value, of.ends())
    }
}

/// A rate with its interval.
pub fn throughput(of: &Rate) -> Cell {
    Format::Rate.within(of.mean, of.low.zip(of.high).map(|(low, high)| [low, high]))
}

/// The same in words.
pub fn with_interval(of: &Rate) -> String {
    throughput(of).shown()
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<&String> for Cell {
    fn from(text: &String) -> Self {
        Self::Text(text.clone())
    }
}

impl From<u64> for Cell {
    fn from(number: u64) -> Self {
        Self::Count(number)
    }
}

impl From<u32> for Cell {
    fn from(number: u32) -> Self {
        Self::Count(number.into())
    }
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(known: Option<T>) -> Self {
        known.map_or(Self::NONE, Into::into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_figures_there_are_the_ends() {
        let of = |values: &[f64]| Cell::several(values.to_vec(), Format::Percent).shown();
        assert_eq!(of(&[1.0, 5.0, 3.0]), "1 %, 5 %, 3 %");
        assert_eq!(of(&[1.0, 5.0, 3.0, 4.0]), "1 % to 5 %");
        assert_eq!(of(&[]), "–");
    }
}
