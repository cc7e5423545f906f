//! A cell of a table: a figure as data, which the renderers round, or text.

use replimeter_model::{estimate::Estimate, load::Rate};

use crate::{
    figures::{Unit, count},
    format::Format,
};

/// A cell of a table.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Text, or composed figures.
    Text(String),
    /// A count.
    Count(u64),
    /// A time in µs known to ± `half_us` (0 for no error); shown in `unit`.
    Time {
        /// In µs.
        us: f64,
        /// Half of its interval, in µs.
        half_us: f64,
        /// The unit for display.
        unit: Unit,
    },
    /// The ends of an interval of times, in µs.
    Interval {
        /// Both ends, in µs.
        ends_us: [f64; 2],
        /// The unit for display.
        unit: Unit,
    },
    /// A figure with the ends of its interval, if known.
    Figure {
        /// The figure.
        value: f64,
        /// The ends of its interval.
        ends: Option<[f64; 2]>,
        /// How it is rounded.
        format: Format,
    },
    /// A figure for each of several servers.
    Several {
        /// The figures.
        values: Vec<f64>,
        /// How they are rounded.
        format: Format,
    },
    /// Text of any length; outputs without charts truncate it.
    Long(String),
    /// Text that links to a file or a place on the page.
    Link {
        /// The text.
        text: String,
        /// The target.
        href: String,
    },
    /// No figure, with the reason.
    Missing(&'static str),
}

/// Maximum number of characters of long text.
const LONG: usize = 60;
/// Maximum number of figures listed; for more, the minimum and maximum are shown.
const SIDE_BY_SIDE: usize = 3;
/// Why a cell has no figure: too few samples for it.
const TOO_FEW: &str = "too few samples";

impl Cell {
    /// A figure that was not measured.
    pub const NONE: Self = Self::Missing("not measured");

    /// Returns a time known to ± `half_us`, or a missing figure.
    pub fn time(us: Option<f64>, half_us: f64, unit: Unit) -> Self {
        us.map_or(Self::Missing(TOO_FEW), |us| Self::Time {
            us,
            half_us,
            unit,
        })
    }

    /// Returns the ends of an interval, or a missing figure.
    pub fn interval(ends_us: Option<[f64; 2]>, unit: Unit) -> Self {
        ends_us.map_or(Self::Missing(TOO_FEW), |ends_us| Self::Interval {
            ends_us,
            unit,
        })
    }

    /// Returns a figure for each of several servers.
    pub fn several(values: Vec<f64>, format: Format) -> Self {
        if values.is_empty() {
            return Self::NONE;
        }
        Self::Several { values, format }
    }

    /// Returns text, or a missing figure if it is empty.
    pub fn text(text: &str) -> Self {
        if text.is_empty() {
            return Self::NONE;
        }
        text.into()
    }

    /// Returns the text of the cell without a unit; long text is truncated.
    #[must_use]
    pub fn display_text(&self) -> String {
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
    /// Returns a figure without an interval.
    pub fn cell(self, value: Option<f64>) -> Cell {
        self.with_interval_ends(value, None)
    }

    /// Returns a figure with the ends of its interval.
    pub fn with_interval_ends(self, value: Option<f64>, ends: Option<[f64; 2]>) -> Cell {
        value.map_or(Cell::NONE, |value| Cell::Figure {
            value,
            ends,
            format: self,
        })
    }

    /// Returns an estimate with its interval.
    pub fn estimate(self, of: &Estimate) -> Cell {
        self.with_interval_ends(of.value, of.ends())
    }
}

/// Returns a rate with its interval.
pub fn throughput(of: &Rate) -> Cell {
    Format::Rate.with_interval_ends(
        of.mean,
        of.ci95.low.zip(of.ci95.high).map(|(low, high)| [low, high]),
    )
}

/// Returns a rate with its interval as text.
pub fn with_interval(of: &Rate) -> String {
    throughput(of).display_text()
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
    fn many_figures_show_their_range() {
        let of = |values: &[f64]| Cell::several(values.to_vec(), Format::Percent).display_text();
        assert_eq!(of(&[1.0, 5.0, 3.0]), "1 %, 5 %, 3 %");
        assert_eq!(of(&[1.0, 5.0, 3.0, 4.0]), "1 % to 5 %");
        assert_eq!(of(&[]), "–");
    }
}
