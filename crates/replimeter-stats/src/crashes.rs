//! Statistics of several crashes: shares, counts per crash and their intervals. Every crash has new
//! servers, so crashes are independent.

use replimeter_model::{
    loss::{CountSummary, CrashShare},
    random::Random,
    record::Distribution,
    time::Nanos,
};

use crate::{
    median,
    series::distribution,
    share::wilson,
    signed::SignedHistogram,
    student::{Z95, student_point},
};

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
        mean_ci95: mean.and_then(|mean| mean_interval(&sorted, mean)),
        stdev,
        p50: p50.value,
        p50_ci95: p50.ends(),
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
    let freedom = (n - 1) as f64;
    let wider = student_point(0.975, freedom)? / Z95 * (n as f64 / freedom).sqrt();
    let end = |level: f64| {
        let at = means[((RESAMPLES - 1) as f64 * level).round() as usize];
        mean + (at - mean) * wider
    };
    // A count is not negative.
    Some([end(0.025).max(0.0), end(0.975)])
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
