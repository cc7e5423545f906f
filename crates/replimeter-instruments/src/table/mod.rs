//! The table that rows are written to, created and dropped by Replimeter.

mod arrival;
mod claim;
mod lock;
mod readers;
mod rows;
mod schema;
mod watch_table;

use std::{
    collections::BTreeMap,
    sync::{
        LazyLock,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use replimeter_engine::{
    ErrorClass, Node, ServerError, Session,
    dialect::{statements::TRANSACTIONAL, sync_reads::conflict},
    membership::ClusterState,
};
use replimeter_model::warning::{Warning, WarningCode};

use self::lock::{release_probe_lock, with_schema_lock};
pub(crate) use self::{
    arrival::arrival,
    claim::claim,
    lock::{LOCK, lock_schema, probe_question, take_probe_lock, unlock_schema},
    rows::remove_rows,
    schema::{Schema, SchemaState, find},
    watch_table::WatchTable,
};
pub use self::{
    lock::keep_alive,
    rows::{RowBudget, payload},
};
use crate::{
    SCHEMA, TABLE,
    definition::{blocked_applier, define},
    preflight::{CheckedReplica, Cluster},
    stamp,
};

/// Timeout of a second attempt to remove the table.
const PATIENT: Duration = Duration::from_secs(30);
/// Timeout for a replica when the user has interrupted.
const HURRIED: Duration = Duration::from_millis(500);
/// Timeout for a replica to apply what an earlier run, or a script's teardown, removed, and for another run to release
/// the lock of the schema.
pub(crate) const SETTLE: Duration = Duration::from_secs(2);
/// Interval between queries of a server that is waited for.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The statement that writes one row.
pub static INSERT: LazyLock<String> = LazyLock::new(|| {
    format!(
        "INSERT INTO `{SCHEMA}`.`{}` (id, sequence, sent_us, payload) VALUES (?, ?, ?, ?)",
        *TABLE
    )
});
/// The statement that reads all rows not seen yet.
pub static UNSEEN: LazyLock<String> =
    LazyLock::new(|| format!("SELECT id FROM `{SCHEMA}`.`{}` WHERE id > ?", *TABLE));
/// The statement whose round trip is the reference for the floor.
pub static POINT_SELECT: LazyLock<String> =
    LazyLock::new(|| format!("SELECT id FROM `{SCHEMA}`.`{}` WHERE id = ?", *TABLE));

/// The columns of the lag measurement's rows.
const LAG_COLUMNS: &str = "id BIGINT UNSIGNED NOT NULL PRIMARY KEY, sequence INT UNSIGNED NOT NULL, \
     sent_us BIGINT NOT NULL, payload LONGBLOB NOT NULL, stamp DATETIME(6) NULL, stamp_udf VARCHAR(26) NULL";

/// The table on the primary, for the duration of a measurement. Dropping this without
/// [`remove`](Self::remove), as a panic does, still removes the table there.
#[derive(Debug)]
pub struct ProbeTable {
    primary: Node,
    schema: Schema,
    removed: bool,
}

impl Drop for ProbeTable {
    fn drop(&mut self) {
        if self.removed {
            return;
        }
        // The run's own session may be in any state; the next run removes what fails here.
        if let Ok(mut session) = Session::open(&self.primary) {
            let _ = self.drop_on(&mut session, HURRIED);
        }
    }
}

/// Takes the locks, and returns the tables that earlier, killed runs left on any server, with a warning for each.
fn clear(cluster: &mut Cluster) -> Result<BTreeMap<String, Warning>, ServerError> {
    claim(cluster)?;
    let mut leftovers = BTreeMap::new();
    let mut add = |server: &Session, tables: Vec<String>, more: &str| {
        for table in tables {
            let text = format!(
                "{server}: removed the table `{table}` that an earlier, killed run left{more}"
            );
            let warning = Warning::new(WarningCode::LeftoverRemoved, text, "no action needed");
            leftovers.entry(table).or_insert(warning);
        }
    };
    let primary = &mut cluster.primary;
    let writers = primary
        .membership
        .as_member()
        .map_or(1, ClusterState::writers);
    let session = &mut primary.session;
    let found = find(session)?;
    let on_primary = found.probes;
    add(session, on_primary.clone(), "");
    // The lock is one of this member alone.
    if !found.watched.is_empty() && writers <= 1 && take_probe_lock(session)?.is_none() {
        add(session, found.watched, "");
        release_probe_lock(session);
    }
    for replica in &mut cluster.replicas {
        let session = &mut replica.server.session;
        // The removal by an earlier run may still be on its way.
        let alone = left_alone(session, &on_primary, Instant::now() + SETTLE)?;
        add(session, alone, ALONE);
    }
    for node in &cluster.unnamed.asked {
        let mut session = Session::open(node)?;
        let alone = left_alone(&mut session, &on_primary, Instant::now())?;
        add(&session, alone, ALONE);
    }
    Ok(leftovers)
}

/// Returns the tables of killed runs that a server has and the primary does not, once those that go until the deadline are gone.
fn left_alone(
    session: &mut Session,
    on_primary: &[String],
    deadline: Instant,
) -> Result<Vec<String>, ServerError> {
    let alone = |found: SchemaState| -> Vec<String> {
        let tables = found.probes.into_iter();
        tables.filter(|table| !on_primary.contains(table)).collect()
    };
    let gone = arrived(session, deadline, |found| {
        found.probes.iter().all(|table| on_primary.contains(table))
    });
    match gone {
        true => Ok(Vec::new()),
        false => find(session).map(alone),
    }
}

/// How a table was left that the primary does not have.
const ALONE: &str = ", which its primary does not have";

/// Removes the FEDERATED tables that a killed run left on servers that no other run measures. The primary must be
/// locked.
///
/// # Errors
/// When a server does not answer. A refusal is a warning.
pub(crate) fn remove_federated(cluster: &mut Cluster) -> Result<Vec<Warning>, ServerError> {
    let mut warnings = Vec::new();
    for server in cluster.servers_mut() {
        let session = &mut server.session;
        let other = session.value(
            "cannot begin",
            &format!("SELECT 1 FROM DUAL WHERE IS_USED_LOCK('{LOCK}') <> CONNECTION_ID()"),
        )?;
        if other.is_none() && find(session)?.federated {
            warnings.push(stamp::remove_leftover(server));
        }
    }
    Ok(warnings)
}

impl ProbeTable {
    /// Creates the table. Those that killed runs left are removed first, by statements that also succeed where a table does not
    /// exist; then every replica may take `patience` to follow.
    ///
    /// # Errors
    /// When another run is measuring, or a server refuses.
    pub fn create(
        cluster: &mut Cluster,
        patience: Duration,
    ) -> Result<(Self, Vec<Warning>), ServerError> {
        Self::create_with(cluster, patience, LAG_COLUMNS)
    }

    /// Like [`create`](Self::create), with other columns, for another measurement.
    ///
    /// # Errors
    /// Like [`create`](Self::create).
    pub fn create_with(
        cluster: &mut Cluster,
        patience: Duration,
        columns: &str,
    ) -> Result<(Self, Vec<Warning>), ServerError> {
        let leftovers = clear(cluster)?;
        let others = cluster.other_nodes();
        let node = cluster.primary.node.clone();
        let mut warnings = remove_federated(cluster)?;
        let session = &mut cluster.primary.session;
        let table = with_schema_lock(session, SETTLE, |session| {
            Self::make(session, node, &others, leftovers.keys(), columns)
        })?;
        let source = cluster.primary.session.to_string();
        for replica in &mut cluster.replicas {
            // What does not arrive is reported by the measurement, unless removing an earlier run's table keeps it away. A node of a
            // cluster without the table would leave it, or vote the primary out, at the first row.
            let is_node = replica.needs_tables();
            if leftovers.is_empty() && !is_node {
                continue;
            }
            let deadline = Instant::now() + patience + replica.delay();
            let session = &mut replica.server.session;
            let there = arrived(session, deadline, SchemaState::has_table);
            if !there && let Some(error) = blocked_applier(session) {
                return Err(error);
            }
            if !there && is_node {
                return Err(lacks_table(session, &source, patience));
            }
        }
        warnings.extend(leftovers.into_values());
        Ok((table, warnings))
    }

    /// Creates the schema unless it exists, removes tables of earlier runs, and creates the table.
    fn make<'a>(
        session: &mut Session,
        primary: Node,
        others: &[Node],
        leftovers: impl Iterator<Item = &'a String>,
        columns: &str,
    ) -> Result<Self, ServerError> {
        let schema = Schema::make(&primary, session, others)?;
        // The default schema is `replimeter`, so that filters by default schema treat the
        // definitions like the rows.
        session.run("cannot use the schema", "USE `replimeter`")?;
        for table in leftovers {
            // This run holds the lock, so the run that created the table is over. A server that does not have the table
            // must not fail, and the statement reaches one that has it even if the primary does not.
            let operation = "cannot remove an earlier run's table";
            define(&primary, session, operation, &drop_table(table))?;
        }
        let create = format!(
            "CREATE TABLE `{SCHEMA}`.`{}` ({columns}) {TRANSACTIONAL} COMMENT='{}'",
            *TABLE,
            schema.mark()
        );
        let table = Self {
            primary,
            schema,
            removed: false,
        };
        define(&table.primary, session, "cannot create the table", &create)?;
        Ok(table)
    }

    /// Leaves the table, because its servers are removed anyway.
    pub fn abandon(mut self) {
        self.removed = true;
    }

    /// Drops the table, and the schema if Replimeter created it and no named server has other objects
    /// in it; then waits, for `patience` and any deliberate delay, until the replicas have done the
    /// same, or until `stop`. Returns warnings about everything that could not be removed.
    pub fn remove(
        mut self,
        cluster: &mut Cluster,
        patience: Duration,
        stop: &AtomicBool,
    ) -> Vec<Warning> {
        self.removed = true;
        let hurried = stop.load(Ordering::Relaxed);
        let delay = cluster
            .replicas
            .iter()
            .map(CheckedReplica::delay)
            .max()
            .unwrap_or_default();
        let applied = if hurried { HURRIED } else { patience + delay };
        let dropped = self
            .drop_on(&mut cluster.primary.session, applied)
            .or_else(|error| {
                // Each wait for a lock was bounded and repeated.
                if error.class() == Some(ErrorClass::LockTimeout) {
                    return Err(error);
                }
                // The session may have been lost with the error that ended the run, or the disk may
                // stall: a removal in progress blocks the next one, so this one has a long timeout.
                cluster.primary.session = Session::open(&Node {
                    answer: PATIENT,
                    ..cluster.primary.node.clone()
                })?;
                self.drop_on(&mut cluster.primary.session, applied)
            });
        let mut warnings = match dropped {
            Ok(kept) => Vec::from_iter(kept),
            Err(error) => {
                return vec![incomplete(format!(
                    "{error}; its table `{SCHEMA}`.`{}` still exists",
                    *TABLE
                ))];
            }
        };
        for replica in &mut cluster.replicas {
            let wait = if stop.load(Ordering::Relaxed) {
                HURRIED
            } else {
                patience + replica.delay()
            };
            // The run's own session may have idled out, and the replica may hang.
            let session = &replica.server.session;
            match Session::open(&replica.server.with_short_timeouts()) {
                Ok(mut now) => {
                    if gone(&mut now, Instant::now() + wait) {
                        continue;
                    }
                    if let Some(error) = blocked_applier(&mut now) {
                        warnings.push(Warning::new(
                            WarningCode::CleanUpIncomplete,
                            error.to_string(),
                            error.hint,
                        ));
                    } else {
                        warnings.push(incomplete(format!(
                            "{session} has not yet applied the removal of `{SCHEMA}`.`{}`; it will when replication resumes", *TABLE)));
                    }
                }
                Err(error) => warnings.push(incomplete(format!(
                    "{session} does not answer ({}): it may still have `{SCHEMA}`.`{}`",
                    error.cause, *TABLE
                ))),
            }
        }
        warnings
    }

    /// Removes the table if this run created it, and the schema if Replimeter may drop it; returns
    /// the warning if the schema stays.
    fn drop_on(
        &self,
        session: &mut Session,
        patience: Duration,
    ) -> Result<Option<Warning>, ServerError> {
        if find(session)?.has_table() {
            define(
                &self.primary,
                session,
                "cannot remove the table",
                &drop_table(&TABLE),
            )?;
        }
        let kept = self.schema.remove(&self.primary, session, patience)?;
        let _ = session.value(
            "cannot release the lock",
            &format!("SELECT RELEASE_LOCK('{LOCK}')"),
        );
        Ok(kept)
    }
}

/// Returns the error of a node of a cluster that does not get what was created on the primary, so that no row may be written.
pub(crate) fn lacks_table(session: &Session, source: &str, waited: Duration) -> ServerError {
    session.precondition(
        "cannot begin",
        format!(
            "it does not have the table that was created on {source} {} s ago: the first row would remove a node from the cluster",
            waited.as_secs_f64()
        ),
        "check that it applies definitions: see its error log, and look for locks there (`replimeter doctor` shows both)",
    )
}

fn incomplete(message: String) -> Warning {
    Warning::new(
        WarningCode::CleanUpIncomplete,
        message,
        format!(
            "start a run on these servers, which removes it, or, on the primary: {}",
            drop_table(&TABLE)
        ),
    )
}

/// Returns the statement that removes a run's table, also where it does not exist.
pub(crate) fn drop_table(table: &str) -> String {
    format!("DROP TABLE IF EXISTS `{SCHEMA}`.`{table}`")
}

fn gone(session: &mut Session, deadline: Instant) -> bool {
    arrived(session, deadline, |found| !found.has_table())
}

/// Waits until a replica's schema is as wanted; returns whether it is.
fn arrived(
    session: &mut Session,
    deadline: Instant,
    wanted: impl Fn(&SchemaState) -> bool,
) -> bool {
    loop {
        match find(session) {
            Ok(found) if wanted(&found) => return true,
            // A node that executes a definition aborts others' statements.
            Err(error) if !conflict(&error) => return false,
            _ if Instant::now() >= deadline => return false,
            _ => thread::sleep(POLL_INTERVAL),
        }
    }
}
