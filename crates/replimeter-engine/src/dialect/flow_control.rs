//! Counters of load on a server: flow control, queues, seconds behind.

use replimeter_model::engine::Engine;

use crate::{
    ServerError, Session, dialect,
    membership::{ClusterState, Membership},
};

const OPERATION: &str = "cannot read the server's counters";

/// The value of one counter.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowControlReading {
    /// The server's name for it, with a unit where it has one.
    pub name: &'static str,
    /// Its value.
    pub value: f64,
    /// Whether it is a counter since the server's start; otherwise a level.
    pub grows: bool,
}

/// The set of counters that a server has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowControlCounters {
    /// A node of a Galera cluster.
    Galera,
    /// A member of a group.
    Group,
    /// Any other server, of this engine.
    Channel(Engine),
}

/// Galera's counters: the server's name, the name here, the divisor, and whether it is a counter.
const GALERA: [(&str, &str, f64, bool); 7] = [
    (
        "wsrep_flow_control_paused_ns",
        "wsrep_flow_control_paused (ms)",
        1e6,
        true,
    ),
    (
        "wsrep_flow_control_sent",
        "wsrep_flow_control_sent",
        1.0,
        true,
    ),
    (
        "wsrep_local_recv_queue",
        "wsrep_local_recv_queue",
        1.0,
        false,
    ),
    (
        "wsrep_local_send_queue",
        "wsrep_local_send_queue",
        1.0,
        false,
    ),
    (
        "wsrep_local_cert_failures",
        "wsrep_local_cert_failures",
        1.0,
        true,
    ),
    ("wsrep_local_bf_aborts", "wsrep_local_bf_aborts", 1.0, true),
    ("threads_running", "Threads_running", 1.0, false),
];

/// A member's counters, in the order of [`GROUP_QUERY`].
const GROUP: [(&str, bool); 5] = [
    ("transactions in the certification queue", false),
    ("transactions in the applier's queue", false),
    ("conflicts detected", true),
    ("transactions checked", true),
    ("Threads_running", false),
];

const GROUP_QUERY: &str = "SELECT CONCAT_WS(' ', s.COUNT_TRANSACTIONS_IN_QUEUE, s.COUNT_TRANSACTIONS_REMOTE_IN_APPLIER_QUEUE, \
     s.COUNT_CONFLICTS_DETECTED, s.COUNT_TRANSACTIONS_CHECKED, \
     (SELECT VARIABLE_VALUE FROM performance_schema.global_status WHERE VARIABLE_NAME = 'Threads_running')) \
     FROM performance_schema.replication_group_member_stats s WHERE s.MEMBER_ID = @@server_uuid";

impl FlowControlCounters {
    /// Returns those of a server of this engine.
    #[must_use]
    pub fn of(membership: &Membership, engine: Engine) -> Self {
        match membership.as_member() {
            Some(ClusterState::Galera(_)) => Self::Galera,
            Some(ClusterState::Group(_)) => Self::Group,
            None => Self::Channel(engine),
        }
    }

    /// Prepares a session so that its statements do not wait for replication.
    ///
    /// # Errors
    /// When the connection breaks.
    pub fn prepare(self, session: &mut Session) -> Result<(), ServerError> {
        match self {
            Self::Galera => session.run(OPERATION, "SET SESSION wsrep_sync_wait = 0"),
            Self::Group => session.run(
                OPERATION,
                "SET SESSION group_replication_consistency = 'EVENTUAL'",
            ),
            Self::Channel(_) => Ok(()),
        }
    }

    /// Reads all counters; those that the user may not read are left out.
    ///
    /// # Errors
    /// When the server does not answer or the connection breaks.
    pub fn read(self, session: &mut Session) -> Result<Vec<FlowControlReading>, ServerError> {
        match self {
            Self::Galera => {
                let names: Vec<String> = GALERA
                    .iter()
                    .map(|(name, ..)| format!("'{name}'"))
                    .collect();
                let sql = format!(
                    "SHOW GLOBAL STATUS WHERE LOWER(Variable_name) IN ({})",
                    names.join(", ")
                );
                let found = session.pairs(OPERATION, &sql)?;
                let read = |(name, shown, scale, grows): &(&str, &'static str, f64, bool)| {
                    let (_, value) = found
                        .iter()
                        .find(|(found, _)| found.eq_ignore_ascii_case(name))?;
                    Some(FlowControlReading {
                        name: shown,
                        value: value.parse::<f64>().ok()? / scale,
                        grows: *grows,
                    })
                };
                Ok(GALERA.iter().filter_map(read).collect())
            }
            Self::Group => {
                let Some(line) = if_permitted(session.value(OPERATION, GROUP_QUERY))?.flatten()
                else {
                    return Ok(Vec::new());
                };
                let values = line.split(' ').map(str::parse::<f64>);
                let read = |((name, grows), value): (&(&'static str, bool), Result<f64, _>)| {
                    Some(FlowControlReading {
                        name,
                        value: value.ok()?,
                        grows: *grows,
                    })
                };
                Ok(GROUP.iter().zip(values).filter_map(read).collect())
            }
            Self::Channel(engine) => {
                let mut readings = Vec::new();
                let running =
                    session.pairs(OPERATION, "SHOW GLOBAL STATUS LIKE 'Threads_running'")?;
                if let Some(value) = running.values().next().and_then(|value| value.parse().ok()) {
                    readings.push(FlowControlReading {
                        name: "Threads_running",
                        value,
                        grows: false,
                    });
                }
                let channels =
                    if_permitted(dialect::channels(engine, session))?.unwrap_or_default();
                let behind = channels.iter().filter_map(|channel| {
                    let names = ["Seconds_Behind_Source", "Seconds_Behind_Master"];
                    names
                        .iter()
                        .find_map(|name| channel.raw.get(*name))?
                        .parse::<f64>()
                        .ok()
                });
                if let Some(value) = behind.reduce(f64::max) {
                    readings.push(FlowControlReading {
                        name: "Seconds_Behind_Source",
                        value,
                        grows: false,
                    });
                }
                Ok(readings)
            }
        }
    }
}

/// Returns `None` for an error caused by a missing privilege.
fn if_permitted<T>(result: Result<T, ServerError>) -> Result<Option<T>, ServerError> {
    use crate::ErrorKind::{Privilege, Statement};
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if matches!(error.kind, Privilege | Statement(_)) => Ok(None),
        Err(error) => Err(error),
    }
}
