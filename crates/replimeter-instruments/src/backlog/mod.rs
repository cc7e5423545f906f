//! How fast a replica catches up: its applier is stopped while a load goes on, and
//! started again, first beside the load and then without it.

mod applier;
mod check;
mod connection;
mod course;
mod eyes;
mod orders;
pub(crate) mod position;
mod release;
mod round;
mod walked;

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use replimeter_model::{
    backlog::{BacklogPhase, BacklogRow},
    plan::BacklogPlan,
    time::Nanos,
    warning::Warning,
};

use self::round::Round;
pub use self::{check::check, release::restore_all};
use crate::{MeasureError, clock::Clock, load::BackgroundLoad, preflight::Cluster};

/// How long a server may take to answer which transactions it has.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a statement that stops or starts the applier may take: `STOP` waits for the transaction that is being applied.
const ORDER_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the applier is tried to be started again when the measurement ends, even when by an error or a panic.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(60);

/// How far the measurement is.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Which replica.
    pub replica: String,
    /// With how many workers, when that is asked for.
    pub workers: Option<u32>,
    /// What it is doing.
    pub phase: BacklogPhase,
    /// For how long.
    pub since: Duration,
    /// Transactions that it has not applied.
    pub behind: u64,
}

/// How long servers are waited for.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// For which transactions they have.
    pub answer: Duration,
    /// For one statement that stops or starts the applier.
    pub order: Duration,
    /// For all attempts to bring the applier back to how it was.
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

/// What the caller does with the measurement as it goes.
pub struct Listener<'a> {
    /// Takes word of how far it is, about once a second.
    pub progress: &'a mut dyn FnMut(Progress),
    /// Takes a line that the user must see: an applier could not be started again yet.
    pub say: &'a dyn Fn(&str),
    /// How long servers are waited for.
    pub timeouts: Timeouts,
    /// Becomes true when the user wants it to end.
    pub stop: &'a AtomicBool,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Outcome {
    /// A row for each replica and number of workers, the last one perhaps not to its end.
    pub rows: Vec<BacklogRow>,
    /// Whether the user ended it.
    pub interrupted: bool,
    /// What ended it early.
    pub failure: Option<MeasureError>,
    /// What a reader must know.
    pub warnings: Vec<Warning>,
    /// From the first reading to the last.
    pub measured: Nanos,
}

/// Measures every replica with every number of workers; the target must have
/// passed [`check()`], and the load be prepared.
pub fn run(
    cluster: &mut Cluster,
    plan: &BacklogPlan,
    load: &mut BackgroundLoad,
    clock: &Clock,
    listener: &mut Listener<'_>,
) -> Outcome {
    let mut outcome = Outcome::default();
    let workers: Vec<Option<u32>> = if plan.workers.is_empty() {
        vec![None]
    } else {
        plan.workers.iter().copied().map(Some).collect()
    };
    for index in 0..cluster.replicas.len() {
        for workers in &workers {
            let mut round = Round::new(plan, clock, index, *workers, listener);
            let mut row = None;
            let ended = round.measure(cluster, load, &mut row);
            outcome.measured = outcome.measured + (clock.now() - round.origin);
            outcome.warnings.append(&mut round.warnings);
            outcome.rows.extend(row);
            match ended {
                Ok(()) if !listener.stop.load(Ordering::Relaxed) => {}
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
