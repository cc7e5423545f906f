//! What a run passes to its stream.

use std::{cell::RefCell, rc::Rc};

use replimeter_model::time::Nanos;
use replimeter_render::rows::Rows;

use super::{Measurement, RunContext};
use crate::{
    event::Event,
    options::{OutputArgs, StreamForm},
    screen::Screen,
    stream::{SharedStream, Stream},
};

/// Shortest time between rows that are streamed.
const LINES_INTERVAL: Nanos = Nanos(100_000_000);
/// Shortest time between figures: slightly less than the second of windows.
const FIGURES_INTERVAL: Nanos = Nanos(900_000_000);

/// Returns the stream of a run, if one is wanted.
pub(super) fn begin<'a, M: Measurement>(
    output: &OutputArgs,
    screen: &'a dyn Screen,
) -> Option<SharedStream<'a>> {
    output.stream.map(|form| {
        let stream = Stream::new(form, &M::FIGURES(), screen);
        Rc::new(RefCell::new(stream))
    })
}

/// Returns the buffer of a run's rows.
pub(super) fn rows<M: Measurement>(output: &OutputArgs) -> Rows<M::Columns> {
    let rows = Rows::new(M::Columns::default());
    match output.stream {
        Some(StreamForm::Samples) => rows.with_lines(),
        _ => rows,
    }
}

impl<M: Measurement> RunContext<'_, M> {
    /// Streams the rows since the last time, if it is due.
    pub(super) fn stream_lines(&mut self, now: Nanos) {
        if now >= self.lines_due {
            self.lines_due = now + LINES_INTERVAL;
            self.stream_rest();
        }
    }

    /// Streams the rows since the last time.
    pub(super) fn stream_rest(&mut self) {
        let lines = self.rows.take_lines();
        if !lines.is_empty() {
            self.observers.emit(Event::Lines(&lines));
        }
    }

    /// Returns whether figures are streamed.
    #[must_use]
    pub fn streams_figures(&self) -> bool {
        let stream = self.lasting.stream.as_ref();
        stream.is_some_and(|stream| stream.borrow().has_figures())
    }

    /// Passes the figures of the results so far to the observers: at most once a second, and only if they are streamed.
    pub fn so_far(&self, results: impl FnOnce(&M::Accumulator) -> M::Results) {
        let now = self.clock.now();
        if !self.streams_figures() || now < self.figures_due.get() {
            return;
        }
        self.figures_due.set(now + FIGURES_INTERVAL);
        let figures = M::stated(&self.request.settings, &results(&self.accumulator));
        self.observers.emit(Event::Figures(figures.all()));
    }
}
