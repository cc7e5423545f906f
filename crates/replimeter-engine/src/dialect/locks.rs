//! Metadata locks: who holds one, and whether a replica's applier waits for one.

use replimeter_model::engine::Engine;

use crate::{ErrorKind, ServerError, Session, session::StatusRow};

const OPERATION: &str = "cannot read who holds locks";

/// Connections with granted locks on a schema's tables, or with a lock of a backup.
const MYSQL: &str = "SELECT t.PROCESSLIST_ID AS id, CONCAT(t.PROCESSLIST_USER, '@', t.PROCESSLIST_HOST) AS user, \
     MAX(t.PROCESSLIST_TIME) AS seconds FROM performance_schema.metadata_locks m \
     JOIN performance_schema.threads t ON t.THREAD_ID = m.OWNER_THREAD_ID \
     WHERE m.LOCK_STATUS = 'GRANTED' AND t.TYPE = 'FOREGROUND' AND t.PROCESSLIST_USER IS NOT NULL \
     AND t.PROCESSLIST_ID <> CONNECTION_ID() AND (m.OBJECT_TYPE = 'TABLE' AND m.OBJECT_SCHEMA = 'replimeter' \
     OR m.OBJECT_TYPE IN ('GLOBAL', 'BACKUP LOCK') AND m.LOCK_TYPE = 'SHARED') GROUP BY 1, 2 ORDER BY 3 DESC LIMIT 3";

/// Connections with an open transaction. MariaDB has no list of metadata locks without a plugin.
const MARIADB: &str = "SELECT p.ID AS id, CONCAT(p.USER, '@', p.HOST) AS user, \
     TIMESTAMPDIFF(SECOND, x.trx_started, NOW()) AS seconds FROM information_schema.INNODB_TRX x \
     JOIN information_schema.PROCESSLIST p ON p.ID = x.trx_mysql_thread_id \
     WHERE p.ID <> CONNECTION_ID() AND p.USER <> 'system user' ORDER BY x.trx_started LIMIT 3";

/// Returns a description of the connections that hold, or on MariaDB may hold, a metadata lock on a table in the schema
/// `replimeter`.
///
/// # Errors
/// When the connection breaks.
pub fn holders(engine: Engine, session: &mut Session) -> Result<String, ServerError> {
    let (sql, privilege, intro) = match engine {
        Engine::MySql => (MYSQL, "SELECT on performance_schema", "the lock is held by"),
        Engine::MariaDb => (MARIADB, "PROCESS", "transactions are open in"),
    };
    let rows = match session.rows(OPERATION, sql) {
        Ok(rows) => rows,
        Err(error) if matches!(error.kind, ErrorKind::Privilege | ErrorKind::Statement(_)) => {
            return Ok(format!(
                "the user may not see which connection holds the lock ({privilege} shows it)"
            ));
        }
        Err(error) => return Err(error),
    };
    let get = |row: &StatusRow, name: &str| row.get(name).cloned().unwrap_or_default();
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
        Err(error) if matches!(error.kind, ErrorKind::Privilege | ErrorKind::Statement(_)) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}
