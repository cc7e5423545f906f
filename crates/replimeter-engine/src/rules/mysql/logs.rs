//! Binary logs, GTIDs and appliers.

use replimeter_model::{
    doctor::{Finding, FindingCode as Code, Severity},
    replication::Relation,
};

use super::settings::{FORMAT, GTID, NODE_APPLIERS, shares_log};
use crate::{
    dialect::{
        appliers::{Appliers, appliers},
        log::LogSettings,
        statements::{self, ChannelPart},
    },
    rules::{Subject, Subjects, read},
};

/// Returns findings about logs and appliers: of each server, then of all. `schema` and `table` are those of a run.
#[must_use]
pub fn logs(servers: &Subjects<'_>, schema: &str, table: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let is_lone = servers.len() == 1;
    for server in read(servers) {
        findings.extend(written(server, is_lone));
        findings.extend(server.findings(&FORMAT));
        findings.extend(filters(server, schema, table));
        findings.extend(gtids(server));
        findings.extend(server.findings(&NODE_APPLIERS));
        findings.extend(applying(servers, server));
    }
    findings.extend(not_strict(servers));
    findings.extend(durability(servers));
    findings
}

/// Returns whether a server logs its writes and the transactions that it applies.
fn written(server: &Subject<'_>, is_lone: bool) -> Option<Finding> {
    let log = LogSettings::of(server.facts);
    let (relation, updates) = (server.relation, log.updates_variable);
    let needs_log = relation == Relation::Writer && server.membership.galera().is_none();
    let (severity, code, message, hint) = if !log.on && needs_log {
        (
            if is_lone {
                Severity::Warning
            } else {
                Severity::Error
            },
            Code::BinlogOff,
            "its binary log is off (log_bin=OFF): no server can replicate from it".to_owned(),
            "set log_bin in its option file and restart it".to_owned(),
        )
    } else if !log.on {
        (
            Severity::Info,
            Code::BinlogOff,
            "its binary log is off: no server can replicate from it, and `tap` cannot follow it"
                .to_owned(),
            format!("for either, set log_bin and {updates}=ON and restart it"),
        )
    } else if !log.logs_updates
        && matches!(relation, Relation::Channel | Relation::Galera)
        && !server.is_source
    {
        (
            Severity::Info,
            Code::UpdatesNotLogged,
            format!(
                "it does not log what it applies ({updates}=OFF): no server can replicate from it, and `tap` receives nothing from it"
            ),
            format!("for either, set {updates}=ON and restart it"),
        )
    } else {
        return None;
    };
    Some(server.about(severity, code, message, hint))
}

/// Returns a finding about the filters of a log that others read.
fn filters(server: &Subject<'_>, schema: &str, table: &str) -> Option<Finding> {
    let filters = server.log_filters.filter(|_| shares_log(server))?;
    if let Some(reason) = filters.excludes(schema, table) {
        return Some(server.about(
            Severity::Error,
            Code::FilterSwallowsSchema,
            format_args!("its binary log {reason}: rows of a measurement would not be replicated"),
            format!("let the schema `{schema}` pass the filter during the measurement"),
        ));
    }
    let all = filters.texts();
    (!all.is_empty()).then(|| {
        server.about(
            Severity::Info,
            Code::BinlogFilter,
            format_args!("its binary log is filtered: {}", all.join("; ")),
            format!("the schema `{schema}` passes; no replica has the filtered data"),
        )
    })
}

fn gtids(server: &Subject<'_>) -> Vec<Finding> {
    if !matches!(server.facts.get("gtid_mode"), "" | "ON") {
        return server.findings(&GTID);
    }
    let channels = server.membership.channels().iter();
    let by_offset = channels.filter(|channel| !channel.by_gtid).map(|channel| {
        server.about(
            Severity::Info,
            Code::NotByGtid,
            format_args!(
                "it replicates from {}:{} by file and offset, not by GTID",
                channel.source_host, channel.source_port
            ),
            format!(
                "use GTIDs, or a change of source needs positions set by hand: {}",
                statements::use_gtid(server.facts.engine, channel)
            ),
        )
    });
    by_offset.collect()
}

fn not_strict(servers: &Subjects<'_>) -> Option<Finding> {
    let is_lax = |server: &&Subject<'_>| {
        server.facts.get("gtid_strict_mode") == "OFF" && server.membership.galera().is_none()
    };
    let lax: Vec<&str> = read(servers)
        .filter(is_lax)
        .map(|server| server.name)
        .collect();
    (!lax.is_empty()).then(|| {
        Finding::among(
            Severity::Info,
            Code::GtidNotStrict,
            format!(
                "gtid_strict_mode is OFF on {}: binary logs can contain out-of-order GTIDs without an error",
                lax.join(", ")
            ),
            "SET GLOBAL gtid_strict_mode=ON; and in the option file too, to make it an error of the replica",
        )
    })
}

/// Returns findings about the threads of a replica, or of a member of a group.
fn applying(servers: &Subjects<'_>, server: &Subject<'_>) -> Vec<Finding> {
    let (Relation::Channel | Relation::Group, Some(appliers)) =
        (server.relation, appliers(server.facts))
    else {
        return Vec::new();
    };
    if !appliers.parallel() {
        return vec![single_threaded(server, &appliers)];
    }
    let mut findings = Vec::new();
    if let Some((variable, false)) = appliers.keeps_order {
        findings.push(server.about(
            Severity::Warning,
            Code::CommitOrderNotPreserved,
            format_args!(
                "it applies with {} threads and commits out of order ({variable}=OFF): a later row may become visible first, and a position reached does not include everything before it",
                appliers.threads
            ),
            format!("SET GLOBAL {variable}=ON; with the replica stopped"),
        ));
    }
    let source = server.source.and_then(|source| servers[source].as_ref());
    if source.is_some_and(|source| {
        source.facts.get("binlog_transaction_dependency_tracking") == "COMMIT_ORDER"
    }) {
        findings.push(server.about(
            Severity::Info,
            Code::DependencyTracking,
            "its source tracks dependencies by COMMIT_ORDER: only transactions committed together on it are applied in parallel here",
            "on the source: SET GLOBAL binlog_transaction_dependency_tracking=WRITESET;",
        ));
    }
    findings
}

fn single_threaded(server: &Subject<'_>, appliers: &Appliers) -> Finding {
    let set = format!("SET GLOBAL {}=4;", appliers.threads_variable);
    let how = match server.membership.channels().first() {
        Some(channel) => {
            let (engine, part) = (server.facts.engine, ChannelPart::Both);
            let stop = statements::stop(engine, channel, part);
            let start = statements::start(engine, channel, part);
            format!("{stop} {set} {start}")
        }
        None => format!("{set} with the group's applier stopped"),
    };
    server.about(
        Severity::Info,
        Code::SingleThreadedApplier,
        format_args!(
            "one thread applies everything it receives ({}={})",
            appliers.threads_variable, appliers.threads
        ),
        format!("use several threads if it falls behind a source with many writers: {how}"),
    )
}

/// Returns a finding about acknowledged transactions that a crash loses, where servers differ or
/// some may lose them.
fn durability(servers: &Subjects<'_>) -> Option<Finding> {
    let all: Vec<_> = read(servers)
        .map(|server| (server, LogSettings::of(server.facts)))
        .collect();
    let first = all.first()?.1.durability();
    if all.iter().any(|(_, log)| log.durability() != first) {
        let each: Vec<String> = all
            .iter()
            .map(|(server, log)| format!("{} {}", server.name, log.durability()))
            .collect();
        return Some(Finding::among(
            Severity::Info,
            Code::DurabilityDiffers,
            format!("servers flush their logs differently: {}", each.join("; ")),
            "compare modes with the same settings on all servers: a replica that flushes less applies faster",
        ));
    }
    let (writer, log) = all
        .iter()
        .find(|(server, _)| server.relation == Relation::Writer)?;
    (!log.durable()).then(|| {
        writer.about(
            Severity::Info,
            Code::DurabilityRelaxed,
            format_args!("{first}: a crash of its machine may lose transactions that it acknowledged"),
            "SET GLOBAL sync_binlog=1; SET GLOBAL innodb_flush_log_at_trx_commit=1; each adds a flush",
        )
    })
}

/// Returns a finding about a source that is a replica and does not log what it applies.
#[must_use]
pub fn broken_chain(server: &Subject<'_>) -> Option<Finding> {
    let log = LogSettings::of(server.facts);
    let receives = server.relation == Relation::Channel || server.relation.in_cluster();
    (server.is_source && receives && !log.logs_updates).then(|| {
        let updates = log.updates_variable;
        let why = if log.on {
            format!("{updates}=OFF")
        } else {
            "its binary log is off".to_owned()
        };
        server.about(
            Severity::Error,
            Code::ChainBroken,
            format_args!(
                "others replicate from it, but it does not log what it applies ({why}), so they receive none of it"
            ),
            format!("set log_bin and {updates}=ON in its option file and restart it"),
        )
    })
}
