//! A histogram of signed nanoseconds, in memory that does not grow with the number of samples.

use hdrhistogram::Histogram;
use replimeter_model::time::Nanos;
use serde::{Deserialize, Serialize};

/// Maximum count of one bar; beyond, it saturates, which ten thousand samples a second would reach
/// in five days.
pub type Count = u32;

/// Significant digits of a histogram that is read: those of reported figures.
const MAX_DIGITS: u8 = 3;

/// Minimum number of samples beyond a quantile.
pub const BEYOND: u64 = 10;

/// Two HDR histograms, one for each sign (HDR itself is unsigned), with exact minimum, maximum,
/// mean and variance.
///
/// Quantiles are within the relative precision of `digits` significant digits;
/// the mean and variance follow Welford (1962) and are exact.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "WrittenHistogram", into = "WrittenHistogram")]
pub struct SignedHistogram {
    positive: Histogram<Count>,
    negative: Option<Box<Histogram<Count>>>,
    digits: u8,
    count: u64,
    min: i64,
    max: i64,
    mean: f64,
    squares: f64,
}

fn histogram(digits: u8) -> Histogram<Count> {
    match Histogram::new(digits) {
        Ok(histogram) => histogram,
        Err(error) => {
            unreachable!("HDR histograms take 0 to 5 significant digits, not {digits}: {error}")
        }
    }
}

impl Default for SignedHistogram {
    /// Returns an empty histogram with the three digits of reported figures: 0.1 %.
    fn default() -> Self {
        Self::new(3)
    }
}

impl SignedHistogram {
    /// Returns an empty histogram that keeps `digits` significant digits (0 to 5).
    #[must_use]
    pub fn new(digits: u8) -> Self {
        Self {
            positive: histogram(digits),
            negative: None,
            digits,
            count: 0,
            min: i64::MAX,
            max: i64::MIN,
            mean: 0.0,
            squares: 0.0,
        }
    }

    /// Adds one sample.
    pub fn record(&mut self, value: Nanos) {
        self.record_n(value, 1);
    }

    /// Adds `count` samples of the same value (West 1979 for the variance).
    pub fn record_n(&mut self, value: Nanos, count: Count) {
        if count == 0 {
            return;
        }
        let Nanos(value) = value;
        let digits = self.digits;
        let side = if value >= 0 {
            &mut self.positive
        } else {
            self.negative
                .get_or_insert_with(|| Box::new(histogram(digits)))
        };
        // Grows as needed; cannot fail for magnitudes of 63 bits.
        let _ = side.record_n(value.unsigned_abs(), count);
        self.count += u64::from(count);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        let before = value as f64 - self.mean;
        self.mean += before * f64::from(count) / self.count as f64;
        self.squares += before * (value as f64 - self.mean) * f64::from(count);
    }

    /// Adds all samples of another histogram (Chan et al. 1983 for the variance).
    pub fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        // Fails only where a value does not fit, and both resize themselves.
        let _ = self.positive.add(&other.positive);
        if let Some(negative) = &other.negative {
            let digits = self.digits;
            let _ = self
                .negative
                .get_or_insert_with(|| Box::new(histogram(digits)))
                .add(&**negative);
        }
        let (a, b) = (self.count as f64, other.count as f64);
        let difference = other.mean - self.mean;
        self.mean += difference * b / (a + b);
        self.squares += other.squares + difference * difference * a * b / (a + b);
        self.count += other.count;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Returns the number of samples.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns both histograms: of samples from zero on, and of negative ones with inverted sign.
    #[must_use]
    pub fn sides(&self) -> (&Histogram<Count>, Option<&Histogram<Count>>) {
        (&self.positive, self.negative.as_deref())
    }

    /// Returns the smallest sample, exact.
    #[must_use]
    pub fn min(&self) -> Option<Nanos> {
        (self.count > 0).then_some(Nanos(self.min))
    }

    /// Returns the largest sample, exact.
    #[must_use]
    pub fn max(&self) -> Option<Nanos> {
        (self.count > 0).then_some(Nanos(self.max))
    }

    /// Returns the arithmetic mean in nanoseconds, exact.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then_some(self.mean)
    }

    /// Returns the sample standard deviation (n − 1) in nanoseconds; `None` below two samples.
    #[must_use]
    pub fn stdev(&self) -> Option<f64> {
        (self.count > 1).then(|| (self.squares / (self.count - 1) as f64).max(0.0).sqrt())
    }

    /// Returns the sample of that rank in ascending order (1 is the smallest), within
    /// the histogram's precision.
    #[must_use]
    pub fn at_rank(&self, rank: u64) -> Option<Nanos> {
        if self.count == 0 {
            return None;
        }
        let rank = rank.clamp(1, self.count);
        if rank == 1 {
            return self.min();
        }
        if rank == self.count {
            return self.max();
        }
        let below = self.negative.as_ref().map_or(0, |negative| negative.len());
        let value = match &self.negative {
            // The smallest negative has the largest magnitude.
            Some(negative) if rank <= below => -magnitude_at(negative, below - rank + 1),
            _ => magnitude_at(&self.positive, rank - below),
        };
        Some(Nanos(value.clamp(self.min, self.max)))
    }

    /// Returns the quantile `p` (0 to 1), or `None` when fewer than [`BEYOND`] samples
    /// lie above it (for p ≥ ½) or below it (for p < ½).
    #[must_use]
    pub fn quantile(&self, p: f64) -> Option<Nanos> {
        let rank = rank_of(p, self.count);
        let beyond = if p >= 0.5 {
            self.count.saturating_sub(rank)
        } else {
            rank.saturating_sub(1)
        };
        if beyond < BEYOND {
            None
        } else {
            self.at_rank(rank)
        }
    }

    /// Returns the number of samples up to `value`, within the histogram's precision.
    #[must_use]
    pub fn count_at_most(&self, value: Nanos) -> u64 {
        if self.count == 0 || value.0 < self.min {
            return 0;
        }
        if value.0 >= self.max {
            return self.count;
        }
        let negative = self.negative.as_ref().map_or(0, |negative| {
            if value.0 >= 0 {
                negative.len()
            } else {
                let magnitude = value.0.unsigned_abs();
                negative
                    .iter_recorded()
                    .filter(|bar| bar.value_iterated_to() >= magnitude)
                    .map(|bar| u64::from(bar.count_at_value()))
                    .sum()
            }
        });
        let positive = if value.0 < 0 {
            0
        } else {
            self.positive.count_between(0, value.0.unsigned_abs())
        };
        negative + positive
    }

    /// Returns the number of samples that are less than `value` and distinguished from it by the histogram's precision.
    #[must_use]
    pub fn count_below(&self, value: Nanos) -> u64 {
        let magnitude = value.0.unsigned_abs();
        let lowest = if value.0 >= 0 {
            i64::try_from(self.positive.lowest_equivalent(magnitude)).unwrap_or(i64::MAX)
        } else {
            // All histograms of as many digits have the same bars.
            -i64::try_from(self.positive.highest_equivalent(magnitude)).unwrap_or(i64::MAX)
        };
        self.count_at_most(Nanos(lowest.saturating_sub(1)))
    }

    /// Returns the bars of the histogram in ascending order: value and count.
    pub fn bars(&self) -> impl Iterator<Item = (Nanos, u64)> + '_ {
        let mut negative: Vec<(Nanos, u64)> = self
            .negative
            .iter()
            .flat_map(|histogram| bars(histogram).map(|(value, count)| (Nanos(-value), count)))
            .collect();
        negative.reverse();
        let (min, max) = (self.min, self.max);
        negative
            .into_iter()
            .chain(bars(&self.positive).map(|(value, count)| (Nanos(value), count)))
            .map(move |(value, count)| (Nanos(value.0.clamp(min, max)), count))
    }
}

/// The serialized form of a histogram: nanoseconds and counts.
#[derive(Serialize, Deserialize)]
struct WrittenHistogram {
    digits: u8,
    min: i64,
    max: i64,
    mean: f64,
    /// Sum of the squared deviations from the mean.
    squares: f64,
    /// A value of each non-empty bar, and its count.
    bars: Vec<(i64, Count)>,
}

impl From<SignedHistogram> for WrittenHistogram {
    fn from(histogram: SignedHistogram) -> Self {
        let SignedHistogram {
            digits,
            min,
            max,
            mean,
            squares,
            ..
        } = histogram;
        let side = |side: &Histogram<Count>, sign: i64| -> Vec<(i64, Count)> {
            let magnitude = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
            side.iter_recorded()
                .map(|bar| {
                    (
                        sign * magnitude(bar.value_iterated_to()),
                        bar.count_at_value(),
                    )
                })
                .collect()
        };
        let mut bars = histogram
            .negative
            .as_deref()
            .map(|negative| side(negative, -1))
            .unwrap_or_default();
        bars.extend(side(&histogram.positive, 1));
        Self {
            digits,
            min,
            max,
            mean,
            squares,
            bars,
        }
    }
}

impl TryFrom<WrittenHistogram> for SignedHistogram {
    type Error = &'static str;

    /// Reads a histogram that anyone can have written.
    fn try_from(written: WrittenHistogram) -> Result<Self, Self::Error> {
        let WrittenHistogram {
            digits,
            min,
            max,
            mean,
            squares,
            bars,
        } = written;
        if digits > MAX_DIGITS {
            return Err("a histogram has more significant digits than 3");
        }
        if !bars.is_empty() && min > max {
            return Err("the minimum of a histogram is above its maximum");
        }
        let mut histogram = Self {
            min,
            max,
            mean,
            squares,
            ..Self::new(digits)
        };
        for (value, count) in bars {
            let side = match value < 0 {
                true => histogram
                    .negative
                    .get_or_insert_with(|| Box::new(self::histogram(digits))),
                false => &mut histogram.positive,
            };
            // Grows as needed, as when it was recorded.
            let _ = side.record_n(value.unsigned_abs(), count);
            histogram.count += u64::from(count);
        }
        Ok(histogram)
    }
}

/// Returns the rank (1-based, by the nearest-rank definition) of quantile `p` of `count`.
#[must_use]
pub fn rank_of(p: f64, count: u64) -> u64 {
    // The small subtraction keeps 0.9 × 100 from being 90.000…01 and ranked 91.
    ((p * count as f64 - 1e-9).ceil().max(1.0) as u64).min(count.max(1))
}

fn bars(histogram: &Histogram<Count>) -> impl Iterator<Item = (i64, u64)> + '_ {
    histogram.iter_recorded().map(|bar| {
        let middle = histogram.median_equivalent(bar.value_iterated_to());
        (
            i64::try_from(middle).unwrap_or(i64::MAX),
            u64::from(bar.count_at_value()),
        )
    })
}

fn magnitude_at(histogram: &Histogram<Count>, rank: u64) -> i64 {
    let mut seen = 0;
    for (value, count) in bars(histogram) {
        seen += count;
        if seen >= rank {
            return value;
        }
    }
    i64::try_from(histogram.max()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(values: &[i64]) -> SignedHistogram {
        let mut histogram = SignedHistogram::new(3);
        for value in values {
            histogram.record(Nanos(*value));
        }
        histogram
    }

    #[test]
    fn impossible_written_histograms_are_refused() {
        for (wrong, reason) in [
            (r#""digits":9,"min":0,"max":1"#, "digits"),
            (r#""digits":3,"min":1,"max":0"#, "minimum"),
        ] {
            let text = format!(r#"{{{wrong},"mean":0,"squares":0,"bars":[[1,1]]}}"#);
            let error = serde_json::from_str::<SignedHistogram>(&text).unwrap_err();
            assert!(error.to_string().contains(reason), "{error}");
        }
    }

    #[test]
    fn empty_histogram_has_no_figures() {
        let empty = SignedHistogram::new(3);
        assert_eq!(
            (
                empty.min(),
                empty.mean(),
                empty.stdev(),
                empty.quantile(0.5)
            ),
            (None, None, None, None)
        );
    }

    #[test]
    fn known_values_are_reproduced() {
        let values: Vec<i64> = (1..=100).collect();
        let histogram = of(&values);
        assert_eq!(histogram.mean(), Some(50.5));
        assert!((histogram.stdev().unwrap() - 29.011_491_975_882_016).abs() < 1e-9);
        assert_eq!(histogram.quantile(0.5), Some(Nanos(50)));
        assert_eq!(histogram.quantile(0.9), Some(Nanos(90)));
        assert_eq!(
            histogram.quantile(0.95),
            None,
            "five samples beyond are too few"
        );
    }

    #[test]
    fn negative_values_are_kept_and_ordered() {
        let histogram = of(&[-500, -20, -10, 0, 10, 20, 30]);
        let ranked: Vec<i64> = (1..=7)
            .map(|rank| histogram.at_rank(rank).unwrap().0)
            .collect();
        assert_eq!(ranked, [-500, -20, -10, 0, 10, 20, 30]);
        assert_eq!(histogram.count_at_most(Nanos(-10)), 3);
        assert_eq!(histogram.count_at_most(Nanos(9)), 4);
        assert_eq!(histogram.count_below(Nanos(-10)), 2);
        assert_eq!(histogram.bars().map(|(_, count)| count).sum::<u64>(), 7);
    }

    proptest! {
        #[test]
        fn quantiles_are_within_the_precision(mut values in proptest::collection::vec(-1_000_000_000i64..100_000_000_000, 20..300)) {
            let histogram = of(&values);
            values.sort_unstable();
            for rank in 1..=values.len() {
                let exact = values[rank - 1];
                let got = histogram.at_rank(rank as u64).unwrap().0;
                let slack = (exact.unsigned_abs() / 1000).max(1) as i64;
                prop_assert!((got - exact).abs() <= slack, "rank {rank}: {got} for {exact}");
            }
        }

        #[test]
        fn merging_equals_recording_everything(a in proptest::collection::vec(-1_000_000i64..1_000_000, 0..100), b in proptest::collection::vec(-1_000_000i64..1_000_000, 0..100)) {
            let mut merged = of(&a);
            merged.merge(&of(&b));
            let all: Vec<i64> = a.iter().chain(&b).copied().collect();
            let whole = of(&all);
            prop_assert_eq!(merged.count(), whole.count());
            prop_assert_eq!(merged.min(), whole.min());
            prop_assert_eq!(merged.quantile(0.5), whole.quantile(0.5));
            if let (Some(x), Some(y)) = (merged.stdev(), whole.stdev()) {
                prop_assert!((x - y).abs() <= 1e-6 * y.max(1.0));
            }
        }

        #[test]
        fn written_histogram_is_read_back(values in proptest::collection::vec(-1_000_000_000i64..100_000_000_000, 0..200)) {
            let histogram = of(&values);
            let text = serde_json::to_string(&histogram).unwrap();
            let read: SignedHistogram = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(serde_json::to_string(&read).unwrap(), text);
            prop_assert_eq!((read.count(), read.min(), read.mean(), read.stdev()), (histogram.count(), histogram.min(), histogram.mean(), histogram.stdev()));
            prop_assert_eq!(read.bars().collect::<Vec<_>>(), histogram.bars().collect::<Vec<_>>());
        }

        #[test]
        fn counts_agree_with_sorting(values in proptest::collection::vec(-2000i64..2000, 1..100), at in -2500i64..2500) {
            let exact = values.iter().filter(|value| **value <= at).count() as u64;
            prop_assert_eq!(of(&values).count_at_most(Nanos(at)), exact);
        }
    }
}
