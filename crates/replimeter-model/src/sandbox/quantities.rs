//! Bandwidth of a link, and a server's share of the machine.

use std::{fmt, str::FromStr};

/// Bits per second, with a unit (`100mbit`, `1gbit`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bandwidth {
    /// Bits per second.
    pub bits: u64,
}

/// Units of a [`Bandwidth`], largest first.
const UNITS: [(&str, u64); 4] = [
    ("gbit", 1_000_000_000),
    ("mbit", 1_000_000),
    ("kbit", 1_000),
    ("bit", 1),
];

impl Bandwidth {
    /// Bytes per second.
    #[must_use]
    pub fn bytes(self) -> u64 {
        (self.bits / 8).max(1)
    }
}

impl FromStr for Bandwidth {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || {
            format!(
                "`{text}` is not a bandwidth; write a whole number with a unit, such as 100mbit or 1gbit"
            )
        };
        let (unit, factor) = UNITS
            .into_iter()
            .find(|(unit, _)| text.ends_with(unit))
            .ok_or_else(refuse)?;
        let number = text[..text.len() - unit.len()].trim_end();
        let bits = number
            .parse::<u64>()
            .ok()
            .and_then(|number| number.checked_mul(factor))
            .ok_or_else(refuse)?;
        if bits < 8_000 {
            return Err(format!(
                "`{text}` is too low for replication; the minimum is 8kbit"
            ));
        }
        Ok(Self { bits })
    }
}

impl fmt::Display for Bandwidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, factor) = UNITS
            .into_iter()
            .find(|(_, factor)| self.bits.is_multiple_of(*factor))
            .unwrap_or(("bit", 1));
        write!(f, "{}{unit}", self.bits / factor)
    }
}

serde_as_text!(
    Bandwidth,
    "description": "Bits per second with a unit",
    "examples": ["100mbit", "1gbit"]
);

/// A share of this machine's processor time, in cores (`1`, `0.5`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpus {
    /// Thousandths of a core.
    pub milli: u32,
}

impl Cpus {
    /// Returns the number of whole cores; `None` for a fraction.
    #[must_use]
    pub fn whole(self) -> Option<u32> {
        self.milli.is_multiple_of(1000).then_some(self.milli / 1000)
    }

    /// Returns the share in cores.
    #[must_use]
    pub fn cores(self) -> f64 {
        f64::from(self.milli) / 1000.0
    }
}

impl FromStr for Cpus {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || {
            format!(
                "`{text}` is not a number of cores; write 1, 2 or a fraction such as 0.5, from 0.05 to 1024"
            )
        };
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        if whole.is_empty()
            || fraction.is_empty()
            || fraction.len() > 3
            || !digits(whole)
            || !digits(fraction)
        {
            return Err(refuse());
        }
        let whole: u32 = whole.parse().map_err(|_| refuse())?;
        let fraction: u32 = format!("{fraction:0<3}").parse().map_err(|_| refuse())?;
        let milli = whole
            .checked_mul(1000)
            .and_then(|milli| milli.checked_add(fraction))
            .ok_or_else(refuse)?;
        // With less, a server does not start in time.
        if (50..=1_024_000).contains(&milli) {
            Ok(Self { milli })
        } else {
            Err(refuse())
        }
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{:03}", self.milli / 1000, self.milli % 1000);
        f.write_str(text.trim_end_matches('0').trim_end_matches('.'))
    }
}

serde_as_text!(
    Cpus,
    "description": "A number of cores, as a text",
    "pattern": "^[0-9.]+$",
    "examples": ["0.5", "1"]
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidths_are_parsed() {
        for (text, bits) in [
            ("100mbit", 100_000_000),
            ("1gbit", 1_000_000_000),
            ("64kbit", 64_000),
        ] {
            let bandwidth: Bandwidth = text.parse().unwrap();
            assert_eq!(
                (bandwidth.bits, bandwidth.to_string().as_str()),
                (bits, text)
            );
        }
        for text in [
            "",
            "5",
            "mbit",
            "-1mbit",
            "1.5gbit",
            "7kbit",
            "99999999999gbit",
            "1MB",
        ] {
            assert!(text.parse::<Bandwidth>().is_err(), "{text}");
        }
    }

    #[test]
    fn cpu_shares_are_parsed() {
        for (text, milli) in [
            ("1", 1000),
            ("0.5", 500),
            ("2", 2000),
            ("1.25", 1250),
            ("0.333", 333),
        ] {
            let cpus: Cpus = text.parse().unwrap();
            assert_eq!((cpus.milli, cpus.to_string().as_str()), (milli, text));
        }
        assert_eq!("1.50".parse::<Cpus>().unwrap().to_string(), "1.5");
        assert_eq!(
            (
                "2".parse::<Cpus>().unwrap().whole(),
                "0.5".parse::<Cpus>().unwrap().whole()
            ),
            (Some(2), None)
        );
        for text in [
            "",
            "0",
            "0.01",
            "-1",
            "+1",
            "1.",
            ".5",
            "1e3",
            "0.5000",
            "all",
            "9999999999",
        ] {
            assert!(text.parse::<Cpus>().is_err(), "{text}");
        }
    }
}
