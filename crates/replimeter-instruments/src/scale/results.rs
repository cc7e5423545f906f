//! The record of a `scale` run.

use replimeter_model::{
    block_selection::BlockSelection, envelope::Envelope, estimate::Estimate, load::LoadError,
    record::Distribution, resources::PerOperation,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::scale::settings::ScaleSettings;

/// Resources that one server used during a phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScaleServer {
    /// Per operation of the phase, on any server, until every replica had applied it; includes `name` and
    /// `role`.
    #[serde(flatten)]
    pub per_operation: PerOperation,
    /// Processor time in percent of one core.
    pub cpu_percent: Option<f64>,
    /// Of that, in the kernel.
    pub cpu_system_percent: Option<f64>,
    /// Bytes fetched from storage per second.
    pub read_bytes_per_s: Option<f64>,
    /// Bytes sent to storage per second.
    pub write_bytes_per_s: Option<f64>,
    /// Reads per second as the storage engine counts them.
    pub reads_per_s: Option<f64>,
    /// Writes per second as the storage engine counts them.
    pub writes_per_s: Option<f64>,
    /// Flushes per second as the storage engine counts them.
    pub fsyncs_per_s: Option<f64>,
    /// Context switches per second.
    pub context_switches_per_s: Option<f64>,
    /// Selects per second that it answered; null when none went to it.
    pub selects_per_s: Option<f64>,
}

/// Throughput of a phase in percent of the same phase without a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PercentOfNone {
    /// Inserts.
    pub inserts: Option<f64>,
    /// 95 % confidence interval of `inserts`, in percent.
    pub inserts_ci95: Option<[f64; 2]>,
    /// Selects.
    pub selects: Option<f64>,
    /// 95 % confidence interval of `selects`, in percent.
    pub selects_ci95: Option<[f64; 2]>,
    /// Updates.
    pub updates: Option<f64>,
    /// 95 % confidence interval of `updates`, in percent.
    pub updates_ci95: Option<[f64; 2]>,
}

/// One phase with one number of replicas, over all starts and blocks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScaleRow {
    /// The sandbox's shape.
    pub shape: String,
    /// Replicas.
    pub replicas: u32,
    /// `insert`, `select`, `mixed`, `update` or `mixed-update`.
    pub phase: String,
    /// Starts with at least one block of this phase.
    pub starts: u32,
    /// Blocks.
    pub blocks: u32,
    /// Blocks that do not count: semi-synchronous replication fell back in them, a server was out of use behind the site, or other
    /// virtual machines had the cores and they were measured again.
    pub invalid_blocks: u32,
    /// Total duration of the counted blocks.
    pub counted_us: f64,
    /// Inserts per second of all clients together: the mean of the starts.
    pub inserts_per_s: Option<f64>,
    /// 95 % confidence interval of `inserts_per_s`, by starts and blocks; null with one start.
    pub inserts_per_s_ci95: Option<[f64; 2]>,
    /// Selects per second.
    pub selects_per_s: Option<f64>,
    /// 95 % confidence interval of `selects_per_s`.
    pub selects_per_s_ci95: Option<[f64; 2]>,
    /// Updates per second.
    pub updates_per_s: Option<f64>,
    /// 95 % confidence interval of `updates_per_s`.
    pub updates_per_s_ci95: Option<[f64; 2]>,
    /// Writes per second over the time in which they were written and applied on every replica: the rate at which
    /// no backlog grows, which the fitted law uses.
    #[serde(default)]
    pub sustained_writes_per_s: Option<f64>,
    /// 95 % confidence interval of `sustained_writes_per_s`.
    #[serde(default)]
    pub sustained_writes_per_s_ci95: Option<[f64; 2]>,
    /// Comparison with no replica.
    pub percent_of_none: PercentOfNone,
    /// Latency of writes.
    pub write_latency: Distribution,
    /// Latency of selects.
    pub select_latency: Distribution,
    /// What the choice of blocks changes.
    #[serde(default)]
    pub selection: BlockSelection,
    /// Operations that were repeated after a deadlock or a lock timeout.
    pub retries: u64,
    /// Operations that failed for good.
    pub failed: u64,
    /// Errors by number.
    pub errors: Vec<LoadError>,
    /// Longest time from the end of a block until every replica had applied it.
    pub caught_up_after_us: Option<f64>,
    /// Resources that each server used.
    pub servers: Vec<ScaleServer>,
    /// Processor time of the load's own threads in percent of one core.
    pub client_cpu_percent: f64,
    /// Share of the time in which load threads were ready and had no core, per thread.
    pub client_ready_percent: Option<f64>,
    /// Statements per second in percent of the pings that the same number of connections complete:
    /// the client's own limit. The largest of the row's blocks.
    #[serde(default)]
    pub client_limit_percent: Option<f64>,
}

/// Distance of a point from the law.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Residual {
    /// Replicas.
    pub replicas: u32,
    /// The start, from 1.
    pub start: u32,
    /// Measured operations per second.
    pub per_s: f64,
    /// The law's operations per second.
    pub fitted_per_s: f64,
    /// The difference in percent of the law's.
    pub percent: f64,
}

/// The law's value for a number of replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LawPoint {
    /// Replicas.
    pub replicas: u32,
    /// Operations per second.
    pub per_s: f64,
}

/// Prediction of the law for one more replica, and the measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Prediction {
    /// Replicas.
    pub replicas: u32,
    /// The law's operations per second, with the interval for a mean of as many starts.
    pub predicted: Estimate,
    /// Measured operations per second; null when it was not measured.
    pub measured_per_s: Option<f64>,
    /// 95 % confidence interval of `measured_per_s`.
    pub measured_per_s_ci95: Option<[f64; 2]>,
    /// Whether the measured value lies within the predicted interval.
    pub holds: Option<bool>,
}

/// A law fitted to one figure of one phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScaleFit {
    /// The phase.
    pub phase: String,
    /// `inserts`, `selects` or `updates`.
    pub figure: String,
    /// Reason why there is no fit; the rest is empty then.
    pub refused: Option<String>,
    /// Meaning of N: `servers` that each do all the writes, or `readers` that share the reads.
    pub counted: String,
    /// Operations per second of one server.
    pub lambda: Estimate,
    /// Contention.
    pub sigma: Estimate,
    /// Coherency.
    pub kappa: Estimate,
    /// Standard deviation of a start from the law, in percent of it.
    pub error_percent: f64,
    /// Starts beyond the three parameters.
    pub freedom: u32,
    /// Probability of points as far from the law as these if the law holds; null with one start, or with three numbers of servers.
    #[serde(default)]
    pub lack_of_fit_p: Option<f64>,
    /// For selects: number of replicas with the highest throughput; null where the law has no
    /// peak.
    pub peak_replicas: Option<Estimate>,
    /// Distance of each start from the law.
    pub residuals: Vec<Residual>,
    /// The law, for drawing.
    pub curve: Vec<LawPoint>,
    /// Prediction for one more replica.
    pub prediction: Option<Prediction>,
}

/// The record of a `scale` run.
pub type ScaleDocument = Envelope<ScaleSettings, ScaleResults>;

/// Results of a `scale` run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScaleResults {
    /// A row for each number of replicas and phase.
    pub rows: Vec<ScaleRow>,
    /// Rows of the data set.
    pub data_rows: u64,
    /// Bytes of the data set.
    pub data_bytes: u64,
    /// Share of the machine that each server had; null when they shared it freely.
    pub cpus_per_server: Option<String>,
    /// Order of the starts: numbers of replicas, round by round.
    pub order: Vec<Vec<u32>>,
    /// Laws, where there are enough numbers of replicas.
    pub fits: Vec<ScaleFit>,
}
