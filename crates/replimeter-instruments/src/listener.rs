//! The receiver of what an instrument finds while it measures.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::MeasureError;

/// Takes the events of an instrument, and has the stop of the user.
pub struct Listener<'a, E> {
    /// Takes every event; an error ends the measurement.
    pub on: &'a mut dyn FnMut(E) -> Result<(), String>,
    /// Set when the user stops the run.
    pub stop: &'a AtomicBool,
    /// Whether it takes the figures of the run so far, too.
    pub so_far: bool,
}

impl<E> Listener<'_, E> {
    /// Passes an event on.
    pub(crate) fn send(&mut self, event: E) -> Result<(), MeasureError> {
        (self.on)(event).map_err(MeasureError::Sink)
    }

    /// Returns whether the user stops the run.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
