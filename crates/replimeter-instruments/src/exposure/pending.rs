//! Transactions of the primary that no replica has received.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    str::FromStr,
};

use replimeter_engine::{
    binlog::Gtid,
    dialect::gtid::{DomainGtid, GtidError, GtidSet, Interval, domain_gtids},
};
use replimeter_model::time::Nanos;

/// Maximum number of entries per origin; above it neighbors are merged, which makes the count coarser
/// but never smaller.
const MAX_ENTRIES: usize = 1 << 16;

/// The received transactions of a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// MariaDB: the last GTID of each domain.
    Domains(Vec<DomainGtid>),
    /// MySQL: the set of all GTIDs.
    Set(GtidSet),
}

impl fmt::Display for Received {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Domains(last) => formatter.write_str(
                &last
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
                    .join(","),
            ),
            Self::Set(set) => set.fmt(formatter),
        }
    }
}

impl FromStr for Received {
    type Err = GtidError;
    /// A set has UUIDs, followed by colons.
    fn from_str(text: &str) -> Result<Self, GtidError> {
        if text.contains(':') {
            GtidSet::parse(text).map(Self::Set)
        } else {
            domain_gtids(text).map(Self::Domains)
        }
    }
}

/// Origin of a transaction's number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TransactionSource {
    Domain(u32),
    Numbered { uuid: String, tag: String },
}

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
    origins: BTreeMap<TransactionSource, VecDeque<PendingRange>>,
    transactions: u64,
    bytes: u64,
}

impl Pending {
    /// Adds a transaction that arrived from the primary.
    pub(super) fn add(&mut self, gtid: &Gtid, bytes: u64, at: Nanos) {
        let (origin, last) = match gtid {
            Gtid::Domain(gtid) => (TransactionSource::Domain(gtid.domain), gtid.sequence),
            Gtid::Numbered { uuid, tag, number } => (
                TransactionSource::Numbered {
                    uuid: uuid.to_string(),
                    tag: tag.as_str().to_owned(),
                },
                *number,
            ),
        };
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
    pub(super) fn received<'r>(&mut self, by: impl Iterator<Item = &'r Received> + Clone) {
        for (origin, entries) in &mut self.origins {
            let has = |number: u64| match origin {
                TransactionSource::Domain(domain) => by.clone().any(|received| {
                    let Received::Domains(last) = received else {
                        return false;
                    };
                    last.iter()
                        .any(|gtid| gtid.domain == *domain && gtid.sequence >= number)
                }),
                TransactionSource::Numbered { uuid, tag } => by.clone().any(|received| {
                    let Received::Set(set) = received else {
                        return false;
                    };
                    intervals(set, uuid, tag)
                        .iter()
                        .any(|(first, last)| (*first..=*last).contains(&number))
                }),
            };
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

fn intervals<'s>(set: &'s GtidSet, uuid: &str, tag: &str) -> &'s [Interval] {
    set.parts()
        .find(|(one, its, _)| (*one, *its) == (uuid, tag))
        .map_or(&[], |(.., intervals)| intervals)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn gtid(text: &str) -> Gtid {
        text.parse().unwrap()
    }

    #[test]
    fn most_advanced_replica_decides_what_is_pending() {
        let mut pending = Pending::default();
        for number in 1..=5 {
            pending.add(&gtid(&format!("0-1-{number}")), 100, Nanos(number * 10));
        }
        let of = |text: &str| Received::Domains(domain_gtids(text).unwrap());
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
            pending.add(&gtid(&text), 1, Nanos(1));
        }
        pending.received(
            [Received::Set(
                GtidSet::parse(&format!("{uuid}:1:3")).unwrap(),
            )]
            .iter(),
        );
        assert_eq!(pending.transactions(), 2);
        pending.received(
            [Received::Set(
                GtidSet::parse(&format!("{uuid}:1-2,{uuid}:batch:1")).unwrap(),
            )]
            .iter(),
        );
        assert_eq!(pending.transactions(), 0);
    }

    #[test]
    fn stalled_replica_uses_bounded_memory_and_loses_nothing() {
        let mut pending = Pending::default();
        let count = MAX_ENTRIES as u64 * 5;
        for number in 1..=count {
            pending.add(
                &gtid(&format!("0-1-{number}")),
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
        pending.received(
            [Received::Domains(
                domain_gtids(&format!("0-1-{}", count / 2)).unwrap(),
            )]
            .iter(),
        );
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
                pending.add(&gtid(&format!("0-1-{number}")), number, Nanos(0));
            }
            if has > 0 {
                pending.received([Received::Domains(domain_gtids(&format!("0-9-{has}")).unwrap())].iter());
            }
            prop_assert_eq!(pending.transactions(), all.saturating_sub(has));
            prop_assert_eq!(pending.bytes(), (has + 1..=all).sum::<u64>());
        }
    }
}
