//! Semi-synchronous replication, under the names that the server uses for it.

use std::time::Duration;

use replimeter_model::replication::Mode;

use crate::{ServerError, Session, error::unless_disconnected, facts::ServerFacts};

/// Names of a server's variables and counters for semi-synchronous replication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VariableNames {
    /// Prefix for the primary's side.
    pub primary: &'static str,
    /// Prefix for the replica's side.
    pub replica: &'static str,
    /// After the primary's prefix: the number of replicas to wait for. Not every server has it.
    pub count: &'static str,
}

/// MySQL since 8.0.26, then all others.
pub(crate) const WORDS: [VariableNames; 2] = [
    VariableNames {
        primary: "rpl_semi_sync_source",
        replica: "rpl_semi_sync_replica",
        count: "wait_for_replica_count",
    },
    VariableNames {
        primary: "rpl_semi_sync_master",
        replica: "rpl_semi_sync_slave",
        count: "wait_for_slave_count",
    },
];

impl VariableNames {
    /// The names to use in hints for a server that has none.
    pub const NEWEST: Self = WORDS[0];

    /// Returns the names on a server with these variables; `None` when it has no semi-synchronous
    /// replication (the plugin is not loaded).
    #[must_use]
    pub fn of(facts: &ServerFacts) -> Option<Self> {
        let knows = |prefix: &str| !facts.get(&format!("{prefix}_enabled")).is_empty();
        WORDS
            .into_iter()
            .find(|words| knows(words.primary) || knows(words.replica))
    }
}

/// Returns why acknowledged transactions are never exposed in a mode.
#[must_use]
pub fn never_exposed(mode: Mode) -> Option<&'static str> {
    match mode {
        Mode::SemiSync => Some(
            "the primary acknowledges a transaction only after a replica has written it to its relay log, unless it falls back to asynchronous replication",
        ),
        Mode::Galera => Some(
            "a transaction is acknowledged only after every node has received and certified it",
        ),
        Mode::Group => {
            Some("a transaction is acknowledged only after a majority of the group has received it")
        }
        Mode::None | Mode::Async | Mode::Chain => None,
    }
}

/// Makes a semi-synchronous primary with these variables wait this time for an acknowledgement.
///
/// # Errors
/// When the server refuses or the connection breaks.
pub fn set_timeout(
    session: &mut Session,
    facts: &ServerFacts,
    timeout: Duration,
) -> Result<(), ServerError> {
    let Some(names) = VariableNames::of(facts) else {
        return Ok(());
    };
    session.run(
        "cannot set the semi-synchronous timeout",
        &format!(
            "SET GLOBAL {}_timeout = {}",
            names.primary,
            timeout.as_millis()
        ),
    )
}

/// Returns whether an option sets that time.
#[must_use]
pub fn is_timeout(option: &str) -> bool {
    option.contains("rpl_semi_sync") && option.ends_with("_timeout")
}

/// State of a semi-synchronous primary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrimaryState {
    /// Whether it is configured.
    pub enabled: bool,
    /// Whether it is in effect; enabled but not active means that it fell back to asynchronous
    /// replication.
    pub active: bool,
    /// Connected replicas that acknowledge.
    pub clients: u64,
    /// Transactions acknowledged before the timeout since the server started.
    pub acknowledged: u64,
    /// Transactions that were not acknowledged before the timeout.
    pub unacknowledged: u64,
    /// `AFTER_COMMIT` or `AFTER_SYNC`.
    pub wait_point: String,
    /// The number of replicas that must acknowledge; 1 where it cannot be set.
    pub wait_for: u64,
    /// Timeout before it falls back, in milliseconds.
    pub timeout_ms: u64,
}

impl PrimaryState {
    /// Returns whether commits wait for a replica.
    #[must_use]
    pub fn in_effect(&self) -> bool {
        self.enabled && self.active && self.clients > 0
    }
}

/// State of a semi-synchronous replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicaState {
    /// Whether it is configured.
    pub enabled: bool,
    /// Whether it is in effect: it acknowledges what it receives.
    pub active: bool,
}

/// Returns the state of a primary of which semi-synchronous replication has these names; `None` if it is not configured. That
/// costs one variable: lists of variables and counters are long.
///
/// # Errors
/// When the connection breaks.
pub fn primary_state(
    session: &mut Session,
    names: VariableNames,
) -> Result<Option<PrimaryState>, ServerError> {
    let operation = "cannot read whether semi-synchronous replication is configured";
    let enabled = format!("SELECT @@GLOBAL.{}_enabled", names.primary);
    match unless_disconnected(session.value(operation, &enabled))? {
        Ok(Some(enabled)) if on(&enabled) => Ok(state(session)?.0),
        // The plugin of a replica has no such variable.
        Ok(_) | Err(_) => Ok(None),
    }
}

/// Returns both sides; the primary's is `None` when the server has no semi-synchronous replication.
///
/// # Errors
/// When the connection breaks.
pub fn state(session: &mut Session) -> Result<(Option<PrimaryState>, ReplicaState), ServerError> {
    let operation = "cannot read the state of semi-synchronous replication";
    // Read again each time: all of it can change while the server runs.
    let variables = session.pairs(operation, "SHOW GLOBAL VARIABLES LIKE 'rpl_semi_sync%'")?;
    let mut counters = session.pairs(operation, "SHOW GLOBAL STATUS LIKE 'Rpl_semi_sync%'")?;
    counters = counters
        .into_iter()
        .map(|(name, value)| (name.to_lowercase(), value))
        .collect();
    let variable = |prefix: &str, name: &str| {
        variables
            .get(&format!("{prefix}_{name}"))
            .map_or("", String::as_str)
    };
    let counter = |prefix: &str, name: &str| {
        counters
            .get(&format!("{prefix}_{name}"))
            .map_or("", String::as_str)
    };
    let number = |text: &str| text.parse().unwrap_or(0);
    let primary = WORDS
        .iter()
        .find(|words| !variable(words.primary, "enabled").is_empty())
        .map(|words| PrimaryState {
            enabled: on(variable(words.primary, "enabled")),
            active: on(counter(words.primary, "status")),
            clients: number(counter(words.primary, "clients")),
            acknowledged: number(counter(words.primary, "yes_tx")),
            unacknowledged: number(counter(words.primary, "no_tx")),
            wait_point: variable(words.primary, "wait_point").to_owned(),
            wait_for: variable(words.primary, words.count).parse().unwrap_or(1),
            timeout_ms: number(variable(words.primary, "timeout")),
        });
    let any = |holds: &dyn Fn(&VariableNames) -> bool| WORDS.iter().any(holds);
    let replica = ReplicaState {
        enabled: any(&|words| on(variable(words.replica, "enabled"))),
        active: any(&|words| on(counter(words.replica, "status"))),
    };
    Ok((primary, replica))
}

pub(crate) fn on(text: &str) -> bool {
    matches!(text, "ON" | "1")
}
