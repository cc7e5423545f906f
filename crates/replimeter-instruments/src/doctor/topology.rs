//! The replication topology, as far as reachable servers show it.

use replimeter_engine::{ServerError, dialect::Channel};
use replimeter_model::target::Role;

use super::examination::{Examination, ServerState};
use crate::discovery::{self, Relation, Relations};

/// How a server receives writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum UpstreamRelation {
    /// It is the writer.
    Writer,
    /// From another server, by a channel.
    Channel {
        /// The index of the other server.
        source: usize,
        /// The index of the channel on the replica.
        channel: usize,
    },
    /// As a node of the writer's Galera cluster.
    Galera,
    /// As a member of the writer's group.
    Group,
    /// From none of these servers.
    None,
    /// It could not be read.
    Unknown,
}

/// The writer, and the relation of every other server to it.
#[derive(Clone, Debug, Default)]
pub(super) struct Topology {
    /// The writer, if it can be determined.
    pub(super) writer: Option<usize>,
    /// For each server, in order.
    pub(super) ties: Vec<UpstreamRelation>,
    /// For each server and each of its channels: the source, if it is one of them.
    pub(super) sources: Vec<Vec<Option<usize>>>,
    /// Why a measurement would refuse these servers.
    pub(super) refused: Option<ServerError>,
}

/// Returns the source of a channel.
fn source_of(servers: &[Examination], channel: &Channel) -> Option<usize> {
    servers.iter().position(|server| {
        server
            .state
            .as_ref()
            .is_ok_and(|state| channel.comes_from(&state.facts.identity()))
    })
}

/// Returns the source by its address: a channel that never connected has nothing else.
fn addressed(servers: &[Examination], channel: &Channel) -> Option<usize> {
    let address = if channel.source_host.contains(':') {
        format!("[{}]:{}", channel.source_host, channel.source_port)
    } else {
        format!("{}:{}", channel.source_host, channel.source_port)
    };
    servers.iter().position(|server| server.address == address)
}

/// Returns the cluster that two servers have in common.
pub(super) fn one_cluster(one: &ServerState, other: &ServerState) -> Option<UpstreamRelation> {
    match discovery::one_cluster(
        [one.galera.as_ref(), other.galera.as_ref()],
        [one.group(), other.group()],
    )? {
        Relation::Galera => Some(UpstreamRelation::Galera),
        Relation::Group => Some(UpstreamRelation::Group),
        Relation::Writer | Relation::Channel { .. } => None,
    }
}

/// Determines the relations. `related` is a measurement's view of the same servers; `None` when
/// some could not be read, which would make it wrong.
pub(super) fn topology(
    servers: &[Examination],
    related: Option<Result<Relations, ServerError>>,
) -> Topology {
    let sources: Vec<Vec<Option<usize>>> = servers
        .iter()
        .enumerate()
        .map(|(index, server)| {
            let channels = server
                .state
                .as_ref()
                .map(|state| state.channels())
                .unwrap_or_default();
            let source = |channel: &Channel| {
                let found = if channel.source_server_id == 0 {
                    addressed(servers, channel)
                } else {
                    source_of(servers, channel)
                };
                found
                    .or_else(|| {
                        addressed(servers, channel).filter(|at| servers[*at].state.is_err())
                    })
                    .filter(|at| *at != index)
            };
            channels.iter().map(source).collect()
        })
        .collect();
    let (writer, refused) = match related {
        Some(Ok(relations)) => (Some(relations.writer), None),
        Some(Err(error)) => (probable_writer(servers, &sources), Some(error)),
        None => (probable_writer(servers, &sources), None),
    };
    let ties = (0..servers.len())
        .map(|index| tie(servers, writer, index, &sources))
        .collect();
    Topology {
        writer,
        ties,
        sources,
        refused,
    }
}

fn probable_writer(servers: &[Examination], sources: &[Vec<Option<usize>>]) -> Option<usize> {
    if let Some(index) = servers
        .iter()
        .position(|server| server.role == Some(Role::Primary))
    {
        return Some(index);
    }
    let states = || {
        servers
            .iter()
            .enumerate()
            .filter_map(|(index, server)| Some((index, server.state.as_ref().ok()?)))
    };
    let group = states()
        .find_map(|(_, state)| state.group())
        .filter(|group| group.single_primary);
    if let Some(primary) =
        group.and_then(|group| group.members.iter().find(|member| member.role == "PRIMARY"))
    {
        return states()
            .find(|(_, state)| state.facts.identity().uuid == primary.uuid)
            .map(|(index, _)| index);
    }
    // A server that others replicate from, and that replicates from none of these.
    let root = |index: usize| {
        sources[index].iter().all(Option::is_none) && servers[index].role != Some(Role::Replica)
    };
    let fed = |index: usize| {
        sources
            .iter()
            .flatten()
            .any(|source| *source == Some(index))
    };
    let reached = |index: &usize| servers[*index].state.is_ok();
    let mut roots = (0..servers.len()).filter(|index| root(*index));
    roots
        .clone()
        .find(|index| fed(*index))
        .or_else(|| roots.find(reached))
}

fn tie(
    servers: &[Examination],
    writer: Option<usize>,
    index: usize,
    sources: &[Vec<Option<usize>>],
) -> UpstreamRelation {
    let Ok(state) = &servers[index].state else {
        return UpstreamRelation::Unknown;
    };
    if writer == Some(index) {
        return UpstreamRelation::Writer;
    }
    let writer_state = writer.and_then(|writer| servers[writer].state.as_ref().ok());
    if let Some(tie) = writer_state.and_then(|writer| one_cluster(state, writer)) {
        return tie;
    }
    let named = || {
        sources[index]
            .iter()
            .enumerate()
            .filter_map(|(channel, source)| Some((channel, (*source)?)))
    };
    // The channel that leads to the writer, otherwise any.
    let leads = |(_, source): &(usize, usize)| {
        writer.is_some_and(|writer| reaches(sources, *source, writer))
    };
    match named().find(leads).or_else(|| named().next()) {
        Some((channel, source)) => UpstreamRelation::Channel { source, channel },
        None => UpstreamRelation::None,
    }
}

/// Returns whether `from` is `to`, or replicates from it directly or indirectly.
pub(super) fn reaches(sources: &[Vec<Option<usize>>], from: usize, to: usize) -> bool {
    discovery::reaches(|at| sources[at].iter().flatten().copied(), from, to)
}
