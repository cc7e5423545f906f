//! Checks whether servers can run a load; reads only.

use replimeter_engine::{ServerError, source::Member};
use replimeter_model::warning::Warning;

use crate::{
    discovery::{Relation, find_relations, read_each},
    preflight::{
        CheckedReplica, Cluster, check_applier, check_binlog_filters, check_channel,
        check_surroundings, refuse_broken_chain, refuse_read_only,
    },
    table::{self, remove_federated},
};

/// Connects to every server and finds their replication topology. A single server is enough, with or
/// without a binary log.
///
/// # Errors
/// The first condition that prevents a load; names the server, the cause and a hint.
pub fn check(declared: &[Member]) -> Result<Cluster, ServerError> {
    let mut servers = read_each(declared)?;
    let relations = find_relations(&servers, declared)?;
    refuse_broken_chain(&servers, &relations.of)?;
    let (unnamed, mut warnings) = check_surroundings(&mut servers, declared, &relations)?;
    let (mut primary, mut replicas) = (None, Vec::new());
    for (mut server, relation) in servers.into_iter().zip(relations.of) {
        warnings.extend(server.unverified());
        check_applier(&mut server, &relation, &mut warnings)?;
        match &relation {
            Relation::Writer => {
                refuse_read_only(&server.session, &server.facts)?;
                if server.facts.on("log_bin") {
                    warnings.extend(check_binlog_filters(&mut server)?);
                }
                primary = Some(server);
            }
            other => {
                if let Relation::Channel { channel, .. } = other {
                    check_channel(&server, channel)?;
                }
                replicas.push(CheckedReplica { server, relation });
            }
        }
    }
    let primary = primary.ok_or_else(|| {
        ServerError::precondition(
            "target",
            "",
            "cannot run a load",
            "the target has no server",
            "name a server",
        )
    })?;
    Ok(Cluster {
        primary,
        replicas,
        unnamed,
        mode: relations.mode,
        warnings,
    })
}

/// Keeps other runs of Replimeter away from the servers for the lifetime of their sessions, and removes what killed runs
/// left there, except data sets. Returns warnings about it.
///
/// # Errors
/// When another run is measuring, or a server does not answer.
pub fn claim(cluster: &mut Cluster) -> Result<Vec<Warning>, ServerError> {
    table::claim(cluster)?;
    remove_federated(cluster)
}
