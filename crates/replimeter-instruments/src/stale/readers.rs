//! The servers that are read, and how their reads become synchronous.

use std::time::Duration;

use replimeter_engine::{
    ServerError,
    dialect::sync_reads::{Guarantee, guarantee},
    membership::ClusterState,
};
use replimeter_model::{
    read_consistency::ReadConsistency,
    replication::{Mode, Relation},
};

use crate::{discovery::DiscoveredServer, preflight::Cluster};

/// A server that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReaderRef {
    /// The writer itself: a null replica.
    Writer,
    /// The replica, or other member, with this index.
    Replica(usize),
}

impl ReaderRef {
    /// Returns the server, and how it receives the writes.
    #[must_use]
    pub fn of(self, cluster: &Cluster) -> (&DiscoveredServer, Relation) {
        match self {
            Self::Writer => (&cluster.primary, Relation::Writer),
            Self::Replica(index) => {
                let replica = &cluster.replicas[index];
                (&replica.server, replica.relation)
            }
        }
    }

    /// Returns its name.
    #[must_use]
    pub fn name(self, cluster: &Cluster) -> String {
        self.of(cluster).0.node.name.clone()
    }

    /// Returns its configured delay.
    #[must_use]
    pub fn delay(self, cluster: &Cluster) -> Duration {
        match self {
            Self::Writer => Duration::ZERO,
            Self::Replica(index) => cluster.replicas[index].delay(),
        }
    }
}

/// Returns the readers with these names; without names all servers but the writer, or the writer if
/// there is no other.
///
/// # Errors
/// When no server has such a name.
pub fn readers(cluster: &Cluster, wanted: &[String]) -> Result<Vec<ReaderRef>, ServerError> {
    if wanted.is_empty() {
        return Ok(match cluster.replicas.len() {
            0 => vec![ReaderRef::Writer],
            count => (0..count).map(ReaderRef::Replica).collect(),
        });
    }
    let find = |name: &String| {
        if *name == cluster.primary.node.name || name == "writer" {
            return Ok(ReaderRef::Writer);
        }
        let index = cluster
            .replicas
            .iter()
            .position(|replica| replica.server.node.name == *name);
        // The first server that is not the writer.
        let index = index.or((name == "reader" && !cluster.replicas.is_empty()).then_some(0));
        index
            .map(ReaderRef::Replica)
            .ok_or_else(|| unknown(cluster, name, "cannot choose the reader"))
    };
    wanted.iter().map(find).collect()
}

/// Returns the error that no server has this name.
#[must_use]
pub fn unknown(cluster: &Cluster, name: &str, operation: &str) -> ServerError {
    let mut names = vec![cluster.primary.node.name.clone()];
    names.extend(cluster.replica_names());
    cluster.primary.session.precondition(
        operation,
        format!("the target has no server called `{name}`; it has {}", names.join(", ")),
        "name one of them; `writer` is the server that is written to, `reader` the first other server",
    )
}

/// Returns how a server receives what it is read for; a channel does so in the same way in every mode.
fn mode(server: &DiscoveredServer, relation: Relation) -> Mode {
    let member = server.membership.as_member();
    member
        .filter(|_| relation != Relation::Channel)
        .map_or(Mode::Async, ClusterState::mode)
}

/// Returns how each reader's reads become synchronous.
///
/// # Errors
/// When a server does not support the level.
pub fn guarantees(
    cluster: &Cluster,
    readers: &[ReaderRef],
    level: ReadConsistency,
    timeout: Duration,
) -> Result<Vec<Guarantee>, ServerError> {
    let found = readers.iter().map(|reader| {
        let (server, relation) = reader.of(cluster);
        guarantee(level, server.facts.engine, mode(server, relation), timeout).map_err(
            |(cause, hint)| {
                server
                    .session
                    .precondition("cannot enable synchronous reads", cause, hint)
            },
        )
    });
    let found = found.collect::<Result<Vec<Guarantee>, ServerError>>()?;
    if found.iter().any(|guarantee| guarantee.by_commit_id) {
        cluster.check_comparable()?;
    }
    Ok(found)
}
