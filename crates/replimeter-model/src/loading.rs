//! The record of a `load` run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{envelope::Envelope, load::LoadRecord, plan::LoadingSettings, resources::PerOperation};

/// A data set that a load ran on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DataRecord {
    /// The workloads that share it.
    pub workloads: Vec<String>,
    /// Rows in each of its tables.
    pub rows: u64,
    /// Bytes on the disk, indexes included, as the server tells; about.
    pub bytes: u64,
    /// Bytes of the statements that made it; 0 when it was there.
    pub sent_bytes: u64,
    /// How long that took.
    pub duration_us: f64,
    /// Whether it was there.
    pub reused: bool,
}

/// What one workload came to with one number of threads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadRow {
    /// The load itself.
    #[serde(flatten)]
    pub load: LoadRecord,
    /// What each server used for an operation; of workloads that ran beside one another,
    /// for one of any of them.
    #[serde(default)]
    pub servers: Vec<PerOperation>,
}

/// The record of a `load` run.
pub type LoadDocument = Envelope<LoadingSettings, LoadResults>;

/// What a `load` run came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadResults {
    /// For each number of threads, in order, each workload.
    pub rows: Vec<LoadRow>,
    /// The data.
    pub data: Vec<DataRecord>,
}
