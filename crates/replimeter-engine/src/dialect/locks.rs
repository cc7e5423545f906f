//! Metadata locks: who holds one, and whether a replica's applier waits for one.

use replimeter_model::engine::Engine;

use crate::{ServerError, Session, session::StatusRow};

const OPERATION: &str = "cannot read who holds locks";

/// Connections with granted locks on a schema's tables, or with a lock of a backup.
const MYSQL: &str = "SELECT t.PROCESSLIST_ID AS id, CONCAT(t.PROCESSLIST_USER, '@', t.PROCESSLIST_HOST) AS user, \
     MAX(t.PROCESSLIST_TIME) AS seconds FROM performance_schema.metadata_locks m \
     JOIN performance_schema.threads t ON t.THREAD_ID = m.OWNER_THREAD_ID \
     WHERE m.LOCK_STATUS = 'GRANTED' AND t.TYPE = 'FOREGROUND' AND t.PROCESSLIST_USER IS NOT NULL \
     AND t.PROCESSLIST_ID <> CONNECTION_ID() AND (m.OBJECT_TYPE = 'TABLE' AND m.OBJECT_SCHEMA = 'replimeter' \
     OR m.OBJECT_TYPE IN ('GLOBAL', 'BACKUP LOCK') AND m.LOCK_TYPE = 'SHARED') GROUP BY 1, 2 ORDER BY 3 DESC LIMIT 3";

/// Connections with an open transaction, or with one of at least `least_s` seconds, the oldest first. The times of the table are in
/// the server's time zone.
fn open_transactions(least_s: Option<u32>) -> String {
    let age =
        "TIMESTAMPDIFF(SECOND, x.trx_started, CONVERT_TZ(NOW(), @@session.time_zone, 'SYSTEM'))";
    let old = least_s.map_or_else(String::new, |least_s| format!("AND {age} >= {least_s} "));
    format!(
        "SELECT p.ID AS id, CONCAT(p.USER, '@', p.HOST) AS user, {age} AS seconds FROM information_schema.INNODB_TRX x \
         JOIN information_schema.PROCESSLIST p ON p.ID = x.trx_mysql_thread_id \
         WHERE p.ID <> CONNECTION_ID() AND p.USER <> 'system user' {old}ORDER BY 3 DESC LIMIT 3"
    )
}

/// Returns a description of the connections that hold, or on MariaDB may hold, a metadata lock on a table in the schema
/// `replimeter`.
///
/// # Errors
/// When the connection breaks.
pub fn holders(engine: Engine, session: &mut Session) -> Result<String, ServerError> {
    // MariaDB has no list of metadata locks without a plugin.
    let transactions = open_transactions(None);
    let (sql, privilege, intro) = match engine {
        Engine::MySql => (MYSQL, "SELECT on performance_schema", "the lock is held by"),
        Engine::MariaDb => (&*transactions, "PROCESS", "transactions are open in"),
    };
    let rows = match session.rows(OPERATION, sql) {
        Ok(rows) => rows,
        Err(error) if error.is_refusal() => {
            return Ok(format!(
                "the user may not see which connection holds the lock ({privilege} shows it)"
            ));
        }
        Err(error) => return Err(error),
    };
    let each: Vec<String> = rows
        .iter()
        .map(|row| {
            format!(
                "connection {} ({}, for {} s)",
                get(row, "id"),
                get(row, "user"),
                get(row, "seconds")
            )
        })
        .collect();
    Ok(if each.is_empty() {
        "no connection was found that holds the lock".to_owned()
    } else {
        format!("{intro} {}", each.join(", "))
    })
}

/// Age in seconds from which an open transaction is named.
const LONG_S: u32 = 10;

/// Locks of `LOCK INSTANCE FOR BACKUP` and `FLUSH TABLES WITH READ LOCK`.
const MYSQL_BACKUPS: &str = "SELECT t.PROCESSLIST_ID AS id, CONCAT(t.PROCESSLIST_USER, '@', t.PROCESSLIST_HOST) AS user, \
     MAX(t.PROCESSLIST_TIME) AS seconds FROM performance_schema.metadata_locks m \
     JOIN performance_schema.threads t ON t.THREAD_ID = m.OWNER_THREAD_ID \
     WHERE m.LOCK_STATUS = 'GRANTED' AND t.PROCESSLIST_ID <> CONNECTION_ID() \
     AND m.OBJECT_TYPE IN ('GLOBAL', 'BACKUP LOCK') AND m.LOCK_TYPE = 'SHARED' GROUP BY 1, 2 ORDER BY 3 DESC LIMIT 3";

/// Whether a MySQL lists metadata locks. Without `performance_schema` it has no instruments.
const MYSQL_LISTS_LOCKS: &str = "SELECT COUNT(*) FROM performance_schema.setup_instruments \
     WHERE NAME = 'wait/lock/metadata/sql/mdl' AND ENABLED = 'YES'";

/// The backups' locks of a MariaDB, and of the backup stages that block definitions.
const MARIADB_BACKUPS: &str = "SELECT p.ID AS id, CONCAT(p.USER, '@', p.HOST) AS user, MAX(p.TIME) AS seconds \
     FROM information_schema.METADATA_LOCK_INFO m JOIN information_schema.PROCESSLIST p ON p.ID = m.THREAD_ID \
     WHERE p.ID <> CONNECTION_ID() AND (m.LOCK_MODE LIKE '%FTWRL%' OR m.LOCK_MODE LIKE '%BACKUP_BLOCK_DDL%' \
     OR m.LOCK_MODE LIKE '%BACKUP_WAIT_%') GROUP BY 1, 2 ORDER BY 3 DESC LIMIT 3";

/// What may be unknown.
const BACKUP_LOCKS: &str = "the locks of backups";

/// What definitions on a server would have to wait for, before any is sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Obstacles {
    /// Connections, and what each holds.
    pub found: Vec<String>,
    /// What could not be read, and a hint.
    pub unknown: Vec<(&'static str, &'static str)>,
}

/// Returns the transactions that have been open for 10 s or longer, and the locks of backups, as far as the user may see them.
///
/// # Errors
/// When the connection breaks.
pub fn obstacles(engine: Engine, session: &mut Session) -> Result<Obstacles, ServerError> {
    let backups = match engine {
        Engine::MySql => (
            MYSQL_BACKUPS,
            "GRANT SELECT ON performance_schema.* to the user",
        ),
        Engine::MariaDb => (
            MARIADB_BACKUPS,
            "INSTALL SONAME 'metadata_lock_info' shows them, to a user with PROCESS",
        ),
    };
    let refused = |error: &ServerError| error.is_refusal();
    let mut obstacles = Obstacles::default();
    for (sql, held, what, hint) in [
        (
            &*open_transactions(Some(LONG_S)),
            "has had a transaction open",
            "long transactions",
            "GRANT PROCESS ON *.* to the user",
        ),
        (
            backups.0,
            "holds a lock of a backup or of FLUSH TABLES WITH READ LOCK, with its last statement",
            BACKUP_LOCKS,
            backups.1,
        ),
    ] {
        match session.rows(OPERATION, sql) {
            Ok(rows) => obstacles.found.extend(rows.iter().map(|row| {
                format!(
                    "connection {} ({}) {held} for {} s",
                    get(row, "id"),
                    get(row, "user"),
                    get(row, "seconds")
                )
            })),
            Err(error) if refused(&error) => obstacles.unknown.push((what, hint)),
            Err(error) => return Err(error),
        }
    }
    // An empty list is also that of a server that keeps none.
    if engine == Engine::MySql
        && obstacles
            .unknown
            .iter()
            .all(|(what, _)| *what != BACKUP_LOCKS)
    {
        match session.value(OPERATION, MYSQL_LISTS_LOCKS) {
            Ok(count) if count.as_deref() != Some("0") => {}
            Ok(_) => obstacles.unknown.push((
                BACKUP_LOCKS,
                "start the server with performance_schema=ON and performance-schema-instrument='wait/lock/metadata/sql/mdl=ON'",
            )),
            Err(error) if refused(&error) => obstacles.unknown.push((BACKUP_LOCKS, backups.1)),
            Err(error) => return Err(error),
        }
    }
    Ok(obstacles)
}

fn get(row: &StatusRow, name: &str) -> String {
    row.get(name).cloned().unwrap_or_default()
}

/// Returns whether a thread that applies replicated transactions waits for a metadata or backup lock, as far as the user
/// may see it.
///
/// # Errors
/// When the connection breaks.
pub fn applier_waits(session: &mut Session) -> Result<bool, ServerError> {
    let sql = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = 'system user' \
               AND (STATE LIKE 'Waiting for%metadata lock%' OR STATE LIKE 'Waiting for backup lock%')";
    match session.value(OPERATION, sql) {
        Ok(count) => Ok(count.is_some_and(|count| count != "0")),
        Err(error) if error.is_refusal() => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::tests::{column, log_in, peer, receive, send};

    #[test]
    fn locks_are_unknown_if_the_server_lists_none() {
        const END: &[u8] = &[0xfe, 0, 0, 2, 0];
        let server = peer(|mut stream| {
            log_in(&mut stream)?;
            // Neither transactions nor locks, and no instrument.
            for _ in 0..2 {
                column(&mut stream)?;
                send(&mut stream, 4, END)?;
                receive(&mut stream)?;
            }
            column(&mut stream)?;
            send(&mut stream, 4, b"\x010")?;
            send(&mut stream, 5, END)
        });
        let mut session = Session::open(&server).unwrap();
        let found = obstacles(Engine::MySql, &mut session).unwrap();
        assert_eq!(found.found, [""; 0]);
        assert_eq!(found.unknown.len(), 1, "{found:?}");
        assert_eq!(found.unknown[0].0, BACKUP_LOCKS);
        assert!(found.unknown[0].1.contains("performance_schema=ON"));
    }

    #[test]
    fn ages_of_transactions_are_in_the_servers_time_zone() {
        for least_s in [None, Some(LONG_S)] {
            let sql = open_transactions(least_s);
            assert!(sql.contains("CONVERT_TZ(NOW()"), "{sql}");
            assert_eq!(sql.contains(">= 10"), least_s.is_some(), "{sql}");
        }
    }
}
