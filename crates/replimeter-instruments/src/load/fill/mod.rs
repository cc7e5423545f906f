//! Data sets: generated tables that are created once and reused by later runs.

mod after;
mod found;
mod removal;

use std::{
    collections::BTreeSet,
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};

use replimeter_engine::{Node, ServerError, Session, dialect::statements::TRANSACTIONAL};
use replimeter_model::{
    load::DataSize,
    warning::{Warning, WarningCode},
};

use self::after::run_after;
use self::found::{comment, held_tables, own_comment, size_of, size_on_disk};
pub(super) use self::removal::{REMOVAL, open_for_removal, removal_hint, tear_down};
use super::{
    FILLING, OPERATION, SETS, about,
    disk::Disk,
    insert::{FillProgress, FillTarget, OnFill, fill_tables},
    script::excerpt,
    value::Draw,
    workload::{Table, Workload},
};
use crate::{
    MARK, MeasureError,
    attended::attended,
    check_interrupted,
    definition::{bound_lock_waits, define},
    preflight::Cluster,
    table::{SETTLE, Schema, keep_alive, lock_schema, unlock_schema},
};

/// Version of the row generator; sets of another version are different sets.
const MAKING: u64 = 2;
/// Number of connections that fill a data set.
const FILLERS: u32 = 4;
/// Interval between checks that the run still holds its lock: another run replaces the tables.
const LOCK_CHECK: Duration = Duration::from_secs(1);
/// Timeout of an index over all rows.
const LONG: Duration = Duration::from_secs(24 * 3600);
/// Timeout of removing a set after creating it failed.
const FOR_REMOVAL: Duration = Duration::from_secs(8);

/// A workload's tables, as [`fill`] created or found them.
#[derive(Debug)]
pub struct DataSet {
    /// Rows in each table.
    pub rows: u64,
    /// Approximate bytes on disk, including indexes, as the server reports.
    pub bytes: u64,
    /// Bytes of the rows sent, as statements or files; 0 for a set that existed.
    pub sent: u64,
    /// Duration of the filling.
    pub took: Duration,
    /// Whether the set existed.
    pub reused: bool,
    /// Warnings about the set.
    pub warnings: Vec<Warning>,
    workload: Workload,
    fingerprint: u64,
    /// Identifies the run that creates the tables, in their comments.
    run: String,
    /// Tables that servers other than the primary had before.
    held: BTreeSet<String>,
    schema: Schema,
    /// The connection that created it, for its removal when the server refuses another.
    session: Option<Session>,
}

/// Creates a workload's tables and rows on the primary, unless a matching set exists; from an existing
/// set it removes rows that loads added. It also runs the `-- setup` of a script. All of this, and its
/// removal, replicates to the other servers; the nodes of a cluster have `patience` to create the tables, before the first row.
/// `progress` is called twice a second, from this thread.
///
/// # Errors
/// When a server cannot be reached or refuses, when a foreign table has the same name, when a node does not create the tables, when the
/// user stopped the run, or when another run took the lock; nothing that was created is left then.
pub fn fill(
    cluster: &mut Cluster,
    workload: &Workload,
    size: DataSize,
    patience: Duration,
    progress: &mut dyn FnMut(&FillProgress),
    stop: &AtomicBool,
) -> Result<DataSet, MeasureError> {
    let (primary, others) = (cluster.primary.node.clone(), cluster.other_nodes());
    cluster.refuse_filtered(&workload.tables())?;
    cluster.refuse_unasked(&workload.tables())?;
    let nodes = ClusterNodes::of(cluster, patience);
    let mut checked = Instant::now();
    let progress: &mut OnFill<'_> = &mut |filled| {
        progress(filled);
        if checked.elapsed() < LOCK_CHECK {
            return Ok(());
        }
        checked = Instant::now();
        keep_alive(cluster)
    };
    let set = fill_checked(&primary, &others, &nodes, workload, size, progress, stop)?;
    // Statements after the rows can take long.
    if let Err(error) = keep_alive(cluster) {
        let _ = set.remove(&primary);
        return Err(error.into());
    }
    Ok(set)
}

/// [`fill`] on servers of a sandbox, which no other run measures: `nodes` begin with the one that is written to.
///
/// # Errors
/// Those of [`fill`], except for the lock.
pub fn fill_sandbox(
    nodes: &[Node],
    workload: &Workload,
    size: DataSize,
    progress: &mut dyn FnMut(&FillProgress),
    stop: &AtomicBool,
) -> Result<DataSet, MeasureError> {
    let Some((primary, others)) = nodes.split_first() else {
        return Err(MeasureError::NoServer);
    };
    let progress: &mut OnFill<'_> = &mut |filled| {
        progress(filled);
        Ok(())
    };
    let nodes = ClusterNodes::default();
    fill_checked(primary, others, &nodes, workload, size, progress, stop)
}

/// The other nodes of the primary's cluster that leave it without a table, and how long they may take for a definition.
#[derive(Default)]
pub(super) struct ClusterNodes {
    others: Vec<Node>,
    patience: Duration,
}

impl ClusterNodes {
    fn of(cluster: &Cluster, patience: Duration) -> Self {
        let replicas = cluster.replicas.iter();
        let nodes = replicas.filter(|replica| replica.needs_tables());
        Self {
            others: nodes.map(|replica| replica.server.node.clone()).collect(),
            patience,
        }
    }
}

/// [`fill`], which an error of `progress` ends.
fn fill_checked(
    primary: &Node,
    others: &[Node],
    nodes: &ClusterNodes,
    workload: &Workload,
    size: DataSize,
    progress: &mut OnFill<'_>,
    stop: &AtomicBool,
) -> Result<DataSet, MeasureError> {
    let began = Instant::now();
    let mut held = BTreeSet::new();
    for other in others {
        held.extend(held_tables(other, workload)?);
    }
    let mut session = open_long(primary)?;
    let mut set = attended(primary, &mut session, stop, |session| {
        let mut set = DataSet::new(session, primary, others, workload, size)?;
        set.held = held;
        set.make_or_remove(session, primary, nodes, progress, stop)?;
        Ok(set)
    })?;
    set.took = began.elapsed();
    set.session = Some(session);
    Ok(set)
}

/// Opens a session whose statements may take long.
fn open_long(primary: &Node) -> Result<Session, ServerError> {
    Session::open(&Node {
        answer: LONG,
        ..primary.clone()
    })
}

/// Calls `work` with a session in the schema, whose statements may take long; the user's stop ends them.
fn with_long_session(
    primary: &Node,
    stop: &AtomicBool,
    work: impl FnOnce(&mut Session) -> Result<(), MeasureError>,
) -> Result<(), MeasureError> {
    let mut session = open_long(primary)?;
    attended(primary, &mut session, stop, |session| {
        session.run(FILLING, "USE `replimeter`")?;
        work(session)
    })
}

/// Why a set could not be created.
enum FillError {
    /// An object of another program has the same name: nothing may be removed.
    Foreign(ServerError),
    Failed(MeasureError),
}

impl From<ServerError> for FillError {
    fn from(error: ServerError) -> Self {
        Self::Failed(error.into())
    }
}

impl From<MeasureError> for FillError {
    fn from(error: MeasureError) -> Self {
        Self::Failed(error)
    }
}

impl From<FillError> for MeasureError {
    fn from(refused: FillError) -> Self {
        match refused {
            FillError::Foreign(error) => error.into(),
            FillError::Failed(error) => error,
        }
    }
}

/// FNV-1a over the definition of the rows (Fowler, Noll & Vo).
fn fingerprint(workload: &Workload) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325;
    for byte in format!(
        "{MAKING} {:?}",
        workload
            .inner
            .tables
            .iter()
            .map(|table| (&table.name, &table.create, &table.columns, &table.after))
            .collect::<Vec<_>>()
    )
    .bytes()
    {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash
}

impl DataSet {
    /// Creates the schema, whose lock the session holds afterwards.
    fn new(
        session: &mut Session,
        primary: &Node,
        others: &[Node],
        workload: &Workload,
        size: DataSize,
    ) -> Result<Self, ServerError> {
        bound_lock_waits(session, FILLING)?;
        lock_schema(session, SETTLE)?;
        let schema = Schema::make(primary, session, others)?;
        session.run(FILLING, "USE `replimeter`")?;
        let run = session.value(FILLING, "SELECT UUID()")?.unwrap_or_default();
        Ok(Self {
            rows: match workload.has_data() {
                true => workload.rows(size),
                false => 0,
            },
            bytes: 0,
            sent: 0,
            took: Duration::ZERO,
            reused: false,
            warnings: Vec::new(),
            workload: workload.clone(),
            fingerprint: fingerprint(workload),
            run,
            held: BTreeSet::new(),
            schema,
            session: None,
        })
    }

    /// Creates the tables and their rows; what a failure leaves is removed.
    fn make_or_remove(
        &mut self,
        session: &mut Session,
        primary: &Node,
        nodes: &ClusterNodes,
        progress: &mut OnFill<'_>,
        stop: &AtomicBool,
    ) -> Result<(), MeasureError> {
        let made = self.make(session, primary, nodes, progress, stop);
        unlock_schema(session);
        match made {
            Ok(()) => {}
            Err(FillError::Foreign(error)) => {
                let _ = self.schema.remove(primary, session, SETTLE);
                return Err(error.into());
            }
            Err(FillError::Failed(error)) => {
                // The session may be the one that broke. A server that waits for space does not answer this
                // statement either.
                drop(self.clean_up(open_for_removal(primary, FOR_REMOVAL), primary));
                return Err(error);
            }
        }
        self.bytes = size_on_disk(session, &self.workload)?;
        Ok(())
    }

    /// Returns whether it belongs to this workload.
    #[must_use]
    pub fn is_of(&self, workload: &Workload) -> bool {
        self.workload.same_data(workload)
    }

    fn tables(&self) -> &[Table] {
        &self.workload.inner.tables
    }

    fn make(
        &mut self,
        session: &mut Session,
        primary: &Node,
        nodes: &ClusterNodes,
        progress: &mut OnFill<'_>,
        stop: &AtomicBool,
    ) -> Result<(), FillError> {
        let comments = self
            .tables()
            .iter()
            .map(|table| own_comment(session, &table.name))
            .collect::<Result<Vec<_>, _>>()?;
        own_comment(session, SETS)?;
        let disk = Disk::of(primary, session).filter(|_| self.workload.has_data());
        let whole = self.is_whole(session)?;
        if whole && comments.iter().all(Option::is_some) && self.restore_rows(session)? {
            self.reused = true;
            return Ok(());
        }
        if let Some(found) = comments.iter().flatten().next() {
            self.warnings.push(self.replaced(session, found, whole));
        }
        self.mark_incomplete(session)?;
        for (table, comment) in self.tables().iter().zip(&comments) {
            // A server that was not asked may have a table of this name.
            if comment.is_some() || self.held.contains(&table.name) {
                let sql = format!("DROP TABLE IF EXISTS `{}`", table.name);
                define(primary, session, FILLING, &sql)?;
            }
        }
        if let Some(disk) = &disk {
            disk.check_room(session, self.workload.bytes(self.rows))?;
        }
        run_setup(session, &self.workload, stop)?;
        for table in self.tables() {
            self.create(session, table)?;
        }
        // From now on a table shows other runs that the schema is in use.
        unlock_schema(session);
        self.wait_for_tables(primary, nodes, stop)?;
        let place = FillTarget {
            primary,
            session,
            disk: disk.as_ref(),
        };
        self.sent = fill_tables(&place, &self.workload, self.rows, FILLERS, progress, stop)?;
        run_after(session, primary, &self.workload, stop)?;
        if self.workload.has_data() {
            self.note_whole(session)?;
        }
        Ok(())
    }

    /// Updates the server's statistics, and records that the set is complete.
    fn note_whole(&self, session: &mut Session) -> Result<(), ServerError> {
        // So that reported sizes and query plans match the data.
        for table in self.tables() {
            let _ = session.rows(FILLING, &format!("ANALYZE LOCAL TABLE `{}`", table.name));
        }
        session.run(
            FILLING,
            &format!(
                "CREATE TABLE IF NOT EXISTS `{SETS}` (fingerprint CHAR(16) NOT NULL PRIMARY KEY, total BIGINT UNSIGNED NOT NULL) \
                 {TRANSACTIONAL} COMMENT='{}; data sets that are whole'",
                self.schema.mark()
            ),
        )?;
        session.run(
            FILLING,
            &format!(
                "REPLACE INTO `{SETS}` VALUES ('{:016x}', {})",
                self.fingerprint, self.rows
            ),
        )
    }

    /// Returns a warning that an existing set was replaced, and why.
    fn replaced(&self, session: &Session, found: &str, whole: bool) -> Warning {
        let at = format!("{session}");
        let names = self
            .tables()
            .iter()
            .map(|table| table.name.as_str())
            .collect::<Vec<_>>()
            .join(", ");
        match size_of(found) {
            // A table that begins empty holds nothing worth keeping.
            _ if !self.workload.has_data() => Warning::new(
                WarningCode::LeftoverRemoved,
                format!("{at}: removed the table {names}, left by a killed run"),
                "no action needed",
            ),
            Some(rows) if rows != self.rows => Warning::new(
                WarningCode::DataReplaced,
                format!(
                    "{at}: replaced the existing data set, which had another size ({rows} rows in {names}, not {})",
                    self.rows
                ),
                "use the same --data-size again to reuse a data set",
            ),
            _ => Warning::new(
                WarningCode::DataReplaced,
                format!(
                    "{at}: replaced the existing data set ({names}), which was {}",
                    if whole {
                        "changed by a load"
                    } else {
                        "incomplete"
                    }
                ),
                "no action needed",
            ),
        }
    }

    fn create(&self, session: &mut Session, table: &Table) -> Result<(), ServerError> {
        let sql = format!(
            "{} COMMENT='{}; data {:016x}; run {}; rows {}'",
            table.create,
            self.schema.mark(),
            self.fingerprint,
            self.run,
            self.rows
        );
        session
            .run(FILLING, &sql)
            .map_err(|error| about(error, &self.workload, table.line, &excerpt(&table.create)))?;
        match comment(session, &table.name)? {
            Some(comment) if comment.starts_with(MARK) => Ok(()),
            _ => {
                let cause = format!(
                    "line {} of {}: its definition creates another table than `{}`",
                    table.line, self.workload.name, table.name
                );
                Err(session.precondition(
                    FILLING,
                    cause,
                    "give the table the name in its definition",
                ))
            }
        }
    }
}

/// Runs a script's setup.
pub(super) fn run_setup(
    session: &mut Session,
    workload: &Workload,
    stop: &AtomicBool,
) -> Result<(), MeasureError> {
    let setup = &workload.inner.setup;
    if setup.is_empty() {
        return Ok(());
    }
    workload.with_settings(session, |session| {
        let mut words = String::new();
        for statement in setup {
            check_interrupted(stop)?;
            statement.fill(&mut Draw::new(0, 1, 0), &mut words);
            let done = session.run(OPERATION, &words);
            done.map_err(|error| about(error, workload, statement.line, &statement.excerpt()))?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprint_depends_on_tables_not_statements() {
        let print = |name: &str| fingerprint(&Workload::named(name).unwrap());
        assert_eq!(print("point-select"), print("oltp-mix"));
        assert_eq!(print("select"), print("post-insert"));
        assert_ne!(print("select"), print("point-select"));
        assert_eq!(size_of("replimeter: made; data 0; rows 300"), Some(300));
    }
}
