//! What the threads of a part share.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use replimeter_engine::ServerError;
use replimeter_model::time::Nanos;

use crate::clock::Clock;

/// What the threads share.
pub(super) struct Shared<'a> {
    pub(super) clock: &'a Clock,
    pub(super) halt: AtomicBool,
    /// Nothing more comes.
    pub(super) over: AtomicBool,
    /// When the writer's, and each reader's, request under way was sent; 0 for none.
    pub(super) under_way: Vec<AtomicI64>,
    /// When the write was acknowledged that each reader does not show yet; 0 for none.
    pub(super) unshown: Vec<AtomicI64>,
    /// Rounds whose write lost every time.
    pub(super) lost: AtomicU64,
    pub(super) all_lost: AtomicBool,
    /// Rounds of the curve, once they are known.
    pub(super) of_curve: AtomicU64,
}

impl<'a> Shared<'a> {
    /// What threads with so many readers share.
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

    /// A request was sent, or answered (0).
    pub(super) fn under_way(&self, who: usize, since: Nanos) {
        if let Some(under_way) = self.under_way.get(who) {
            under_way.store(since.0, Ordering::Relaxed);
        }
    }

    /// A reader does not show what was acknowledged then, or shows it (0).
    pub(super) fn unshown(&self, reader: usize, since: Nanos) {
        if let Some(unshown) = self.unshown.get(reader) {
            unshown.store(since.0, Ordering::Relaxed);
        }
    }

    /// How long the oldest of these has been so.
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

    /// Does a thread's work; its failure ends the whole part.
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
