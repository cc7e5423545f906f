//! Settings that make a read wait until it shows everything acknowledged before it.

use std::time::Duration;

use replimeter_model::{engine::Engine, read_consistency::ReadConsistency, replication::Mode};

use crate::{ErrorClass, ServerError, Session, facts::ServerFacts};

/// How reads are made to wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guarantee {
    /// The effective level, never [`ReadConsistency::On`].
    pub level: ReadConsistency,
    /// Statements at the start of a reading session.
    pub reader: Vec<String>,
    /// Statements at the start of a writing session.
    pub writer: Vec<String>,
    /// Whether the client waits for the write's GTID before it reads.
    pub by_commit_id: bool,
    /// A short description for reports; empty for none.
    pub words: String,
}

/// Returns the statement that waits for a server to apply a transaction.
fn wait_statement(engine: Engine, mode: Mode) -> &'static str {
    match (engine, mode) {
        (_, Mode::Galera) => "SELECT WSREP_SYNC_WAIT_UPTO_GTID(…)",
        (Engine::MariaDb, _) => "SELECT MASTER_GTID_WAIT(…)",
        (Engine::MySql, _) => "SELECT WAIT_FOR_EXECUTED_GTID_SET(…)",
    }
}

/// Returns how a server of this engine, which replicates in this mode, implements the level; where the limit can be set, the server refuses
/// what does not finish within `patience`.
///
/// # Errors
/// The cause and a hint, when the servers cannot implement it.
pub fn guarantee(
    level: ReadConsistency,
    engine: Engine,
    mode: Mode,
    patience: Duration,
) -> Result<Guarantee, (String, &'static str)> {
    let none = Guarantee {
        level,
        reader: Vec::new(),
        writer: Vec::new(),
        by_commit_id: false,
        words: String::new(),
    };
    let seconds = patience.as_secs().max(1);
    let galera = "SET SESSION wsrep_sync_wait = 1".to_owned();
    let consistency = |level: &str| {
        // A group member waits at most as long as a session may be idle.
        vec![
            format!("SET SESSION group_replication_consistency = '{level}'"),
            format!("SET SESSION wait_timeout = {seconds}"),
        ]
    };
    let by_gtid = || Guarantee {
        level: ReadConsistency::Commit,
        by_commit_id: true,
        words: wait_statement(engine, mode).to_owned(),
        ..none.clone()
    };
    match (level, mode) {
        (ReadConsistency::Off, _) => Ok(none),
        (ReadConsistency::Commit, _)
        | (ReadConsistency::On, Mode::None | Mode::Async | Mode::SemiSync | Mode::Chain) => {
            Ok(by_gtid())
        }
        (ReadConsistency::On | ReadConsistency::Before, Mode::Galera) => Ok(Guarantee {
            level: ReadConsistency::Before,
            words: format!("reader: {galera}"),
            reader: vec![galera],
            ..none
        }),
        (ReadConsistency::On | ReadConsistency::Before, Mode::Group) => Ok(Guarantee {
            level: ReadConsistency::Before,
            reader: consistency("BEFORE"),
            words: "reader: group_replication_consistency = BEFORE".to_owned(),
            ..none
        }),
        (ReadConsistency::After, Mode::Group) => Ok(Guarantee {
            writer: consistency("AFTER"),
            words: "writer: group_replication_consistency = AFTER".to_owned(),
            ..none
        }),
        (ReadConsistency::BeforeAndAfter, Mode::Group) => Ok(Guarantee {
            reader: consistency("BEFORE_AND_AFTER"),
            writer: consistency("BEFORE_AND_AFTER"),
            words: "reader and writer: group_replication_consistency = BEFORE_AND_AFTER".to_owned(),
            ..none
        }),
        (ReadConsistency::After | ReadConsistency::BeforeAndAfter, Mode::Galera) => Err((
            format!(
                "a Galera writer does not wait until the other nodes have applied its writes (--read-consistency={level})"
            ),
            "use --read-consistency=before, where the reader waits, or --read-consistency=gtid",
        )),
        (
            ReadConsistency::Before | ReadConsistency::After | ReadConsistency::BeforeAndAfter,
            Mode::None | Mode::Async | Mode::SemiSync | Mode::Chain,
        ) => Err((
            format!(
                "a replica with a replication channel has no setting that makes reads wait (--read-consistency={level})"
            ),
            "use --read-consistency=gtid, where the client waits for the write's GTID before it reads",
        )),
    }
}

/// Makes a session's reads wait until they show all that its server has received, where a setting does that in this mode.
///
/// # Errors
/// When the server refuses or the connection breaks.
pub fn enable(session: &mut Session, facts: &ServerFacts, mode: Mode) -> Result<(), ServerError> {
    let sql = match mode {
        Mode::Galera => "SET SESSION wsrep_sync_wait = 1",
        Mode::Group if !facts.get("group_replication_consistency").is_empty() => {
            "SET SESSION group_replication_consistency = 'BEFORE'"
        }
        _ => return Ok(()),
    };
    session.run("cannot enable synchronous reads", sql)
}

/// Returns whether a shape's servers in this mode can implement the level: what a channel can do is the same on every engine.
///
/// # Errors
/// The cause and a hint, when they cannot.
pub fn check(level: ReadConsistency, mode: Mode) -> Result<(), (String, &'static str)> {
    guarantee(level, Engine::MariaDb, mode, Duration::ZERO).map(|_| ())
}

/// The cause why a load whose reads are checked cannot wait by commit id.
pub const ADDS_A_STATEMENT: &str =
    "waiting by GTID would add a statement to the load whose reads are checked";
/// The hint for a connection pool whose resets end a guarantee.
pub const AFTER_A_RESET: &str = "a pool's reset clears session settings and session tracking of GTIDs: set them again after every reset, or globally";
/// What a site's reader waits for.
pub const WAITS_FOR_POST: &str = "the replica waits for the GTID of the visitor's post";

/// Returns the hint for a wait, as [`Guarantee::words`] describes it, that can end too early.
#[must_use]
pub fn hint_of_early_wait(words: &str) -> Option<&'static str> {
    words.contains("WSREP_SYNC_WAIT_UPTO_GTID").then_some(
        "on Galera this wait can return just before the row is readable; use wsrep_sync_wait=1 (--read-consistency=before)",
    )
}

/// Returns whether a server refused a read because its wait timed out: Galera's lock wait timeout,
/// a group's "Error while waiting for group transactions commit" and similar errors.
#[must_use]
pub fn wait_timed_out(error: &ServerError) -> bool {
    error.class().is_some_and(is_wait_timeout)
}

/// Returns the same as [`wait_timed_out`], from the error's class.
#[must_use]
pub fn is_wait_timeout(class: ErrorClass) -> bool {
    matches!(class, ErrorClass::LockTimeout | ErrorClass::WaitTimeout)
}

/// Returns whether a write, or a read on a member of a cluster, failed because of another
/// transaction and can be repeated: deadlock, lock wait timeout, changed record, failed certification or commit.
#[must_use]
pub fn conflict(error: &ServerError) -> bool {
    use ErrorClass::{Certification, ChangedRow, CommitFailed, Deadlock, LockTimeout};
    matches!(
        error.class(),
        Some(Deadlock | LockTimeout | ChangedRow | Certification | CommitFailed)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_read_guarantee_has_a_statement_or_reason() {
        let patience = Duration::from_secs(10);
        for (engine, mode) in Engine::ALL
            .into_iter()
            .flat_map(|engine| Mode::ALL.map(|mode| (engine, mode)))
        {
            for level in ReadConsistency::ALL {
                match guarantee(level, engine, mode, patience) {
                    Ok(found) => {
                        assert_ne!(found.level, ReadConsistency::On);
                        let does = found.by_commit_id
                            || !found.reader.is_empty()
                            || !found.writer.is_empty();
                        assert_eq!(does, level != ReadConsistency::Off, "{level} {mode}");
                        assert_eq!(found.words.is_empty(), level == ReadConsistency::Off);
                    }
                    Err((cause, hint)) => assert!(
                        cause.contains(level.name()) && hint.contains("--read-consistency="),
                        "{cause}"
                    ),
                }
            }
        }
    }
}
