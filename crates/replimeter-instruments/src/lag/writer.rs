//! Writes rows on the primary by the script's schedule, over one or several connections.

use std::{
    sync::{
        Arc, Mutex, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering},
        mpsc::Sender,
    },
    thread,
    time::Duration,
};

use replimeter_engine::{
    Node, ServerError, Session,
    facts::ServerFacts,
    position::WrittenId,
    session::{Bound, Prepared, Values},
    sync::lock,
};
use replimeter_model::time::Nanos;

use super::{
    script::{Gaps, Script, Step, Warmed},
    shared_state::SharedState,
};
use crate::{
    clock::Clock,
    lag::{
        sample::{Phase, Write},
        settings::Pace,
    },
    pacing::wait_until,
    priority::prepare_measuring_thread,
    stamp::{self, Stamps},
    table::{INSERT, RowBudget, remove_rows},
};

/// How long before a scheduled write the observers begin to read tightly, so that the lower end of the
/// bracket is recent when the row is sent.
const LEAD: Nanos = Nanos(1_000_000);

/// A row that was written.
#[derive(Clone, Debug)]
pub(super) struct WrittenRow {
    pub(super) seq: u64,
    pub(super) commit_id: Arc<str>,
}

/// A message from a writer to the collector.
pub(super) enum WriterEvent {
    /// A row was written, with its GTID if a method needs it.
    Wrote(Write, Option<Arc<str>>),
    /// The schedule paused while the table was emptied.
    Emptied,
}

/// Receivers of a writer's messages.
#[derive(Clone)]
pub(super) struct WriterChannels {
    /// The collector.
    pub(super) events: Sender<WriterEvent>,
    /// For each replica its waiting connections, which receive the rows in rotation.
    pub(super) waiters: Vec<Vec<Sender<WrittenRow>>>,
}

/// A writer's connection.
pub(super) struct Writer {
    session: Session,
    statement: Prepared,
    written: Option<WrittenId>,
    real_time: bool,
}

const OPERATION: &str = "cannot write a row";

impl Writer {
    /// Connects and prepares. Rows are stamped with `stamps`; with `gtids` the writer reports the GTIDs
    /// of its rows.
    pub(super) fn open(
        node: &Node,
        facts: &ServerFacts,
        stamps: Option<&Stamps>,
        commit_ids: bool,
        real_time: bool,
    ) -> Result<Self, ServerError> {
        let mut session = Session::open(node)?;
        let written = if commit_ids {
            Some(WrittenId::prepare(&mut session, facts)?)
        } else {
            None
        };
        let insert = match stamps {
            Some(stamps) => {
                stamp::prepare(&mut session, facts)?;
                stamps.insert()
            }
            None => INSERT.to_owned(),
        };
        let statement = session.prepare(OPERATION, &insert)?;
        Ok(Self {
            session,
            statement,
            written,
            real_time,
        })
    }

    /// Writes until the script is over.
    pub(super) fn run(
        self,
        schedule: &SharedSchedule<'_>,
        channels: &WriterChannels,
    ) -> Result<(), ServerError> {
        prepare_measuring_thread(self.real_time);
        let mut run = ActiveWriter {
            writer: self,
            schedule,
            channels,
        };
        let result = run.all();
        schedule.shared_state.set_reference_select(false);
        match result {
            Ok(()) => schedule.one_is_done(),
            Err(_) => schedule.shared_state.halt(),
        }
        result
    }
}

/// The next write of the schedule.
struct NextWrite {
    number: u64,
    /// Its intended start, if there are intervals.
    at: Nanos,
    gaps: Option<Gaps>,
}

impl NextWrite {
    /// Sets the intended start to an interval after `at`.
    fn follow(&mut self, at: Nanos) {
        self.at = at + self.gaps.as_mut().map_or(Nanos(0), Gaps::next);
    }
}

/// State that the writers of one part share.
pub(super) struct SharedSchedule<'a> {
    script: &'a Script,
    warmed: Warmed,
    /// The intended start of the first write.
    began: Nanos,
    clock: &'a Clock,
    shared_state: &'a SharedState,
    bytes: &'a [u8],
    limit: u64,
    writers: AtomicUsize,
    next_id: AtomicU64,
    next: Mutex<NextWrite>,
    /// Locked for reading while a row is written, and for writing while the table is emptied.
    emptying: RwLock<()>,
    /// The first row that the table may hold.
    held_from: AtomicU64,
    /// Bytes of payload that the table may hold.
    held_bytes: AtomicU64,
    /// Intended start of the first counted row.
    counted_since: AtomicI64,
}

impl<'a> SharedSchedule<'a> {
    /// Creates the schedule. The ids continue after those in the table; sizes are limited to `limit`.
    pub(super) fn new(
        script: &'a Script,
        clock: &'a Clock,
        shared_state: &'a SharedState,
        bytes: &'a [u8],
        limit: u64,
        writers: usize,
        held: &RowBudget,
    ) -> Self {
        let began = clock.now() + LEAD + LEAD;
        Self {
            warmed: Warmed::new(script),
            began,
            script,
            clock,
            shared_state,
            bytes,
            limit,
            writers: AtomicUsize::new(writers),
            next_id: AtomicU64::new(held.ids.end),
            next: Mutex::new(NextWrite {
                number: 0,
                at: began,
                gaps: script.gaps(),
            }),
            emptying: RwLock::new(()),
            held_from: AtomicU64::new(held.ids.start),
            held_bytes: AtomicU64::new(held.bytes),
            counted_since: AtomicI64::new(i64::MAX),
        }
    }

    /// Returns the id of the next row.
    fn next_id(&self) -> u64 {
        self.next_id.load(Ordering::Acquire)
    }

    /// Returns the rows that the table may hold.
    pub(super) fn row_budget(&self) -> RowBudget {
        let from = self.held_from.load(Ordering::Acquire);
        RowBudget {
            ids: from..self.next_id(),
            bytes: self.held_bytes.load(Ordering::Acquire),
        }
    }

    /// Records that a writer is done; after the last one nothing more is sent.
    fn one_is_done(&self) {
        if self.writers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.shared_state.finish();
        }
    }

    fn time_is_over(&self, step: &Step) -> bool {
        let since = self.counted_since.load(Ordering::Acquire);
        match self.script.elapsed {
            Some(span) if step.rows.is_none() && since != i64::MAX => {
                self.clock.now() - Nanos(since) >= Nanos::from(span.0)
            }
            _ => false,
        }
    }

    /// Waits until every observer has seen every row.
    fn wait_until_seen(&self) {
        while self.shared_state.seen_everywhere() < self.next_id() - 1
            && !self.shared_state.writer_halted()
        {
            thread::park_timeout(Duration::from_millis(20));
        }
    }

    /// Takes the next write; returns its number and its intended start.
    fn take_next(&self) -> (u64, Nanos) {
        let mut next = lock(&self.next);
        let (number, at) = (next.number, next.at);
        next.number += 1;
        next.follow(at);
        match next.gaps {
            Some(_) => (number, at),
            None => (number, self.clock.now()),
        }
    }

    /// Keeps the table from being emptied.
    fn while_writing(&self) -> RwLockReadGuard<'_, ()> {
        self.emptying.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running writer.
struct ActiveWriter<'a> {
    writer: Writer,
    schedule: &'a SharedSchedule<'a>,
    channels: &'a WriterChannels,
}

impl ActiveWriter<'_> {
    fn all(&mut self) -> Result<(), ServerError> {
        let schedule = self.schedule;
        let (clock, shared_state) = (schedule.clock, schedule.shared_state);
        while !shared_state.writer_halted() {
            if schedule.row_budget().full() {
                self.empty_if_due()?;
            }
            let held = schedule.while_writing();
            let (number, mut intended) = schedule.take_next();
            schedule.warmed.see(number, intended - schedule.began);
            let Some((step, row)) = schedule.script.row_at(number, &schedule.warmed) else {
                break;
            };
            if schedule.time_is_over(step) {
                break;
            }
            // A step that begins with a pause belongs to a sweep, which has one writer.
            let held = match step.pause.filter(|_| row == 1) {
                Some(pause) => {
                    drop(held);
                    let over = clock.now() + Nanos::from(pause.0);
                    schedule.wait_until_seen();
                    shared_state.watch_from(over - LEAD);
                    wait_until(clock, clock.now() + Nanos::from(pause.0), || {
                        shared_state.writer_halted()
                    });
                    self.empty(step)?;
                    intended = clock.now();
                    lock(&schedule.next).follow(intended);
                    schedule.while_writing()
                }
                None => held,
            };
            let phase = Script::phase_of(step, row);
            if phase == Phase::ReferenceSelect {
                // The observers do not read rows during a reference round: the last row must have been
                // seen.
                schedule.wait_until_seen();
            }
            shared_state.set_reference_select(phase == Phase::ReferenceSelect);
            match schedule.script.pace {
                Pace::Interval(_) => {
                    shared_state.watch_from(intended - LEAD);
                    wait_until(clock, intended, || shared_state.writer_halted());
                }
                Pace::Visible => {
                    schedule.wait_until_seen();
                    intended = clock.now();
                }
                Pace::Ack => intended = clock.now(),
            }
            if shared_state.writer_halted() {
                break;
            }
            self.write(
                step,
                phase,
                u32::try_from(row).unwrap_or(u32::MAX),
                step.size.min(schedule.limit),
                intended,
            )?;
            drop(held);
        }
        Ok(())
    }

    fn write(
        &mut self,
        step: &Step,
        phase: Phase,
        row: u32,
        size: u64,
        intended: Nanos,
    ) -> Result<(), ServerError> {
        let SharedSchedule {
            clock,
            shared_state,
            bytes,
            ..
        } = *self.schedule;
        let id = self.schedule.next_id.fetch_add(1, Ordering::AcqRel);
        let length = usize::try_from(size).unwrap_or(usize::MAX).min(bytes.len());
        let sent_us = clock.origin_unix_us() + clock.now().0 / 1000;
        // Built before the clock is read: copying the payload is not part of the server's time.
        let values = Values::from([
            Bound::Number(id),
            Bound::Number(row.into()),
            Bound::Signed(sent_us),
            Bound::Bytes(&bytes[..length]),
        ]);
        shared_state.sending(id);
        let send = clock.now();
        let Writer {
            session, statement, ..
        } = &mut self.writer;
        let result = session.execute(OPERATION, statement, values);
        let ack = clock.now();
        result?;
        self.schedule.held_bytes.fetch_add(size, Ordering::AcqRel);
        if !matches!(phase, Phase::WarmUp | Phase::Settle) {
            self.schedule
                .counted_since
                .fetch_min(intended.0, Ordering::AcqRel);
        }
        let commit_id = match self.writer.written {
            Some(written) => Some(self.last_commit_id(written)?),
            None => None,
        };
        if let Some(commit_id) = &commit_id {
            for waiters in &self.channels.waiters {
                // The waiting connections of a replica take the rows in rotation.
                let index = usize::try_from(id).unwrap_or(0) % waiters.len().max(1);
                if let Some(waiter) = waiters.get(index) {
                    let _ = waiter.send(WrittenRow {
                        seq: id,
                        commit_id: Arc::clone(commit_id),
                    });
                }
            }
        }
        let write = Write {
            seq: id,
            phase,
            sweep: step.sweep,
            step: step.index,
            row_in_step: row,
            size_bytes: size,
            intended,
            send,
            ack,
        };
        let _ = self
            .channels
            .events
            .send(WriterEvent::Wrote(write, commit_id));
        Ok(())
    }

    /// Returns the commit id of the row just written.
    fn last_commit_id(&mut self, written: WrittenId) -> Result<Arc<str>, ServerError> {
        let session = &mut self.writer.session;
        written
            .required_of_last_write(session, OPERATION)
            .map(Arc::from)
    }

    /// Empties the table unless another writer already has; the others wait.
    fn empty_if_due(&mut self) -> Result<(), ServerError> {
        let schedule = self.schedule;
        let _held = schedule
            .emptying
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let number = lock(&schedule.next).number;
        let Some((step, _)) = schedule.script.row_at(number, &schedule.warmed) else {
            return Ok(());
        };
        if !schedule.row_budget().full() {
            return Ok(());
        }
        // The floor's last round may have been one of the reference, in which rows are not read.
        schedule.shared_state.set_reference_select(false);
        schedule.wait_until_seen();
        self.empty(step)?;
        // This pause is not a stall of the servers and must not count as lag.
        lock(&schedule.next).at = schedule.clock.now() + LEAD;
        let _ = self.channels.events.send(WriterEvent::Emptied);
        Ok(())
    }

    /// Empties the table and waits until a small row after that is seen everywhere, so that the
    /// replicas' work for it does not count as lag.
    fn empty(&mut self, step: &Step) -> Result<(), ServerError> {
        let schedule = self.schedule;
        let held = schedule.row_budget();
        remove_rows(&mut self.writer.session, &held, || {
            schedule.shared_state.writer_halted()
        })?;
        if schedule.shared_state.writer_halted() {
            return Ok(());
        }
        schedule.held_from.store(held.ids.end, Ordering::Release);
        schedule.held_bytes.store(0, Ordering::Release);
        self.write(step, Phase::Settle, 0, 1, schedule.clock.now())?;
        schedule.wait_until_seen();
        Ok(())
    }
}
