//! Writers that are themselves replicas of a server that is not named.

use replimeter_engine::{
    ServerError, dialect::monitor_privilege, rules::WRITTEN_TO, source::Member,
};
use replimeter_model::{
    replication::Relation,
    warning::{Warning, WarningCode},
};

use crate::discovery::{DiscoveredServer, Topology, reaches};

const OPERATION: &str = "cannot be the primary";
/// What it means for a run.
pub(crate) const SOURCE_EFFECT: &str =
    "that server does not get what a run writes here, and replication from it may stop";
pub(crate) const SOURCE_HINT: &str = "name the server that takes the writes as the primary; if the channel is left from before a failover, remove it with \
                    RESET REPLICA ALL; --write-to-replica writes nevertheless";

/// Returns whether the server `index` is the writer, or the writer replicates from it. `sources` returns a server's sources, and
/// `in_cluster` whether a server is the writer or in its cluster.
pub(crate) fn feeds_writer<I: IntoIterator<Item = usize>>(
    sources: impl Fn(usize) -> I,
    in_cluster: impl Fn(usize) -> bool,
    count: usize,
    index: usize,
) -> bool {
    (0..count).any(|member| in_cluster(member) && reaches(&sources, member, index))
}

/// Refuses a writer that receives writes from a server that is not named: what a run writes is missing there, and if GTIDs must be
/// in order, replication stops at the source's next transaction. A ring is no such writer if all of it is named. Returns
/// warnings if the user allows it, or where it cannot be read.
///
/// # Errors
/// Naming the writer and its source.
pub(super) fn refuse_unnamed_source(
    servers: &[DiscoveredServer],
    declared: &[Member],
    topology: &Topology,
) -> Result<Vec<Warning>, ServerError> {
    let mut warnings = Vec::new();
    let writer = &servers[topology.writer].session;
    let allowed = declared[topology.writer].allowed.write_to_replica;
    let sources = |index: usize| topology.channel_sources[index].iter().flatten().copied();
    let in_cluster = |index: usize| topology.relations[index] != Relation::Channel;
    for (index, server) in servers.iter().enumerate() {
        if !feeds_writer(sources, in_cluster, servers.len(), index) {
            continue;
        }
        if server.membership.channels.is_err() {
            warnings.push(Warning::new(
                WarningCode::NotChecked,
                format!(
                    "{}: the user may not see whether it is a replica of a server that is not named",
                    server.session
                ),
                format!("grant {}", monitor_privilege(server.facts.engine)),
            ));
        }
        let channels = server.membership.channels().iter();
        let mut unnamed = channels
            .zip(&topology.channel_sources[index])
            .filter_map(|(channel, source)| source.is_none().then_some(channel));
        let Some(channel) = unnamed.next() else {
            continue;
        };
        let who = match index == topology.writer {
            true => "it replicates".to_owned(),
            false => format!("it receives what {} replicates", server.session),
        };
        let cause = format!(
            "{who} from {}:{}, which is not named: {SOURCE_EFFECT}",
            channel.source_host, channel.source_port
        );
        if !allowed {
            return Err(writer.precondition(OPERATION, cause, SOURCE_HINT));
        }
        warnings.push(Warning::new(
            WarningCode::SourceNotNamed,
            format!("{writer}: {cause}"),
            WRITTEN_TO,
        ));
    }
    Ok(warnings)
}
