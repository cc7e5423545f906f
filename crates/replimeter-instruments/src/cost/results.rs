//! The record of a `cost` run.

use replimeter_model::{
    block_selection::BlockSelection,
    envelope::Envelope,
    estimate::{Estimate, Interval},
    load::{LoadError, Rate},
    record::Distribution,
    resources::PerOperation,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cost::settings::{CostSettings, LoggedMode};

/// Ratios of a mode's figures to those of `none`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RelativeFigure {
    /// Baseline: `none`.
    pub baseline: String,
    /// Throughput divided by that of `none`; null when `none` was not measured.
    pub throughput: Option<f64>,
    /// Its 95 % confidence interval.
    pub throughput_ci95: Interval,
    /// Ratios of the latency.
    pub latency: RelativeLatency,
}

/// Ratios of a latency's figures, each the mean over the starts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RelativeLatency {
    /// Ratio of the means.
    pub mean: Estimate,
    /// Ratio of the standard deviations.
    pub stdev: Estimate,
    /// Ratio of the medians.
    pub p50: Estimate,
    /// Ratio of the 95th percentiles.
    pub p95: Estimate,
    /// Ratio of the 99th percentiles.
    pub p99: Estimate,
    /// Ratio of the largest values.
    pub max: Estimate,
}

/// Cost that a mode adds to one operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AddedLatency {
    /// Added mean latency, in microseconds.
    pub latency_us: Estimate,
    /// Added processor time of the server that is written to, in microseconds.
    pub primary_cpu_us: Estimate,
    /// Added processor time of all servers together, in microseconds.
    pub all_cpu_us: Estimate,
}

/// Backlog of a replica at the ends of blocks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplicaBehind {
    /// Name of the replica.
    pub name: String,
    /// Ends of blocks at which the replica was queried.
    pub blocks: u64,
    /// Mean number of transactions that it had not applied.
    pub mean: f64,
    /// Largest number of transactions that it had not applied.
    pub max: u64,
}

/// Processor time of the client, and its limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CostClient {
    /// Processor time of the load's threads for one operation.
    pub cpu_us_per_op: Option<f64>,
    /// Pings per second that the client completed over the same number of connections with
    /// `none`'s server: an upper bound of statements per second.
    pub limit_per_s: Option<f64>,
    /// This row's statements in percent of that limit.
    pub percent_of_limit: Option<f64>,
    /// Time for which a thread was ready and had no core, per operation.
    pub delay_us_per_op: Option<f64>,
}

/// Cost of one mode at one number of threads and one link delay.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CostRow {
    /// `mariadb` or `mysql`.
    pub engine: String,
    /// Product and version.
    pub version: String,
    /// `none`, `binlog`, `async`, `semi-sync`, `galera` or `group`.
    pub mode: LoggedMode,
    /// `after-commit` or `after-sync` of semi-sync; null of the others.
    pub wait_point: Option<String>,
    /// Servers besides the one that is written to.
    pub replicas: u32,
    /// Connections.
    pub threads: u32,
    /// `relaxed`, `strict` or `server-default`.
    pub durability: String,
    /// One-way delay of the links between servers; null without Replimeter's links.
    pub link_delay_us: Option<f64>,
    /// Fresh starts of the servers with counted blocks.
    pub starts: u64,
    /// Counted blocks.
    pub blocks: u64,
    /// Blocks that do not count, because semi-synchronous replication fell back in them.
    pub invalid_blocks: u64,
    /// What leaving them out changes.
    #[serde(default)]
    pub selection: BlockSelection,
    /// Total duration of the counted blocks.
    pub counted_us: f64,
    /// Completed operations that started in them.
    pub operations: u64,
    /// Operations that were repeated after a deadlock, a lock timeout or a failed certification.
    pub retries: u64,
    /// Operations that failed for good.
    pub failed: u64,
    /// Errors by number, the retried among them.
    pub errors: Vec<LoadError>,
    /// Operations per second: the mean over the starts, the standard deviation between
    /// blocks, and the 95 % interval of the mean.
    pub throughput: Rate,
    /// Operations per second over the time in which they were written and applied on every server: the rate at
    /// which no backlog grows; null if a block was not applied within 30 s.
    #[serde(default)]
    pub sustained: Rate,
    /// Latency from send to answer, of all counted operations together.
    pub latency: Distribution,
    /// Mean latency with its interval over the starts.
    pub latency_mean_us: Estimate,
    /// Ratios to `none` of the same binary, at the same number of threads.
    pub relative: RelativeFigure,
    /// Cost added to `none`.
    pub added: AddedLatency,
    /// Resources that each server used per operation, until every server had applied it; the server that is
    /// written to is first.
    pub servers: Vec<PerOperation>,
    /// Backlog of the replicas.
    pub behind: Vec<ReplicaBehind>,
    /// Processor time of the client, and its limit.
    pub client: CostClient,
}

impl CostRow {
    /// Returns the mode's name in reports: with its wait point.
    #[must_use]
    pub fn label(&self) -> String {
        label(self.mode.name(), self.wait_point.as_deref())
    }
}

/// Returns a mode's name in reports.
#[must_use]
pub fn label(mode: &str, wait_point: Option<&str>) -> String {
    wait_point.map_or_else(|| mode.to_owned(), |point| format!("{mode} {point}"))
}

/// Cost that one mode adds to the mode that it is built on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CostStep {
    /// `mariadb` or `mysql`.
    pub engine: String,
    /// The mode.
    pub mode: LoggedMode,
    /// Wait point of the mode.
    pub wait_point: Option<String>,
    /// Mode that it is built on.
    pub baseline: LoggedMode,
    /// Connections.
    pub threads: u32,
    /// One-way delay of the links.
    pub link_delay_us: Option<f64>,
    /// Throughput divided by the baseline's.
    pub throughput: Estimate,
    /// Cost added to the baseline's.
    pub added: AddedLatency,
}

/// One comparison of a mode with itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SelfComparison {
    /// Throughput of one half divided by the other's.
    pub throughput: Estimate,
    /// Difference of their mean latencies, in microseconds.
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
    /// Comparisons that found a difference.
    pub differences: u64,
    /// Share of differences that is expected by chance.
    pub expected: f64,
    /// Exact 95 % confidence interval of the true share.
    pub share_ci95: [f64; 2],
    /// Probability of at least this many differences at the expected share.
    pub p_value: f64,
    /// Whether there are significantly more differences than expected.
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
    /// Time from the start until the servers replicated.
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
    /// Servers besides the one that is written to.
    pub replicas: u32,
    /// Connections.
    pub threads: u32,
    /// One-way delay of the links.
    pub link_delay_us: Option<f64>,
    /// Number of the block within its start, from 1.
    pub block: u32,
    /// Reason why it does not count; empty for a counted block.
    pub invalid: Option<String>,
    /// Start of the block, on the run's clock.
    pub began_us: f64,
    /// Mean time from the start of a thread's first operation to the end of its last one.
    pub counted_us: f64,
    /// Completed operations that started in the block.
    pub operations: u64,
    /// Retried operations.
    pub retries: u64,
    /// Operations that failed for good.
    pub failed: u64,
    /// Latencies.
    pub latency: Distribution,
    /// Processor time per operation of the server that is written to.
    pub primary_cpu_us_per_op: Option<f64>,
    /// Processor time per operation of all servers.
    pub all_cpu_us_per_op: Option<f64>,
    /// Processor time per operation of the client's threads.
    pub client_cpu_us_per_op: Option<f64>,
    /// Transactions that the replica furthest behind had not applied at the end of the block.
    pub behind: Option<u64>,
    /// Time from the end of the block until every server had applied it.
    pub caught_up_after_us: Option<f64>,
}

/// The record of a `cost` run.
pub type CostDocument = Envelope<CostSettings, CostResults>;

/// Results of a `cost` run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CostResults {
    /// Figures: one row for each mode, number of threads and link delay.
    pub rows: Vec<CostRow>,
    /// Durability settings in effect, for each engine.
    pub durability: Vec<String>,
    /// Cost that each mode adds to the mode that it is built on.
    pub steps: Vec<CostStep>,
    /// Starts of the modes, in their order.
    pub order: Vec<StartRecord>,
    /// The comparison of a mode with itself; null without it.
    pub self_test: Option<SelfTest>,
    /// Modes that were left out, with the reason.
    pub left_out: Vec<String>,
}

impl CostResults {
    /// Returns whether servers of several engines stand side by side.
    fn several_engines(&self) -> bool {
        self.rows
            .iter()
            .any(|row| row.engine != self.rows[0].engine)
    }

    /// Returns the name of a row's mode in these results.
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
