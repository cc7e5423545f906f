//! Statistics of several crashes: shares, counts per crash and their intervals. Every crash has new
//! servers, so crashes are independent.

use replimeter_model::{record::Distribution, time::Nanos};
use replimeter_stats::{
    median,
    series::distribution,
    share::wilson,
    signed::SignedHistogram,
    student::{mean_reach, student_point},
};

use crate::loss::results::{CountSummary, CrashShare};

/// Minimum number of crashes with a loss for an interval of the mean: of fewer, a kind of crash that is three in ten is missed
/// by more than one run in ten.
pub const MIN_LOSSES: usize = 7;

/// Returns the share of crashes with an event, with Wilson's score interval (Wilson 1927), which is
/// also valid for zero events.
#[must_use]
pub fn share(count: u64, of: u64) -> CrashShare {
    if of == 0 {
        return CrashShare {
            count,
            of,
            percent: 0.0,
            percent_ci95: [0.0, 100.0],
        };
    }
    CrashShare {
        count,
        of,
        percent: count as f64 / of as f64 * 100.0,
        percent_ci95: wilson(count as f64, of as f64).map(|end| end * 100.0),
    }
}

/// Summarizes counts, one per crash.
#[must_use]
pub fn counts(values: &[u64]) -> CountSummary {
    let mut sorted: Vec<f64> = values.iter().map(|value| *value as f64).collect();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len() as f64;
    let mean = (!sorted.is_empty()).then(|| sorted.iter().sum::<f64>() / n);
    let stdev = mean.filter(|_| sorted.len() > 1).map(|mean| {
        let squares: f64 = sorted
            .iter()
            .map(|value| (value - mean) * (value - mean))
            .sum();
        (squares / (n - 1.0)).sqrt()
    });
    let p50 = median::of_values(&sorted);
    CountSummary {
        count: values.len() as u64,
        min: values.iter().min().copied(),
        mean,
        mean_ci95: mean_interval(&sorted),
        stdev,
        p50: p50.value,
        p50_ci95: p50.ends(),
        max: values.iter().max().copied(),
    }
}

/// Returns the 95 % interval of the mean of counts of which many may be 0; `None` below [`MIN_LOSSES`] positive ones.
///
/// Two parts (as for data with many zeros; Zhou & Tu 2000): the share of crashes with a loss, with Wilson's interval, and the
/// mean of these losses. The interval of their product is made from the distances of the logarithms to their ends (Zou &
/// Donner 2008).
fn mean_interval(values: &[f64]) -> Option<[f64; 2]> {
    let losses: Vec<f64> = values
        .iter()
        .copied()
        .filter(|value| *value > 0.0)
        .collect();
    if losses.len() < MIN_LOSSES {
        return None;
    }
    let (some, of) = (losses.len() as f64, values.len() as f64);
    let share = some / of;
    let shares = wilson(some, of).map(|end| (end / share).ln());
    let sizes = log_distances(&losses)?;
    let mean = values.iter().sum::<f64>() / of;
    Some([
        mean * (-shares[0].hypot(sizes[0])).exp(),
        mean * shares[1].hypot(sizes[1]).exp(),
    ])
}

/// Returns the distances of the logarithm of a mean of positive values to the ends of its 95 % interval: the wider one to
/// each side of Student's interval, and of Cox's for values whose logarithms are normal (Land 1972; Zhou & Gao 1997). The first
/// does not see how long the tail is that a few values are drawn from, the second assumes its form.
fn log_distances(values: &[f64]) -> Option<[f64; 2]> {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let students = mean_reach(values)? / mean;
    let logs: Vec<f64> = values.iter().map(|value| value.ln()).collect();
    let log_mean = logs.iter().sum::<f64>() / count;
    let squares: f64 = logs.iter().map(|log| (log - log_mean).powi(2)).sum();
    let log_variance = squares / (count - 1.0);
    let error = log_variance / count + log_variance.powi(2) / (2.0 * (count - 1.0));
    let reach = student_point(0.975, count - 1.0)? * error.sqrt();
    let from_mean = log_mean + log_variance / 2.0 - mean.ln();
    Some([
        students.max(reach - from_mean),
        students.max(reach + from_mean),
    ])
}

/// Summarizes times, one per crash: the median, its interval, and their distribution.
#[must_use]
pub fn times(values_us: &[f64]) -> (Option<f64>, Option<[f64; 2]>, Distribution) {
    let mut histogram = SignedHistogram::default();
    values_us
        .iter()
        .for_each(|us| histogram.record(Nanos((us * 1e3) as i64)));
    let p50 = median::of_values(values_us);
    (p50.value, p50.ends(), distribution(&histogram))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use replimeter_model::random::Random;

    use super::*;

    #[test]
    fn shares_have_wilson_intervals() {
        // Newcombe 1998, table I: 0/20 and 1/29, method 3.
        let none = share(0, 20);
        assert!(
            (none.percent_ci95[1] - 16.11).abs() < 0.01 && none.percent_ci95[0] == 0.0,
            "{none:?}"
        );
        let one = share(1, 29);
        assert!(
            (one.percent_ci95[0] - 0.61).abs() < 0.01 && (one.percent_ci95[1] - 17.18).abs() < 0.01,
            "{one:?}"
        );
        let all = share(20, 20);
        assert!(
            (all.percent_ci95[0] - 83.89).abs() < 0.01 && all.percent_ci95[1] == 100.0,
            "{all:?}"
        );
    }

    #[test]
    fn equal_values_give_no_interval() {
        let zeros = counts(&[0; 20]);
        assert_eq!(
            (zeros.mean, zeros.mean_ci95, zeros.max),
            (Some(0.0), None, Some(0))
        );
        assert_eq!(counts(&[]).mean, None);
    }

    /// Sizes of losses.
    #[derive(Clone, Copy, Debug)]
    enum Size {
        Equal,
        Exponential,
        /// The logarithm has this standard deviation.
        LogNormal(f64),
        /// Three in ten are ten times as large as the others.
        TwoKinds,
    }

    impl Size {
        fn draw(self, random: &mut Random) -> f64 {
            let scatter = (0.1 * random.normal()).exp();
            let size = match self {
                Self::Equal => scatter,
                Self::Exponential => random.exponential(),
                Self::LogNormal(deviation) => (deviation * random.normal()).exp(),
                Self::TwoKinds if random.fraction() < 0.3 => 10.0 * scatter,
                Self::TwoKinds => scatter,
            };
            (100.0 * size).ceil()
        }
    }

    /// How many of 1,000 runs have an interval, and of how many it holds the truth.
    fn coverage(
        size: Size,
        lossy: f64,
        crashes: usize,
        interval: fn(&[f64]) -> Option<[f64; 2]>,
    ) -> (u32, u32) {
        let mut random = Random::new(3);
        let mean = (0..1_000_000).map(|_| size.draw(&mut random)).sum::<f64>() / 1e6 * lossy;
        let (mut given, mut held) = (0, 0);
        for _ in 0..1_000 {
            let mut loss = || match random.fraction() < lossy {
                true => size.draw(&mut random),
                false => 0.0,
            };
            let values: Vec<f64> = (0..crashes).map(|_| loss()).collect();
            if let Some([low, high]) = interval(&values) {
                given += 1;
                held += u32::from(low <= mean && mean <= high);
            }
        }
        println!("{size:?}, {lossy} lossy, {crashes} crashes: {given} given, {held} held");
        (given, held)
    }

    const SIZES: [Size; 5] = [
        Size::Equal,
        Size::Exponential,
        Size::LogNormal(1.0),
        Size::LogNormal(1.5),
        Size::TwoKinds,
    ];

    #[test]
    fn intervals_of_mean_losses_cover() {
        for size in SIZES {
            for lossy in [1.0, 0.7, 0.3] {
                for crashes in [7, 10, 20, 50] {
                    let (given, held) = coverage(size, lossy, crashes, mean_interval);
                    let case = format!("{size:?}, {lossy}, {crashes}: {held} of {given}");
                    assert!(given < 200 || 10 * held >= 9 * given, "{case}");
                    assert!(given - held <= 100, "{case}");
                }
            }
        }
    }

    #[test]
    fn interval_without_logarithms_misses_large_losses() {
        let students = |values: &[f64]| {
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let half = mean_reach(values)?;
            Some([mean - half, mean + half])
        };
        for (size, lossy) in [(Size::LogNormal(1.0), 0.3), (Size::LogNormal(1.5), 1.0)] {
            let (given, held) = coverage(size, lossy, 20, students);
            assert!(10 * held < 9 * given, "{size:?}: {held} of {given}");
        }
    }

    proptest! {
        #[test]
        fn figures_are_in_their_intervals(values in proptest::collection::vec(0u64..10_000, 1..40)) {
            let counts = counts(&values);
            if let (Some(mean), Some([low, high])) = (counts.mean, counts.mean_ci95) {
                prop_assert!(low <= mean && mean <= high);
            }
            if let (Some(median), Some([low, high])) = (counts.p50, counts.p50_ci95) {
                prop_assert!(low <= median && median <= high);
            }
            let share = share(values[0].min(40), 40);
            prop_assert!(share.percent_ci95[0] <= share.percent && share.percent <= share.percent_ci95[1]);
        }
    }
}
