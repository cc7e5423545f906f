//! What brackets say of the times inside them.
//!
//! A poll tells of a time only that it lies in (low, high]. The distribution of
//! such times is estimated by the non-parametric maximum likelihood estimate for
//! interval-censored data (Peto 1973, Turnbull 1976): of all distributions it is
//! the one under which the brackets that were seen are the most probable. It puts
//! mass only into *innermost* intervals, which begin at some bracket's low end,
//! end at some bracket's high end and hold no other end between; how the mass lies
//! within one of them the brackets do not say, and so a quantile is known only
//! to within an interval.
//!
//! The estimate assumes that when reads happen does not depend on when the time
//! to be bracketed comes, beyond what the bracket says.

mod estimate;
mod likelihood;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use replimeter_model::time::Nanos;

pub use estimate::{Npmle, Quantile};
use likelihood::{Problem, innermost};

use crate::grid;

/// Different brackets kept; with more, the grid is made coarser.
const MOST_PAIRS: usize = 8192;
/// Each coarsening leaves every other point; this many leave one to a doubling.
const COARSEST: u32 = 7;
/// Number of the low end of a bracket without one.
const OPEN: i32 = i32::MIN;
/// The iteration ends when the log-likelihood is at most this far below its
/// maximum, which moves nothing by more than 0.05 standard errors.
const TOLERANCE: f64 = 1e-3;
/// Or after so many steps; [`Npmle::gap`] says how far it came.
const MOST_STEPS: usize = 300;

/// Brackets (low, high], counted on a grid, so that memory does not grow with
/// their number.
///
/// Ends are moved outwards to the next point of the grid, whose points are 0.4 to
/// 0.8 % of their value apart (64 ns below 16 µs); when there would be more than
/// 8192 different brackets, every other point is given up.
#[derive(Clone, Debug, Default)]
pub struct Brackets {
    pairs: HashMap<(i32, i32), u64>,
    coarse: u32,
    count: u64,
}

impl Brackets {
    /// Adds a time that lies in (`low`, `high`]; without `low` there is no lower
    /// end. Ends that are the same stand for a time that is known exactly.
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
        while self.pairs.len() > MOST_PAIRS && self.coarse < COARSEST {
            self.coarse += 1;
            for (pair, count) in std::mem::take(&mut self.pairs) {
                *self.pairs.entry(coarsened(pair, self.coarse)).or_insert(0) += count;
            }
        }
    }

    /// Brackets so far.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The estimate; `None` without brackets.
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
        let intervals = innermost(pairs.iter().map(|(pair, _)| *pair));
        let problem = Problem::new(&pairs, &intervals);
        let even = vec![1.0 / intervals.len() as f64; intervals.len()];
        let fit = problem.fit(&problem.weights, even, TOLERANCE, MOST_STEPS);
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

/// Moves both ends outwards to points that are left after so many coarsenings.
fn coarsened((low, high): (i32, i32), coarse: u32) -> (i32, i32) {
    let low = if low == OPEN {
        OPEN
    } else {
        (low >> coarse) << coarse
    };
    (low, -((-high >> coarse) << coarse))
}
