//! What the threads of one part of a run tell one another without waiting.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    thread::Thread,
};

use replimeter_engine::ServerError;
use replimeter_model::time::Nanos;

use crate::{priority::prepare_measuring_thread, sync::lock};

/// Ends the part when dropped: a scope waits for its threads even while a panic
/// unwinds through it, and they would wait for somebody to end them.
pub(super) struct HaltOnDrop<'a>(pub(super) &'a Board);

impl Drop for HaltOnDrop<'_> {
    fn drop(&mut self) {
        self.0.halt();
    }
}

/// Shared state: a few atomic numbers, so that no thread ever blocks another.
#[derive(Debug)]
pub(super) struct Board {
    /// The last row that is being, or was, sent.
    sent: AtomicU64,
    /// When observers should read in a tight loop even if nothing is unseen.
    watch_from: AtomicI64,
    /// The highest row up to which everything was seen, per slot.
    seen: Vec<AtomicU64>,
    /// Observers run point selects in place of their reads.
    yardstick: AtomicBool,
    /// No more rows will be sent.
    finished: AtomicBool,
    /// The writer sends nothing more.
    writer_halted: AtomicBool,
    /// Everybody ends now.
    halted: AtomicBool,
    /// Woken when a row was seen.
    writer: Mutex<Option<Thread>>,
}

impl Board {
    /// For so many slots (each one replica by one method); rows up to `last` are of the past.
    pub(super) fn new(slots: usize, last: u64) -> Self {
        Self {
            sent: AtomicU64::new(last),
            watch_from: AtomicI64::new(0),
            seen: (0..slots).map(|_| AtomicU64::new(last)).collect(),
            yardstick: AtomicBool::new(false),
            finished: AtomicBool::new(false),
            writer_halted: AtomicBool::new(false),
            halted: AtomicBool::new(false),
            writer: Mutex::new(None),
        }
    }

    pub(super) fn set_writer(&self, thread: Thread) {
        *lock(&self.writer) = Some(thread);
    }

    /// The writer is about to send this row.
    pub(super) fn sending(&self, id: u64) {
        self.sent.fetch_max(id, Ordering::AcqRel);
    }

    /// The last row that is being, or was, sent.
    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Acquire)
    }

    /// The writer will send nothing before `point`.
    pub(super) fn watch_from(&self, point: Nanos) {
        self.watch_from.store(point.0, Ordering::Release);
    }

    /// From when on to read tightly.
    pub(super) fn watched_from(&self) -> Nanos {
        Nanos(self.watch_from.load(Ordering::Acquire))
    }

    /// Whether the next row is for the yardstick.
    pub(super) fn set_yardstick(&self, on: bool) {
        self.yardstick.store(on, Ordering::Release);
    }

    pub(super) fn yardstick(&self) -> bool {
        self.yardstick.load(Ordering::Acquire)
    }

    /// A slot has seen every row up to `id`.
    pub(super) fn saw_up_to(&self, slot: usize, id: u64) {
        self.seen[slot].fetch_max(id, Ordering::AcqRel);
        if let Some(writer) = &*lock(&self.writer) {
            writer.unpark();
        }
    }

    /// The highest row up to which a slot has seen everything.
    pub(super) fn seen(&self, slot: usize) -> u64 {
        self.seen
            .get(slot)
            .map_or(u64::MAX, |seen| seen.load(Ordering::Acquire))
    }

    /// The highest row that every slot has seen, with all before it.
    pub(super) fn seen_everywhere(&self) -> u64 {
        self.seen
            .iter()
            .map(|seen| seen.load(Ordering::Acquire))
            .min()
            .unwrap_or(0)
    }

    /// No more rows will be sent.
    pub(super) fn finish(&self) {
        self.finished.store(true, Ordering::Release);
    }

    pub(super) fn finished(&self) -> bool {
        self.finished.load(Ordering::Acquire)
    }

    /// Does the work of a measuring thread; a failure ends the whole part.
    pub(super) fn measuring<T>(
        &self,
        real_time: bool,
        work: impl FnOnce() -> Result<T, ServerError>,
    ) -> Result<T, ServerError> {
        prepare_measuring_thread(real_time);
        let result = work();
        if result.is_err() {
            self.halt();
        }
        result
    }

    /// Everybody ends now.
    pub(super) fn halt(&self) {
        self.halted.store(true, Ordering::Release);
        self.halt_writer();
    }

    /// The writer ends now; the observers go on.
    pub(super) fn halt_writer(&self) {
        self.writer_halted.store(true, Ordering::Release);
        if let Some(writer) = &*lock(&self.writer) {
            writer.unpark();
        }
    }

    pub(super) fn halted(&self) -> bool {
        self.halted.load(Ordering::Acquire)
    }

    pub(super) fn writer_halted(&self) -> bool {
        self.writer_halted.load(Ordering::Acquire)
    }
}
