//! The document's row for each server.

use replimeter_engine::membership::ClusterState;
use replimeter_model::{
    doctor::{ChannelRow, DoctorRow},
    replication::{Mode, Relation},
};

use super::{
    CheckContext,
    examination::{Examination, ServerState},
    replication::source_name,
};

pub(super) fn rows(view: &CheckContext<'_>) -> Vec<DoctorRow> {
    (0..view.servers.len())
        .map(|index| row(view, index))
        .collect()
}

fn row(view: &CheckContext<'_>, index: usize) -> DoctorRow {
    let server = &view.servers[index];
    let empty = unreached(server);
    let state = match &server.state {
        Ok(state) => state,
        Err(error) => {
            return DoctorRow {
                state: format!("{}: {}", error.operation, error.cause),
                ..empty
            };
        }
    };
    let channels: Vec<ChannelRow> = (0..state.channels().len())
        .map(|number| channel(view, index, state, number))
        .collect();
    let relation = view.relation(index);
    let used = view
        .source(index)
        .and_then(|source| channels.get(source.channel));
    let own = cluster(state);
    let (mode, role) = match relation {
        Relation::Writer => (own, own.map_or("primary", |_| "node")),
        Relation::Channel => (used.and_then(|row| row.mode), "replica"),
        _ if relation.in_cluster() => (own, "node"),
        _ if state.channels().is_empty() => (None, "none"),
        _ => (None, "replica"),
    };
    DoctorRow {
        reached: true,
        version: Some(state.version()),
        version_full: Some(
            format!(
                "{} {}",
                state.facts.version,
                state.facts.get("version_comment")
            )
            .trim()
            .to_owned(),
        ),
        uptime_s: state.counter("Uptime"),
        role: Some(role.to_owned()),
        relation,
        source: view
            .source(index)
            .map(|source| view.servers[source.server].name.clone()),
        mode,
        state: words(state, relation, used),
        channels,
        tls: Some(if state.tls { "encrypted" } else { "plain" }.to_owned()),
        connect_us: Some(state.connect_us),
        round_trip_us: Some(state.round_trip),
        clock: state.clock,
        ..empty
    }
}

/// Returns the row of a server whose declaration is all that is known.
fn unreached(server: &Examination) -> DoctorRow {
    DoctorRow {
        name: server.name.clone(),
        address: server.address.clone(),
        reached: false,
        version: None,
        version_full: None,
        uptime_s: None,
        role: server.role.map(|role| role.name().to_owned()),
        relation: Relation::Unknown,
        source: None,
        mode: None,
        state: String::new(),
        channels: Vec::new(),
        tls: None,
        connect_us: None,
        round_trip_us: None,
        clock: None,
    }
}

/// Returns the mode of the server's cluster.
pub(super) fn cluster(state: &ServerState) -> Option<Mode> {
    state.membership.as_member().map(ClusterState::mode)
}

fn channel(
    view: &CheckContext<'_>,
    index: usize,
    state: &ServerState,
    number: usize,
) -> ChannelRow {
    let channel = &state.channels()[number];
    let source = view.topology.channel_sources[index][number];
    let primary = source.and_then(|source| view.state(source));
    let mode = primary.map(|primary| state.membership.mode_from(&primary.membership));
    channel.row(source_name(view, index, channel), source.is_some(), mode)
}

/// Returns a one-line description of the server's state.
fn words(state: &ServerState, relation: Relation, used: Option<&ChannelRow>) -> String {
    let mut parts = Vec::new();
    let member = state.membership.as_member();
    parts.extend(member.map(ClusterState::description_and_role));
    match (relation, used) {
        (Relation::Writer, _) => parts.insert(
            0,
            if state.facts.read_only().is_some() {
                "read-only"
            } else {
                "takes the writes"
            }
            .to_owned(),
        ),
        (_, Some(row)) if row.running => {
            let behind = row
                .seconds_behind
                .map(|seconds| format!(", {seconds} s behind by Seconds_Behind"));
            let delay = if row.delay_s > 0 {
                format!(", delayed by {} s", row.delay_s)
            } else {
                String::new()
            };
            parts.push(format!("running{}{delay}", behind.unwrap_or_default()));
        }
        (_, Some(row)) => parts.push(format!(
            "not running: receiver {}, applier {}",
            row.receiver, row.applier
        )),
        (Relation::None, None) if state.membership.channels.is_err() => {
            parts.push("its replication sources could not be read".to_owned())
        }
        (Relation::None, None) => parts.push("replicates from none of these servers".to_owned()),
        _ => {}
    }
    parts.join(", ")
}
