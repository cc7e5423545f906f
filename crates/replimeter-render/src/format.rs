//! How each kind of figure is rounded, with its interval.

use crate::figures::{Unit, count, rate, time};

/// The kind of a figure, which determines its rounding and its unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Format {
    /// A time in µs, in this unit, which the heading names.
    In(Unit),
    /// A time in µs, in the unit that suits it.
    Time,
    /// Events per second.
    Rate,
    /// A number with this relative precision: one part in N.
    OneIn(f64),
    /// Bytes in the unit that suits them.
    Bytes,
    /// Bytes per second in the unit that suits them.
    BytesPerSecond,
    /// Whole percent.
    Percent,
    /// Percent of the figure without replicas.
    PercentOfNone,
    /// A share in percent; smaller shares have more digits.
    Share,
    /// A factor.
    Ratio,
    /// A number with this many decimals.
    Decimals(usize),
}

/// The factor between the ends of a ratio's interval from which the ratio is unknown.
const HOPELESS: f64 = 100.0;

impl Format {
    /// Formats the figure; a dash if it is missing.
    pub fn text(self, value: Option<f64>) -> String {
        or_dash(value, |value| self.show(value, None))
    }

    /// Formats the figure, with no more digits than its interval supports.
    pub fn show(self, value: f64, ends: Option<[f64; 2]>) -> String {
        let Some([low, high]) = ends else {
            return self.show_alone(value);
        };
        let half = (high - low) / 2.0;
        match self {
            Self::In(unit) => {
                let ends = unit.show_interval([low, high]).join(", ");
                format!("{} [{ends}]", unit.show_within(value, half))
            }
            Self::Time => {
                let unit = Unit::for_size(value);
                let ends = unit.show_interval([low, high]).join(", ");
                format!("{} [{ends}]", unit.with_within(value, half))
            }
            Self::Rate => {
                // Ends that are equal are known only to whole events.
                let half = if half > 0.0 {
                    half.max(value.abs() * 1e-4)
                } else {
                    0.0
                };
                let [value, low, high] = [value, low, high].map(|one| rate(one, half));
                format!("{value} [{low}, {high}]")
            }
            // Few starts: an end of 67,688,704 % is an artifact.
            Self::PercentOfNone if low * 10.0 < value || high > value * 10.0 => {
                format!("share unknown: {value:.0} %, uncertain by more than a factor of ten")
            }
            Self::PercentOfNone => {
                format!("{value:.0} % [{:.0}, {:.0}]", low.floor(), high.ceil())
            }
            Self::Share if value == 0.0 => format!("< {:.*}", digits(high), high),
            Self::Share => {
                let places = digits(value).max(digits(half).min(3));
                format!("{value:.places$} [{low:.places$}, {high:.places$}]")
            }
            // Too few or too different starts: such an interval has no information.
            Self::Ratio if low <= 0.0 || high / low > HOPELESS => {
                format!("{value:.2} [unknown]")
            }
            Self::Ratio => {
                // Two digits of the half-width; the ends are rounded outwards.
                let decimals = (1.0 - half.max(1e-6).log10().floor()).clamp(1.0, 4.0) as usize;
                let step = 10f64.powi(decimals as i32);
                let (low, high) = ((low * step).floor() / step, (high * step).ceil() / step);
                format!("{value:.decimals$} [{low:.decimals$}, {high:.decimals$}]")
            }
            Self::OneIn(_)
            | Self::Bytes
            | Self::BytesPerSecond
            | Self::Percent
            | Self::Decimals(_) => {
                let [value, low, high] = [value, low, high].map(|one| self.show_alone(one));
                format!("{value} [{low}, {high}]")
            }
        }
    }

    fn show_alone(self, value: f64) -> String {
        match self {
            Self::In(unit) => unit.show(value),
            Self::Time => time(value),
            Self::Rate => format!("about {}", rate(value, value.abs() / 10.0)),
            Self::OneIn(parts) => rate(value, value / parts),
            Self::Bytes => bytes(value),
            Self::BytesPerSecond => format!("{}/s", bytes(value)),
            Self::Percent => format!("{value:.0} %"),
            // Without replicas: itself.
            Self::PercentOfNone if value == 100.0 => "100 %".to_owned(),
            Self::PercentOfNone => format!("about {value:.0} %"),
            Self::Share => format!("{value:.*}", digits(value)),
            Self::Ratio => format!("{value:.2}"),
            Self::Decimals(decimals) => format!("{value:.decimals$}"),
        }
    }
}

/// Returns the decimals of a share.
fn digits(percent: f64) -> usize {
    match percent {
        value if value >= 9.95 => 1,
        value if value >= 0.0995 => 2,
        value if value >= 0.00995 => 3,
        _ => 4,
    }
}

/// Formats bytes in the unit that suits them.
fn bytes(value: f64) -> String {
    match value.abs() {
        size if size >= 1e9 => format!("{:.1} GB", value / 1e9),
        size if size >= 1e6 => format!("{:.1} MB", value / 1e6),
        size if size >= 1e3 => format!("{:.1} kB", value / 1e3),
        _ => format!("{value:.0} B"),
    }
}

/// Formats a figure; a dash if it is missing.
pub fn or_dash<T>(figure: Option<T>, shown: impl FnOnce(T) -> String) -> String {
    figure.map_or_else(|| "–".to_owned(), shown)
}

/// Formats a rate as an integer.
pub fn per_second(rate: Option<f64>) -> String {
    or_dash(rate, |rate| count(rate.max(0.0).round() as u64))
}

/// Formats `1 replica`, `2 replicas`.
pub fn number(many: impl Into<u64>, one: &str) -> String {
    let many = many.into();
    let end = if many == 1 { "" } else { "s" };
    format!("{} {one}{end}", count(many))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_a_fitting_unit() {
        let shown = [18.4e6, 512.0, 2.5e9].map(|value| Format::Bytes.text(Some(value)));
        assert_eq!(shown, ["18.4 MB", "512 B", "2.5 GB"]);
    }

    #[test]
    fn zero_share_has_an_upper_bound() {
        assert_eq!(Format::Share.show(0.0, Some([0.0, 0.0384])), "< 0.038");
        assert_eq!(
            Format::Share.show(0.94, Some([0.77, 1.15])),
            "0.94 [0.77, 1.15]"
        );
    }
}
