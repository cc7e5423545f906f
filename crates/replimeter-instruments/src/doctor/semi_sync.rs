//! Semi-synchronous replication: whether the configuration is in effect.

use replimeter_engine::dialect::{
    Channel,
    semi_sync::{PrimaryState, VariableNames},
    statements,
};
use replimeter_model::{
    doctor::{Finding, FindingCode as Code, Severity},
    replication::Relation,
};

use super::{CheckContext, about, examination::ServerState, number};

fn words(state: &ServerState) -> VariableNames {
    VariableNames::of(&state.facts).unwrap_or(VariableNames::NEWEST)
}

pub(super) fn check(view: &CheckContext<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, server, state) in view.reached() {
        let Some(primary) = &state.membership.semi_sync else {
            continue;
        };
        // A replica may be configured for a later role as primary.
        let writes = view.relation(index) == Relation::Writer || view.is_source(index);
        if primary.enabled && (writes || primary.clients > 0) {
            findings.extend(of_primary(view, index, primary).into_iter().map(
                |(severity, code, message, hint)| about(severity, code, server, message, hint),
            ));
        }
    }
    for (index, server, state) in view.reached() {
        for (number, channel) in state.channels().iter().enumerate() {
            let source = view.topology.channel_sources[index][number];
            let Some(primary) = source
                .and_then(|source| view.state(source))
                .and_then(|source| source.membership.semi_sync.as_ref())
            else {
                continue;
            };
            let source_name = source
                .map(|source| view.servers[source].name.clone())
                .unwrap_or_default();
            if let Some((severity, code, message, hint)) =
                of_replica(state, channel, primary, &source_name)
            {
                findings.push(about(severity, code, server, message, hint));
            }
        }
    }
    findings
}

type FindingDraft = (Severity, Code, String, String);

fn of_primary(view: &CheckContext<'_>, index: usize, primary: &PrimaryState) -> Vec<FindingDraft> {
    let names = view.state(index).map_or(VariableNames::NEWEST, words);
    let mut drafts = Vec::new();
    let PrimaryState {
        clients,
        wait_for,
        timeout_ms,
        ..
    } = primary;
    if *clients == 0 {
        drafts.push((
            Severity::Warning,
            Code::SemiSyncNoClients,
            format!(
                "semi-synchronous replication is enabled, but no replica acknowledges: {}",
                if primary.active {
                    format!("the next write waits {timeout_ms} ms, until the timeout")
                } else {
                    "replication is asynchronous".to_owned()
                }
            ),
            format!(
                "on a replica: SET GLOBAL {}_enabled=ON; then restart its receiving thread",
                names.replica
            ),
        ));
    } else if !primary.active {
        drafts.push((
            Severity::Warning,
            Code::SemiSyncFallenBack,
            format!(
                "semi-synchronous replication is enabled, but has fallen back to asynchronous: {} can acknowledge, it waits for {wait_for}",
                number(*clients, "replica")
            ),
            "check whether a replica is stopped or slower than the timeout; once one has caught up, the next write it acknowledges makes replication semi-synchronous again".to_owned(),
        ));
    }
    if *clients > 0 && wait_for > clients {
        drafts.push((
            Severity::Warning,
            Code::SemiSyncWaitCount,
            format!(
                "it waits for {}, but only {clients} can acknowledge",
                number(*wait_for, "replica")
            ),
            format!(
                "connect more replicas, or SET GLOBAL {}_{}={clients};",
                names.primary, names.count
            ),
        ));
    }
    if primary.unacknowledged > 0 {
        drafts.push((
            Severity::Warning,
            Code::SemiSyncUnacknowledged,
            format!(
                "since it started, {} committed without an acknowledgement ({} with one), so not semi-synchronously",
                number(primary.unacknowledged, "transaction"),
                primary.acknowledged
            ),
            format!("raise {}_timeout (now {timeout_ms} ms), or find out why no replica acknowledged in time", names.primary),
        ));
    }
    drafts.push((
        Severity::Info,
        Code::SemiSyncSettings,
        format!(
            "semi-synchronous: wait point {}, waits for {wait_for} of {clients} replicas, for up to {timeout_ms} ms",
            primary.wait_point
        ),
        if primary.wait_point == "AFTER_COMMIT" {
            "AFTER_COMMIT: other sessions may read a row before a replica has it, and a crash may lose it".to_owned()
        } else {
            "AFTER_SYNC: a replica may show a row before the primary acknowledges it, so lag may be negative".to_owned()
        },
    ));
    drafts
}

fn of_replica(
    state: &ServerState,
    channel: &Channel,
    primary: &PrimaryState,
    source: &str,
) -> Option<FindingDraft> {
    let names = words(state);
    let restart = statements::restart(
        state.facts.engine,
        channel,
        statements::ChannelPart::Receiver,
    );
    match (
        primary.enabled,
        state.membership.acknowledges.enabled,
        state.membership.acknowledges.active,
    ) {
        (true, true, false) if channel.running() => Some((
            Severity::Warning,
            Code::SemiSyncReceiverNotRestarted,
            format!(
                "its side of semi-synchronous replication is enabled but not in effect: it does not acknowledge to {source}"
            ),
            format!("its receiving thread started before that: {restart}"),
        )),
        (true, false, _) => {
            // Other replicas may acknowledge instead.
            let enough =
                primary.active && primary.clients >= primary.wait_for && primary.clients > 0;
            Some((
                if enough {
                    Severity::Info
                } else {
                    Severity::Warning
                },
                Code::SemiSyncReplicaOff,
                format!(
                    "{source} is semi-synchronous, but this replica's side is off: it receives asynchronously"
                ),
                format!("SET GLOBAL {}_enabled=ON; {restart}", names.replica),
            ))
        }
        (false, true, _) => Some((
            Severity::Warning,
            Code::SemiSyncPrimaryOff,
            format!(
                "its side of semi-synchronous replication is enabled, but that of {source} is not: replication is asynchronous"
            ),
            format!("on {source}: SET GLOBAL {}_enabled=ON;", names.primary),
        )),
        _ => None,
    }
}
