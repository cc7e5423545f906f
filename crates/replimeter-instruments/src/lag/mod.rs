//! Lag: writers on the primary, and for each replica an observer of every method
//! asked for, all on one clock, none waiting for another.

mod arrivals;
mod board;
mod collector;
mod falls;
mod methods;
mod observer;
mod part;
mod script;
mod seen;
pub mod stages;
mod stamps;
mod tap;
mod waiter;
mod watcher;
mod writer;

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use replimeter_engine::{Node, ServerError, Session, flavour::written::Written};
use replimeter_model::{
    plan::{LagPlan, Method},
    sample::{LagSample, Write},
    stages::Stages,
    time::Nanos,
    warning::{Warning, WarningCode},
};
use replimeter_stats::signed::SignedHistogram;
use serde::{Deserialize, Serialize};

use self::{collector::Ending, part::Part, script::Script};
pub use self::{
    collector::Progress,
    methods::{Possible, possible},
};
use crate::{
    MeasureError,
    clock::Clock,
    preflight::Cluster,
    priority::prepare_measuring_thread,
    table::{Held, POINT_SELECT, payload},
};

/// Bytes that a packet needs beside the payload.
const PACKET_OVERHEAD: u64 = 256;
/// Largest `max_allowed_packet` any server can be set to, in bytes.
pub const LARGEST_PACKET: u64 = 1 << 30;
/// Point selects whose round trips make the yardstick.
const POINT_SELECTS: usize = 2000;
/// Point selects before those, not counted.
const POINT_SELECTS_WARM_UP: usize = 200;
/// How much longer than the plan's time-out a session waits for an answer.
const ANSWER_MARGIN: Duration = Duration::from_secs(2);

/// One replica, observed in one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    /// Index among the observed servers.
    replica: usize,
    method: Method,
}

/// How two methods differ on one row.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Compared {
    /// The replica's index in the target.
    pub replica: usize,
    /// The method that is held against another.
    pub method: Method,
    /// The other.
    pub reference: Method,
    /// The row.
    pub write: Write,
    /// When the method saw the row, less when the other did.
    pub difference: Nanos,
}

/// What happens in the course of a run.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// A sample; they come in no particular order of replicas.
    Sample(&'a LagSample),
    /// How two methods differ on a row that all of them saw.
    Compared(&'a Compared),
    /// How far the run is, a few times a second.
    Progress(&'a Progress),
}

/// What the caller does with the run as it goes.
pub struct Listener<'a> {
    /// Takes every event; an error ends the run.
    pub on: &'a mut dyn FnMut(Event<'_>) -> Result<(), String>,
    /// Becomes true when the user wants the run to end.
    pub stop: &'a AtomicBool,
}

/// How a run ended and what is not in its samples.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Largest payload that every server accepts, in bytes; larger ones were cut.
    pub size_limit: u64,
    /// The rows that the table may hold, for a following run on it.
    #[serde(skip)]
    pub held: Held,
    /// Counted rounds that were written.
    pub rounds: u64,
    /// Whether the user ended it.
    pub interrupted: bool,
    /// What ended it early.
    #[serde(skip)]
    pub failure: Option<MeasureError>,
    /// Round trips of a point select on the otherwise idle primary.
    pub point_select: SignedHistogram,
    /// Round trips of point selects that were under way when a write was
    /// acknowledged.
    pub point_select_at_ack: SignedHistogram,
    /// How late the writes started against their schedule.
    pub lateness: SignedHistogram,
    /// From the first counted send to the last acknowledgement.
    pub measured: Nanos,
    /// The waterfall of each replica; empty when stages were not observed.
    pub stages: Vec<Option<Stages>>,
    /// What a reader must know.
    pub warnings: Vec<Warning>,
}

/// Cuts the plan's sizes down to what every server accepts.
fn clamp(cluster: &Cluster, plan: &LagPlan, warnings: &mut Vec<Warning>) -> u64 {
    let limit = cluster
        .max_allowed_packet()
        .unwrap_or(LARGEST_PACKET)
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

/// The row that the yardstick's select of this number asks for: all rows in turn,
/// in an order that no cache line follows.
fn yardstick_row(number: u64, rows: std::ops::Range<u64>) -> u64 {
    rows.start + number.wrapping_mul(7919) % (rows.end - rows.start).max(1)
}

/// Round trips of one prepared select of one row by its primary key, on a thread of its own, since it takes
/// real-time priority as the observer does.
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
    use mysql::prelude::Queryable;
    let mut session = Session::open(node)?;
    let doing = "cannot measure a point select";
    let prepared = session.conn().prep(POINT_SELECT);
    let statement = prepared.map_err(|error| session.error(doing, &error))?;
    let mut trips = SignedHistogram::default();
    prepare_measuring_thread(real_time);
    for round in 0..POINT_SELECTS_WARM_UP + POINT_SELECTS {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let id = yardstick_row(round as u64, rows.clone());
        let began = clock.now();
        let row = session.conn().exec::<u64, _, _>(&statement, (id,));
        let ended = clock.now();
        row.map_err(|error| session.error(doing, &error))?;
        if round >= POINT_SELECTS_WARM_UP {
            trips.record(ended - began);
        }
    }
    Ok(trips)
}

/// Whether the stages can be observed, when they are to be, before anything is written.
///
/// # Errors
/// When writes cannot be told apart by their GTIDs.
pub fn check_stages(cluster: &mut Cluster, plan: &LagPlan) -> Result<(), ServerError> {
    // A Galera node tells nothing, so nothing is asked for by GTID.
    if !plan.stages || cluster.primary.galera.is_some() {
        return Ok(());
    }
    Written::prepare(&mut cluster.primary.session, &cluster.primary.facts)
        .map(|_| ())
        .map_err(|mut error| {
            error.doing = "cannot observe the stages".to_owned();
            error.hint = "set gtid_mode=ON on every server, or remove --stages".to_owned();
            error
        })
}

/// Measures. The table must be there; see [`crate::table::ProbeTable`]. It may hold the rows
/// `held`: the default for a new table, and what the outcome says for another run on it.
///
/// The run has two parts: the *floor*, in which the primary is observed as if it
/// were its own replica, and the measurement proper. Without replicas the
/// measurement proper observes the primary too.
///
/// # Errors
/// When the run could not begin. What goes wrong later is in the outcome, beside
/// what was measured until then.
pub fn run(
    cluster: &mut Cluster,
    plan: &LagPlan,
    possible: &Possible,
    mut held: Held,
    clock: &Clock,
    listener: &mut Listener<'_>,
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
                    listener: &mut Listener<'_>| {
        let part = Part {
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
    // The first row proves that what the primary writes arrives, before anything
    // is counted.
    let observed = if replicas.is_empty() {
        null_replica
    } else {
        replicas.as_slice()
    };
    if !part(Script::proof(), observed, cluster, &mut outcome, listener)? {
        return Err(outcome.failure.unwrap_or(MeasureError::Interrupted));
    }
    // From here on there is something to keep, whatever happens.
    let mut rest = || -> Result<(), MeasureError> {
        if plan.floor_rounds > 0 {
            let floor = Script::floor(plan);
            if !part(floor, null_replica, cluster, &mut outcome, listener)? {
                return Ok(());
            }
            let rows = first_id + 1..first_id + 1 + plan.floor_rounds * 2;
            outcome.point_select =
                point_selects(clock, &primary, rows, plan.real_time, listener.stop)?;
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

fn absorb(outcome: &mut Outcome, ending: Ending) {
    outcome.rounds += ending.counted;
    outcome.interrupted |= ending.interrupted;
    outcome.failure = outcome.failure.take().or(ending.failure);
    outcome.lateness.merge(&ending.lateness);
    outcome.point_select_at_ack.merge(&ending.at_ack);
    outcome.measured = outcome.measured + ending.measured;
    outcome.warnings.extend(ending.warnings);
    outcome.stages.extend(ending.stages);
}
