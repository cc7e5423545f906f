//! Measures staleness: a write on one server, reads on others at chosen times after its
//! acknowledgement, and whether they show it.

mod collector;
mod connections;
mod counters;
mod judge;
mod prepare;
mod readers;
pub mod results;
mod rounds;
pub mod rows;
mod sequence;
pub mod settings;
mod shared;
pub mod summary;
mod visits;

use std::{
    sync::{
        atomic::AtomicBool,
        mpsc::{self, Sender},
    },
    thread::{self, Scope, ScopedJoinHandle},
    time::Instant,
};

use replimeter_engine::{ServerError, dialect::sync_reads::Guarantee};
use replimeter_model::{
    plan::StopCondition,
    read_consistency::ReadConsistency,
    time::Nanos,
    warning::{Warning, WarningCode},
};
use serde::{Deserialize, Serialize};

use self::{
    collector::Collector,
    prepare::{PreparedCase, counted, prepare, reader_pool},
    results::{StalePhase, StaleRound, StaleWindow},
    rounds::RoundWriter,
    rows::RowAllocation,
    sequence::{Rounds, Sequence},
    settings::{SessionReset, StalePlan},
    shared::{HaltOnDrop, Shared},
    visits::VisitorRounds,
};
pub use self::{
    readers::{ReaderRef, guarantees, readers, unknown},
    visits::{Visit, Visited, Visitor},
};
use crate::{
    Listener, MeasureError, SCHEMA, TABLE, clock::Clock, load::Versions, preflight::Cluster,
    priority::prepare_measuring_thread, table::arrival,
};

/// Privileges that the writer's user needs on the schema.
pub const WRITER_PRIVILEGES: [&str; 6] = ["CREATE", "DROP", "INSERT", "UPDATE", "DELETE", "SELECT"];

/// Fills the table, and waits until every reader has it.
///
/// # Errors
/// When a server fails, or the rows do not arrive.
pub fn fill(
    cluster: &mut Cluster,
    readers: &[ReaderRef],
    plan: &StalePlan,
    stop: &AtomicBool,
) -> Result<(), MeasureError> {
    rows::fill(cluster, u64::from(plan.rows), stop)?;
    let what = format!("the {} rows written to the writer", plan.rows);
    let hint = "check whether it is far behind and its address is correct, or raise --timeout";
    let rows = plan.rows.to_string();
    let began = Instant::now();
    for reader in readers {
        let (server, _) = reader.of(cluster);
        let patience = plan.timeout.0 + reader.delay(cluster);
        arrival(
            &server.node,
            server.facts.engine,
            patience,
            stop,
            [&what, hint],
            began,
            |session| {
                let sql = format!("SELECT COUNT(*) FROM `{SCHEMA}`.`{}`", *TABLE);
                let count = session.value("cannot read the replica", &sql)?;
                Ok(count.is_some_and(|count| count == rows))
            },
        )?;
    }
    Ok(())
}

/// Settings of one part of the measurement.
#[derive(Clone, Debug)]
pub struct MeasuredCase<'a> {
    /// The servers that are read.
    pub readers: &'a [ReaderRef],
    /// How each reader enables synchronous reads.
    pub guarantees: &'a [Guarantee],
    /// What happens to synchronous connections between rounds.
    pub pool: SessionReset,
    /// Number of the first round.
    pub first_round: u64,
    /// Whether measuring threads take real-time priority.
    pub real_time: bool,
    /// The versions that a load writes and reads, if its reads are checked instead of rounds; its
    /// servers have the same indexes as the readers.
    pub judged: Option<&'a Versions>,
}

impl MeasuredCase<'_> {
    /// Returns whether reads are synchronous.
    fn synced(&self) -> bool {
        self.guarantees
            .iter()
            .any(|guarantee| guarantee.level != ReadConsistency::Off)
    }
}

/// Progress of the part.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Current phase.
    pub phase: StalePhase,
    /// Rounds with an immediate read so far, or rounds of the curve.
    pub done: u64,
    /// Total number of rounds; `None` when a time ends the part, or when it is unknown.
    pub total: Option<u64>,
    /// Stale first reads so far, of all readers.
    pub stale: u64,
}

/// An event during a run.
#[derive(Debug)]
pub enum Event {
    /// A round has ended.
    Round(StaleRound),
    /// A window of half a second has ended.
    Window(StaleWindow),
    /// Progress of the run, a few times a second.
    Progress(Progress),
}

/// Result of a part.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Number of the next part's first round.
    pub next_round: u64,
    /// Whether the caller stopped it.
    pub interrupted: bool,
    /// The error that ended it early.
    #[serde(skip)]
    pub failure: Option<MeasureError>,
    /// Time from the first counted round to the last.
    pub measured: Nanos,
    /// Warnings about the figures.
    pub warnings: Vec<Warning>,
}

/// Measures one part, by statements on the servers or by a visitor of a site in front of them. For statements, the table must exist and
/// be [filled](fill). It ends early when the user stops the run, or `load_failed` returns true.
///
/// # Errors
/// When the part could not begin. Later errors are in the outcome.
pub fn run(
    cluster: &mut Cluster,
    plan: &StalePlan,
    part: &MeasuredCase<'_>,
    clock: &Clock,
    visitor: Option<&mut dyn Visitor>,
    load_failed: &dyn Fn() -> bool,
    listener: &mut Listener<'_, Event>,
) -> Result<Outcome, MeasureError> {
    let mut prepared = if part.judged.is_some() || visitor.is_some() {
        PreparedCase::default()
    } else {
        prepare(cluster, plan, part)?
    };
    let connections = std::mem::take(&mut prepared.connections);
    let servers = counted(cluster);
    let shared = Shared::new(clock, part.readers.len());
    let (out, heard) = mpsc::channel();
    let began = clock.now();
    let mut outcome = thread::scope(|scope| {
        let halt = HaltOnDrop(&shared);
        let shared = &shared;
        let watchers: Vec<_> = servers
            .iter()
            .map(|server| scope.spawn(move || server.watch(shared)))
            .collect();
        let threads = match visitor {
            Some(visitor) => visit(scope, plan, part, visitor, shared, out),
            None => measure(scope, plan, part, prepared, shared, began, out),
        };
        let mut collector = Collector::new(clock, plan, &servers, load_failed);
        let mut outcome = collector.run(cluster, &heard, &threads, shared, &connections, listener);
        drop(halt);
        watchers
            .iter()
            .for_each(|watcher| watcher.thread().unpark());
        outcome.next_round = part.first_round;
        for thread in threads {
            match thread.join() {
                Ok(Ok(next)) => outcome.next_round = outcome.next_round.max(next),
                // After a stop by the caller, server errors do not matter.
                Ok(Err(error)) if !outcome.interrupted => {
                    outcome.failure = outcome.failure.or(Some(error.into()))
                }
                Ok(Err(_)) => {}
                Err(_) => outcome.failure = outcome.failure.or(Some(MeasureError::Thread)),
            }
        }
        outcome
    });
    let lost = shared.lost.into_inner();
    if shared.all_lost.into_inner() && outcome.failure.is_none() {
        let error = cluster.primary.session.precondition(
            "cannot write a row",
            "conflicts aborted 100 consecutive writes (deadlock, lock wait timeout or failed certification)",
            "stop other writers of the run's table in `replimeter`; certification conflicts come from other nodes",
        );
        outcome.failure = Some(error.into());
    }
    if let Some(versions) = part.judged {
        outcome.warnings.extend(of_versions(versions));
    }
    if lost > 0 {
        outcome.warnings.push(Warning::new(
            WarningCode::LoadErrors,
            format!("conflicts aborted every attempt to write in {lost} rounds; the figures exclude these rounds"),
            "stop other writers of the run's table in `replimeter`",
        ));
    }
    Ok(outcome)
}

/// The measuring threads: each returns the number of the round after its last.
type Threads<'scope> = Vec<ScopedJoinHandle<'scope, Result<u64, ServerError>>>;

/// Starts the measuring threads: rounds, or checking the reads of a load.
fn measure<'scope>(
    scope: &'scope Scope<'scope, '_>,
    plan: &'scope StalePlan,
    part: &'scope MeasuredCase<'_>,
    prepared: PreparedCase,
    shared: &'scope Shared<'_>,
    began: Nanos,
    out: Sender<StaleRound>,
) -> Threads<'scope> {
    let (count, first_round, real_time) = (part.readers.len(), part.first_round, part.real_time);
    if let (Some(versions), StopCondition::Elapsed(length)) = (part.judged, plan.until) {
        let end = began + Nanos::from(length.0);
        return vec![scope.spawn(move || {
            judge::judge_load(versions, shared, count, end, &out);
            Ok(first_round)
        })];
    }
    let reader_pool = reader_pool(scope, prepared.readers, real_time, shared);
    let mut writers = prepared.writers.into_iter();
    let rounds = reader_pool
        .zip(writers.next())
        .map(|(reader_pool, plain)| RoundWriter {
            shared,
            plan,
            rows: RowAllocation::new(plan.seed, plan.rows),
            held: prepared.held,
            readers: count,
            plain,
            synced: writers.next(),
            pool: part.pool,
            reader_pool,
            lost: 0,
        });
    let sequence = rounds.map(|rounds| Sequence {
        shared,
        plan,
        synced: rounds.synced.is_some(),
        keeps: part.pool == SessionReset::Keep,
        rounds,
        out,
        next: first_round,
        longest: None,
    });
    let threads = sequence.map(|sequence| run_sequence(scope, sequence, real_time));
    threads.into_iter().collect()
}

/// Starts the thread of a sequence of rounds.
fn run_sequence<'scope, R: Rounds + Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    sequence: Sequence<'scope, R>,
    real_time: bool,
) -> ScopedJoinHandle<'scope, Result<u64, ServerError>> {
    scope.spawn(move || {
        prepare_measuring_thread(real_time);
        sequence.shared.work(|| sequence.run())
    })
}

/// Starts the thread of a visitor.
fn visit<'scope>(
    scope: &'scope Scope<'scope, '_>,
    plan: &'scope StalePlan,
    part: &MeasuredCase<'_>,
    visitor: &'scope mut dyn Visitor,
    shared: &'scope Shared<'_>,
    out: Sender<StaleRound>,
) -> Threads<'scope> {
    let sequence = Sequence {
        shared,
        plan,
        rounds: VisitorRounds {
            visitor,
            shared,
            plan,
        },
        synced: false,
        keeps: true,
        out,
        next: part.first_round,
        longest: None,
    };
    vec![run_sequence(scope, sequence, part.real_time)]
}

/// Returns warnings about a load's versions.
fn of_versions(versions: &Versions) -> Vec<Warning> {
    let mut warnings = Vec::new();
    if versions.foreign_writes() > 0 {
        warnings.push(Warning::new(
            WarningCode::ChangedByOthers,
            format!(
                "{} writes returned a row version that had been acknowledged before they were sent; the shares are unreliable",
                versions.foreign_writes()
            ),
            "stop other clients that set versions back, and check whether a server lost acknowledged writes",
        ));
    }
    if versions.unremembered_writes() > 0 {
        warnings.push(Warning::new(
            WarningCode::NotChecked,
            format!(
                "{} writes were of rows beyond the first million; reads of these rows were not checked",
                versions.unremembered_writes()
            ),
            "use fewer rows (--load-data-size)",
        ));
    }
    warnings
}

/// Returns a warning that another client has changed the rows of the run.
#[must_use]
pub fn changed_by_others(rounds: u64) -> Warning {
    Warning::new(
        WarningCode::ChangedByOthers,
        format!(
            "in {rounds} rounds a row held a value of another client; the figures exclude these rounds"
        ),
        "stop other writers of the run's table in `replimeter`",
    )
}
