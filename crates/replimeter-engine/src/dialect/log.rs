//! Settings of the log that replicas read, and of its durability.

use replimeter_model::engine::Engine;

use super::binlog_end;
use crate::{ServerError, Session, facts::ServerFacts};

/// The name of a server's log in messages.
pub const ITS_LOG: &str = "its binary log";
/// How to let the user read the filters of the log.
pub const FILTERS_HINT: &str = "grant BINLOG MONITOR (MariaDB) or REPLICATION CLIENT (MySQL)";
/// Why a server passes on nothing of what it applies.
pub const UPDATES_OFF: &str = "log_replica_updates or log_slave_updates is off";

/// The settings of a binary log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogSettings {
    /// Whether the server writes a binary log.
    pub on: bool,
    /// The variable for logging what a replica applies.
    pub updates_variable: &'static str,
    /// Whether a replica logs what it applies, so that others can replicate from it.
    pub logs_updates: bool,
    /// `sync_binlog`: the number of commits between flushes of the log; 0 for never.
    pub sync: String,
    /// `innodb_flush_log_at_trx_commit`: 1 flushes the redo log at each commit.
    pub redo_flush: String,
}

/// The names of the variable for logging what a replica applies.
const UPDATES: [&str; 2] = ["log_replica_updates", "log_slave_updates"];

impl LogSettings {
    /// Returns the settings of the server with these variables.
    #[must_use]
    pub fn of(facts: &ServerFacts) -> Self {
        let known = UPDATES
            .into_iter()
            .find(|name| facts.variables.contains_key(*name));
        let updates_variable = known.unwrap_or(UPDATES[1]);
        Self {
            on: facts.on("log_bin"),
            updates_variable,
            logs_updates: facts.on("log_bin") && facts.on(updates_variable),
            sync: facts.get("sync_binlog").to_owned(),
            redo_flush: facts.get("innodb_flush_log_at_trx_commit").to_owned(),
        }
    }

    /// Returns whether a crash of the machine loses no acknowledged transaction.
    #[must_use]
    pub fn durable(&self) -> bool {
        // MariaDB's 3 flushes like 1.
        matches!(self.redo_flush.as_str(), "1" | "3") && (!self.on || self.sync == "1")
    }

    /// Returns the settings that determine what a crash loses.
    #[must_use]
    pub fn durability(&self) -> String {
        let sync = if self.on {
            self.sync.as_str()
        } else {
            "(no binary log)"
        };
        format!(
            "sync_binlog={sync}, innodb_flush_log_at_trx_commit={}",
            self.redo_flush
        )
    }
}

/// Where the next transaction of a server will be logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEnd {
    /// The name of the files without their number, and the number of the file; `None` for another name.
    file: Option<(String, u64)>,
    offset: u64,
}

impl LogEnd {
    /// Returns the end at this offset of a file.
    #[must_use]
    pub fn of(file: &str, offset: u64) -> Self {
        let file = file.rsplit_once('.').and_then(|(name, number)| {
            let number = number.parse().ok()?;
            Some((name.to_owned(), number))
        });
        Self { file, offset }
    }

    /// Reads the end of a server's log; `None` when it has none.
    ///
    /// # Errors
    /// When the privilege is missing or the connection breaks.
    pub fn read(engine: Engine, session: &mut Session) -> Result<Option<Self>, ServerError> {
        let end = binlog_end(engine, session)?;
        Ok(end.map(|(file, offset)| Self::of(&file, offset)))
    }

    /// Returns whether it is before an earlier end of the same log, which was reset since.
    #[must_use]
    pub fn is_before(&self, earlier: &Self) -> bool {
        match (&self.file, &earlier.file) {
            (Some((name, number)), Some((before, number_before))) => {
                name == before && (number, self.offset) < (number_before, earlier.offset)
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durability_needs_both_logs() {
        let of = |sync: &str, redo: &str, on: &str| {
            let variables = [
                ("log_bin", on),
                ("sync_binlog", sync),
                ("innodb_flush_log_at_trx_commit", redo),
            ];
            let variables = variables
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect();
            LogSettings::of(&ServerFacts {
                engine: Engine::MariaDb,
                version: String::new(),
                variables,
            })
            .durable()
        };
        assert!(of("1", "1", "ON") && of("1", "3", "ON") && of("0", "1", "OFF"));
        assert!(!of("0", "1", "ON") && !of("1", "2", "ON") && !of("1000", "1", "ON"));
    }

    #[test]
    fn log_that_goes_backward_was_reset() {
        let before = LogEnd::of("binlog.000009", 500);
        for (file, offset, is_reset) in [
            ("binlog.000009", 500, false),
            ("binlog.1000000", 4, false),
            ("other.000001", 4, false),
            ("binlog.000009", 4, true),
            ("binlog.000001", 900, true),
        ] {
            let is_before = LogEnd::of(file, offset).is_before(&before);
            assert_eq!(is_before, is_reset, "{file} {offset}");
        }
    }
}
