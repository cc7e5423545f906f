//! A sequential test of pairs: after every ten, whether both sides differ, are equal within a limit, or more pairs are needed.

use crate::{
    compare::{holm, mean, variance},
    student::{student_point, student_share},
};

/// Pairs between two interim checks.
pub const CHECKED_EVERY: usize = 10;
/// Most pairs of a trial.
pub const MAX_PAIRS: usize = 100;

/// The p-value below which a check shows a difference, by the number of checks: at most 5 % of trials without a difference show one at
/// any of them (Pocock 1977, for Student's t of 10, 20, … pairs; 200,000 simulated trials).
const LEVELS: [f64; MAX_PAIRS / CHECKED_EVERY] = [
    0.05, 0.028, 0.021, 0.0175, 0.015, 0.0135, 0.0122, 0.0113, 0.0105, 0.0095,
];

/// How a trial ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The sides differ.
    Differ,
    /// They are equal within the limit.
    Equal,
    /// Neither was shown.
    Open,
}

/// The result after some pairs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InterimResult {
    /// Pairs so far.
    pub pairs: usize,
    /// The mean difference of the pairs.
    pub difference: f64,
    /// Its interval at the trial's level.
    pub interval: [f64; 2],
    /// The p-value of the pairs so far alone.
    pub p_value: f64,
}

/// The rule by which a trial ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    /// Most pairs.
    pub pairs: usize,
    /// Difference up to which the sides count as equal.
    pub equal_within: f64,
}

impl Rule {
    /// Returns the p-value below which a check shows a difference.
    #[must_use]
    pub fn level(&self) -> f64 {
        let checks = self.pairs.div_ceil(CHECKED_EVERY);
        LEVELS[checks.clamp(1, LEVELS.len()) - 1]
    }

    /// Returns whether the result is checked after this many pairs.
    #[must_use]
    pub fn is_checked_after(&self, pairs: usize) -> bool {
        pairs > 1 && (pairs.is_multiple_of(CHECKED_EVERY) || pairs == self.pairs)
    }

    /// Returns the result of the pairs' differences; `None` below two pairs.
    #[must_use]
    pub fn interim(&self, differences: &[f64]) -> Option<InterimResult> {
        let pairs = differences.len();
        let (difference, error) = moments(differences)?;
        let freedom = pairs as f64 - 1.0;
        let reach = student_point(1.0 - self.level() / 2.0, freedom)? * error;
        Some(InterimResult {
            pairs,
            difference,
            interval: [difference - reach, difference + reach],
            p_value: p_value(difference, error, freedom)?,
        })
    }

    /// Returns what a result shows.
    #[must_use]
    pub fn finding(&self, result: &InterimResult) -> Finding {
        let [low, high] = result.interval;
        if result.p_value < self.level() {
            Finding::Differ
        } else if low >= -self.equal_within && high <= self.equal_within {
            Finding::Equal
        } else {
            Finding::Open
        }
    }

    /// Returns which of the other figures differ, once the first one does: all together at the same level (Holm 1979). A figure without two
    /// pairs does not.
    #[must_use]
    pub fn others(&self, figures: &[Vec<f64>]) -> Vec<bool> {
        let alone = figures.iter().map(|differences| {
            let freedom = differences.len() as f64 - 1.0;
            moments(differences).and_then(|(difference, error)| p_value(difference, error, freedom))
        });
        let alone: Vec<f64> = alone.map(|p| p.unwrap_or(1.0)).collect();
        holm(&alone).into_iter().map(|p| p < self.level()).collect()
    }
}

/// Returns the mean of the differences and its standard error; `None` below two.
fn moments(differences: &[f64]) -> Option<(f64, f64)> {
    (differences.len() > 1).then(|| {
        let error = (variance(differences) / differences.len() as f64).sqrt();
        (mean(differences), error)
    })
}

fn p_value(difference: f64, error: f64, freedom: f64) -> Option<f64> {
    if error == 0.0 {
        return Some(if difference == 0.0 { 1.0 } else { 0.0 });
    }
    Some(2.0 * student_share(-(difference / error).abs(), freedom)?)
}

#[cfg(test)]
mod tests {
    use replimeter_model::random::Random;

    use super::*;

    const TRIALS: u32 = 1000;

    /// Runs trials of starts whose logarithms scatter by `scatter`, and of which one in ten is slow by half if `slow`; returns the shares
    /// that differ and that are equal, and the median number of pairs.
    fn trials(rule: Rule, scatter: f64, times: f64, slow: bool) -> (f64, f64, usize) {
        let mut random = Random::new(39);
        let mut start = || {
            let late = if slow && random.fraction() < 0.1 {
                0.4
            } else {
                0.0
            };
            late + scatter * random.normal()
        };
        let mut ended = [0_u32; 3];
        let mut lengths = Vec::new();
        for _ in 0..TRIALS {
            let mut differences = Vec::new();
            let finding = loop {
                differences.push(times.ln() + start() - start());
                if !rule.is_checked_after(differences.len()) {
                    continue;
                }
                let finding = rule.finding(&rule.interim(&differences).unwrap());
                if finding != Finding::Open || differences.len() == rule.pairs {
                    break finding;
                }
            };
            ended[finding as usize] += 1;
            lengths.push(differences.len());
        }
        lengths.sort_unstable();
        let share = |finding: Finding| f64::from(ended[finding as usize]) / f64::from(TRIALS);
        let middle = lengths[lengths.len() / 2];
        (share(Finding::Differ), share(Finding::Equal), middle)
    }

    #[test]
    fn equal_sides_seldom_differ_at_any_check() {
        for pairs in [10, 20, 50, 100] {
            for equal_within in [0.0, 1.2_f64.ln()] {
                for (scatter, slow) in [(0.16, false), (0.38, false), (0.16, true)] {
                    let rule = Rule {
                        pairs,
                        equal_within,
                    };
                    let (differ, ..) = trials(rule, scatter, 1.0, slow);
                    println!("{pairs} pairs, {equal_within:?}, {scatter}, {slow}: {differ}");
                    // Three standard errors of 5 % of 1,000 are 2.1 %.
                    assert!(differ <= 0.071, "{pairs}, {scatter}, {slow}: {differ}");
                }
            }
        }
    }

    #[test]
    fn a_fifth_is_shown() {
        let rule = Rule {
            pairs: MAX_PAIRS,
            equal_within: 0.0,
        };
        let shown = [0.16, 0.25, 0.38].map(|scatter| trials(rule, scatter, 1.2, false));
        println!("20 % more is shown, and after how many pairs: {shown:?}");
        assert!(shown[0].0 >= 0.99 && shown[1].0 >= 0.98 && shown[2].0 >= 0.75);
        assert!(shown[0].2 <= 20 && shown[1].2 <= 40, "{shown:?}");
    }

    #[test]
    fn equality_ends_a_trial_early_and_differences_are_not_equal() {
        let rule = Rule {
            pairs: MAX_PAIRS,
            equal_within: 1.2_f64.ln(),
        };
        let (_, equal, pairs) = trials(rule, 0.16, 1.0, false);
        assert!(equal >= 0.9 && pairs <= 30, "{equal} after {pairs}");
        // A difference of the limit is on its edge.
        let (differ, equal, _) = trials(rule, 0.16, 1.2, false);
        assert!(differ >= 0.9 && equal <= 0.05, "{differ}, {equal}");
    }

    #[test]
    fn result_is_students_test_of_the_differences() {
        let rule = Rule {
            pairs: 10,
            equal_within: 0.0,
        };
        // Mean 2, standard error 1/√3: t = 3.464 with two degrees of freedom.
        let result = rule.interim(&[1.0, 2.0, 3.0]).unwrap();
        assert!((result.p_value - 0.074_18).abs() < 1e-4, "{result:?}");
        let reach = 4.302_653 / 3.0_f64.sqrt();
        assert!(
            (result.interval[1] - 2.0 - reach).abs() < 1e-4,
            "{result:?}"
        );
        assert_eq!(rule.interim(&[1.0]), None);
        assert_eq!(rule.interim(&[0.5, 0.5]).unwrap().p_value, 0.0);
        assert!(
            rule.is_checked_after(10) && !rule.is_checked_after(5) && !rule.is_checked_after(1)
        );
    }

    #[test]
    fn other_figures_are_tested_as_one_family() {
        let rule = Rule {
            pairs: 100,
            equal_within: 0.0,
        };
        let clear: Vec<f64> = (0..20)
            .map(|index| 1.0 + 0.1 * f64::from(index % 5))
            .collect();
        let none: Vec<f64> = (0..20).map(|index| f64::from(index % 5) - 2.0).collect();
        assert_eq!(rule.others(&[clear, none, vec![1.0]]), [true, false, false]);
    }
}
