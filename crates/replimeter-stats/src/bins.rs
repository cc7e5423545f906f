//! Histograms for display: a dozen or two bars of round width.

use replimeter_model::{record::Bin, time::Nanos};

use crate::signed::SignedHistogram;

/// Returns bars of equal, round width (1, 2 or 5 times a power of ten) that cover the central 98 %
/// of the samples in at most `most` bars, with one open bar for the rest on either side, so that no
/// outlier is dropped or widens the chart. Empty for no samples.
#[must_use]
pub fn bins(histogram: &SignedHistogram, most: usize) -> Vec<Bin> {
    let (Some(min), Some(max)) = (histogram.min(), histogram.max()) else {
        return Vec::new();
    };
    let count = histogram.count();
    let central = |p: f64| {
        histogram
            .at_rank(crate::signed::rank_of(p, count))
            .map_or(0, |nanos| nanos.0)
    };
    let (low, high) = if count < 100 {
        (min.0, max.0)
    } else {
        (central(0.01), central(0.99))
    };
    let width = round_width(high - low, most.max(1));
    let first = low.div_euclid(width);
    let bars = usize::try_from((high.div_euclid(width) - first) + 1).unwrap_or(1);
    let start = first * width;
    let end = start + bars as i64 * width;
    let mut counts = vec![0u64; bars];
    let (mut before, mut after) = (0, 0);
    for (Nanos(value), count) in histogram.bars() {
        match value {
            value if value < start => before += count,
            value if value >= end => after += count,
            value => counts[usize::try_from((value - start) / width).unwrap_or(bars - 1)] += count,
        }
    }
    let us = |nanos: i64| Nanos(nanos).as_micros();
    let mut bins = Vec::with_capacity(bars + 2);
    if before > 0 {
        bins.push(Bin {
            from_us: us(min.0),
            to_us: us(start),
            count: before,
        });
    }
    for (index, count) in counts.into_iter().enumerate() {
        let low = start + index as i64 * width;
        bins.push(Bin {
            from_us: us(low),
            to_us: us(low + width),
            count,
        });
    }
    if after > 0 {
        bins.push(Bin {
            from_us: us(end),
            to_us: us(max.0),
            count: after,
        });
    }
    bins
}

fn round_width(spread: i64, most: usize) -> i64 {
    let least = (spread / most as i64 + 1).max(1);
    let mut power = 1i64;
    loop {
        for factor in [1, 2, 5] {
            // One more bar than spread / width may be needed at the edges.
            if power * factor >= least && spread / (power * factor) + 2 <= most as i64 + 1 {
                return power * factor;
            }
        }
        match power.checked_mul(10) {
            Some(next) if next < i64::MAX / 10 => power = next,
            _ => return power,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bins_are_round_and_outliers_separate() {
        let mut histogram = SignedHistogram::new(3);
        for value in 0..1000 {
            histogram.record(Nanos(100_000 + value * 100));
        }
        histogram.record(Nanos(50_000_000));
        let bins = bins(&histogram, 20);
        assert!(bins.len() <= 23, "{}", bins.len());
        assert_eq!(bins[1].to_us - bins[1].from_us, 5.0);
        assert_eq!(bins.last().map(|bin| bin.to_us), Some(50_000.0));
    }

    proptest! {
        #[test]
        fn every_sample_is_in_one_bin(values in proptest::collection::vec(-1_000_000_000i64..1_000_000_000_000, 1..200), most in 1usize..40) {
            let mut histogram = SignedHistogram::new(3);
            for value in &values {
                histogram.record(Nanos(*value));
            }
            let bins = bins(&histogram, most);
            prop_assert_eq!(bins.iter().map(|bin| bin.count).sum::<u64>(), values.len() as u64);
            prop_assert!(bins.len() <= most + 3);
        }
    }
}
