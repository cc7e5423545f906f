//! What a crash of the primary would take, at any moment: transactions in its log that no
//! replica has received.
//!
//! The primary's binary log is followed, and every replica is asked, at one beat, what it
//! has received. Nothing is written, except by writers of ours in a sandbox of ours.

mod asker;
mod check;
mod figures;
mod looking;
mod pending;

use std::{
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use replimeter_engine::binlog::{Follower, Start};
use replimeter_model::{
    exposure::{ExposureRow, ExposureSample, ExposureWindow},
    plan::ExposurePlan,
    time::Nanos,
    warning::Warning,
};
use replimeter_stats::signed::SignedHistogram;
use serde::{Deserialize, Serialize};

pub use self::check::check;
use self::{asker::Asker, looking::Looking};
use crate::{
    MeasureError,
    clock::Clock,
    loss::{
        make_table,
        writers::{Load, Style, Writer},
    },
    preflight::{CheckedReplica, Cluster},
    tap::{server_ids, stream::Stream},
};

/// What happens in the course of a run.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// A look.
    Sample(&'a ExposureSample),
    /// The figures of a stretch.
    Window(&'a ExposureWindow),
    /// A connection was lost, or is there again.
    Note(&'a str),
}

/// What the caller does with the run as it goes.
pub struct Listener<'a> {
    /// Takes every event; an error ends the run.
    pub on: &'a mut dyn FnMut(Event<'_>) -> Result<(), String>,
    /// Becomes true when the user wants the run to end.
    pub stop: &'a AtomicBool,
}

impl Listener<'_> {
    fn tell(&mut self, event: Event<'_>) -> Result<(), MeasureError> {
        (self.on)(event).map_err(MeasureError::Sink)
    }
}

/// How a run ended.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// The figures; the caller fills in the shape.
    pub row: ExposureRow,
    /// The age of the oldest exposed transaction, at each look; 0 when there is none.
    pub age: SignedHistogram,
    /// How long was looked.
    pub measured: Nanos,
    /// Rows that our writers inserted.
    pub written: Option<u64>,
    /// Whether the user ended it.
    pub interrupted: bool,
    /// What ended it early.
    #[serde(skip)]
    pub failure: Option<MeasureError>,
    /// What a reader must know.
    pub warnings: Vec<Warning>,
}

/// Why nothing that was acknowledged is ever exposed in a mode.
#[must_use]
pub fn zero_by_construction(mode: &str) -> Option<&'static str> {
    match mode {
        "semi-sync" => Some(
            "the primary acknowledges a transaction only after a replica has written it to its relay log, unless it falls back to asynchronous replication",
        ),
        "galera" => Some(
            "a transaction is acknowledged only after every node has received and certified it",
        ),
        "group" => {
            Some("a transaction is acknowledged only after a majority of the group has received it")
        }
        _ => None,
    }
}

/// Looks until the plan's time is over, the user ends it, or the primary has been gone for too long. The time in which its
/// log cannot be followed counts for nothing; a primary that is gone at the end makes the run a failed one.
///
/// # Errors
/// When it cannot begin.
pub fn run(
    cluster: &mut Cluster,
    plan: &ExposurePlan,
    clock: &Clock,
    real_time: bool,
    listener: &mut Listener<'_>,
) -> Result<Outcome, MeasureError> {
    let row = ExposureRow {
        engine: cluster.primary.facts.engine.name().to_owned(),
        mode: cluster.mode.to_owned(),
        zero_by_construction: zero_by_construction(cluster.mode).map(str::to_owned),
        ..ExposureRow::default()
    };
    if matches!(cluster.mode, "galera" | "group") {
        return Ok(Outcome {
            row,
            ..Outcome::default()
        });
    }
    let ids = server_ids(cluster, plan.server_id, 1)?;
    let (writers, askers) = (writers(cluster, plan)?, askers(cluster));
    let names = cluster.replica_names();
    let follower = Follower::open(
        &cluster.primary.node,
        &cluster.primary.facts,
        ids[0],
        &Start::Now,
    )?;
    let semi_sync = (cluster.mode == "semi-sync").then(|| cluster.primary.impatient());
    let (stream, load) = (Stream::default(), Load::default());
    let style = Style {
        writers: plan.writers,
        size: plan.row_size,
        rate: plan.rate,
        journal: false,
    };
    let mut looking = Looking::new(plan, clock, names, &stream, askers.len(), semi_sync);
    thread::scope(|scope| {
        let (stream, load) = (&stream, &load);
        let follow = scope.spawn(move || stream.follow(follower, clock, real_time, Duration::ZERO));
        for (number, writer) in (0..).zip(writers) {
            scope.spawn(move || load.write(writer, number, style, clock));
        }
        let (answer, answers) = mpsc::channel();
        let mut beats = Vec::new();
        for asker in askers {
            let (beat, beaten) = mpsc::channel();
            beats.push(beat);
            let answer = answer.clone();
            scope.spawn(move || asker.answer(&beaten, &answer, clock, real_time));
        }
        let result = looking.go(&beats, &answers, listener);
        load.stop.store(true, Ordering::Relaxed);
        stream.halt.store(true, Ordering::Relaxed);
        drop(beats);
        if let Err(error) = result {
            looking.outcome.failure.get_or_insert(error);
        }
        if follow.join().is_err() {
            looking.outcome.failure.get_or_insert(MeasureError::Thread);
        }
    });
    Ok(looking.sum_up(row, &load))
}

/// Connections that write, with their table; none for a plan without writers.
fn writers(cluster: &mut Cluster, plan: &ExposurePlan) -> Result<Vec<Writer>, MeasureError> {
    if plan.writers > 0 {
        make_table(cluster)?;
    }
    let open = |_| Writer::open(&cluster.primary.node);
    Ok((0..plan.writers).map(open).collect::<Result<_, _>>()?)
}

/// Who asks each replica.
fn askers(cluster: &Cluster) -> Vec<Asker> {
    let asker = |(replica, checked): (usize, &CheckedReplica)| Asker {
        replica,
        node: checked.server.impatient(),
        facts: checked.server.facts.clone(),
    };
    cluster.replicas.iter().enumerate().map(asker).collect()
}
