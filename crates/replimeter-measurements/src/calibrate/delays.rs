//! A calibration against known delays of the link between real servers.

use replimeter_engine::source::Faults;
use replimeter_instruments::{
    calibrate::settings::{CalibratePlan, Conditions},
    lag::{
        AvailableMethods,
        sample::{LagSample, Phase},
        settings::{LagPlan, Method},
    },
    preflight::Cluster,
    table::RowBudget,
};
use replimeter_model::{time::Nanos, time_span::TimeSpan};
use replimeter_run::{RunContext, cli_error::CliError};
use replimeter_stats::{series::Series, signed::SignedHistogram};

use super::{Accumulator, Calibrate, Call, end, observe};
use crate::lag::record_floor;

/// The results of one method for one delay on one replica.
pub(super) struct Condition {
    pub(super) replica: usize,
    pub(super) method: Method,
    pub(super) delay: TimeSpan,
    pub(super) all: Series,
    /// One histogram per repetition.
    pub(super) repetitions: Vec<SignedHistogram>,
    pub(super) rounds: u64,
    pub(super) missing: u64,
    pub(super) unplaced: u64,
}

impl Condition {
    /// Returns the name of its histogram.
    pub(super) fn tag(&self, names: &[String]) -> String {
        format!(
            "{}/{}/{}/lag",
            names[self.replica],
            self.method.name(),
            self.delay
        )
    }
}

/// Returns the lag that must rise by the delay. It is not from the acknowledgement: without a delay, the
/// replica and its observer compete with the primary's reply for the cores, which delays the acknowledgement
/// and makes that lag too small.
fn lag_of(sample: &LagSample) -> Option<Nanos> {
    sample.from_primary().or_else(|| sample.from_send())
}

impl Accumulator {
    pub(super) fn record(&mut self, sample: &LagSample) {
        match sample.write.phase {
            Phase::Floor => record_floor(&mut self.floors, sample),
            Phase::Measure => {
                let (delay, repetition) = (self.delay, self.repetition);
                let own = |condition: &&mut Condition| {
                    (condition.replica, condition.method, condition.delay)
                        == (sample.replica, sample.method, delay)
                };
                let Some(condition) = self.conditions.iter_mut().find(own) else {
                    return;
                };
                condition.rounds += 1;
                match (lag_of(sample), condition.repetitions.get_mut(repetition)) {
                    (Some(lag), Some(of_repetition)) => {
                        // The parts are separated in time; the autocorrelation is estimated as if they were
                        // not.
                        condition
                            .all
                            .record(Nanos(self.every.0 * condition.rounds.cast_signed()), lag);
                        of_repetition.record(lag);
                    }
                    _ if sample.unplaced => condition.unplaced += 1,
                    _ => condition.missing += 1,
                }
            }
            _ => {}
        }
    }

    pub(super) fn condition(
        &self,
        replica: usize,
        method: Method,
        delay: TimeSpan,
    ) -> Option<&Condition> {
        self.conditions.iter().find(|condition| {
            (condition.replica, condition.method, condition.delay) == (replica, method, delay)
        })
    }
}

pub(super) fn conditions(
    plan: &CalibratePlan,
    replicas: usize,
    methods: &[Method],
) -> Vec<Condition> {
    let Conditions::LinkDelays(delays) = &plan.conditions else {
        return Vec::new();
    };
    let conditions = delays.iter().flat_map(|delay| {
        methods.iter().flat_map(move |method| {
            (0..replicas).map(|replica| Condition {
                replica,
                method: *method,
                delay: *delay,
                all: Series::default(),
                repetitions: vec![SignedHistogram::default(); plan.repetitions as usize],
                rounds: 0,
                missing: 0,
                unplaced: 0,
            })
        })
    });
    conditions.collect()
}

/// Measures all delays in order and in reverse, so that a drift of the servers affects all delays alike.
pub(super) fn measure_repetitions(
    cx: &mut RunContext<'_, Calibrate>,
    faults: &mut dyn Faults,
    cluster: &mut Cluster,
    possible: &AvailableMethods,
    link_delays: &[TimeSpan],
) -> Result<(), CliError> {
    let plan = cx.plan;
    let mut held = RowBudget::default();
    for repetition in 0..plan.repetitions as usize {
        let mut delays = link_delays.to_vec();
        if repetition % 2 == 1 {
            delays.reverse();
        }
        for (index, delay) in delays.iter().enumerate() {
            faults.set_delay(delay.0)?;
            cx.take(Call::Repetition {
                delay: *delay,
                repetition,
            })?;
            // The floor does not depend on the link.
            let floor_rounds = if repetition == 0 && index == 0 {
                plan.lag.floor_rounds
            } else {
                0
            };
            let plan = LagPlan {
                floor_rounds,
                ..plan.lag.clone()
            };
            let call = |sample: &LagSample| Ok(Call::Sample(*sample));
            let outcome = observe(cx, cluster, &plan, possible, &mut held, call)?;
            end(cx, outcome, &format!("with a delay of {delay}"))?;
        }
    }
    Ok(())
}
