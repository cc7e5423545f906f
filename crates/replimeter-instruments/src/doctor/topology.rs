//! The replication topology, as far as reachable servers show it.

use replimeter_engine::{ServerError, dialect::Channel};
use replimeter_model::{replication::Relation, target::Role};

use super::examination::{Examination, ServerState};
use crate::discovery::{self, ChannelSources, ReadServer, Source, channel_sources, relation};

/// The writer, and the relation of every other server to it.
#[derive(Clone, Debug, Default)]
pub(super) struct Topology {
    /// The writer, if it can be determined.
    pub(super) writer: Option<usize>,
    /// How each server receives writes, in order.
    pub(super) relations: Vec<Relation>,
    /// The source of each server that receives by a channel.
    pub(super) sources: Vec<Option<Source>>,
    /// The sources of all channels of each server.
    pub(super) channel_sources: ChannelSources,
    /// Why a measurement would refuse these servers.
    pub(super) refused: Option<ServerError>,
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

/// Determines the relations. `related` is a measurement's view of the same servers; `None` when
/// some could not be read, which would make it wrong.
pub(super) fn topology(
    servers: &[Examination],
    related: Option<Result<discovery::Topology, ServerError>>,
) -> Topology {
    let read: Vec<_> = servers
        .iter()
        .map(|server| {
            server.seen().map(|state| ReadServer {
                identity: state.facts.identity(),
                membership: &state.membership,
            })
        })
        .collect();
    let channels = |index: usize| {
        servers[index]
            .seen()
            .map(ServerState::channels)
            .unwrap_or_default()
    };
    let mut channel_sources = channel_sources(&read);
    for (index, sources) in channel_sources.iter_mut().enumerate() {
        for (source, channel) in sources.iter_mut().zip(channels(index)) {
            let not_read = |at: &usize| channel.source_server_id == 0 || read[*at].is_none();
            let by_address = addressed(servers, channel).filter(not_read);
            *source = source.or(by_address).filter(|at| *at != index);
        }
    }
    let (writer, refused) = match related {
        Some(Ok(topology)) => (Some(topology.writer), None),
        Some(Err(error)) => (probable_writer(servers, &channel_sources), Some(error)),
        None => (probable_writer(servers, &channel_sources), None),
    };
    // Without a way to the writer, the first channel from one of the servers.
    let named = |index: usize| {
        let mut sources = channels(index)
            .iter()
            .zip(&channel_sources[index])
            .enumerate();
        sources.find_map(|(number, (channel, source))| {
            let source = Source {
                server: (*source)?,
                channel: number,
                delay_s: channel.delay_s,
            };
            Some((Relation::Channel, Some(source)))
        })
    };
    let place = |index: usize| {
        let found = match writer {
            Some(writer) => relation(&read, &channel_sources, writer, index),
            None if read[index].is_none() => (Relation::Unknown, None),
            None => (Relation::None, None),
        };
        match found {
            (Relation::None, _) => named(index).unwrap_or(found),
            _ => found,
        }
    };
    let (relations, sources) = (0..servers.len()).map(place).unzip();
    Topology {
        writer,
        relations,
        sources,
        channel_sources,
        refused,
    }
}

fn probable_writer(servers: &[Examination], sources: &ChannelSources) -> Option<usize> {
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
        .find_map(|(_, state)| state.membership.group())
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

/// Returns whether `from` is `to`, or replicates from it directly or indirectly.
pub(super) fn reaches(sources: &ChannelSources, from: usize, to: usize) -> bool {
    discovery::reaches(|at| sources[at].iter().flatten().copied(), from, to)
}
