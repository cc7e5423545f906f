//! Settings that invalidate results, add to them, or keep servers from replicating alike.

use replimeter_model::{
    doctor::{Finding, FindingCode as Code, Severity},
    engine::Engine,
    replication::Relation,
};

use crate::{
    dialect::log::LogSettings,
    rules::{Rule, Subject, Values},
};

fn all(_: &Subject<'_>) -> bool {
    true
}

pub(super) fn shares_log(server: &Subject<'_>) -> bool {
    let writes = server.relation == Relation::Writer || server.relation.in_cluster();
    LogSettings::of(server.facts).on && (writes || server.is_source)
}

/// A Galera node.
pub(super) const NODE: [Rule; 1] = [Rule {
    severity: Severity::Warning,
    code: Code::NodeDesynced,
    concerns: all,
    names: &["wsrep_desync"],
    values: Values::Are(&["ON", "1", "YES"]),
    message: "it is desynced (wsrep_desync=ON): it may fall behind without slowing the other nodes",
    hint: "SET GLOBAL wsrep_desync=OFF; and wait until it is Synced",
}];

/// The format of a log that others read.
pub(super) const FORMAT: [Rule; 3] = [
    Rule {
        severity: Severity::Warning,
        code: Code::BinlogFormat,
        concerns: shares_log,
        names: &["binlog_format"],
        values: Values::Are(&["STATEMENT"]),
        message: "binlog_format=STATEMENT: replicas execute statements again, possibly with other results; clusters, most parallel appliers and many tools need ROW",
        hint: "SET GLOBAL binlog_format=ROW; and set it in the option file too; it applies to new connections",
    },
    Rule {
        severity: Severity::Info,
        code: Code::BinlogFormat,
        concerns: shares_log,
        names: &["binlog_format"],
        values: Values::Other(&["ROW", "STATEMENT"]),
        message: "binlog_format={value}: some statements are logged as text and executed again on replicas, others as rows",
        hint: "SET GLOBAL binlog_format=ROW; so that all statements are replicated alike",
    },
    Rule {
        severity: Severity::Info,
        code: Code::RowImage,
        concerns: shares_log,
        names: &["binlog_row_image"],
        values: Values::Other(&["FULL"]),
        message: "binlog_row_image={value}: row events leave columns out, so they are smaller than by default",
        hint: "compare results only with servers that have the same setting",
    },
];

/// How transactions are numbered.
pub(super) const GTID: [Rule; 1] = [Rule {
    severity: Severity::Info,
    code: Code::GtidOff,
    // Reported once, for the server that assigns GTIDs.
    concerns: |server| server.relation == Relation::Writer,
    names: &["gtid_mode"],
    values: Values::Other(&["ON"]),
    message: "gtid_mode={value}: errant transactions cannot be detected, and a replica cannot wait for a transaction",
    hint: "follow \"Enabling GTID Transactions Online\" in the MySQL manual",
}];

/// How a Galera node applies.
pub(super) const NODE_APPLIERS: [Rule; 1] = [Rule {
    severity: Severity::Info,
    code: Code::SingleThreadedApplier,
    concerns: |server| server.relation == Relation::Galera,
    names: &["wsrep_slave_threads"],
    values: Values::Are(&["1"]),
    message: "one thread applies the writes of other nodes (wsrep_slave_threads=1)",
    hint: "SET GLOBAL wsrep_slave_threads=4; to apply transactions in parallel",
}];

/// Defaults of sessions.
const SESSIONS: [Rule; 2] = [
    Rule {
        severity: Severity::Info,
        code: Code::AutocommitOff,
        concerns: all,
        names: &["autocommit"],
        values: Values::Are(&["OFF"]),
        message: "autocommit=0 for new sessions: clients that do not change it keep reading from one old snapshot",
        hint: "SET GLOBAL autocommit=ON; (Replimeter's own sessions set it anyway)",
    },
    Rule {
        severity: Severity::Warning,
        code: Code::IsolationSerializable,
        concerns: all,
        names: &["transaction_isolation", "tx_isolation"],
        values: Values::Are(&["SERIALIZABLE"]),
        message: "sessions begin as SERIALIZABLE: reads inside transactions lock rows, and appliers wait for them",
        hint: "SET GLOBAL TRANSACTION ISOLATION LEVEL REPEATABLE READ; (Replimeter's own sessions set it anyway, loads from your files do not)",
    },
];

/// What stages of transactions need.
const STAGES: [Rule; 1] = [Rule {
    severity: Severity::Info,
    code: Code::PerformanceSchemaOff,
    // MariaDB disables it by default, and has no stages in it.
    concerns: |server| server.facts.engine == Engine::MySql,
    names: &["performance_schema"],
    values: Values::Are(&["OFF"]),
    message: "performance_schema is OFF: the stages of a transaction cannot be measured",
    hint: "set performance_schema=ON in its option file and restart it",
}];

/// Returns findings about defaults of a server's sessions.
#[must_use]
pub fn sessions(server: &Subject<'_>) -> Vec<Finding> {
    server.findings(&SESSIONS)
}

/// Returns findings about settings without which the stages of transactions cannot be measured.
#[must_use]
pub fn stages(server: &Subject<'_>) -> Vec<Finding> {
    server.findings(&STAGES)
}
