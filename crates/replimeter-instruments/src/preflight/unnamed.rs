//! Replicas that are connected to the servers of a run, but not named.

use std::{collections::BTreeSet, fmt, thread, time::Duration};

use replimeter_engine::{
    Node, ServerError, Session,
    dialect::{ConnectedReplica, binlog_readers, connected_replicas, replicas_privilege},
    facts::ServerFacts,
};
use replimeter_model::warning::{Warning, WarningCode};

use crate::discovery::{DiscoveredServer, source_of, unless_disconnected};

/// Timeout of an answer of such a replica.
const ANSWER: Duration = Duration::from_secs(2);

/// The replicas of one named server that are not named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnnamedReplicas {
    /// Those that registered with the server.
    pub(crate) registered: Vec<ConnectedReplica>,
    /// More readers of its binary log than named replicas, when the list of replicas is hidden from the user.
    pub(crate) readers: Option<BinlogReaders>,
    /// The privilege that the user lacks to see its replicas, some of which are named.
    pub(crate) hidden: Option<&'static str>,
}

/// Connections that read a server's binary log, and how many of its replicas are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BinlogReaders {
    connections: usize,
    named: usize,
}

/// The fact of a message.
impl fmt::Display for BinlogReaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "connections that read its binary log: {}, named replicas: {}",
            self.connections, self.named
        )
    }
}

/// Finds, for each server, the connected replicas that are not among `servers`. Without a privilege none are found.
///
/// # Errors
/// When a connection breaks.
pub(crate) fn find_unnamed(
    servers: &mut [DiscoveredServer],
) -> Result<Vec<UnnamedReplicas>, ServerError> {
    let named: BTreeSet<u64> = servers
        .iter()
        .map(|server| server.facts.identity().server_id)
        .collect();
    let sources: Vec<usize> = servers
        .iter()
        .flat_map(|server| server.channels.as_deref().unwrap_or_default())
        .filter_map(|channel| source_of(servers, channel))
        .collect();
    let each = servers.iter_mut().enumerate().map(|(index, server)| {
        let (engine, session) = (server.facts.engine, &mut server.session);
        let mut found = UnnamedReplicas::default();
        match unless_disconnected(connected_replicas(engine, session))? {
            Ok(connected) => {
                found.registered = connected;
                found
                    .registered
                    .retain(|replica| !named.contains(&replica.server_id));
            }
            Err(_) => {
                let readers = BinlogReaders {
                    connections: unless_disconnected(binlog_readers(session))?.unwrap_or(0),
                    named: sources.iter().filter(|source| **source == index).count(),
                };
                found.readers = (readers.connections > readers.named).then_some(readers);
                let hidden = readers.connections < readers.named;
                found.hidden = hidden.then(|| replicas_privilege(engine));
            }
        }
        Ok(found)
    });
    each.collect()
}

/// Returns those unnamed replicas that the account of the server that they replicate from reaches, and a warning about
/// each.
///
/// # Errors
/// When a connection to a named server breaks.
pub(crate) fn unnamed_replicas(
    servers: &mut [DiscoveredServer],
) -> Result<(Vec<Node>, Vec<Warning>), ServerError> {
    let found = find_unnamed(servers)?;
    let mut warnings = Vec::new();
    let (mut replicas, mut seen) = (Vec::new(), BTreeSet::new());
    for (server, unnamed) in servers.iter().zip(found) {
        if let Some(readers) = unnamed.readers {
            warnings.push(warning(format!("{}: {readers}", server.session), false));
        }
        if let Some(privilege) = unnamed.hidden {
            warnings.push(Warning::new(
                WarningCode::NotChecked,
                format!("{}: {HIDDEN}: {UNCHECKED}", server.session),
                format!("GRANT {privilege} ON *.* to the user; or make sure that no other replica has a schema `replimeter`"),
            ));
        }
        for replica in unnamed.registered {
            if seen.insert(replica.server_id) {
                replicas.push((server, replica));
            }
        }
    }
    // A host that drops packets takes the whole timeout.
    let reached: Vec<Option<Node>> = thread::scope(|scope| {
        let asked: Vec<_> = replicas
            .iter()
            .map(|(server, replica)| scope.spawn(|| reach(&server.node, replica)))
            .collect();
        asked
            .into_iter()
            .map(|asked| asked.join().ok().flatten())
            .collect()
    });
    for ((server, replica), reached) in replicas.iter().zip(&reached) {
        warnings.push(warning(
            format!(
                "{}: {replica} replicates from it and is not named",
                server.session
            ),
            reached.is_some(),
        ));
    }
    Ok((reached.into_iter().flatten().collect(), warnings))
}

/// Fact about a server whose replicas cannot be listed.
pub(crate) const HIDDEN: &str =
    "the user may not see its replicas, so those that are not named were not looked for";
/// What a run means for a replica that is not asked.
const UNCHECKED: &str = "what a run writes is applied there too, and a table of its own in the schema `replimeter` there can stop its replication, \
                         or be replaced";

fn warning(fact: String, checked: bool) -> Warning {
    let effect = if checked {
        "what a run writes is applied there too, and nothing waits for it"
    } else {
        UNCHECKED
    };
    Warning::new(
        WarningCode::ReplicaNotNamed,
        format!("{fact}: {effect}"),
        "name it too, or make sure that it has no schema `replimeter`",
    )
}

/// Returns how to reach a registered replica, if it is at the address that it registered, with the user of its source, and if the
/// password cannot get to others.
fn reach(source: &Node, replica: &ConnectedReplica) -> Option<Node> {
    let (host, port) = replica.address.clone()?;
    let mut node = Node {
        name: format!("server_id {}", replica.server_id),
        answer: ANSWER,
        ..source.clone()
    };
    node.endpoint.host = host;
    node.endpoint.port = port;
    node.endpoint.socket = None;
    // The user did not name this address: a password only goes to a server that is verified.
    if node.exposed_password(true).is_some() {
        return None;
    }
    let mut session = Session::open(&node).ok()?;
    let facts = ServerFacts::read(&mut session).ok()?;
    (facts.identity().server_id == replica.server_id).then_some(node)
}
