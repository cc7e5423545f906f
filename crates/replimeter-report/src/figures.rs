//! Numbers for people: units, separators, no more digits than help.

/// A unit of time that a whole table shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Microseconds.
    Micro,
    /// Milliseconds.
    Milli,
    /// Seconds.
    Second,
}

impl Unit {
    /// The unit in which numbers around `us` microseconds read best.
    #[must_use]
    pub fn for_size(us: f64) -> Self {
        match us.abs() {
            size if size < 20_000.0 => Self::Micro,
            size if size < 20_000_000.0 => Self::Milli,
            _ => Self::Second,
        }
    }

    /// Its symbol.
    #[must_use]
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Micro => "µs",
            Self::Milli => "ms",
            Self::Second => "s",
        }
    }

    /// Microseconds in this unit.
    #[must_use]
    pub fn scale(self) -> f64 {
        match self {
            Self::Micro => 1.0,
            Self::Milli => 1e3,
            Self::Second => 1e6,
        }
    }

    /// The number in this unit, four significant digits or whole microseconds.
    #[must_use]
    pub fn show(self, us: f64) -> String {
        let value = us / self.scale();
        let decimals = match value.abs() {
            size if size >= 1000.0 => 0,
            size if size >= 100.0 => usize::from(self != Self::Micro),
            size if size >= 10.0 => {
                if self == Self::Micro {
                    1
                } else {
                    2
                }
            }
            _ => {
                if self == Self::Micro {
                    1
                } else {
                    3
                }
            }
        };
        grouped(&format!("{value:.decimals$}"))
    }

    /// The number with its unit.
    #[must_use]
    pub fn with(self, us: f64) -> String {
        format!("{} {}", self.show(us), self.symbol())
    }
}

/// A time in the unit that suits it.
#[must_use]
pub fn time(us: f64) -> String {
    Unit::for_size(us).with(us)
}

/// A count with separators.
#[must_use]
pub fn count(number: u64) -> String {
    grouped(&number.to_string())
}

/// A rate, rounded to two digits of its error.
#[must_use]
pub fn rate(per_s: f64, error: f64) -> String {
    let step = if error > 0.0 { 10f64.powf(error.log10().floor() - 1.0).max(0.01) } else { 1.0 };
    let decimals = if step >= 1.0 { 0 } else { (-step.log10()).round() as usize };
    grouped(&format!("{:.decimals$}", (per_s / step).round() * step))
}

fn grouped(text: &str) -> String {
    let (sign, digits) = text.strip_prefix('-').map_or(("", text), |digits| ("-", digits));
    let (whole, rest) = digits.split_once('.').map_or((digits, None), |(whole, rest)| (whole, Some(rest)));
    let mut out = String::from(sign);
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    if let Some(rest) = rest {
        out.push('.');
        out.push_str(rest);
    }
    // "-0.0" says something that the digits do not.
    if out.chars().all(|character| matches!(character, '-' | '0' | '.')) { out.trim_start_matches('-').to_owned() } else { out }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_well() {
        assert_eq!(time(113.24), "113 µs");
        assert_eq!(time(-3.26), "-3.3 µs");
        assert_eq!(time(-0.01), "0.0 µs");
        assert_eq!(time(1_234.5), "1,234 µs");
        assert_eq!(time(201_360.0), "201.4 ms");
        assert_eq!(time(46_526_700.0), "46.53 s");
    }

    #[test]
    fn rates_have_no_more_digits_than_their_error_supports() {
        assert_eq!(rate(1234.567, 173.0), "1,230");
        assert_eq!(rate(1234.567, 14.0), "1,235");
        assert_eq!(rate(1234.567, 0.5), "1,234.57");
        assert_eq!(rate(1234.567, 2600.0), "1,200");
        assert_eq!((rate(5.0, 0.0).as_str(), rate(-3.21, 0.0).as_str()), ("5", "-3"));
    }

    #[test]
    fn counts_are_grouped() {
        assert_eq!((count(7).as_str(), count(1_000).as_str(), count(12_345_678).as_str()), ("7", "1,000", "12,345,678"));
    }
}
