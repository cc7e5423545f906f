//! Checks whether exposure can be measured on the servers; reads only.

use replimeter_engine::{
    ServerError,
    dialect::statements,
    follow::requirements::{self, FollowPurpose},
    source::Member,
};
use replimeter_model::target::Role as Declaration;

use crate::{
    discovery::{DiscoveredServer, find_topology, read_each},
    preflight::Cluster,
};

/// Connects to every server, finds the replication topology, and checks that the primary's log can be
/// followed, where that is needed.
///
/// # Errors
/// The first obstacle; names the server, the cause and a hint.
pub fn check(declared: &[Member]) -> Result<Cluster, ServerError> {
    let servers = read_each(declared)?;
    // Everything is derived from the replicas' answers.
    if let Some(error) = servers.iter().zip(declared).find_map(|(server, declared)| {
        server
            .membership
            .channels
            .as_ref()
            .err()
            .filter(|_| declared.role != Some(Declaration::Primary))
    }) {
        return Err(error.clone());
    }
    let topology = find_topology(&servers, declared)?;
    let warnings = servers.iter().filter_map(DiscoveredServer::unverified);
    let warnings = warnings.collect();
    let mut cluster = Cluster::of(servers, topology, warnings);
    cluster.check_comparable()?;
    let Cluster {
        primary,
        replicas,
        mode,
        warnings,
        ..
    } = &mut cluster;
    if replicas.is_empty() {
        return Err(primary.session.precondition(
            "cannot measure exposure",
            "it has no replica, so every acknowledged transaction stays exposed",
            "name its replicas with --replica",
        ));
    }
    let effect = "transactions that no replica had received when the run began are exposed, and are not counted";
    warnings.extend(
        replicas
            .iter()
            .filter_map(|replica| replica.stopped(effect)),
    );
    if !mode.has_members() {
        requirements::check(&primary.session, &primary.facts, FollowPurpose::Source)?;
        for replica in replicas {
            let Some(channel) = replica.channel() else {
                continue;
            };
            let server = &replica.server;
            statements::check_position(&server.session, server.facts.engine, channel)?;
        }
    }
    Ok(cluster)
}
