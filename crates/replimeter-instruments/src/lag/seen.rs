//! What the threads that watch replicas tell the collector, and which rows one has seen.

use std::collections::BTreeSet;

use replimeter_engine::{binlog::Gtid, flavour::stages::Answer};
use replimeter_model::{sample::Sighting, time::Nanos, warning::Warning};

use super::stages::ServerClock;

/// What an observer tells the collector.
pub(super) enum Seen {
    /// A row that was seen: which replica and method is the slot.
    Row { slot: usize, sighting: Sighting },
    /// A transaction in a binary log: stream 0 is the primary's, then the replicas'.
    Arrived {
        stream: usize,
        gtid: Gtid,
        at: Nanos,
    },
    /// A row that is there, and whose time cannot be told.
    Untold { slot: usize, seq: u64 },
    /// How far single transactions have come.
    Told(Box<Told>),
    /// Something that the reader of the report must know.
    Odd(Warning),
    /// A point select, for the yardstick.
    PointSelect { began: Nanos, ended: Nanos },
}

/// The clocks of the primary and of the replica.
pub(super) type Clocks = [ServerClock; 2];

/// What the replica said, between which moments, and how the clocks stood.
pub(super) struct Told {
    /// Which replica, from 0.
    pub(super) replica: usize,
    pub(super) began: Nanos,
    pub(super) ended: Nanos,
    pub(super) answer: Answer,
    pub(super) clocks: Clocks,
}

/// Every row up to `low`, and some above.
#[derive(Clone, Debug)]
pub(super) struct SeenRows {
    low: u64,
    above: BTreeSet<u64>,
}

impl SeenRows {
    /// Every row up to `low`.
    pub(super) fn new(low: u64) -> Self {
        Self {
            low,
            above: BTreeSet::new(),
        }
    }

    /// Every row up to this one was seen.
    pub(super) fn low(&self) -> u64 {
        self.low
    }

    /// Adds a row; false when it was seen before.
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
        fn in_any_order_each_once(order in Just((1u64..30).collect::<Vec<_>>()).prop_shuffle(), twice in 1u64..30) {
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
