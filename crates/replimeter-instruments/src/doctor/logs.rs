//! Binary logs, GTIDs and appliers.

use replimeter_engine::dialect::{appliers::appliers, log::LogSettings, statements};
use replimeter_model::{
    doctor::{Finding, FindingCode as Code, Severity},
    replication::Relation,
};

use super::{
    CheckContext, about,
    examination::{Examination, ServerState},
    replication::filter_texts,
};
use crate::{SCHEMA, TABLE};

pub(super) fn check(view: &CheckContext<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, server, state) in view.reached() {
        let log = LogSettings::of(&state.facts);
        findings.extend(of_log(view, index, server, state, &log));
        findings.extend(gtids(view, index, server, state));
        findings.extend(applying(view, index, server, state));
    }
    findings.extend(not_strict(view));
    findings.extend(durability(view));
    findings
}

fn of_log(
    view: &CheckContext<'_>,
    index: usize,
    server: &Examination,
    state: &ServerState,
    log: &LogSettings,
) -> Vec<Finding> {
    let mut findings = Vec::from_iter(written(view, index, server, state, log));
    let relation = view.relation(index);
    // For servers that write, or that others replicate from.
    if log.on
        && (matches!(
            relation,
            Relation::Writer | Relation::Galera | Relation::Group
        ) || view.is_source(index))
    {
        findings.extend(format(server, log));
        findings.extend(filters(server, state));
    }
    findings
}

/// Returns whether a server logs its writes and the transactions that it applies.
fn written(
    view: &CheckContext<'_>,
    index: usize,
    server: &Examination,
    state: &ServerState,
    log: &LogSettings,
) -> Option<Finding> {
    let relation = view.relation(index);
    let (severity, code, message, hint) = if !log.on
        && relation == Relation::Writer
        && state.membership.galera().is_none()
    {
        let lone = view.servers.len() == 1;
        (
            if lone {
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
            format!(
                "for either, set log_bin and {}=ON and restart it",
                log.updates_variable
            ),
        )
    } else if !log.logs_updates
        && matches!(relation, Relation::Channel | Relation::Galera)
        && !view.is_source(index)
    {
        (
            Severity::Info,
            Code::UpdatesNotLogged,
            format!(
                "it does not log what it applies ({}=OFF): no server can replicate from it, and `tap` receives nothing from it",
                log.updates_variable
            ),
            format!("for either, set {}=ON and restart it", log.updates_variable),
        )
    } else {
        return None;
    };
    Some(about(severity, code, server, message, hint))
}

/// Returns findings about the format of the log.
fn format(server: &Examination, log: &LogSettings) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut add = |severity, code, message: String, hint: String| {
        findings.push(about(severity, code, server, message, hint))
    };
    match log.format.as_str() {
        "ROW" | "" => {}
        "STATEMENT" => add(
            Severity::Warning,
            Code::BinlogFormat,
            "binlog_format=STATEMENT: replicas execute statements again, possibly with other results; clusters, most parallel appliers and many tools need ROW".to_owned(),
            "SET GLOBAL binlog_format=ROW; and set it in the option file too; it applies to new connections".to_owned(),
        ),
        other => add(
            Severity::Info,
            Code::BinlogFormat,
            format!("binlog_format={other}: some statements are logged as text and executed again on replicas, others as rows"),
            "SET GLOBAL binlog_format=ROW; so that all statements are replicated alike".to_owned(),
        ),
    }
    if !matches!(log.row_image.as_str(), "FULL" | "") {
        add(
            Severity::Info,
            Code::RowImage,
            format!(
                "binlog_row_image={}: row events leave columns out, so they are smaller than by default",
                log.row_image
            ),
            "compare results only with servers that have the same setting".to_owned(),
        );
    }
    findings
}

/// Returns a finding about the log's filters.
fn filters(server: &Examination, state: &ServerState) -> Option<Finding> {
    let Ok(Some(filters)) = &state.binlog_filters else {
        return None;
    };
    if let Some(reason) = filters.excludes(SCHEMA, &TABLE) {
        return Some(about(
            Severity::Error,
            Code::FilterSwallowsSchema,
            server,
            format_args!("its binary log {reason}: rows of a measurement would not be replicated"),
            format!("let the schema `{SCHEMA}` pass the filter during the measurement"),
        ));
    }
    let all = filter_texts(filters);
    (!all.is_empty()).then(|| {
        about(
            Severity::Info,
            Code::BinlogFilter,
            server,
            format_args!("its binary log is filtered: {}", all.join("; ")),
            format!("the schema `{SCHEMA}` passes; no replica has the filtered data"),
        )
    })
}

fn gtids(
    view: &CheckContext<'_>,
    index: usize,
    server: &Examination,
    state: &ServerState,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mode = state.facts.get("gtid_mode");
    if !matches!(mode, "" | "ON") {
        // Reported once, for the server that assigns GTIDs.
        if view.relation(index) == Relation::Writer {
            findings.push(about(
                Severity::Info,
                Code::GtidOff,
                server,
                format_args!("gtid_mode={mode}: errant transactions cannot be detected, and a replica cannot wait for a transaction"),
                "follow \"Enabling GTID Transactions Online\" in the MySQL manual",
            ));
        }
        return findings;
    }
    for channel in state.channels().iter().filter(|channel| !channel.by_gtid) {
        findings.push(about(
            Severity::Info,
            Code::NotByGtid,
            server,
            format_args!(
                "it replicates from {}:{} by file and offset, not by GTID",
                channel.source_host, channel.source_port
            ),
            format!(
                "use GTIDs, or a change of source needs positions set by hand: {}",
                statements::use_gtid(state.facts.engine, channel)
            ),
        ));
    }
    findings
}

fn not_strict(view: &CheckContext<'_>) -> Option<Finding> {
    let lax: Vec<&str> = view
        .reached()
        .filter(|(_, _, state)| {
            state.facts.get("gtid_strict_mode") == "OFF" && state.membership.galera().is_none()
        })
        .map(|(_, server, _)| server.name.as_str())
        .collect();
    (!lax.is_empty()).then(|| {
        Finding::among(
            Severity::Info,
            Code::GtidNotStrict,
            format!("gtid_strict_mode is OFF on {}: binary logs can contain out-of-order GTIDs without an error", lax.join(", ")),
            "SET GLOBAL gtid_strict_mode=ON; and in the option file too, to make it an error of the replica",
        )
    })
}

fn applying(
    view: &CheckContext<'_>,
    index: usize,
    server: &Examination,
    state: &ServerState,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    if view.relation(index) == Relation::Galera {
        if state.facts.get("wsrep_slave_threads") == "1" {
            findings.push(about(
                Severity::Info,
                Code::SingleThreadedApplier,
                server,
                "one thread applies the writes of other nodes (wsrep_slave_threads=1)",
                "SET GLOBAL wsrep_slave_threads=4; to apply transactions in parallel",
            ));
        }
        return findings;
    }
    let (Relation::Channel | Relation::Group, Some(appliers)) =
        (view.relation(index), appliers(&state.facts))
    else {
        return findings;
    };
    if !appliers.parallel() {
        let set = format!("SET GLOBAL {}=4;", appliers.threads_variable);
        let how = match state.channels().first() {
            Some(channel) => {
                let engine = state.facts.engine;
                let stop = statements::stop(engine, channel, statements::ChannelPart::Both);
                let start = statements::start(engine, channel, statements::ChannelPart::Both);
                format!("{stop} {set} {start}")
            }
            None => format!("{set} with the group's applier stopped"),
        };
        findings.push(about(
            Severity::Info,
            Code::SingleThreadedApplier,
            server,
            format_args!(
                "one thread applies everything it receives ({}={})",
                appliers.threads_variable, appliers.threads
            ),
            format!("use several threads if it falls behind a source with many writers: {how}"),
        ));
        return findings;
    }
    if let Some((variable, false)) = appliers.keeps_order {
        findings.push(about(
            Severity::Warning,
            Code::CommitOrderNotPreserved,
            server,
            format_args!(
                "it applies with {} threads and commits out of order ({variable}=OFF): a later row may become visible first, and a position reached does not include everything before it",
                appliers.threads
            ),
            format!("SET GLOBAL {variable}=ON; with the replica stopped"),
        ));
    }
    if let Some(source) = view.source(index)
        && let Some(source) = view.state(source.server)
        && source.facts.get("binlog_transaction_dependency_tracking") == "COMMIT_ORDER"
    {
        findings.push(about(
            Severity::Info,
            Code::DependencyTracking,
            server,
            "its source tracks dependencies by COMMIT_ORDER: only transactions committed together on it are applied in parallel here",
            "on the source: SET GLOBAL binlog_transaction_dependency_tracking=WRITESET;",
        ));
    }
    findings
}

/// Returns a finding about acknowledged transactions that a crash loses, where servers differ or
/// some may lose them.
fn durability(view: &CheckContext<'_>) -> Option<Finding> {
    let all: Vec<(&str, bool, String)> = view
        .reached()
        .map(|(_, server, state)| {
            let log = LogSettings::of(&state.facts);
            (server.name.as_str(), log.durable(), log.durability())
        })
        .collect();
    let (_, _, first) = all.first()?;
    if all.iter().any(|(_, _, settings)| settings != first) {
        let each: Vec<String> = all
            .iter()
            .map(|(name, _, settings)| format!("{name} {settings}"))
            .collect();
        return Some(Finding::among(
            Severity::Info,
            Code::DurabilityDiffers,
            format!("servers flush their logs differently: {}", each.join("; ")),
            "compare modes with the same settings on all servers: a replica that flushes less applies faster",
        ));
    }
    let index = view
        .topology
        .writer
        .filter(|writer| view.state(*writer).is_some())?;
    let state = view.state(index)?;
    let log = LogSettings::of(&state.facts);
    (!log.durable()).then(|| {
        about(
            Severity::Info,
            Code::DurabilityRelaxed,
            &view.servers[index],
            format_args!("{}: a crash of its machine may lose transactions that it acknowledged", log.durability()),
            "SET GLOBAL sync_binlog=1; SET GLOBAL innodb_flush_log_at_trx_commit=1; each adds a flush",
        )
    })
}
