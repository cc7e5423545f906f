//! Semi-synchronous replication, under whichever words the server has for it.

use crate::{ServerError, Session, facts::Facts};

/// How a server's variables and counters for semi-synchronous replication are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Words {
    /// Prefix of everything about its part as primary.
    pub primary: &'static str,
    /// Prefix of everything about its part as replica.
    pub replica: &'static str,
    /// Behind the primary's prefix: for how many replicas it waits. Not every server has it.
    pub count: &'static str,
}

/// MySQL since 8.0.26, then everybody else.
const WORDS: [Words; 2] = [
    Words {
        primary: "rpl_semi_sync_source",
        replica: "rpl_semi_sync_replica",
        count: "wait_for_replica_count",
    },
    Words {
        primary: "rpl_semi_sync_master",
        replica: "rpl_semi_sync_slave",
        count: "wait_for_slave_count",
    },
];

impl Words {
    /// Those to speak of to somebody whose server knows none.
    pub const NEWEST: Self = WORDS[0];

    /// Those of a server with these variables; `None` when it knows nothing of
    /// semi-synchronous replication (the plugin is not loaded).
    #[must_use]
    pub fn of(facts: &Facts) -> Option<Self> {
        let knows = |prefix: &str| !facts.get(&format!("{prefix}_enabled")).is_empty();
        WORDS
            .into_iter()
            .find(|words| knows(words.primary) || knows(words.replica))
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

/// What a server says of its part as a semi-synchronous replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicaState {
    /// Whether it is configured.
    pub enabled: bool,
    /// Whether it is in effect now: it acknowledges what it has received.
    pub active: bool,
}

/// Both parts; that of the primary is `None` when the server does not know
/// semi-synchronous replication.
///
/// # Errors
/// When the connection breaks.
pub fn state(session: &mut Session) -> Result<(Option<PrimaryState>, ReplicaState), ServerError> {
    let doing = "cannot read the state of semi-synchronous replication";
    // Fresh, since all of it may be changed while the server runs.
    let variables = session.pairs(doing, "SHOW GLOBAL VARIABLES LIKE 'rpl_semi_sync%'")?;
    let mut counters = session.pairs(doing, "SHOW GLOBAL STATUS LIKE 'Rpl_semi_sync%'")?;
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
    let any = |holds: &dyn Fn(&Words) -> bool| WORDS.iter().any(holds);
    let replica = ReplicaState {
        enabled: any(&|words| on(variable(words.replica, "enabled"))),
        active: any(&|words| on(counter(words.replica, "status"))),
    };
    Ok((primary, replica))
}

fn on(text: &str) -> bool {
    matches!(text, "ON" | "1")
}
