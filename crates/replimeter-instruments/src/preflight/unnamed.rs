//! Replicas that are connected to the servers of a run, but not named.

use std::{collections::BTreeSet, net::IpAddr, thread, time::Duration};

use replimeter_engine::{
    Node, ServerError, Session,
    dialect::{ConnectedReplica, LogReaders, connected_replicas, replicas_privilege},
    facts::ServerFacts,
    identity::RecordedIdentity,
    unless_disconnected,
};
use replimeter_model::{
    target::SslMode,
    warning::{Warning, WarningCode},
};

use crate::discovery::{DiscoveredServer, channel_sources, read_servers};

/// Timeout of an answer of such a replica.
const ANSWER: Duration = Duration::from_secs(2);

/// The replicas of one named server that are not named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnnamedReplicas {
    /// Those that registered with the server.
    pub(crate) registered: Vec<ConnectedReplica>,
    /// More readers of its log than named replicas, when the list of replicas is hidden from the user.
    pub(crate) readers: Option<LogReaders>,
    /// The privilege that the user lacks to see its replicas, some of which are named.
    pub(crate) hidden: Option<&'static str>,
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
    let sources = channel_sources(&read_servers(servers)).concat();
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
                let named = sources.iter().filter(|source| **source == Some(index));
                let readers = LogReaders::read(session, named.count())?;
                found.readers = (readers.connections > readers.named).then_some(readers);
                let hidden = readers.connections < readers.named;
                found.hidden = hidden.then(|| replicas_privilege(engine));
            }
        }
        Ok(found)
    });
    each.collect()
}

/// The replicas of the servers of a run that are not named.
#[derive(Debug, Default)]
pub struct Unnamed {
    /// How to reach those that the account of the server that they replicate from reaches.
    pub(crate) asked: Vec<Node>,
    /// The first of the others, as a sentence.
    pub(crate) unasked: Option<String>,
}

/// Returns the unnamed replicas, and a warning about each.
///
/// # Errors
/// When a connection to a named server breaks.
pub(crate) fn unnamed_replicas(
    servers: &mut [DiscoveredServer],
) -> Result<(Unnamed, Vec<Warning>), ServerError> {
    let found = find_unnamed(servers)?;
    let mut warnings = Vec::new();
    let (mut replicas, mut seen) = (Vec::new(), BTreeSet::new());
    for (server, unnamed) in servers.iter().zip(found) {
        if let Some(readers) = unnamed.readers {
            let hidden = "none was asked: the user may not see which they are".to_owned();
            warnings.push(warning(
                format!("{}: {readers}", server.session),
                Err(&hidden),
            ));
        }
        if let Some(privilege) = unnamed.hidden {
            warnings.push(Warning::new(
                WarningCode::NotChecked,
                format!("{}: {HIDDEN}: {APPLIED} {UNCHECKED}", server.session),
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
    let asked: Vec<Result<Node, String>> = thread::scope(|scope| {
        let asked: Vec<_> = replicas
            .iter()
            .map(|(server, replica)| scope.spawn(|| ask(&server.node, replica)))
            .collect();
        let failed = |_| Err("it could not be asked: internal error".to_owned());
        asked
            .into_iter()
            .map(|asked| asked.join().unwrap_or_else(failed))
            .collect()
    });
    let mut unnamed = Unnamed::default();
    for ((server, replica), asked) in replicas.iter().zip(asked) {
        let fact = format!(
            "{}: {replica} replicates from it and is not named",
            server.session
        );
        warnings.push(warning(fact, asked.as_ref().map(|node| node.user.as_str())));
        match asked {
            Ok(node) => unnamed.asked.push(node),
            Err(_) if replica.is_program => {}
            Err(reason) => {
                unnamed.unasked.get_or_insert(format!(
                    "{replica} replicates from {} and was not asked for its tables ({reason})",
                    server.session.name()
                ));
            }
        }
    }
    Ok((unnamed, warnings))
}

/// Fact about a server whose replicas cannot be listed.
pub(crate) const HIDDEN: &str =
    "the user may not see its replicas, so those that are not named were not looked for";
/// What a run means for a replica that is not named.
const APPLIED: &str = "what a run writes is applied there too, and";
/// What it means for one that is not asked.
const UNCHECKED: &str =
    "a table of its own in the schema `replimeter` there can stop its replication, or be replaced";

/// Returns the warning about a replica, with the user as whom it was asked, or why it was not.
fn warning(fact: String, asked: Result<&str, &String>) -> Warning {
    let effect = match asked {
        Ok(user) => format!("nothing waits for it; it was asked there as the user `{user}`"),
        Err(reason) => format!("{UNCHECKED}; {reason}"),
    };
    Warning::new(
        WarningCode::ReplicaNotNamed,
        format!("{fact}: {APPLIED} {effect}"),
        "name it too, or make sure that it has no schema `replimeter`",
    )
}

/// Returns how to reach a registered replica, if it is at the address that it reports; otherwise why it could not be asked.
fn ask(source: &Node, replica: &ConnectedReplica) -> Result<Node, String> {
    let node = way_to(source, replica).map_err(|reason| format!("it was not asked: {reason}"))?;
    let read = Session::open(&node).and_then(|mut session| ServerFacts::read(&mut session));
    let facts = read.map_err(|error| format!("it could not be asked there: {}", error.cause))?;
    if facts.identity().server_id == replica.server_id {
        Ok(node)
    } else {
        Err("another server answers there".to_owned())
    }
}

/// Returns how to reach a registered replica with the user of its source, or why it must not be asked. The user did not name its
/// address: what answers there gets the password only by a certificate of the user's own authority, and on this machine a proof of it.
fn way_to(source: &Node, replica: &ConnectedReplica) -> Result<Node, String> {
    let Some((host, port)) = replica.address.clone() else {
        return Err("it reports no address (report_host)".to_owned());
    };
    let mut node = Node {
        name: format!("server_id {}", replica.server_id),
        answer: ANSWER,
        identity: RecordedIdentity::default(),
        log: None,
        ..source.clone()
    };
    let endpoint = &mut node.endpoint;
    (endpoint.host, endpoint.port, endpoint.socket) = (host, port, None);
    endpoint.tls.get_server_public_key = Some(false);
    // Authorities of the system prove only that a server has the name that it chose.
    let verified = endpoint.tls.ca.is_some();
    if endpoint.is_loopback() && !verified {
        // Inside TLS, an unverified server could request the password itself.
        endpoint.tls.mode = Some(SslMode::Disabled);
    }
    if node.exposed_password(verified).is_some() {
        return Err("without ssl-ca, the password could get to others".to_owned());
    }
    let addresses = node.addresses().map_err(|error| error.to_string())?;
    let here = |ip: IpAddr| ip.is_loopback() || ip.is_unspecified();
    let here = addresses
        .iter()
        .any(|address| here(address.ip().to_canonical()));
    if here && !source.endpoint.is_loopback() {
        return Err(format!(
            "its address is one of this machine, and that of {} is not",
            source.name
        ));
    }
    Ok(node)
}

#[cfg(test)]
mod tests;
