//! State that the threads of a part share.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use replimeter_engine::ServerError;
use replimeter_model::time::Nanos;

use crate::clock::Clock;

/// State that the threads of a part share.
pub(super) struct Shared<'a> {
    pub(super) clock: &'a Clock,
    pub(super) halt: AtomicBool,
    /// Whether the part is over.
    pub(super) over: AtomicBool,
    /// When the current request of the writer and of each reader was sent; 0 for none.
    pub(super) under_way: Vec<AtomicI64>,
    /// When the write that each reader does not show yet was acknowledged; 0 for none.
    pub(super) unshown: Vec<AtomicI64>,
    /// Number of rounds whose write was lost to conflicts.
    pub(super) lost: AtomicU64,
    pub(super) all_lost: AtomicBool,
    /// Number of rounds of the curve, once known.
    pub(super) of_curve: AtomicU64,
}

impl<'a> Shared<'a> {
    /// Creates the state for this number of readers.
    pub(super) fn new(clock: &'a Clock, readers: usize) -> Self {
        let none = |count| (0..count).map(|_| AtomicI64::new(0)).collect();
        Self {
            clock,
            halt: AtomicBool::new(false),
            over: AtomicBool::new(false),
            under_way: none(1 + readers),
            unshown: none(readers),
            lost: AtomicU64::new(0),
            all_lost: AtomicBool::new(false),
            of_curve: AtomicU64::new(0),
        }
    }

    /// Records that a request was sent at this time, or answered (0).
    pub(super) fn under_way(&self, who: usize, since: Nanos) {
        if let Some(under_way) = self.under_way.get(who) {
            under_way.store(since.0, Ordering::Relaxed);
        }
    }

    /// Records the acknowledgement that a reader does not show yet, or that it shows it (0).
    pub(super) fn set_unshown(&self, reader: usize, since: Nanos) {
        if let Some(unshown) = self.unshown.get(reader) {
            unshown.store(since.0, Ordering::Relaxed);
        }
    }

    /// Returns the age of the oldest of these times.
    pub(super) fn oldest(of: &[AtomicI64], now: Nanos) -> f64 {
        let since = of
            .iter()
            .map(|since| since.load(Ordering::Relaxed))
            .filter(|since| *since != 0)
            .min();
        since.map_or(0.0, |since| (now - Nanos(since)).as_micros())
    }

    pub(super) fn halted(&self) -> bool {
        self.halt.load(Ordering::Relaxed)
    }

    pub(super) fn over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Does a thread's work; a failure ends the whole part.
    pub(super) fn work<T>(
        &self,
        work: impl FnOnce() -> Result<T, ServerError>,
    ) -> Result<T, ServerError> {
        let result = work();
        if result.is_err() {
            self.halt.store(true, Ordering::Relaxed);
        }
        result
    }
}

/// Ends the part when dropped: a scope waits for its threads even while a panic unwinds through it.
pub(super) struct HaltOnDrop<'a, 'b>(pub(super) &'a Shared<'b>);

impl Drop for HaltOnDrop<'_, '_> {
    fn drop(&mut self) {
        self.0.halt.store(true, Ordering::Relaxed);
        self.0.over.store(true, Ordering::Relaxed);
    }
}
