//! GTIDs of both dialects, and set operations on them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

/// Numbers from `first` to `last`, both included.
pub type Interval = (u64, u64);

/// MySQL's GTID set: numbers for each UUID and tag.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GtidSet {
    /// Sorted, disjoint and not adjacent.
    intervals: BTreeMap<(String, String), Vec<Interval>>,
}

/// A text that is not a GTID set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a GTID set")]
pub struct GtidError(String);

impl GtidError {
    /// Returns an error that quotes the text, shortened.
    pub(crate) fn of(text: &str) -> Self {
        Self(text.chars().take(80).collect())
    }
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

/// Returns whether the text is a tag (MySQL 8.3 and later): a letter or underscore, then up to 31
/// more of these or digits.
fn is_tag(text: &str) -> bool {
    text.len() <= 32
        && text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn interval(text: &str) -> Option<Interval> {
    let number = |text: &str| {
        text.bytes()
            .all(|byte| byte.is_ascii_digit())
            .then(|| text.parse().ok())
            .flatten()
    };
    let (first, last) = match text.split_once('-') {
        Some((first, last)) => (number(first.trim())?, number(last.trim())?),
        None => (number(text)?, number(text)?),
    };
    (first > 0 && first <= last).then_some((first, last))
}

/// Sorts intervals and merges those that touch.
pub(crate) fn joined(mut intervals: Vec<Interval>) -> Vec<Interval> {
    intervals.sort_unstable();
    let mut out: Vec<Interval> = Vec::with_capacity(intervals.len());
    for (first, last) in intervals {
        match out.last_mut() {
            Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
            _ => out.push((first, last)),
        }
    }
    out
}

/// Returns the intervals of `mine` without those of `theirs`; both must be merged.
fn less(mine: &[Interval], theirs: &[Interval]) -> Vec<Interval> {
    let mut out = Vec::new();
    for &(first, last) in mine {
        let mut from = first;
        let mut over = false;
        for &(begin, end) in theirs
            .iter()
            .filter(|(begin, end)| *end >= first && *begin <= last)
        {
            if begin > from {
                out.push((from, begin - 1));
            }
            match end.checked_add(1) {
                Some(next) => from = from.max(next),
                None => over = true,
            }
        }
        if !over && from <= last {
            out.push((from, last));
        }
    }
    out
}

impl GtidSet {
    /// Reads a set such as `gtid_executed`: `UUID:1-5:7,UUID:tag:3`.
    ///
    /// # Errors
    /// When the text is no such set.
    pub fn parse(text: &str) -> Result<Self, GtidError> {
        let refuse = |part: &str| GtidError(part.chars().take(80).collect());
        let mut intervals: BTreeMap<(String, String), Vec<Interval>> = BTreeMap::new();
        for part in text
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
        {
            let mut pieces = part.split(':').map(str::trim);
            let uuid = pieces
                .next()
                .filter(|uuid| is_uuid(uuid))
                .ok_or_else(|| refuse(part))?
                .to_ascii_lowercase();
            let mut tag = String::new();
            let mut any = false;
            for piece in pieces {
                if is_tag(piece) {
                    tag = piece.to_ascii_lowercase();
                } else {
                    let interval = interval(piece).ok_or_else(|| refuse(part))?;
                    intervals
                        .entry((uuid.clone(), tag.clone()))
                        .or_default()
                        .push(interval);
                    any = true;
                }
            }
            if !any {
                return Err(refuse(part));
            }
        }
        Ok(Self {
            intervals: intervals
                .into_iter()
                .map(|(key, list)| (key, joined(list)))
                .collect(),
        })
    }

    /// Returns this set without `other`.
    #[must_use]
    pub fn subtract(&self, other: &Self) -> Self {
        let rest = self.intervals.iter().map(|(key, mine)| {
            let theirs = other.intervals.get(key).map_or(&[][..], Vec::as_slice);
            (key.clone(), less(mine, theirs))
        });
        Self {
            intervals: rest
                .filter(|(_, intervals)| !intervals.is_empty())
                .collect(),
        }
    }

    /// Returns the part whose UUIDs fulfill `wanted`.
    #[must_use]
    pub fn of(&self, wanted: impl Fn(&str) -> bool) -> Self {
        let part = self.intervals.iter().filter(|((uuid, _), _)| wanted(uuid));
        Self {
            intervals: part
                .map(|(key, intervals)| (key.clone(), intervals.clone()))
                .collect(),
        }
    }

    /// Returns whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.intervals.is_empty()
    }

    /// Returns the number of transactions in it, saturating.
    #[must_use]
    pub fn count(&self) -> u64 {
        let all = self.intervals.values().flatten();
        all.fold(0u64, |sum, (first, last)| {
            sum.saturating_add((last - first).saturating_add(1))
        })
    }

    /// Returns, for each UUID and tag (both in lower case, the tag may be empty), its intervals in
    /// order.
    pub fn parts(&self) -> impl Iterator<Item = (&str, &str, &[Interval])> {
        self.intervals
            .iter()
            .map(|((uuid, tag), intervals)| (uuid.as_str(), tag.as_str(), intervals.as_slice()))
    }

    /// Adds the transactions of another set.
    pub(super) fn add(&mut self, other: &Self) {
        for (key, more) in &other.intervals {
            let own = self.intervals.entry(key.clone()).or_default();
            own.extend_from_slice(more);
            *own = joined(std::mem::take(own));
        }
    }

    /// Returns the intervals of a UUID and a tag.
    pub(super) fn intervals(&self, uuid: &str, tag: &str) -> &[Interval] {
        self.parts()
            .find(|(one, its, _)| (*one, *its) == (uuid, tag))
            .map_or(&[], |(.., intervals)| intervals)
    }

    /// Returns the UUIDs in the set.
    #[must_use]
    pub fn uuids(&self) -> BTreeSet<&str> {
        self.intervals
            .keys()
            .map(|(uuid, _)| uuid.as_str())
            .collect()
    }
}

impl fmt::Display for GtidSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, ((uuid, tag), intervals)) in self.intervals.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            f.write_str(uuid)?;
            if !tag.is_empty() {
                write!(f, ":{tag}")?;
            }
            for (first, last) in intervals {
                if first == last {
                    write!(f, ":{first}")?;
                } else {
                    write!(f, ":{first}-{last}")?;
                }
            }
        }
        Ok(())
    }
}

/// MariaDB's GTID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DomainCommit {
    /// `gtid_domain_id` of the session that wrote it.
    pub domain: u32,
    /// `server_id` of the server where it was written.
    pub server: u32,
    /// Its number.
    pub sequence: u64,
}

impl fmt::Display for DomainCommit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.domain, self.server, self.sequence)
    }
}

/// Reads MariaDB's list of GTIDs: `0-1-100,0-2-7`.
///
/// # Errors
/// When the text is no such list.
pub fn domain_commits(text: &str) -> Result<Vec<DomainCommit>, GtidError> {
    let one = |part: &str| {
        let mut numbers = part.split('-').map(|number| {
            (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
                .then_some(number)
        });
        let gtid = DomainCommit {
            domain: numbers.next()??.parse().ok()?,
            server: numbers.next()??.parse().ok()?,
            sequence: numbers.next()??.parse().ok()?,
        };
        numbers.next().is_none().then_some(gtid)
    };
    let parts = text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty());
    parts
        .map(|part| one(part).ok_or_else(|| GtidError(part.chars().take(80).collect())))
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const A: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
    const B: &str = "4e11fa47-71ca-11e1-9e33-c80aa9429562";

    fn set(text: &str) -> GtidSet {
        GtidSet::parse(text).unwrap()
    }

    #[test]
    fn gtid_sets_are_parsed_joined_and_printed() {
        assert_eq!(
            set(&format!("{A}:1-5:6:9")).to_string(),
            format!("{A}:1-6:9")
        );
        assert_eq!(
            set(&format!("{}:3,\n{B}:1-2", A.to_uppercase())).to_string(),
            format!("{A}:3,{B}:1-2")
        );
        assert_eq!(
            set(&format!("{A}:1-3:Tag:1:5-6")).to_string(),
            format!("{A}:1-3,{A}:tag:1:5-6")
        );
        assert!(set("").is_empty() && set(" ,\n").is_empty());
        for text in [
            "x",
            A,
            &format!("{A}:0"),
            &format!("{A}:5-3"),
            &format!("{A}:1-"),
            &format!("{A}:tag"),
            &format!("{A}:-1"),
        ] {
            assert!(GtidSet::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn gtid_sets_are_subtracted() {
        let left = set(&format!("{A}:1-10,{B}:7,{A}:t:1"));
        assert_eq!(
            left.subtract(&set(&format!("{A}:1-3:5:8-20"))).to_string(),
            format!("{A}:4:6-7,{A}:t:1,{B}:7")
        );
        assert!(left.subtract(&left).is_empty());
        assert_eq!(left.count(), 12);
        assert_eq!(left.of(|uuid| uuid == B).to_string(), format!("{B}:7"));
    }

    #[test]
    fn mariadb_domains_are_parsed() {
        let gtids = domain_commits("0-1-100, 1-4294967295-18446744073709551615").unwrap();
        assert_eq!(
            gtids[0],
            DomainCommit {
                domain: 0,
                server: 1,
                sequence: 100
            }
        );
        assert_eq!(gtids[1].to_string(), "1-4294967295-18446744073709551615");
        for text in [
            "0-1",
            "0-1-2-3",
            "a-1-2",
            "0--1",
            "4294967296-1-1",
            "0-+1-2",
        ] {
            assert!(domain_commits(text).is_err(), "{text}");
        }
    }

    fn numbers() -> impl Strategy<Value = BTreeSet<u64>> {
        proptest::collection::btree_set(1u64..40, 0..20)
    }

    fn text_of(numbers: &BTreeSet<u64>) -> String {
        if numbers.is_empty() {
            String::new()
        } else {
            numbers
                .iter()
                .fold(A.to_owned(), |text, number| format!("{text}:{number}"))
        }
    }

    proptest! {
        #[test]
        fn subtraction_matches_set_difference(mine in numbers(), theirs in numbers()) {
            let want: BTreeSet<u64> = mine.difference(&theirs).copied().collect();
            let got = set(&text_of(&mine)).subtract(&set(&text_of(&theirs)));
            prop_assert_eq!(got.count(), want.len() as u64);
            prop_assert_eq!(got, set(&text_of(&want)));
        }

        #[test]
        fn printed_value_parses_to_itself(mine in numbers()) {
            let one = set(&text_of(&mine));
            prop_assert_eq!(set(&one.to_string()), one);
        }

        #[test]
        fn no_text_panics(text in "([0-9a-f-]{36}|3e11fa47-71ca-11e1-9e33-c80aa9429562|[0-9]{1,22}|[:,a-z_ -]){0,12}\\PC{0,6}", other in "\\PC{0,40}") {
            let whole = GtidSet::parse(&format!("{A}:1-18446744073709551615")).unwrap();
            if let Ok(one) = GtidSet::parse(&text) {
                prop_assert!(one.subtract(&one).is_empty());
                let _ = (one.count(), whole.subtract(&one), one.subtract(&whole).to_string());
            }
            let _ = (GtidSet::parse(&other), domain_commits(&text), domain_commits(&other));
        }
    }
}
