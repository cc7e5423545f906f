//! The record of a `load` run.

use replimeter_model::{
    envelope::Envelope,
    load::LoadRecord,
    resources::{PerOperation, PostponedWork},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::load::settings::LoadSettings;

/// A data set that a load ran on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DataRecord {
    /// The workloads that share it.
    pub workloads: Vec<String>,
    /// Rows in each of its tables.
    pub rows: u64,
    /// Approximate bytes on disk, including indexes, as the server reports them.
    pub bytes: u64,
    /// Bytes of the statements that made it; 0 when it was reused.
    pub sent_bytes: u64,
    /// Time that this took.
    pub duration_us: f64,
    /// Whether the data set was already there.
    pub reused: bool,
}

/// Result of one workload with one number of threads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadRow {
    /// The load itself.
    #[serde(flatten)]
    pub load: LoadRecord,
    /// Resources that each server used per operation; of workloads that ran together, per operation
    /// of any of them.
    #[serde(default)]
    pub servers: Vec<PerOperation>,
}

/// Where the throughput no longer rises with the number of threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Saturation {
    /// The smallest measured number of threads whose throughput no other one exceeds by 10 %.
    pub threads: u32,
    /// Operations per second of all workloads with this number of threads.
    pub per_s: f64,
    /// Whether the throughput had stopped rising: two further doublings of the threads raised it by less than 10 %.
    /// Otherwise the run ended before, and more threads may reach more.
    pub reached: bool,
}

/// A server that had work to do before a load began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SettledServer {
    /// The server's name.
    pub name: String,
    /// Its postponed work when the wait began.
    pub before: PostponedWork,
    /// Its postponed work when the wait ended.
    pub after: PostponedWork,
    /// Whether the work no longer decreased then; otherwise the limit of the wait was reached.
    pub settled: bool,
}

/// A wait, before a load began, for the work that filling or an earlier number of threads had left to the
/// servers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SettlingRecord {
    /// The number of threads that began after it.
    pub threads: u32,
    /// Duration of the wait.
    pub settled_us: f64,
    /// The servers.
    pub servers: Vec<SettledServer>,
}

/// The record of a `load` run.
pub type LoadDocument = Envelope<LoadSettings, LoadResults>;

/// Results of a `load` run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadResults {
    /// Figures: for each number of threads, in order, each workload.
    pub rows: Vec<LoadRow>,
    /// Data sets.
    pub data: Vec<DataRecord>,
    /// Where the throughput no longer rises, of a run with `threads` `auto`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saturation: Option<Saturation>,
    /// Waits for the servers to settle; none where they had nothing to do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settling: Vec<SettlingRecord>,
}
