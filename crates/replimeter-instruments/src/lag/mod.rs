//! Measures lag: writers on the primary, and for each replica an observer per method. All use one
//! clock, and none waits for another.

mod arrivals;
mod collector;
mod methods;
mod observer_event;
mod replica_poller;
pub mod results;
mod row_numbers;
mod run_phase;
pub mod sample;
mod script;
pub mod settings;
mod shared_state;
pub mod stage_joiner;
mod stage_watcher;
mod stamps;
pub mod summary;
mod tap;
mod waiter;
mod waterfalls;
mod writer;

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use replimeter_engine::{Node, ServerError, Session, dialect::stages, session::Bound};
use replimeter_model::{
    stages::Stages,
    time::Nanos,
    warning::{Warning, WarningCode},
};
use replimeter_stats::signed::SignedHistogram;
use serde::{Deserialize, Serialize};

use self::{
    collector::PartEnd,
    run_phase::RunPhase,
    sample::{LagSample, Write},
    script::Script,
    settings::{LagPlan, Method},
};
pub use self::{
    collector::Progress,
    methods::{AvailableMethods, available_methods},
};
use crate::{
    Listener, MeasureError,
    clock::Clock,
    preflight::Cluster,
    priority::prepare_measuring_thread,
    table::{POINT_SELECT, RowBudget, payload},
};

/// Bytes that a packet needs in addition to the payload.
const PACKET_OVERHEAD: u64 = 256;
/// The largest `max_allowed_packet` that any server supports, in bytes.
pub const MAX_PACKET_SIZE: u64 = 1 << 30;
/// Number of point selects for the reference.
const POINT_SELECTS: usize = 2000;
/// Number of point selects before these that do not count.
const POINT_SELECTS_WARM_UP: usize = 200;
/// Time that a session waits for an answer in addition to the plan's timeout.
const ANSWER_MARGIN: Duration = Duration::from_secs(2);

/// One replica, observed with one method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    /// Index of the replica among the observed servers.
    replica: usize,
    method: Method,
}

/// The difference between two methods for one row.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct MethodComparison {
    /// The replica's index in the target.
    pub replica: usize,
    /// The method that is compared.
    pub method: Method,
    /// The method that it is compared with.
    pub reference: Method,
    /// The row.
    pub write: Write,
    /// When the method saw the row, minus when the reference saw it.
    pub difference: Nanos,
}

/// An event during a run.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// A sample; samples of several replicas come in any order.
    Sample(LagSample),
    /// The difference between two methods for a row that all methods saw.
    Compared(MethodComparison),
    /// Progress of the run, a few times a second.
    Progress(Progress),
}

/// Result of a run, without its samples.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// The largest payload that every server accepts, in bytes; larger payloads were reduced to it.
    pub size_limit: u64,
    /// The rows that the table may hold, for the next run on it.
    #[serde(skip)]
    pub held: RowBudget,
    /// Number of counted rounds that were written.
    pub rounds: u64,
    /// Whether the user stopped the run.
    pub interrupted: bool,
    /// The error that ended the run early.
    #[serde(skip)]
    pub failure: Option<MeasureError>,
    /// Round trips of point selects on the otherwise idle primary.
    pub point_select: SignedHistogram,
    /// Round trips of point selects that were in progress when a write was acknowledged.
    pub point_select_at_ack: SignedHistogram,
    /// Time from the intended to the actual start of each write.
    pub lateness: SignedHistogram,
    /// Time from the first counted send to the last acknowledgement.
    pub measured: Nanos,
    /// The stages of each replica; empty when they were not observed.
    pub stages: Vec<Option<Stages>>,
    /// Warnings about the figures.
    pub warnings: Vec<Warning>,
}

impl Outcome {
    /// Adds the outcome of another start of the same servers.
    pub fn absorb(&mut self, other: Self) {
        let Self {
            size_limit,
            held,
            rounds,
            interrupted,
            failure,
            point_select,
            point_select_at_ack,
            lateness,
            measured,
            stages,
            warnings,
        } = other;
        self.size_limit = match self.size_limit {
            0 => size_limit,
            known => known.min(size_limit),
        };
        self.held = held;
        self.rounds += rounds;
        self.interrupted |= interrupted;
        self.failure = self.failure.take().or(failure);
        self.point_select.merge(&point_select);
        self.point_select_at_ack.merge(&point_select_at_ack);
        self.lateness.merge(&lateness);
        self.measured = self.measured + measured;
        self.stages.extend(stages);
        for warning in warnings {
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
    }
}

/// Returns the largest payload that every server accepts, in bytes, and warns when the plan asks for
/// more.
fn clamp(cluster: &Cluster, plan: &LagPlan, warnings: &mut Vec<Warning>) -> u64 {
    let limit = cluster
        .max_allowed_packet()
        .unwrap_or(MAX_PACKET_SIZE)
        .saturating_sub(PACKET_OVERHEAD)
        .max(1);
    let wanted = plan.largest_size();
    if wanted > limit {
        warnings.push(Warning::new(
            WarningCode::PayloadClamped,
            format!(
                "the payload was reduced from {wanted} to {limit} bytes: the smallest max_allowed_packet is {} bytes, including {PACKET_OVERHEAD} for the statement",
                limit + PACKET_OVERHEAD
            ),
            "raise max_allowed_packet on every server to measure larger rows",
        ));
    }
    limit
}

/// Returns the row that the reference's select of this number reads: every row once, in an order that
/// no cache line follows.
fn reference_select_row(number: u64, rows: std::ops::Range<u64>) -> u64 {
    rows.start + number.wrapping_mul(7919) % (rows.end - rows.start).max(1)
}

/// Measures the round trips of a prepared select of one row by its primary key. Runs on its own thread,
/// because it takes real-time priority as the observers do.
fn point_selects(
    clock: &Clock,
    node: &Node,
    rows: std::ops::Range<u64>,
    real_time: bool,
    stop: &AtomicBool,
) -> Result<SignedHistogram, MeasureError> {
    let trips = thread::scope(|scope| {
        scope
            .spawn(|| select_points(clock, node, rows, real_time, stop))
            .join()
    });
    Ok(trips.map_err(|_| MeasureError::Thread)??)
}

fn select_points(
    clock: &Clock,
    node: &Node,
    rows: std::ops::Range<u64>,
    real_time: bool,
    stop: &AtomicBool,
) -> Result<SignedHistogram, ServerError> {
    let mut session = Session::open(node)?;
    let operation = "cannot measure a point select";
    let statement = session.prepare(operation, &POINT_SELECT)?;
    let mut trips = SignedHistogram::default();
    prepare_measuring_thread(real_time);
    for round in 0..POINT_SELECTS_WARM_UP + POINT_SELECTS {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let id = reference_select_row(round as u64, rows.clone());
        let began = clock.now();
        let row = session.number(operation, &statement, [Bound::Number(id)]);
        let ended = clock.now();
        row?;
        if round >= POINT_SELECTS_WARM_UP {
            trips.record(ended - began);
        }
    }
    Ok(trips)
}

/// Checks that the stages can be observed, if the plan asks for them. Nothing is written.
///
/// # Errors
/// When writes have no ids.
pub fn check_stages(cluster: &mut Cluster, plan: &LagPlan) -> Result<(), ServerError> {
    if !plan.stages || !stages::are_reported(&cluster.primary.membership) {
        return Ok(());
    }
    stages::check_writer(&mut cluster.primary.session, &cluster.primary.facts)
}

/// Runs the measurement. The table must exist; see [`crate::table::ProbeTable`]. It may hold the rows
/// `held`: the default for a new table, or the value in the outcome of an earlier run on it.
///
/// The run has two parts: the *floor*, in which the primary is observed as if it were its own replica,
/// and the measurement itself. Without replicas the measurement observes the primary too.
///
/// # Errors
/// When the run could not begin. Later errors are in the outcome, next to the results until then.
pub fn run(
    cluster: &mut Cluster,
    plan: &LagPlan,
    possible: &AvailableMethods,
    mut held: RowBudget,
    clock: &Clock,
    listener: &mut Listener<'_, Event>,
) -> Result<Outcome, MeasureError> {
    let mut warnings = Vec::new();
    let limit = clamp(cluster, plan, &mut warnings);
    let bytes = payload(plan.largest_size().min(limit));
    let answer = plan.timeout.0 + ANSWER_MARGIN;
    let patient = |node: &Node| Node {
        answer,
        ..node.clone()
    };
    let primary = patient(&cluster.primary.node);
    let replicas: Vec<Node> = cluster.replica_nodes().iter().map(patient).collect();
    let mut outcome = Outcome {
        warnings,
        size_limit: limit,
        ..Outcome::default()
    };
    let first_id = held.ids.end;
    let mut part = |script: Script,
                    observed: &[Node],
                    cluster: &mut Cluster,
                    outcome: &mut Outcome,
                    listener: &mut Listener<'_, Event>| {
        let part = RunPhase {
            primary: &primary,
            observed,
            possible,
            bytes: &bytes,
            limit,
            clock,
            plan,
        };
        let ending = part.run(script, &mut held, cluster, listener)?;
        absorb(outcome, ending);
        Ok::<bool, MeasureError>(outcome.failure.is_none() && !outcome.interrupted)
    };
    let null_replica = std::slice::from_ref(&primary);
    // The first row shows that writes of the primary arrive, before anything counts.
    let observed = if replicas.is_empty() {
        null_replica
    } else {
        replicas.as_slice()
    };
    if !part(
        Script::single_row(),
        observed,
        cluster,
        &mut outcome,
        listener,
    )? {
        return Err(outcome.failure.unwrap_or(MeasureError::Interrupted));
    }
    // From here on there are results to keep, even after an error.
    let mut rest = || -> Result<(), MeasureError> {
        if plan.floor_rounds > 0 {
            let floor = Script::floor(plan);
            if !part(floor, null_replica, cluster, &mut outcome, listener)? {
                return Ok(());
            }
            let rows = first_id + 1..first_id + 1 + plan.floor_rounds * 2;
            outcome.point_select = point_selects(
                clock,
                &primary,
                rows,
                plan.cores.real_time.on,
                listener.stop,
            )?;
        }
        let measure = Script::measure(plan);
        part(measure, observed, cluster, &mut outcome, listener).map(drop)
    };
    match rest() {
        Ok(()) => {}
        Err(MeasureError::Interrupted) => outcome.interrupted = true,
        Err(error) => outcome.failure = Some(error),
    }
    outcome.held = held;
    Ok(outcome)
}

fn absorb(outcome: &mut Outcome, ending: PartEnd) {
    outcome.rounds += ending.counted;
    outcome.interrupted |= ending.interrupted;
    outcome.failure = outcome.failure.take().or(ending.failure);
    outcome.lateness.merge(&ending.lateness);
    outcome.point_select_at_ack.merge(&ending.at_ack);
    outcome.measured = outcome.measured + ending.measured;
    outcome.warnings.extend(ending.warnings);
    outcome.stages.extend(ending.stages);
}
