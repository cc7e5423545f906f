//! The differences between MariaDB and MySQL, in one place.

pub mod acknowledgement;
pub mod applier_user;
pub mod appliers;
pub mod connections;
pub mod counters;
pub mod federated;
pub mod file_load;
pub mod flow_control;
pub mod galera;
pub mod group;
pub mod heartbeats;
pub mod locks;
pub mod log;
mod mariadb;
mod mysql;
pub mod postponed;
pub mod reference;
pub(crate) mod session_settings;
pub mod settings;
pub mod stages;
pub mod stamp;
pub mod statements;
pub mod sync_reads;
pub mod variables;
pub mod waits;

pub use galera::certifies;

use std::{collections::BTreeMap, fmt};

use replimeter_model::{bug::REPORT_BUG, doctor::ChannelRow, engine::Engine, replication::Mode};

use crate::{
    ErrorClass, ServerError, Session,
    error::{one_line, unless_disconnected},
    filter::{Filters, list},
    identity::Identity,
    session::StatusRow,
};

/// Programs whose process is a server; other listeners (a tunnel, a proxy) are not.
pub const PROGRAMS: [&str; 2] = ["mariadbd", "mysqld"];

/// State of a thread that receives or applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThreadState {
    /// It runs.
    Running,
    /// It tries to connect, which it repeats by itself.
    Connecting,
    /// It does not run.
    #[default]
    Stopped,
}

impl ThreadState {
    /// Returns the state that a status column names.
    fn of(text: &str) -> Self {
        match text {
            "Yes" => Self::Running,
            "Connecting" | "Preparing" => Self::Connecting,
            _ => Self::Stopped,
        }
    }

    /// Returns its name in status columns.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Running => "Yes",
            Self::Connecting => "Connecting",
            Self::Stopped => "No",
        }
    }
}

/// One replication channel of a replica, in current MySQL terms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Channel {
    /// The channel's (or connection's) name; empty for the default one.
    pub name: String,
    /// Where it connects to.
    pub source_host: String,
    /// The port it connects to.
    pub source_port: String,
    /// The source's `server_id`, 0 when it has never been connected.
    pub source_server_id: u64,
    /// The source's UUID; empty on MariaDB.
    pub source_uuid: String,
    /// State of the receiving thread.
    pub receiver: ThreadState,
    /// State of the applying thread.
    pub applier: ThreadState,
    /// Last error of the receiving thread, with its number; empty for none.
    pub io_error: String,
    /// Last error of the applying thread; empty for none.
    pub sql_error: String,
    /// Whether both sides use GTIDs as positions.
    pub by_gtid: bool,
    /// Configured delay in seconds.
    pub delay_s: u64,
    /// Replication filters.
    pub filters: Filters,
    /// Every column as the server named it, for the manifest.
    pub raw: BTreeMap<String, String>,
}

impl Channel {
    /// Returns whether both threads run.
    #[must_use]
    pub fn running(&self) -> bool {
        self.receiver == ThreadState::Running && self.applier == ThreadState::Running
    }

    /// Returns whether the applier runs while the receiver tries to connect, which it repeats by itself.
    #[must_use]
    pub fn reconnecting(&self) -> bool {
        self.receiver == ThreadState::Connecting && self.applier == ThreadState::Running
    }

    /// Returns whether its source has this identity: by UUID where both have one, else by
    /// `server_id`.
    #[must_use]
    pub fn comes_from(&self, identity: &Identity) -> bool {
        if identity.uuid.is_empty() || self.source_uuid.is_empty() {
            self.source_server_id != 0 && self.source_server_id == identity.server_id
        } else {
            self.source_uuid == identity.uuid
        }
    }

    /// Returns the state and the last errors in one line, for error messages.
    #[must_use]
    pub fn state(&self) -> String {
        let error = |text: &str| {
            if text.is_empty() {
                "none".to_owned()
            } else {
                text.to_owned()
            }
        };
        format!(
            "IO thread {}, last IO error: {}; SQL thread {}, last SQL error: {}",
            self.receiver.word(),
            error(&self.io_error),
            self.applier.word(),
            error(&self.sql_error)
        )
    }

    /// Returns the document's row of the channel, from this source in this mode.
    #[must_use]
    pub fn row(&self, source: String, source_named: bool, mode: Option<Mode>) -> ChannelRow {
        ChannelRow {
            name: self.name.clone(),
            source,
            source_named,
            running: self.running(),
            mode,
            receiver: self.receiver.word().to_owned(),
            applier: self.applier.word().to_owned(),
            by_gtid: self.by_gtid,
            delay_s: self.delay_s,
            seconds_behind: appliers::seconds_behind(self),
        }
    }

    pub(crate) fn from_row(row: StatusRow) -> Self {
        let pick = |names: &[&str]| {
            names
                .iter()
                .find_map(|name| row.get(*name))
                .cloned()
                .unwrap_or_default()
        };
        let number = |names: &[&str]| pick(names).parse().unwrap_or(0);
        let error = |number: &str, message: &str| match (pick(&[number]).as_str(), pick(&[message]))
        {
            ("" | "0", _) => String::new(),
            (number, message) => format!("{} (error {number})", one_line(&message)),
        };
        Self {
            name: pick(&["Channel_Name", "Connection_name"]),
            source_host: pick(&["Source_Host", "Master_Host"]),
            source_port: pick(&["Source_Port", "Master_Port"]),
            source_server_id: number(&["Source_Server_Id", "Master_Server_Id"]),
            source_uuid: pick(&["Source_UUID", "Master_UUID"]),
            receiver: ThreadState::of(&pick(&["Replica_IO_Running", "Slave_IO_Running"])),
            applier: ThreadState::of(&pick(&["Replica_SQL_Running", "Slave_SQL_Running"])),
            io_error: error("Last_IO_Errno", "Last_IO_Error"),
            sql_error: error("Last_SQL_Errno", "Last_SQL_Error"),
            // MariaDB has `Slave_Pos` or `Current_Pos`, MySQL 1.
            by_gtid: !matches!(
                pick(&["Using_Gtid", "Auto_Position"]).as_str(),
                "" | "No" | "0"
            ),
            delay_s: number(&["SQL_Delay"]),
            filters: Filters {
                do_schemas: list(&pick(&["Replicate_Do_DB"])),
                ignore_schemas: list(&pick(&["Replicate_Ignore_DB"])),
                do_tables: list(&pick(&["Replicate_Do_Table"])),
                ignore_tables: list(&pick(&["Replicate_Ignore_Table"])),
                wild_do_tables: list(&pick(&["Replicate_Wild_Do_Table"])),
                wild_ignore_tables: list(&pick(&["Replicate_Wild_Ignore_Table"])),
                rewrites: pick(&["Replicate_Rewrite_DB"]),
            },
            raw: row,
        }
    }
}

/// Returns the privilege for reading a replica's status, as GRANT spells it.
#[must_use]
pub fn monitor_privilege(engine: Engine) -> &'static str {
    match engine {
        Engine::MariaDb => mariadb::MONITOR_PRIVILEGE,
        Engine::MySql => mysql::MONITOR_PRIVILEGE,
    }
}

/// Returns the privilege for reading the list of a server's replicas, as GRANT spells it.
#[must_use]
pub fn replicas_privilege(engine: Engine) -> &'static str {
    match engine {
        Engine::MariaDb => mariadb::REPLICAS_PRIVILEGE,
        Engine::MySql => mysql::REPLICAS_PRIVILEGE,
    }
}

/// Removes the texts of errors, which can quote rows and statements: results are passed on. Their numbers stay.
fn hide_errors(row: &mut StatusRow) {
    for name in ["Last_Error", "Last_IO_Error", "Last_SQL_Error"] {
        if let Some(text) = row.get_mut(name).filter(|text| !text.is_empty()) {
            HIDDEN_ERROR.clone_into(text);
        }
    }
}

/// Replaces the text of an error.
const HIDDEN_ERROR: &str = "text hidden, --show-errors shows it";

/// Returns all replication channels of the server; empty when it is not a replica.
///
/// # Errors
/// When the privilege is missing or the connection breaks.
pub fn channels(engine: Engine, session: &mut Session) -> Result<Vec<Channel>, ServerError> {
    let statements = match engine {
        Engine::MariaDb => mariadb::CHANNELS,
        Engine::MySql => mysql::CHANNELS,
    };
    let (_, rows) = first_known(session, "cannot read the replica's status", statements)?;
    let show_errors = session.show_errors();
    let channels = rows.into_iter().map(|mut row| {
        if !show_errors {
            hide_errors(&mut row);
        }
        Channel::from_row(row)
    });
    Ok(channels.collect())
}

/// Returns the channels that lead to other servers: all except for those of the server's group.
///
/// # Errors
/// When the privilege is missing or the connection breaks.
pub fn source_channels(engine: Engine, session: &mut Session) -> Result<Vec<Channel>, ServerError> {
    let mut channels = channels(engine, session)?;
    channels.retain(|channel| !channel.name.starts_with(group::CHANNELS));
    Ok(channels)
}

/// Returns the filters of the binary log; `None` when it is off.
///
/// # Errors
/// When the privilege is missing or the connection breaks.
pub fn log_filters(engine: Engine, session: &mut Session) -> Result<Option<Filters>, ServerError> {
    let status = log_status(engine, session)?;
    Ok(status.map(|row| Filters {
        do_schemas: list(row.get("Binlog_Do_DB").map_or("", String::as_str)),
        ignore_schemas: list(row.get("Binlog_Ignore_DB").map_or("", String::as_str)),
        ..Filters::default()
    }))
}

/// Returns the file and the offset at which the next transaction will be logged; `None` when
/// the binary log is off.
///
/// # Errors
/// When the privilege is missing or the connection breaks.
pub fn binlog_end(
    engine: Engine,
    session: &mut Session,
) -> Result<Option<(String, u64)>, ServerError> {
    let status = log_status(engine, session)?;
    Ok(status.and_then(|row| Some((row.get("File")?.clone(), row.get("Position")?.parse().ok()?))))
}

/// Returns the status of the binary log; `None` when it is off.
fn log_status(engine: Engine, session: &mut Session) -> Result<Option<StatusRow>, ServerError> {
    let statements = match engine {
        Engine::MariaDb => mariadb::BINLOG_STATUS,
        Engine::MySql => mysql::BINLOG_STATUS,
    };
    let (_, rows) = first_known(session, "cannot read the binary log's status", statements)?;
    Ok(rows.into_iter().next())
}

/// A replica that is connected to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectedReplica {
    /// Its `server_id`.
    pub server_id: u64,
    /// The host and the port that it reports; `None` without `report_host`.
    pub address: Option<(String, u16)>,
    /// Whether it reports no port: a program that follows the log, such as `tap`, and no server.
    pub is_program: bool,
}

/// Its number and address, as in "server_id 7 (db3:3306)".
impl fmt::Display for ConnectedReplica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "server_id {}", self.server_id)?;
        match &self.address {
            Some((host, port)) => write!(f, " ({host}:{port})"),
            None => Ok(()),
        }
    }
}

impl ConnectedReplica {
    fn from_row(row: &StatusRow) -> Option<Self> {
        let id = row.get("Server_Id").or_else(|| row.get("Server_id"))?;
        let host = row.get("Host").filter(|host| !host.is_empty());
        let port: Option<u16> = row.get("Port").and_then(|port| port.parse().ok());
        Some(Self {
            server_id: id.parse().ok()?,
            address: host.cloned().zip(port),
            is_program: port == Some(0),
        })
    }
}

/// Returns the replicas that are connected to the server.
///
/// # Errors
/// When the privilege is missing or the connection breaks.
pub fn connected_replicas(
    engine: Engine,
    session: &mut Session,
) -> Result<Vec<ConnectedReplica>, ServerError> {
    let statements: &[&'static str] = match engine {
        Engine::MariaDb => mariadb::REPLICAS,
        Engine::MySql => mysql::REPLICAS,
    };
    let (_, rows) = first_known(
        session,
        "cannot read the list of connected replicas",
        statements,
    )?;
    Ok(rows.iter().filter_map(ConnectedReplica::from_row).collect())
}

/// Connections that read a server's log, and how many of its replicas are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogReaders {
    /// The connections, as far as the user may see them.
    pub connections: usize,
    /// The named replicas.
    pub named: usize,
}

/// The fact of a message.
impl fmt::Display for LogReaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "connections that read its binary log: {}, named replicas: {}",
            self.connections, self.named
        )
    }
}

impl LogReaders {
    /// Counts the connections. Counts none if the user may not see them.
    ///
    /// # Errors
    /// When the connection breaks.
    pub fn read(session: &mut Session, named: usize) -> Result<Self, ServerError> {
        let sql =
            "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE COMMAND LIKE 'Binlog Dump%'";
        let count = session.value("cannot read the list of connections", sql);
        let count = unless_disconnected(count)?.ok().flatten();
        Ok(Self {
            connections: count.and_then(|count| count.parse().ok()).unwrap_or(0),
            named,
        })
    }
}

/// Why a replica that has lost its replication channel does not replicate.
pub(crate) const CHANNEL_GONE: &str = "its replication channel no longer exists";

/// Returns the error about a replica that has lost its replication channel.
#[must_use]
pub fn channel_gone(session: &Session, operation: &str) -> ServerError {
    session.precondition(
        operation,
        CHANNEL_GONE,
        "check whether the replica was reset",
    )
}

/// Returns the first statement that this server can parse, and its rows.
fn first_known(
    session: &mut Session,
    operation: &str,
    statements: &[&'static str],
) -> Result<(&'static str, Vec<StatusRow>), ServerError> {
    let mut last = None;
    for statement in statements {
        match session.rows(operation, statement) {
            Err(error) if error.class() == Some(ErrorClass::Syntax) => last = Some(error),
            other => return other.map(|rows| (*statement, rows)),
        }
    }
    Err(last.unwrap_or_else(|| {
        session.precondition(operation, "no statement is known for it", REPORT_BUG)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(pairs: &[(&str, &str)]) -> StatusRow {
        pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn hidden_errors_keep_fact_and_number() {
        let quoting = "Duplicate entry 'ann@example.org' for key 'mail'";
        let mut row = row(&[
            ("Slave_SQL_Running", "No"),
            ("Last_Errno", "1062"),
            ("Last_Error", quoting),
            ("Last_SQL_Errno", "1062"),
            ("Last_SQL_Error", quoting),
            ("Last_IO_Errno", "0"),
            ("Last_IO_Error", ""),
        ]);
        hide_errors(&mut row);
        let channel = Channel::from_row(row);
        assert!(!format!("{channel:?}").contains("ann@"), "{channel:?}");
        assert_eq!(channel.raw["Last_Errno"], "1062");
        assert_eq!(channel.raw["Last_IO_Error"], "");
        assert!(
            channel.state().contains(
                "last IO error: none; SQL thread No, last SQL error: text hidden, --show-errors shows it (error 1062)"
            ),
            "{}",
            channel.state()
        );
    }

    #[test]
    fn reader_of_a_log_without_a_port_is_a_program() {
        let of = |host: &str, port: &str| {
            ConnectedReplica::from_row(&row(&[("Server_Id", "7"), ("Host", host), ("Port", port)]))
                .unwrap()
        };
        assert!(of("", "0").is_program && of("", "0").address.is_none());
        let replica = of("db3", "3306");
        assert!(!replica.is_program && !of("", "3306").is_program);
        assert_eq!(replica.address, Some(("db3".to_owned(), 3306)));
    }

    #[test]
    fn channel_status_is_equal_in_both_dialects() {
        let old = Channel::from_row(row(&[
            ("Master_Host", "h"),
            ("Master_Server_Id", "7"),
            ("Slave_IO_Running", "Yes"),
            ("Slave_SQL_Running", "No"),
            ("Last_SQL_Errno", "1062"),
            ("Last_SQL_Error", "Duplicate entry"),
            ("SQL_Delay", "5"),
            ("Replicate_Ignore_DB", "a,b"),
        ]));
        let new = Channel::from_row(row(&[
            ("Source_Host", "h"),
            ("Source_Server_Id", "7"),
            ("Replica_IO_Running", "Yes"),
            ("Replica_SQL_Running", "No"),
            ("Last_SQL_Errno", "1062"),
            ("Last_SQL_Error", "Duplicate entry"),
            ("SQL_Delay", "5"),
            ("Replicate_Ignore_DB", "a,b"),
        ]));
        assert_eq!(
            Channel {
                raw: BTreeMap::new(),
                ..old.clone()
            },
            Channel {
                raw: BTreeMap::new(),
                ..new
            }
        );
        assert!(!old.running());
        assert!(
            old.state().contains("Duplicate entry (error 1062)"),
            "{}",
            old.state()
        );
        assert_eq!((old.delay_s, old.source_server_id), (5, 7));
    }
}
