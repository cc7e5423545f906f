//! Whether servers can bear a load by itself; reads only.

use replimeter_model::{
    target::SslMode,
    warning::{Warning, WarningCode},
};
use replimeter_server::{ServerError, Session};

use crate::{
    preflight::{CheckedReplica, Cluster},
    survey::{Declared, Relation, Surveyed, not_running, relate},
    table::{SCHEMA, take_lock},
};

/// Connects to every server and finds out how they hang together. One alone will do,
/// with or without a binary log.
///
/// # Errors
/// On the first thing that forbids a load, naming the server, the cause and what to try.
pub fn check(declared: &[Declared]) -> Result<Cluster, ServerError> {
    let mut servers: Vec<Surveyed> = Vec::new();
    for one in declared {
        let server = Surveyed::read(&one.node)?;
        let identity = server.facts.identity();
        if let Some(other) = servers.iter().find(|other| other.facts.identity() == identity) {
            return Err(server.session.unfit(
                "is named twice",
                format!("{} ({}) leads to the same server, {}", other.session.name(), other.session.address(), identity.place),
                "name each server once",
            ));
        }
        servers.push(server);
    }
    let relations = relate(&servers, declared)?;
    let mut warnings = Vec::new();
    let (mut primary, mut replicas) = (None, Vec::new());
    for (server, relation) in servers.into_iter().zip(relations.of) {
        if !server.session.tls() && server.node.endpoint.ssl_mode == SslMode::Preferred && !server.node.endpoint.is_loopback() {
            warnings.push(Warning::new(
                WarningCode::TlsNotVerified,
                format!("{} ({}): the connection is not encrypted", server.session.name(), server.session.address()),
                "add ?ssl-mode=verify-ca&ssl-ca=FILE to its URL if the network is not yours alone",
            ));
        }
        match &relation {
            Relation::Writer => {
                if server.facts.on("read_only") {
                    return Err(server.session.unfit(
                        "cannot be the primary",
                        "it is read-only (read_only=ON)",
                        format!("a load makes its tables in the schema `{SCHEMA}`: name the writable primary with --primary"),
                    ));
                }
                primary = Some(server);
            }
            Relation::Channel { channel, .. } if !channel.running() => return Err(not_running(&server.session, channel)),
            _ => replicas.push(CheckedReplica { server, relation }),
        }
    }
    let primary =
        primary.ok_or_else(|| ServerError::unfit("target", "", "cannot run a load", "there is no server", "name one"))?;
    Ok(Cluster { primary, replicas, mode: relations.mode, warnings })
}

/// Keeps other runs of this tool away from the primary for as long as `session` lives.
///
/// # Errors
/// When somebody else is measuring.
pub fn hold(session: &mut Session) -> Result<(), ServerError> {
    take_lock(session)
}
