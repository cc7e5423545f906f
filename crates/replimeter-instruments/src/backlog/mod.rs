//! Measures how fast a replica catches up: its applier is stopped during a load, started again under
//! the load, and continues without the load.

mod applier;
mod check;
mod confinement;
mod connection;
mod position_probe;
mod readings;
mod release;
mod rescue;
mod restore;
pub mod results;
mod round;
mod round_readings;
pub mod settings;

use std::time::Duration;

use replimeter_model::{time::Nanos, warning::Warning};

pub use self::{
    check::check,
    confinement::rescuer_note,
    release::HeldAppliers,
    rescue::{StartRescuer, rescue},
};
use self::{
    results::{BacklogPhase, BacklogRow},
    round::Round,
    settings::BacklogPlan,
};
use crate::{Listener, MeasureError, clock::Clock, load::BackgroundLoad, preflight::Cluster};

/// Timeout of reading a server's position.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of a statement that stops or starts the applier: `STOP` waits for the current transaction.
const ORDER_TIMEOUT: Duration = Duration::from_secs(60);
/// How long Replimeter tries to start the applier again at the end, also after an error or a panic.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(60);

/// Progress of the measurement.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Name of the replica.
    pub replica: String,
    /// Number of workers, if requested.
    pub workers: Option<u32>,
    /// Current phase.
    pub phase: BacklogPhase,
    /// Time since the phase began.
    pub since: Duration,
    /// Transactions not applied by the replica.
    pub behind: u64,
}

/// An event during a run.
#[derive(Clone, Debug)]
pub enum Event {
    /// The progress, about once a second.
    Progress(Progress),
    /// All rows, with another one; only if the listener takes figures of the run so far.
    Rows(Vec<BacklogRow>),
}

/// Timeouts for servers.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// Timeout of reading a position.
    pub answer: Duration,
    /// Timeout of one statement that stops or starts the applier.
    pub order: Duration,
    /// Timeout of all attempts to restore the applier.
    pub release: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            answer: ANSWER_TIMEOUT,
            order: ORDER_TIMEOUT,
            release: RELEASE_TIMEOUT,
        }
    }
}

/// How appliers are restored.
#[derive(Clone, Copy)]
pub struct Restoring<'a> {
    /// The appliers that every exit of the program restores.
    pub held: &'a HeldAppliers,
    /// Timeouts for servers.
    pub timeouts: Timeouts,
    /// Receives messages that the user must see: an applier could not be started yet.
    pub say: &'a dyn Fn(&str),
}

/// Result of the measurement.
#[derive(Debug, Default)]
pub struct Outcome {
    /// A row per replica and number of workers; the last one may be incomplete.
    pub rows: Vec<BacklogRow>,
    /// Whether the user stopped the run.
    pub interrupted: bool,
    /// The error that ended the run early.
    pub failure: Option<MeasureError>,
    /// Warnings about the figures.
    pub warnings: Vec<Warning>,
    /// Time from the first reading to the last.
    pub measured: Nanos,
}

/// Measures every replica with every number of workers. The target must have passed [`check()`], and
/// the load must be prepared.
pub fn run(
    cluster: &mut Cluster,
    plan: &BacklogPlan,
    load: &mut BackgroundLoad,
    clock: &Clock,
    restoring: Restoring<'_>,
    listener: &mut Listener<'_, Event>,
) -> Outcome {
    let mut outcome = Outcome::default();
    let workers: Vec<Option<u32>> = if plan.workers.is_empty() {
        vec![None]
    } else {
        plan.workers.iter().copied().map(Some).collect()
    };
    for index in 0..cluster.replicas.len() {
        for workers in &workers {
            let mut round = Round::new(plan, clock, restoring, index, *workers, listener);
            let mut row = None;
            let ended = round.measure(cluster, load, &mut row);
            outcome.measured = outcome.measured + (clock.now() - round.origin);
            outcome.warnings.append(&mut round.warnings);
            outcome.rows.extend(row);
            let ended = match listener.so_far {
                // An error of the round comes first.
                true => ended.and(listener.send(Event::Rows(outcome.rows.clone()))),
                false => ended,
            };
            match ended {
                Ok(()) if !listener.is_stopped() => {}
                Ok(()) | Err(MeasureError::Interrupted) => {
                    outcome.interrupted = true;
                    return outcome;
                }
                Err(error) => {
                    outcome.failure = Some(error);
                    return outcome;
                }
            }
        }
    }
    outcome
}
