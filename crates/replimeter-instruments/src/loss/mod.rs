//! Measures the writes that a crash of the primary loses.
//!
//! Writers insert rows and record which were acknowledged, another session records which rows it saw;
//! then the primary ends. Replicas apply their received transactions, the most advanced one takes over,
//! and every transaction is looked up on it. Finally the old primary restarts and reports the
//! transactions that only it has.
//!
//! This module does not know how servers are ended, promoted and started: [`Faults`] does it, and only
//! the owner of a sandbox can provide it.

mod account;
mod count;
pub mod crashes;
mod drain;
mod failover;
mod id_set;
pub mod results;
pub mod settings;
mod watcher;
pub(crate) mod writers;

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use replimeter_engine::{
    ErrorClass, Node, Session, dialect::acknowledgement, position::executed, source::Faults,
};
use replimeter_model::{random::Random, time::Nanos};

use self::{
    account::account,
    count::{check, present, restart_primary},
    failover::{PrimaryFailure, Successor, discovered, fail_primary, take_over},
    id_set::IdSet,
    results::CrashRecord,
    settings::LossPlan,
    watcher::Watcher,
    writers::{JournalEntry, Writer, WriterLoad, WriterSettings},
};
use crate::{MeasureError, clock::Clock, discovery::DiscoveredServer, preflight::Cluster};

/// How long a semi-synchronous primary waits for an acknowledgement: longer than any kill delay,
/// because a primary that falls back acknowledges writes that no replica has.
pub const ACKNOWLEDGEMENT_TIMEOUT: Duration = Duration::from_secs(600);
/// Timeout of an answer: a cluster that has lost a node blocks writes for seconds.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the new primary may take to accept a write.
const TAKEOVER_TIMEOUT: Duration = Duration::from_secs(120);
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(1);

/// Context of a crash.
pub struct CrashContext<'a> {
    /// The plan.
    pub plan: &'a LossPlan,
    /// The clock.
    pub clock: &'a Clock,
    /// Receives progress messages.
    pub say: &'a dyn Fn(&str),
    /// Set when the user stops the run.
    pub stop: &'a AtomicBool,
    /// Whether semi-synchronous primaries get the timeout of Replimeter; otherwise the user has chosen
    /// one.
    pub set_timeout: bool,
}

/// Writes, crashes the primary and counts, once. `number` is the crash's number, from 1.
///
/// # Errors
/// When a server fails unexpectedly, or the user stops the run.
pub fn crash(
    cluster: &mut Cluster,
    context: &CrashContext<'_>,
    number: u64,
    faults: &mut dyn Faults,
) -> Result<CrashRecord, MeasureError> {
    (context.say)("creating the table");
    prepare(cluster, context.set_timeout)?;
    let CrashedLoad {
        began,
        failed,
        successor,
        journal,
        seen,
    } = fail_over(cluster, context, number, faults)?;
    (context.say)("counting");
    let promoted = discovered(cluster, &successor.name)?;
    let mut session = Session::open(&patient(&promoted.node))?;
    let present = present(&mut session, &promoted.facts, cluster.mode)?;
    check(&session, &journal, &present)?;
    let account = account(&journal, &seen, &present, failed.cut, failed.at);
    let micros = |moment: Nanos| (moment - failed.at).as_micros();
    let mut record = account.record(CrashRecord {
        number,
        load_us: (failed.cut.unwrap_or(failed.at) - began).as_micros(),
        promoted: successor.name,
        drained_us: successor.drained.map(micros),
        promoted_us: micros(successor.promoted),
        recovery_us: micros(successor.wrote),
        fallen_back: failed.fallen_back,
        ..CrashRecord::default()
    });
    (context.say)("waiting for the old primary to restart");
    let new = executed(&promoted.facts, &mut session)?;
    let returning = Instant::now();
    match restart_primary(cluster, context, faults, &journal, &present, &new) {
        Ok((answered, errant)) => {
            record.return_us = Some((answered - returning).as_secs_f64() * 1e6);
            record.errant = Some(errant);
        }
        Err(MeasureError::Interrupted) => return Err(MeasureError::Interrupted),
        // The crash itself was measured.
        Err(error) => record.return_error = Some(error.to_string()),
    }
    Ok(record)
}

/// A load during which the primary ended.
struct CrashedLoad {
    /// When the load began.
    began: Nanos,
    failed: PrimaryFailure,
    successor: Successor,
    /// The writers' journal.
    journal: Vec<JournalEntry>,
    /// The rows that another session saw.
    seen: IdSet,
}

/// Starts the writers, ends the primary during their load, and has another server take over.
fn fail_over(
    cluster: &mut Cluster,
    context: &CrashContext<'_>,
    number: u64,
    faults: &mut dyn Faults,
) -> Result<CrashedLoad, MeasureError> {
    let (plan, clock) = (context.plan, context.clock);
    let node = patient(&cluster.primary.node);
    let writers = (0..plan.writers)
        .map(|_| Writer::open(&node))
        .collect::<Result<Vec<_>, _>>()?;
    let watcher = Watcher::open(&node)?;
    let style = WriterSettings {
        writers: plan.writers,
        size: plan.row_size,
        rate: plan.rate,
        journal: true,
    };
    let load = WriterLoad::default();
    let began = clock.now();
    (context.say)("writing");
    let (result, journal, seen) = thread::scope(|scope| {
        let load = &load;
        let writers: Vec<_> = (0..)
            .zip(writers)
            .map(|(number, writer)| scope.spawn(move || load.write(writer, number, style, clock)))
            .collect();
        let watcher = scope.spawn(|| watcher.watch(&load.stop));
        let until = began + Nanos::from(plan.duration.0) + jitter(plan.seed, number);
        let result = fail_primary(cluster, context, load, until, faults).and_then(|failed| {
            let successor = take_over(cluster, context, failed.at, faults)?;
            Ok((failed, successor))
        });
        // The writers of a dead primary have already ended.
        load.stop.store(true, Ordering::Relaxed);
        let journal: Option<Vec<Vec<JournalEntry>>> = writers
            .into_iter()
            .map(|writer| writer.join().ok())
            .collect();
        (result, journal, watcher.join().ok())
    });
    let (failed, successor) = result?;
    let (Some(journal), Some(seen)) = (journal, seen) else {
        return Err(MeasureError::Thread);
    };
    Ok(CrashedLoad {
        began,
        failed,
        successor,
        journal: journal.into_iter().flatten().collect(),
        seen,
    })
}

/// Returns the node with a longer answer timeout.
fn patient(node: &Node) -> Node {
    Node {
        answer: ANSWER_TIMEOUT,
        ..node.clone()
    }
}

/// Returns a delay of up to a tenth of a second that depends on the seed and the crash, so that crashes
/// do not always hit the same phase of a periodic activity.
fn jitter(seed: u64, number: u64) -> Nanos {
    let mut random = Random::new(seed);
    (1..number).for_each(|_| _ = random.bits());
    Nanos((random.uniform() * 1e8) as i64)
}

/// Creates the table and waits until every server has it.
pub(crate) fn make_table(cluster: &mut Cluster) -> Result<(), MeasureError> {
    let operation = "cannot create the table";
    let primary = &mut cluster.primary.session;
    primary.run(operation, "CREATE DATABASE IF NOT EXISTS `replimeter`")?;
    primary.run(operation, &writers::definition())?;
    for replica in &mut cluster.replicas {
        let session = &mut replica.server.session;
        let began = Instant::now();
        loop {
            match session.value(
                operation,
                "SELECT id FROM `replimeter`.`loss_probe` LIMIT 1",
            ) {
                Ok(_) => break,
                Err(error) if !error.class().is_some_and(ErrorClass::is_absent) => {
                    return Err(error.into());
                }
                Err(_) if began.elapsed() > TAKEOVER_TIMEOUT => {
                    return Err(session
                        .precondition(
                            operation,
                            "it did not arrive on this replica",
                            "see the server's error log, then run again",
                        )
                        .into());
                }
                Err(_) => thread::sleep(PAUSE),
            }
        }
    }
    Ok(())
}

fn prepare(cluster: &mut Cluster, set_timeout: bool) -> Result<(), MeasureError> {
    make_table(cluster)?;
    let waits = cluster
        .primary
        .membership
        .waits
        .as_ref()
        .is_some_and(|state| state.enabled);
    if waits && set_timeout {
        let DiscoveredServer { session, facts, .. } = &mut cluster.primary;
        acknowledgement::set_timeout(session, facts, ACKNOWLEDGEMENT_TIMEOUT)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crash_times_differ_between_repetitions() {
        let all: std::collections::BTreeSet<i64> =
            (1..=20).map(|number| jitter(1, number).0).collect();
        assert_eq!(all.len(), 20);
        assert!(all.iter().all(|nanos| (0..100_000_000).contains(nanos)));
        assert_ne!(jitter(1, 1), jitter(2, 1));
    }
}
