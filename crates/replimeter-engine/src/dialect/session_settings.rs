//! The settings that begin every session, so that what Replimeter does and reads depends on no server's defaults.
//!
//! One statement sets all of them: MariaDB executes the comment that begins with `M!`, MySQL the one with its version, and each
//! skips the other.

use std::time::Duration;

/// Longest wait for a lock, in seconds: the default of InnoDB.
const LOCK_WAIT: &str = "50";

/// Settings of both engines.
const BOTH: &[(&str, &str)] = &[
    // One statement is one transaction.
    ("autocommit", "1"),
    ("completion_type", "0"),
    ("character_set_client", "utf8mb4"),
    ("character_set_results", "utf8mb4"),
    ("collation_connection", "utf8mb4_general_ci"),
    ("time_zone", "'+00:00'"),
    (
        "sql_mode",
        "'STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION'",
    ),
    ("sql_quote_show_create", "1"),
    ("sql_auto_is_null", "0"),
    ("sql_safe_updates", "0"),
    ("sql_big_selects", "1"),
    ("sql_select_limit", "18446744073709551615"),
    ("lock_wait_timeout", LOCK_WAIT),
    ("innodb_lock_wait_timeout", LOCK_WAIT),
    ("net_read_timeout", "30"),
    ("net_write_timeout", "60"),
];

/// Settings of MariaDB.
const MARIADB: &[(&str, &str)] = &[
    ("tx_isolation", "'REPEATABLE-READ'"),
    ("tx_read_only", "0"),
    ("max_statement_time", "0"),
    ("idle_transaction_timeout", "0"),
    ("idle_readonly_transaction_timeout", "0"),
    ("idle_write_transaction_timeout", "0"),
    ("alter_algorithm", "'DEFAULT'"),
    // A replica's cache can keep an answer after a newer version of the row was applied: a reader would wait for ever.
    ("query_cache_type", "0"),
    // Otherwise a Galera node executes definitions alone, and the rows after them replicate: the others vote it out.
    ("wsrep_OSU_method", "'TOI'"),
];

/// Settings of MySQL.
const MYSQL: &[(&str, &str)] = &[
    ("transaction_isolation", "'REPEATABLE-READ'"),
    ("transaction_read_only", "0"),
    ("max_execution_time", "0"),
    // Statistics are cached for a day otherwise.
    ("information_schema_stats_expiry", "0"),
];

/// A session of Replimeter, outside of the measuring path, must not end because it is idle for some seconds, as the one that holds a
/// run's lock. In seconds: the default of every server.
const IDLE: (&str, &str) = ("wait_timeout", "28800");

/// Settings that statements of users have as well: transactions, texts and definitions mean what Replimeter documents.
const KEPT: [&str; 6] = [
    "autocommit",
    "character_set_client",
    "character_set_results",
    "collation_connection",
    "wsrep_OSU_method",
    "wait_timeout",
];

/// Whose statements a session runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Own,
    Load,
    User,
}

/// The settings for a session, less those that its server refuses.
#[derive(Debug)]
pub(crate) struct SessionSettings {
    purpose: Purpose,
    /// How long a wait for a lock may take, in seconds.
    lock_wait: u64,
    refused: Vec<&'static str>,
}

/// Those for a session whose answers may take `answer`: a wait for a lock ends before the client gives up on its statement, which
/// would otherwise stay queued on the server.
impl SessionSettings {
    fn of(purpose: Purpose, answer: Duration) -> Self {
        Self {
            purpose,
            lock_wait: (answer.as_secs() * 9 / 10).max(1),
            refused: Vec::new(),
        }
    }

    /// Returns those of sessions with statements of Replimeter.
    pub(crate) fn own(answer: Duration) -> Self {
        Self::of(Purpose::Own, answer)
    }

    /// Returns those of connections of a load, whose idle time is the server's.
    pub(crate) fn load(answer: Duration) -> Self {
        Self::of(Purpose::Load, answer)
    }

    /// Returns those that restore the server's defaults, for statements of users.
    pub(crate) fn user(answer: Duration) -> Self {
        Self::of(Purpose::User, answer)
    }

    /// Returns the assignments of some settings, each after a comma.
    fn assignments(&self, settings: &[(&str, &str)]) -> String {
        let settings = settings.iter().filter(|(name, _)| {
            let kept = self.purpose == Purpose::User && KEPT.contains(name);
            !kept && !self.refused.contains(name)
        });
        settings
            .map(|(name, value)| {
                let value = match self.purpose {
                    Purpose::User => format!("@@GLOBAL.{name}"),
                    Purpose::Own | Purpose::Load => (*value).to_owned(),
                };
                if name.ends_with("lock_wait_timeout") {
                    format!(", {name}=LEAST({value}, {})", self.lock_wait)
                } else if self.purpose == Purpose::User {
                    format!(", {name}=DEFAULT")
                } else {
                    format!(", {name}={value}")
                }
            })
            .collect()
    }

    /// Returns the statement.
    pub(crate) fn sql(&self) -> String {
        let mut both = self.assignments(BOTH);
        if self.purpose == Purpose::Own {
            both += &self.assignments(&[IDLE]);
        }
        format!(
            "SET SESSION{} /*M! {} */ /*!50720 {} */",
            both.trim_start_matches(','),
            self.assignments(MARIADB),
            self.assignments(MYSQL)
        )
    }

    /// Leaves out a setting that the server refuses by name, as one that its version lacks; returns whether there was one.
    pub(crate) fn leave_out(&mut self, message: &str) -> bool {
        let all = BOTH.iter().chain(MARIADB).chain(MYSQL).chain([&IDLE]);
        let named = all
            .map(|(name, _)| *name)
            .find(|name| !self.refused.contains(name) && message.contains(&format!("'{name}'")));
        self.refused.extend(named);
        named.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: Duration = Duration::from_secs(10);

    #[test]
    fn waits_for_locks_end_before_their_statement_is_given_up() {
        let own = SessionSettings::own(ANSWER).sql();
        assert!(own.contains(" lock_wait_timeout=LEAST(50, 9)"), "{own}");
        let user = SessionSettings::user(ANSWER).sql();
        let inherited = " innodb_lock_wait_timeout=LEAST(@@GLOBAL.innodb_lock_wait_timeout, 9)";
        assert!(user.contains(inherited), "{user}");
    }

    #[test]
    fn setting_that_a_server_lacks_is_left_out() {
        let mut settings = SessionSettings::own(ANSWER);
        assert!(
            settings
                .sql()
                .starts_with("SET SESSION autocommit=1, completion_type=0,"),
            "{}",
            settings.sql()
        );
        assert!(settings.leave_out("Unknown system variable 'wsrep_OSU_method'"));
        assert!(!settings.sql().contains("wsrep_OSU_method"));
        // The same error again is another's.
        assert!(!settings.leave_out("Unknown system variable 'wsrep_OSU_method'"));
        assert!(!settings.leave_out("You have an error in your SQL syntax"));
    }

    #[test]
    fn users_statements_have_the_servers_defaults() {
        let sql = SessionSettings::user(ANSWER).sql();
        for restored in [
            "sql_mode=DEFAULT",
            "tx_isolation=DEFAULT",
            "query_cache_type=DEFAULT",
            "max_execution_time=DEFAULT",
        ] {
            assert!(sql.contains(restored), "{sql}");
        }
        let set = |name: &&str| sql.contains(&format!(" {name}="));
        assert!(!KEPT.iter().any(set), "{sql}");
        assert!(
            !SessionSettings::load(ANSWER)
                .sql()
                .contains("wait_timeout=28800")
        );
    }
}
