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

/// Transactions that have been open for long. The times of the table are in the server's time zone.
fn long_transactions() -> String {
    let age =
        "TIMESTAMPDIFF(SECOND, x.trx_started, CONVERT_TZ(NOW(), @@session.time_zone, 'SYSTEM'))";
    format!(
        "SELECT p.ID AS id, CONCAT(p.USER, '@', p.HOST) AS user, {age} AS seconds FROM information_schema.INNODB_TRX x \
         JOIN information_schema.PROCESSLIST p ON p.ID = x.trx_mysql_thread_id \
         WHERE p.ID <> CONNECTION_ID() AND p.USER <> 'system user' AND {age} >= {LONG_S} ORDER BY 3 DESC LIMIT 3"
    )
}

/// Locks of `LOCK INSTANCE FOR BACKUP` and `FLUSH TABLES WITH READ LOCK`.
const MYSQL_BACKUPS: &str = "SELECT t.PROCESSLIST_ID AS id, CONCAT(t.PROCESSLIST_USER, '@', t.PROCESSLIST_HOST) AS user, \
     MAX(t.PROCESSLIST_TIME) AS seconds FROM performance_schema.metadata_locks m \
     JOIN performance_schema.threads t ON t.THREAD_ID = m.OWNER_THREAD_ID \
     WHERE m.LOCK_STATUS = 'GRANTED' AND t.PROCESSLIST_ID <> CONNECTION_ID() \
     AND m.OBJECT_TYPE IN ('GLOBAL', 'BACKUP LOCK') AND m.LOCK_TYPE = 'SHARED' GROUP BY 1, 2 ORDER BY 3 DESC LIMIT 3";

/// The same of a MariaDB, and of the backup stages that block definitions.
const MARIADB_BACKUPS: &str = "SELECT p.ID AS id, CONCAT(p.USER, '@', p.HOST) AS user, MAX(p.TIME) AS seconds \
     FROM information_schema.METADATA_LOCK_INFO m JOIN information_schema.PROCESSLIST p ON p.ID = m.THREAD_ID \
     WHERE p.ID <> CONNECTION_ID() AND (m.LOCK_MODE LIKE '%FTWRL%' OR m.LOCK_MODE LIKE '%BACKUP_BLOCK_DDL%' \
     OR m.LOCK_MODE LIKE '%BACKUP_WAIT_%') GROUP BY 1, 2 ORDER BY 3 DESC LIMIT 3";

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
    let mut obstacles = Obstacles::default();
    for (sql, held, what, hint) in [
        (
            &*long_transactions(),
            "has had a transaction open",
            "long transactions",
            "GRANT PROCESS ON *.* to the user",
        ),
        (
            backups.0,
            "holds a lock of a backup or of FLUSH TABLES WITH READ LOCK, with its last statement",
            "the locks of backups",
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
            Err(error) if matches!(error.kind, ErrorKind::Privilege | ErrorKind::Statement(_)) => {
                obstacles.unknown.push((what, hint));
            }
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
        Err(error) if matches!(error.kind, ErrorKind::Privilege | ErrorKind::Statement(_)) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}
