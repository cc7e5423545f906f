//! Checks whether servers can be followed; only reads, and needs only replication privileges.

use std::collections::BTreeSet;

use replimeter_engine::{
    ServerError,
    follow::requirements::{self, FollowPurpose},
    source::Member,
};
use replimeter_model::{
    replication::{Mode, Relation},
    target::Role as Declaration,
    warning::{Warning, WarningCode},
};

use crate::{
    discovery::{Topology, find_topology, read_each},
    preflight::Cluster,
};

/// Connects to every server, determines the topology, and checks that each server can be followed.
///
/// # Errors
/// On the first finding that prevents it, with the server, the cause and a hint.
pub fn check(declared: &[Member]) -> Result<Cluster, ServerError> {
    let servers = read_each(declared)?;
    let mut warnings = Vec::new();
    let declared_writer = declared
        .iter()
        .position(|one| one.role == Some(Declaration::Primary));
    let unseen = servers
        .iter()
        .find(|server| server.membership.channels.is_err());
    let topology = match (declared_writer, unseen) {
        // The topology is declared, and the streams will show it.
        (Some(writer), Some(unseen)) => {
            warnings.push(Warning::new(
                WarningCode::ServerUnusable,
                format!(
                    "{} does not show its replication status to this user, so its source was not checked",
                    unseen.session
                ),
                unseen.membership.channels.as_ref().err().map_or_else(String::new, |error| error.hint.clone()),
            ));
            Topology {
                writer,
                relations: vec![Relation::Unknown; servers.len()],
                sources: vec![None; servers.len()],
                channel_sources: Vec::new(),
                mode: Mode::Async,
            }
        }
        _ => find_topology(&servers, declared)?,
    };
    for (index, server) in servers.iter().enumerate() {
        warnings.extend(server.unverified());
        let role = if index == topology.writer {
            FollowPurpose::Source
        } else {
            FollowPurpose::Applier
        };
        requirements::check(&server.session, &server.facts, role)?;
    }
    let mut cluster = Cluster::of(servers, topology, warnings);
    check_replicas(&mut cluster)?;
    Ok(cluster)
}

/// Checks that the replicas' transactions can be matched with the primary's; warns of delays.
fn check_replicas(cluster: &mut Cluster) -> Result<(), ServerError> {
    cluster.check_comparable()?;
    let primary = &cluster.primary;
    for replica in &cluster.replicas {
        requirements::check_domains(
            &replica.server.session,
            &replica.server.facts,
            &primary.facts,
        )?;
        let effect = "its transactions have no lag until it does";
        cluster.warnings.extend(replica.stopped(effect));
        let delay = replica.delay();
        if !delay.is_zero() {
            cluster.warnings.push(Warning::new(
                WarningCode::DelayedReplica,
                format!(
                    "{} applies with a configured delay of {} s, which every lag includes",
                    replica.server.session.name(),
                    delay.as_secs()
                ),
                "subtract it, or measure a replica without a delay",
            ));
        }
    }
    Ok(())
}

/// Returns a `server_id` for each connection: random ones, or the given one and those above it.
///
/// # Errors
/// When a given one is in use.
pub(crate) fn server_ids(
    cluster: &mut Cluster,
    given: Option<u32>,
    count: usize,
) -> Result<Vec<u32>, ServerError> {
    let mut taken = BTreeSet::new();
    for server in cluster.servers_mut() {
        taken.extend(
            requirements::server_ids(&mut server.session, &server.facts)?.unwrap_or_default(),
        );
        taken.extend(server.facts.get("server_id").parse::<u32>());
        taken.extend(
            server
                .membership
                .channels()
                .iter()
                .filter_map(|channel| u32::try_from(channel.source_server_id).ok()),
        );
    }
    let mut ids = Vec::new();
    for index in 0..count {
        let id = match given {
            Some(first) => {
                let id = u32::try_from(index)
                    .ok()
                    .and_then(|index| first.checked_add(index))
                    .unwrap_or(0);
                if id == 0 || taken.contains(&id) {
                    return Err(cluster.primary.session.precondition(
                        requirements::OPERATION,
                        format!("server_id {id} belongs to one of the servers or to a connected replica, whose connection would be dropped"),
                        format!("choose another --server-id, such as {}, or leave it out", requirements::unused_server_id(&taken)),
                    ));
                }
                id
            }
            None => requirements::unused_server_id(&taken),
        };
        taken.insert(id);
        ids.push(id);
    }
    Ok(ids)
}
