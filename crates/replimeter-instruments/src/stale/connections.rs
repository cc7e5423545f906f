//! The two sides of a round: writer and readers.

use std::{thread, time::Duration};

use replimeter_engine::{
    Node, ServerError, Session,
    dialect::{
        connections::OpenedConnection,
        sync_reads::{Guarantee, conflict, wait_timed_out},
        waits::PreparedWait,
    },
    facts::ServerFacts,
    position::WrittenId,
    session::{Bound, Prepared, Reset},
};
use replimeter_model::time::Nanos;

use super::{
    rows::{RETAKE, RowAllocation, SELECT, UPDATE},
    shared::Shared,
};
use crate::{
    SCHEMA, TABLE,
    pacing::wait_until,
    stale::{
        results::{StaleRead, Verdict},
        settings::SessionReset,
    },
};

/// Maximum number of attempts to write after conflicts.
const TRIES: u32 = 20;
/// Pause before a read after the server refused one.
const AFTER_REFUSAL: Duration = Duration::from_millis(5);
/// When a missing write is first checked on the writer, after its acknowledgement; then after twice the
/// time.
const FIRST_RECHECK: Nanos = Nanos(50_000_000);

const WRITING: &str = "cannot write a row";
const READING: &str = "cannot read from the reader";
const ASKING: &str = "cannot read from the writer";

/// Returns the connection to a pool and takes it out again: its session settings are reset.
fn pooled(session: &mut Session, pool: SessionReset) -> Result<(), ServerError> {
    let reset = match pool {
        SessionReset::Keep => return Ok(()),
        SessionReset::Reset => Reset::Connection,
        SessionReset::ChangeUser => Reset::User,
    };
    let operation = "cannot reset the connection";
    session.reset(operation, reset)?;
    session.restore_settings(operation)
}

/// A connection that writes.
pub(super) struct Writer {
    session: Session,
    update: Prepared,
    retake: Prepared,
    written: Option<WrittenId>,
}

/// Result of a write.
pub(super) struct WriteResult {
    pub(super) send: Nanos,
    pub(super) ack: Nanos,
    pub(super) conflicts: u32,
    /// Its GTID, if a reader waits for it and the server returned it.
    pub(super) commit_id: Option<String>,
    /// Whether the row did not hold the run's last value: another client has changed or deleted it.
    pub(super) foreign: bool,
    /// Whether the row holds the round.
    pub(super) holds: bool,
}

impl Writer {
    /// Connects and prepares, including the writer's part in synchronous reads.
    pub(super) fn open(
        node: &Node,
        facts: &ServerFacts,
        guarantee: &Guarantee,
    ) -> Result<Self, ServerError> {
        let mut session = Session::open(node)?;
        for sql in &guarantee.writer {
            session.run("cannot enable synchronous reads", sql)?;
        }
        let written = if guarantee.by_commit_id {
            Some(WrittenId::prepare(&mut session, facts)?)
        } else {
            None
        };
        let update = session.prepare(WRITING, &UPDATE)?;
        let retake = session.prepare(WRITING, &RETAKE)?;
        Ok(Self {
            session,
            update,
            retake,
            written,
        })
    }

    /// Returns the value of every row, by index.
    pub(super) fn values(&mut self, rows: &RowAllocation) -> Result<Vec<u64>, ServerError> {
        let mut all = vec![0; usize::try_from(rows.count()).unwrap_or(0)];
        let sql = format!("SELECT id, k FROM `{SCHEMA}`.`{}`", *TABLE);
        let operation = "cannot read the table";
        // Rows of other clients are not kept.
        self.session
            .each_row(operation, &sql, u64::MAX, |mut row| {
                let (id, value) = (row.number(), row.number());
                if let Some(held) = all.get_mut(rows.index(id)) {
                    *held = value;
                }
            })?;
        Ok(all)
    }

    pub(super) fn connection(&self) -> OpenedConnection {
        self.session.opened()
    }

    /// Resets the connection, including the settings of [`open`](Self::open).
    pub(super) fn reset(&mut self, pool: SessionReset) -> Result<(), ServerError> {
        pooled(&mut self.session, pool)?;
        self.update = self.session.prepare(WRITING, &UPDATE)?;
        self.retake = self.session.prepare(WRITING, &RETAKE)?;
        Ok(())
    }

    /// Writes a round into a row that holds `before`; returns `None` when conflicts aborted every
    /// attempt, or the run must end.
    pub(super) fn write(
        &mut self,
        shared: &Shared<'_>,
        row: u64,
        round: u64,
        before: u64,
    ) -> Result<Option<WriteResult>, ServerError> {
        for conflicts in 0..TRIES {
            let send = shared.clock.now();
            shared.under_way(0, send);
            let values = [round, row, before].map(Bound::Number);
            let result = self.session.execute(WRITING, &self.update, values);
            let ack = shared.clock.now();
            shared.under_way(0, Nanos(0));
            match result {
                Ok(changed) => {
                    if changed == 0 {
                        let holds = self.retake(row, round)?;
                        return Ok(Some(WriteResult {
                            send,
                            ack,
                            conflicts,
                            commit_id: None,
                            foreign: true,
                            holds,
                        }));
                    }
                    let commit_id = match self.written {
                        Some(written) => written.of_last_write(&mut self.session)?,
                        None => None,
                    };
                    return Ok(Some(WriteResult {
                        send,
                        ack,
                        conflicts,
                        commit_id,
                        foreign: false,
                        holds: true,
                    }));
                }
                Err(error) if conflict(&error) => {}
                Err(error) => return Err(error),
            }
            if shared.halted() {
                break;
            }
        }
        Ok(None)
    }

    /// Writes a round into a row with any value; returns whether the row holds it now.
    fn retake(&mut self, row: u64, round: u64) -> Result<bool, ServerError> {
        let values = [round, row].map(Bound::Number);
        match self.session.execute(WRITING, &self.retake, values) {
            Ok(changed) => Ok(changed > 0),
            Err(error) if conflict(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// A connection to the writer that is queried when a reader shows an impossible value, or nothing new
/// for long.
struct PrimaryCheck {
    node: Node,
    session: Option<Session>,
}

impl PrimaryCheck {
    /// Returns whether the row no longer holds the round; `false` when the writer does not answer.
    fn changed(&mut self, order: &ReadCommand) -> bool {
        if self.session.is_none() {
            self.session = Session::open(&self.node).ok();
        }
        let Some(session) = &mut self.session else {
            return false;
        };
        let sql = format!(
            "SELECT k FROM `{SCHEMA}`.`{}` WHERE id = {}",
            *TABLE, order.row
        );
        match session.value(ASKING, &sql) {
            Ok(value) => value != Some(order.round.to_string()),
            Err(_) => {
                self.session = None;
                false
            }
        }
    }
}

/// A task of a reader.
#[derive(Clone, Debug)]
pub(super) struct ReadCommand {
    pub(super) row: u64,
    pub(super) round: u64,
    /// The first round whose values are certain, after changes by other clients.
    pub(super) since: u64,
    pub(super) ack: Nanos,
    /// Time after the acknowledgement at which the first read is issued.
    pub(super) offset: Nanos,
    pub(super) commit_id: Option<String>,
    /// Whether to read on the synchronous connection.
    pub(super) synced: bool,
    /// Whether to read until the write is shown.
    pub(super) until_shown: bool,
}

/// A connection that reads.
struct ReadConnection {
    session: Session,
    select: Prepared,
    wait: Option<PreparedWait>,
}

impl ReadConnection {
    fn open(node: &Node, facts: &ServerFacts, guarantee: &Guarantee) -> Result<Self, ServerError> {
        let mut session = Session::open(node)?;
        for sql in &guarantee.reader {
            session.run("cannot enable synchronous reads", sql)?;
        }
        let wait = if guarantee.by_commit_id {
            Some(PreparedWait::prepare(&mut session, facts)?)
        } else {
            None
        };
        let select = session.prepare(READING, &SELECT)?;
        Ok(Self {
            session,
            select,
            wait,
        })
    }

    fn value(&mut self, row: u64) -> Result<Option<u64>, ServerError> {
        self.session
            .number(READING, &self.select, [Bound::Number(row)])
    }
}

/// Result of one read.
enum ReadAttempt {
    /// The value; `None` when the row does not exist.
    Value(Option<u64>),
    /// The wait before the read timed out.
    Refused,
}

/// One reader and its connections.
pub(super) struct Reader {
    index: usize,
    facts: ServerFacts,
    plain: ReadConnection,
    synced: Option<ReadConnection>,
    /// Whether to wait without a GTID, because the reader is the writer, which has no wait for its own
    /// transactions.
    waits_without_position: bool,
    limit: Duration,
    rows: RowAllocation,
    origin: PrimaryCheck,
    /// The last round that each row showed on each connection, plain and synchronous.
    last: [Vec<u64>; 2],
    patience: Nanos,
}

/// A reader to connect.
pub(super) struct ReaderSpec<'a> {
    pub(super) index: usize,
    pub(super) node: &'a Node,
    /// The writer, which is asked while the reader waits.
    pub(super) writer: &'a Node,
    pub(super) facts: &'a ServerFacts,
    /// For the synchronous connection.
    pub(super) guarantee: &'a Guarantee,
    /// Whether it has a synchronous connection, too.
    pub(super) synced: bool,
    pub(super) rows: RowAllocation,
    /// As in [`Reader`].
    pub(super) waits_without_position: bool,
    /// How long a row may take to be visible.
    pub(super) patience: Duration,
    /// Timeout of a wait.
    pub(super) timeout: Duration,
}

impl Reader {
    /// Connects and prepares.
    pub(super) fn open(spec: &ReaderSpec<'_>) -> Result<Self, ServerError> {
        let ReaderSpec {
            node,
            facts,
            guarantee,
            rows,
            ..
        } = *spec;
        let none = Guarantee {
            reader: Vec::new(),
            writer: Vec::new(),
            by_commit_id: false,
            ..guarantee.clone()
        };
        let plain = ReadConnection::open(node, facts, &none)?;
        let synced = if spec.synced {
            Some(ReadConnection::open(node, facts, guarantee)?)
        } else {
            None
        };
        let count = usize::try_from(rows.count()).unwrap_or(0);
        Ok(Self {
            index: spec.index,
            facts: facts.clone(),
            plain,
            synced,
            waits_without_position: spec.waits_without_position,
            limit: spec.timeout.max(Duration::from_secs(1)),
            rows,
            origin: PrimaryCheck {
                node: spec.writer.clone(),
                session: None,
            },
            last: [vec![0; count], vec![0; count]],
            patience: Nanos::from(spec.patience),
        })
    }

    /// Returns its connections, to kill them.
    pub(super) fn connections(&self) -> Vec<OpenedConnection> {
        std::iter::once(&self.plain)
            .chain(&self.synced)
            .map(|reading| reading.session.opened())
            .collect()
    }

    /// Resets the synchronous connection, including the settings that make its reads synchronous.
    pub(super) fn reset(&mut self, pool: SessionReset) -> Result<(), ServerError> {
        let Some(synced) = &mut self.synced else {
            return Ok(());
        };
        pooled(&mut synced.session, pool)?;
        synced.select = synced.session.prepare(READING, &SELECT)?;
        if synced.wait.is_some() {
            synced.wait = Some(PreparedWait::prepare(&mut synced.session, &self.facts)?);
        }
        Ok(())
    }

    /// Reads once, after a wait for the GTID if there is one and the connection waits.
    fn ask(
        &mut self,
        row: u64,
        on_synced: bool,
        commit_id: Option<&str>,
    ) -> Result<ReadAttempt, ServerError> {
        let waits_without_position = self.waits_without_position;
        let reading = match &mut self.synced {
            Some(synced) if on_synced => synced,
            _ => &mut self.plain,
        };
        if let (Some(wait), Some(commit_id)) = (&reading.wait, commit_id) {
            let commit_id = if waits_without_position {
                ""
            } else {
                commit_id
            };
            if !wait.wait(&mut reading.session, commit_id, self.limit)? {
                return Ok(ReadAttempt::Refused);
            }
        }
        match reading.value(row) {
            Ok(value) => Ok(ReadAttempt::Value(value)),
            Err(error) if on_synced && wait_timed_out(&error) => Ok(ReadAttempt::Refused),
            Err(error) => Err(error),
        }
    }

    /// Returns whether reads on a connection wait for a GTID.
    fn waits(&self, on_synced: bool) -> bool {
        self.synced
            .as_ref()
            .is_some_and(|synced| on_synced && synced.wait.is_some())
    }

    /// Returns the verdict on an answer, and the round that it shows.
    fn judge(&self, order: &ReadCommand, answer: &ReadAttempt) -> (Verdict, u64) {
        match *answer {
            ReadAttempt::Refused => (Verdict::Refused, 0),
            ReadAttempt::Value(None) => (Verdict::Foreign, 0),
            ReadAttempt::Value(Some(seen)) if seen == order.round => (Verdict::Fresh, seen),
            ReadAttempt::Value(Some(seen))
                if seen >= order.since && self.rows.is_own_write(order.row, seen, order.round) =>
            {
                (Verdict::Stale, seen)
            }
            ReadAttempt::Value(Some(seen)) => (Verdict::Foreign, seen),
        }
    }

    /// Executes a task; returns `None` when the run must end.
    pub(super) fn observe(
        &mut self,
        shared: &Shared<'_>,
        order: &ReadCommand,
    ) -> Result<Option<StaleRead>, ServerError> {
        if !wait_until(shared.clock, order.ack + order.offset, || shared.halted()) {
            return Ok(None);
        }
        let mut read: Option<StaleRead> = None;
        let at = self.rows.index(order.row);
        let mut recheck = FIRST_RECHECK;
        loop {
            let first = read.is_none();
            let begin = shared.clock.now();
            if first {
                shared.under_way(1 + self.index, begin);
            }
            let commit_id = order.commit_id.as_deref().filter(|_| first);
            let answer = self.ask(order.row, order.synced, commit_id)?;
            let end = shared.clock.now();
            if first {
                shared.under_way(1 + self.index, Nanos(0));
            }
            let (verdict, seen) = self.judge(order, &answer);
            let last = &mut self.last[usize::from(order.synced)][at];
            let newer = *last;
            let shows = matches!(verdict, Verdict::Fresh | Verdict::Stale);
            let went_back = shows && seen < newer;
            if shows {
                *last = seen;
            }
            let one = read.get_or_insert(StaleRead {
                seen,
                waited: commit_id.is_some() && self.waits(order.synced),
                ..StaleRead::new(self.index, begin, end, verdict)
            });
            one.reads += 1;
            if went_back && !one.went_back {
                one.newer = newer;
            }
            one.went_back |= went_back;
            match verdict {
                Verdict::Fresh => (one.fresh_begin, one.fresh_end) = (Some(begin), Some(end)),
                Verdict::Stale => one.last_stale = Some(begin),
                Verdict::Foreign => one.verdict = Verdict::Foreign,
                Verdict::Refused => {}
            }
            if matches!(verdict, Verdict::Fresh | Verdict::Foreign) || !order.until_shown {
                shared.set_unshown(self.index, Nanos(0));
                // A violation, unless another client has restored the old value.
                if one.went_back && self.origin.changed(order) {
                    one.verdict = Verdict::Foreign;
                }
                one.went_back &= one.verdict != Verdict::Foreign;
                return Ok(Some(*one));
            }
            shared.set_unshown(self.index, order.ack);
            if shared.halted() {
                return Ok(None);
            }
            let waited = end - order.ack;
            if verdict == Verdict::Stale && waited >= recheck.min(self.patience) {
                recheck = waited + waited;
                if self.origin.changed(order) {
                    shared.set_unshown(self.index, Nanos(0));
                    one.verdict = Verdict::Foreign;
                    one.went_back = false;
                    return Ok(Some(*one));
                }
            }
            if waited > self.patience {
                return Err(self.never_shown(order));
            }
            if verdict == Verdict::Refused {
                thread::sleep(AFTER_REFUSAL);
            }
        }
    }

    fn never_shown(&self, order: &ReadCommand) -> ServerError {
        self.plain.session.precondition(
            "cannot read a write",
            format!(
                "row {} still showed an older version {:.0} s after the writer acknowledged round {}",
                order.row,
                self.patience.0 as f64 / 1e9,
                order.round
            ),
            "see the server's error log (`replimeter doctor` shows its state), reduce the load, or raise --timeout",
        )
    }
}
