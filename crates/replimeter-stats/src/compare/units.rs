//! Figures of independent units, runs or fresh starts of servers: each gives one value.

use super::{
    mean,
    spread::{Spread, student},
    variance,
};
use crate::student::Z95;

/// The mean of the units' values, or of their logarithms if all are positive.
struct UnitMean {
    logarithms: bool,
    center: f64,
    /// The standard error of `center`.
    error: f64,
    /// The degrees of freedom of `error`.
    freedom: f64,
}

impl UnitMean {
    /// `None` below two units; `within` is the least standard error.
    fn of(values: &[f64], within: f64) -> Option<Self> {
        let count = values.len() as f64;
        let logarithms = all_positive(values.iter().copied());
        let scaled: Vec<f64> = match logarithms {
            true => values.iter().map(|value| value.ln()).collect(),
            false => values.to_vec(),
        };
        (values.len() > 1).then(|| Self {
            logarithms,
            center: mean(&scaled),
            error: (variance(&scaled) / count).sqrt().max(within),
            freedom: count - 1.0,
        })
    }

    /// Returns `value` plus `shift` on the scale of the mean.
    fn shifted(&self, value: f64, shift: f64) -> f64 {
        if self.logarithms {
            value * shift.exp()
        } else {
            value + shift
        }
    }

    /// Returns the mean on the scale of the values.
    fn value(&self) -> f64 {
        if self.logarithms {
            self.center.exp()
        } else {
            self.center
        }
    }
}

/// Returns whether values are compared by their logarithms.
pub(super) fn all_positive(mut values: impl Iterator<Item = f64>) -> bool {
    values.all(|value| value > 0.0)
}

/// Returns a 95 % interval around `value`, a figure of all starts together of which each gave one of `values`: Student's t
/// of their logarithms, or of the values if one is not positive. `None` below two starts.
#[must_use]
pub fn between_starts(values: &[f64], value: f64) -> Option<[f64; 2]> {
    interval(values, value, 0.0)
}

/// Returns the same of units whose mean has at least the standard error `within`.
pub(super) fn interval(units: &[f64], value: f64, within: f64) -> Option<[f64; 2]> {
    let mean = UnitMean::of(units, within)?;
    let reach = student(0.975, mean.freedom) * mean.error;
    Some([-reach, reach].map(|shift| mean.shifted(value, shift)))
}

/// Returns the mean of units, geometric if all are positive, and its degrees of freedom; `None` without a unit.
pub(super) fn mean_of(values: &[f64]) -> Option<(f64, f64)> {
    match UnitMean::of(values, 0.0) {
        Some(mean) => Some((mean.value(), mean.freedom)),
        None => Some((*values.first()?, 0.0)),
    }
}

/// Returns the spread of `value`, the figure of these units; `None` below two units.
pub(super) fn spread(units: &[f64], value: f64, within: f64) -> Option<Spread> {
    let mean = UnitMean::of(units, within)?;
    let away = |z: f64| (mean.shifted(value, z * mean.error) - value).abs() / Z95;
    Some(Spread {
        value,
        below: away(-Z95),
        above: away(Z95),
        freedom: mean.freedom,
    })
}

/// Returns the standard error of the mean of runs that their own spreads give: runs that happen to be equal, such as shares of 0, show
/// none between them. Runs without a spread add none.
pub(super) fn within(runs: &[(f64, Option<Spread>)]) -> f64 {
    let logarithms = all_positive(runs.iter().map(|(value, _)| *value));
    let of = |(_, spread): &(f64, Option<Spread>)| {
        let spread = (*spread)?;
        let spread = if logarithms { spread.log()? } else { spread };
        Some((spread.below.powi(2) + spread.above.powi(2)) / 2.0)
    };
    let sum: f64 = runs.iter().filter_map(of).sum();
    sum.sqrt() / runs.len() as f64
}

#[cfg(test)]
mod tests {
    use replimeter_model::random::Random;

    use crate::compare::{Resampled, holm, log_ratio, of_runs, of_starts};

    /// Starts of one side; each has a level that all its figures share.
    fn side(random: &mut Random, starts: usize, times: f64, bimodal: bool) -> Vec<Resampled> {
        const FIGURES: usize = 12;
        let mut values = vec![Vec::new(); FIGURES];
        for _ in 0..starts {
            let mode = if bimodal && random.fraction() < 0.3 {
                0.4
            } else {
                0.0
            };
            let level = mode + 0.1 * random.normal();
            for figure in &mut values {
                figure.push(times * (level + 0.05 * random.normal()).exp());
            }
        }
        let figures = values.iter().map(|values| of_starts(values, 100).unwrap());
        figures.collect()
    }

    /// Returns the share of comparisons in which any of the figures differs.
    fn alarms(starts: usize, times: f64, bimodal: bool) -> f64 {
        const PAIRS: u32 = 200;
        let mut random = Random::new(16);
        let mut alarms = 0;
        for _ in 0..PAIRS {
            let a = side(&mut random, starts, 1.0, bimodal);
            let b = side(&mut random, starts, times, bimodal);
            let p_values: Vec<f64> = a
                .iter()
                .zip(&b)
                .map(|(a, b)| {
                    let spreads = (a.spread().unwrap(), b.spread().unwrap());
                    log_ratio(&spreads.0, &spreads.1).unwrap().p_value()
                })
                .collect();
            alarms += u32::from(holm(&p_values).iter().any(|p| *p < 0.05));
        }
        f64::from(alarms) / f64::from(PAIRS)
    }

    #[test]
    fn equal_sides_seldom_differ_in_any_figure() {
        // Three standard errors of a share of 5 % of 200 are 4.6 %.
        for starts in [3, 5, 10] {
            for bimodal in [false, true] {
                let share = alarms(starts, 1.0, bimodal);
                assert!(share <= 0.096, "{starts} starts, {bimodal}: {share}");
            }
        }
    }

    #[test]
    fn ten_starts_show_a_fifth() {
        // The starts of a side scatter by 11 %.
        let shown = |starts: usize| [1.1, 1.2, 1.3, 1.4].map(|times| alarms(starts, times, false));
        let (five, ten) = (shown(5), shown(10));
        println!("pairs that show 10, 20, 30, 40 %: {five:?} of 5 starts, {ten:?} of 10");
        assert!(ten[1] >= 0.8 && ten[2] >= 0.99, "{ten:?}");
        assert!(five[2] >= 0.6 && five[3] >= 0.9, "{five:?}");
    }

    #[test]
    fn interval_is_students_of_logarithms() {
        // The logarithms are 1, 2 and 3: 2 ± 4.303 · 1 / √3.
        let values = [1.0_f64, 2.0, 3.0].map(f64::exp);
        let estimate = of_starts(&values, 30).unwrap().estimate();
        let [low, high] = estimate.ends().unwrap();
        assert!((estimate.value.unwrap() - 2.0_f64.exp()).abs() < 1e-9);
        let reach = 4.302_653 / 3.0_f64.sqrt();
        assert!((high.ln() - 2.0 - reach).abs() < 1e-4, "{high}");
        assert!((low.ln() - 2.0 + reach).abs() < 1e-4, "{low}");
    }

    #[test]
    fn one_start_has_no_interval() {
        let one = of_starts(&[100.0], 1000).unwrap();
        assert_eq!((one.spread(), one.samples), (None, 1000));
        assert_eq!(of_starts(&[], 0), None);
    }

    #[test]
    fn runs_give_one_value_each() {
        let runs = [of_starts(&[100.0, 144.0], 10), of_starts(&[120.0], 10)];
        let joined = of_runs(&runs.map(Option::unwrap)).unwrap();
        assert!(
            joined
                .units
                .iter()
                .all(|value| (value - 120.0).abs() < 1e-9)
        );
        assert_eq!(
            (joined.freedom, joined.samples, joined.starts),
            (1.0, 20, 3)
        );
        // Runs that happen to be equal are as uncertain as their starts: of ln 1.2 / 2 · √2 / √2 in the first, halved.
        let spread = joined.spread().unwrap().log().unwrap();
        assert!(
            (spread.above - 1.2_f64.ln() / 2.0).abs() < 1e-9,
            "{spread:?}"
        );
    }

    #[test]
    fn values_that_are_not_positive_have_an_arithmetic_mean() {
        let figure = of_starts(&[-10.0, 0.0, 40.0], 3).unwrap();
        assert!((figure.value - 10.0).abs() < 1e-9 && figure.spread().is_some());
    }
}
