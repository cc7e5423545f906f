//! The transactions that a stream has brought, from which it can be resumed by GTID.
//!
//! A request by file has 32 bits for the offset, so a stream beyond 4 GiB of a file cannot be resumed by its position.

use std::collections::BTreeMap;

use replimeter_model::engine::Engine;

use crate::position::{
    CommitId, DomainCommit, GtidError, GtidSet, Interval, Tag, Uuid, domain_commits, joined,
};

/// Number of intervals from which they are joined.
const MANY: usize = 64;

/// The numbers of one UUID and tag.
#[derive(Debug, Default)]
struct Numbers {
    intervals: Vec<Interval>,
    /// Number of intervals after they were joined.
    distinct: usize,
}

impl Numbers {
    fn add(&mut self, number: u64) {
        match self.intervals.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(number) => *last = number,
            _ => self.intervals.push((number, number)),
        }
        if self.intervals.len() > MANY + 2 * self.distinct {
            self.intervals = joined(std::mem::take(&mut self.intervals));
            self.distinct = self.intervals.len();
        }
    }
}

/// What a stream began after, and what it has brought since.
#[derive(Debug, Default)]
pub(super) struct Resume {
    start: String,
    domains: BTreeMap<u32, DomainCommit>,
    numbers: BTreeMap<(Uuid, Tag), Numbers>,
}

impl Resume {
    /// Begins after these transactions, in the server's notation.
    pub(super) fn after(start: String) -> Self {
        Self {
            start,
            ..Self::default()
        }
    }

    /// Adds a complete transaction.
    pub(super) fn add(&mut self, commit_id: CommitId) {
        match commit_id {
            CommitId::Domain(commit_id) => _ = self.domains.insert(commit_id.domain, commit_id),
            CommitId::Numbered { uuid, tag, number } => {
                self.numbers.entry((uuid, tag)).or_default().add(number);
            }
        }
    }

    /// Returns the transactions after which the stream is resumed, in the server's notation.
    ///
    /// # Errors
    /// When the start is not in that notation.
    pub(super) fn commit_ids(&self, engine: Engine) -> Result<String, GtidError> {
        match engine {
            // A domain has its transactions in one order, so its last one stands for all.
            Engine::MariaDb => {
                let mut last: BTreeMap<u32, DomainCommit> = domain_commits(&self.start)?
                    .into_iter()
                    .map(|commit_id| (commit_id.domain, commit_id))
                    .collect();
                last.extend(&self.domains);
                let texts: Vec<String> = last.values().map(ToString::to_string).collect();
                Ok(texts.join(","))
            }
            Engine::MySql => {
                let mut text = self.start.clone();
                for ((uuid, tag), numbers) in &self.numbers {
                    text.push_str(&format!(",{uuid}"));
                    if !tag.as_str().is_empty() {
                        text.push_str(&format!(":{}", tag.as_str()));
                    }
                    for (first, last) in &numbers.intervals {
                        text.push_str(&format!(":{first}-{last}"));
                    }
                }
                Ok(GtidSet::parse(text.trim_start_matches(','))?.to_string())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_transaction_of_each_domain_is_resumed_after() {
        let mut resume = Resume::after("0-1-5,3-1-9".to_owned());
        for text in ["0-1-6", "7-2-1", "0-2-7"] {
            resume.add(text.parse().unwrap());
        }
        assert_eq!(
            resume.commit_ids(Engine::MariaDb).unwrap(),
            "0-2-7,3-1-9,7-2-1"
        );
        let empty = Resume::default();
        assert_eq!(empty.commit_ids(Engine::MariaDb).unwrap(), "");
    }

    #[test]
    fn numbers_out_of_order_are_joined_with_the_start() {
        let uuid = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
        let mut resume = Resume::after(format!("{uuid}:1-10"));
        // Pairs are swapped, and 500 is missing.
        for number in (11..2_000u64).step_by(2).flat_map(|odd| [odd + 1, odd]) {
            if number != 500 {
                resume.add(format!("{uuid}:{number}").parse().unwrap());
            }
        }
        resume.add(format!("{uuid}:ab:4").parse().unwrap());
        let of = resume
            .numbers
            .values()
            .map(|numbers| numbers.intervals.len());
        assert!(of.max().unwrap() <= MANY + 20);
        let set = GtidSet::parse(&resume.commit_ids(Engine::MySql).unwrap()).unwrap();
        let whole = GtidSet::parse(&format!("{uuid}:1-2000,{uuid}:ab:4")).unwrap();
        assert_eq!(whole.subtract(&set).to_string(), format!("{uuid}:500"));
    }
}
