//! Settings that both engines have, under names that differ by version.

use std::collections::BTreeMap;

use crate::{ServerError, Session, facts::ServerFacts};

/// Returns the setting with which transactions begin read-only, if it is on. An applier takes it over when it starts, and stops at
/// its first transaction.
#[must_use]
pub fn begins_read_only(facts: &ServerFacts) -> Option<&'static str> {
    ["transaction_read_only", "tx_read_only"]
        .into_iter()
        .find(|name| facts.on(name))
}

/// The setting without flushes at commits.
pub const NO_FLUSHES: &str = "innodb_flush_log_at_trx_commit=0";
/// The options of a server that flushes no log.
pub const FLUSHES_NOTHING: [&str; 2] = [NO_FLUSHES, "sync_binlog=0"];
/// Those of a server that writes its logs at each commit and leaves the flushes to the system, as in experiment 5.
pub const FLUSHES_LATER: [&str; 2] = ["innodb_flush_log_at_trx_commit=2", "sync_binlog=0"];
/// Those of a server that flushes its logs at each commit.
pub const FLUSHES_LOGS: [&str; 2] = ["innodb_flush_log_at_trx_commit=1", "sync_binlog=1"];

/// Returns the values of these options on a server with these variables, as text.
#[must_use]
pub fn flushes(variables: &BTreeMap<String, String>) -> String {
    let values = ["innodb_flush_log_at_trx_commit", "sync_binlog"].map(|name| {
        let value = variables.get(name).map_or("unknown", String::as_str);
        format!("{name}={value}")
    });
    values.join(", ")
}

/// Returns whether a server with these variables flushes the log of its storage engine at each commit.
#[must_use]
pub fn flushes_each_commit(variables: &BTreeMap<String, String>) -> bool {
    let value = variables.get("innodb_flush_log_at_trx_commit");
    value.is_some_and(|value| value == "1")
}

/// Returns the variables of the statement logs that are on.
#[must_use]
pub fn statement_logs(facts: &ServerFacts) -> Vec<&'static str> {
    let mut on: Vec<&str> = ["general_log", "slow_query_log", "log_slow_query"]
        .into_iter()
        .filter(|name| facts.on(name))
        .collect();
    // MariaDB 10.11 has both names for one log.
    if on.contains(&"slow_query_log") {
        on.retain(|name| *name != "log_slow_query");
    }
    on
}

/// Returns every counter of the server.
///
/// # Errors
/// When the connection breaks.
pub fn counters(session: &mut Session) -> Result<BTreeMap<String, String>, ServerError> {
    session.pairs("cannot read the server's counters", "SHOW GLOBAL STATUS")
}

/// Returns the user's name as the server reports it, quoted for statements.
///
/// # Errors
/// When the connection breaks.
pub fn quoted_user(session: &mut Session) -> Result<String, ServerError> {
    let user = session
        .value("cannot read the user's name", "SELECT CURRENT_USER()")?
        .unwrap_or_default();
    let (name, host) = user.rsplit_once('@').unwrap_or((&user, "%"));
    let quoted = |text: &str| format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"));
    Ok(format!("{}@{}", quoted(name), quoted(host)))
}

/// Returns the client's address of the connection with this number, as the server sees it: it shows
/// whether two addresses lead to one server. `None` when there is no such connection, or the user
/// may not read it.
///
/// # Errors
/// When the connection breaks.
pub fn client_of(session: &mut Session, connection_id: u32) -> Result<Option<String>, ServerError> {
    let operation = "cannot read the list of connections";
    match session.value(
        operation,
        &format!("SELECT HOST FROM information_schema.PROCESSLIST WHERE ID = {connection_id}"),
    ) {
        Err(error) if error.is_refusal() => Ok(None),
        other => other,
    }
}

/// Returns whether `SYSDATE()` is the statement's start instead of the current time
/// (`sysdate_is_now`). No variable shows it, so it is tested: a clock advances during a statement.
///
/// # Errors
/// When the connection breaks.
pub fn sysdate_is_now(session: &mut Session) -> Result<bool, ServerError> {
    let moved = session.value(
        "cannot test SYSDATE()",
        "SELECT CONCAT(SLEEP(0.003), SYSDATE(6) <> NOW(6))",
    )?;
    Ok(moved.as_deref() == Some("00"))
}

/// Returns the total of the counters of nanoseconds for which Galera's flow control stopped writes.
#[must_use]
pub fn flow_control_ns(counters: &BTreeMap<String, String>) -> Option<u64> {
    counters.get("wsrep_flow_control_paused_ns")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use replimeter_model::engine::Engine;

    use super::*;

    #[test]
    fn log_with_two_variable_names_is_one_setting() {
        let variables = ["slow_query_log", "log_slow_query", "general_log"];
        let variables = variables
            .into_iter()
            .map(|name| (name.to_owned(), "ON".to_owned()))
            .collect();
        let facts = ServerFacts {
            engine: Engine::MariaDb,
            version: String::new(),
            variables,
        };
        assert_eq!(statement_logs(&facts), ["general_log", "slow_query_log"]);
    }
}
