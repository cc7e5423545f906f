//! A calibration against the reference: servers that choose when each row is visible.

use std::sync::atomic::Ordering;

use replimeter_instruments::{
    calibrate::{
        results::ReferenceRow,
        settings::{CalibratePlan, ReferencePlan},
    },
    lag::{
        self,
        sample::{LagSample, Phase},
        settings::{LagPlan, Method, Methods},
        summary::LagSummary,
    },
    preflight::{self, Cluster},
    reference::{BusyNeighbors, Reference, TrueRow, delay_shape::DelayShape},
    table::RowBudget,
};
use replimeter_model::time::Nanos;
use replimeter_run::{
    RunContext,
    cli_error::{CliError, unexpected},
    to_measure,
};
use replimeter_stats::{
    series::{Series, distribution},
    share::{Proportion, Share},
    signed::SignedHistogram,
    student::mean,
};
use serde::{Deserialize, Serialize};

use super::{Calibrate, Call, end, observe};

/// Number of counted observations before the fault `reference-ends` ends a server.
const COUNTED_BEFORE_END: u32 = 20;

/// The conditions of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Condition {
    pub(super) method: Method,
    pub(super) observers: u32,
    pub(super) neighbors: u32,
    pub(super) delays: DelayShape,
}

impl Condition {
    /// Returns the name of its samples.
    pub(super) fn label(&self) -> String {
        format!(
            "reference:{} +{}, {} neighbors",
            self.observers, self.delays, self.neighbors
        )
    }
}

/// An observation of a row, and its true instants.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Observation {
    pub(super) sample: LagSample,
    /// The instant from which the row was visible.
    visible: Nanos,
    /// When the server began to answer the wait for it.
    answered: Option<Nanos>,
}

impl Observation {
    fn of(sample: &LagSample, row: &TrueRow) -> Self {
        Self {
            sample: *sample,
            visible: row.visible,
            answered: row.released.filter(|_| sample.method == Method::Wait),
        }
    }
}

/// Rows of a batch: enough for a median, and longer than neighboring rows depend on one another.
const BATCH: u64 = 100;

/// The estimate's median less the true one, in batches of rows. What makes the lags of a batch larger makes both larger, so the
/// differences scatter by the error of the method and not by the lags.
#[derive(Default)]
struct BatchBias {
    lag: LagSummary,
    truth: SignedHistogram,
    differences: Vec<f64>,
}

impl BatchBias {
    fn record(&mut self, sample: &LagSample, truth: Nanos) {
        self.lag.record(sample);
        self.truth.record(truth);
        if self.lag.rounds() < BATCH {
            return;
        }
        let found = bias(&self.lag, &self.truth);
        self.differences.extend(found);
        (self.lag, self.truth) = Default::default();
    }

    /// Returns the mean of the batches with its 95 % interval, which is Student's; `None` below two batches.
    fn mean(&self) -> Option<(f64, [f64; 2])> {
        let mean = mean(&self.differences);
        mean.value.zip(mean.ends())
    }
}

/// Returns the median of the estimate less that of the true lags.
fn bias(lag: &LagSummary, truth: &SignedHistogram) -> Option<f64> {
    Some(lag.row().estimate.p50_us? - distribution(truth).p50_us?)
}

/// The observations under one set of conditions.
pub(super) struct Part {
    pub(super) condition: Condition,
    batches: BatchBias,
    lag: LagSummary,
    truth: SignedHistogram,
    outside: Share,
    answer_outside: Share,
    error: Series,
    late: SignedHistogram,
}

impl Part {
    pub(super) fn new(condition: Condition) -> Self {
        Self {
            condition,
            batches: BatchBias::default(),
            lag: LagSummary::default(),
            truth: SignedHistogram::default(),
            outside: Share::default(),
            answer_outside: Share::default(),
            error: Series::default(),
            late: SignedHistogram::default(),
        }
    }

    /// Adds an observation of the measurement proper.
    pub(super) fn record(&mut self, observation: &Observation) {
        let Observation {
            sample,
            visible,
            answered,
        } = observation;
        if sample.write.phase != Phase::Measure {
            return;
        }
        self.lag.record(sample);
        let (Some(low), Some(point), Some(high)) = (sample.lower(), sample.point(), sample.upper())
        else {
            return;
        };
        let at = sample.write.send;
        let true_lag = *visible - sample.write.ack;
        self.truth.record(true_lag);
        self.batches.record(sample, true_lag);
        let outside = |instant: Nanos| instant <= low || instant > high;
        self.outside.record(at, outside(*visible));
        self.error.record(at, point - *visible);
        if let Some(answered) = answered {
            self.answer_outside.record(at, outside(*answered));
            self.late.record(*answered - *visible);
        }
    }

    /// Returns its lags, for the file of histograms.
    pub(super) fn histogram(&self) -> (String, SignedHistogram) {
        let Condition { method, .. } = self.condition;
        let name = format!("{}/{}/lag", self.condition.label(), method.name());
        (name, self.lag.lags().clone())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lag.rounds() == 0
    }

    /// Returns the results.
    pub(super) fn row(&self) -> ReferenceRow {
        let Condition {
            method,
            observers,
            neighbors,
            delays,
        } = self.condition;
        let lag = self.lag.row();
        let truth = distribution(&self.truth);
        let (outside, answer) = (self.outside.proportion(), self.answer_outside.proportion());
        let percent = |of: &Proportion| (of.trials > 0).then_some(of.share * 1e2);
        let ci95 = |of: &Proportion| (of.trials > 0).then_some([of.low * 1e2, of.high * 1e2]);
        let paired = self.batches.mean();
        ReferenceRow {
            method: method.name().to_owned(),
            observers,
            neighbors,
            delays: delays.to_string(),
            rounds: lag.rounds,
            timed_out: lag.timed_out,
            outside: outside.events,
            outside_percent: percent(&outside),
            outside_percent_ci95: ci95(&outside),
            answer_outside_percent: percent(&answer),
            answer_outside_percent_ci95: ci95(&answer),
            bracket_us: lag.bracket_us,
            error_us: self.error.distribution(),
            true_p50_us: truth.p50_us,
            bias_p50_us: match paired {
                Some((mean, _)) => Some(mean),
                None => bias(&self.lag, &self.truth),
            },
            bias_p50_us_ci95: paired.map(|(_, ends)| ends),
            answered_late_us: distribution(&self.late),
        }
    }
}

/// Measures under each combination of conditions.
pub(super) fn run(
    cx: &mut RunContext<'_, Calibrate>,
    reference: &ReferencePlan,
) -> Result<(), CliError> {
    let plan = cx.plan;
    cx.write_manifest()?;
    for repetition in 0..plan.repetitions {
        for observers in &reference.observers {
            let servers = Reference::start(cx.clock, *observers)
                .map_err(|error| failed("the reference", &error))?;
            let mut cluster = preflight::check(&to_measure(&servers))?;
            cx.warn(std::mem::take(&mut cluster.warnings));
            let mut parts = Parts {
                plan,
                servers,
                cluster,
                held: RowBudget::default(),
                seed: u64::from(repetition),
            };
            // Neighbors change last, so that what they compare is close in time.
            for delays in &reference.delays {
                for method in plan.lag.method.wanted() {
                    for neighbors in &reference.neighbors {
                        parts.measure(
                            cx,
                            Condition {
                                method,
                                observers: *observers,
                                neighbors: *neighbors,
                                delays: *delays,
                            },
                        )?;
                    }
                }
            }
        }
    }
    Ok(())
}

fn failed(what: &str, error: &std::io::Error) -> CliError {
    CliError::failed(
        format!("cannot start {what}: {error}"),
        "choose fewer --observers or --neighbors, or raise the limits of processes and open files (ulimit)",
    )
}

/// The servers of one number of observers.
struct Parts<'a> {
    plan: &'a CalibratePlan,
    servers: Reference,
    cluster: Cluster,
    held: RowBudget,
    seed: u64,
}

impl Parts<'_> {
    /// Measures under one set of conditions.
    fn measure(
        &mut self,
        cx: &mut RunContext<'_, Calibrate>,
        condition: Condition,
    ) -> Result<(), CliError> {
        let Self {
            plan,
            servers,
            cluster,
            held,
            seed,
        } = self;
        // Another seed for each part: the same delays would repeat their luck.
        *seed += 1_000;
        servers.delay_by(condition.delays, *seed);
        cx.take(Call::Reference {
            condition,
            replicas: cluster.replica_names(),
        })?;
        let plan = LagPlan {
            method: Methods::Named(vec![condition.method]),
            ..plan.lag.clone()
        };
        let neighbors = BusyNeighbors::start(condition.neighbors)
            .map_err(|error| failed("the neighbors", &error))?;
        let possible = lag::available_methods(cluster, &plan.method)?;
        let (stop, fault) = (cx.stop, cx.fault().map(str::to_owned));
        let mut counted = 0;
        let call = |sample: &LagSample| {
            counted += u32::from(sample.write.phase == Phase::Measure);
            if fault.as_deref() == Some("reference-ends") && counted == COUNTED_BEFORE_END {
                servers.end(1);
            }
            let row = servers.row(sample.replica, sample.write.seq);
            row.map(|row| Call::Observation(Observation::of(sample, &row)))
                .ok_or_else(|| unexpected("a row is not one of the reference"))
        };
        let outcome = observe(cx, cluster, &plan, &possible, held, call);
        drop(neighbors);
        end(cx, outcome?, &condition.label())?;
        match stop.load(Ordering::Relaxed) {
            true => Err(CliError::partial()),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use replimeter_instruments::lag::sample::{Sighting, SightingDetail, Write};
    use replimeter_model::random::Random;

    use super::*;

    /// Returns an observation by reads that follow one another every 100 µs; the first that shows the row begins up to that later than it is
    /// visible, and `late_us` are unseen.
    fn observation(random: &mut Random, seq: u64, late_us: f64) -> Observation {
        let us = |us: f64| Nanos((us * 1e3) as i64);
        let send = us(seq as f64 * 1e4);
        let ack = send + us(80.0);
        let lag = 3000.0 * (0.5 * random.normal()).exp();
        let visible = ack + us(lag);
        let hit_began = visible + us(100.0 * random.fraction() + late_us);
        let sample = LagSample {
            replica: 0,
            method: Method::Poll,
            write: Write {
                seq,
                phase: Phase::Measure,
                sweep: 0,
                step: 0,
                row_in_step: 1,
                size_bytes: 1000,
                intended: send,
                send,
                ack,
            },
            sighting: Some(Sighting {
                seq,
                after: hit_began - us(100.0),
                hit_began,
                until: hit_began + us(1.0),
                detail: SightingDetail::Nothing,
            }),
            unplaced: false,
        };
        Observation {
            sample,
            visible,
            answered: None,
        }
    }

    #[test]
    fn interval_of_a_bias_is_that_of_the_method_and_not_of_the_lags() {
        let condition = Condition {
            method: Method::Poll,
            observers: 1,
            neighbors: 0,
            delays: DelayShape::Bimodal,
        };
        let (mut held, mut narrow) = (0, 0);
        const RUNS: u64 = 40;
        for seed in 0..RUNS {
            let mut random = Random::new(seed);
            let mut part = Part::new(condition);
            (0..2000).for_each(|seq| part.record(&observation(&mut random, seq, 40.0)));
            let row = part.row();
            let [low, high] = row.bias_p50_us_ci95.unwrap();
            held += u64::from((low..=high).contains(&40.0));
            let [lags_low, lags_high] = part.lag.row().estimate.p50_us_ci95.unwrap();
            narrow += u64::from(2.0 * (high - low) < lags_high - lags_low);
        }
        println!("{held} of {RUNS} hold the bias, {narrow} are less than half as wide");
        assert!(10 * held >= 9 * RUNS, "{held}");
        assert!(10 * narrow >= 9 * RUNS, "{narrow}");
    }
}
