//! Checks whether a server's binary log can be followed.

use std::{
    collections::BTreeSet,
    hash::{BuildHasher, RandomState},
};

use replimeter_model::engine::Engine;

use crate::{
    ServerError, Session,
    dialect::{self, log::LogSettings},
    facts::ServerFacts,
};

/// Operation of its errors.
pub const OPERATION: &str = "cannot follow its binary log";
/// Generated ids begin here: people and sandboxes choose smaller ones.
const HIGH: u32 = 1 << 31;

/// Why a server is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowPurpose {
    /// For its own writes.
    Source,
    /// For the writes of other servers that it applies.
    Applier,
}

/// Checks by the server's settings that its log contains the transactions to match.
///
/// # Errors
/// Naming the setting that is missing.
pub fn check(
    session: &Session,
    facts: &ServerFacts,
    role: FollowPurpose,
) -> Result<(), ServerError> {
    match missing(facts, role) {
        Some((cause, hint)) => Err(session.precondition(OPERATION, cause, hint)),
        None => Ok(()),
    }
}

/// Returns the missing setting and a hint.
fn missing(facts: &ServerFacts, role: FollowPurpose) -> Option<(String, String)> {
    let log = LogSettings::of(facts);
    if !log.on {
        let hint = "enable it (log_bin=binlog) and restart the server, or measure by polling (`replimeter lag`)";
        return Some((
            "its binary log is off (log_bin=OFF)".to_owned(),
            hint.to_owned(),
        ));
    }
    let updates = log.updates_variable;
    if role == FollowPurpose::Applier && !log.logs_updates {
        return Some((
            format!(
                "it does not log what it applies ({updates}=OFF), so its log does not show when transactions arrive"
            ),
            format!(
                "set {updates}=ON in its configuration and restart it, or measure it by polling (`replimeter lag`), which needs no log on the replica"
            ),
        ));
    }
    let gtid_mode = facts.get("gtid_mode");
    if facts.engine == Engine::MySql && gtid_mode != "ON" {
        let hint = "enable GTIDs (gtid_mode=ON, enforce_gtid_consistency=ON, step by step without a restart), or measure by polling (`replimeter lag`)";
        return Some((
            format!(
                "its transactions are anonymous (gtid_mode={gtid_mode}), so they cannot be matched between servers"
            ),
            hint.to_owned(),
        ));
    }
    let galera = facts.on("wsrep_on") && !matches!(facts.get("wsrep_provider"), "" | "none");
    if galera && !facts.on("wsrep_gtid_mode") {
        let cause = "each Galera node numbers the cluster's transactions on its own (wsrep_gtid_mode=OFF), so GTIDs differ between nodes";
        let hint = "on every node set wsrep_gtid_mode=ON, the same wsrep_gtid_domain_id, a distinct gtid_domain_id and log_slave_updates=ON, then restart the nodes one at a time";
        return Some((cause.to_owned(), hint.to_owned()));
    }
    None
}

/// Checks that two nodes of one Galera cluster assign the same GTID domain to the cluster's
/// transactions.
///
/// # Errors
/// When they do not.
pub fn check_domains(
    session: &Session,
    facts: &ServerFacts,
    other: &ServerFacts,
) -> Result<(), ServerError> {
    let domain = |facts: &ServerFacts| facts.get("wsrep_gtid_domain_id").to_owned();
    let both = facts.on("wsrep_gtid_mode") && other.on("wsrep_gtid_mode");
    if both && domain(facts) != domain(other) {
        return Err(session.precondition(
            OPERATION,
            format!(
                "its wsrep_gtid_domain_id is {} and that of the writer is {}, so GTIDs differ between them",
                domain(facts),
                domain(other)
            ),
            "set the same wsrep_gtid_domain_id on every node and restart the nodes one at a time",
        ));
    }
    Ok(())
}

/// Returns the `server_id`s that this server sees: its own and those of connected replicas. `None`
/// for the latter when the user may not read them.
///
/// # Errors
/// When the connection breaks.
pub fn server_ids(
    session: &mut Session,
    facts: &ServerFacts,
) -> Result<Option<BTreeSet<u32>>, ServerError> {
    let rows = match dialect::connected_replicas(facts.engine, session) {
        Ok(rows) => rows,
        Err(error) if error.is_refusal() => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    Ok(Some(
        rows.iter()
            .filter_map(|replica| u32::try_from(replica.server_id).ok())
            .chain(facts.get("server_id").parse().ok())
            .collect(),
    ))
}

/// Returns a random high `server_id` that is not among `taken`.
#[must_use]
pub fn unused_server_id(taken: &BTreeSet<u32>) -> u32 {
    // The standard library seeds its hashers from the system's randomness.
    let mut random = std::iter::repeat_with(|| RandomState::new().hash_one(0u8) as u32 | HIGH);
    random
        .find(|id| *id != u32::MAX && !taken.contains(id))
        .unwrap_or(HIGH)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lacks(engine: Engine, role: FollowPurpose, variables: &[(&str, &str)]) -> Option<String> {
        let variables = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        missing(
            &ServerFacts {
                engine,
                version: String::new(),
                variables,
            },
            role,
        )
        .map(|(cause, hint)| format!("{cause}; {hint}"))
    }

    #[test]
    fn missing_requirement_is_named_with_its_setting() {
        let maria = |role, variables: &[(&str, &str)]| lacks(Engine::MariaDb, role, variables);
        assert!(
            maria(FollowPurpose::Source, &[("log_bin", "OFF")])
                .unwrap()
                .contains("log_bin=binlog")
        );
        let without = [("log_bin", "ON"), ("log_slave_updates", "OFF")];
        assert_eq!(maria(FollowPurpose::Source, &without), None);
        assert!(
            maria(FollowPurpose::Applier, &without)
                .unwrap()
                .contains("set log_slave_updates=ON")
        );
        let galera = [
            ("log_bin", "ON"),
            ("log_slave_updates", "ON"),
            ("wsrep_on", "ON"),
            ("wsrep_provider", "/x.so"),
        ];
        assert!(
            maria(FollowPurpose::Applier, &galera)
                .unwrap()
                .contains("wsrep_gtid_domain_id")
        );
        let mysql = |mode| {
            lacks(
                Engine::MySql,
                FollowPurpose::Source,
                &[("log_bin", "ON"), ("gtid_mode", mode)],
            )
        };
        assert!(
            mysql("ON_PERMISSIVE")
                .unwrap()
                .contains("gtid_mode=ON_PERMISSIVE")
        );
        assert_eq!(mysql("ON"), None);
    }

    #[test]
    fn chosen_server_ids_are_high_and_unused() {
        let one = unused_server_id(&BTreeSet::new());
        assert!((HIGH..u32::MAX).contains(&one));
        assert_ne!(unused_server_id(&BTreeSet::from([one])), one);
    }
}
