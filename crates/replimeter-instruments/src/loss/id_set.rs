//! Sets of row ids, with a bit for each.

/// The largest id that is stored; no row of the load has a larger one.
pub(crate) const MAX_ID: u64 = 1 << 26;

/// A set of ids that begin at 1 and have few gaps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct IdSet {
    words: Vec<u64>,
    count: u64,
}

impl IdSet {
    /// Adds an id; returns false when it exists or is out of range.
    pub(crate) fn insert(&mut self, id: u64) -> bool {
        if id == 0 || id > MAX_ID {
            return false;
        }
        let (word, bit) = place(id);
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        let new = self.words[word] & bit == 0;
        self.words[word] |= bit;
        self.count += u64::from(new);
        new
    }

    pub(crate) fn contains(&self, id: u64) -> bool {
        let (word, bit) = place(id);
        self.words.get(word).is_some_and(|bits| bits & bit != 0)
    }

    /// Returns the number of ids.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Returns all ids in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u64> {
        let bits = |(word, bits): (usize, &u64)| {
            let bits = *bits;
            (0..64u64)
                .filter(move |bit| bits >> bit & 1 == 1)
                .map(move |bit| word as u64 * 64 + bit)
        };
        self.words.iter().enumerate().flat_map(bits)
    }
}

fn place(id: u64) -> (usize, u64) {
    (
        usize::try_from(id / 64).unwrap_or(usize::MAX),
        1 << (id % 64),
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn id_set_matches_a_hash_set(numbers in proptest::collection::vec(1u64..2000, 0..200)) {
            let (mut ids, mut set) = (IdSet::default(), BTreeSet::new());
            for number in numbers {
                prop_assert_eq!(ids.insert(number), set.insert(number));
            }
            prop_assert_eq!(ids.count(), set.len() as u64);
            prop_assert!(ids.iter().eq(set.iter().copied()));
            prop_assert!((0..2100).all(|id| ids.contains(id) == set.contains(&id)));
        }
    }

    #[test]
    fn foreign_id_is_refused() {
        let mut ids = IdSet::default();
        assert!(!ids.insert(0) && !ids.insert(u64::MAX) && !ids.contains(u64::MAX));
    }
}
