//! Measures the transactions that a crash of the primary would lose at any time: those in its log that
//! no replica has received.
//!
//! Replimeter follows the primary's binary log and polls every replica for its received transactions.
//! It writes nothing, except with its own writers in its own sandbox.

mod check;
mod figures;
mod pending;
mod poll_loop;
mod replica_poller;
pub mod results;
pub mod settings;

use std::{
    sync::{atomic::Ordering, mpsc},
    thread,
    time::Duration,
};

use replimeter_engine::{
    dialect::acknowledgement,
    follow::{Follower, StartPosition},
};
use replimeter_model::{time::Nanos, warning::Warning};
use replimeter_stats::signed::SignedHistogram;
use serde::{Deserialize, Serialize};

pub use self::check::check;
use self::{
    poll_loop::{PollLoop, WaitStatus},
    replica_poller::ReplicaPoller,
    results::{ExposureRow, ExposureSample, ExposureWindow},
    settings::ExposurePlan,
};
use crate::{
    Listener, MeasureError,
    clock::Clock,
    loss::{
        make_table,
        writers::{Writer, WriterLoad, WriterSettings},
    },
    preflight::{CheckedReplica, Cluster},
    tap::{server_ids, stream::SharedStream},
};

/// An event during a run.
#[derive(Clone, Debug)]
pub enum Event {
    /// A poll.
    Sample(ExposureSample),
    /// The figures of a window, and those of the run so far if they are wanted.
    Window(ExposureWindow, Option<Box<ExposureRow>>),
    /// A connection was lost or restored.
    Note(String),
}

/// Result of a run.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// The figures; the caller fills in the shape.
    pub row: ExposureRow,
    /// The age of the oldest exposed transaction over time, a count for each 0.1 ms; 0 without one.
    pub age: SignedHistogram,
    /// Duration of polling.
    pub measured: Nanos,
    /// Number of rows inserted by Replimeter's writers.
    pub written: Option<u64>,
    /// Whether the user stopped it.
    pub interrupted: bool,
    /// The error that ended it early.
    #[serde(skip)]
    pub failure: Option<MeasureError>,
    /// Warnings about the figures.
    pub warnings: Vec<Warning>,
}

/// Polls until the plan's time is over, the user stops the run, or the primary has been unreachable for
/// too long. Time in which its log cannot be followed does not count; a primary that is unreachable at
/// the end makes the run fail.
///
/// # Errors
/// When it cannot begin.
pub fn run(
    cluster: &mut Cluster,
    plan: &ExposurePlan,
    clock: &Clock,
    real_time: bool,
    listener: &mut Listener<'_, Event>,
) -> Result<Outcome, MeasureError> {
    let row = ExposureRow {
        engine: cluster.primary.facts.engine.name().to_owned(),
        mode: cluster.mode,
        zero_by_construction: acknowledgement::never_exposed(cluster.mode).map(str::to_owned),
        ..ExposureRow::default()
    };
    if cluster.mode.has_members() {
        return Ok(Outcome {
            row,
            ..Outcome::default()
        });
    }
    let ids = server_ids(cluster, plan.server_id, 1)?;
    let (writers, pollers) = (writers(cluster, plan)?, pollers(cluster));
    let names = cluster.replica_names();
    let replicas = cluster.replicas.iter();
    let origins = replicas.filter_map(|replica| replica.server.origin());
    let origins = origins.collect();
    let follower = Follower::open(
        &cluster.primary.node,
        &cluster.primary.facts,
        ids[0],
        &StartPosition::Now,
    )?;
    let waits = cluster.primary.membership.waits.as_ref();
    let waits = waits
        .filter(|_| cluster.mode.waits_for_receipt())
        .map(|before| WaitStatus::new(cluster.primary.with_short_timeouts(), before));
    let (stream, load) = (SharedStream::default(), WriterLoad::default());
    let style = WriterSettings {
        writers: plan.writers,
        size: plan.row_size,
        rate: plan.rate,
        journal: false,
    };
    let mut poll_loop = PollLoop::new(plan, clock, names, origins, &stream, waits);
    thread::scope(|scope| {
        let (stream, load) = (&stream, &load);
        let follow = scope.spawn(move || stream.follow(follower, clock, real_time, Duration::ZERO));
        for (number, writer) in (0..).zip(writers) {
            scope.spawn(move || load.write(writer, number, style, clock));
        }
        let (answer, answers) = mpsc::channel();
        let mut polls = Vec::new();
        for poller in pollers {
            let (poll, due) = mpsc::channel();
            polls.push(poll);
            let answer = answer.clone();
            scope.spawn(move || poller.answer(&due, &answer, clock, real_time));
        }
        let result = poll_loop.run(&polls, &answers, listener);
        load.stop.store(true, Ordering::Relaxed);
        stream.halt.store(true, Ordering::Relaxed);
        drop(polls);
        if let Err(error) = result {
            poll_loop.outcome.failure.get_or_insert(error);
        }
        if follow.join().is_err() {
            poll_loop
                .outcome
                .failure
                .get_or_insert(MeasureError::Thread);
        }
    });
    Ok(poll_loop.finish(row, &load))
}

/// Returns connections that write, and creates their table; none for a plan without writers.
fn writers(cluster: &mut Cluster, plan: &ExposurePlan) -> Result<Vec<Writer>, MeasureError> {
    if plan.writers > 0 {
        make_table(cluster)?;
    }
    let open = |_| Writer::open(&cluster.primary.node);
    Ok((0..plan.writers).map(open).collect::<Result<_, _>>()?)
}

/// Returns a connection to each replica.
fn pollers(cluster: &Cluster) -> Vec<ReplicaPoller> {
    let poller = |(replica, checked): (usize, &CheckedReplica)| ReplicaPoller {
        replica,
        node: checked.server.with_short_timeouts(),
        facts: checked.server.facts.clone(),
    };
    cluster.replicas.iter().enumerate().map(poller).collect()
}
