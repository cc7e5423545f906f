//! Simulated coverage of intervals, for tests.

/// How many intervals there were, and how many of them held the truth.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Covered {
    pub(crate) given: u32,
    pub(crate) held: u32,
}

impl Covered {
    pub(crate) fn count(&mut self, interval: Option<[f64; 2]>, truth: f64) {
        let Some([low, high]) = interval else { return };
        self.given += 1;
        self.held += u32::from(low <= truth && truth <= high);
    }

    pub(crate) fn share(self) -> f64 {
        f64::from(self.held) / f64::from(self.given)
    }
}
