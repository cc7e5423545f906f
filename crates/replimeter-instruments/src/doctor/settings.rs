//! Settings that make results invalid, or add to them.

use replimeter_engine::{
    dialect::{group::GroupState, settings, statements},
    membership::{ClusterState, WaitingReads},
    rules::{self, ENGINES_DIFFER, Subject},
};
use replimeter_model::{
    doctor::{Finding, FindingCode as Code, Severity},
    replication::Relation,
};

use super::{
    CheckContext, about,
    examination::{Examination, ServerState},
    topology::reaches,
};
use crate::{
    SCHEMA,
    discovery::{applier_stops, writable_transactions},
    stamp::{FEDERATED, REMOVE_FEDERATED},
    table::drop_table,
};

/// Connections that a run needs on the writer, and on each other server.
const TAKES: (u64, u64) = (4, 2);
/// Below this share of free connections a finding is reported, in percent.
const SCARCE_PERCENT: u64 = 5;

pub(super) fn check(view: &CheckContext<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, server, state) in view.reached() {
        let subject = view.subject(index, server, state);
        findings.extend(access(view, index, server, state));
        findings.extend(sessions(&subject, server, state));
        findings.extend(connections(view, index, server, state));
        findings.extend(statement_logs(server, state));
        findings.extend(rules::stages(&subject));
        findings.extend(ours(view, index, server, state));
    }
    findings.extend(versions(view));
    findings
}

fn access(
    view: &CheckContext<'_>,
    index: usize,
    server: &Examination,
    state: &ServerState,
) -> Option<Finding> {
    let read_only = state.facts.read_only();
    match (view.relation(index), read_only) {
        (Relation::Writer, Some(name)) => Some(about(
            Severity::Error,
            Code::WriterReadOnly,
            server,
            format_args!(
                "it takes the writes, but it is read-only ({name}={})",
                state.facts.get(name)
            ),
            // A replica or a secondary must stay read-only: no other server receives what is written
            // there.
            if state.membership.group().is_some_and(is_secondary)
                || !view.topology.channel_sources[index].is_empty()
            {
                "name the server that takes the writes as the primary".to_owned()
            } else {
                format!("name the writable server as the primary, or SET GLOBAL {name}=OFF;")
            },
        )),
        (Relation::Channel, None) => {
            // The source of the writer is prepared to take over.
            let sources = &view.topology.channel_sources;
            let circle = view
                .topology
                .writer
                .is_some_and(|writer| reaches(sources, writer, index));
            Some(about(
                if circle {
                    Severity::Info
                } else {
                    Severity::Warning
                },
                Code::ReplicaWritable,
                server,
                "it is a replica and accepts writes (read_only=OFF), which no other server receives",
                format!(
                    "{} and in its option file",
                    statements::forbid_writes(state.facts.engine)
                ),
            ))
        }
        (Relation::Group, None) if state.membership.group().is_some_and(is_secondary) => {
            Some(about(
                Severity::Warning,
                Code::ReplicaWritable,
                server,
                "it is a secondary of its group and accepts writes (super_read_only=OFF)",
                statements::forbid_writes(state.facts.engine),
            ))
        }
        _ => None,
    }
}

/// Returns whether another member of the group takes the writes.
fn is_secondary(group: &GroupState) -> bool {
    group.single_primary
        && group
            .own_member()
            .is_some_and(|own| own.role == "SECONDARY")
}

/// Returns findings about defaults of sessions.
fn sessions(subject: &Subject<'_>, server: &Examination, state: &ServerState) -> Vec<Finding> {
    let mut findings = Vec::new();
    let member = state.membership.as_member();
    if let Some(WaitingReads { setting, mend }) = member.and_then(ClusterState::waiting_reads) {
        findings.push(about(
            Severity::Warning,
            Code::WaitingReads,
            server,
            format_args!(
                "{setting}: every read, or every write, waits for replication; the measured lag excludes that wait"
            ),
            mend,
        ));
    }
    findings.extend(rules::sessions(subject));
    if !state.channels().is_empty()
        && let Some(setting) = settings::begins_read_only(&state.facts)
    {
        findings.push(about(
            Severity::Error,
            Code::TransactionsReadOnly,
            server,
            applier_stops(setting),
            writable_transactions(setting),
        ));
    }
    if state.sysdate_is_now {
        findings.push(about(
            Severity::Info,
            Code::SysdateIsNow,
            server,
            "it runs with sysdate_is_now: SYSDATE() is the statement's beginning, on a replica the source's, so `stamp` measures nothing",
            "start it without sysdate_is_now to measure by `stamp`",
        ));
    }
    findings
}

fn connections(
    view: &CheckContext<'_>,
    index: usize,
    server: &Examination,
    state: &ServerState,
) -> Option<Finding> {
    let most: u64 = state.facts.get("max_connections").parse().ok()?;
    let used = state.counter("Threads_connected")?;
    // One of them is Replimeter's, and ends before a run begins.
    let free = (most + 1).saturating_sub(used);
    let takes = if view.relation(index) == Relation::Writer {
        TAKES.0
    } else {
        TAKES.1
    };
    let severity = if free < takes {
        Severity::Error
    } else if free < takes + most * SCARCE_PERCENT / 100 {
        Severity::Warning
    } else {
        return None;
    };
    Some(about(
        severity,
        Code::ConnectionsNearlyExhausted,
        server,
        format_args!("{used} of {most} connections are in use; a run takes {takes} here"),
        "raise max_connections with SET GLOBAL, or close idle clients",
    ))
}

/// Returns a finding about logs of statements, which are part of every time.
fn statement_logs(server: &Examination, state: &ServerState) -> Option<Finding> {
    let logs = settings::statement_logs(&state.facts);
    let each = |text: &dyn Fn(&str) -> String| logs.iter().map(|log| text(log)).collect::<Vec<_>>();
    (!logs.is_empty()).then(|| {
        about(
            Severity::Info,
            Code::StatementLog,
            server,
            format_args!(
                "{} on: statement logging is part of every time",
                each(&|log| format!("{log} is")).join(", ")
            ),
            each(&|log| format!("SET GLOBAL {log}=OFF;")).join(" "),
        )
    })
}

/// Returns findings about running measurements, and tables left by earlier ones.
fn ours(
    view: &CheckContext<'_>,
    index: usize,
    server: &Examination,
    state: &ServerState,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let writer = view.relation(index) == Relation::Writer;
    if let Some(holder) = &state.measured_by {
        findings.push(about(
            if writer {
                Severity::Error
            } else {
                Severity::Info
            },
            Code::BeingMeasured,
            server,
            format_args!("another run is measuring it (its connection {holder})"),
            "wait until that run ends, or end it",
        ));
    }
    let measured = view
        .reached()
        .any(|(_, _, other)| other.measured_by.is_some());
    if state.federated && !measured {
        findings.push(about(
            Severity::Warning,
            Code::LeftoverTable,
            server,
            format_args!("a killed run left its table `replimeter`.`{FEDERATED}`, whose definition holds the password of the primary's user"),
            format!("start a run, which removes it; or, {REMOVE_FEDERATED}"),
        ));
    }
    for table in state.tables.iter().flatten().filter(|_| !measured) {
        findings.push(about(
            Severity::Info,
            Code::LeftoverTable,
            server,
            format_args!("a killed run left its table `{SCHEMA}`.`{table}`"),
            format!(
                "start a run, which removes it; or, on the primary: {};",
                drop_table(table)
            ),
        ));
    }
    findings
}

/// Returns major and minor version, then the rest.
fn number(version: &str) -> Vec<u64> {
    let digits = version.split(['-', ' ']).next().unwrap_or_default();
    digits
        .split('.')
        .map_while(|part| part.parse().ok())
        .collect()
}

fn versions(view: &CheckContext<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, server, state) in view.reached() {
        let source = view.upstream(index);
        let Some((source, theirs)) = source.and_then(|source| Some((source, view.state(source)?)))
        else {
            continue;
        };
        let in_cluster = view.relation(index) != Relation::Channel;
        let (own, other) = (number(&state.facts.version), number(&theirs.facts.version));
        let title = &view.servers[source].name;
        let series = |version: &[u64]| version.iter().take(2).copied().collect::<Vec<_>>();
        let both = format!("it is {}, {title} is {}", state.version(), theirs.version());
        if state.facts.engine != theirs.facts.engine {
            findings.push(about(
                Severity::Warning,
                Code::EnginesDiffer,
                server,
                format_args!("{both}: {ENGINES_DIFFER}"),
                "use it for migrations only, and compare the data often",
            ));
        } else if series(&other) > series(&own) && !in_cluster {
            findings.push(about(
                Severity::Warning,
                Code::SourceNewer,
                server,
                format_args!(
                    "{both}: a source newer than its replica is not supported, and may send what the replica cannot apply"
                ),
                "upgrade replicas first, the primary last",
            ));
        } else if own != other {
            let differs = series(&other) != series(&own) && in_cluster;
            findings.push(about(
                if differs {
                    Severity::Warning
                } else {
                    Severity::Info
                },
                Code::VersionsDiffer,
                server,
                both,
                "upgrade all to one version: until then, figures compare versions too",
            ));
        }
    }
    // Reported once, for servers without other findings.
    if findings.is_empty() && view.topology.writer.is_none() {
        let versions: std::collections::BTreeSet<String> = view
            .reached()
            .map(|(_, _, state)| state.version())
            .collect();
        if versions.len() > 1 {
            let listed: Vec<String> = versions.into_iter().collect();
            findings.push(Finding::among(
                Severity::Info,
                Code::VersionsDiffer,
                format!("the servers are {}", listed.join(", ")),
                "upgrade all to one version",
            ));
        }
    }
    findings
}
