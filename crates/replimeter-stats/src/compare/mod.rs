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

mod blocks;
mod course;
mod drawn;
mod spread;
#[cfg(test)]
mod tests;

pub use blocks::of_rates_in_time;
pub use course::Course;
pub use drawn::{Drawn, of_blocks, of_rates, of_units};
pub use spread::{Spread, difference, holm, log_ratio};

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
