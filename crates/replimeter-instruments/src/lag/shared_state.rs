//! State that the threads of one part of a run share without waiting.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    thread::Thread,
};

use replimeter_engine::{ServerError, sync::lock};
use replimeter_model::time::Nanos;

use crate::priority::prepare_measuring_thread;

/// Ends the part when dropped: a scope waits for its threads even while a panic unwinds through it, and
/// the threads would wait for a signal to end.
pub(super) struct HaltOnDrop<'a>(pub(super) &'a SharedState);

impl Drop for HaltOnDrop<'_> {
    fn drop(&mut self) {
        self.0.halt();
    }
}

/// Shared state: a few atomic numbers, so that no thread ever blocks another.
#[derive(Debug)]
pub(super) struct SharedState {
    /// The last row that was sent or is being sent.
    sent: AtomicU64,
    /// When observers begin to read in a tight loop even if every row was seen.
    watch_from: AtomicI64,
    /// For each slot, the highest row up to which every row was seen.
    seen: Vec<AtomicU64>,
    /// Whether observers run point selects instead of their reads.
    reference_select: AtomicBool,
    /// Whether the writers are done.
    finished: AtomicBool,
    /// Whether the writers must stop.
    writer_halted: AtomicBool,
    /// Whether every thread must end.
    halted: AtomicBool,
    /// The thread to wake when a row was seen.
    writer: Mutex<Option<Thread>>,
}

impl SharedState {
    /// Creates the state for this number of slots (one replica with one method each); rows up to `last`
    /// are old.
    pub(super) fn new(slots: usize, last: u64) -> Self {
        Self {
            sent: AtomicU64::new(last),
            watch_from: AtomicI64::new(0),
            seen: (0..slots).map(|_| AtomicU64::new(last)).collect(),
            reference_select: AtomicBool::new(false),
            finished: AtomicBool::new(false),
            writer_halted: AtomicBool::new(false),
            halted: AtomicBool::new(false),
            writer: Mutex::new(None),
        }
    }

    pub(super) fn set_writer(&self, thread: Thread) {
        *lock(&self.writer) = Some(thread);
    }

    /// Records that the writer is about to send this row.
    pub(super) fn sending(&self, id: u64) {
        self.sent.fetch_max(id, Ordering::AcqRel);
    }

    /// Returns the last row that was sent or is being sent.
    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Acquire)
    }

    /// Records that the writer sends nothing before `point`.
    pub(super) fn watch_from(&self, point: Nanos) {
        self.watch_from.store(point.0, Ordering::Release);
    }

    /// Returns the time from which observers read tightly.
    pub(super) fn watched_from(&self) -> Nanos {
        Nanos(self.watch_from.load(Ordering::Acquire))
    }

    /// Sets whether the next row is for the reference.
    pub(super) fn set_reference_select(&self, on: bool) {
        self.reference_select.store(on, Ordering::Release);
    }

    pub(super) fn reference_select(&self) -> bool {
        self.reference_select.load(Ordering::Acquire)
    }

    /// Records that a slot has seen every row up to `id`.
    pub(super) fn record_seen_up_to(&self, slot: usize, id: u64) {
        self.seen[slot].fetch_max(id, Ordering::AcqRel);
        if let Some(writer) = &*lock(&self.writer) {
            writer.unpark();
        }
    }

    /// Returns the highest row up to which a slot has seen every row.
    pub(super) fn seen(&self, slot: usize) -> u64 {
        self.seen
            .get(slot)
            .map_or(u64::MAX, |seen| seen.load(Ordering::Acquire))
    }

    /// Returns the highest row up to which every slot has seen every row.
    pub(super) fn seen_everywhere(&self) -> u64 {
        self.seen
            .iter()
            .map(|seen| seen.load(Ordering::Acquire))
            .min()
            .unwrap_or(0)
    }

    /// Records that no more rows will be sent.
    pub(super) fn finish(&self) {
        self.finished.store(true, Ordering::Release);
    }

    pub(super) fn finished(&self) -> bool {
        self.finished.load(Ordering::Acquire)
    }

    /// Runs the work of a measuring thread; a failure ends the whole part.
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

    /// Ends every thread.
    pub(super) fn halt(&self) {
        self.halted.store(true, Ordering::Release);
        self.halt_writer();
    }

    /// Ends the writer; the observers continue.
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
