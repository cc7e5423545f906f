//! How sure one can be that two runs, or two sets of runs, differ.
//!
//! Each figure of each run is resampled by itself, in the way that its samples allow:
//!
//! - *Samples in the order of time* ([`Course`]) are no independent ones: neighbours share a busy moment. They are cut
//!   into blocks that are longer than the dependence lasts, and whole blocks are drawn with replacement (Carlstein 1986;
//!   Lahiri 2003, §2.6). How long blocks must be is judged for each figure by itself, on the series that its error comes
//!   from (the values for a mean, "at most the quantile or not" for a quantile), by the rule of Politis & White (2004)
//!   as corrected by Patton, Politis & White (2009). That length is best for the bootstrap's mean square error and still
//!   a little short of an honest interval, so [`LONGER`] times as much is taken, and never less than the cube root of
//!   the number of samples. There are at most [`MOST_BLOCKS`] blocks: longer ones do no harm.
//! - *Blocks that a run already has* ([`of_blocks`], [`of_rates`]) are drawn as they are.
//! - *Figures that a record states with an interval* ([`Drawn::of_interval`]), shares among them, are spread as that
//!   interval says.
//!
//! Several runs, or starts of servers, are drawn before what is in them ([`of_units`]), as [`crate::bootstrap`] does and
//! explains.
//!
//! Then two sides are held against each other: the interval of a difference is made from the distances of both sides'
//! ends (the method of variance estimates recovery, Zou & Donner 2008), that of a ratio likewise from logarithms, and
//! both are stretched for few blocks or runs by Student's distribution with the degrees of freedom of Welch (1947). The
//! same stretching gives a p-value that agrees with the interval: it is below 5 % exactly when the 95 % interval leaves
//! "no difference" out. Many figures at once are corrected by [`holm`].

use replimeter_model::estimate::Estimate;
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

use crate::random::Random;

/// Resamples behind an interval.
pub const RESAMPLES: usize = 2000;
/// The most blocks that a course is cut into.
pub const MOST_BLOCKS: usize = 256;
/// The fewest of the rule's length. Where dependence leaves fewer, how long it lasts cannot be told from this run.
pub const FEWEST_BLOCKS: usize = 10;
/// So many blocks, as long as they can be, are drawn then; Student's distribution makes their intervals wide.
pub const UNCLEAR_BLOCKS: usize = 4;
/// How much longer blocks are than the rule's.
pub const LONGER: f64 = 3.0;
/// So many samples, counted as independent ones, must lie beyond a quantile that has an interval.
pub const BEYOND: f64 = 5.0;
/// The level of the intervals.
pub const LEVEL: f64 = 0.95;

/// The 97.5 % point of the standard normal distribution.
const Z95: f64 = 1.959_963_984_540_054;
/// Cells that a course is looked at through, for its dependence and its blocks.
const MOST_CELLS: usize = 4096;
/// Values among which a resample's quantile is looked for.
const GRID: usize = 512;
/// The bootstrap's seed: the same samples always give the same interval.
const SEED: u64 = 0xC03B_A2E5_2004_2009;
/// The power of the smallest difference that "would have been seen".
const POWER: f64 = 0.8;

/// A figure, and what resampling makes of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Drawn {
    /// The figure.
    pub value: f64,
    /// The same of each resample; empty when there is too little to resample.
    pub draws: Vec<f64>,
    /// Degrees of freedom of their spread.
    pub freedom: f64,
    /// Samples behind the figure.
    pub samples: u64,
    /// Blocks that were drawn; 0 for none.
    pub blocks: u64,
    /// Samples in a block, on average.
    pub block_length: f64,
    /// The run is too short to see how long samples depend on one another: an interval is of [`UNCLEAR_BLOCKS`] blocks and
    /// may still be too narrow, or there is none.
    pub short: bool,
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn variance(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let middle = mean(values);
    values
        .iter()
        .map(|value| (value - middle).powi(2))
        .sum::<f64>()
        / (values.len() - 1) as f64
}

impl Drawn {
    /// A figure of which nothing is known but itself.
    #[must_use]
    pub fn bare(value: f64, samples: u64) -> Self {
        Self {
            value,
            samples,
            ..Self::default()
        }
    }

    /// A figure with a 95 % interval from elsewhere: spread as two halves of normal distributions.
    #[must_use]
    pub fn of_interval(value: f64, ends: Option<[f64; 2]>, samples: u64) -> Self {
        let bare = Self::bare(value, samples);
        let Some([low, high]) = ends.filter(|ends| ends.iter().all(|end| end.is_finite())) else {
            return bare;
        };
        let (below, above) = (
            ((value - low) / Z95).max(0.0),
            ((high - value) / Z95).max(0.0),
        );
        let Ok(normal) = Normal::standard_checked() else {
            return bare;
        };
        let mut draws: Vec<f64> = (0..RESAMPLES)
            .map(|index| {
                let z = normal.inverse_cdf((index as f64 + 0.5) / RESAMPLES as f64);
                value + z * if z < 0.0 { below } else { above }
            })
            .collect();
        Random::new(SEED).shuffle(&mut draws);
        // The interval is taken at its word: it has been stretched already where that was needed.
        Self {
            draws,
            freedom: f64::INFINITY,
            ..bare
        }
    }

    /// The same figure in another unit.
    #[must_use]
    pub fn times(mut self, factor: f64) -> Self {
        self.value *= factor;
        self.draws.iter_mut().for_each(|draw| *draw *= factor);
        self
    }

    /// How far the figure may be off; `None` when there were no resamples.
    #[must_use]
    pub fn spread(&self) -> Option<Spread> {
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

    /// The figure with its 95 % interval.
    #[must_use]
    pub fn estimate(&self) -> Estimate {
        let ends = self.spread().map(|spread| spread.interval(LEVEL));
        Estimate {
            value: Some(self.value),
            low: ends.map(|[low, _]| low),
            high: ends.map(|[_, high]| high),
        }
    }
}

trait Standard: Sized {
    fn standard_checked() -> Result<Self, statrs::distribution::NormalError>;
}

impl Standard for Normal {
    fn standard_checked() -> Result<Self, statrs::distribution::NormalError> {
        Self::new(0.0, 1.0)
    }
}

/// A value and how far it may be off to each side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The value.
    pub value: f64,
    /// A standard deviation towards smaller values.
    pub below: f64,
    /// A standard deviation towards larger ones.
    pub above: f64,
    /// Degrees of freedom; infinite where they are not in doubt.
    pub freedom: f64,
}

/// The point of Student's distribution that the share `upper` lies below.
fn student(upper: f64, freedom: f64) -> f64 {
    if freedom > 1e6 {
        return Normal::standard_checked().map_or(f64::NAN, |normal| normal.inverse_cdf(upper));
    }
    StudentsT::new(0.0, 1.0, freedom).map_or(f64::NAN, |student| student.inverse_cdf(upper))
}

/// The share of Student's distribution below `point`.
fn student_below(point: f64, freedom: f64) -> f64 {
    if freedom > 1e6 {
        return Normal::standard_checked().map_or(f64::NAN, |normal| normal.cdf(point));
    }
    StudentsT::new(0.0, 1.0, freedom).map_or(f64::NAN, |student| student.cdf(point))
}

impl Spread {
    /// The interval at a level such as 0.95; the value itself is always in it.
    #[must_use]
    pub fn interval(&self, level: f64) -> [f64; 2] {
        let reach = student(0.5 + level / 2.0, self.freedom);
        [
            self.value - reach * self.below,
            self.value + reach * self.above,
        ]
    }

    /// The probability of a value so far from 0, or farther, were the truth 0 (two-sided). What resamples alone cannot
    /// tell is not said: where they did not spread at all it is one over their number, or 1 for a value of 0.
    #[must_use]
    pub fn p_value(&self) -> f64 {
        let towards = if self.value > 0.0 {
            self.below
        } else {
            self.above
        };
        if self.value == 0.0 {
            return 1.0;
        }
        if towards <= 0.0 {
            return 1.0 / RESAMPLES as f64;
        }
        (2.0 * student_below(-self.value.abs() / towards, self.freedom)).min(1.0)
    }

    /// The smallest difference from 0 that would be shown at this level in four of five such comparisons.
    #[must_use]
    pub fn seen_from(&self, level: f64) -> f64 {
        let reach = student(0.5 + level / 2.0, self.freedom) + student(POWER, self.freedom);
        reach * self.below.max(self.above)
    }

    /// The same of the value's logarithm; `None` for what is not surely positive.
    #[must_use]
    pub fn log(&self) -> Option<Self> {
        let low = self.value - Z95 * self.below;
        if self.value <= 0.0 || low <= 0.0 {
            return None;
        }
        let below = (self.value / low).ln() / Z95;
        let above = ((self.value + Z95 * self.above) / self.value).ln() / Z95;
        Some(Self {
            value: self.value.ln(),
            below,
            above,
            freedom: self.freedom,
        })
    }
}

/// What `b` is more than `a` (Zou & Donner 2008).
#[must_use]
pub fn difference(a: &Spread, b: &Spread) -> Spread {
    let size = |spread: &Spread| (spread.below.powi(2) + spread.above.powi(2)) / 2.0;
    let (of_a, of_b) = (size(a), size(b));
    let freedom = match of_a + of_b {
        whole if whole > 0.0 => {
            whole.powi(2) / (of_a.powi(2) / a.freedom + of_b.powi(2) / b.freedom)
        }
        _ => a.freedom.min(b.freedom),
    };
    Spread {
        value: b.value - a.value,
        below: b.below.hypot(a.above),
        above: b.above.hypot(a.below),
        // Of two sides that are known for sure it is infinite over infinite.
        freedom: if freedom.is_nan() {
            f64::INFINITY
        } else {
            freedom
        },
    }
}

/// The logarithm of `b` over `a`; `None` where one of them is not surely positive.
#[must_use]
pub fn log_ratio(a: &Spread, b: &Spread) -> Option<Spread> {
    Some(difference(&a.log()?, &b.log()?))
}

/// p-values corrected for their number (Holm 1979): the probability that any of those that are true comes below 5 % is
/// then at most 5 %, however they depend on one another.
#[must_use]
pub fn holm(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|one, other| p_values[*one].total_cmp(&p_values[*other]));
    let mut adjusted = vec![1.0; p_values.len()];
    let mut largest: f64 = 0.0;
    for (rank, index) in order.into_iter().enumerate() {
        largest = largest.max((p_values[index] * (p_values.len() - rank) as f64).min(1.0));
        adjusted[index] = largest;
    }
    adjusted
}

/// The figure over several units, runs or starts, each counting alike: units are drawn first, and then what is in them.
///
/// `None` without a unit. A single one is as it is.
#[must_use]
pub fn of_units(units: &[Drawn]) -> Option<Drawn> {
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
    // What is left for the units when what is in them has contributed its part.
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
    // Of two units resamples reach no farther than the units themselves, which is less than their variance asks for.
    let mut sorted = draws.clone();
    sorted.sort_unstable_by(f64::total_cmp);
    let rank = RESAMPLES / 40;
    let reached = (sorted[RESAMPLES - 1 - rank] - sorted[rank]) / (2.0 * Z95);
    if reached > 0.0 && reached < whole.sqrt() {
        let stretch = whole.sqrt() / reached;
        draws
            .iter_mut()
            .for_each(|draw| *draw = middle + (*draw - middle) * stretch);
    }
    Some(Drawn {
        value: middle,
        draws,
        // Two units that happen to be alike say little about how units differ, however well each is known.
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
    })
}

/// The mean of blocks that do not depend on one another, each counting alike.
///
/// `None` without a block; one alone has no resamples.
#[must_use]
pub fn of_blocks(blocks: &[f64]) -> Option<Drawn> {
    let pairs: Vec<(f64, f64)> = blocks.iter().map(|value| (*value, 1.0)).collect();
    of_rates(&pairs)
}

/// The sum of what happened over the sum of what it is counted by (time, trials), of blocks that do not depend on one
/// another.
///
/// `None` when there is nothing to count by.
#[must_use]
pub fn of_rates(blocks: &[(f64, f64)]) -> Option<Drawn> {
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
    let mut drawn = Drawn {
        blocks: size as u64,
        block_length: 1.0,
        ..Drawn::bare(value, size as u64)
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
        drawn.draws = draws.collect();
        drawn.freedom = (size - 1) as f64;
    }
    Some(drawn)
}

/// The same of counts in the order of time, which do depend on their neighbours: they are joined to blocks first.
///
/// `None` when there is nothing to count by.
#[must_use]
pub fn of_rates_in_time(counts: &[(f64, f64)]) -> Option<Drawn> {
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
    let drawn = of_rates(&joined)?;
    if counts.len() < 2 * FEWEST_BLOCKS {
        return Some(Drawn {
            short: true,
            ..Drawn::bare(drawn.value, counts.len() as u64)
        });
    }
    Some(Drawn {
        samples: counts.len() as u64,
        block_length: cut.length(),
        short: cut.short,
        ..drawn
    })
}

/// How long blocks of a series should be for the bootstrap of its mean (Politis & White 2004 for the circular
/// bootstrap, as corrected by Patton, Politis & White 2009); at least 1.
#[must_use]
pub fn politis_white(series: &[f64]) -> f64 {
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
    // The last lag after which so many in a row are as good as none.
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

/// How a course is cut into blocks.
struct Cut {
    count: usize,
    blocks: usize,
    short: bool,
}

impl Cut {
    /// Of `count` samples, seen through `cells` of equal size in the same order.
    fn of(count: usize, cells: &[f64]) -> Self {
        let per_cell = count as f64 / cells.len().max(1) as f64;
        let wanted = (LONGER * politis_white(cells) * per_cell).max((count as f64).cbrt());
        let blocks = (count as f64 / wanted).floor() as usize;
        let short = blocks < FEWEST_BLOCKS;
        let blocks = if short {
            UNCLEAR_BLOCKS.min(count).max(1)
        } else {
            blocks.min(MOST_BLOCKS)
        };
        Self {
            count,
            blocks,
            short,
        }
    }

    fn ranges(&self) -> impl Iterator<Item = std::ops::Range<usize>> + '_ {
        (0..self.blocks)
            .map(|block| block * self.count / self.blocks..(block + 1) * self.count / self.blocks)
    }

    fn length(&self) -> f64 {
        self.count as f64 / self.blocks as f64
    }
}

/// Samples of one kind in the order of time.
#[derive(Clone, Debug, Default)]
pub struct Course {
    values: Vec<f64>,
    sorted: Vec<f64>,
}

impl Course {
    /// Takes samples in the order of time; what is no number is left out.
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

    /// How many.
    #[must_use]
    pub fn count(&self) -> usize {
        self.values.len()
    }

    /// The largest.
    #[must_use]
    pub fn max(&self) -> Option<f64> {
        self.sorted.last().copied()
    }

    /// The course through cells of equal size, each of which is the mean of `of` its samples.
    fn cells(&self, of: impl Fn(f64) -> f64) -> Vec<f64> {
        let count = self.values.len();
        let cells = count.min(MOST_CELLS);
        let cell = |index: usize| {
            let part = &self.values[index * count / cells..(index + 1) * count / cells];
            part.iter().map(|value| of(*value)).sum::<f64>() / part.len() as f64
        };
        (0..cells).map(cell).collect()
    }

    /// The arithmetic mean; `None` without samples.
    #[must_use]
    pub fn mean(&self) -> Option<Drawn> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let cut = Cut::of(count, &self.cells(|value| value));
        let blocks: Vec<(f64, f64)> = cut
            .ranges()
            .map(|range| (self.values[range.clone()].iter().sum(), range.len() as f64))
            .collect();
        let drawn = of_rates(&blocks)?;
        if count < 2 * FEWEST_BLOCKS {
            return Some(Drawn {
                short: true,
                ..Drawn::bare(drawn.value, count as u64)
            });
        }
        Some(Drawn {
            samples: count as u64,
            block_length: cut.length(),
            short: cut.short,
            ..drawn
        })
    }

    /// The quantile `p`, by the inverse of the distribution function. `None` when fewer than ten samples lie beyond it.
    #[must_use]
    pub fn quantile(&self, p: f64) -> Option<Drawn> {
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
        let bare = Drawn {
            short: cut.short,
            ..Drawn::bare(value, count as u64)
        };
        // By how much the blocks' shares differ more than those of independent samples would.
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
        // In the middle of the samples there are enough on both sides.
        let tail = !(0.25..=0.75).contains(&p);
        if tail && beyond + 1e-9 < BEYOND * inflation.min(count as f64) {
            return Some(Drawn {
                short: true,
                ..bare
            });
        }
        // Where resamples' quantiles can be: eight standard errors of the share to either side.
        let half = 8.0 * (p * (1.0 - p) * inflation / count as f64).sqrt();
        let grid = self.grid(rank((p - half).max(0.0)), rank((p + half).min(1.0)));
        let draws = self.draws(p, &cut, &grid);
        let scale = (cut.blocks as f64 / (cut.blocks as f64 - 1.0)).sqrt();
        let draws = draws
            .into_iter()
            .map(|draw| value + (draw - value) * scale)
            .collect();
        let freedom = cut.blocks as f64 - 1.0;
        Some(Drawn {
            draws,
            freedom,
            blocks: cut.blocks as u64,
            block_length: cut.length(),
            ..bare
        })
    }

    /// Values between two ranks, each once, at most [`GRID`] of them and both ends among them.
    fn grid(&self, from: usize, to: usize) -> Vec<f64> {
        let many = (to - from + 1).min(GRID);
        let mut grid: Vec<f64> = (0..many)
            .map(|index| self.sorted[from + index * (to - from) / (many - 1).max(1)])
            .collect();
        grid.dedup();
        grid
    }

    /// The quantile of each resample of blocks.
    fn draws(&self, p: f64, cut: &Cut, grid: &[f64]) -> Vec<f64> {
        let blocks = cut.blocks;
        // For each value of the grid, how many samples of each block are at most that.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::binomial::Excess;

    /// How the samples of a run behave: what is common to neighbours is an autoregressive course, and slow stretches
    /// come and go.
    #[derive(Clone, Copy, Debug)]
    struct World {
        /// Correlation of neighbours.
        dependence: f64,
        /// How far samples spread: the standard deviation of their logarithm.
        spread: f64,
        /// How often a slow stretch begins, and how long it is on average.
        stretches: Option<(f64, f64)>,
        /// How far runs differ from one another: the standard deviation of their level.
        between: f64,
    }

    const WORLDS: [World; 5] = [
        World {
            dependence: 0.0,
            spread: 0.5,
            stretches: None,
            between: 0.0,
        },
        World {
            dependence: 0.5,
            spread: 0.8,
            stretches: None,
            between: 0.0,
        },
        World {
            dependence: 0.9,
            spread: 0.5,
            stretches: None,
            between: 0.0,
        },
        World {
            dependence: 0.3,
            spread: 0.3,
            stretches: Some((0.004, 15.0)),
            between: 0.0,
        },
        World {
            dependence: 0.97,
            spread: 0.3,
            stretches: None,
            between: 0.0,
        },
    ];

    fn samples(random: &mut Random, world: World, count: usize, level: f64) -> Vec<f64> {
        let (mut state, mut slow) = (random.normal(), false);
        let level = level * (world.between * random.normal()).exp();
        let fresh = (1.0 - world.dependence.powi(2)).sqrt();
        let one = |_: usize| {
            state = world.dependence * state + fresh * random.normal();
            if let Some((begins, long)) = world.stretches {
                slow = random.uniform() < if slow { 1.0 - 1.0 / long } else { begins };
            }
            level * (world.spread * state).exp() * if slow { 3.0 } else { 1.0 }
        };
        (0..count).map(one).collect()
    }

    /// The p-values of a comparison's figures: mean, p50, p90, p99.
    fn p_values(a: &[Vec<f64>], b: &[Vec<f64>]) -> Vec<f64> {
        let figures: [fn(&Course) -> Option<Drawn>; 4] = [
            Course::mean,
            |course| course.quantile(0.5),
            |course| course.quantile(0.9),
            |course| course.quantile(0.99),
        ];
        let courses = |side: &[Vec<f64>]| {
            side.iter()
                .map(|run| Course::new(run.iter().copied()))
                .collect::<Vec<_>>()
        };
        let (a, b) = (courses(a), courses(b));
        let of = |side: &[Course], figure: fn(&Course) -> Option<Drawn>| {
            of_units(&side.iter().map(figure).collect::<Option<Vec<_>>>()?)?.spread()
        };
        let one = |figure: fn(&Course) -> Option<Drawn>| {
            let (a, b) = (of(&a, figure)?, of(&b, figure)?);
            Some(
                log_ratio(&a, &b)
                    .unwrap_or_else(|| difference(&a, &b))
                    .p_value(),
            )
        };
        figures.into_iter().filter_map(one).collect()
    }

    fn alarms(world: World, pairs: u64, count: usize, runs: usize) -> (Excess, [u64; 4]) {
        let mut random = Random::new(count as u64 + (world.dependence * 100.0) as u64);
        let mut side = || {
            (0..runs)
                .map(|_| samples(&mut random, world, count, 200.0))
                .collect::<Vec<_>>()
        };
        let (mut families, mut single) = (0, [0; 4]);
        for _ in 0..pairs {
            let found = p_values(&side(), &side());
            families += u64::from(holm(&found).iter().any(|p| *p < 0.05));
            found
                .iter()
                .zip(&mut single)
                .for_each(|(p, count)| *count += u64::from(*p < 0.05));
        }
        (Excess::over(families, pairs, 0.05), single)
    }

    #[test]
    fn a_run_against_its_like_alarms_in_at_most_five_percent_of_pairs() {
        for (index, world) in WORLDS.into_iter().enumerate() {
            let (excess, single) = alarms(world, 300, if index % 2 == 0 { 4000 } else { 1000 }, 1);
            assert!(
                !excess.significant(),
                "{world:?}: any of four figures, {excess:?}"
            );
            for (figure, count) in ["mean", "p50", "p90", "p99"].iter().zip(single) {
                // Twenty figures are looked at: each by itself at a quarter of a percent.
                let alone = Excess::over(count, 300, 0.05);
                assert!(alone.p_value > 0.0025, "{world:?}: {figure}, {alone:?}");
            }
        }
    }

    #[test]
    fn sets_of_runs_that_differ_among_themselves_do_so_too() {
        let world = World {
            between: 0.1,
            ..WORLDS[1]
        };
        for runs in [2, 4] {
            let (excess, _) = alarms(world, 250, 600, runs);
            assert!(!excess.significant(), "{runs} runs: {excess:?}");
        }
        // One run of each cannot know: this is what the warning about single runs is for.
        let (excess, _) = alarms(world, 100, 600, 1);
        assert!(excess.significant(), "{excess:?}");
    }

    #[test]
    fn taking_neighbours_for_independent_would_alarm_far_more_often() {
        let world = WORLDS[2];
        let mut random = Random::new(3);
        let mut alarms = 0;
        for _ in 0..100 {
            let mut one = || {
                let samples = samples(&mut random, world, 1000, 200.0);
                let half = Z95 * (variance(&samples) / samples.len() as f64).sqrt();
                let middle = mean(&samples);
                Drawn::of_interval(middle, Some([middle - half, middle + half]), 1000)
                    .spread()
                    .unwrap()
            };
            alarms += u64::from(difference(&one(), &one()).p_value() < 0.05);
        }
        assert!(alarms > 30, "{alarms} of 100");
    }

    #[test]
    fn a_shift_of_a_fifth_is_found() {
        let mut random = Random::new(20);
        let mut found = 0;
        for _ in 0..100 {
            let a = vec![samples(&mut random, WORLDS[1], 4000, 200.0)];
            let b = vec![samples(&mut random, WORLDS[1], 4000, 240.0)];
            found += u64::from(holm(&p_values(&a, &b))[1] < 0.05);
        }
        assert!(found >= 95, "{found} of 100");
    }

    #[test]
    fn intervals_of_one_figure_cover_the_truth() {
        // Of exp(0.8 z) the median is 1, and the 90th percentile exp(0.8 × 1.2816).
        let mut random = Random::new(77);
        let (mut median, mut ninetieth) = (0, 0);
        for _ in 0..300 {
            let course = Course::new(samples(&mut random, WORLDS[1], 4000, 1.0));
            let covers = |drawn: Option<Drawn>, truth: f64| {
                u32::from(
                    drawn
                        .unwrap()
                        .estimate()
                        .excludes(truth)
                        .is_some_and(|excludes| !excludes),
                )
            };
            median += covers(course.quantile(0.5), 1.0);
            ninetieth += covers(course.quantile(0.9), (0.8f64 * 1.281_551_565_545).exp());
        }
        // Three standard errors of a share of 300 are 3.8 %.
        assert!(
            median >= 273 && ninetieth >= 273,
            "{median} and {ninetieth} of 300"
        );
    }

    #[test]
    fn the_rule_for_blocks_knows_how_long_dependence_lasts() {
        let mut random = Random::new(5);
        let mut length = |dependence: f64| {
            let world = World {
                dependence,
                spread: 1.0,
                stretches: None,
                between: 0.0,
            };
            politis_white(
                &samples(&mut random, world, 4000, 1.0)
                    .iter()
                    .map(|value| value.ln())
                    .collect::<Vec<_>>(),
            )
        };
        let lengths = [0.0, 0.5, 0.9].map(&mut length);
        assert!(
            lengths[0] < 6.0 && lengths[0] < lengths[1] && lengths[1] < lengths[2],
            "{lengths:?}"
        );
        // The best length for an autoregressive course is (2 G² / D)^(1/3) n^(1/3) with G = 2ρ/((1 − ρ)(1 + ρ)) relative to
        // the spectrum (1 + ρ)/(1 − ρ): (1.5 (2ρ/(1 − ρ²))²)^(1/3) n^(1/3), 81 for ρ = 0.9 and n = 4,000.
        assert!((40.0..180.0).contains(&lengths[2]), "{lengths:?}");
        assert_eq!((politis_white(&[]), politis_white(&[3.0; 50])), (1.0, 1.0));
    }

    #[test]
    fn what_is_too_short_says_so() {
        let mut random = Random::new(8);
        let slow = World {
            dependence: 0.995,
            spread: 0.5,
            stretches: None,
            between: 0.0,
        };
        let course = Course::new(samples(&mut random, slow, 600, 100.0));
        let drawn = course.mean().unwrap();
        assert!(
            drawn.short && drawn.blocks == UNCLEAR_BLOCKS as u64 && drawn.freedom == 3.0,
            "{drawn:?}"
        );
        assert_eq!(
            course.quantile(0.99).map(|drawn| drawn.value),
            None,
            "fewer than ten samples lie beyond it"
        );
        assert!(
            Course::new((0..1000).map(f64::from))
                .quantile(0.99)
                .is_some_and(|drawn| drawn.value == 989.0)
        );
        let few = Course::new([1.0, 2.0, f64::NAN]);
        assert!((few.count(), few.mean().unwrap().spread()) == (2, None));
        assert!(
            Course::default().mean().is_none()
                && of_units(&[]).is_none()
                && of_blocks(&[]).is_none()
        );
        assert!(of_blocks(&[5.0]).unwrap().spread().is_none());
    }

    #[test]
    fn known_answers() {
        // Holm 1979: sorted, times what is left, never falling.
        assert_eq!(holm(&[0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02]);
        assert_eq!(holm(&[]), Vec::<f64>::new());
        // Two means of 10 ± 1.96 and 13 ± 1.96: a difference of 3 with a standard deviation of √2.
        let of = |value: f64| {
            Drawn::of_interval(value, Some([value - Z95, value + Z95]), 50)
                .spread()
                .unwrap()
        };
        let apart = difference(&of(10.0), &of(13.0));
        let [low, high] = apart.interval(LEVEL);
        assert!(
            (apart.value, apart.freedom) == (3.0, f64::INFINITY),
            "{apart:?}"
        );
        assert!(
            (low - (3.0 - 1.96 * 2f64.sqrt())).abs() < 0.02
                && (high - (3.0 + 1.96 * 2f64.sqrt())).abs() < 0.02
        );
        assert!(
            (apart.p_value() - 0.0339).abs() < 0.001,
            "{}",
            apart.p_value()
        );
        assert!((apart.seen_from(LEVEL) - 2f64.sqrt() * (1.96 + 0.8416)).abs() < 0.02);
        // What is 0 on both sides does not differ; what has no spread is not believed for ever.
        let still = |value: f64| {
            Drawn::of_interval(value, Some([value, value]), 9)
                .spread()
                .unwrap()
        };
        assert_eq!(
            (
                difference(&still(0.0), &still(0.0)).p_value(),
                difference(&still(0.0), &still(1.0)).p_value()
            ),
            (1.0, 5e-4)
        );
        // Rates are sums over sums.
        assert_eq!(of_rates(&[(6.0, 2.0), (2.0, 2.0)]).unwrap().value, 2.0);
        assert!(of_rates(&[(1.0, 0.0)]).is_none());
    }

    #[test]
    fn runs_count_alike_and_are_drawn_first() {
        let run = |value: f64| Drawn::of_interval(value, Some([value - 1.0, value + 1.0]), 100);
        let alike = of_units(&[run(10.0), run(10.1), run(9.9)])
            .unwrap()
            .spread()
            .unwrap();
        let apart = of_units(&[run(5.0), run(10.0), run(15.0)])
            .unwrap()
            .spread()
            .unwrap();
        assert!((alike.value - 10.0).abs() < 1e-9 && (apart.value - 10.0).abs() < 1e-9);
        assert_eq!((alike.freedom, apart.freedom), (2.0, 2.0));
        // The standard error of 5, 10, 15 is 5/√3.
        assert!((apart.below - 2.887).abs() < 0.8, "{apart:?}");
        assert!((alike.below - 0.51 / 3f64.sqrt()).abs() < 0.1, "{alike:?}");
    }

    proptest! {
        #[test]
        fn a_figure_lies_in_its_interval_and_a_ratio_turns_over(
            a in 1.0f64..1e6, b in 1.0f64..1e6, wide in 0.001f64..0.3, other in 0.001f64..0.3,
        ) {
            let of = |value: f64, wide: f64| {
                Drawn::of_interval(value, Some([value * (1.0 - wide), value * (1.0 + 2.0 * wide)]), 100).spread().unwrap()
            };
            let (a, b) = (of(a, wide), of(b, other));
            let (there, back) = (log_ratio(&a, &b).unwrap(), log_ratio(&b, &a).unwrap());
            let ([low, high], turned) = (there.interval(LEVEL), back.interval(LEVEL));
            prop_assert!(low <= there.value && there.value <= high);
            prop_assert!((low + turned[1]).abs() < 1e-9 && (high + turned[0]).abs() < 1e-9);
            // The p-value and the interval say the same.
            prop_assert_eq!(there.p_value() < 0.05, low > 0.0 || high < 0.0);
        }

        #[test]
        fn no_course_panics(values in proptest::collection::vec(-1e9f64..1e9, 0..200), p in 0.01f64..0.99) {
            let course = Course::new(values);
            let _ = (course.mean().map(|drawn| drawn.estimate()), course.quantile(p).map(|drawn| drawn.estimate()));
        }

        #[test]
        fn corrected_values_are_never_smaller(values in proptest::collection::vec(0.0f64..1.0, 0..30)) {
            for (value, corrected) in values.iter().zip(holm(&values)) {
                prop_assert!(corrected >= *value && corrected <= 1.0);
            }
        }
    }
}
