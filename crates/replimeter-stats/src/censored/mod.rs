//! Estimates a distribution of times from brackets.
//!
//! A poll shows of a time only that it lies in (low, high]. The distribution of such times is
//! estimated by the non-parametric maximum likelihood estimate for interval-censored data (Peto
//! 1973, Turnbull 1976): the distribution under which the observed brackets are the most probable.
//! It puts mass only into *innermost* intervals, which begin at some bracket's low end, end at some
//! bracket's high end and contain no other end; the brackets do not determine how the mass lies
//! within one of them, so a quantile is known only to within an interval.
//!
//! The estimate assumes that the times of reads do not depend on the bracketed time beyond the
//! bracket itself.

mod estimate;
mod likelihood;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use replimeter_model::time::Nanos;

pub use estimate::{Npmle, Quantile};
use likelihood::{Problem, turnbull_intervals};

use crate::grid;

/// Maximum number of distinct brackets; with more, the grid is made coarser.
const MAX_PAIRS: usize = 8192;
/// Each coarsening keeps every other point; this many leave one point per doubling.
const COARSEST: u32 = 7;
/// Grid index of the low end of a bracket without one.
const OPEN: i32 = i32::MIN;
/// The iteration ends when the log-likelihood is at most this far below its maximum, which changes
/// no figure by more than 0.05 standard errors.
const TOLERANCE: f64 = 1e-3;
/// Maximum number of iterations; [`Npmle::gap`] is the remaining distance.
const MAX_STEPS: usize = 300;

/// Brackets (low, high], counted on a grid, so that memory does not grow with their number.
///
/// Ends are moved outwards to the next point of the grid, whose points are 0.4 to 0.8 % of their
/// value apart (64 ns below 16 µs); when there would be more than 8192 distinct brackets, every
/// other point is dropped.
#[derive(Clone, Debug, Default)]
pub struct Brackets {
    pairs: HashMap<(i32, i32), u64>,
    coarse: u32,
    count: u64,
}

/// High end of a bracket that has none: the time was not reached when it was last looked for.
pub const NEVER: Nanos = Nanos(1 << 60);

impl Brackets {
    /// Adds a time that is later than `low`, and of which no more is known.
    pub fn record_later_than(&mut self, low: Nanos) {
        self.record(Some(low), NEVER);
    }

    /// Adds a time that lies in (`low`, `high`]; without `low` there is no lower end. Equal ends
    /// mean a time that is known exactly.
    pub fn record(&mut self, low: Option<Nanos>, high: Nanos) {
        let high_number = grid::ceil(high.0);
        let low_number = low.map_or(OPEN, |low| {
            grid::floor(low.0.min(high.0)).min(high_number - 1)
        });
        *self
            .pairs
            .entry(coarsened((low_number, high_number), self.coarse))
            .or_insert(0) += 1;
        self.count += 1;
        while self.pairs.len() > MAX_PAIRS && self.coarse < COARSEST {
            self.coarse += 1;
            for (pair, count) in std::mem::take(&mut self.pairs) {
                *self.pairs.entry(coarsened(pair, self.coarse)).or_insert(0) += count;
            }
        }
    }

    /// Returns the number of brackets.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the estimate; `None` without brackets.
    #[must_use]
    pub fn estimate(&self) -> Option<Npmle> {
        let mut pairs: Vec<((i32, i32), u64)> = self
            .pairs
            .iter()
            .map(|(pair, count)| (*pair, *count))
            .collect();
        if pairs.is_empty() {
            return None;
        }
        pairs.sort_unstable();
        let intervals = turnbull_intervals(pairs.iter().map(|(pair, _)| *pair));
        let problem = Problem::new(&pairs, &intervals);
        let even = vec![1.0 / intervals.len() as f64; intervals.len()];
        let fit = problem.fit(&problem.weights, even, TOLERANCE, MAX_STEPS);
        let place = |number: i32| {
            if number == OPEN {
                Nanos(i64::MIN)
            } else {
                Nanos(grid::at(number))
            }
        };
        let intervals: Vec<(Nanos, Nanos)> = intervals
            .into_iter()
            .map(|(low, high)| (place(low), place(high)))
            .collect();
        Some(Npmle {
            intervals,
            problem,
            fit,
            count: self.count,
        })
    }
}

/// Moves both ends outwards to points that remain after `coarse` coarsenings.
fn coarsened((low, high): (i32, i32), coarse: u32) -> (i32, i32) {
    let low = if low == OPEN {
        OPEN
    } else {
        (low >> coarse) << coarse
    };
    (low, -((-high >> coarse) << coarse))
}
