//! A run in a bounded number of time windows.

use replimeter_model::{record::Window, time::Nanos};

use crate::signed::SignedHistogram;

/// Maximum number of windows; neighbors are merged beyond it.
pub const MAX_WINDOWS: usize = 60;
/// Initial length of a window.
const FIRST_LENGTH: i64 = 100_000_000;
/// Significant digits inside a window: 0.5 %.
const DIGITS: u8 = 2;
/// Minimum samples of a section whose share is compared with the others'.
const STRETCH: u64 = 5;
/// Minimum number of sections to compare.
const STRETCHES: usize = 8;

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

    /// Returns the factor by which dependence between neighbors inflates the variance of the share
    /// of samples up to `value`: the Pearson dispersion of that share between sections of the run
    /// (McCullagh & Nelder 1989, §4.5), which is one on average for independent samples. Never below
    /// one. Neighboring windows are joined until a section has five samples; `None` when there are
    /// fewer than eight sections, too few to estimate it.
    #[must_use]
    pub fn inflation(&self, value: Nanos) -> Option<f64> {
        let mut stretches: Vec<(f64, f64)> = Vec::new();
        let (mut count, mut below) = (0, 0);
        for window in &self.windows {
            count += window.count();
            below += window.count_at_most(value);
            if count >= STRETCH {
                stretches.push((count as f64, below as f64));
                (count, below) = (0, 0);
            }
        }
        if let Some(last) = stretches.last_mut() {
            last.0 += count as f64;
            last.1 += below as f64;
        }
        if stretches.len() < STRETCHES {
            return None;
        }
        let total: f64 = stretches.iter().map(|(count, _)| count).sum();
        let p = stretches.iter().map(|(_, below)| below).sum::<f64>() / total;
        if !(p > 0.0 && p < 1.0) {
            return Some(1.0);
        }
        let pearson: f64 = stretches
            .iter()
            .map(|(count, below)| (below - count * p).powi(2) / (count * p * (1.0 - p)))
            .sum();
        Some((pearson / (stretches.len() - 1) as f64).max(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small deterministic generator (Marsaglia 2003), for repeatable tests.
    pub(crate) struct Xorshift(u64);

    impl Xorshift {
        pub(crate) fn new() -> Self {
            Self(88_172_645_463_325_252)
        }

        pub(crate) fn next(&mut self) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0
        }
    }

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
    fn only_clustered_samples_are_inflated() {
        let mut random = Xorshift::new();
        let (mut independent, mut clumped) = (Windows::default(), Windows::default());
        for round in 0..6_000i64 {
            let at = Nanos(round * 1_000_000);
            independent.record(at, Nanos((random.next() % 1000) as i64));
            // Whole windows are slow or fast together.
            clumped.record(at, Nanos(if (round / 100) % 2 == 0 { 100 } else { 900 }));
        }
        let inflation = independent.inflation(Nanos(500)).unwrap();
        assert!((1.0..1.8).contains(&inflation), "{inflation}");
        assert!(clumped.inflation(Nanos(500)).unwrap() > 50.0);
    }

    #[test]
    fn sparse_runs_use_longer_windows_and_short_ones_none() {
        let mut sparse = Windows::default();
        for round in 0..100i64 {
            // Two samples a second, ten slow ones after ten fast ones.
            sparse.record(
                Nanos(round * 500_000_000),
                Nanos(if (round / 10) % 2 == 0 { 100 } else { 900 }),
            );
        }
        assert!(sparse.inflation(Nanos(500)).unwrap() > 3.0);
        let mut short = Windows::default();
        for round in 0..30i64 {
            short.record(Nanos(round * 500_000_000), Nanos(round));
        }
        assert_eq!(short.inflation(Nanos(15)), None);
    }
}
