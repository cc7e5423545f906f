//! `histograms.hlog`: the histograms of the figures, as an HdrHistogram log that the public tools read.
//!
//! Values are nanoseconds. HDR histograms are unsigned: the absolute values of negative samples form a
//! separate series, whose tag ends in `-below-zero`.

use std::{
    io,
    time::{Duration, SystemTime},
};

use hdrhistogram::serialization::{
    V2DeflateSerializeError, V2DeflateSerializer,
    interval_log::{IntervalLogWriterBuilder, IntervalLogWriterError, Tag},
};
use replimeter_stats::signed::SignedHistogram;

/// The end of the tag of negative samples.
pub const BELOW_ZERO: &str = "-below-zero";
/// The divisor of the readable maximum in each line: nanoseconds to milliseconds, which the public tools
/// expect.
const PER_MILLI: f64 = 1e6;

/// Returns a name valid in the format: without commas, spaces and line ends.
#[must_use]
pub fn tag(name: &str) -> String {
    name.chars()
        .map(|character| {
            if character == ',' || character.is_whitespace() || character.is_control() {
                '_'
            } else {
                character
            }
        })
        .collect()
}

/// Returns the log, with one interval for each series that has samples: the whole run.
///
/// # Errors
/// If a histogram cannot be packed; Replimeter's histograms are never too large for that.
pub fn log(
    begun: SystemTime,
    took: Duration,
    series: &[(String, SignedHistogram)],
) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut serializer = V2DeflateSerializer::new();
    let mut builder = IntervalLogWriterBuilder::new();
    builder
        .add_comment(
            "[Replimeter: values are nanoseconds; a tag that ends in -below-zero holds the absolute values of negative values]",
        )
        .with_start_time(begun)
        .with_max_value_divisor(PER_MILLI);
    let mut writer = builder.begin_log_with(&mut bytes, &mut serializer)?;
    let wrap = |error: IntervalLogWriterError<V2DeflateSerializeError>| match error {
        IntervalLogWriterError::IoError(error) => error,
        IntervalLogWriterError::SerializeError(error) => {
            io::Error::other(format!("a histogram cannot be packed: {error:?}"))
        }
    };
    for (name, histogram) in series {
        let (positive, negative) = histogram.sides();
        let name = tag(name);
        let below = format!("{name}{BELOW_ZERO}");
        let sides = [
            Some((&name, positive)),
            negative.map(|negative| (&below, negative)),
        ];
        for (name, side) in sides
            .into_iter()
            .flatten()
            .filter(|(_, side)| !side.is_empty())
        {
            writer
                .write_histogram(side, Duration::ZERO, took, Tag::new(name))
                .map_err(wrap)?;
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use hdrhistogram::{
        Histogram,
        serialization::{
            Deserializer,
            interval_log::{IntervalLogIterator, LogEntry},
        },
    };
    use replimeter_model::time::Nanos;

    use super::*;

    #[test]
    fn histogram_log_is_read_back() {
        let mut lag = SignedHistogram::default();
        (1..=1000).for_each(|micros| lag.record(Nanos(micros * 1000)));
        (1..=10).for_each(|micros| lag.record(Nanos(-micros * 1000)));
        let empty = SignedHistogram::default();
        let series = [
            ("async:1/replica 1,x/poll".to_owned(), lag.clone()),
            ("empty".to_owned(), empty),
        ];
        let begun = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let bytes = log(begun, Duration::from_secs(7), &series).unwrap();
        let mut found: BTreeMap<String, Histogram<u64>> = BTreeMap::new();
        let mut start = None;
        for entry in IntervalLogIterator::new(&bytes) {
            match entry.unwrap() {
                LogEntry::StartTime(time) => start = Some(time),
                LogEntry::BaseTime(_) => {}
                LogEntry::Interval(interval) => {
                    assert_eq!(interval.duration(), Duration::from_secs(7));
                    let packed = base64(interval.encoded_histogram());
                    let histogram = Deserializer::new()
                        .deserialize(&mut packed.as_slice())
                        .unwrap();
                    found.insert(interval.tag().unwrap().as_str().to_owned(), histogram);
                }
            }
        }
        assert_eq!(start, Some(Duration::from_secs(1_700_000_000)));
        let tags: Vec<&str> = found.keys().map(String::as_str).collect();
        assert_eq!(
            tags,
            [
                "async:1/replica_1_x/poll",
                "async:1/replica_1_x/poll-below-zero"
            ]
        );
        let (above, below) = (&found[tags[0]], &found[tags[1]]);
        assert_eq!((above.len(), below.len()), (1000, 10));
        assert!(
            above.value_at_quantile(0.5).abs_diff(500_000) < 1000,
            "{}",
            above.value_at_quantile(0.5)
        );
        assert!(below.max().abs_diff(10_000) < 20, "{}", below.max());
    }

    /// Decodes base64.
    fn base64(text: &str) -> Vec<u8> {
        let value = |byte: u8| match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            _ => 63,
        };
        let digits: Vec<u8> = text
            .bytes()
            .filter(|byte| *byte != b'=')
            .map(value)
            .collect();
        let groups = digits.chunks(4).map(|group| {
            let bits = group.iter().enumerate().fold(0u32, |bits, (place, digit)| {
                bits | u32::from(*digit) << (18 - 6 * place)
            });
            bits.to_be_bytes()[1..group.len()].to_vec()
        });
        groups.flatten().collect()
    }
}
