//! The law fitted to each figure, and the check of its prediction.

use std::collections::BTreeSet;

use replimeter_instruments::scale::{
    results::{LawPoint, Prediction, Residual, ScaleFit},
    settings::{MIN_COUNTS, ScalePhase, ScalePlan},
};
use replimeter_model::estimate::Estimate;
use replimeter_stats::{
    starts::Rounds,
    usl::{self, Fit, NoFit, Point},
};

use super::accumulator::Accumulator;

impl Accumulator {
    /// Fits laws to the measurements.
    pub(super) fn fit(&mut self, plan: &ScalePlan) {
        let mut wanted = vec![
            (ScalePhase::Insert, "insert"),
            (ScalePhase::Select, "select"),
            (ScalePhase::Mixed, "insert"),
            (ScalePhase::Mixed, "select"),
        ];
        if plan.updates {
            wanted.extend([
                (ScalePhase::Update, "update"),
                (ScalePhase::MixedUpdate, "update"),
                (ScalePhase::MixedUpdate, "select"),
            ]);
        }
        for (phase, kind) in wanted {
            let fit = self.law(plan, phase, kind);
            self.fits.push(fit);
        }
    }

    /// Returns the measurement of each start.
    fn points(&self, plan: &ScalePlan, phase: ScalePhase, kind: &str) -> Vec<Measured> {
        let of = |replicas: &u32| {
            let starts =
                self.conditions
                    .get(&(*replicas, phase))
                    .map_or_else(Rounds::new, |condition| match kind {
                        "select" => condition.rates(kind),
                        // Only writes that were applied count.
                        _ => condition.sustained.clone(),
                    });
            let replicas = *replicas;
            let mean = |rates: Vec<f64>| rates.iter().sum::<f64>() / rates.len().max(1) as f64;
            starts
                .into_iter()
                .map(move |(start, rates)| (replicas, start, mean(rates)))
                .collect::<Vec<_>>()
        };
        plan.replicas.counts().iter().flat_map(of).collect()
    }

    fn law(&self, plan: &ScalePlan, phase: ScalePhase, kind: &str) -> ScaleFit {
        let points = self.points(plan, phase, kind);
        let mut fit = ScaleFit {
            phase: phase.name().to_owned(),
            figure: format!("{kind}s"),
            counted: if kind == "select" {
                "readers"
            } else {
                "servers"
            }
            .to_owned(),
            ..ScaleFit::default()
        };
        match fitted(plan, kind, &points) {
            Ok(law) => describe(&mut fit, &law, plan, kind, &points),
            Err(refused) => fit.refused = Some(refused),
        }
        fit
    }

    /// Compares each law's prediction with the measurement with one more replica.
    pub(super) fn check(&mut self, plan: &ScalePlan, replicas: u32) {
        let phases = plan.phases();
        let mut fits = std::mem::take(&mut self.fits);
        for fit in &mut fits {
            let Some(prediction) = &mut fit.prediction else {
                continue;
            };
            let Some(phase) = phases.iter().find(|phase| phase.name() == fit.phase) else {
                continue;
            };
            let (measured, ends) =
                self.applied_rate(replicas, *phase, fit.figure.trim_end_matches('s'));
            prediction.measured_per_s = measured;
            prediction.measured_per_s_ci95 = ends;
            let range = prediction
                .predicted
                .ci95
                .low
                .zip(prediction.predicted.ci95.high);
            prediction.holds = measured
                .zip(range)
                .map(|(measured, (low, high))| low <= measured && measured <= high);
        }
        self.fits = fits;
    }
}

/// Laws that a run fits, with updates.
const MAX_LAWS: f64 = 7.0;

/// The measurement of a start: replicas, start, operations per second.
type Measured = (u32, u32, f64);

/// Fits the law to these points.
///
/// # Errors
/// The reason why no law can be fitted.
fn fitted(plan: &ScalePlan, kind: &str, points: &[Measured]) -> Result<Fit, String> {
    let counts: BTreeSet<u32> = points.iter().map(|(replicas, ..)| *replicas).collect();
    if counts.len() < MIN_COUNTS {
        return Err(format!(
            "{} numbers of replicas were measured, but {MIN_COUNTS} are needed",
            counts.len()
        ));
    }
    let all: Vec<Point> = points
        .iter()
        .map(|(replicas, _, per_s)| Point {
            servers: servers_of(plan, kind, *replicas),
            per_s: per_s * executions(plan, kind, *replicas),
        })
        .collect();
    usl::fit(&all).map_err(|error| {
        match error {
            NoFit::TooFew => "too few numbers of servers do this work",
            NoFit::NoThroughput => "throughput was zero at one of them",
            NoFit::Unfit => "the law does not fit the measurements",
        }
        .to_owned()
    })
}

/// Records the law's values for these points and for one more replica.
fn describe(fit: &mut ScaleFit, law: &Fit, plan: &ScalePlan, kind: &str, points: &[Measured]) {
    let count = |replicas: u32| servers_of(plan, kind, replicas);
    (fit.lambda, fit.sigma, fit.kappa) = (law.lambda, law.sigma, law.kappa);
    fit.error_percent = law.error * 100.0;
    fit.freedom = u32::try_from(law.freedom).unwrap_or(u32::MAX);
    fit.lack_of_fit_p = law.lack_of_fit;
    let holds = holds(fit);
    let replicas_of =
        |servers: f64| servers - f64::from(count(0)) + if count(0) == count(1) { 1.0 } else { 0.0 };
    if holds && kind == "select" && count(1) != count(2) {
        fit.peak_replicas = Some(each(law.peak_replicas, replicas_of));
    }
    fit.residuals = points
        .iter()
        .zip(&law.residuals)
        .map(|((replicas, start, per_s), residual)| Residual {
            replicas: *replicas,
            start: *start,
            per_s: *per_s,
            fitted_per_s: per_s / (1.0 + residual),
            percent: residual * 100.0,
        })
        .collect();
    let last = plan.replicas.max();
    let per_s = |replicas: u32| Some(law.at(count(replicas))? / executions(plan, kind, replicas));
    fit.curve = (0..=if holds { last + 1 } else { last })
        .filter_map(|replicas| {
            Some(LawPoint {
                replicas,
                per_s: per_s(replicas)?,
            })
        })
        .collect();
    let predicted = law.predict(count(last + 1), plan.starts).filter(|_| holds);
    fit.prediction = predicted.map(|predicted| Prediction {
        replicas: last + 1,
        predicted: each(predicted, |value| value / executions(plan, kind, last + 1)),
        ..Prediction::default()
    });
}

/// Returns whether the points agree with the law as far as their scatter shows; 5 % for all laws of a run together.
pub(super) fn holds(fit: &ScaleFit) -> bool {
    fit.lack_of_fit_p.is_none_or(|p| p >= 0.05 / MAX_LAWS)
}

/// Applies a function to a value and to the ends of its interval.
fn each(estimate: Estimate, what: impl Fn(f64) -> f64) -> Estimate {
    Estimate {
        value: estimate.value.map(&what),
        ci95: [estimate.ci95.low.map(&what), estimate.ci95.high.map(&what)].into(),
    }
}

/// Returns the number of servers that a figure covers: those that are read from, or all, since each executes
/// every write.
fn servers_of(plan: &ScalePlan, kind: &str, replicas: u32) -> u32 {
    if kind == "select" {
        plan.readers(replicas)
    } else {
        replicas + 1
    }
}

/// Returns how often each operation is executed: a write on every server.
fn executions(plan: &ScalePlan, kind: &str, replicas: u32) -> f64 {
    if kind == "select" {
        1.0
    } else {
        f64::from(servers_of(plan, kind, replicas))
    }
}
