//! Fills the tables of a data set over several connections.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread::{self, ScopedJoinHandle},
    time::{Duration, Instant},
};

use replimeter_engine::{
    ErrorKind, Node, ServerError, Session,
    dialect::{connections::OpenedConnection, file_load::takes_files},
    sync::lock,
    wire::{ServerRefusal, StatementError, WireTarget},
};

use super::{
    FILLING, about,
    batch::{RowBatches, RowFormat, is_same_in_file},
    channel::Channel,
    disk::Disk,
    event_loop::{EventLoop, LoopControl, Task},
    workload::{Table, Workload},
};
use crate::{MeasureError, check_interrupted, clock::Clock, kill::kill};

/// Timeout of an ordinary statement.
const ANSWER: Duration = Duration::from_secs(120);
/// Number of retries of a batch after lock conflicts.
const RETRIES: u32 = 10;
/// Interval between progress reports.
const TELL: Duration = Duration::from_millis(500);
/// How long no row may be written before the disk is checked.
const STALLED: Duration = Duration::from_secs(5);
/// How long running statements may take after the stop.
const AFTER_STOP: Duration = Duration::from_secs(1);

/// Progress of filling a data set.
#[derive(Clone, Debug)]
pub struct FillProgress {
    /// The table's name, or the number of tables.
    pub table: String,
    /// Rows written so far.
    pub rows: u64,
    /// Rows that the tables will have.
    pub of: u64,
    /// Bytes of the rows sent, as statements or files.
    pub bytes: u64,
    /// Time since filling began.
    pub since: Duration,
}

/// Takes the progress of filling, twice a second; an error ends it.
pub(super) type OnFill<'a> = dyn FnMut(&FillProgress) -> Result<(), ServerError> + 'a;

/// The server and context of a table to fill.
pub(super) struct FillTarget<'a> {
    pub(super) primary: &'a Node,
    pub(super) session: &'a Session,
    pub(super) disk: Option<&'a Disk>,
}

/// Fills the tables with this number of rows each; returns the bytes sent.
pub(super) fn fill_tables(
    room: &FillTarget<'_>,
    workload: &Workload,
    rows: u64,
    threads: u32,
    progress: &mut OnFill<'_>,
    stop: &AtomicBool,
) -> Result<u64, MeasureError> {
    let tables = workload.inner.tables.iter();
    let tables: Vec<&Table> = tables.filter(|table| !table.columns.is_empty()).collect();
    if rows == 0 || tables.is_empty() {
        return Ok(0);
    }
    let began = Instant::now();
    let mut session = Session::open(room.primary)?;
    let packet = session
        .value(FILLING, "SELECT @@max_allowed_packet")?
        .and_then(|bytes| bytes.parse().ok())
        .unwrap_or(1 << 20);
    let takes_files = takes_files(&mut session, FILLING)?;
    let mut job = FillJob::default();
    for table in &tables {
        job.tables.push(TableJob {
            table,
            batches: RowBatches::new(table, rows, packet),
            next: AtomicU64::new(0),
            takes_file: AtomicBool::new(takes_files && is_same_in_file(&mut session, table)?),
        });
    }
    drop(session);
    let name = match tables.as_slice() {
        [table] => table.name.clone(),
        tables => format!("{} tables", tables.len()),
    };
    let mut tell = || {
        progress(&FillProgress {
            table: name.clone(),
            rows: job.rows.load(Ordering::Relaxed),
            of: rows * tables.len() as u64,
            bytes: job.bytes.load(Ordering::Relaxed),
            since: began.elapsed(),
        })
    };
    tell()?;
    let target = WireTarget::new(&Node {
        answer: ANSWER,
        ..room.primary.clone()
    })?;
    let batches = job.tables.iter().map(|table| table.batches.count()).sum();
    let fillers = u64::from(threads.max(1)).min(batches);
    let ended = thread::scope(|scope| {
        let running: Vec<_> = (0..fillers)
            .map(|_| scope.spawn(|| job.end_by(job.work(&target, workload))))
            .collect();
        job.watch(room, &running, &mut tell, stop)
    });
    // Aborted statements have errors too, but these are not the cause.
    check_interrupted(stop)?;
    let failed = lock(&job.error).take();
    if let Some(error) = ended.or(failed) {
        // A statement that was given up would wait on, in front of the removal of its table.
        job.kill(room.primary);
        return Err(error.into());
    }
    tell()?;
    Ok(job.bytes.load(Ordering::Relaxed))
}

/// A table while it is filled.
struct TableJob<'a> {
    table: &'a Table,
    batches: RowBatches,
    /// The next batch.
    next: AtomicU64,
    /// Whether batches are sent as files.
    takes_file: AtomicBool,
}

/// State that the threads filling the tables share.
#[derive(Default)]
struct FillJob<'a> {
    tables: Vec<TableJob<'a>>,
    /// The first table that no thread has begun.
    next: AtomicUsize,
    rows: AtomicU64,
    bytes: AtomicU64,
    /// Whether no further batch is sent.
    over: AtomicBool,
    /// Whether the answers are not waited for any more.
    abandoned: AtomicBool,
    connections: Mutex<Vec<OpenedConnection>>,
    error: Mutex<Option<ServerError>>,
}

impl FillJob<'_> {
    /// Ends the connections on the server, with what runs there.
    fn kill(&self, primary: &Node) {
        let connections = lock(&self.connections).clone();
        kill(primary, connections, AFTER_STOP);
    }

    /// Ends all threads when one has failed.
    fn end_by(&self, done: Result<(), ServerError>) {
        if let Err(error) = done {
            lock(&self.error).get_or_insert(error);
            self.over.store(true, Ordering::Relaxed);
        }
    }

    /// Writes batches until none is left.
    fn work(&self, target: &WireTarget, workload: &Workload) -> Result<(), ServerError> {
        let events = EventLoop::open(&Clock::start(), target.node())?;
        let task = events.handle(0);
        let mut done = Ok(());
        let filling: Task<'_> = Box::pin(async {
            done = match Channel::open(target, &task, ANSWER).await {
                Ok(mut channel) => {
                    lock(&self.connections).push(channel.opened());
                    self.fill(&mut channel, workload).await
                }
                Err(error) => Err(error),
            };
        });
        events.run(
            vec![filling],
            &mut || match self.abandoned.load(Ordering::Relaxed) {
                true => LoopControl::Abandon,
                false => LoopControl::Continue,
            },
        );
        done.map_err(|error| stalled(error, target.node()))
    }

    /// Fills tables that no other thread has begun, then helps with the others: threads that write to one
    /// table wait for each other.
    async fn fill(&self, channel: &mut Channel, workload: &Workload) -> Result<(), ServerError> {
        let own = std::iter::from_fn(|| self.tables.get(self.next.fetch_add(1, Ordering::Relaxed)));
        for job in own.chain(&self.tables) {
            self.send_batches(channel, job).await.map_err(|error| {
                let what = format!("rows of `{}`", job.table.name);
                about(error, workload, job.table.line, &what)
            })?;
        }
        Ok(())
    }

    async fn send_batches(
        &self,
        channel: &mut Channel,
        job: &TableJob<'_>,
    ) -> Result<(), ServerError> {
        let mut text = String::new();
        let mut scratch = Vec::new();
        while !self.over.load(Ordering::Relaxed) {
            let number = job.next.fetch_add(1, Ordering::Relaxed);
            if number >= job.batches.count() {
                break;
            }
            let rows = send_batch(channel, job, number, &mut text, &mut scratch).await?;
            self.rows.fetch_add(rows, Ordering::Relaxed);
            self.bytes.fetch_add(text.len() as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Waits for the threads, reports progress, and ends the threads when the user stops the run, the
    /// disk is full or `tell` fails; returns the error.
    fn watch(
        &self,
        room: &FillTarget<'_>,
        running: &[ScopedJoinHandle<'_, ()>],
        tell: &mut dyn FnMut() -> Result<(), ServerError>,
        stop: &AtomicBool,
    ) -> Option<ServerError> {
        let mut failed = None;
        let mut next = Instant::now() + TELL;
        let mut grown = (0, Instant::now());
        let mut ended: Option<Instant> = None;
        while running.iter().any(|thread| !thread.is_finished()) {
            thread::sleep(Duration::from_millis(2));
            let rows = self.rows.load(Ordering::Relaxed);
            if rows != grown.0 {
                grown = (rows, Instant::now());
            }
            if failed.is_none() && grown.1.elapsed() > STALLED {
                grown.1 = Instant::now();
                failed = room.disk.and_then(|disk| disk.full_error(room.session));
            }
            if stop.load(Ordering::Relaxed) || failed.is_some() {
                self.over.store(true, Ordering::Relaxed);
                // Running statements may take long, or forever.
                if ended.get_or_insert_with(Instant::now).elapsed() > AFTER_STOP {
                    self.kill(room.primary);
                    self.abandoned.store(true, Ordering::Relaxed);
                    ended = Some(Instant::now() + ANSWER);
                }
            }
            if Instant::now() >= next {
                let reported = tell();
                failed = failed.or(reported.err());
                next += TELL;
            }
        }
        failed
    }
}

/// Writes a batch, as a file if the server takes it; returns its number of rows.
async fn send_batch(
    channel: &mut Channel,
    job: &TableJob<'_>,
    number: u64,
    text: &mut String,
    scratch: &mut Vec<u8>,
) -> Result<u64, ServerError> {
    let TableJob { batches, .. } = job;
    if job.takes_file.load(Ordering::Relaxed) {
        let rows = batches.write(number, RowFormat::File, text, scratch);
        if load(channel, batches.load_statement(), text, rows).await? {
            return Ok(rows);
        }
        job.takes_file.store(false, Ordering::Relaxed);
    }
    let rows = batches.write(number, RowFormat::Statement, text, scratch);
    insert(channel, text).await?;
    Ok(rows)
}

/// Runs an `INSERT`, again after lock conflicts.
async fn insert(channel: &mut Channel, sql: &str) -> Result<(), ServerError> {
    let mut attempt = 0;
    loop {
        match channel.query(sql).await {
            Ok(_) => return Ok(()),
            Err(StatementError::Refused(refusal)) if is_retried(&refusal, &mut attempt) => {}
            Err(error) => return Err(channel.explained(error)),
        }
    }
}

/// Sends a batch as a file, again after lock conflicts. Returns `false` if the server refuses the statement, or would skip or change
/// a row, which `INSERT` reports as an error; the batch is rolled back then.
async fn load(
    channel: &mut Channel,
    statement: &str,
    file: &mut String,
    rows: u64,
) -> Result<bool, ServerError> {
    let mut attempt = 0;
    loop {
        channel.run("BEGIN").await?;
        match channel.load(statement, file).await {
            Ok(loaded) if loaded.affected == rows && loaded.warnings == 0 => {
                match channel.query("COMMIT").await {
                    Ok(_) => return Ok(true),
                    Err(StatementError::Refused(refusal)) if is_retried(&refusal, &mut attempt) => {
                        channel.run("ROLLBACK").await?;
                    }
                    Err(error) => return Err(channel.explained(error)),
                }
            }
            Err(StatementError::Refused(refusal)) if is_retried(&refusal, &mut attempt) => {
                channel.run("ROLLBACK").await?;
            }
            Ok(_) | Err(StatementError::Refused(_)) => {
                channel.run("ROLLBACK").await?;
                return Ok(false);
            }
            Err(error) => return Err(channel.explained(error)),
        }
    }
}

/// Returns whether a statement runs again: after a lock conflict, a few times.
fn is_retried(refusal: &ServerRefusal, attempt: &mut u32) -> bool {
    *attempt += 1;
    refusal.class().is_retried() && *attempt <= RETRIES
}

/// Adds a hint to the error of a server that did not answer.
fn stalled(error: ServerError, node: &Node) -> ServerError {
    if error.kind != ErrorKind::Timeout {
        return error;
    }
    let hint = "check its disk space and error log: some servers wait for space instead of returning an error";
    ServerError {
        hint: node.hint(hint),
        ..error
    }
}
