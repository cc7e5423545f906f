//! Simulated coverage of intervals, for tests of several crates.

/// How many intervals there were, and how many of them held the truth.
#[derive(Clone, Copy, Debug, Default)]
pub struct Covered {
    /// Intervals.
    pub given: u32,
    /// Those that held the truth.
    pub held: u32,
}

impl Covered {
    /// Counts an interval, if there is one.
    pub fn count(&mut self, interval: Option<[f64; 2]>, truth: f64) {
        let Some([low, high]) = interval else { return };
        self.given += 1;
        self.held += u32::from(low <= truth && truth <= high);
    }

    /// Returns the share of intervals that held the truth.
    #[must_use]
    pub fn share(self) -> f64 {
        f64::from(self.held) / f64::from(self.given)
    }
}
