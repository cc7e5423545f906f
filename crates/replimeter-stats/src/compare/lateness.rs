//! Compares starts of servers beyond what the client's lateness explains.

use super::{mean, resampled::Resampled, spread::Spread};

/// The fewest degrees of freedom with which the effect of the client's lateness is estimated.
const MIN_FREEDOM: f64 = 4.0;

/// One side's values and covariates as deviations from their means, and the means.
struct Deviations {
    x: Vec<f64>,
    y: Vec<f64>,
    means: [f64; 2],
}

impl Deviations {
    fn of(figure: &Resampled, scale: impl Fn(f64) -> f64) -> Self {
        let x: Vec<f64> = figure.lateness.iter().map(|value| value.ln()).collect();
        let y: Vec<f64> = figure.starts.iter().map(|value| scale(*value)).collect();
        let means = [mean(&x), mean(&y)];
        Self {
            x: x.iter().map(|value| value - means[0]).collect(),
            y: y.iter().map(|value| value - means[1]).collect(),
            means,
        }
    }
}

/// A difference of starts beyond what the client's lateness explains.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BeyondLateness {
    /// What remains.
    pub remains: Spread,
    /// The client's lateness in `b`, divided by that in `a`.
    pub lateness_ratio: f64,
}

/// Returns `b` − `a` beyond what the client's lateness explains, or the logarithm of `b` over `a` for `logarithms`: the analysis of covariance
/// of the starts, with the logarithm of the client's median lateness in each as the covariate and one slope for both sides (Snedecor &
/// Cochran 1989, §18.2). `None` when the lateness of a start is unknown, there are fewer than seven starts, or values have no logarithm.
#[must_use]
pub fn beyond_lateness(a: &Resampled, b: &Resampled, logarithms: bool) -> Option<BeyondLateness> {
    let known =
        |side: &Resampled| !side.starts.is_empty() && side.lateness.len() == side.starts.len();
    let counts = [a, b].map(|side| side.starts.len() as f64);
    let freedom = counts[0] + counts[1] - 3.0;
    let positive = a.starts.iter().chain(&b.starts).all(|value| *value > 0.0);
    if !known(a) || !known(b) || freedom < MIN_FREEDOM || (logarithms && !positive) {
        return None;
    }
    let scale = |value: f64| if logarithms { value.ln() } else { value };
    let sides = [a, b].map(|side| Deviations::of(side, scale));
    let sum = |of: fn(f64, f64) -> f64| -> f64 {
        let pairs = sides.iter().flat_map(|side| side.x.iter().zip(&side.y));
        pairs.map(|(x, y)| of(*x, *y)).sum()
    };
    let (xx, xy, yy) = (sum(|x, _| x * x), sum(|x, y| x * y), sum(|_, y| y * y));
    if xx <= 0.0 {
        return None;
    }
    let slope = xy / xx;
    let [later, apart] = [0, 1].map(|index| sides[1].means[index] - sides[0].means[index]);
    let residual = ((yy - slope * xy) / freedom).max(0.0);
    let error = (residual * (1.0 / counts[0] + 1.0 / counts[1] + later * later / xx)).sqrt();
    Some(BeyondLateness {
        remains: Spread {
            value: apart - slope * later,
            below: error,
            above: error,
            freedom,
        },
        lateness_ratio: later.exp(),
    })
}

#[cfg(test)]
mod tests {
    use replimeter_model::random::Random;

    use crate::compare::{Resampled, beyond_lateness, log_ratio, of_starts, of_units};

    /// Ten starts of a run on a machine whose speed scatters by 23 % between starts and, by `drift`, between runs; half of it is in the
    /// client's lateness and in the figure, as measured on virtual machines.
    fn run_on_a_machine(random: &mut Random, drift: f64, times: f64) -> Resampled {
        let run = drift * random.normal();
        let starts: Vec<(f64, f64)> = (0..10)
            .map(|_| {
                let speed = run + 0.23 * random.normal();
                let value = times * (0.48 * speed + 0.14 * random.normal()).exp();
                (value, (speed + 0.08 * random.normal()).exp())
            })
            .collect();
        let (values, lateness): (Vec<f64>, Vec<f64>) = starts.into_iter().unzip();
        of_starts(&values, 1000).unwrap().with_lateness(lateness)
    }

    /// Returns the shares of pairs that differ alone, and also beyond the client's lateness.
    fn differ_on_a_machine(drift: f64, times: f64) -> [f64; 2] {
        const PAIRS: u32 = 1000;
        let mut random = Random::new(19);
        let mut found = [0_u32; 2];
        for _ in 0..PAIRS {
            let a = run_on_a_machine(&mut random, drift, 1.0);
            let b = run_on_a_machine(&mut random, drift, times);
            let alone = log_ratio(&a.spread().unwrap(), &b.spread().unwrap()).unwrap();
            let beyond = beyond_lateness(&a, &b, true).unwrap();
            let is_alone = alone.p_value() < 0.05;
            found[0] += u32::from(is_alone);
            found[1] += u32::from(is_alone && beyond.remains.p_value() < 0.05);
        }
        found.map(|found| f64::from(found) / f64::from(PAIRS))
    }

    #[test]
    fn slow_minutes_of_the_machine_are_no_difference() {
        let [alone, beyond] = differ_on_a_machine(0.3, 1.0);
        println!(
            "equal servers differ in {alone} of pairs, beyond the client's lateness in {beyond}"
        );
        // Three standard errors of 5 % of 1,000 are 2 %.
        assert!(alone > 0.2 && beyond <= 0.07, "{alone}, {beyond}");
        let [steady, both] = differ_on_a_machine(0.0, 1.0);
        assert!(steady <= 0.07 && both <= 0.07, "{steady}, {both}");
    }

    #[test]
    fn differences_remain_on_a_machine_that_drifts() {
        let found = [1.3, 1.5, 2.0].map(|times| differ_on_a_machine(0.3, times)[1]);
        println!("30, 50 and 100 % more are shown in {found:?} of pairs");
        assert!(found[1] >= 0.75 && found[2] >= 0.95, "{found:?}");
    }

    #[test]
    fn lateness_that_explains_all_leaves_nothing() {
        // y = 2 x on both sides, and B is later.
        let side = |lateness: [f64; 4]| {
            let values = lateness.map(|late| late * late);
            of_starts(&values, 4)
                .unwrap()
                .with_lateness(lateness.to_vec())
        };
        let (a, b) = (side([1.0, 2.0, 3.0, 4.0]), side([2.0, 3.0, 5.0, 8.0]));
        let beyond = beyond_lateness(&a, &b, true).unwrap();
        assert!(beyond.remains.value.abs() < 1e-9, "{beyond:?}");
        assert!((beyond.remains.freedom - 5.0).abs() < 1e-9);
        let without = of_starts(&[1.0, 2.0, 3.0, 4.0], 4).unwrap();
        assert_eq!(beyond_lateness(&a, &without, true), None);
        let joined = of_units(&[a.clone(), b]).unwrap();
        assert_eq!(joined.lateness.len(), 8);
        assert!(of_units(&[a, without]).unwrap().lateness.is_empty());
    }
}
