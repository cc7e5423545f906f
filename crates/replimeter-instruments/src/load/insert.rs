//! Fills the tables of a data set over several connections.

use std::{
    fmt::Write as _,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread::{self, ScopedJoinHandle},
    time::{Duration, Instant},
};

use replimeter_engine::{
    ErrorKind, Node, ServerError, Session,
    wire::{ParameterValue, StatementError, WireTarget},
};
use replimeter_model::random::Random;

use super::{
    FILLING, about,
    channel::Channel,
    disk::Disk,
    event_loop::{EventLoop, LoopControl, Task},
    statistics::RetryReason,
    value::{Draw, Generator},
    workload::{Table, Workload},
};
use crate::{MeasureError, check_interrupted, clock::Clock, kill::kill, sync::lock, transaction};

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
    /// Bytes of the statements sent.
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
    let packet = Session::open(room.primary)?
        .value(FILLING, "SELECT @@max_allowed_packet")?
        .and_then(|bytes| bytes.parse().ok())
        .unwrap_or(1 << 20);
    let job = FillJob {
        tables: tables
            .iter()
            .map(|table| TableJob {
                batch: InsertBatch::new(table, rows, packet),
                table,
                next: AtomicU64::new(0),
            })
            .collect(),
        ..FillJob::default()
    };
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
    let target = WireTarget::new(room.primary)?;
    let batches = job.tables.iter().map(|table| table.batch.count()).sum();
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
        return Err(error.into());
    }
    tell()?;
    Ok(job.bytes.load(Ordering::Relaxed))
}

/// A table while it is filled.
struct TableJob<'a> {
    table: &'a Table,
    batch: InsertBatch,
    /// The next batch.
    next: AtomicU64,
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
    /// The server's numbers of the connections.
    connections: Mutex<Vec<u32>>,
    error: Mutex<Option<ServerError>>,
}

impl FillJob<'_> {
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
                    lock(&self.connections).push(channel.connection_id());
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
        done
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
        let mut sql = String::new();
        let mut scratch = Vec::new();
        while !self.over.load(Ordering::Relaxed) {
            let number = job.next.fetch_add(1, Ordering::Relaxed);
            if number >= job.batch.count() {
                break;
            }
            let rows = job.batch.words(number, &mut sql, &mut scratch);
            send(channel, &sql).await?;
            self.rows.fetch_add(rows, Ordering::Relaxed);
            self.bytes.fetch_add(sql.len() as u64, Ordering::Relaxed);
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
                    let numbers = lock(&self.connections).clone();
                    kill(room.primary, numbers.into_iter().map(u64::from), AFTER_STOP);
                    self.abandoned.store(true, Ordering::Relaxed);
                    ended = Some(Instant::now() + ANSWER);
                }
            }
            if Instant::now() >= next {
                let told = tell();
                failed = failed.or(told.err());
                next += TELL;
            }
        }
        failed
    }
}

/// Statement that writes a batch of rows.
struct InsertBatch {
    head: String,
    columns: Vec<Generator>,
    rows: u64,
    of: u64,
    sequences: usize,
}

impl InsertBatch {
    /// Creates statements for this number of rows; `packet` is the server's maximum packet size, in
    /// bytes.
    fn new(table: &Table, rows: u64, packet: u64) -> Self {
        let mut sequences = 0;
        let columns = table
            .columns
            .iter()
            .map(|(_, source)| source.generator(rows, &mut sequences))
            .collect();
        let names: Vec<String> = table
            .columns
            .iter()
            .map(|(name, _)| format!("`{name}`"))
            .collect();
        // Quotes, commas and digits make a row longer in SQL than on disk.
        let words_of_row = table
            .columns
            .iter()
            .map(|(_, source)| source.max_bytes() + 12)
            .sum::<u64>();
        Self {
            head: format!(
                "INSERT INTO `replimeter`.`{}` ({}) VALUES ",
                table.name,
                names.join(", ")
            ),
            columns,
            rows,
            of: (packet / 2 / words_of_row.max(1)).clamp(1, transaction::rows(words_of_row)),
            sequences,
        }
    }

    /// Returns the number of batches.
    fn count(&self) -> u64 {
        self.rows.div_ceil(self.of)
    }

    /// Writes the statement of one batch, identical on every thread; returns its number of rows.
    fn words(&self, number: u64, sql: &mut String, scratch: &mut Vec<u8>) -> u64 {
        let first = number * self.of + 1;
        let last = (first + self.of - 1).min(self.rows);
        let mut draw = Draw {
            random: Random::numbered(number ^ 0x00DA_7A5E),
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

/// Writes a value as SQL.
fn write(value: ParameterValue<'_>, sql: &mut String) {
    // Writing to a string cannot fail.
    match value {
        ParameterValue::Null => sql.push_str("NULL"),
        ParameterValue::Int(number) => drop(write!(sql, "{number}")),
        ParameterValue::UInt(number) => drop(write!(sql, "{number}")),
        ParameterValue::Double(number) => drop(write!(sql, "{number:e}")),
        ParameterValue::Text(bytes) => {
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

async fn send(channel: &mut Channel, sql: &str) -> Result<(), ServerError> {
    let mut attempt = 0;
    loop {
        match channel.query(sql).await {
            Ok(_) => return Ok(()),
            Err(StatementError::Refused(refusal))
                if RetryReason::for_refusal(&refusal).is_some() && attempt < RETRIES =>
            {
                attempt += 1
            }
            Err(StatementError::Refused(refusal)) => return Err(channel.refused(&refusal)),
            Err(StatementError::Broken(error)) if error.kind == ErrorKind::Timeout => {
                let hint = "check its disk space and error log: some servers wait for space instead of returning an error";
                return Err(ServerError {
                    hint: hint.to_owned(),
                    ..error
                });
            }
            Err(StatementError::Broken(error)) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_deterministic_and_escaped() {
        let text = "size = 25\n[[table]]\nname = 't'\ncreate = 'CREATE TABLE t (a INT)'\n[table.columns]\na = {row = true}\n\
                    b = \"it's \\\\ here\"\nc = {uniform = [1, 'rows']}\nd = {sequence = 5}\ne = 1.5\n[[statement]]\nsql = 'SELECT 1'";
        let workload = Workload::parse("x.toml", text).unwrap();
        let batch = InsertBatch {
            head: "X ".to_owned(),
            of: 10,
            ..InsertBatch::new(&workload.inner.tables[0], 25, 1 << 20)
        };
        assert_eq!(batch.count(), 3);
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
}
