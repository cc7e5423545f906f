//! Formats numbers: units, separators, significant digits.

/// A unit of time for a whole table.
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
    /// Returns the unit that suits numbers around `us` µs.
    #[must_use]
    pub fn for_size(us: f64) -> Self {
        match us.abs() {
            size if size < 20_000.0 => Self::Micro,
            size if size < 20_000_000.0 => Self::Milli,
            _ => Self::Second,
        }
    }

    /// Returns its symbol.
    #[must_use]
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Micro => "µs",
            Self::Milli => "ms",
            Self::Second => "s",
        }
    }

    /// Converts µs to this unit.
    #[must_use]
    pub fn scale(self) -> f64 {
        match self {
            Self::Micro => 1.0,
            Self::Milli => 1e3,
            Self::Second => 1e6,
        }
    }

    /// Formats the number in this unit, with four significant digits or whole µs.
    #[must_use]
    pub fn show(self, us: f64) -> String {
        self.show_within(us, 0.0)
    }

    /// Formats the number in this unit, known to ± `half_us`: the last digit is at the place of the first
    /// digit of that half-width, so 118.342 ± 4 is 118 and ± 25 is 120. Never more digits than
    /// [`Unit::show`]; 0 means no error.
    #[must_use]
    pub fn show_within(self, us: f64, half_us: f64) -> String {
        self.rounded(us, half_us, f64::round)
    }

    /// Formats the ends of an interval, to two digits of its half-width, since they are the error bar itself;
    /// each is rounded outwards, so that rounding never narrows the interval.
    #[must_use]
    pub fn show_interval(self, [low, high]: [f64; 2]) -> [String; 2] {
        let half = (high - low) / 20.0;
        [
            self.rounded(low, half, f64::floor),
            self.rounded(high, half, f64::ceil),
        ]
    }

    /// Rounds to the place of the first digit of the half-width, with `round`.
    fn rounded(self, us: f64, half_us: f64, round: fn(f64) -> f64) -> String {
        let value = us / self.scale();
        let most = self.decimals(value);
        let Some(place) = place(half_us / self.scale()) else {
            return grouped(&format!("{value:.most$}"));
        };
        // A value below its error keeps one digit: 0 would claim more.
        let place = self::place(value.abs()).map_or(place, |first| place.min(first));
        let decimals = usize::try_from(-place).unwrap_or(0).min(most);
        // If fewer decimals are printed anyway, the rounding must match them.
        let step = if place >= 0 {
            10f64.powi(place)
        } else {
            10f64.powi(-i32::try_from(decimals).unwrap_or(0))
        };
        // 0.3 / 0.1 is just below 3, but means 3.
        let steps = (value / step * 1e6).round() / 1e6;
        grouped(&format!("{:.decimals$}", round(steps) * step))
    }

    /// Returns the decimals for four significant digits, or none above whole µs.
    fn decimals(self, value: f64) -> usize {
        match value.abs() {
            size if size >= 1000.0 => 0,
            size if size >= 100.0 => usize::from(self != Self::Micro),
            _ if self == Self::Micro => 1,
            size if size >= 10.0 => 2,
            _ => 3,
        }
    }

    /// Formats the number with its unit.
    #[must_use]
    pub fn with(self, us: f64) -> String {
        self.with_within(us, 0.0)
    }

    /// Formats the number with its unit, known to ± `half_us`.
    #[must_use]
    pub fn with_within(self, us: f64, half_us: f64) -> String {
        format!("{} {}", self.show_within(us, half_us), self.symbol())
    }
}

/// Returns the power of ten of a number's first digit; `None` for 0 or NaN.
fn place(half: f64) -> Option<i32> {
    // The small addition keeps the logarithm of 0.001 from being just below −3.
    (half > 0.0 && half.is_finite()).then(|| (half.log10() + 1e-9).floor() as i32)
}

/// Formats a time in the unit that suits it.
#[must_use]
pub fn time(us: f64) -> String {
    Unit::for_size(us).with(us)
}

/// Formats a time in the unit that suits it, known to ± `half_us`.
#[must_use]
pub fn time_within(us: f64, half_us: f64) -> String {
    Unit::for_size(us).with_within(us, half_us)
}

/// Formats a count with separators.
#[must_use]
pub fn count(number: u64) -> String {
    grouped(&number.to_string())
}

/// Formats a rate, rounded to two digits of its error, and never to fewer than two of its own: 8,935 ±
/// 110,000 is 8,900, since 10,000 would suggest another value.
#[must_use]
pub fn rate(per_s: f64, error: f64) -> String {
    let two = |number: f64| 10f64.powf((number.abs().log10() + 1e-9).floor() - 1.0);
    let step = if error > 0.0 {
        let own = if per_s == 0.0 {
            f64::INFINITY
        } else {
            two(per_s)
        };
        two(error).min(own).max(0.01)
    } else {
        1.0
    };
    let decimals = if step >= 1.0 {
        0
    } else {
        (-step.log10()).round() as usize
    };
    grouped(&format!("{:.decimals$}", (per_s / step).round() * step))
}

fn grouped(text: &str) -> String {
    let (sign, digits) = text
        .strip_prefix('-')
        .map_or(("", text), |digits| ("-", digits));
    let (whole, rest) = digits
        .split_once('.')
        .map_or((digits, None), |(whole, rest)| (whole, Some(rest)));
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
    // "-0.0" suggests a sign that the digits do not support.
    if out
        .chars()
        .all(|character| matches!(character, '-' | '0' | '.'))
    {
        out.trim_start_matches('-').to_owned()
    } else {
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_readable_units() {
        assert_eq!(time(113.24), "113 µs");
        assert_eq!(time(-3.26), "-3.3 µs");
        assert_eq!(time(-0.01), "0.0 µs");
        assert_eq!(time(1_234.5), "1,234 µs");
        assert_eq!(time(201_360.0), "201.4 ms");
        assert_eq!(time(46_526_700.0), "46.53 s");
    }

    #[test]
    fn digits_do_not_exceed_the_error_bar() {
        let us = |value, half| Unit::Micro.show_within(value, half);
        for (value, half, shown) in [
            (118.342, 4.0, "118"),
            (118.342, 25.0, "120"),
            (118.342, 0.0, "118"),
            (118.342, 95.0, "120"),
            (118.342, 100.0, "100"),
            (118.342, 400.0, "100"),
            (18.342, 0.04, "18.3"),
            (18.342, 0.4, "18.3"),
            (18.342, 1.0, "18"),
            (18.342, 9.9, "18"),
            (18.342, 10.0, "20"),
            (1_234.6, 0.2, "1,235"),
            (12_345.0, 800.0, "12,300"),
            (-11_483.0, 38.0, "-11,480"),
            (-3.26, 13.0, "-3"),
            (-7.0, 13.0, "-7"),
            (30.0, 2_000.0, "30"),
            (5.0, f64::NAN, "5.0"),
            (5.0, f64::INFINITY, "5.0"),
        ] {
            assert_eq!(us(value, half), shown, "{value} ± {half}");
        }
        assert_eq!(
            Unit::Milli.show_within(20_136.0, 4.0),
            "20.14",
            "never more digits than without an error"
        );
        assert_eq!(Unit::Milli.show_within(201_360.0, 40.0), "201.4");
        assert_eq!(Unit::Milli.show_within(20_136.0, 250.0), "20.1");
        assert_eq!(Unit::Milli.show_within(20_136.0, 2_500.0), "20");
        assert_eq!(time_within(46_526_700.0, 30_000.0), "46.53 s");
    }

    #[test]
    fn intervals_are_rounded_outward_to_two_digits() {
        let shown = |low, high| Unit::Micro.show_interval([low, high]).join("–");
        assert_eq!(shown(114.2, 122.1), "114–123");
        assert_eq!(shown(877.5, 2_606.1), "870–2,610");
        assert_eq!(shown(-31.5, -9.0), "-32–-9");
        assert_eq!(shown(10.31, 10.39), "10.3–10.4");
        assert_eq!(shown(110.0, 130.0), "110–130", "what is on the digit stays");
        assert_eq!(shown(5.0, 5.0), "5.0–5.0");
    }

    #[test]
    fn rate_digits_do_not_exceed_their_error() {
        assert_eq!(rate(1234.567, 173.0), "1,230");
        assert_eq!(rate(1234.567, 14.0), "1,235");
        assert_eq!(rate(1234.567, 0.5), "1,234.57");
        assert_eq!(rate(1234.567, 2600.0), "1,200");
        assert_eq!(rate(8935.0, 110_000.0), "8,900");
        assert_eq!(
            (rate(5.0, 0.0).as_str(), rate(-3.21, 0.0).as_str()),
            ("5", "-3")
        );
    }

    #[test]
    fn counts_have_digit_groups() {
        assert_eq!(
            (
                count(7).as_str(),
                count(1_000).as_str(),
                count(12_345_678).as_str()
            ),
            ("7", "1,000", "12,345,678")
        );
    }
}
