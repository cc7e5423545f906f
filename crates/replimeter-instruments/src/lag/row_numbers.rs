//! Lag by the number of a row within its start: whether servers had settled when rows began to count.

use replimeter_model::time::Nanos;
use replimeter_stats::{
    by_start::ByStart,
    starts::{Rounds, of_ratio},
};

use crate::lag::results::LagOfRows;

/// Rows 1 to 10 of every start, 11 to 20, to 50, to 100 and so on: what changes early changes fast.
#[derive(Clone, Debug, Default)]
pub(crate) struct RowNumbers {
    starts: usize,
    /// Rows of the start under way.
    rows: u64,
    parts: Vec<ByStart>,
}

/// Returns the last row of a part, counted from 0.
fn last_row(part: usize) -> u64 {
    let power = u32::try_from(part / 3).unwrap_or(u32::MAX);
    [10, 20, 50][part % 3] * 10u64.saturating_pow(power)
}

impl RowNumbers {
    /// Separates the rows that follow, which are of a new start of the servers.
    pub(crate) fn begin_start(&mut self) {
        self.starts += 1;
        self.rows = 0;
        self.parts.iter_mut().for_each(ByStart::begin_start);
    }

    /// Adds a row; `None` if it was not seen.
    pub(crate) fn record(&mut self, lag: Option<Nanos>) {
        self.rows += 1;
        let part = (0..).find(|part| self.rows <= last_row(*part)).unwrap_or(0);
        while self.parts.len() <= part {
            let mut new = ByStart::default();
            (0..self.starts).for_each(|_| new.begin_start());
            self.parts.push(new);
        }
        if let Some(lag) = lag {
            self.parts[part].record(lag);
        }
    }

    /// Returns the medians, and their ratios to the last part in which every start has rows; none below two parts.
    pub(crate) fn parts(&self) -> Vec<LagOfRows> {
        let medians: Vec<Rounds> = self.parts.iter().map(medians).collect();
        let complete = |medians: &Rounds| medians.len() == self.starts;
        let last = medians.iter().rposition(complete).unwrap_or(0);
        if last == 0 {
            return Vec::new();
        }
        let part = |number: usize| LagOfRows {
            first: if number == 0 {
                1
            } else {
                last_row(number - 1) + 1
            },
            last: last_row(number),
            count: self.parts[number].all().count(),
            p50_us: self.parts[number].all().quantile(0.5).map(Nanos::as_micros),
            of_last: of_ratio(&medians[number], &medians[last]),
        };
        (0..=last).map(part).collect()
    }
}

/// Returns the median of each start that has rows.
fn medians(part: &ByStart) -> Rounds {
    let medians = part.numbered_quantiles(0.5);
    medians
        .map(|(start, median)| (start, vec![median.as_micros()]))
        .collect()
}

#[cfg(test)]
mod tests {
    use replimeter_model::random::Random;

    use super::*;

    /// Rows of ten starts, of which the first thirty are slow by a factor.
    fn settled(slow: f64, seed: u64) -> Vec<LagOfRows> {
        let mut random = Random::new(seed);
        let mut numbers = RowNumbers::default();
        for _ in 0..10 {
            numbers.begin_start();
            let level = 300_000.0 * (0.2 * random.normal()).exp();
            for row in 1..=120 {
                let factor = if row <= 30 { slow } else { 1.0 };
                let lag = Nanos((level * factor * (0.3 * random.normal()).exp()) as i64);
                numbers.record((row % 40 != 0).then_some(lag));
            }
        }
        numbers.parts()
    }

    #[test]
    fn slow_first_rows_are_seen() {
        let parts = settled(1.5, 1);
        let rows: Vec<[u64; 3]> = parts
            .iter()
            .map(|part| [part.first, part.last, part.count])
            .collect();
        assert_eq!(
            rows,
            [
                [1, 10, 100],
                [11, 20, 100],
                [21, 50, 290],
                [51, 100, 490],
                [101, 200, 190]
            ]
        );
        assert_eq!(parts[0].of_last.excludes(1.0), Some(true), "{parts:?}");
        assert_eq!(parts[4].of_last.value, Some(1.0));
    }

    #[test]
    fn steady_rows_differ_at_the_nominal_rate() {
        let differs = |seed: &u64| settled(1.0, *seed)[0].of_last.excludes(1.0) == Some(true);
        let differences = (0..200).filter(differs).count();
        // Three standard errors of 5 % of 200 are 9.
        assert!((1..=19).contains(&differences), "{differences}");
    }

    #[test]
    fn short_starts_have_one_part_and_no_ratio() {
        let mut numbers = RowNumbers::default();
        numbers.begin_start();
        (0..10).for_each(|_| numbers.record(Some(Nanos(5))));
        assert_eq!(numbers.parts(), []);
    }
}
