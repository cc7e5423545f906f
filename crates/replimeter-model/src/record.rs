//! Parts that the records of all runs share.
//!
//! Every time is a number in microseconds and its name ends in `_us`; a figure
//! that the sample is too small for is null.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{host::HostRecord, replication::Mode};

/// Returns the number of the first start, which is left out of documents and recorded calls.
#[must_use]
pub fn first_start() -> u32 {
    1
}

/// Returns whether it is the first start.
#[must_use]
pub fn is_first_start(start: &u32) -> bool {
    *start == first_start()
}

/// A figure of each start of the servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StartSpread {
    /// Smallest.
    pub min: f64,
    /// Median.
    pub median: f64,
    /// Largest.
    pub max: f64,
}

/// Distribution of a set of times.
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
    /// 95 % confidence interval of the median, in microseconds; null when fewer than ten effective
    /// samples lie beyond it.
    pub p50_us_ci95: Option<[f64; 2]>,
    /// 90th percentile.
    pub p90_us: Option<f64>,
    /// 95 % confidence interval of the 90th percentile, in microseconds. Null, as for all larger quantiles, where fewer than
    /// about fifteen distinct stalls or starts lie beyond it, and from 2 to 21 starts.
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
    /// 90th percentile of each start of the servers, in microseconds; absent for fewer than two starts with five samples
    /// beyond it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p90_us_starts: Option<StartSpread>,
    /// 95th percentile of each start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p95_us_starts: Option<StartSpread>,
    /// 99th percentile of each start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_us_starts: Option<StartSpread>,
    /// What the 99th percentile is at least (97.5 %), where it has no interval: stalls or starts that the run missed only raise it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_us_at_least: Option<f64>,
    /// Largest, exact.
    pub max_us: Option<f64>,
    /// Factor by which dependence between neighboring rounds increases the variance at the
    /// median, and the uncertainty of that factor; 1 means independent. The effective sample size
    /// is `count / inflation`. Null when the run is too short to estimate it; there are no
    /// intervals then.
    pub inflation: Option<f64>,
}

/// Bounds of an estimate that is made from brackets.
///
/// A quantile is known to within an interval `[low, high]` in microseconds, in which no
/// bracket begins or ends; it is reported as the middle of that interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EstimateBounds {
    /// Bounds of the median.
    pub p50_us: Option<[f64; 2]>,
    /// Bounds of the 90th percentile.
    pub p90_us: Option<[f64; 2]>,
    /// Bounds of the 99th percentile.
    pub p99_us: Option<[f64; 2]>,
    /// Steps of the iteration.
    pub steps: u64,
    /// Upper bound of the distance between the log-likelihood and its maximum when the iteration
    /// ended.
    pub likelihood_gap: f64,
    /// Half of the mean duration of the reads that showed a row. Brackets are taken between the
    /// middles of reads, but the server looks at an unknown moment of each, so all times may be
    /// earlier or later by this; the intervals of the estimate include it. For `wait`, the mean width
    /// of the brackets, by which times are at most earlier. 0 for methods that do not read.
    #[serde(default)]
    pub systematic_us: f64,
}

/// One bar of a histogram: samples in [`from_us`, `to_us`).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Bin {
    /// Lower edge.
    pub from_us: f64,
    /// Upper edge.
    pub to_us: f64,
    /// Samples in the bar.
    pub count: u64,
}

/// One window of the run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Window {
    /// Start of the window, since the first counted round.
    pub start_us: f64,
    /// End of the window, since the first counted round.
    pub end_us: f64,
    /// Rows sent in the window.
    pub count: u64,
    /// Smallest lag from the acknowledgement.
    pub min_us: f64,
    /// Median; null for fewer than twenty samples.
    pub p50_us: Option<f64>,
    /// 90th percentile; null for fewer than a hundred samples.
    pub p90_us: Option<f64>,
    /// 99th percentile; null for fewer than a thousand samples.
    pub p99_us: Option<f64>,
    /// Largest lag from the acknowledgement.
    pub max_us: f64,
}

/// One server of the target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeRecord {
    /// Shape that the server belongs to.
    pub shape: String,
    /// `primary`, `replica1`, …
    pub name: String,
    /// Host and port.
    pub address: String,
    /// Product and version: `MariaDB 10.11.19`, …
    pub version: String,
}

/// Servers that were measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TargetRecord {
    /// Shape of the sandbox, or `endpoints:N`; several with commas.
    pub shape: String,
    /// Replication mode of each shape, found on its servers: `async`, `semi-sync`, `chain`,
    /// `galera`, `group`.
    pub modes: Vec<String>,
    /// Options beyond the shape (links, wait point, server options), one sentence each.
    pub options: Vec<String>,
    /// Whether the servers were a sandbox of Replimeter.
    pub sandbox: bool,
    /// Fresh starts of each shape's servers in this run; 0 for servers that ran already.
    #[serde(default)]
    pub fresh_starts: u32,
    /// The servers; the primary is first.
    pub nodes: Vec<NodeRecord>,
}

impl TargetRecord {
    /// Returns the replication mode of this shape; `None` when it was not measured, or the words have more than a mode.
    #[must_use]
    pub fn mode_of(&self, shape: &str) -> Option<Mode> {
        let mut shapes: Vec<&str> = Vec::new();
        for node in &self.nodes {
            if !shapes.contains(&node.shape.as_str()) {
                shapes.push(&node.shape);
            }
        }
        let index = shapes.iter().position(|known| *known == shape)?;
        Mode::named(self.modes.get(index)?)
    }

    /// Returns the target's description for a headline. A sandbox's shape names its mode; for other servers the mode
    /// was detected.
    #[must_use]
    pub fn headline(&self) -> String {
        if self.sandbox || self.modes.is_empty() {
            return self.shape.clone();
        }
        format!("{} ({})", self.shape, self.modes.join(", "))
    }
}

/// Whether the run completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RunStatus {
    /// Completed.
    #[default]
    Complete,
    /// Stopped by the user; the results until then are kept.
    Interrupted,
    /// Ended by an error; the results until then are kept.
    Failed,
    /// Completed, but the results do not describe the intended setup; for example, the
    /// replication mode changed during the run.
    Invalid,
}

/// Limits of the client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClientRecord {
    /// Delay of each write after its scheduled start; empty without a schedule.
    pub start_lateness: Distribution,
    /// Whether idle cores were kept from halting.
    pub keep_awake: bool,
    /// Why, or why not; empty for a run of before this was recorded.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub keep_awake_reason: String,
    /// Whether the measuring threads had real-time priority.
    pub real_time: bool,
    /// Why, or why not; empty for a run of before this was recorded.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub real_time_reason: String,
    /// Smallest observed step of the measuring clock.
    pub clock_step_us: f64,
    /// Cores of this machine, which the client and sandboxes share.
    pub cores: u64,
    /// What else used this machine; empty for a run of before this was recorded.
    #[serde(default, skip_serializing_if = "HostRecord::is_empty")]
    pub host: HostRecord,
}
