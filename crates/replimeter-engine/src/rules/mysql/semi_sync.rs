//! Semi-synchronous replication: whether the configuration is in effect.

use replimeter_model::{
    doctor::{Finding, FindingCode as Code, Severity},
    replication::Relation,
};

use crate::{
    dialect::{
        Channel,
        acknowledgement::{PrimaryState, VariableNames},
        statements::{self, ChannelPart},
    },
    facts::ServerFacts,
    rules::{Subject, Subjects, number, read},
};

fn words(facts: &ServerFacts) -> VariableNames {
    VariableNames::of(facts).unwrap_or(VariableNames::NEWEST)
}

/// Returns findings about primaries that wait for acknowledgements, then about replicas that send them.
#[must_use]
pub fn acknowledgements(servers: &Subjects<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for server in read(servers) {
        // A replica may be configured for a later role as primary.
        let writes = server.relation == Relation::Writer || server.is_source;
        let primary = server.membership.waits.as_ref();
        let primary = primary.filter(|primary| primary.enabled && (writes || primary.clients > 0));
        findings.extend(
            primary
                .into_iter()
                .flat_map(|primary| of_primary(server, primary)),
        );
    }
    for server in read(servers) {
        let channels = server.membership.channels().iter();
        for (channel, source) in channels.zip(server.channel_sources) {
            let source = source.and_then(|source| servers[source].as_ref());
            findings.extend(source.and_then(|source| of_replica(server, channel, source)));
        }
    }
    findings
}

fn of_primary(server: &Subject<'_>, primary: &PrimaryState) -> Vec<Finding> {
    let names = words(server.facts);
    let mut findings = Vec::new();
    let mut add = |severity, code, message: String, hint: String| {
        findings.push(server.about(severity, code, message, hint))
    };
    let PrimaryState {
        clients,
        wait_for,
        timeout_ms,
        ..
    } = primary;
    if *clients == 0 {
        let effect = if primary.active {
            format!("the next write waits {timeout_ms} ms, until the timeout")
        } else {
            "replication is asynchronous".to_owned()
        };
        add(
            Severity::Warning,
            Code::AcknowledgementNoClients,
            format!(
                "semi-synchronous replication is enabled, but no replica acknowledges: {effect}"
            ),
            format!(
                "on a replica: SET GLOBAL {}_enabled=ON; then restart its receiving thread",
                names.replica
            ),
        );
    } else if !primary.active {
        add(
            Severity::Warning,
            Code::AcknowledgementFallenBack,
            format!(
                "semi-synchronous replication is enabled, but has fallen back to asynchronous: {} can acknowledge, it waits for {wait_for}",
                number(*clients, "replica")
            ),
            "check whether a replica is stopped or slower than the timeout; once one has caught up, the next write it acknowledges makes replication semi-synchronous again".to_owned(),
        );
    }
    if *clients > 0 && wait_for > clients {
        add(
            Severity::Warning,
            Code::AcknowledgementWaitCount,
            format!(
                "it waits for {}, but only {clients} can acknowledge",
                number(*wait_for, "replica")
            ),
            format!(
                "connect more replicas, or SET GLOBAL {}_{}={clients};",
                names.primary, names.count
            ),
        );
    }
    if primary.unacknowledged > 0 {
        add(
            Severity::Warning,
            Code::AcknowledgementUnacknowledged,
            format!(
                "since it started, {} committed without an acknowledgement ({} with one), so not semi-synchronously",
                number(primary.unacknowledged, "transaction"),
                primary.acknowledged
            ),
            format!(
                "raise {}_timeout (now {timeout_ms} ms), or find out why no replica acknowledged in time",
                names.primary
            ),
        );
    }
    add(
        Severity::Info,
        Code::AcknowledgementSettings,
        format!(
            "semi-synchronous: wait point {}, waits for {wait_for} of {clients} replicas, for up to {timeout_ms} ms",
            primary.wait_point
        ),
        if primary.wait_point == "AFTER_COMMIT" {
            "AFTER_COMMIT: other sessions may read a row before a replica has it, and a crash may lose it"
        } else {
            "AFTER_SYNC: a replica may show a row before the primary acknowledges it, so lag may be negative"
        }
        .to_owned(),
    );
    findings
}

fn of_replica(server: &Subject<'_>, channel: &Channel, source: &Subject<'_>) -> Option<Finding> {
    let primary = source.membership.waits.as_ref()?;
    let (own, source) = (server.membership.acknowledges, source.name);
    let names = words(server.facts);
    let restart = statements::restart(server.facts.engine, channel, ChannelPart::Receiver);
    let (severity, code, message, hint) = match (primary.enabled, own.enabled, own.active) {
        (true, true, false) if channel.running() => (
            Severity::Warning,
            Code::AcknowledgementReceiverNotRestarted,
            format!(
                "its side of semi-synchronous replication is enabled but not in effect: it does not acknowledge to {source}"
            ),
            format!("its receiving thread started before that: {restart}"),
        ),
        (true, false, _) => {
            // Other replicas may acknowledge instead.
            let enough =
                primary.active && primary.clients >= primary.wait_for && primary.clients > 0;
            (
                if enough {
                    Severity::Info
                } else {
                    Severity::Warning
                },
                Code::AcknowledgementReplicaOff,
                format!(
                    "{source} is semi-synchronous, but this replica's side is off: it receives asynchronously"
                ),
                format!("SET GLOBAL {}_enabled=ON; {restart}", names.replica),
            )
        }
        (false, true, _) => (
            Severity::Warning,
            Code::AcknowledgementPrimaryOff,
            format!(
                "its side of semi-synchronous replication is enabled, but that of {source} is not: replication is asynchronous"
            ),
            format!("on {source}: SET GLOBAL {}_enabled=ON;", names.primary),
        ),
        _ => return None,
    };
    Some(server.about(severity, code, message, hint))
}
