//! The rows of one replica, and the instants from which they are visible.

use std::{collections::BTreeMap, sync::Mutex};

use replimeter_model::{random::Random, time::Nanos, time_span::TimeSpan};

use crate::{clock::Clock, reference::delay_shape::DelayShape};
use replimeter_engine::sync::lock;

/// One row of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrueRow {
    /// The instant from which every read shows it.
    pub visible: Nanos,
    /// When the server began to answer the first wait for it; `None` before that.
    pub released: Option<Nanos>,
}

#[derive(Debug)]
struct State {
    rows: BTreeMap<u64, TrueRow>,
    /// The instant of the newest row: rows become visible in the order of the writes.
    newest: Nanos,
    /// No row becomes visible before.
    held_until: Nanos,
    shape: DelayShape,
    random: Random,
}

/// How long a row is kept after it became visible, in nanoseconds.
const KEPT: Nanos = Nanos(60_000_000_000);

/// The rows of one replica. Every access reads the clock under the lock, so that accesses and instants have one order.
#[derive(Debug)]
pub(super) struct ReplicaRows {
    state: Mutex<State>,
    clock: Clock,
}

impl ReplicaRows {
    /// Creates a replica without rows, which delays none.
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            state: Mutex::new(State {
                rows: BTreeMap::new(),
                newest: Nanos(i64::MIN),
                held_until: Nanos(i64::MIN),
                shape: DelayShape::Constant(TimeSpan::default()),
                random: Random::numbered(0),
            }),
            clock,
        }
    }

    /// Delays rows that are added from now on by times of this shape, from this sequence of random numbers.
    pub(super) fn delay_by(&self, shape: DelayShape, sequence: u64) {
        let mut state = lock(&self.state);
        (state.shape, state.random) = (shape, Random::numbered(sequence));
    }

    /// Adds a row, and chooses the instant from which it is visible: now and a delay, but not before an earlier row.
    pub(super) fn add(&self, id: u64) {
        let mut state = lock(&self.state);
        let shape = state.shape;
        let delay = Nanos::from(shape.draw(&mut state.random));
        let now = self.clock.now();
        while state.rows.len() > 1
            && let Some(oldest) = state.rows.first_entry()
            && oldest.get().visible < now - KEPT
        {
            oldest.remove();
        }
        let visible = (now + delay).max(state.newest).max(state.held_until);
        state.newest = visible;
        let row = TrueRow {
            visible,
            released: None,
        };
        state.rows.insert(id, row);
    }

    /// Shows no row that is added from now on before `until`.
    pub(super) fn hold(&self, until: Nanos) {
        lock(&self.state).held_until = until;
    }

    /// Returns the rows above `id` that are visible now.
    pub(super) fn visible_above(&self, id: u64) -> Vec<u64> {
        let state = lock(&self.state);
        let now = self.clock.now();
        let rows = state.rows.range(id.saturating_add(1)..);
        rows.take_while(|(_, row)| row.visible <= now)
            .map(|(id, _)| *id)
            .collect()
    }

    /// Returns whether the row is visible now.
    pub(super) fn is_visible(&self, id: u64) -> bool {
        let state = lock(&self.state);
        let now = self.clock.now();
        state.rows.get(&id).is_some_and(|row| row.visible <= now)
    }

    /// Records that a wait for the row is answered from now on.
    pub(super) fn release(&self, id: u64) {
        let mut state = lock(&self.state);
        let now = self.clock.now();
        if let Some(row) = state.rows.get_mut(&id) {
            row.released.get_or_insert(now);
        }
    }

    /// Returns the row.
    pub(super) fn row(&self, id: u64) -> Option<TrueRow> {
        lock(&self.state).rows.get(&id).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_is_visible_from_its_instant_on() {
        let clock = Clock::start();
        let rows = ReplicaRows::new(clock);
        rows.delay_by("20ms".parse().unwrap(), 1);
        let before = clock.now();
        rows.add(1);
        rows.add(2);
        let [first, second] = [1, 2].map(|id| rows.row(id).unwrap().visible);
        assert!(first <= second && first >= before + Nanos(20_000_000));
        let mut polls = 0;
        while rows.visible_above(0).is_empty() {
            polls += 1;
            assert!(!rows.is_visible(2) || clock.now() >= second);
        }
        assert!(clock.now() >= first && polls > 0);
        crate::pacing::wait_until(&clock, second, || false);
        assert_eq!(rows.visible_above(0), [1, 2]);
        assert_eq!(rows.visible_above(1), [2]);
        assert!(rows.is_visible(2) && !rows.is_visible(3));
    }

    #[test]
    fn held_rows_appear_after_the_hold() {
        let clock = Clock::start();
        let rows = ReplicaRows::new(clock);
        let until = clock.now() + Nanos(5_000_000);
        rows.hold(until);
        rows.add(1);
        rows.hold(Nanos(i64::MAX));
        rows.add(2);
        assert_eq!(rows.row(1).unwrap().visible, until);
        crate::pacing::wait_until(&clock, until, || false);
        assert_eq!(rows.visible_above(0), [1]);
        assert_eq!(rows.row(2).unwrap().visible, Nanos(i64::MAX));
    }
}
