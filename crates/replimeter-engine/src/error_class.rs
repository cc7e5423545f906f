//! Why a server refused a statement: what callers react to. The numbers are each engine's own, and stay here.

use replimeter_model::words;

words! {
    /// Why a server refused a statement.
    pub enum ErrorClass {
        /// Two transactions waited for each other, and this one was rolled back.
        Deadlock = "deadlock",
        /// A lock was not granted in time.
        LockTimeout = "lock-timeout",
        /// The row changed after the transaction had read it (MariaDB's snapshot isolation).
        ChangedRow = "changed-row",
        /// Another member of the cluster changed the row first.
        Certification = "certification",
        /// The member takes no statements at the moment.
        NotReady = "not-ready",
        /// A commit failed for another reason.
        CommitFailed = "commit-failed",
        /// A read that was made to wait was not fresh in time.
        WaitTimeout = "wait-timeout",
        /// The server cannot parse the statement.
        Syntax = "syntax",
        /// The schema is not there.
        NoSchema = "no-schema",
        /// The table is not there.
        NoTable = "no-table",
        /// A row of this key is there already.
        Duplicate = "duplicate",
        /// A value is not one of the column, as a character that its character set lacks.
        Value = "value",
        /// The server or the transaction takes no writes.
        ReadOnly = "read-only",
        /// The server has as many connections as it allows.
        TooManyConnections = "too-many-connections",
        /// The user has as many connections as allowed.
        TooManyOfUser = "too-many-connections-of-user",
        /// A disk, or a table, is full.
        DiskFull = "disk-full",
        /// The statement cannot be prepared.
        NotPreparable = "not-preparable",
        /// The log of changes cannot be sent from the requested position.
        LogRefused = "log-refused",
        /// Anything else.
        Other = "refused",
    }
}

impl ErrorClass {
    /// Returns the class of an error of MariaDB or MySQL.
    pub(crate) fn of(number: u16, message: &str) -> Self {
        let says = |word: &str| message.to_ascii_lowercase().contains(word);
        match number {
            // Galera uses the numbers of other errors, with a message of its own.
            1213 | 1180 if says("wsrep") => Self::Certification,
            1213 => Self::Deadlock,
            1205 => Self::LockTimeout,
            1020 => Self::ChangedRow,
            // A group's member: rolled back at commit, or a conflict that the storage engine reports.
            3101 => Self::Certification,
            1180 if says("149") || says("deadlock") => Self::Certification,
            1180 => Self::CommitFailed,
            1047 => Self::NotReady,
            3796..=3799 => Self::WaitTimeout,
            1064 => Self::Syntax,
            1049 => Self::NoSchema,
            1146 => Self::NoTable,
            1062 => Self::Duplicate,
            1366 => Self::Value,
            1290 | 1792 | 1836 => Self::ReadOnly,
            1040 => Self::TooManyConnections,
            1203 | 1226 => Self::TooManyOfUser,
            28 | 1021 | 1026 | 1030 | 1114 => Self::DiskFull,
            1295 => Self::NotPreparable,
            1236 => Self::LogRefused,
            _ => Self::Other,
        }
    }

    /// Returns whether a client would repeat the transaction.
    #[must_use]
    pub fn is_retried(self) -> bool {
        self <= Self::NotReady
    }

    /// Returns whether no more connections are accepted.
    #[must_use]
    pub fn is_limit_of_connections(self) -> bool {
        matches!(self, Self::TooManyConnections | Self::TooManyOfUser)
    }

    /// Returns whether an object is not there, or not yet.
    #[must_use]
    pub fn is_absent(self) -> bool {
        matches!(self, Self::NoSchema | Self::NoTable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_that_a_client_repeats_are_recognized() {
        for (number, message, class) in [
            (
                1213,
                "Deadlock found when trying to get lock",
                ErrorClass::Deadlock,
            ),
            (
                1213,
                "Deadlock: WSREP aborted transaction",
                ErrorClass::Certification,
            ),
            (
                3101,
                "Plugin instructed the server to rollback",
                ErrorClass::Certification,
            ),
            (
                1180,
                "Got error 149 - 'Lock deadlock; Retry transaction' during COMMIT",
                ErrorClass::Certification,
            ),
            (1205, "", ErrorClass::LockTimeout),
            (1020, "", ErrorClass::ChangedRow),
            (1047, "", ErrorClass::NotReady),
        ] {
            let found = ErrorClass::of(number, message);
            assert_eq!(found, class, "{number} {message}");
            assert!(found.is_retried(), "{found:?}");
        }
        let full = "Got error 28 - 'No space left on device' during COMMIT";
        for (number, message) in [(1180, full), (1062, ""), (1064, ""), (3796, ""), (1, "")] {
            assert!(!ErrorClass::of(number, message).is_retried(), "{number}");
        }
    }
}
