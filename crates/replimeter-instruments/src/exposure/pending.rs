//! Transactions of the primary that no replica has received.

use std::collections::{HashMap, VecDeque};

use replimeter_engine::position::{CommitId, CommitSource, Numbers, Position};
use replimeter_model::time::Nanos;

/// Maximum number of entries per origin; above it neighbors are merged, which makes the count coarser
/// but never smaller.
const MAX_ENTRIES: usize = 1 << 16;

/// One transaction, or several merged neighbors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PendingRange {
    /// Number of the last one.
    last: u64,
    count: u64,
    bytes: u64,
    /// Arrival of the first one.
    at: Nanos,
}

/// The transactions that no replica has received, in the order of the primary's log.
#[derive(Debug, Default)]
pub(super) struct Pending {
    origins: HashMap<CommitSource, VecDeque<PendingRange>>,
    transactions: u64,
    bytes: u64,
}

impl Pending {
    /// Adds a transaction that arrived from the primary.
    pub(super) fn add(&mut self, commit_id: &CommitId, bytes: u64, at: Nanos) {
        let (origin, last) = commit_id.split();
        let entries = self.origins.entry(origin).or_default();
        entries.push_back(PendingRange {
            last,
            count: 1,
            bytes,
            at,
        });
        self.transactions += 1;
        self.bytes += bytes;
        if entries.len() > MAX_ENTRIES {
            let joined: VecDeque<PendingRange> = entries
                .make_contiguous()
                .chunks(2)
                .map(|pair| PendingRange {
                    last: pair[pair.len() - 1].last,
                    count: pair.iter().map(|entry| entry.count).sum(),
                    bytes: pair.iter().map(|entry| entry.bytes).sum(),
                    at: pair[0].at,
                })
                .collect();
            *entries = joined;
        }
    }

    /// Removes transactions that any of these replicas has received.
    pub(super) fn received<'r>(&mut self, by: impl Iterator<Item = &'r Position> + Clone) {
        for (origin, entries) in &mut self.origins {
            let has: Vec<Numbers<'_>> = by.clone().map(|one| one.numbers(origin)).collect();
            let has = |number| has.iter().any(|numbers| numbers.contains(number));
            while let Some(entry) = entries.front().copied().filter(|entry| has(entry.last)) {
                entries.pop_front();
                self.transactions -= entry.count;
                self.bytes -= entry.bytes;
            }
        }
    }

    pub(super) fn transactions(&self) -> u64 {
        self.transactions
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the arrival of the oldest one.
    pub(super) fn oldest(&self) -> Option<Nanos> {
        self.origins
            .values()
            .filter_map(|entries| entries.front())
            .map(|entry| entry.at)
            .min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn position(text: &str) -> Position {
        text.parse().unwrap()
    }

    fn commit_id(text: &str) -> CommitId {
        text.parse().unwrap()
    }

    #[test]
    fn most_advanced_replica_decides_what_is_pending() {
        let mut pending = Pending::default();
        for number in 1..=5 {
            pending.add(
                &commit_id(&format!("0-1-{number}")),
                100,
                Nanos(number * 10),
            );
        }
        let of = position;
        pending.received([of("0-1-2"), of("0-1-1"), of("7-1-9")].iter());
        assert_eq!(
            (pending.transactions(), pending.bytes(), pending.oldest()),
            (3, 300, Some(Nanos(30)))
        );
        pending.received([of("0-1-5")].iter());
        assert_eq!(
            (pending.transactions(), pending.bytes(), pending.oldest()),
            (0, 0, None)
        );
    }

    #[test]
    fn tags_and_gaps_are_distinguished() {
        let uuid = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
        let mut pending = Pending::default();
        for text in [
            format!("{uuid}:1"),
            format!("{uuid}:2"),
            format!("{uuid}:batch:1"),
        ] {
            pending.add(&commit_id(&text), 1, Nanos(1));
        }
        pending.received([position(&format!("{uuid}:1:3"))].iter());
        assert_eq!(pending.transactions(), 2);
        pending.received([position(&format!("{uuid}:1-2,{uuid}:batch:1"))].iter());
        assert_eq!(pending.transactions(), 0);
    }

    #[test]
    fn stalled_replica_uses_bounded_memory_and_loses_nothing() {
        let mut pending = Pending::default();
        let count = MAX_ENTRIES as u64 * 5;
        for number in 1..=count {
            pending.add(
                &commit_id(&format!("0-1-{number}")),
                3,
                Nanos(number.cast_signed()),
            );
        }
        assert!(
            pending
                .origins
                .values()
                .all(|entries| entries.len() <= MAX_ENTRIES)
        );
        assert_eq!(
            (pending.transactions(), pending.bytes(), pending.oldest()),
            (count, 3 * count, Some(Nanos(1)))
        );
        pending.received([position(&format!("0-1-{}", count / 2))].iter());
        let left = pending.transactions();
        assert!(
            left >= count - count / 2 && left <= count - count / 2 + 16,
            "{left}"
        );
    }

    proptest! {
        #[test]
        fn transactions_beyond_the_replica_are_counted(all in 1u64..200, has in 0u64..250) {
            let mut pending = Pending::default();
            for number in 1..=all {
                pending.add(&commit_id(&format!("0-1-{number}")), number, Nanos(0));
            }
            if has > 0 {
                pending.received([position(&format!("0-9-{has}"))].iter());
            }
            prop_assert_eq!(pending.transactions(), all.saturating_sub(has));
            prop_assert_eq!(pending.bytes(), (has + 1..=all).sum::<u64>());
        }
    }
}
