//! Confidence intervals of means, ratios and differences over several starts of the servers, by a
//! hierarchical bootstrap: starts, then the blocks within them.
//!
//! Starts differ more than the blocks of one start: another place on the disk, another memory
//! layout, another load on the machine. Blocks alone would therefore give intervals that are far
//! too narrow (a nominal 95 % covers 68 %).
//!
//! Starts are drawn with replacement and then, from each, blocks with replacement (Davison & Hinkley 1997, §3.8). In this
//! form it has two faults, both corrected here: it counts the spread within starts twice, once in the starts' means; and of K
//! starts it sees only (K − 1)/K of the spread between them. Therefore deviations of starts are scaled until the resamples'
//! variance is the unbiased one, or that of the blocks where it is larger (starts then differ no more than blocks do), and
//! the distances from the estimate to the resamples' 2.5 and 97.5 % points are scaled by t/z, the point of Student's
//! distribution over the normal one's (after Hesterberg 2015, §4.4; degrees of freedom after Welch 1947). The tests simulate
//! the coverage of these intervals.

use replimeter_model::{estimate::Estimate, random::Random};

use crate::student::{Z95, student_point};

/// Values of one kind: the blocks of each start.
///
/// Where only one value for each start is known, every start has one block.
pub type Starts = [Vec<f64>];

/// Resamples behind an interval.
const RESAMPLES: usize = 2000;
/// The bootstrap's seed: the same values always give the same interval.
const SEED: u64 = 0xB007_57A9_1997_0308;

/// The distribution that resamples are drawn from.
struct Group {
    /// The mean of the starts' means.
    mean: f64,
    /// The deviation of each start from that mean, scaled.
    starts: Vec<f64>,
    /// The deviations of each start's blocks from its mean, scaled.
    blocks: Vec<Vec<f64>>,
    /// Variance of the mean.
    variance: f64,
    /// Degrees of freedom that this variance has.
    freedom: f64,
}

impl Group {
    /// Returns `None` without a start that has a block, and for values that are not finite.
    fn of(values: &Starts) -> Option<Self> {
        let values: Vec<&Vec<f64>> = values.iter().filter(|blocks| !blocks.is_empty()).collect();
        if values.is_empty()
            || values
                .iter()
                .any(|blocks| blocks.iter().any(|value| !value.is_finite()))
        {
            return None;
        }
        let count = values.len() as f64;
        let means: Vec<f64> = values.iter().map(|blocks| mean(blocks)).collect();
        let middle = mean(&means);
        let between: f64 = means.iter().map(|mean| (mean - middle).powi(2)).sum();
        // The mean over the starts of the variance of a start's mean, from its blocks.
        let mut within = 0.0;
        let mut blocks = Vec::new();
        for (values, mean) in values.iter().zip(&means) {
            let size = values.len() as f64;
            if values.len() > 1 {
                let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
                within += squares / (size * (size - 1.0)) / count;
            }
            let scale = if values.len() > 1 {
                (size / (size - 1.0)).sqrt()
            } else {
                0.0
            };
            blocks.push(values.iter().map(|value| (value - mean) * scale).collect());
        }
        let by_starts = if values.len() > 1 {
            between / (count * (count - 1.0))
        } else {
            0.0
        };
        let variance = by_starts.max(within / count);
        // The variance left for the starts after that of the blocks.
        let rest = (variance * count - within).max(0.0);
        let scale = if between > 0.0 {
            (rest * count / between).sqrt()
        } else {
            0.0
        };
        let starts = means.iter().map(|mean| (mean - middle) * scale).collect();
        // Starts that differ no more than their blocks do are equivalent to one long start.
        let freedom = match by_starts * count >= within {
            true => count - 1.0,
            false => values.iter().map(|blocks| blocks.len() as f64 - 1.0).sum(),
        };
        Some(Self {
            mean: middle,
            starts,
            blocks,
            variance,
            freedom,
        })
    }

    /// Returns the mean of one resample.
    fn draw(&self, random: &mut Random) -> f64 {
        let mut sum = 0.0;
        for _ in 0..self.starts.len() {
            let start = random.below(self.starts.len());
            let blocks = &self.blocks[start];
            let deviations: f64 = match blocks.len() {
                1 => 0.0,
                size => (0..size).map(|_| blocks[random.below(size)]).sum::<f64>() / size as f64,
            };
            sum += self.starts[start] + deviations;
        }
        self.mean + sum / self.starts.len() as f64
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns the factor that widens the distances to the resamples' 2.5 and 97.5 % points; `parts`
/// are the groups' shares in the variance of the estimate.
///
/// `None` when a group has only one start: the spread between starts is unknown.
fn stretch(parts: &[(f64, &Group)]) -> Option<f64> {
    if parts.iter().any(|(_, group)| group.starts.len() < 2) {
        return None;
    }
    let whole: f64 = parts.iter().map(|(variance, _)| variance).sum();
    if whole <= 0.0 {
        return Some(1.0);
    }
    let squares: f64 = parts
        .iter()
        .map(|(variance, group)| variance.powi(2) / group.freedom)
        .sum();
    let freedom = whole.powi(2) / squares;
    Some(student_point(0.975, freedom)? / Z95)
}

/// Returns the interval around `value`, from the resamples that `draw` returns.
fn interval(
    value: f64,
    stretch: Option<f64>,
    mut draw: impl FnMut(&mut Random) -> f64,
) -> Option<[f64; 2]> {
    let stretch = stretch?;
    let mut random = Random::new(SEED);
    let mut drawn: Vec<f64> = (0..RESAMPLES).map(|_| draw(&mut random)).collect();
    drawn.sort_unstable_by(f64::total_cmp);
    let ends = [RESAMPLES / 40, RESAMPLES - 1 - RESAMPLES / 40]
        .map(|rank| value + (drawn[rank] - value) * stretch);
    // A logarithm may be infinite below, where the value itself is 0; above, that is not an interval.
    if ends[0].is_nan() || !ends[1].is_finite() {
        return None;
    }
    // The estimate itself is always inside, even if all resamples are on one side of it.
    Some([ends[0].min(value), ends[1].max(value)])
}

/// Returns the logarithm of a ratio of resamples' means. Scaled deviations may have made one of
/// them negative: then the ratio has no bound on that side.
fn log_ratio(of: f64, to: f64) -> f64 {
    match (of > 0.0, to > 0.0) {
        (true, true) => (of / to).ln(),
        (true, false) => f64::INFINITY,
        (false, _) => f64::NEG_INFINITY,
    }
}

/// Returns the mean over all starts, each with equal weight.
#[must_use]
pub fn of_mean(values: &Starts) -> Estimate {
    let Some(group) = Group::of(values) else {
        return Estimate::default();
    };
    let stretch = stretch(&[(group.variance, &group)]);
    estimate(
        group.mean,
        interval(group.mean, stretch, |random| group.draw(random)),
    )
}

/// Returns the same for positive values: the interval is computed on the logarithm, so it is
/// positive too, even with few starts.
#[must_use]
pub fn of_positive_mean(values: &Starts) -> Estimate {
    let Some(group) = Group::of(values) else {
        return Estimate::default();
    };
    if group.mean <= 0.0 {
        return Estimate::of(group.mean);
    }
    let stretch = stretch(&[(group.variance, &group)]);
    let ends = interval(group.mean.ln(), stretch, |random| {
        log_ratio(group.draw(random), 1.0)
    });
    estimate(group.mean, ends.map(|ends| ends.map(f64::exp)))
}

/// Returns the ratio of two means; for positive values only.
///
/// The interval is computed on the logarithm, so that a ratio and its inverse have the same one.
/// `None` with fewer than two starts on either side, or when the values spread so far that
/// it would have no upper end.
#[must_use]
pub fn of_ratio(of: &Starts, to: &Starts) -> Estimate {
    let (Some(of), Some(to)) = (Group::of(of), Group::of(to)) else {
        return Estimate::default();
    };
    if of.mean <= 0.0 || to.mean <= 0.0 {
        return Estimate::default();
    }
    let value = (of.mean / to.mean).ln();
    let stretch = stretch(&[
        (of.variance / of.mean.powi(2), &of),
        (to.variance / to.mean.powi(2), &to),
    ]);
    let ends = interval(value, stretch, |random| {
        log_ratio(of.draw(random), to.draw(random))
    });
    estimate(of.mean / to.mean, ends.map(|ends| ends.map(f64::exp)))
}

/// Returns the difference of two means.
#[must_use]
pub fn of_difference(of: &Starts, less: &Starts) -> Estimate {
    let (Some(of), Some(less)) = (Group::of(of), Group::of(less)) else {
        return Estimate::default();
    };
    let value = of.mean - less.mean;
    let stretch = stretch(&[(of.variance, &of), (less.variance, &less)]);
    estimate(
        value,
        interval(value, stretch, |random| of.draw(random) - less.draw(random)),
    )
}

fn estimate(value: f64, ends: Option<[f64; 2]>) -> Estimate {
    Estimate {
        value: Some(value),
        ci95: ends.into(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::binomial::Excess;

    /// A simulated server: the spread between starts, and between the blocks of one start, as
    /// shares of the mean.
    #[derive(Clone, Copy, Debug)]
    struct SimulatedServers {
        between: f64,
        within: f64,
        /// Whether starts are skewed: most are similar and a few are slow.
        skewed: bool,
    }

    fn measured(
        random: &mut Random,
        world: SimulatedServers,
        mean: f64,
        starts: usize,
        blocks: usize,
    ) -> Vec<Vec<f64>> {
        let start = |random: &mut Random| {
            let deviation = if world.skewed {
                -random.uniform().ln() - 1.0
            } else {
                random.normal()
            };
            let own = mean * (1.0 + world.between * deviation);
            (0..blocks)
                .map(|_| own * (1.0 + world.within * random.normal()))
                .collect()
        };
        (0..starts).map(|_| start(random)).collect()
    }

    const WORLDS: [SimulatedServers; 5] = [
        SimulatedServers {
            between: 0.05,
            within: 0.05,
            skewed: false,
        },
        SimulatedServers {
            between: 0.15,
            within: 0.03,
            skewed: false,
        },
        SimulatedServers {
            between: 0.0,
            within: 0.10,
            skewed: false,
        },
        SimulatedServers {
            between: 0.02,
            within: 0.05,
            skewed: false,
        },
        SimulatedServers {
            between: 0.05,
            within: 0.05,
            skewed: true,
        },
    ];

    /// Returns the share of simulated measurements whose interval covers the truth.
    fn coverage(
        world: SimulatedServers,
        starts: usize,
        cover: impl Fn(&mut Random) -> bool,
    ) -> f64 {
        const RUNS: usize = 400;
        let mut random = Random::new(starts as u64 * 1000 + (world.between * 1000.0) as u64);
        let covered = (0..RUNS).filter(|_| cover(&mut random)).count();
        covered as f64 / RUNS as f64
    }

    #[test]
    fn ratio_intervals_cover_the_truth_from_four_starts() {
        for world in WORLDS {
            for starts in [4, 10] {
                let share = coverage(world, starts, |random| {
                    let of = measured(random, world, 400.0, starts, 6);
                    let to = measured(random, world, 1000.0, starts, 6);
                    of_ratio(&of, &to).excludes(0.4) == Some(false)
                });
                println!(
                    "{world:?}, {starts} starts: {:.1} % of ratios",
                    share * 100.0
                );
                // Three standard errors of a share of 400 are 3.3 %. The spread of the blocks is
                // counted even where starts do not differ at all: those intervals are slightly wide.
                assert!(
                    (0.917..=0.995).contains(&share),
                    "{world:?}, {starts} starts: {share}"
                );
            }
        }
    }

    #[test]
    fn difference_and_mean_intervals_cover_the_truth() {
        for world in WORLDS {
            for starts in [4, 8] {
                let difference = coverage(world, starts, |random| {
                    let of = measured(random, world, 350.0, starts, 6);
                    let less = measured(random, world, 130.0, starts, 6);
                    of_difference(&of, &less).excludes(220.0) == Some(false)
                });
                let mean = coverage(world, starts, |random| {
                    of_mean(&measured(random, world, 350.0, starts, 6)).excludes(350.0)
                        == Some(false)
                });
                // No symmetric interval reaches full coverage for one group with skewed starts.
                let least = if world.skewed { 0.87 } else { 0.917 };
                assert!(
                    difference >= least,
                    "{world:?}, {starts} starts: a difference {difference}"
                );
                assert!(
                    mean >= least - if world.skewed { 0.03 } else { 0.0 },
                    "{world:?}, {starts} starts: a mean {mean}"
                );
            }
        }
    }

    #[test]
    fn two_or_three_starts_give_wide_intervals() {
        for starts in [2, 3] {
            let world = WORLDS[0];
            let share = coverage(world, starts, |random| {
                let of = measured(random, world, 400.0, starts, 6);
                let to = measured(random, world, 1000.0, starts, 6);
                of_ratio(&of, &to).excludes(0.4) == Some(false)
            });
            assert!(share >= 0.90, "{starts} starts: {share}");
        }
    }

    #[test]
    fn block_bootstrap_alone_is_overconfident() {
        // The error that this module avoids: one start of many blocks, with blocks treated as
        // starts.
        let world = WORLDS[1];
        let share = coverage(world, 1, |random| {
            let blocks = |values: Vec<Vec<f64>>| {
                values
                    .concat()
                    .into_iter()
                    .map(|value| vec![value])
                    .collect::<Vec<_>>()
            };
            let of = blocks(measured(random, world, 400.0, 4, 6));
            let to = blocks(measured(random, world, 1000.0, 4, 6));
            of_ratio(&of, &to).excludes(0.4) == Some(false)
        });
        assert!(share < 0.75, "{share}");
    }

    #[test]
    fn self_comparison_differs_in_five_percent() {
        for world in WORLDS {
            let mut random = Random::new(5);
            let differs = |_: &usize| {
                let (a, b) = (
                    measured(&mut random, world, 900.0, 4, 6),
                    measured(&mut random, world, 900.0, 4, 6),
                );
                of_ratio(&a, &b).excludes(1.0) == Some(true)
            };
            let differences = (0..600).filter(differs).count() as u64;
            let excess = Excess::over(differences, 600, 0.05);
            assert!(!excess.significant(), "{world:?}: {excess:?}");
        }
    }

    #[test]
    fn known_values_are_reproduced() {
        let (of, to) = (
            vec![vec![10.0, 14.0], vec![12.0]],
            vec![vec![3.0], vec![5.0]],
        );
        let ratio = of_ratio(&of, &to);
        assert_eq!(
            (ratio.value, of_difference(&of, &to).value),
            (Some(3.0), Some(8.0))
        );
        let [low, high] = ratio.ends().unwrap();
        assert!(low < 3.0 && 3.0 < high, "{ratio:?}");
        // The reversed ratio is the inverse.
        let inverse = of_ratio(&to, &of).ends().unwrap();
        assert!(inverse[0] < 1.0 / 3.0 && 1.0 / 3.0 < inverse[1]);
        // Equal values in every start give an interval of width 0.
        let still = [vec![7.0, 7.0], vec![7.0, 7.0]];
        assert_eq!(of_mean(&still).ends(), Some([7.0, 7.0]));
        // Starts with stalls leave the lower end open.
        let stalled = [
            vec![9_000.0, 1.0],
            vec![1.0, 2.0],
            vec![1.0, 1.0],
            vec![8_000.0, 1.0],
        ];
        let steady = [vec![100.0, 101.0], vec![99.0, 100.0]];
        assert_eq!(of_ratio(&stalled, &steady).ci95.low, Some(0.0));
        assert_eq!(of_ratio(&steady, &stalled).ends(), None);
        // Two starts that differ give a very wide interval, but not below 0.
        let apart = [vec![5_000.0], vec![9_000.0]];
        assert!(
            of_mean(&apart).ci95.low.unwrap() < 0.0
                && of_positive_mean(&apart).ci95.low.unwrap() > 0.0
        );
    }

    #[test]
    fn one_start_gives_no_interval() {
        let (one, two) = ([vec![1.0, 2.0, 3.0]], [vec![1.0], vec![2.0]]);
        assert_eq!(of_mean(&one), Estimate::of(2.0));
        assert_eq!(of_ratio(&one, &two).ends(), None);
        assert_eq!(of_mean(&[]), Estimate::default());
        assert_eq!(of_ratio(&two, &[vec![0.0], vec![0.0]]), Estimate::default());
        assert_eq!(of_mean(&[vec![f64::NAN], vec![1.0]]), Estimate::default());
    }

    proptest! {
        #[test]
        fn estimate_is_in_its_interval(
            of in proptest::collection::vec(proptest::collection::vec(0.1f64..1e6, 0..5), 0..6),
            to in proptest::collection::vec(proptest::collection::vec(0.1f64..1e6, 0..5), 0..6),
        ) {
            for estimate in [of_ratio(&of, &to), of_difference(&of, &to), of_mean(&of)] {
                if let (Some(value), Some([low, high])) = (estimate.value, estimate.ends()) {
                    prop_assert!(low <= value * (1.0 + 1e-12) + 1e-9 && value <= high * (1.0 + 1e-12) + 1e-9, "{estimate:?}");
                }
            }
        }

        #[test]
        fn ratio_does_not_depend_on_the_unit(
            of in proptest::collection::vec(proptest::collection::vec(1.0f64..100.0, 1..4), 2..5),
            to in proptest::collection::vec(proptest::collection::vec(1.0f64..100.0, 1..4), 2..5),
        ) {
            let scaled = |values: &Vec<Vec<f64>>| values.iter().map(|blocks| blocks.iter().map(|value| value * 1024.0).collect()).collect::<Vec<_>>();
            let (one, other) = (of_ratio(&of, &to), of_ratio(&scaled(&of), &scaled(&to)));
            if let (Some(one), Some(other)) = (one.ends(), other.ends()) {
                // A lower end may be 0.
                let close = |a: f64, b: f64| (a - b).abs() <= 1e-6 * a.abs();
                prop_assert!(close(one[0], other[0]) && close(one[1], other[1]));
            }
        }
    }
}
