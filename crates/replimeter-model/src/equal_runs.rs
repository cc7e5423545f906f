//! How much runs of one plan differ.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::compare::Quantity;

/// How much the figure that leads the headline differs between runs of one plan, on one machine: this run and earlier ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EqualRuns {
    /// Number of runs, five or more.
    pub runs: u64,
    /// What the figure is of: a replica, a load.
    pub figure: String,
    /// Its unit.
    pub unit: Quantity,
    /// Smallest of the runs.
    pub min: f64,
    /// Largest of them.
    pub max: f64,
    /// By how much one such run differs from another one, in percent: the ends of 95 %, by Student's t of the logarithms. Null if a run's figure is 0 or
    /// negative.
    pub differ_percent: Option<[f64; 2]>,
}
