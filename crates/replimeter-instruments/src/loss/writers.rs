//! The insert load: its writers choose the id of every row, and record whether it was acknowledged.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use replimeter_engine::{
    Node, ServerError, Session,
    dialect::statements::TRANSACTIONAL,
    session::{Bound, Prepared},
    sync::lock,
};
use replimeter_model::time::Nanos;

use crate::{clock::Clock, pacing::wait_until, table::payload};

/// Returns the definition of the table of the load.
pub(super) fn definition() -> String {
    format!(
        "CREATE TABLE IF NOT EXISTS `replimeter`.`loss_probe` \
         (id BIGINT UNSIGNED NOT NULL PRIMARY KEY, payload BLOB NOT NULL) {TRANSACTIONAL}"
    )
}

/// The insert of a row.
const INSERT: &str = "INSERT INTO `replimeter`.`loss_probe` (id, payload) VALUES (?, ?)";
const OPERATION: &str = "cannot write a row";
/// Maximum number of rows of one load.
const MAX_ROWS: u64 = 4_000_000;
/// Number of consecutive refusals after which the load stops.
const MAX_REFUSALS: u32 = 1000;
/// Pause after a refusal.
const AFTER_REFUSAL: Duration = Duration::from_millis(1);

/// Outcome of a transaction, as its writer saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(serde::Deserialize), serde(rename_all = "snake_case"))]
pub(crate) enum WriteOutcome {
    /// It was sent, but no answer came.
    Unknown,
    /// The server acknowledged its commit.
    Acknowledged(Nanos),
    /// The server returned an error.
    Refused,
}

/// A transaction that was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub(crate) struct JournalEntry {
    pub(crate) id: u64,
    pub(crate) outcome: WriteOutcome,
}

/// The connection of one writer.
pub(crate) struct Writer {
    session: Session,
    statement: Prepared,
}

impl Writer {
    pub(crate) fn open(node: &Node) -> Result<Self, ServerError> {
        let mut session = Session::open(node)?;
        let statement = session.prepare(OPERATION, INSERT)?;
        Ok(Self { session, statement })
    }
}

/// State that the writers share.
#[derive(Debug, Default)]
pub(crate) struct WriterLoad {
    /// The last used id.
    last: AtomicU64,
    acknowledged: AtomicU64,
    pub(crate) stop: AtomicBool,
    /// The first failure, and its time.
    failure: Mutex<Option<(Nanos, ServerError)>>,
}

/// Settings of the writers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriterSettings {
    pub(crate) writers: u32,
    pub(crate) size: u64,
    /// Inserts per second, for all writers together.
    pub(crate) rate: Option<u64>,
    /// Whether every transaction is recorded.
    pub(crate) journal: bool,
}

impl WriterLoad {
    /// Returns the number of rows acknowledged so far.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// Returns the first failure before a time.
    pub(crate) fn failed_before(&self, moment: Nanos) -> Option<ServerError> {
        let failure = lock(&self.failure);
        failure
            .as_ref()
            .filter(|(at, _)| *at < moment)
            .map(|(_, error)| error.clone())
    }

    fn fail(&self, at: Nanos, error: ServerError) {
        let mut failure = lock(&self.failure);
        if failure.as_ref().is_none_or(|(first, _)| at < *first) {
            *failure = Some((at, error));
        }
    }

    /// Runs the writer with this number until the load is stopped or the server is gone.
    pub(crate) fn write(
        &self,
        writer: Writer,
        number: u32,
        style: WriterSettings,
        clock: &Clock,
    ) -> Vec<JournalEntry> {
        let Writer {
            mut session,
            statement,
        } = writer;
        let payload = payload(style.size);
        let mut journal = Vec::new();
        let began = clock.now();
        // The writers' intervals are evenly interleaved.
        let interval = style.rate.map(|rate| 1e9 / rate.max(1) as f64);
        let mut refusals = 0;
        for round in 0u64.. {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            if let Some(interval) = interval {
                let number_of_all = (round * u64::from(style.writers) + u64::from(number)) as f64;
                if !wait_until(
                    clock,
                    began + Nanos((interval * number_of_all) as i64),
                    || self.stop.load(Ordering::Relaxed),
                ) {
                    break;
                }
            }
            let id = self.last.fetch_add(1, Ordering::Relaxed) + 1;
            if style.journal && id > MAX_ROWS {
                break;
            }
            let values = [Bound::Number(id), Bound::Bytes(&payload)];
            let answer = session.execute(OPERATION, &statement, values);
            let now = clock.now();
            let outcome = match answer {
                Ok(_) => {
                    self.acknowledged.fetch_add(1, Ordering::Relaxed);
                    refusals = 0;
                    WriteOutcome::Acknowledged(now)
                }
                Err(error) => {
                    let refused = error.is_refusal();
                    refusals += 1;
                    if !refused || refusals > MAX_REFUSALS {
                        self.fail(now, error);
                        if style.journal {
                            journal.push(JournalEntry {
                                id,
                                outcome: if refused {
                                    WriteOutcome::Refused
                                } else {
                                    WriteOutcome::Unknown
                                },
                            });
                        }
                        break;
                    }
                    thread::sleep(AFTER_REFUSAL);
                    WriteOutcome::Refused
                }
            };
            if style.journal {
                journal.push(JournalEntry { id, outcome });
            }
        }
        journal
    }
}
