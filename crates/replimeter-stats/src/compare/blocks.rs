//! Blocks of consecutive samples, longer than their dependence.

use super::{
    LONGER, MAX_BLOCKS, MIN_BLOCKS, UNCLEAR_BLOCKS, mean,
    resampled::{Resampled, of_rates},
};

/// Like [`of_rates`], for counts in the order of time, which depend on their
/// neighbors: they are first joined to blocks.
///
/// `None` when the denominators add up to 0.
#[must_use]
pub fn of_rates_in_time(counts: &[(f64, f64)]) -> Option<Resampled> {
    let shares: Vec<f64> = counts
        .iter()
        .map(|(sum, weight)| if *weight > 0.0 { sum / weight } else { 0.0 })
        .collect();
    let cut = Cut::of(counts.len(), &shares);
    let joined: Vec<(f64, f64)> = cut
        .ranges()
        .map(|range| {
            counts[range]
                .iter()
                .fold((0.0, 0.0), |sum, next| (sum.0 + next.0, sum.1 + next.1))
        })
        .collect();
    cut.rate(&joined)
}

/// Returns the best block length for the bootstrap of a series' mean (Politis & White 2004 for the
/// circular bootstrap, as corrected by Patton, Politis & White 2009); at least 1.
pub(super) fn politis_white(series: &[f64]) -> f64 {
    let count = series.len();
    if count < 10 {
        return 1.0;
    }
    let middle = mean(series);
    let centred: Vec<f64> = series.iter().map(|value| value - middle).collect();
    let covariance = |lag: usize| {
        centred[lag..]
            .iter()
            .zip(&centred)
            .map(|(one, other)| one * other)
            .sum::<f64>()
            / count as f64
    };
    let zero = covariance(0);
    if zero <= 0.0 || !zero.is_finite() {
        return 1.0;
    }
    let decades = (count as f64).log10();
    let quiet = (decades.sqrt().ceil() as usize).max(5);
    let most = ((count as f64).sqrt().ceil() as usize + quiet).min(count - 1);
    let bound = 2.0 * (decades / count as f64).sqrt();
    let covariances: Vec<f64> = (0..=most).map(covariance).collect();
    let significant = |lag: usize| {
        covariances
            .get(lag)
            .is_some_and(|value| value.abs() / zero >= bound)
    };
    // The last lag before a sufficiently long run of negligible ones.
    let last = (0..=most)
        .find(|lag| (lag + 1..=lag + quiet).all(|next| !significant(next)))
        .unwrap_or(most);
    let reach = (2 * last.max(1)).min(most);
    let (mut sum, mut spectrum) = (0.0, zero);
    for (lag, value) in covariances.iter().enumerate().skip(1).take(reach) {
        let share = lag as f64 / reach as f64;
        let flat = if share <= 0.5 {
            1.0
        } else {
            2.0 * (1.0 - share)
        };
        sum += 2.0 * flat * lag as f64 * value;
        spectrum += 2.0 * flat * value;
    }
    if spectrum <= 0.0 {
        return 1.0;
    }
    let length =
        (2.0 * sum.powi(2) / (4.0 / 3.0 * spectrum.powi(2))).cbrt() * (count as f64).cbrt();
    let ceiling = (3.0 * (count as f64).sqrt()).min(count as f64 / 3.0).ceil();
    length.clamp(1.0, ceiling)
}

/// The division of a series into blocks.
pub(super) struct Cut {
    count: usize,
    pub(super) blocks: usize,
    pub(super) short: bool,
}

impl Cut {
    /// Divides `count` samples, using `cells` of equal size in the same order.
    pub(super) fn of(count: usize, cells: &[f64]) -> Self {
        let per_cell = count as f64 / cells.len().max(1) as f64;
        let wanted = (LONGER * politis_white(cells) * per_cell).max((count as f64).cbrt());
        let blocks = (count as f64 / wanted).floor() as usize;
        let short = blocks < MIN_BLOCKS;
        let blocks = if short {
            UNCLEAR_BLOCKS.min(count).max(1)
        } else {
            blocks.min(MAX_BLOCKS)
        };
        Self {
            count,
            blocks,
            short,
        }
    }

    pub(super) fn ranges(&self) -> impl Iterator<Item = std::ops::Range<usize>> + '_ {
        (0..self.blocks)
            .map(|block| block * self.count / self.blocks..(block + 1) * self.count / self.blocks)
    }

    pub(super) fn length(&self) -> f64 {
        self.count as f64 / self.blocks as f64
    }

    /// Returns the sum over the weight of these blocks.
    pub(super) fn rate(&self, blocks: &[(f64, f64)]) -> Option<Resampled> {
        let resampled = of_rates(blocks)?;
        if self.count < 2 * MIN_BLOCKS {
            return Some(Resampled {
                short: true,
                ..Resampled::without_resamples(resampled.value, self.count as u64)
            });
        }
        Some(Resampled {
            samples: self.count as u64,
            block_length: self.length(),
            short: self.short,
            ..resampled
        })
    }
}
