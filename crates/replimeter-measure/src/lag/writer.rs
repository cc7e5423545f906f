//! Writes rows on the primary by the script's schedule.

use std::{sync::mpsc::Sender, thread, time::Duration};

use mysql::{Statement, Value, prelude::Queryable};
use replimeter_model::{
    plan::Pace,
    sample::{Phase, Write},
    time::Nanos,
};
use replimeter_server::{Node, ServerError, Session};

use super::{
    board::Board,
    script::{EMPTY_AFTER, Script, Step},
};
use crate::{
    clock::Clock,
    pacing::wait_until,
    priority::prepare_measuring_thread,
    table::{EMPTY, INSERT},
};

/// How long before a scheduled write the observers begin to read tightly, so
/// that the bracket's lower end is fresh when the row is sent.
const LEAD: Nanos = Nanos(1_000_000);

/// What the writer tells the collector.
pub(super) enum Word {
    /// A row was written.
    Wrote(Write),
    /// The schedule stood still while the table was emptied.
    Emptied,
}

/// The writer's connection and its place in the script.
pub(super) struct Writer {
    session: Session,
    statement: Statement,
    script: Script,
    next_id: u64,
    limit: u64,
    real_time: bool,
}

const DOING: &str = "cannot write a row";

impl Writer {
    /// Connects and prepares.
    pub(super) fn open(node: &Node, script: Script, next_id: u64, limit: u64, real_time: bool) -> Result<Self, ServerError> {
        let mut session = Session::open(node)?;
        let prepared = session.conn().prep(INSERT);
        let statement = prepared.map_err(|error| session.error(DOING, &error))?;
        Ok(Self { session, statement, script, next_id, limit, real_time })
    }

    /// Writes all rows and returns the last one's id.
    pub(super) fn run(self, clock: &Clock, board: &Board, bytes: &[u8], written: &Sender<Word>) -> Result<u64, ServerError> {
        prepare_measuring_thread(self.real_time);
        let steps = self.script.steps.clone();
        let mut run = Run {
            beat: clock.now() + LEAD + LEAD,
            every: self.script.every(),
            payload_since_empty: 0,
            counted_since: None,
            writer: self,
            clock,
            board,
            bytes,
            written,
        };
        let result = steps.iter().try_for_each(|step| run.step(step));
        board.set_yardstick(false);
        match result {
            Ok(()) => board.finish(),
            Err(_) => board.halt(),
        }
        result.map(|()| run.writer.next_id - 1)
    }
}

/// A writer under way.
struct Run<'a> {
    writer: Writer,
    clock: &'a Clock,
    board: &'a Board,
    bytes: &'a [u8],
    written: &'a Sender<Word>,
    /// The next intended start.
    beat: Nanos,
    every: Option<Nanos>,
    payload_since_empty: u64,
    /// When the first counted row was intended.
    counted_since: Option<Nanos>,
}

impl Run<'_> {
    fn step(&mut self, step: &Step) -> Result<(), ServerError> {
        if let Some(pause) = step.pause {
            self.wait_until_seen();
            self.board.watch_from(self.clock.now() + Nanos::from(pause.0) - LEAD);
            wait_until(self.clock, self.clock.now() + Nanos::from(pause.0), || self.board.writer_halted());
            self.empty(step)?;
            self.beat = self.clock.now();
        }
        let size = step.size.min(self.writer.limit);
        for row in 1.. {
            if self.board.writer_halted() || step.rows.is_some_and(|rows| row > rows) || self.time_is_over(step) {
                break;
            }
            if self.payload_since_empty >= EMPTY_AFTER {
                self.wait_until_seen();
                self.empty(step)?;
                // Not a stall of the servers' that anybody should be charged for.
                self.beat = self.clock.now() + LEAD;
                let _ = self.written.send(Word::Emptied);
            }
            let phase = Script::phase_of(step, row);
            if phase == Phase::Yardstick {
                // The observer reads no rows meanwhile: the last one must have been seen.
                self.wait_until_seen();
            }
            self.board.set_yardstick(phase == Phase::Yardstick);
            if !self.pace() {
                break;
            }
            self.write(step, phase, u32::try_from(row).unwrap_or(u32::MAX), size)?;
        }
        Ok(())
    }

    fn time_is_over(&self, step: &Step) -> bool {
        match (self.writer.script.elapsed, self.counted_since) {
            (Some(span), Some(since)) => step.rows.is_none() && self.clock.now() - since >= Nanos::from(span.0),
            _ => false,
        }
    }

    /// Waits for the next row's turn; false when the run is being ended.
    fn pace(&mut self) -> bool {
        match self.writer.script.pace {
            Pace::Every(_) => {
                self.board.watch_from(self.beat - LEAD);
                wait_until(self.clock, self.beat, || self.board.writer_halted())
            }
            Pace::Visible => {
                self.wait_until_seen();
                self.beat = self.clock.now();
                !self.board.writer_halted()
            }
            Pace::Ack => {
                self.beat = self.clock.now();
                !self.board.writer_halted()
            }
        }
    }

    fn write(&mut self, step: &Step, phase: Phase, row: u32, size: u64) -> Result<(), ServerError> {
        let id = self.writer.next_id;
        let length = usize::try_from(size).unwrap_or(usize::MAX).min(self.bytes.len());
        let sent_us = self.clock.origin_unix_us() + self.clock.now().0 / 1000;
        // Built before the clock is read: copying the payload is not the server's time.
        let values =
            vec![Value::UInt(id), Value::UInt(row.into()), Value::Int(sent_us), Value::Bytes(self.bytes[..length].to_vec())];
        self.board.sending(id);
        let send = self.clock.now();
        let result = self.writer.session.conn().exec_drop(&self.writer.statement, values);
        let ack = self.clock.now();
        result.map_err(|error| self.writer.session.error(DOING, &error))?;
        self.writer.next_id += 1;
        self.payload_since_empty += size;
        if !matches!(phase, Phase::WarmUp | Phase::Settle) {
            self.counted_since.get_or_insert(self.beat);
        }
        let write = Write {
            seq: id,
            phase,
            sweep: step.sweep,
            step: step.index,
            row_in_step: row,
            size_bytes: size,
            intended: self.beat,
            send,
            ack,
        };
        let _ = self.written.send(Word::Wrote(write));
        if let Some(every) = self.every {
            // Open loop: the next beat does not move because this one was late.
            self.beat = self.beat + every;
        }
        Ok(())
    }

    /// Waits until every observer has seen every row.
    fn wait_until_seen(&self) {
        while self.board.seen_everywhere() < self.writer.next_id - 1 && !self.board.writer_halted() {
            thread::park_timeout(Duration::from_millis(20));
        }
    }

    /// Empties the table, and waits until a small row behind that is seen
    /// everywhere: what the emptying costs the replicas is no lag of ours. The
    /// caller sets the next beat.
    fn empty(&mut self, step: &Step) -> Result<(), ServerError> {
        self.writer.session.run("cannot empty the table", EMPTY)?;
        self.beat = self.clock.now();
        self.write(step, Phase::Settle, 0, 1)?;
        self.wait_until_seen();
        self.payload_since_empty = 0;
        Ok(())
    }
}
