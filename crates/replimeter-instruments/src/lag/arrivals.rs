//! Joins the transactions seen by taps of several binary logs with the rows that were written.

use std::collections::{HashMap, VecDeque};

use replimeter_engine::position::CommitId;
use replimeter_model::time::Nanos;

/// Maximum number of transactions that are kept: those of other writers and rows not yet matched.
const MAX_UNMATCHED: usize = 1 << 19;

/// State of one transaction.
#[derive(Default)]
struct Transaction {
    seq: Option<u64>,
    /// Time of arrival on each stream, the primary's first.
    at: Vec<Option<Nanos>>,
    reported: Vec<bool>,
}

/// A row that arrived on a replica's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MatchedRow {
    pub(super) seq: u64,
    /// Index of the replica, from 0.
    pub(super) replica: usize,
    pub(super) on_primary: Nanos,
    pub(super) on_replica: Nanos,
}

/// Transactions that wait for an arrival or for their row. The oldest are dropped above a limit,
/// because other writers add transactions without end.
pub(super) struct Arrivals {
    streams: usize,
    known: HashMap<CommitId, Transaction>,
    order: VecDeque<CommitId>,
    matched: Vec<MatchedRow>,
    /// Number of this run's rows that were dropped before they were matched.
    pub(super) forgotten: u64,
}

impl Arrivals {
    /// Creates the state for this number of streams; the first is the primary's.
    pub(super) fn new(streams: usize) -> Self {
        Self {
            streams,
            known: HashMap::new(),
            order: VecDeque::new(),
            matched: Vec::new(),
            forgotten: 0,
        }
    }

    fn entry(&mut self, commit_id: CommitId) -> &mut Transaction {
        let streams = self.streams;
        if !self.known.contains_key(&commit_id) {
            self.order.push_back(commit_id);
            if self.order.len() > MAX_UNMATCHED
                && let Some(oldest) = self.order.pop_front()
                && let Some(gone) = self.known.remove(&oldest)
            {
                self.forgotten += u64::from(gone.seq.is_some());
            }
        }
        self.known.entry(commit_id).or_insert_with(|| Transaction {
            seq: None,
            at: vec![None; streams],
            reported: vec![false; streams],
        })
    }

    /// Records the arrival of a transaction on a stream.
    pub(super) fn arrived(&mut self, stream: usize, commit_id: CommitId, at: Nanos) {
        let entry = self.entry(commit_id);
        if let Some(arrival) = entry.at.get_mut(stream) {
            // After a reconnect a stream may repeat transactions: the first arrival counts.
            arrival.get_or_insert(at);
        }
        self.match_up(commit_id);
    }

    /// Records that this transaction wrote a row.
    pub(super) fn record_write(&mut self, commit_id: CommitId, seq: u64) {
        self.entry(commit_id).seq = Some(seq);
        self.match_up(commit_id);
    }

    fn match_up(&mut self, commit_id: CommitId) {
        let Some(entry) = self.known.get_mut(&commit_id) else {
            return;
        };
        let (Some(seq), Some(on_primary)) = (entry.seq, entry.at.first().copied().flatten()) else {
            return;
        };
        for stream in 1..self.streams {
            if let (Some(on_replica), false) = (entry.at[stream], entry.reported[stream]) {
                entry.reported[stream] = true;
                self.matched.push(MatchedRow {
                    seq,
                    replica: stream - 1,
                    on_primary,
                    on_replica,
                });
            }
        }
        if entry.reported.iter().skip(1).all(|reported| *reported) {
            // Its entry in `order` is dropped when it becomes the oldest.
            self.known.remove(&commit_id);
        }
    }

    /// Returns the matches since the last call.
    pub(super) fn take_matches(&mut self) -> Vec<MatchedRow> {
        std::mem::take(&mut self.matched)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit_id(sequence: u64) -> CommitId {
        format!("0-1-{sequence}").parse().unwrap()
    }

    #[test]
    fn row_is_matched_in_either_order() {
        let mut arrivals = Arrivals::new(3);
        arrivals.arrived(2, commit_id(7), Nanos(30));
        arrivals.arrived(1, commit_id(7), Nanos(20));
        arrivals.record_write(commit_id(7), 1);
        assert!(
            arrivals.take_matches().is_empty(),
            "the primary's stream has not shown it"
        );
        arrivals.arrived(0, commit_id(7), Nanos(25));
        let on_primary = Nanos(25);
        assert_eq!(
            arrivals.take_matches(),
            [
                MatchedRow {
                    seq: 1,
                    replica: 0,
                    on_primary,
                    on_replica: Nanos(20)
                },
                MatchedRow {
                    seq: 1,
                    replica: 1,
                    on_primary,
                    on_replica: Nanos(30)
                }
            ]
        );
        assert!(arrivals.known.is_empty());
    }

    #[test]
    fn foreign_transactions_use_bounded_memory() {
        let mut arrivals = Arrivals::new(2);
        for sequence in 0..(MAX_UNMATCHED as u64 + 1000) {
            arrivals.arrived(0, commit_id(sequence), Nanos(1));
        }
        assert!(arrivals.known.len() <= MAX_UNMATCHED && arrivals.order.len() <= MAX_UNMATCHED);
        assert_eq!(arrivals.forgotten, 0);
    }
}
