//! Classifies the outcome of every transaction.

use replimeter_model::time::Nanos;

use super::{
    id_set::IdSet,
    writers::{JournalEntry, WriteOutcome},
};
use crate::loss::results::CrashRecord;

/// The account of one crash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) begun: u64,
    pub(crate) acknowledged: u64,
    /// Of these, those acknowledged after the cut.
    pub(crate) acknowledged_after_cut: u64,
    /// Acknowledged, but not present.
    pub(crate) missing: u64,
    /// Time from the acknowledgement of the first lost transaction to the end.
    pub(crate) missing_since: Option<Nanos>,
    /// Of the lost transactions, those acknowledged after the cut.
    pub(crate) lost_after_cut: u64,
    pub(crate) seen: u64,
    /// Seen, but not present.
    pub(crate) seen_then_lost: u64,
    /// Of these, those never acknowledged.
    pub(crate) seen_unacknowledged_lost: u64,
    /// Sent, but not acknowledged.
    pub(crate) unacknowledged: u64,
    /// Of these, those refused with an error.
    pub(crate) refused: u64,
    /// Not acknowledged, but present.
    pub(crate) unacknowledged_present: u64,
}

impl Account {
    /// Returns the record for the report; `rest` has its other fields.
    pub(crate) fn record(&self, rest: CrashRecord) -> CrashRecord {
        CrashRecord {
            begun: self.begun,
            acknowledged: self.acknowledged,
            acknowledged_after_cut: self.acknowledged_after_cut,
            lost: self.missing,
            lost_since_us: self.missing_since.map(Nanos::as_micros),
            lost_after_cut: self.lost_after_cut,
            seen: self.seen,
            seen_then_lost: self.seen_then_lost,
            seen_unacknowledged_lost: self.seen_unacknowledged_lost,
            unacknowledged_present: self.unacknowledged_present,
            unacknowledged: self.unacknowledged,
            refused: self.refused,
            ..rest
        }
    }
}

/// Compares the writers' journal and the rows that were seen with the rows that are present. `end` is
/// the end of the primary, `cut` that of its links.
pub(crate) fn account(
    journal: &[JournalEntry],
    seen: &IdSet,
    present: &IdSet,
    cut: Option<Nanos>,
    end: Nanos,
) -> Account {
    let mut account = Account {
        begun: journal.len() as u64,
        seen: seen.count(),
        ..Account::default()
    };
    for entry in journal {
        let (there, was_seen) = (present.contains(entry.id), seen.contains(entry.id));
        if was_seen && !there {
            account.seen_then_lost += 1;
        }
        match entry.outcome {
            WriteOutcome::Acknowledged(at) => {
                let after_cut = u64::from(cut.is_some_and(|cut| at > cut));
                account.acknowledged += 1;
                account.acknowledged_after_cut += after_cut;
                if !there {
                    account.missing += 1;
                    account.lost_after_cut += after_cut;
                    let since = end - at;
                    account.missing_since = Some(
                        account
                            .missing_since
                            .map_or(since, |longest| longest.max(since)),
                    );
                }
            }
            WriteOutcome::Unknown | WriteOutcome::Refused => {
                account.unacknowledged += 1;
                account.refused += u64::from(entry.outcome == WriteOutcome::Refused);
                account.unacknowledged_present += u64::from(there);
                account.seen_unacknowledged_lost += u64::from(was_seen && !there);
            }
        }
    }
    account
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::known::known;

    #[derive(Deserialize)]
    struct Crash {
        journal: Vec<JournalEntry>,
        seen: Vec<u64>,
        present: Vec<u64>,
        cut: Option<Nanos>,
        end: Nanos,
    }

    #[test]
    fn recorded_crashes_reproduce_the_same_account() {
        for case in known::<Crash>("loss") {
            let records: Vec<CrashRecord> = serde_json::from_value(case.result).unwrap();
            assert_eq!(case.input.len(), records.len(), "{}", case.name);
            for (crash, recorded) in case.input.iter().zip(records) {
                let Crash {
                    journal,
                    seen,
                    present,
                    cut,
                    end,
                } = crash;
                let rest = CrashRecord {
                    number: recorded.number,
                    ..recorded.clone()
                };
                let account = account(journal, &ids(seen), &ids(present), *cut, *end);
                assert_eq!(account.record(rest), recorded, "{}", case.name);
            }
        }
    }

    fn ids(all: &[u64]) -> IdSet {
        let mut ids = IdSet::default();
        all.iter().for_each(|id| _ = ids.insert(*id));
        ids
    }

    #[test]
    fn every_write_outcome_is_counted_once() {
        let entry = |id, outcome| JournalEntry { id, outcome };
        let ack = |at| WriteOutcome::Acknowledged(Nanos(at));
        let journal = [
            entry(1, ack(10)),
            entry(2, ack(20)),
            entry(3, ack(30)),
            entry(4, WriteOutcome::Unknown),
            entry(5, WriteOutcome::Unknown),
            entry(6, WriteOutcome::Refused),
            entry(7, WriteOutcome::Unknown),
        ];
        let account = account(
            &journal,
            &ids(&[1, 2, 3, 7]),
            &ids(&[1, 4]),
            Some(Nanos(25)),
            Nanos(100),
        );
        let wanted = Account {
            begun: 7,
            acknowledged: 3,
            acknowledged_after_cut: 1,
            missing: 2,
            missing_since: Some(Nanos(80)),
            lost_after_cut: 1,
            seen: 4,
            seen_then_lost: 3,
            seen_unacknowledged_lost: 1,
            unacknowledged: 4,
            refused: 1,
            unacknowledged_present: 1,
        };
        assert_eq!(account, wanted);
    }
}
