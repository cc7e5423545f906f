//! Figures with their resamples.

use replimeter_model::{estimate::Estimate, random::Random};
use statrs::distribution::{ContinuousCDF, Normal};

use super::{LEVEL, RESAMPLES, SEED, mean, spread::Spread, units, variance};
use crate::student::Z95;

/// A figure with its resamples.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resampled {
    /// The figure.
    pub value: f64,
    /// The figure of each resample; empty when there is too little to resample.
    pub draws: Vec<f64>,
    /// Degrees of freedom of their spread.
    pub freedom: f64,
    /// The value of each independent unit, a run or a fresh start of the servers: the figure has no other resamples. Empty for one run
    /// of servers that ran already, and for figures that have their starts in the resamples.
    pub units: Vec<f64>,
    /// The standard error that the units show within themselves, of logarithms if all units are positive: theirs is not below it.
    pub(super) within: f64,
    /// Fresh starts of the servers among or in the units.
    pub starts: u64,
    /// Samples behind the figure.
    pub samples: u64,
    /// Blocks that were drawn; 0 if none.
    pub blocks: u64,
    /// Samples in a block, on average.
    pub block_length: f64,
    /// Whether the run is too short to show how long samples depend on one another: an interval is from [`UNCLEAR_BLOCKS`](super::UNCLEAR_BLOCKS)
    /// blocks and may still be too narrow, or there is no interval.
    pub short: bool,
}

impl Resampled {
    /// Returns a figure without resamples.
    #[must_use]
    pub fn without_resamples(value: f64, samples: u64) -> Self {
        Self {
            value,
            samples,
            ..Self::default()
        }
    }

    /// Returns a figure with a given 95 % interval, represented as two halves of normal
    /// distributions.
    #[must_use]
    pub fn of_interval(value: f64, ends: Option<[f64; 2]>, samples: u64) -> Self {
        let bare = Self::without_resamples(value, samples);
        let Some([low, high]) = ends.filter(|ends| ends.iter().all(|end| end.is_finite())) else {
            return bare;
        };
        let (below, above) = (
            ((value - low) / Z95).max(0.0),
            ((high - value) / Z95).max(0.0),
        );
        let normal = Normal::standard();
        let mut draws: Vec<f64> = (0..RESAMPLES)
            .map(|index| {
                let z = normal.inverse_cdf((index as f64 + 0.5) / RESAMPLES as f64);
                value + z * if z < 0.0 { below } else { above }
            })
            .collect();
        Random::new(SEED).shuffle(&mut draws);
        // The interval is used as given: it is already widened where that was needed.
        Self {
            draws,
            freedom: f64::INFINITY,
            ..bare
        }
    }

    /// Returns the figure as that of one start, whose interval would leave out the variation between starts.
    #[must_use]
    pub fn of_one_start(self) -> Self {
        Self {
            units: vec![self.value],
            starts: 1,
            ..Self::without_resamples(self.value, self.samples)
        }
    }

    /// Returns the same figure in another unit.
    #[must_use]
    pub fn times(mut self, factor: f64) -> Self {
        self.value *= factor;
        let others = self.draws.iter_mut().chain(&mut self.units);
        others.for_each(|value| *value *= factor);
        self
    }

    /// Returns the figure's standard deviations; `None` when there were no resamples.
    #[must_use]
    pub fn spread(&self) -> Option<Spread> {
        if let Some(spread) = units::spread(&self.units, self.value, self.within) {
            return Some(spread);
        }
        if self.draws.is_empty() || self.freedom < 1.0 || !self.value.is_finite() {
            return None;
        }
        let mut sorted = self.draws.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let rank = sorted.len() / 40;
        let (low, high) = (sorted[rank], sorted[sorted.len() - 1 - rank]);
        if !low.is_finite() || !high.is_finite() {
            return None;
        }
        let (below, above) = (
            ((self.value - low) / Z95).max(0.0),
            ((high - self.value) / Z95).max(0.0),
        );
        Some(Spread {
            value: self.value,
            below,
            above,
            freedom: self.freedom,
        })
    }

    /// Returns the figure with its 95 % interval.
    #[must_use]
    pub fn estimate(&self) -> Estimate {
        let ends = units::interval(&self.units, self.value, self.within)
            .or_else(|| self.spread().map(|spread| spread.interval(LEVEL)));
        Estimate {
            value: Some(self.value),
            ci95: ends.into(),
        }
    }
}

/// Returns the figure of starts of which each gave a value: their geometric mean if all are positive, otherwise their
/// arithmetic mean. The interval is Student's, of the logarithms or of the values.
///
/// `None` without a start. A single one has no interval, however many samples it has.
#[must_use]
pub fn of_starts(values: &[f64], samples: u64) -> Option<Resampled> {
    let (value, freedom) = units::mean_of(values)?;
    Some(Resampled {
        units: values.to_vec(),
        starts: values.len() as u64,
        freedom,
        ..Resampled::without_resamples(value, samples)
    })
}

/// Returns the figure of several runs, which are the units: each gives one value, the figure of its starts or samples. The starts of one run
/// share its minutes of the machine, so they say nothing about another run.
///
/// `None` without a run. A single one is returned unchanged.
#[must_use]
pub fn of_runs(runs: &[Resampled]) -> Option<Resampled> {
    let (first, rest) = runs.split_first()?;
    if rest.is_empty() {
        return Some(first.clone());
    }
    let values: Vec<f64> = runs.iter().map(|run| run.value).collect();
    let spreads: Vec<_> = runs.iter().map(|run| (run.value, run.spread())).collect();
    let joined = of_starts(&values, runs.iter().map(|run| run.samples).sum())?;
    Some(Resampled {
        within: units::within(&spreads),
        starts: runs.iter().map(|run| run.starts).sum(),
        ..joined
    })
}

/// Returns the mean figure of several starts with equal weight, which have resamples: starts are drawn first, and then their resamples.
///
/// `None` without a start. A single one is returned unchanged.
#[must_use]
pub fn of_units(units: &[Resampled]) -> Option<Resampled> {
    let (first, rest) = units.split_first()?;
    if rest.is_empty() {
        return Some(first.clone());
    }
    let count = units.len() as f64;
    let values: Vec<f64> = units.iter().map(|unit| unit.value).collect();
    let middle = mean(&values);
    let between: f64 = values.iter().map(|value| (value - middle).powi(2)).sum();
    let within = units.iter().map(|unit| variance(&unit.draws)).sum::<f64>() / count;
    let by_units = between / (count * (count - 1.0));
    let whole = by_units.max(within / count);
    // The variance left for the units after that within them.
    let rest = (whole * count - within).max(0.0);
    let scale = if between > 0.0 {
        (rest * count / between).sqrt()
    } else {
        0.0
    };
    let mut random = Random::new(SEED);
    let draws = (0..RESAMPLES).map(|_| {
        let one = |random: &mut Random| {
            let unit = &units[random.below(units.len())];
            let inside = if unit.draws.is_empty() {
                0.0
            } else {
                unit.draws[random.below(unit.draws.len())] - unit.value
            };
            (unit.value - middle) * scale + inside
        };
        middle + (0..units.len()).map(|_| one(&mut random)).sum::<f64>() / count
    });
    let mut draws: Vec<f64> = draws.collect();
    // With two units, resamples reach no farther than the units themselves, which is less than their variance
    // requires.
    let mut sorted = draws.clone();
    sorted.sort_unstable_by(f64::total_cmp);
    let rank = RESAMPLES / 40;
    let reached = (sorted[RESAMPLES - 1 - rank] - sorted[rank]) / (2.0 * Z95);
    if reached > 0.0 && reached < whole.sqrt() {
        let widening = whole.sqrt() / reached;
        draws
            .iter_mut()
            .for_each(|draw| *draw = middle + (*draw - middle) * widening);
    }
    Some(Resampled {
        value: middle,
        draws,
        // Two units that happen to be similar show little of the spread between units, however well each
        // is known.
        freedom: count - 1.0,
        samples: units.iter().map(|unit| unit.samples).sum(),
        blocks: units.iter().map(|unit| unit.blocks).sum(),
        block_length: mean(
            &units
                .iter()
                .map(|unit| unit.block_length)
                .collect::<Vec<_>>(),
        ),
        short: units.iter().any(|unit| unit.short),
        ..Resampled::default()
    })
}

/// Returns the mean of independent blocks with equal weight.
///
/// `None` without a block; a single one has no resamples.
#[must_use]
pub fn of_blocks(blocks: &[f64]) -> Option<Resampled> {
    let pairs: Vec<(f64, f64)> = blocks.iter().map(|value| (*value, 1.0)).collect();
    of_rates(&pairs)
}

/// Returns a ratio of sums over independent blocks: events over time or trials.
///
/// `None` when the denominators add up to 0.
#[must_use]
pub fn of_rates(blocks: &[(f64, f64)]) -> Option<Resampled> {
    let total: f64 = blocks.iter().map(|(_, weight)| weight).sum();
    if total <= 0.0
        || blocks
            .iter()
            .any(|(sum, weight)| !sum.is_finite() || *weight < 0.0)
    {
        return None;
    }
    let value = blocks.iter().map(|(sum, _)| sum).sum::<f64>() / total;
    let size = blocks.len();
    let mut resampled = Resampled {
        blocks: size as u64,
        block_length: 1.0,
        ..Resampled::without_resamples(value, size as u64)
    };
    if size > 1 {
        let scale = (size as f64 / (size as f64 - 1.0)).sqrt();
        let mut random = Random::new(SEED);
        let draws = (0..RESAMPLES).map(|_| {
            let (mut sum, mut weight) = (0.0, 0.0);
            for _ in 0..size {
                let (more, by) = blocks[random.below(size)];
                sum += more;
                weight += by;
            }
            if weight > 0.0 {
                value + (sum / weight - value) * scale
            } else {
                value
            }
        });
        resampled.draws = draws.collect();
        resampled.freedom = (size - 1) as f64;
    }
    Some(resampled)
}
