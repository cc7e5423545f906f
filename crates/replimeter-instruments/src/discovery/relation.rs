//! Determines how a server receives the writer's writes.

use replimeter_engine::{
    ServerError,
    dialect::Channel,
    membership::{ClusterState, Membership},
};

use super::{DiscoveredServer, Relation, refusal::unknown_source};

/// Returns the cluster that two servers have in common, if any: [`Relation::Galera`] or
/// [`Relation::Group`].
pub(crate) fn one_cluster(one: &Membership, other: &Membership) -> Option<Relation> {
    match one.as_member()? {
        _ if !one.same_cluster(other) => None,
        ClusterState::Galera(_) => Some(Relation::Galera),
        ClusterState::Group(_) => Some(Relation::Group),
    }
}

/// A server on the path from a replica to the writer.
struct Upstream<'a> {
    at: usize,
    /// The replica's own channel on this path, and its source.
    first: Option<(usize, &'a Channel)>,
    /// Total configured delay so far.
    delay_s: u64,
}

/// Returns the relation of the server `index` to the writer.
pub(super) fn relation(
    servers: &[DiscoveredServer],
    writer: usize,
    index: usize,
    sources: &[Vec<(usize, &Channel)>],
) -> Result<Relation, ServerError> {
    if let Some(member) = servers[index].same_cluster(&servers[writer]) {
        return Ok(member);
    }
    // Breadth first over the channels, upstream, until the writer or a member of its cluster.
    let mut reached = vec![false; servers.len()];
    reached[index] = true;
    let mut frontier = vec![Upstream {
        at: index,
        first: None,
        delay_s: 0,
    }];
    while !frontier.is_empty() {
        let mut next = Vec::new();
        for step in frontier {
            // Every member of a cluster behind a replica has what one of them receives.
            for sibling in 0..servers.len() {
                if servers[step.at].same_cluster(&servers[sibling]).is_some()
                    && !std::mem::replace(&mut reached[sibling], true)
                {
                    next.push(Upstream {
                        at: sibling,
                        first: step.first,
                        delay_s: step.delay_s,
                    });
                }
            }
            for &(source, channel) in &sources[step.at] {
                let first = step.first.unwrap_or((source, channel));
                let delay_s = step.delay_s + channel.delay_s;
                if source == writer || servers[source].same_cluster(&servers[writer]).is_some() {
                    // Without its own channel it receives the writes through its cluster.
                    if step.first.is_none() && step.at != index {
                        return Ok(servers[index]
                            .same_cluster(&servers[step.at])
                            .unwrap_or(Relation::Galera));
                    }
                    return Ok(Relation::Channel {
                        source: first.0,
                        channel: Box::new(first.1.clone()),
                        delay_s,
                    });
                }
                if !std::mem::replace(&mut reached[source], true) {
                    next.push(Upstream {
                        at: source,
                        first: Some(first),
                        delay_s,
                    });
                }
            }
        }
        frontier = next;
    }
    Err(unknown_source(&servers[writer], &servers[index]))
}
