//! Messages from observing threads to the collector, and the set of rows that a thread has seen.

use std::collections::BTreeSet;

use replimeter_engine::{dialect::stages::StageAnswer, position::CommitId};
use replimeter_model::{time::Nanos, warning::Warning};

use super::stage_joiner::ServerClock;
use crate::lag::sample::Sighting;

/// A message from an observer to the collector.
pub(super) enum ObserverEvent {
    /// A row was seen; the slot identifies the replica and the method.
    Row { slot: usize, sighting: Sighting },
    /// A transaction in a binary log: stream 0 is the primary's, then the replicas'.
    Arrived {
        stream: usize,
        commit_id: CommitId,
        at: Nanos,
    },
    /// A row is visible, but its time cannot be determined.
    Unplaced { slot: usize, seq: u64 },
    /// The progress of single transactions.
    Stages(Box<StageObservation>),
    /// A warning for the report.
    Warning(Warning),
    /// A point select, for the reference.
    PointSelect { began: Nanos, ended: Nanos },
}

/// The clocks of the primary and of the replica.
pub(super) type Clocks = [ServerClock; 2];

/// A replica's answer, when it was asked, and the state of the clocks.
pub(super) struct StageObservation {
    /// Index of the replica, from 0.
    pub(super) replica: usize,
    pub(super) began: Nanos,
    pub(super) ended: Nanos,
    pub(super) answer: StageAnswer,
    pub(super) clocks: Clocks,
}

/// A set of rows: every row up to `low`, and some above.
#[derive(Clone, Debug)]
pub(super) struct SeenRows {
    low: u64,
    above: BTreeSet<u64>,
}

impl SeenRows {
    /// Creates the set with every row up to `low`.
    pub(super) fn new(low: u64) -> Self {
        Self {
            low,
            above: BTreeSet::new(),
        }
    }

    /// Returns the row up to which every row was seen.
    pub(super) fn low(&self) -> u64 {
        self.low
    }

    /// Adds a row; returns false when it was seen before.
    pub(super) fn insert(&mut self, seq: u64) -> bool {
        if seq <= self.low || !self.above.insert(seq) {
            return false;
        }
        while self.above.first() == Some(&(self.low + 1)) {
            self.above.pop_first();
            self.low += 1;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn rows_in_any_order_are_seen_once(order in Just((1u64..30).collect::<Vec<_>>()).prop_shuffle(), twice in 1u64..30) {
            let mut seen = SeenRows::new(0);
            for (index, seq) in order.iter().enumerate() {
                prop_assert!(seen.insert(*seq));
                let before = &order[..=index];
                prop_assert_eq!(seen.low(), (1..).take_while(|one| before.contains(one)).last().unwrap_or(0));
            }
            prop_assert!(!seen.insert(twice));
            prop_assert_eq!(seen.low(), 29);
        }
    }
}
