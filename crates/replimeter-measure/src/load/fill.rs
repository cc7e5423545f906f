//! Data sets: tables of ours with rows of ours, made fast, and found again.

use std::{
    fmt::Write as _,
    net::{Shutdown, TcpStream},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use replimeter_model::{
    load::Size,
    warning::{Warning, WarningCode},
};
use replimeter_server::{
    ErrorKind, Node, ServerError, Session,
    wire::{Bind, Channel, Failed},
};

use super::{
    about,
    disk::Disk,
    random::Random,
    script::Template,
    tally::Again,
    value::{Draw, Generator, Source},
    workload::{Table, Workload, excerpt},
};
use crate::{
    MeasureError,
    kill::kill,
    table::{MADE_SCHEMA, MARK},
};

/// The table that says which sets are whole.
pub(super) const SETS: &str = "load_data";
pub(super) const DOING: &str = "cannot make the data of the load";
/// How the rows are made; a set that was made otherwise is another one.
const MAKING: u64 = 1;
/// How long an ordinary statement may take.
const ANSWER: Duration = Duration::from_secs(120);
/// How long an index over all rows may take.
const LONG: Duration = Duration::from_secs(24 * 3600);
/// The most bytes of one statement; fewer when the server takes less.
const MOST_BYTES: u64 = 1 << 20;
/// Rows that are removed at once, so that no transaction is huge.
const SLICE: u64 = 10_000;
/// How often a batch is begun again when locks were in its way.
const RETRIES: u32 = 10;
/// How often progress is told.
const TELL: Duration = Duration::from_millis(500);
/// How long no row may be written before it is looked whether the disk is full.
const STALLED: Duration = Duration::from_secs(5);
/// How long statements under way may take when it is to end.
const AFTER_STOP: Duration = Duration::from_secs(1);
/// How long removing what was made may take where making it has failed.
const FOR_REMOVAL: Duration = Duration::from_secs(8);
/// How long one statement of a removal may take, waiting for locks included.
pub(super) const REMOVAL: Duration = Duration::from_secs(60);

/// How far the filling of a table is.
#[derive(Clone, Debug)]
pub struct Filled {
    /// Its name.
    pub table: String,
    /// Rows that are there.
    pub rows: u64,
    /// Rows that it will have.
    pub of: u64,
    /// Bytes of the statements that were sent.
    pub bytes: u64,
    /// Since the filling began.
    pub since: Duration,
}

/// A workload's tables, as [`fill`] left them.
#[derive(Debug)]
pub struct DataSet {
    /// Rows in each table.
    pub rows: u64,
    /// Bytes on the disk, indexes included, as the server tells; about.
    pub bytes: u64,
    /// Bytes of the statements that were sent; 0 when it was there.
    pub sent: u64,
    /// How long it took.
    pub took: Duration,
    /// Whether it was there.
    pub reused: bool,
    /// What a reader must know of it.
    pub warnings: Vec<Warning>,
    workload: Workload,
    fingerprint: u64,
    made_schema: bool,
}

/// Makes a workload's tables and rows on `primary`, unless a set that matches is
/// there; rows that loads added to it are removed then. The `-- setup` of a script is
/// run too. `progress` is told twice a second how far it is, from this thread.
///
/// # Errors
/// When the server cannot be reached or refuses, when a table that is not ours is in
/// the way, or when the user ended it; nothing that was made is left then.
pub fn fill(
    primary: &Node,
    workload: &Workload,
    size: Size,
    threads: u32,
    progress: &mut dyn FnMut(&Filled),
    stop: &AtomicBool,
) -> Result<DataSet, MeasureError> {
    let began = Instant::now();
    let mut session = Session::open(&Node {
        answer: LONG,
        ..primary.clone()
    })?;
    let made_schema = make_schema(&mut session)?;
    let rows = if workload.has_data() {
        workload.rows(size)
    } else {
        0
    };
    let mut set = DataSet {
        rows,
        bytes: 0,
        sent: 0,
        took: Duration::ZERO,
        reused: false,
        warnings: Vec::new(),
        workload: workload.clone(),
        fingerprint: fingerprint(workload),
        made_schema,
    };
    match set.make(&mut session, primary, threads, progress, stop) {
        Ok(()) => {}
        Err(Refused::Foreign(error)) => {
            let _ = drop_schema(&mut session, made_schema);
            return Err(error.into());
        }
        Err(Refused::Failed(error)) => {
            // The session may be the one that broke. A server that waits for space does not answer this either.
            drop(set.remove_within(primary, FOR_REMOVAL));
            return Err(error);
        }
    }
    set.bytes = size_on_disk(&mut session, workload)?;
    set.took = began.elapsed();
    Ok(set)
}

/// Why a set could not be made.
enum Refused {
    /// Something of somebody else's is in the way: nothing is to be removed.
    Foreign(ServerError),
    Failed(MeasureError),
}

impl From<ServerError> for Refused {
    fn from(error: ServerError) -> Self {
        Self::Failed(error.into())
    }
}

impl From<MeasureError> for Refused {
    fn from(error: MeasureError) -> Self {
        Self::Failed(error)
    }
}

/// FNV-1a over what the rows are made of (Fowler, Noll & Vo).
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

/// Makes our schema and enters it; whether it is this tool's, now or since a run that
/// left its data.
fn make_schema(session: &mut Session) -> Result<bool, ServerError> {
    let there = session
        .value(
            DOING,
            "SELECT schema_name FROM information_schema.schemata WHERE schema_name = 'replimeter'",
        )?
        .is_some();
    if !there {
        session.run(
            "cannot make the schema",
            "CREATE DATABASE IF NOT EXISTS `replimeter`",
        )?;
    }
    session.run(DOING, "USE `replimeter`")?;
    let marked = format!(
        "SELECT 1 FROM information_schema.tables WHERE table_schema = 'replimeter' AND table_comment LIKE '{MARK}{MADE_SCHEMA}%' LIMIT 1"
    );
    Ok(!there || session.value(DOING, &marked)?.is_some())
}

fn drop_schema(session: &mut Session, made: bool) -> Result<(), ServerError> {
    if made && crate::table::is_empty(session)? {
        session.run(
            "cannot remove the schema",
            "DROP DATABASE IF EXISTS `replimeter`",
        )?;
    }
    Ok(())
}

/// The comment of one of the schema's tables; `None` when there is none of that name.
fn comment(session: &mut Session, table: &str) -> Result<Option<String>, ServerError> {
    let sql = format!(
        "SELECT CONCAT('=', table_comment) FROM information_schema.tables WHERE table_schema = 'replimeter' AND table_name = '{table}'"
    );
    Ok(session
        .value(DOING, &sql)?
        .map(|comment| comment.trim_start_matches('=').to_owned()))
}

/// Makes sure that a server which is not the writer has no table in the place of one
/// that is about to be made: making it there too would break its replication.
///
/// # Errors
/// When it has one that this tool did not make.
pub fn refuse_foreign(node: &Node, workload: &Workload) -> Result<(), ServerError> {
    if workload.inner.tables.is_empty() {
        return Ok(());
    }
    let mut session = Session::open(node)?;
    for table in &workload.inner.tables {
        if let Some(comment) = comment(&mut session, &table.name)?
            && !comment.starts_with(MARK)
        {
            return Err(foreign(&session, &table.name));
        }
    }
    Ok(())
}

fn foreign(session: &Session, table: &str) -> ServerError {
    session.unfit(
        DOING,
        format!("the schema `replimeter` has a table `{table}` that this tool did not make, and will not touch"),
        "rename that table, or the workload's",
    )
}

/// What is said of a set's size when it is found.
fn size_of(comment: &str) -> Option<u64> {
    comment.rsplit_once("; rows ")?.1.parse().ok()
}

fn size_on_disk(session: &mut Session, workload: &Workload) -> Result<u64, ServerError> {
    let tables = &workload.inner.tables;
    if tables.is_empty() {
        return Ok(0);
    }
    // MySQL remembers old figures for a day, MariaDB knows no such setting.
    let _ = session.run(DOING, "SET SESSION information_schema_stats_expiry = 0");
    let names = tables
        .iter()
        .map(|table| format!("'{}'", table.name))
        .collect::<Vec<_>>()
        .join(", ");
    let sql = format!(
        "SELECT SUM(data_length + index_length) FROM information_schema.tables WHERE table_schema = 'replimeter' AND table_name IN ({names})"
    );
    Ok(session
        .value(DOING, &sql)?
        .and_then(|bytes| bytes.parse().ok())
        .unwrap_or(0))
}

impl DataSet {
    /// Whether it is this workload's.
    pub(super) fn is_of(&self, workload: &Workload) -> bool {
        self.workload.same_data(workload)
    }

    fn tables(&self) -> &[Table] {
        &self.workload.inner.tables
    }

    fn make(
        &mut self,
        session: &mut Session,
        primary: &Node,
        threads: u32,
        progress: &mut dyn FnMut(&Filled),
        stop: &AtomicBool,
    ) -> Result<(), Refused> {
        let mut comments = Vec::new();
        for table in self.tables() {
            let comment = comment(session, &table.name)?;
            if comment
                .as_ref()
                .is_some_and(|comment| !comment.starts_with(MARK))
            {
                return Err(Refused::Foreign(foreign(session, &table.name)));
            }
            comments.push(comment);
        }
        if let Some(comment) = comment(session, SETS)?
            && !comment.starts_with(MARK)
        {
            return Err(Refused::Foreign(foreign(session, SETS)));
        }
        let disk = Disk::of(primary, session).filter(|_| self.workload.has_data());
        let whole = self.is_whole(session)?;
        if whole && comments.iter().all(Option::is_some) && self.bring_back(session)? {
            self.reused = true;
            return Ok(());
        }
        if let Some(found) = comments.iter().flatten().next() {
            self.warnings.push(self.replaced(session, found, whole));
        }
        self.forget(session)?;
        for table in self.tables() {
            session.run(DOING, &format!("DROP TABLE IF EXISTS `{}`", table.name))?;
        }
        if let Some(disk) = &disk {
            disk.holds(session, self.workload.bytes(self.rows))?;
        }
        self.run_setup(session, stop)?;
        for table in self.tables() {
            self.create(session, table)?;
        }
        let workload = self.workload.clone();
        for table in workload
            .inner
            .tables
            .iter()
            .filter(|table| !table.columns.is_empty())
        {
            let place = Room {
                primary,
                session,
                disk: disk.as_ref(),
            };
            self.sent += fill_table(&place, &workload, table, self.rows, threads, progress, stop)?;
            for statement in &table.after {
                session.run(DOING, statement).map_err(|error| {
                    about(error, &self.workload, table.line, &excerpt(statement))
                })?;
            }
            if stop.load(Ordering::Relaxed) {
                return Err(MeasureError::Interrupted.into());
            }
        }
        if self.workload.has_data() {
            // So that sizes are told and plans made by what is there.
            for table in self.tables() {
                let _ = session.rows(DOING, &format!("ANALYZE LOCAL TABLE `{}`", table.name));
            }
            session.run(
                DOING,
                &format!(
                    "CREATE TABLE IF NOT EXISTS `{SETS}` (fingerprint CHAR(16) NOT NULL PRIMARY KEY, total BIGINT UNSIGNED NOT NULL) \
                     ENGINE=InnoDB COMMENT='{}; data sets that are whole'",
                    self.mark()
                ),
            )?;
            session.run(
                DOING,
                &format!(
                    "REPLACE INTO `{SETS}` VALUES ('{:016x}', {})",
                    self.fingerprint, self.rows
                ),
            )?;
        }
        Ok(())
    }

    /// How comments of its tables begin.
    fn mark(&self) -> String {
        format!("{MARK}{}", if self.made_schema { MADE_SCHEMA } else { "" })
    }

    /// Says that what is there is made anew, and why.
    fn replaced(&self, session: &Session, found: &str, whole: bool) -> Warning {
        let at = format!("{} ({})", session.name(), session.address());
        let names = self
            .tables()
            .iter()
            .map(|table| table.name.as_str())
            .collect::<Vec<_>>()
            .join(", ");
        match size_of(found) {
            // Nothing of worth is in a table that begins empty.
            _ if !self.workload.has_data() => Warning::new(
                WarningCode::LeftoverRemoved,
                format!("{at}: removed the table {names} that an earlier, killed run had left"),
                "nothing to do",
            ),
            Some(rows) if rows != self.rows => Warning::new(
                WarningCode::DataReplaced,
                format!(
                    "{at}: a data set of another size was in place ({rows} rows in {names}; {} are wanted) and was replaced",
                    self.rows
                ),
                "ask for the same --size again to keep a data set",
            ),
            _ => Warning::new(
                WarningCode::DataReplaced,
                format!(
                    "{at}: the data set in place ({names}) was {} and was replaced",
                    if whole {
                        "changed by a load"
                    } else {
                        "not whole"
                    }
                ),
                "nothing to do",
            ),
        }
    }

    /// Whether a set as this one was made to its end.
    fn is_whole(&self, session: &mut Session) -> Result<bool, ServerError> {
        if !self.workload.has_data() || comment(session, SETS)?.is_none() {
            return Ok(false);
        }
        let sql = format!(
            "SELECT total FROM `replimeter`.`{SETS}` WHERE fingerprint = '{:016x}'",
            self.fingerprint
        );
        Ok(session.value(DOING, &sql)?.as_deref() == Some(self.rows.to_string().as_str()))
    }

    /// A set that is not there is not whole either.
    fn forget(&self, session: &mut Session) -> Result<(), ServerError> {
        if comment(session, SETS)?.is_none() {
            return Ok(());
        }
        session.run(
            DOING,
            &format!(
                "DELETE FROM `{SETS}` WHERE fingerprint = '{:016x}'",
                self.fingerprint
            ),
        )?;
        if session
            .value(DOING, &format!("SELECT COUNT(*) FROM `{SETS}`"))?
            .as_deref()
            == Some("0")
        {
            session.run(DOING, &format!("DROP TABLE IF EXISTS `{SETS}`"))?;
        }
        Ok(())
    }

    fn create(&self, session: &mut Session, table: &Table) -> Result<(), ServerError> {
        let sql = format!(
            "{} COMMENT='{}; data {:016x}; rows {}'",
            table.create,
            self.mark(),
            self.fingerprint,
            self.rows
        );
        session
            .run(DOING, &sql)
            .map_err(|error| about(error, &self.workload, table.line, &excerpt(&table.create)))?;
        match comment(session, &table.name)? {
            Some(comment) if comment.starts_with(MARK) => Ok(()),
            _ => {
                let cause = format!(
                    "line {} of {}: its definition makes another table than `{}`",
                    table.line, self.workload.name, table.name
                );
                Err(session.unfit(DOING, cause, "name the table as its definition does"))
            }
        }
    }

    fn run_setup(&self, session: &mut Session, stop: &AtomicBool) -> Result<(), MeasureError> {
        let mut words = String::new();
        for statement in &self.workload.inner.setup {
            if stop.load(Ordering::Relaxed) {
                return Err(MeasureError::Interrupted);
            }
            statement.fill(&mut Draw::new(0, 1, 0), &mut words);
            session.run(super::DOING, &words).map_err(|error| {
                about(error, &self.workload, statement.line, &statement.excerpt())
            })?;
        }
        Ok(())
    }

    /// The column that numbers a table's rows.
    fn key(table: &Table) -> Option<&str> {
        table
            .columns
            .iter()
            .find(|(_, source)| *source == Source::Row)
            .map(|(name, _)| name.as_str())
    }

    /// Removes what loads added; whether the rows are all there then.
    fn bring_back(&self, session: &mut Session) -> Result<bool, ServerError> {
        for table in self.tables() {
            if table.columns.is_empty() {
                empty(session, &table.name)?;
                continue;
            }
            if let Some(key) = Self::key(table) {
                remove_rows(
                    session,
                    &format!(
                        "DELETE FROM `replimeter`.`{}` WHERE `{key}` > {} OR `{key}` < 1",
                        table.name, self.rows
                    ),
                )?;
            }
            let count = session.value(
                DOING,
                &format!("SELECT COUNT(*) FROM `replimeter`.`{}`", table.name),
            )?;
            if count.as_deref() != Some(self.rows.to_string().as_str()) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Removes the rows that loads added, so that the next block begins with as many as
    /// the first: those behind the set's own, and all of a table that begins empty. What
    /// updates changed stays.
    ///
    /// # Errors
    /// When the server refuses, or rows of the set are missing.
    pub fn restore(&self, primary: &Node) -> Result<(), ServerError> {
        let mut session = Session::open(&Node {
            answer: LONG,
            ..primary.clone()
        })?;
        session.run(DOING, "USE `replimeter`")?;
        if self.bring_back(&mut session)? {
            return Ok(());
        }
        Err(session.unfit(
            DOING,
            "rows of the data set are missing",
            "the workload deletes them; make the data anew",
        ))
    }

    /// Waits until each of these servers has the whole set. It is the last thing that
    /// was written.
    ///
    /// # Errors
    /// When a server cannot be reached or has not got it in time.
    pub fn await_on(
        &self,
        replicas: &[Node],
        patience: Duration,
        stop: &AtomicBool,
    ) -> Result<(), MeasureError> {
        let deadline = Instant::now() + patience;
        for node in replicas {
            let mut session = Session::open(node)?;
            loop {
                let mut there = true;
                for table in self.tables() {
                    let comment = comment(&mut session, &table.name)?;
                    there &= comment.is_some_and(|comment| {
                        comment.contains(&format!("{:016x}", self.fingerprint))
                    });
                }
                if there && (!self.workload.has_data() || self.is_whole(&mut session)?) {
                    break;
                }
                if stop.load(Ordering::Relaxed) {
                    return Err(MeasureError::Interrupted);
                }
                if Instant::now() >= deadline {
                    let cause = format!(
                        "it has not got the data of the load after {:.0} s",
                        patience.as_secs_f64()
                    );
                    return Err(session
                        .unfit(
                            "is far behind",
                            cause,
                            "is its replication running? a larger set takes longer to arrive",
                        )
                        .into());
                }
                thread::sleep(Duration::from_millis(50));
            }
        }
        Ok(())
    }

    /// Removes what this set made: its tables, unless they were found, and the schema,
    /// if it was made along and is empty; the `-- teardown` of a script is run. What
    /// could not be removed is returned.
    pub fn remove(self, primary: &Node) -> Vec<Warning> {
        self.remove_within(primary, REMOVAL)
    }

    fn remove_within(self, primary: &Node, patience: Duration) -> Vec<Warning> {
        let mut warnings = Vec::new();
        let mut note = |error: ServerError, what: &str| {
            warnings.push(Warning::new(
                WarningCode::CleanUpIncomplete,
                format!("{error}{what}"),
                hint(&self.workload),
            ));
        };
        let mut session = match open_for_removal(primary, patience) {
            Ok(session) => session,
            Err(error) => {
                if self.workload.needs_setup() {
                    note(error, "");
                }
                return warnings;
            }
        };
        for (statement, error) in tear_down(&mut session, &self.workload.inner.teardown) {
            note(
                error,
                &format!(
                    " (line {} of {}: {})",
                    statement.line,
                    self.workload.name,
                    statement.excerpt()
                ),
            );
        }
        if !self.reused {
            for table in self.tables() {
                let ours = comment(&mut session, &table.name)
                    .map(|comment| comment.is_some_and(|comment| comment.starts_with(MARK)));
                let dropped = ours.and_then(|ours| match ours {
                    true => session.run(
                        "cannot remove the table",
                        &format!("DROP TABLE IF EXISTS `{}`", table.name),
                    ),
                    false => Ok(()),
                });
                if let Err(error) = dropped {
                    note(
                        error,
                        &format!("; its table `replimeter`.`{}` is still there", table.name),
                    );
                }
            }
            if let Err(error) = self.forget(&mut session) {
                note(error, "");
            }
        }
        if let Err(error) = drop_schema(&mut session, self.made_schema) {
            note(error, "");
        }
        warnings
    }

    /// Leaves the tables for a later run, which finds them.
    pub fn keep(self) {}
}

fn hint(workload: &Workload) -> String {
    let tables: Vec<String> = workload
        .inner
        .tables
        .iter()
        .map(|table| format!("`replimeter`.`{}`", table.name))
        .collect();
    if tables.is_empty() {
        return "run the statements behind `-- teardown` of the script, in the schema `replimeter`, by hand".to_owned();
    }
    format!(
        "the next run with this workload removes it, or, on the primary: DROP TABLE IF EXISTS {}",
        tables.join(", ")
    )
}

pub(super) fn open_for_removal(node: &Node, patience: Duration) -> Result<Session, ServerError> {
    let mut session = Session::open(&Node {
        answer: patience + Duration::from_secs(2),
        ..node.clone()
    })?;
    session.run(super::DOING, "SET SESSION lock_wait_timeout = 10")?;
    session.run(super::DOING, "USE `replimeter`")?;
    Ok(session)
}

/// Runs a script's last section; what fails does not keep the rest from it.
pub(super) fn tear_down<'a>(
    session: &mut Session,
    statements: &'a [Template],
) -> Vec<(&'a Template, ServerError)> {
    let mut failed = Vec::new();
    let mut words = String::new();
    for statement in statements {
        statement.fill(&mut Draw::new(0, 1, 0), &mut words);
        if let Err(error) = session.run("cannot remove what a load made", &words) {
            failed.push((statement, error));
        }
    }
    failed
}

/// Empties a table: at once where nobody else has to wait for it, otherwise in slices
/// (TRUNCATE is DDL, which stalls all of a Galera cluster).
fn empty(session: &mut Session, table: &str) -> Result<(), ServerError> {
    let cluster = session.rows(DOING, "SHOW GLOBAL STATUS LIKE 'wsrep_cluster_size'")?;
    let galera = cluster.iter().any(|row| {
        row.values()
            .any(|value| value.parse::<u64>().is_ok_and(|size| size > 0))
    });
    if galera {
        return remove_rows(session, &format!("DELETE FROM `replimeter`.`{table}`"));
    }
    session.run(DOING, &format!("TRUNCATE TABLE `replimeter`.`{table}`"))
}

fn remove_rows(session: &mut Session, delete: &str) -> Result<(), ServerError> {
    loop {
        session.run(DOING, &format!("{delete} LIMIT {SLICE}"))?;
        // No row was left, or fewer than a slice.
        if session
            .value(DOING, "SELECT ROW_COUNT()")?
            .and_then(|count| count.parse::<u64>().ok())
            .unwrap_or(0)
            < SLICE
        {
            return Ok(());
        }
    }
}

/// Where a table is filled.
struct Room<'a> {
    primary: &'a Node,
    session: &'a Session,
    disk: Option<&'a Disk>,
}

/// Ends statements that are under way: on the server, and then from this side.
fn cut(primary: &Node, connections: &[(u32, Option<TcpStream>)]) {
    kill(
        primary,
        connections
            .iter()
            .map(|(connection, _)| u64::from(*connection)),
        AFTER_STOP,
    );
    for socket in connections.iter().filter_map(|(_, socket)| socket.as_ref()) {
        let _ = socket.shutdown(Shutdown::Both);
    }
}

/// Fills one table with several connections; the bytes that were sent.
fn fill_table(
    room: &Room<'_>,
    workload: &Workload,
    table: &Table,
    rows: u64,
    threads: u32,
    progress: &mut dyn FnMut(&Filled),
    stop: &AtomicBool,
) -> Result<u64, MeasureError> {
    if rows == 0 {
        return Ok(0);
    }
    let began = Instant::now();
    let node = Node {
        answer: ANSWER,
        ..room.primary.clone()
    };
    let mut first = Channel::open(&node)?;
    let packet = first
        .session()
        .value(DOING, "SELECT @@max_allowed_packet")?
        .and_then(|bytes| bytes.parse().ok())
        .unwrap_or(1 << 20);
    let mut sequences = 0;
    let columns: Vec<Generator> = table
        .columns
        .iter()
        .map(|(_, source)| source.generator(rows, &mut sequences))
        .collect();
    let names = table
        .columns
        .iter()
        .map(|(name, _)| format!("`{name}`"))
        .collect::<Vec<_>>()
        .join(", ");
    let head = format!(
        "INSERT INTO `replimeter`.`{}` ({names}) VALUES ",
        table.name
    );
    // Quotes, commas and digits make a row longer in words than on the disk.
    let words_of_row = table
        .columns
        .iter()
        .map(|(_, source)| source.bytes() + 12)
        .sum::<u64>();
    let batch = Batch {
        head,
        columns,
        rows,
        of: ((packet / 2).min(MOST_BYTES) / words_of_row.max(1)).max(1),
        sequences,
    };
    let batches = rows.div_ceil(batch.of);
    let job = Job {
        next: AtomicU64::new(0),
        rows: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
        over: AtomicBool::new(false),
        error: Mutex::new(None),
    };
    let threads = u64::from(threads.max(1)).min(batches);
    let told = |job: &Job| Filled {
        table: table.name.clone(),
        rows: job.rows.load(Ordering::Relaxed),
        of: rows,
        bytes: job.bytes.load(Ordering::Relaxed),
        since: began.elapsed(),
    };
    progress(&told(&job));
    let mut channels = vec![first];
    for _ in 1..threads {
        channels.push(Channel::open(&node)?);
    }
    let connections: Vec<_> = channels
        .iter_mut()
        .map(|channel| (channel.session().connection_id(), channel.socket()))
        .collect();
    let mut full = None;
    thread::scope(|scope| {
        let running: Vec<_> = channels
            .into_iter()
            .map(|channel| scope.spawn(|| batch.work(channel, batches, &job)))
            .collect();
        let mut next = Instant::now() + TELL;
        let mut grown = (0, Instant::now());
        let mut ended: Option<Instant> = None;
        while running.iter().any(|thread| !thread.is_finished()) {
            thread::sleep(Duration::from_millis(2));
            let rows = job.rows.load(Ordering::Relaxed);
            if rows != grown.0 {
                grown = (rows, Instant::now());
            }
            if full.is_none() && grown.1.elapsed() > STALLED {
                grown.1 = Instant::now();
                full = room.disk.and_then(|disk| disk.full(room.session));
            }
            if stop.load(Ordering::Relaxed) || full.is_some() {
                job.over.store(true, Ordering::Relaxed);
                // What is under way may take long, or for ever.
                if ended.get_or_insert_with(Instant::now).elapsed() > AFTER_STOP {
                    cut(room.primary, &connections);
                    ended = Some(Instant::now() + ANSWER);
                }
            }
            if Instant::now() >= next {
                progress(&told(&job));
                next += TELL;
            }
        }
    });
    // What was cut off has an error too, and is not its cause.
    if stop.load(Ordering::Relaxed) {
        return Err(MeasureError::Interrupted);
    }
    if let Some(error) = full {
        return Err(error.into());
    }
    if let Some(error) = job
        .error
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take()
    {
        return Err(about(
            error,
            workload,
            table.line,
            &format!("rows of `{}`", table.name),
        )
        .into());
    }
    progress(&told(&job));
    Ok(job.bytes.load(Ordering::Relaxed))
}

/// What the threads that fill a table share.
struct Job {
    next: AtomicU64,
    rows: AtomicU64,
    bytes: AtomicU64,
    over: AtomicBool,
    error: Mutex<Option<ServerError>>,
}

/// How rows of a table are written: so many with one statement.
struct Batch {
    head: String,
    columns: Vec<Generator>,
    rows: u64,
    of: u64,
    sequences: usize,
}

impl Batch {
    /// Takes batches until none is left.
    fn work(&self, mut channel: Channel, batches: u64, job: &Job) {
        let mut sql = String::new();
        let mut scratch = Vec::new();
        while !job.over.load(Ordering::Relaxed) {
            let number = job.next.fetch_add(1, Ordering::Relaxed);
            if number >= batches {
                return;
            }
            let rows = self.words(number, &mut sql, &mut scratch);
            if let Err(error) = send(&mut channel, &sql) {
                job.error
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .get_or_insert(error);
                job.over.store(true, Ordering::Relaxed);
                return;
            }
            job.rows.fetch_add(rows, Ordering::Relaxed);
            job.bytes.fetch_add(sql.len() as u64, Ordering::Relaxed);
        }
    }

    /// The statement of one batch, the same whoever takes it; how many rows it has.
    fn words(&self, number: u64, sql: &mut String, scratch: &mut Vec<u8>) -> u64 {
        let first = number * self.of + 1;
        let last = (first + self.of - 1).min(self.rows);
        let mut draw = Draw {
            random: Random::new(number ^ 0x00DA_7A5E),
            ..Draw::new(1, 1, self.sequences)
        };
        draw.sequences.fill(first - 1);
        sql.clear();
        sql.push_str(&self.head);
        for row in first..=last {
            draw.row = row;
            sql.push_str(if row == first { "(" } else { ",(" });
            for (index, column) in self.columns.iter().enumerate() {
                if index > 0 {
                    sql.push(',');
                }
                write(column.draw(&mut draw, scratch, |_| 0), sql);
            }
            sql.push(')');
        }
        last + 1 - first
    }
}

/// A value in words.
fn write(value: Bind<'_>, sql: &mut String) {
    // Writing to a string cannot fail.
    match value {
        Bind::Null => sql.push_str("NULL"),
        Bind::Int(number) => drop(write!(sql, "{number}")),
        Bind::UInt(number) => drop(write!(sql, "{number}")),
        Bind::Double(number) => drop(write!(sql, "{number:e}")),
        Bind::Text(bytes) => {
            sql.push('\'');
            let text = String::from_utf8_lossy(bytes);
            if bytes.iter().any(|byte| matches!(byte, b'\'' | b'\\')) {
                sql.push_str(&text.replace('\\', "\\\\").replace('\'', "''"));
            } else {
                sql.push_str(&text);
            }
            sql.push('\'');
        }
    }
}

fn send(channel: &mut Channel, sql: &str) -> Result<(), ServerError> {
    let mut attempt = 0;
    loop {
        match channel.query(sql) {
            Ok(_) => return Ok(()),
            Err(Failed::Refused(refusal)) if Again::of(&refusal).is_some() && attempt < RETRIES => {
                attempt += 1
            }
            Err(Failed::Refused(refusal)) => return Err(channel.refused(&refusal)),
            Err(Failed::Broken(error)) if error.kind == ErrorKind::Timeout => {
                let hint = "is its disk full? some servers wait for space rather than answer; its error log says so";
                return Err(ServerError {
                    hint: hint.to_owned(),
                    ..error
                });
            }
            Err(Failed::Broken(error)) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_the_same_whoever_makes_them_and_escaped() {
        let text = "size = 25\n[[table]]\nname = 't'\ncreate = 'CREATE TABLE t (a INT)'\n[table.columns]\na = {row = true}\n\
                    b = \"it's \\\\ here\"\nc = {uniform = [1, 'rows']}\nd = {sequence = 5}\ne = 1.5\n[[statement]]\nsql = 'SELECT 1'";
        let workload = Workload::parse("x.toml", text).unwrap();
        let mut sequences = 0;
        let table = &workload.inner.tables[0];
        let columns = table
            .columns
            .iter()
            .map(|(_, source)| source.generator(25, &mut sequences))
            .collect();
        let batch = Batch {
            head: "X ".to_owned(),
            columns,
            rows: 25,
            of: 10,
            sequences,
        };
        let words = |number| {
            let mut sql = String::new();
            let rows = batch.words(number, &mut sql, &mut Vec::new());
            (rows, sql)
        };
        let (rows, sql) = words(2);
        assert_eq!((rows, words(2).1), (5, sql.clone()));
        assert!(
            sql.starts_with("X (21,'it''s \\\\ here',") && sql.ends_with(",29,1.5e0)"),
            "{sql}"
        );
        assert_eq!(words(0).0, 10);
    }

    #[test]
    fn fingerprints_tell_tables_apart_and_not_statements() {
        let print = |name: &str| fingerprint(&Workload::named(name).unwrap());
        assert_eq!(print("point-select"), print("oltp-mix"));
        assert_eq!(print("select"), print("post-insert"));
        assert_ne!(print("select"), print("point-select"));
        assert_eq!(size_of("replimeter: made; data 0; rows 300"), Some(300));
    }
}
