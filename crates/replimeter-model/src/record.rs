//! What the records of all runs have.
//!
//! Every time is a number in microseconds and its name ends in `_us`; what the
//! sample cannot carry is null.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a set of times is distributed.
///
/// A quantile is null when fewer than ten samples lie beyond it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Distribution {
    /// Number of samples.
    pub count: u64,
    /// Smallest, exact.
    pub min_us: Option<f64>,
    /// Arithmetic mean, exact.
    pub mean_us: Option<f64>,
    /// Standard deviation of the samples (n − 1).
    pub stdev_us: Option<f64>,
    /// Median.
    pub p50_us: Option<f64>,
    /// 95 % confidence interval of the median, in microseconds; null when there are too few samples.
    pub p50_us_ci95: Option<[f64; 2]>,
    /// 90th percentile.
    pub p90_us: Option<f64>,
    /// 95 % confidence interval of the 90th percentile, in microseconds.
    pub p90_us_ci95: Option<[f64; 2]>,
    /// 95th percentile.
    pub p95_us: Option<f64>,
    /// 95 % confidence interval of the 95th percentile, in microseconds.
    pub p95_us_ci95: Option<[f64; 2]>,
    /// 99th percentile.
    pub p99_us: Option<f64>,
    /// 95 % confidence interval of the 99th percentile, in microseconds.
    pub p99_us_ci95: Option<[f64; 2]>,
    /// 99.9th percentile.
    pub p999_us: Option<f64>,
    /// 95 % confidence interval of the 99.9th percentile, in microseconds.
    pub p999_us_ci95: Option<[f64; 2]>,
    /// Largest, exact.
    pub max_us: Option<f64>,
    /// By how much dependence between neighbouring rounds inflates the variance
    /// at the median; 1 means independent. The effective sample size is
    /// `count / inflation`. Null when the run is too short to tell; there are no
    /// intervals then.
    pub inflation: Option<f64>,
}

/// How closely brackets determine an estimate made from them.
///
/// A quantile is known to within an interval `[low, high]` in microseconds, in
/// which no bracket begins or ends; it is reported as that interval's middle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Innermost {
    /// Of the median.
    pub p50_us: Option<[f64; 2]>,
    /// Of the 90th percentile.
    pub p90_us: Option<[f64; 2]>,
    /// Of the 99th percentile.
    pub p99_us: Option<[f64; 2]>,
    /// Steps of the iteration.
    pub steps: u64,
    /// What the log-likelihood may still have been below its maximum when the
    /// iteration ended.
    pub likelihood_gap: f64,
}

/// One bar of a histogram: samples in [`low_us`, `high_us`).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Bin {
    /// Lower end.
    pub from_us: f64,
    /// Upper end.
    pub to_us: f64,
    /// Samples in it.
    pub count: u64,
}

/// One stretch of the run, for "is it predictable?".
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Window {
    /// Beginning, since the first counted round.
    pub start_us: f64,
    /// End.
    pub end_us: f64,
    /// Rows sent in it.
    pub count: u64,
    /// Smallest lag from the acknowledgement.
    pub min_us: f64,
    /// Median, when twenty samples or more.
    pub p50_us: Option<f64>,
    /// 90th percentile, when a hundred samples or more.
    pub p90_us: Option<f64>,
    /// 99th percentile, when a thousand samples or more.
    pub p99_us: Option<f64>,
    /// Largest.
    pub max_us: f64,
}

/// One server of the target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeRecord {
    /// The shape it belongs to.
    pub shape: String,
    /// `primary`, `replica1`, …
    pub name: String,
    /// Host and port.
    pub address: String,
    /// `MariaDB 10.11.19`, …
    pub version: String,
}

/// What was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TargetRecord {
    /// The sandbox's shape, or `endpoints:N`; several with commas.
    pub shape: String,
    /// How each shape replicates, found out from its servers: `async`,
    /// `semi-sync`, `chain`, `galera`, `group`.
    pub modes: Vec<String>,
    /// What was asked for beyond the shape: links, wait point, server options; one
    /// sentence each.
    pub options: Vec<String>,
    /// Whether the servers were ours.
    pub sandbox: bool,
    /// The servers; the primary first.
    pub nodes: Vec<NodeRecord>,
}

impl TargetRecord {
    /// How this shape replicates, in a word; none when it is not among those measured.
    #[must_use]
    pub fn mode_of(&self, shape: &str) -> Option<&str> {
        let mut shapes: Vec<&str> = Vec::new();
        for node in &self.nodes {
            if !shapes.contains(&node.shape.as_str()) {
                shapes.push(&node.shape);
            }
        }
        let index = shapes.iter().position(|known| *known == shape)?;
        self.modes.get(index).map(String::as_str)
    }

    /// The target for a headline. A sandbox's shape says how it replicates; of other servers it was found out.
    #[must_use]
    pub fn headline(&self) -> String {
        if self.sandbox || self.modes.is_empty() {
            return self.shape.clone();
        }
        format!("{} ({})", self.shape, self.modes.join(", "))
    }
}

/// Whether the run came to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RunStatus {
    /// Everything asked for was measured.
    #[default]
    Complete,
    /// Ended by the user; what was measured until then is kept.
    Interrupted,
    /// Ended by an error; what was measured until then is kept.
    Failed,
    /// Measured to the end, but not what was to be measured.
    Invalid,
}

/// What limits the client itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClientRecord {
    /// How late the writes started against their schedule; empty without one.
    pub start_lateness: Distribution,
    /// Whether every core was kept from halting.
    pub keep_awake: bool,
    /// Whether the measuring threads had real-time priority.
    pub real_time: bool,
    /// One reading of the measuring clock, smallest step seen.
    pub clock_step_us: f64,
    /// This machine's cores, which client and sandboxes share.
    pub cores: u64,
}
