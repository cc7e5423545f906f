//! The record of a `cost` run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    envelope::Envelope,
    estimate::{Estimate, Interval},
    load::{LoadError, Rate},
    plan::CostSettings,
    record::Distribution,
    resources::PerOperation,
};

/// Ratios of a mode's figures to those of `none`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Relative {
    /// What it is held against: `none`.
    pub baseline: String,
    /// Throughput over that of `none`; null when `none` was not measured.
    pub throughput: Option<f64>,
    /// Its 95 % confidence interval.
    pub throughput_ci95: Interval,
    /// The same of the latency's figures.
    pub latency: RelativeLatency,
}

/// Ratios of a latency's figures, each the mean over the starts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RelativeLatency {
    /// Of the mean.
    pub mean: Estimate,
    /// Of the standard deviation.
    pub stdev: Estimate,
    /// Of the median.
    pub p50: Estimate,
    /// Of the 95th percentile.
    pub p95: Estimate,
    /// Of the 99th percentile.
    pub p99: Estimate,
    /// Of the largest.
    pub max: Estimate,
}

/// What a mode adds to one operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Added {
    /// To the mean latency, in microseconds.
    pub latency_us: Estimate,
    /// To the processor time of the server that is written to, in microseconds.
    pub primary_cpu_us: Estimate,
    /// To the processor time of all servers together.
    pub all_cpu_us: Estimate,
}

/// How far a replica was behind at the ends of blocks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Behind {
    /// The replica's name.
    pub name: String,
    /// Ends of blocks at which it was asked.
    pub blocks: u64,
    /// Transactions that it had not applied, on average.
    pub mean: f64,
    /// At most.
    pub max: u64,
}

/// What the client itself spent, and how near it was to its limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CostClient {
    /// Processor time of the load's threads for one operation.
    pub cpu_us_per_op: Option<f64>,
    /// Empty questions per second that this client got answered over as many connections, by
    /// `none`'s server: more statements than that no mode could have had.
    pub limit_per_s: Option<f64>,
    /// What this row's statements are of that limit, in percent.
    pub percent_of_limit: Option<f64>,
    /// How long a thread was ready and had no core, for one operation.
    pub delay_us_per_op: Option<f64>,
}

/// What one mode costs at one number of threads over one distance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CostRow {
    /// `mariadb` or `mysql`.
    pub engine: String,
    /// Product and version.
    pub version: String,
    /// `none`, `binlog`, `async`, `semi-sync`, `galera` or `group`.
    pub mode: String,
    /// `after-commit` or `after-sync` of semi-sync; null of the others.
    pub wait_point: Option<String>,
    /// Servers beside the one that is written to.
    pub replicas: u32,
    /// Connections.
    pub threads: u32,
    /// `relaxed`, `strict` or `server-default`.
    pub durability: String,
    /// One-way delay of the links between servers; null without links of ours.
    pub link_delay_us: Option<f64>,
    /// Fresh starts of the servers that have counted blocks.
    pub starts: u64,
    /// Blocks that count.
    pub blocks: u64,
    /// Blocks that do not, because semi-synchronous replication fell back.
    pub invalid_blocks: u64,
    /// How long the counted blocks took together.
    pub counted_us: f64,
    /// Operations in them.
    pub operations: u64,
    /// Operations that were begun again after a deadlock, a lock's time-out or a failed
    /// certification.
    pub retries: u64,
    /// Operations that were given up.
    pub failed: u64,
    /// Errors by number, the retried among them.
    pub errors: Vec<LoadError>,
    /// Operations per second: the mean over the starts, the standard deviation between
    /// blocks, and the 95 % interval of the mean.
    pub throughput: Rate,
    /// From send to answer, of all counted operations together.
    pub latency: Distribution,
    /// The mean latency with its interval over the starts.
    pub latency_mean_us: Estimate,
    /// Against `none` of the same binary, at as many threads.
    pub relative: Relative,
    /// What it adds to `none`.
    pub added: Added,
    /// What each server spent on an operation; the one that is written to comes first.
    pub servers: Vec<PerOperation>,
    /// How far replicas were behind.
    pub behind: Vec<Behind>,
    /// The client's own limit.
    pub client: CostClient,
}

impl CostRow {
    /// How people call the mode: with its wait point.
    #[must_use]
    pub fn label(&self) -> String {
        label(&self.mode, self.wait_point.as_deref())
    }
}

/// How people call a mode.
#[must_use]
pub fn label(mode: &str, wait_point: Option<&str>) -> String {
    wait_point.map_or_else(|| mode.to_owned(), |point| format!("{mode} {point}"))
}

/// What one mode adds to the one that it is built on: the price in steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CostStep {
    /// `mariadb` or `mysql`.
    pub engine: String,
    /// The mode.
    pub mode: String,
    /// Its wait point.
    pub wait_point: Option<String>,
    /// The mode that it is built on.
    pub baseline: String,
    /// Connections.
    pub threads: u32,
    /// One-way delay of the links.
    pub link_delay_us: Option<f64>,
    /// Throughput over that of the other.
    pub throughput: Estimate,
    /// What it adds.
    pub added: Added,
}

/// One comparison of a mode with itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SelfComparison {
    /// Throughput of one half over the other's.
    pub throughput: Estimate,
    /// The difference of their mean latencies.
    pub latency_us: Estimate,
    /// Whether the interval of the throughput's ratio leaves 1 out.
    pub differs: bool,
}

/// A mode compared with itself many times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SelfTest {
    /// `mariadb` or `mysql`.
    pub engine: String,
    /// The mode, with its wait point.
    pub mode: String,
    /// Connections.
    pub threads: u32,
    /// Fresh starts on each side of a comparison.
    pub starts: u32,
    /// The comparisons.
    pub comparisons: Vec<SelfComparison>,
    /// How many of them found a difference.
    pub differences: u64,
    /// The share of those that would be right.
    pub expected: f64,
    /// The exact 95 % interval of the true share.
    pub share_ci95: [f64; 2],
    /// The probability of so many differences or more, were the share the right one.
    pub p_value: f64,
    /// Whether there are significantly too many.
    pub significant: bool,
}

/// A start of servers, in the order in which they were measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StartRecord {
    /// The round, from 1.
    pub round: u32,
    /// `mariadb` or `mysql`.
    pub engine: String,
    /// The mode, with its wait point.
    pub mode: String,
    /// From the start to servers that replicate.
    pub start_us: f64,
}

/// A block as `samples.parquet` has it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BlockRecord {
    /// The round, from 1; of a self-test every comparison's rounds follow one another.
    pub round: u32,
    /// `mariadb` or `mysql`.
    pub engine: String,
    /// The mode.
    pub mode: String,
    /// Its wait point.
    pub wait_point: Option<String>,
    /// Servers beside the one that is written to.
    pub replicas: u32,
    /// Connections.
    pub threads: u32,
    /// One-way delay of the links.
    pub link_delay_us: Option<f64>,
    /// Which of its start's blocks, from 1.
    pub block: u32,
    /// Why it does not count.
    pub invalid: Option<String>,
    /// When it began, on the run's clock.
    pub began_us: f64,
    /// How long it was.
    pub counted_us: f64,
    /// Operations.
    pub operations: u64,
    /// Retried operations.
    pub retries: u64,
    /// Operations that were given up.
    pub failed: u64,
    /// Latencies.
    pub latency: Distribution,
    /// Processor time per operation of the server that is written to.
    pub primary_cpu_us_per_op: Option<f64>,
    /// Of all servers.
    pub all_cpu_us_per_op: Option<f64>,
    /// Of the client's threads.
    pub client_cpu_us_per_op: Option<f64>,
    /// Transactions that the replica furthest behind had not applied at its end.
    pub behind: Option<u64>,
}

/// The record of a `cost` run.
pub type CostDocument = Envelope<CostSettings, CostResults>;

/// What a `cost` run came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CostResults {
    /// A row for each mode, number of threads and distance.
    pub rows: Vec<CostRow>,
    /// What durability means: the settings in effect, for each engine.
    pub durability: Vec<String>,
    /// What each mode adds to the one that it is built on.
    pub steps: Vec<CostStep>,
    /// The modes' starts in their order.
    pub order: Vec<StartRecord>,
    /// The comparison of a mode with itself; null without it.
    pub self_test: Option<SelfTest>,
    /// Modes that were left out, and why.
    pub left_out: Vec<String>,
}

impl CostDocument {
    /// Whether servers of several engines stand side by side.
    #[must_use]
    pub fn several_engines(&self) -> bool {
        self.results
            .rows
            .iter()
            .any(|row| row.engine != self.results.rows[0].engine)
    }

    /// How people call a row's mode in this document.
    #[must_use]
    pub fn label_of(&self, engine: &str, mode: &str, wait_point: Option<&str>) -> String {
        let label = label(mode, wait_point);
        if self.several_engines() {
            format!("{engine}/{label}")
        } else {
            label
        }
    }
}
