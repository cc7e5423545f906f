//! A run in a bounded number of time windows.

use replimeter_model::{record::Window, time::Nanos};

use crate::signed::SignedHistogram;

/// Maximum number of windows; neighbors are merged beyond it.
pub const MAX_WINDOWS: usize = 60;
/// Initial length of a window.
const FIRST_LENGTH: i64 = 100_000_000;
/// Significant digits inside a window: 0.5 %.
const DIGITS: u8 = 2;
/// Samples by the time at which their row was sent.
///
/// Starts with windows of 100 ms and doubles their length each time there are more than
/// [`MAX_WINDOWS`], so a run of any length uses the same memory.
#[derive(Clone, Debug)]
pub struct Windows {
    origin: Option<Nanos>,
    length: i64,
    windows: Vec<SignedHistogram>,
}

impl Default for Windows {
    fn default() -> Self {
        Self {
            origin: None,
            length: FIRST_LENGTH,
            windows: Vec::new(),
        }
    }
}

impl Windows {
    /// Adds a sample whose row was sent at `at`; the first one sets the origin.
    pub fn record(&mut self, at: Nanos, value: Nanos) {
        let origin = *self.origin.get_or_insert(at);
        let since = (at - origin).0.max(0);
        while since / self.length >= MAX_WINDOWS as i64 {
            self.halve();
        }
        let index = usize::try_from(since / self.length).unwrap_or(MAX_WINDOWS - 1);
        while self.windows.len() <= index {
            self.windows.push(SignedHistogram::new(DIGITS));
        }
        self.windows[index].record(value);
    }

    /// Merges neighbors, which halves the number of windows.
    fn halve(&mut self) {
        self.length *= 2;
        let merged = self.windows.chunks(2).map(|pair| {
            let mut first = pair[0].clone();
            if let Some(second) = pair.get(1) {
                first.merge(second);
            }
            first
        });
        self.windows = merged.collect();
    }

    /// Returns the non-empty windows, as reported.
    #[must_use]
    pub fn rows(&self) -> Vec<Window> {
        let us = |nanos: Option<Nanos>| nanos.map(Nanos::as_micros);
        self.windows
            .iter()
            .enumerate()
            .filter_map(|(index, window)| {
                let start = index as i64 * self.length;
                Some(Window {
                    start_us: Nanos(start).as_micros(),
                    end_us: Nanos(start + self.length).as_micros(),
                    count: window.count(),
                    min_us: us(window.min())?,
                    p50_us: us(window.quantile(0.5)),
                    p90_us: us(window.quantile(0.9)),
                    p99_us: us(window.quantile(0.99)),
                    max_us: us(window.max())?,
                })
            })
            .collect()
    }

    /// Returns the samples of each window, and how many of these are up to `value`.
    #[must_use]
    pub fn counts(&self, value: Nanos) -> Vec<(u64, u64)> {
        self.windows
            .iter()
            .map(|window| (window.count(), window.count_at_most(value)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_of_any_length_keeps_sixty_windows() {
        let mut windows = Windows::default();
        for second in 0..5_000i64 {
            windows.record(Nanos(7 + second * 1_000_000_000), Nanos(second));
        }
        let rows = windows.rows();
        assert!(
            rows.len() <= MAX_WINDOWS && rows.len() > MAX_WINDOWS / 2 - 1,
            "{}",
            rows.len()
        );
        assert_eq!(rows.iter().map(|row| row.count).sum::<u64>(), 5_000);
    }

    #[test]
    fn windows_count_samples_up_to_a_value() {
        let mut windows = Windows::default();
        for round in 0..4i64 {
            windows.record(Nanos(round * 50_000_000), Nanos(round));
        }
        assert_eq!(windows.counts(Nanos(2)), [(2, 2), (2, 1)]);
    }
}
