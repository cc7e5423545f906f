//! What makes a read wait until it shows what was acknowledged before.

use std::time::Duration;

use replimeter_model::{engine::Engine, plan::SyncReads};

use crate::{ErrorKind, ServerError};

/// How a server belongs to the others, as far as its reads can be made to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A node of a Galera cluster.
    Galera,
    /// A member of a group.
    Group,
    /// A replica by a channel.
    Channel(Engine),
}

/// How it is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guarantee {
    /// The way, never [`SyncReads::On`].
    pub level: SyncReads,
    /// Statements that a reading session begins with.
    pub reader: Vec<String>,
    /// Statements that a writing session begins with.
    pub writer: Vec<String>,
    /// Whether the client waits for the write's GTID before the read.
    pub gtid: bool,
    /// In a few words, for reports; empty for nothing.
    pub words: String,
}

/// The statement by which a server is waited for.
#[must_use]
pub fn wait_words(kind: Kind) -> &'static str {
    match kind {
        Kind::Galera => "SELECT WSREP_SYNC_WAIT_UPTO_GTID(…)",
        Kind::Channel(Engine::MariaDb) => "SELECT MASTER_GTID_WAIT(…)",
        Kind::Channel(Engine::MySql) | Kind::Group => "SELECT WAIT_FOR_EXECUTED_GTID_SET(…)",
    }
}

/// The way that is meant, in this server's words; what does not wait within `patience` is refused by the server where
/// that can be chosen.
///
/// # Errors
/// The cause and what to try, when the servers do not have it.
pub fn guarantee(
    level: SyncReads,
    kind: Kind,
    patience: Duration,
) -> Result<Guarantee, (String, &'static str)> {
    let none = Guarantee {
        level,
        reader: Vec::new(),
        writer: Vec::new(),
        gtid: false,
        words: String::new(),
    };
    let seconds = patience.as_secs().max(1);
    let galera = "SET SESSION wsrep_sync_wait = 1".to_owned();
    let consistency = |level: &str| {
        // A member waits at most as long as a session may be idle.
        vec![
            format!("SET SESSION group_replication_consistency = '{level}'"),
            format!("SET SESSION wait_timeout = {seconds}"),
        ]
    };
    let by_gtid = || Guarantee {
        level: SyncReads::Gtid,
        gtid: true,
        words: wait_words(kind).to_owned(),
        ..none.clone()
    };
    match (level, kind) {
        (SyncReads::Off, _) => Ok(none),
        (SyncReads::Gtid, _) | (SyncReads::On, Kind::Channel(_)) => Ok(by_gtid()),
        (SyncReads::On | SyncReads::Before, Kind::Galera) => Ok(Guarantee {
            level: SyncReads::Before,
            words: format!("reader: {galera}"),
            reader: vec![galera],
            ..none
        }),
        (SyncReads::On | SyncReads::Before, Kind::Group) => Ok(Guarantee {
            level: SyncReads::Before,
            reader: consistency("BEFORE"),
            words: "reader: group_replication_consistency = BEFORE".to_owned(),
            ..none
        }),
        (SyncReads::After, Kind::Group) => Ok(Guarantee {
            writer: consistency("AFTER"),
            words: "writer: group_replication_consistency = AFTER".to_owned(),
            ..none
        }),
        (SyncReads::BeforeAndAfter, Kind::Group) => Ok(Guarantee {
            reader: consistency("BEFORE_AND_AFTER"),
            writer: consistency("BEFORE_AND_AFTER"),
            words: "reader and writer: group_replication_consistency = BEFORE_AND_AFTER".to_owned(),
            ..none
        }),
        (SyncReads::After | SyncReads::BeforeAndAfter, Kind::Galera) => Err((
            format!(
                "a Galera writer does not wait until the other nodes have applied its writes (--read-consistency={level})"
            ),
            "use --read-consistency=before, where the reader waits, or --read-consistency=gtid",
        )),
        (SyncReads::Before | SyncReads::After | SyncReads::BeforeAndAfter, Kind::Channel(_)) => {
            Err((
                format!(
                    "a replica with a replication channel has no setting that makes reads wait (--read-consistency={level})"
                ),
                "use --read-consistency=gtid, where the client waits for the write's GTID before it reads",
            ))
        }
    }
}

/// Whether a server refused a read because it would have had to wait too long: Galera's lock wait time-out, a group's
/// "Error while waiting for group transactions commit" and its like.
#[must_use]
pub fn refused(error: &ServerError) -> bool {
    matches!(error.kind, ErrorKind::Statement(number) if refused_number(number))
}

/// The same, by the error's number.
#[must_use]
pub fn refused_number(number: u16) -> bool {
    matches!(number, 1205 | 3796..=3799)
}

/// Whether a write, or a read on a member of a cluster, failed because another transaction won, and can be tried again: deadlock, lock wait time-out, changed record,
/// failed certification (MySQL says so as a rollback during the commit, 3101, or as a failed commit, 1180).
#[must_use]
pub fn conflict(error: &ServerError) -> bool {
    matches!(
        error.kind,
        ErrorKind::Statement(1213 | 1205 | 1020 | 1180 | 3101)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_has_its_words_or_a_reason() {
        let patience = Duration::from_secs(10);
        for kind in [
            Kind::Galera,
            Kind::Group,
            Kind::Channel(Engine::MariaDb),
            Kind::Channel(Engine::MySql),
        ] {
            for level in SyncReads::ALL {
                match guarantee(level, kind, patience) {
                    Ok(found) => {
                        assert_ne!(found.level, SyncReads::On);
                        let does =
                            found.gtid || !found.reader.is_empty() || !found.writer.is_empty();
                        assert_eq!(does, level != SyncReads::Off, "{level} {kind:?}");
                        assert_eq!(found.words.is_empty(), level == SyncReads::Off);
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
