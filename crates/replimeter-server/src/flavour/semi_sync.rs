//! Semi-synchronous replication, under whichever words the server has for it.

use crate::{ServerError, Session, facts::Facts};

/// MySQL since 8.0.26, then everybody else: the words for the two sides.
const WORDS: [(&str, &str); 2] =
    [("rpl_semi_sync_source", "rpl_semi_sync_replica"), ("rpl_semi_sync_master", "rpl_semi_sync_slave")];

/// How a server's variables and counters for semi-synchronous replication are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Words {
    /// Prefix of everything about its part as primary.
    pub primary: &'static str,
    /// Prefix of everything about its part as replica.
    pub replica: &'static str,
}

impl Words {
    /// Those of a server with these variables; `None` when it knows nothing of
    /// semi-synchronous replication (the plugin is not loaded).
    #[must_use]
    pub fn of(facts: &Facts) -> Option<Self> {
        let knows = |prefix: &str| !facts.get(&format!("{prefix}_enabled")).is_empty();
        WORDS
            .into_iter()
            .find(|(primary, replica)| knows(primary) || knows(replica))
            .map(|(primary, replica)| Self { primary, replica })
    }
}

/// What a server says of its part as a semi-synchronous primary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrimaryState {
    /// Whether it is configured.
    pub enabled: bool,
    /// Whether it is in effect now; false while configured is the fall-back to
    /// asynchronous replication.
    pub active: bool,
    /// Connected replicas that acknowledge.
    pub clients: u64,
    /// Transactions that were acknowledged in time since the server started.
    pub acknowledged: u64,
    /// Transactions that were not.
    pub unacknowledged: u64,
    /// `AFTER_COMMIT` or `AFTER_SYNC`.
    pub wait_point: String,
    /// How many replicas must acknowledge; 1 where it cannot be chosen.
    pub wait_for: u64,
    /// How long it waits before it falls back, in milliseconds.
    pub timeout_ms: u64,
}

/// The primary's side; `None` when the server does not know semi-synchronous replication.
///
/// # Errors
/// When the connection breaks.
pub fn primary_state(session: &mut Session) -> Result<Option<PrimaryState>, ServerError> {
    let doing = "cannot read the state of semi-synchronous replication";
    // Fresh, since all of it may be changed while the server runs.
    let variables = session.pairs(doing, "SHOW GLOBAL VARIABLES LIKE 'rpl_semi_sync%'")?;
    let status = session.pairs(doing, "SHOW GLOBAL STATUS LIKE 'Rpl_semi_sync%'")?;
    for (prefix, _) in WORDS {
        let variable = |name: &str| variables.get(&format!("{prefix}_{name}")).map_or("", String::as_str);
        if variable("enabled").is_empty() {
            continue;
        }
        let mut capital = prefix.to_owned();
        capital.replace_range(..1, "R");
        let counter = |name: &str| status.get(&format!("{capital}_{name}")).map_or("", String::as_str);
        let number = |text: &str| text.parse().unwrap_or(0);
        let (source, master) = ("wait_for_replica_count", "wait_for_slave_count");
        return Ok(Some(PrimaryState {
            enabled: on(variable("enabled")),
            active: on(counter("status")),
            clients: number(counter("clients")),
            acknowledged: number(counter("yes_tx")),
            unacknowledged: number(counter("no_tx")),
            wait_point: variable("wait_point").to_owned(),
            wait_for: [source, master].into_iter().map(variable).find_map(|text| text.parse().ok()).unwrap_or(1),
            timeout_ms: number(variable("timeout")),
        }));
    }
    Ok(None)
}

/// Whether the replica's side is configured and in effect.
///
/// # Errors
/// When the connection breaks.
pub fn replica_active(session: &mut Session) -> Result<(bool, bool), ServerError> {
    let doing = "cannot read the state of semi-synchronous replication";
    let variables = session.pairs(doing, "SHOW GLOBAL VARIABLES LIKE 'rpl_semi_sync%'")?;
    let status = session.pairs(doing, "SHOW GLOBAL STATUS LIKE 'Rpl_semi_sync%'")?;
    let any = |pairs: &std::collections::BTreeMap<String, String>, ends: [&str; 2]| {
        pairs.iter().any(|(name, value)| ends.iter().any(|end| name.to_lowercase().ends_with(end)) && on(value))
    };
    Ok((any(&variables, ["replica_enabled", "slave_enabled"]), any(&status, ["replica_status", "slave_status"])))
}

fn on(text: &str) -> bool {
    matches!(text, "ON" | "1")
}
