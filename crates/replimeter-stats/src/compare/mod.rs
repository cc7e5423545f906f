//! The certainty that two runs, or two sets of runs, differ.
//!
//! Each figure of each run is resampled in the way that its samples allow:
//!
//! - *Samples in the order of time* ([`SampleSeries`]) are not independent: neighbors share busy moments. They are cut into
//!   blocks that are longer than the dependence, and whole blocks are drawn with replacement (Carlstein 1986; Lahiri
//!   2003, §2.6). The length of blocks is estimated for each figure, on the series that its error comes from (the values
//!   for a mean, "up to the quantile or not" for a quantile), by the rule of Politis & White (2004) as corrected by
//!   Patton, Politis & White (2009). That length is best for the bootstrap's mean square error but slightly short for a
//!   correct interval, so blocks are [`LONGER`] times as long, and at least the cube root of the number of samples.
//!   There are at most [`MAX_BLOCKS`] blocks: longer ones do no harm.
//! - *Blocks that a run already has* ([`of_blocks`], [`of_rates`]) are drawn unchanged.
//! - *Fresh starts of servers* ([`of_starts`]) give one value each: Student's t of the values, or of their logarithms.
//! - *Figures recorded with an interval* ([`Resampled::of_interval`]), including shares, are spread according to that
//!   interval.
//!
//! Starts of servers are drawn before the blocks in them ([`of_units`]): starts differ more than blocks ([`crate::starts`]). Of several runs each gives one
//! value ([`of_runs`]): what is within them shares their minutes of the machine. One run a side says nothing about other runs; [`RunSpread`]
//! is what several runs of equal settings say.
//!
//! Then the two sides are compared: the interval of a difference is computed from the distances of both sides' ends
//! (the method of variance estimates recovery, Zou & Donner 2008), that of a ratio likewise from logarithms, and both
//! are widened for few blocks or runs by Student's distribution with the degrees of freedom of Welch (1947). The same
//! widening gives a p-value that agrees with the interval: it is below 5 % exactly when the 95 % interval excludes
//! "no difference". [`holm`] corrects many figures at once.

mod blocks;
mod resampled;
mod run_spread;
mod sample_series;
mod spread;
#[cfg(test)]
mod tests;
mod units;

pub use blocks::of_rates_in_time;
pub use resampled::{Resampled, of_blocks, of_rates, of_runs, of_starts, of_units};
pub use run_spread::{MIN_KNOWN, RunSpread};
pub use sample_series::SampleSeries;
pub use spread::{Spread, difference, holm, log_ratio};
pub use units::between_starts;

/// Resamples behind an interval.
pub const RESAMPLES: usize = 2000;
/// Maximum number of blocks of a series.
pub const MAX_BLOCKS: usize = 256;
/// Minimum number of blocks of the rule's length. With fewer, this run does not show how long dependence lasts.
pub const MIN_BLOCKS: usize = 10;
/// The number of blocks in that case, as long as possible; Student's distribution makes their intervals wide.
pub const UNCLEAR_BLOCKS: usize = 4;
/// The factor between the block length used and the rule's.
pub const LONGER: f64 = 3.0;
/// The minimum number of effective samples beyond a quantile that has an interval.
pub const BEYOND: f64 = 5.0;
/// The level of the intervals.
pub const LEVEL: f64 = 0.95;

/// Maximum number of cells of a series, from which dependence and blocks are computed.
const MAX_CELLS: usize = 4096;
/// Number of candidate values for a resample's quantile.
const GRID: usize = 512;
/// The bootstrap's seed: the same samples always give the same interval.
const SEED: u64 = 0xC03B_A2E5_2004_2009;
/// The power of the smallest detectable difference.
const POWER: f64 = 0.8;

pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

pub(crate) fn variance(values: &[f64]) -> f64 {
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
