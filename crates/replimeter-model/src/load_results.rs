//! The record of a `load` run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{envelope::Envelope, load::LoadRecord, plan::LoadSettings, resources::PerOperation};

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
}
