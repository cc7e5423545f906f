//! Samples in the order of time: their mean and their quantiles.

use replimeter_model::random::Random;

use super::{BEYOND, GRID, MAX_CELLS, RESAMPLES, SEED, blocks::Cut, mean, resampled::Resampled};

/// Samples of one kind in the order of time.
#[derive(Clone, Debug, Default)]
pub struct SampleSeries {
    values: Vec<f64>,
    sorted: Vec<f64>,
}

impl SampleSeries {
    /// Takes samples in the order of time; values that are not finite are left out.
    #[must_use]
    pub fn new(values: impl IntoIterator<Item = f64>) -> Self {
        let values: Vec<f64> = values
            .into_iter()
            .filter(|value| value.is_finite())
            .collect();
        let mut sorted = values.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        Self { values, sorted }
    }

    /// Returns the number of samples.
    #[must_use]
    pub fn count(&self) -> usize {
        self.values.len()
    }

    /// Returns the samples in the order of time.
    pub fn values(&self) -> impl Iterator<Item = f64> + '_ {
        self.values.iter().copied()
    }

    /// Returns the largest sample.
    #[must_use]
    pub fn max(&self) -> Option<f64> {
        self.sorted.last().copied()
    }

    /// Returns the means of `of` over cells of equal size, in the order of time.
    fn cells(&self, of: impl Fn(f64) -> f64) -> Vec<f64> {
        let count = self.values.len();
        let cells = count.min(MAX_CELLS);
        let cell = |index: usize| {
            let part = &self.values[index * count / cells..(index + 1) * count / cells];
            part.iter().map(|value| of(*value)).sum::<f64>() / part.len() as f64
        };
        (0..cells).map(cell).collect()
    }

    /// Returns the arithmetic mean; `None` without samples.
    #[must_use]
    pub fn mean(&self) -> Option<Resampled> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let cut = Cut::of(count, &self.cells(|value| value));
        let blocks: Vec<(f64, f64)> = cut
            .ranges()
            .map(|range| (self.values[range.clone()].iter().sum(), range.len() as f64))
            .collect();
        cut.rate(&blocks)
    }

    /// Returns the mean of one of several starts; `None` without samples.
    #[must_use]
    pub fn mean_of_start(&self) -> Option<f64> {
        (!self.values.is_empty()).then(|| mean(&self.values))
    }

    /// Returns the quantile `p` of one of several starts; `None` when fewer than five samples lie beyond it.
    #[must_use]
    pub fn quantile_of_start(&self, p: f64) -> Option<f64> {
        let count = self.count() as f64;
        // The small addition keeps 500 × 0.01 from being just below five.
        let enough = count * (1.0 - p).min(p) + 1e-9 >= BEYOND;
        enough.then(|| self.sorted[((count * p).ceil() as usize).clamp(1, self.count()) - 1])
    }

    /// Returns the quantile `p`, by the inverse of the distribution function. `None` when fewer
    /// than ten samples lie beyond it.
    #[must_use]
    pub fn quantile(&self, p: f64) -> Option<Resampled> {
        let count = self.count();
        let beyond = count as f64 * (1.0 - p).min(p);
        // The small addition keeps 1,000 × 0.01 from being just below ten.
        if beyond + 1e-9 < 10.0 {
            return None;
        }
        let rank = |share: f64| ((count as f64 * share).ceil() as usize).clamp(1, count) - 1;
        let value = self.sorted[rank(p)];
        let cut = Cut::of(
            count,
            &self.cells(|sample| f64::from(u8::from(sample <= value))),
        );
        let bare = Resampled {
            short: cut.short,
            ..Resampled::without_resamples(value, count as u64)
        };
        // The ratio of the variance of the blocks' shares to that of independent samples.
        let share = self.sorted.partition_point(|sample| *sample <= value) as f64 / count as f64;
        let below = |range: std::ops::Range<usize>| {
            self.values[range]
                .iter()
                .filter(|sample| **sample <= value)
                .count() as f64
        };
        let pearson: f64 = cut
            .ranges()
            .map(|range| {
                let size = range.len() as f64;
                (below(range) - size * share).powi(2)
                    / (size * share * (1.0 - share)).max(f64::MIN_POSITIVE)
            })
            .sum();
        let inflation = if share < 1.0 {
            (pearson / (cut.blocks - 1).max(1) as f64).max(1.0)
        } else {
            1.0
        };
        // In the middle of the distribution there are enough samples on both sides.
        let tail = !(0.25..=0.75).contains(&p);
        if tail && beyond + 1e-9 < BEYOND * inflation.min(count as f64) {
            return Some(Resampled {
                short: true,
                ..bare
            });
        }
        // The range of resamples' quantiles: eight standard errors of the share to either side.
        let half = 8.0 * (p * (1.0 - p) * inflation / count as f64).sqrt();
        let grid = self.grid(rank((p - half).max(0.0)), rank((p + half).min(1.0)));
        let draws = self.draws(p, &cut, &grid);
        let scale = (cut.blocks as f64 / (cut.blocks as f64 - 1.0)).sqrt();
        let draws = draws
            .into_iter()
            .map(|draw| value + (draw - value) * scale)
            .collect();
        let freedom = cut.blocks as f64 - 1.0;
        Some(Resampled {
            draws,
            freedom,
            blocks: cut.blocks as u64,
            block_length: cut.length(),
            ..bare
        })
    }

    /// Returns the values between two ranks, each once, at most [`GRID`] of them, including both
    /// ends.
    fn grid(&self, from: usize, to: usize) -> Vec<f64> {
        let many = (to - from + 1).min(GRID);
        let mut grid: Vec<f64> = (0..many)
            .map(|index| self.sorted[from + index * (to - from) / (many - 1).max(1)])
            .collect();
        grid.dedup();
        grid
    }

    /// Returns the quantile of each resample of blocks.
    fn draws(&self, p: f64, cut: &Cut, grid: &[f64]) -> Vec<f64> {
        let blocks = cut.blocks;
        // For each value of the grid, the number of each block's samples up to it.
        let mut at_most = vec![0u32; grid.len() * blocks];
        let mut sizes = vec![0u64; blocks];
        for (block, range) in cut.ranges().enumerate() {
            sizes[block] = range.len() as u64;
            for value in &self.values[range] {
                let place = grid.partition_point(|step| step < value);
                if place < grid.len() {
                    at_most[place * blocks + block] += 1;
                }
            }
        }
        for place in 1..grid.len() {
            for block in 0..blocks {
                at_most[place * blocks + block] += at_most[(place - 1) * blocks + block];
            }
        }
        let mut random = Random::new(SEED);
        let mut times = vec![0u32; blocks];
        let one = |_: usize| {
            times.fill(0);
            (0..blocks).for_each(|_| times[random.below(blocks)] += 1);
            let total: u64 = times
                .iter()
                .zip(&sizes)
                .map(|(times, size)| u64::from(*times) * size)
                .sum();
            let needed = (total as f64 * p).ceil() as u64;
            let reaches = |place: usize| {
                let row = &at_most[place * blocks..(place + 1) * blocks];
                row.iter()
                    .zip(&times)
                    .map(|(count, times)| u64::from(*count) * u64::from(*times))
                    .sum::<u64>()
                    >= needed
            };
            let (mut low, mut high) = (0, grid.len() - 1);
            while low < high {
                let middle = low.midpoint(high);
                if reaches(middle) {
                    high = middle
                } else {
                    low = middle + 1
                }
            }
            grid[low]
        };
        (0..RESAMPLES).map(one).collect()
    }
}
