//! Errors for servers whose state contradicts their declaration.

use replimeter_engine::{
    ServerError, Session,
    dialect::{
        Channel, ThreadState,
        statements::{self, ChannelPart},
    },
    membership::NO_CLUSTER,
    source::Member,
};
use replimeter_model::{engine::Engine, replication::Relation, target::Role};

use super::{DiscoveredServer, Topology};

/// Returns why a server does not receive the writer's writes.
pub(super) fn unknown_source(writer: &DiscoveredServer, server: &DiscoveredServer) -> ServerError {
    let session = &server.session;
    let operation = "is not a replica of the given primary";
    if let Some(own) = server.membership.as_member() {
        return own.without_primary(session, writer.session.name());
    }
    let channels = match &server.membership.channels {
        Ok(channels) => channels,
        Err(error) => return error.clone(),
    };
    if channels.is_empty() {
        return session.precondition(
            operation,
            "it has no replication source",
            "check that this is the right server, and set up replication first",
        );
    }
    // A channel that never connected has no source yet; its state shows why.
    if let Some(channel) = channels
        .iter()
        .find(|channel| channel.source_server_id == 0)
    {
        return not_running(session, server.facts.engine, channel);
    }
    let identity = writer.facts.identity();
    let called = |server_id: u64, uuid: &str| {
        if uuid.is_empty() {
            format!("server_id {server_id}")
        } else {
            format!("server_uuid {uuid}")
        }
    };
    let sources: Vec<String> = channels
        .iter()
        .map(|channel| {
            let called = called(channel.source_server_id, &channel.source_uuid);
            format!("{}:{} ({called})", channel.source_host, channel.source_port)
        })
        .collect();
    session.precondition(
        operation,
        format!(
            "it replicates from {}, and the primary {} has {}",
            sources.join(", "),
            writer.session.address(),
            called(identity.server_id, &identity.uuid)
        ),
        "name the primary that this replica replicates from, add the server in between, or choose another replica",
    )
}

/// Returns the error for a channel that is not running.
pub(crate) fn not_running(session: &Session, engine: Engine, channel: &Channel) -> ServerError {
    let hint = stopped_hint(engine, channel);
    session.precondition("does not replicate", channel.state(), hint)
}

/// Returns the hint for a channel that is not running.
pub(crate) fn stopped_hint(engine: Engine, channel: &Channel) -> String {
    stopped_applier(engine, channel).unwrap_or_else(|| {
        let start = statements::start(engine, channel, ChannelPart::Both);
        format!("run on it: {start} If it stops again, see the server's error log")
    })
}

/// Returns the hint for a channel whose applier alone was stopped, without an error: as a `backlog` stops it.
pub(crate) fn stopped_applier(engine: Engine, channel: &Channel) -> Option<String> {
    let stopped =
        channel.receiver == ThreadState::Running && channel.applier == ThreadState::Stopped;
    (stopped && channel.sql_error.is_empty()).then(|| {
        let start = statements::start(engine, channel, ChannelPart::Applier);
        format!(
            "start its applier, which a killed `replimeter backlog` can have left stopped: {start}"
        )
    })
}

/// Returns what a setting with which transactions begin read-only does to an applier.
pub(crate) fn applier_stops(setting: &str) -> String {
    format!(
        "new sessions begin with {setting}=ON, also that of its applier: when it is started the next time, it stops with an error"
    )
}

/// Returns the hint for such a setting.
pub(crate) fn writable_transactions(setting: &str) -> String {
    format!("SET GLOBAL {setting}=OFF; (read_only keeps clients from writing to a replica)")
}

/// Returns how a server's state contradicts its declared role or source, and a hint.
pub(super) fn contradiction(
    servers: &[DiscoveredServer],
    index: usize,
    topology: &Topology,
    declared: &Member,
) -> Option<(String, &'static str)> {
    const ROLES: &str = "correct the roles, or leave them out";
    let source = topology.sources[index].map(|source| &servers[source.server].session);
    let relation = topology.relations[index];
    let of_role = match (declared.role, servers[index].membership.as_member()) {
        (Some(Role::Node), None) => Some((
            format!("it is declared a node, but {NO_CLUSTER}"),
            "declare a primary and its replicas instead, or check the cluster",
        )),
        (Some(Role::Node), _) => source.map(|source| {
            let cause = format!(
                "it is declared a node, but it is not in the writer's cluster: it replicates from {source}"
            );
            (cause, ROLES)
        }),
        (Some(Role::Replica), Some(member)) if relation.in_cluster() => {
            let cause = format!("it is declared a replica, but it is {}", member.kind());
            Some((cause, ROLES))
        }
        (Some(Role::Replica), _) if relation == Relation::Writer => Some((
            "it is declared a replica, but it takes the writes".to_owned(),
            ROLES,
        )),
        _ => None,
    };
    of_role.or_else(|| match (declared.source.as_deref()?, source) {
        (wanted, Some(source)) if source.name() == wanted => None,
        (wanted, Some(source)) => Some((
            format!("its source is declared as {wanted}, but it replicates from {source}"),
            "correct the file, or change the replica's source",
        )),
        (wanted, None) => Some((
            format!("its source is declared as {wanted}, but it has no replication channel from any of these servers"),
            "correct the file",
        )),
    })
}
