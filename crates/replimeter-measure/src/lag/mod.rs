//! Lag by polling: a writer on the primary, an observer on each replica, all on
//! one clock, none waiting for another.

mod board;
mod collector;
mod observer;
mod script;
pub mod stages;
mod writer;

use std::{
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use replimeter_model::{
    plan::LagPlan,
    sample::{LagSample, Phase},
    time::Nanos,
    warning::{Warning, WarningCode},
};
use replimeter_server::{Node, ServerError, Session};
use replimeter_stats::signed::SignedHistogram;

pub use self::collector::Progress;
use self::{
    board::{Board, HaltOnDrop},
    collector::{Collector, Ending},
    script::Script,
};
use crate::{
    MeasureError,
    clock::Clock,
    preflight::Cluster,
    priority::prepare_measuring_thread,
    table::{POINT_SELECT, payload},
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

/// What the caller does with the run as it goes.
pub struct Listener<'a> {
    /// Takes each sample, in no particular order of replicas.
    pub sample: &'a mut dyn FnMut(&LagSample) -> Result<(), String>,
    /// Takes word of how far the run is, a few times a second.
    pub progress: &'a mut dyn FnMut(Progress),
    /// Becomes true when the user wants the run to end.
    pub stop: &'a AtomicBool,
}

/// How a run ended and what is not in its samples.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Largest payload that every server accepts, in bytes; larger ones were cut.
    pub size_limit: u64,
    /// Counted rounds that were written.
    pub rounds: u64,
    /// Whether the user ended it.
    pub interrupted: bool,
    /// What ended it early.
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
    /// What a reader must know.
    pub warnings: Vec<Warning>,
}

/// Cuts the plan's sizes down to what every server accepts.
fn clamp(cluster: &Cluster, plan: &LagPlan, warnings: &mut Vec<Warning>) -> u64 {
    let limit = cluster.max_allowed_packet().unwrap_or(LARGEST_PACKET).saturating_sub(PACKET_OVERHEAD).max(1);
    let wanted = plan.largest_size();
    if wanted > limit {
        warnings.push(Warning::new(
            WarningCode::PayloadClamped,
            format!(
                "the payload of {wanted} bytes was cut to {limit}: the smallest max_allowed_packet is {} bytes, less {PACKET_OVERHEAD} for the statement",
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

/// Round trips of one prepared select of one row by its primary key.
fn point_selects(
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

/// Measures. The table must be there; see [`crate::table::ProbeTable`].
///
/// The run has two parts: the *floor*, in which the primary is observed as if it
/// were its own replica, and the measurement proper. Without replicas the
/// measurement proper observes the primary too.
///
/// # Errors
/// When the run could not begin. What goes wrong later is in the outcome, beside
/// what was measured until then.
pub fn run(cluster: &mut Cluster, plan: &LagPlan, clock: &Clock, listener: &mut Listener<'_>) -> Result<Outcome, MeasureError> {
    let mut warnings = Vec::new();
    let limit = clamp(cluster, plan, &mut warnings);
    let bytes = payload(plan.largest_size().min(limit));
    let answer = plan.timeout.0 + ANSWER_MARGIN;
    let node = |node: &Node| Node { answer, ..node.clone() };
    let primary = node(&cluster.primary.node);
    let replicas: Vec<Node> = cluster.replicas.iter().map(|replica| node(&replica.server.node)).collect();
    let mut outcome = Outcome { warnings, size_limit: limit, ..Outcome::default() };
    let mut next_id = 1;
    let mut part =
        |script: Script, observed: &[Node], cluster: &mut Cluster, outcome: &mut Outcome, listener: &mut Listener<'_>| {
            let part = Part { primary: &primary, observed, bytes: &bytes, limit, clock, plan };
            let ending = part.run(script, &mut next_id, cluster, listener)?;
            absorb(outcome, ending);
            Ok::<bool, MeasureError>(outcome.failure.is_none() && !outcome.interrupted)
        };
    let null_replica = std::slice::from_ref(&primary);
    // The first row proves that what the primary writes arrives, before anything
    // is counted.
    let observed = if replicas.is_empty() { null_replica } else { replicas.as_slice() };
    part(Script::proof(), observed, cluster, &mut outcome, listener)?;
    if let Some(failure) = outcome.failure {
        return Err(failure);
    }
    if outcome.interrupted {
        return Err(MeasureError::Interrupted);
    }
    // From here on there is something to keep, whatever happens.
    let mut rest = || -> Result<(), MeasureError> {
        if plan.floor_rounds > 0 {
            if !part(Script::floor(plan), null_replica, cluster, &mut outcome, listener)? {
                return Ok(());
            }
            // On a thread of its own, since it takes real-time priority as the observer does.
            let rows = 2..2 + plan.floor_rounds * 2;
            let stop = listener.stop;
            let trips = thread::scope(|scope| scope.spawn(|| point_selects(clock, &primary, rows, plan.real_time, stop)).join());
            outcome.point_select = trips.map_err(|_| MeasureError::Thread)??;
        }
        part(Script::measure(plan), observed, cluster, &mut outcome, listener)?;
        Ok(())
    };
    match rest() {
        Ok(()) => {}
        Err(MeasureError::Interrupted) => outcome.interrupted = true,
        Err(error) => outcome.failure = Some(error),
    }
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
}

/// One part of a run: a script of writes, and who is observed meanwhile.
struct Part<'a> {
    primary: &'a Node,
    observed: &'a [Node],
    bytes: &'a [u8],
    limit: u64,
    clock: &'a Clock,
    plan: &'a LagPlan,
}

impl Part<'_> {
    fn run(
        &self,
        script: Script,
        next_id: &mut u64,
        cluster: &mut Cluster,
        listener: &mut Listener<'_>,
    ) -> Result<Ending, MeasureError> {
        let board = Board::new(self.observed.len(), *next_id - 1);
        let total = script.total();
        let phase = script.phase();
        // Everything is connected and prepared before the first write.
        let mut observers = Vec::new();
        for (index, node) in self.observed.iter().enumerate() {
            let identity = match (phase, cluster.replicas.get(index)) {
                (Phase::Floor, _) | (_, None) => cluster.primary.facts.identity(),
                (_, Some(replica)) => replica.server.facts.identity(),
            };
            observers.push(observer::Observer::open(
                node,
                index,
                &identity,
                *next_id - 1,
                self.plan.timeout.0 + delay_of(cluster),
                listener.stop,
            )?);
        }
        let writer = writer::Writer::open(self.primary, script, *next_id, self.limit, self.plan.real_time)?;
        let (sighted, sightings) = mpsc::channel();
        let (written, writes) = mpsc::channel();
        let ending = thread::scope(|scope| {
            let halt = HaltOnDrop(&board);
            let threads: Vec<_> = observers
                .into_iter()
                .map(|observer| {
                    let (sighted, board) = (sighted.clone(), &board);
                    scope.spawn(move || observer.run(self.clock, board, self.plan.real_time, &sighted))
                })
                .collect();
            drop(sighted);
            let board_of_writer = &board;
            let writer = scope.spawn(move || writer.run(self.clock, board_of_writer, self.bytes, &written));
            board.set_writer(writer.thread().clone());
            let collector = Collector::new(&board, self.clock, self.plan, self.observed.len(), phase, total);
            let mut ending = collector.run(&writes, &sightings, cluster, listener);
            // The observers end when the board says so, the writer too.
            drop(halt);
            let writer = joined(writer.join());
            let observers: Vec<MeasureError> = threads.into_iter().filter_map(|thread| joined(thread.join()).err()).collect();
            let written = writer.map(|last_id| *next_id = last_id + 1);
            // Whoever ended the run does not care what a frozen server had to say.
            if !ending.interrupted {
                // The first cause is the collector's own, then the writer's, then the observers'.
                ending.failure = ending.failure.or(written.err()).or(observers.into_iter().next());
            }
            ending
        });
        Ok(ending)
    }
}

/// What a measuring thread came to; a panic in it is an error here.
fn joined<T>(ended: thread::Result<Result<T, ServerError>>) -> Result<T, MeasureError> {
    Ok(ended.map_err(|_| MeasureError::Thread)??)
}

/// The longest configured delay of all replicas.
fn delay_of(cluster: &Cluster) -> Duration {
    cluster.replicas.iter().map(crate::preflight::CheckedReplica::delay).max().unwrap_or_default()
}
