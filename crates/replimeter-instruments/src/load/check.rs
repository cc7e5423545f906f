//! Checks whether servers can run a load; reads only.

use replimeter_engine::{ServerError, source::Member};
use replimeter_model::warning::Warning;

use crate::{
    discovery::{find_topology, read_each},
    preflight::{
        Cluster, check_applier, check_channel, check_log_filters, check_surroundings,
        refuse_broken_chain, refuse_read_only,
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
    let topology = find_topology(&servers, declared)?;
    refuse_broken_chain(&servers, &topology)?;
    let (unnamed, mut warnings) = check_surroundings(&mut servers, declared, &topology)?;
    for (index, server) in servers.iter_mut().enumerate() {
        warnings.extend(server.unverified());
        check_applier(server, &topology, index, &mut warnings)?;
        if index == topology.writer {
            refuse_read_only(&server.session, &server.facts)?;
            if server.facts.on("log_bin") {
                warnings.extend(check_log_filters(server)?);
            }
        } else if let Some(source) = topology.sources[index] {
            check_channel(server, source)?;
        }
    }
    Ok(Cluster {
        unnamed,
        ..Cluster::of(servers, topology, warnings)
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
