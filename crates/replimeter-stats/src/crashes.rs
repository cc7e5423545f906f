//! Statistics of several crashes: shares, counts per crash and their intervals. Every crash has new
//! servers, so crashes are independent.

use replimeter_model::{
    loss::{CountSummary, CrashShare},
    random::Random,
    record::Distribution,
    time::Nanos,
};

use crate::{series::distribution, share::wilson, signed::SignedHistogram};

/// Two-sided 95 % of the standard normal distribution.
const Z: f64 = 1.959_963_984_540_054;
/// Resamples of a bootstrap.
const RESAMPLES: usize = 4000;
/// Minimum number of crashes for an interval of the mean.
const MIN_CRASHES: usize = 4;

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

/// Returns the ranks (from 1) between which the median lies with at least 95 % confidence, by the
/// binomial distribution of the number below it (David & Nagaraja 2003, 7.1); `None` below six,
/// which are too few.
#[must_use]
pub fn median_ranks(count: usize) -> Option<(usize, usize)> {
    let mut term = 0.5f64.powi(i32::try_from(count).ok()?);
    let (mut below, mut rank) = (0.0, 0);
    while rank < count {
        below += term;
        if below > 0.025 {
            break;
        }
        term *= (count - rank) as f64 / (rank + 1) as f64;
        rank += 1;
    }
    (rank > 0 && rank <= count / 2).then(|| (rank, count + 1 - rank))
}

fn median(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

fn median_interval(sorted: &[f64]) -> Option<[f64; 2]> {
    median_ranks(sorted.len()).map(|(low, high)| [sorted[low - 1], sorted[high - 1]])
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
    CountSummary {
        count: values.len() as u64,
        min: values.iter().min().copied(),
        mean,
        mean_ci95: mean.and_then(|mean| mean_interval(&sorted, mean)),
        stdev,
        p50: median(&sorted),
        p50_ci95: median_interval(&sorted),
        max: values.iter().max().copied(),
    }
}

/// Returns a percentile bootstrap of the mean, widened for few crashes by the ratio of Student's
/// quantile to the normal one and of the sample's variance to the resamples' (Hesterberg 2015,
/// "expanded percentile"). `None` for equal values, which resampling cannot vary.
fn mean_interval(values: &[f64], mean: f64) -> Option<[f64; 2]> {
    if values.len() < MIN_CRASHES || values.first() == values.last() {
        return None;
    }
    // Fixed seed: always the same resamples.
    let mut random = Random::new(0);
    let n = values.len();
    let mut means: Vec<f64> = (0..RESAMPLES)
        .map(|_| (0..n).map(|_| values[random.below(n)]).sum::<f64>() / n as f64)
        .collect();
    means.sort_by(f64::total_cmp);
    let wider = student(n - 1) / Z * (n as f64 / (n - 1) as f64).sqrt();
    let end = |level: f64| {
        let at = means[((RESAMPLES - 1) as f64 * level).round() as usize];
        mean + (at - mean) * wider
    };
    // A count is not negative.
    Some([end(0.025).max(0.0), end(0.975)])
}

/// Returns Student's 97.5 % quantile, by the expansion in 1/ν (Abramowitz & Stegun 1964, 26.7.5).
fn student(freedom: usize) -> f64 {
    let v = freedom as f64;
    let z3 = Z.powi(3);
    let (z5, z7) = (Z.powi(5), Z.powi(7));
    Z + (z3 + Z) / (4.0 * v)
        + (5.0 * z5 + 16.0 * z3 + 3.0 * Z) / (96.0 * v * v)
        + (3.0 * z7 + 19.0 * z5 + 17.0 * z3 - 15.0 * Z) / (384.0 * v.powi(3))
}

/// Summarizes times, one per crash: the median, its interval, and their distribution.
#[must_use]
pub fn times(values_us: &[f64]) -> (Option<f64>, Option<[f64; 2]>, Distribution) {
    let mut sorted = values_us.to_vec();
    sorted.sort_by(f64::total_cmp);
    let mut histogram = SignedHistogram::default();
    sorted
        .iter()
        .for_each(|us| histogram.record(Nanos((us * 1e3) as i64)));
    (
        median(&sorted),
        median_interval(&sorted),
        distribution(&histogram),
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
    fn median_interval_uses_known_ranks() {
        // Conover 1999, table A3 with p = 0.5.
        assert_eq!(median_ranks(5), None);
        assert_eq!(median_ranks(6), Some((1, 6)));
        assert_eq!(median_ranks(10), Some((2, 9)));
        assert_eq!(median_ranks(20), Some((6, 15)));
    }

    #[test]
    fn student_quantile_matches_the_table() {
        for (freedom, want, error) in [
            (3, 3.182, 0.05),
            (9, 2.262, 0.001),
            (19, 2.093, 0.001),
            (1000, 1.962, 0.001),
        ] {
            assert!(
                (student(freedom) - want).abs() < error,
                "{freedom}: {}",
                student(freedom)
            );
        }
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

    #[test]
    fn mean_intervals_cover_at_their_nominal_rate() {
        // Exponential counts, 20 at a time, mean 100: skewed like losses.
        let mut random = Random::new(7);
        let covered = (0..400)
            .filter(|_| {
                let values: Vec<u64> = (0..20)
                    .map(|_| (-100.0 * random.uniform().ln()).round() as u64)
                    .collect();
                counts(&values)
                    .mean_ci95
                    .is_some_and(|[low, high]| low <= 100.0 && 100.0 <= high)
            })
            .count();
        assert!((360..=396).contains(&covered), "{covered} of 400");
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
