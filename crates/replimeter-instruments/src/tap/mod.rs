//! Lag of every transaction of the real traffic, from the binary logs of primary and replicas, each
//! followed over a separate connection. Nothing is written.
//!
//! A thread per server stamps arrivals (`stream`), one thread matches the streams (`matcher`) and
//! summarizes them. `matcher` can be used on its own.

mod asked;
mod check;
mod groups;
mod log;
mod match_loop;
pub mod matcher;
pub mod results;
pub mod settings;
pub(crate) mod stream;
mod summary;

use std::{path::Path, sync::atomic::Ordering, thread, time::Duration};

use replimeter_engine::follow::{Follower, StartPosition};
use replimeter_model::{time::Nanos, warning::Warning};
use replimeter_stats::signed::SignedHistogram;
use serde::{Deserialize, Serialize};

pub(crate) use self::check::server_ids;
use self::{
    asked::AskedServers,
    match_loop::MatchLoop,
    results::{TapClock, TapFloor, TapRow, TapStream, TapWindow},
    settings::TapPlan,
    stream::SharedStream,
};
pub use self::{
    check::check,
    matcher::{Arrival, Match, Matcher, Unmatched},
};
use crate::{
    Listener, MeasureError,
    clock::{self, Clock},
    preflight::Cluster,
};

/// An event during a run.
#[derive(Clone, Debug)]
pub enum Event {
    /// The figures of a window, one for each replica (without replicas, one that has no
    /// replica's name), and those of the run so far, without groups, if they are wanted.
    Windows(Vec<TapWindow>, Option<Vec<TapRow>>),
    /// A connection was lost or restored, or a clock was set.
    Note(String),
}

/// The result of a run.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// A row for each replica; the caller fills in the shape.
    pub results: Vec<TapRow>,
    /// The lag distribution of each of them.
    pub lags: Vec<SignedHistogram>,
    /// The floor of the method.
    pub floor: Option<TapFloor>,
    /// The followed logs, the primary's first.
    pub streams: Vec<TapStream>,
    /// Clocks of servers that write times into their logs.
    pub clocks: Vec<TapClock>,
    /// The duration of the measurement.
    pub measured: Nanos,
    /// Processor time of all measuring threads.
    pub cpu: Duration,
    /// Transactions of the primary, of all schemas.
    pub transactions: u64,
    /// Maximum bytes of arrivals that waited on disk.
    pub spilled_bytes: u64,
    /// Whether the user interrupted it.
    pub interrupted: bool,
    /// The error that ended it early.
    #[serde(skip)]
    pub failure: Option<MeasureError>,
    /// Warnings about the results.
    pub warnings: Vec<Warning>,
}

/// Follows until the plan's time is over, the user interrupts or a server fails permanently.
///
/// # Errors
/// When a server cannot be followed from the beginning.
pub fn run(
    cluster: &mut Cluster,
    plan: &TapPlan,
    clock: &Clock,
    real_time: bool,
    folder: &Path,
    listener: &mut Listener<'_, Event>,
) -> Result<Outcome, MeasureError> {
    let cpu_before = clock::thread_cpu();
    let count = cluster.replicas.len();
    let twice = !plan.floor_duration.0.is_zero();
    let ids = check::server_ids(cluster, plan.server_id, count + 1 + usize::from(twice))?;
    // The replicas first: their streams then include everything that the primary's shows.
    let mut followers = Vec::new();
    for (server, id) in cluster.servers().skip(1).zip(&ids) {
        followers.push(Follower::open(
            &server.node,
            &server.facts,
            *id,
            &StartPosition::Now,
        )?);
    }
    let (node, facts) = (&cluster.primary.node, &cluster.primary.facts);
    if twice {
        followers.push(Follower::open(
            node,
            facts,
            ids[count + 1],
            &StartPosition::Now,
        )?);
    }
    let asked = AskedServers::new(cluster.servers(), clock);
    let primary = Follower::open_with(
        node,
        facts,
        ids[count],
        &StartPosition::Now,
        plan.needs_tables(),
    )?;
    let executed = primary.executed_at_start().to_owned();
    let disk = |error: std::io::Error| MeasureError::Sink(error.to_string());
    let mut matcher = Matcher::new(followers.len(), &executed, Some(folder)).map_err(disk)?;
    for ((index, replica), follower) in cluster.replicas.iter().enumerate().zip(&followers) {
        let executed = follower.executed_at_start();
        matcher.set_replica(index, replica.server.origin(), executed);
    }
    let names = cluster.replica_names();
    let records: Vec<TapStream> = std::iter::once(&primary)
        .chain(&followers)
        .map(|follower| TapStream {
            name: follower.node().name.clone(),
            server_id: follower.server_id(),
            tls: follower.tls(),
            ..TapStream::default()
        })
        .collect();
    let streams: Vec<SharedStream> = records.iter().map(|_| SharedStream::default()).collect();
    let mut match_loop = MatchLoop::new(plan, clock, matcher, names, asked, records);
    thread::scope(|scope| {
        let threads: Vec<_> = std::iter::once(primary)
            .chain(followers)
            .zip(&streams)
            .map(|(follower, stream)| {
                scope.spawn(move || stream.follow(follower, clock, real_time, plan.coalesce.0))
            })
            .collect();
        let result = match_loop.run(&streams, listener);
        streams
            .iter()
            .for_each(|stream| stream.halt.store(true, Ordering::Relaxed));
        let whole = threads.into_iter().all(|thread| thread.join().is_ok());
        if let Err(error) = result {
            match_loop.outcome.failure.get_or_insert(error);
        } else if !whole {
            match_loop
                .outcome
                .failure
                .get_or_insert(MeasureError::Thread);
        }
    });
    Ok(match_loop.finish(&streams, clock::thread_cpu().saturating_sub(cpu_before)))
}
