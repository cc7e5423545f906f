//! Formats a time as text, without an allocation.

/// Characters of `YYYY-MM-DD HH:MM:SS.uuuuuu`.
pub(crate) const LENGTH: usize = 26;

/// Writes microseconds since 1970, not negative, as UTC.
pub(crate) fn write(micros: i64, text: &mut [u8; LENGTH]) {
    let seconds = micros.div_euclid(1_000_000);
    let (days, of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = date(days);
    // For each field: its position, its number of digits, and the character after it.
    let fields = [
        (0, 4, year, b'-'),
        (5, 2, month, b'-'),
        (8, 2, day, b' '),
        (11, 2, of_day / 3_600, b':'),
        (14, 2, of_day / 60 % 60, b':'),
        (17, 2, of_day % 60, b'.'),
        (20, 6, micros.rem_euclid(1_000_000), b'\0'),
    ];
    for (begin, digits, mut value, separator) in fields {
        for byte in text.iter_mut().skip(begin).take(digits).rev() {
            *byte = b'0' + (value % 10) as u8;
            value /= 10;
        }
        if let Some(byte) = text.get_mut(begin + digits) {
            *byte = separator;
        }
    }
}

/// Returns year, month and day of a day since 1970-01-01 (Hinnant, "chrono-Compatible Low-Level
/// Date Algorithms", civil_from_days).
fn date(days: i64) -> (i64, i64, i64) {
    // Eras of 400 years, and years that begin in March: the leap day is a year's last.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(micros: i64) -> String {
        let mut text = [b'x'; LENGTH];
        write(micros, &mut text);
        String::from_utf8(text.to_vec()).unwrap()
    }

    #[test]
    fn known_times_are_printed() {
        assert_eq!(text(0), "1970-01-01 00:00:00.000000");
        assert_eq!(text(951_868_799_999_999), "2000-02-29 23:59:59.999999");
        assert_eq!(text(1_795_266_287_262_399), "2026-11-21 13:04:47.262399");
        assert_eq!(text(9_223_372_036_854_775), "2262-04-11 23:47:16.854775");
    }

    proptest! {
        #[test]
        fn later_times_sort_after_earlier_ones(one in 0i64..9_223_372_036_854_775, other in 0i64..9_223_372_036_854_775) {
            prop_assert_eq!(one.cmp(&other), text(one).cmp(&text(other)));
        }
    }
}
