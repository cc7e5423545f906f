//! Rows seen so far, in any order.

use std::collections::BTreeSet;

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
