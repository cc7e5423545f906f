//! Who receives from whom, from the identities of servers and their memberships alone.

use std::collections::BTreeSet;

use replimeter_engine::{
    dialect::Channel,
    identity::Identity,
    membership::{ClusterState, Membership},
};
use replimeter_model::replication::{Mode, Relation};

/// A server that was read, as far as its place in the topology depends on it.
pub(crate) struct ReadServer<'a> {
    pub(crate) identity: Identity,
    pub(crate) membership: &'a Membership,
}

impl ReadServer<'_> {
    /// Returns its relation to the writer, if it receives the writes through its cluster.
    fn as_member(&self) -> Relation {
        let member = self.membership.as_member();
        member.map_or(Relation::None, ClusterState::relation)
    }
}

/// The server that another one replicates from, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// The index of that server.
    pub server: usize,
    /// The index of the channel, among those of the replica.
    pub channel: usize,
    /// Total configured delay between the replica and the writer, in seconds.
    pub delay_s: u64,
}

/// For each server and each of its channels: the index of the source, if it is one of the servers.
pub(crate) type ChannelSources = Vec<Vec<Option<usize>>>;

/// Returns the sources of all channels; those of a server that could not be read are not known.
pub(crate) fn channel_sources(servers: &[Option<ReadServer<'_>>]) -> ChannelSources {
    let source = |channel: &Channel| {
        let is_source = |server: &ReadServer<'_>| channel.comes_from(&server.identity);
        servers
            .iter()
            .position(|server| server.as_ref().is_some_and(is_source))
    };
    let of = |server: &Option<ReadServer<'_>>| {
        let channels = server.as_ref().map(|server| server.membership.channels());
        channels.unwrap_or_default().iter().map(source).collect()
    };
    servers.iter().map(of).collect()
}

/// Returns whether two servers are members of one cluster.
fn same_cluster(servers: &[Option<ReadServer<'_>>], one: usize, other: usize) -> bool {
    let both = servers[one].as_ref().zip(servers[other].as_ref());
    both.is_some_and(|(one, other)| one.membership.same_cluster(other.membership))
}

/// How a path from a replica to the writer begins.
#[derive(Clone, Copy)]
enum FirstStep {
    /// By a channel of the replica, from this server.
    Channel { server: usize, channel: usize },
    /// Through another member of its cluster.
    Cluster,
}

/// A server on such a path.
struct Upstream {
    at: usize,
    first: Option<FirstStep>,
    /// Total configured delay so far.
    delay_s: u64,
}

/// Returns how a server receives what is written on the writer, and its source if that is by a channel.
pub(crate) fn relation(
    servers: &[Option<ReadServer<'_>>],
    sources: &ChannelSources,
    writer: usize,
    index: usize,
) -> (Relation, Option<Source>) {
    let Some(server) = &servers[index] else {
        return (Relation::Unknown, None);
    };
    if index == writer {
        return (Relation::Writer, None);
    }
    if same_cluster(servers, index, writer) {
        return (server.as_member(), None);
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
            for (sibling, reached) in reached.iter_mut().enumerate() {
                if same_cluster(servers, step.at, sibling) && !std::mem::replace(reached, true) {
                    next.push(Upstream {
                        at: sibling,
                        first: step.first.or(Some(FirstStep::Cluster)),
                        delay_s: step.delay_s,
                    });
                }
            }
            let channels = servers[step.at]
                .as_ref()
                .map(|server| server.membership.channels());
            let channels = channels.unwrap_or_default().iter().enumerate();
            for ((number, channel), source) in channels.zip(&sources[step.at]) {
                let Some(source) = *source else { continue };
                let first = step.first.unwrap_or(FirstStep::Channel {
                    server: source,
                    channel: number,
                });
                let delay_s = step.delay_s + channel.delay_s;
                if source == writer || same_cluster(servers, source, writer) {
                    return match first {
                        FirstStep::Cluster => (server.as_member(), None),
                        FirstStep::Channel { server, channel } => {
                            let source = Source {
                                server,
                                channel,
                                delay_s,
                            };
                            (Relation::Channel, Some(source))
                        }
                    };
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
    (Relation::None, None)
}

/// Returns the replication mode of servers that all receive the writes.
pub(super) fn mode(
    servers: &[&Membership],
    writer: usize,
    relations: &[Relation],
    sources: &[Option<Source>],
) -> Mode {
    if let [server] = servers {
        return server.as_member().map_or(Mode::None, ClusterState::mode);
    }
    let chained = |source: &Source| source.server != writer;
    let mode = |server: &&Membership| server.mode_from(servers[writer]);
    match relations.iter().find_map(|relation| relation.cluster()) {
        Some(mode) => mode,
        None if sources.iter().flatten().any(chained) => Mode::Chain,
        None => {
            let mut modes = servers.iter().map(mode);
            modes
                .find(|mode| *mode != Mode::Async)
                .unwrap_or(Mode::Async)
        }
    }
}

/// Returns whether `from` is `to`, or replicates from it directly or indirectly. `sources` returns
/// a server's sources.
pub(crate) fn reaches<I: IntoIterator<Item = usize>>(
    sources: impl Fn(usize) -> I,
    from: usize,
    to: usize,
) -> bool {
    let mut seen = BTreeSet::new();
    let mut next = vec![from];
    while let Some(at) = next.pop() {
        if at == to {
            return true;
        }
        if seen.insert(at) {
            next.extend(sources(at));
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use replimeter_engine::dialect::{
        acknowledgement::{PrimaryState, ReplicaState},
        galera::NodeState,
    };

    use super::*;

    fn membership(sources: &[u64], cluster: &str) -> Membership {
        let channel = |source_server_id: &u64| Channel {
            source_server_id: *source_server_id,
            delay_s: 5,
            ..Channel::default()
        };
        let node = NodeState {
            cluster: cluster.to_owned(),
            ..NodeState::default()
        };
        Membership {
            cluster: Ok((!cluster.is_empty()).then_some(ClusterState::Galera(node))),
            channels: Ok(sources.iter().map(channel).collect()),
            waits: None,
            acknowledges: ReplicaState::default(),
        }
    }

    /// Returns the relations to the first server; servers have the ids 1, 2, …
    fn relations(memberships: &[Membership]) -> (Vec<(Relation, Option<Source>)>, Mode) {
        let read = |(server_id, membership)| {
            Some(ReadServer {
                identity: Identity {
                    server_id,
                    uuid: String::new(),
                    place: String::new(),
                },
                membership,
            })
        };
        let servers: Vec<_> = (1..).zip(memberships).map(read).collect();
        let sources = channel_sources(&servers);
        let of = |index| relation(&servers, &sources, 0, index);
        let found: Vec<_> = (0..servers.len()).map(of).collect();
        let (relations, sources): (Vec<_>, Vec<_>) = found.iter().copied().unzip();
        let memberships: Vec<&Membership> = memberships.iter().collect();
        let mode = mode(&memberships, 0, &relations, &sources);
        (found, mode)
    }

    fn by_channel(server: usize, channel: usize, delay_s: u64) -> (Relation, Option<Source>) {
        let source = Source {
            server,
            channel,
            delay_s,
        };
        (Relation::Channel, Some(source))
    }

    #[test]
    fn shortest_way_to_the_writer_counts() {
        let found = relations(&[
            membership(&[], ""),
            membership(&[1], ""),
            membership(&[9, 2, 1], ""),
            membership(&[3], ""),
            membership(&[9], ""),
        ]);
        assert_eq!(
            found.0[1..],
            [
                by_channel(0, 0, 5),
                by_channel(0, 2, 5),
                by_channel(2, 0, 10),
                (Relation::None, None)
            ]
        );
        assert_eq!(found.1, Mode::Chain);
    }

    #[test]
    fn members_receive_through_their_cluster() {
        let cluster = [
            membership(&[], "a"),
            membership(&[], "a"),
            // Of another cluster, of which one node is a replica.
            membership(&[2], "b"),
            membership(&[], "b"),
        ];
        let found = relations(&cluster);
        assert_eq!(
            found.0,
            [
                (Relation::Writer, None),
                (Relation::Galera, None),
                by_channel(1, 0, 5),
                (Relation::Galera, None)
            ]
        );
        assert_eq!(found.1, Mode::Galera);
        assert_eq!(relations(&cluster[..1]).1, Mode::Galera);
        assert_eq!(relations(&[membership(&[], "")]).1, Mode::None);
    }

    #[test]
    fn sibling_behind_a_chain_has_no_channel() {
        let found = relations(&[
            membership(&[], ""),
            membership(&[1], ""),
            membership(&[2], "b"),
            membership(&[], "b"),
        ]);
        assert_eq!(found.0[3], (Relation::Galera, None));
    }

    #[test]
    fn mode_is_semi_sync_only_while_a_replica_acknowledges() {
        let mut servers = [membership(&[], ""), membership(&[1], "")];
        assert_eq!(relations(&servers).1, Mode::Async);
        servers[0].waits = Some(PrimaryState {
            enabled: true,
            active: true,
            clients: 1,
            ..PrimaryState::default()
        });
        assert_eq!(relations(&servers).1, Mode::Async);
        servers[1].acknowledges = ReplicaState {
            enabled: true,
            active: true,
        };
        assert_eq!(relations(&servers).1, Mode::SemiSync);
    }
}
