//! The record of a `backlog` run: how replicas catch up.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    envelope::Envelope,
    load::{LoadRecord, Rate},
    plan::BacklogSettings,
};

/// What a replica's applier was doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BacklogPhase {
    /// Stopped, while the load went on.
    Growing,
    /// Applying while the load went on.
    WithLoad,
    /// Applying what was left when the load had ended.
    WithoutLoad,
}

impl BacklogPhase {
    /// As in the record.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Growing => "growing",
            Self::WithLoad => "with-load",
            Self::WithoutLoad => "without-load",
        }
    }

    /// In words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Growing => "applier stopped",
            Self::WithLoad => "applying under load",
            Self::WithoutLoad => "applying, no load",
        }
    }
}

/// One stretch of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BacklogWindow {
    /// What the applier was doing.
    pub phase: BacklogPhase,
    /// Beginning, since the first reading.
    pub start_us: f64,
    /// End.
    pub end_us: f64,
    /// Transactions that the primary committed in it.
    pub written: u64,
    /// Transactions that the replica applied in it.
    pub applied: u64,
    /// Transactions that the replica had not applied at its end.
    pub behind: u64,
}

/// How one replica caught up with one number of workers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BacklogRow {
    /// The sandbox's shape, or `endpoints:N`.
    pub shape: String,
    /// The replica's name.
    pub replica: String,
    /// The server's number of applier workers; null when it does not tell.
    pub workers: Option<u64>,
    /// The setting that says so.
    pub workers_variable: Option<String>,
    /// How work is shared among them, as the server names it.
    pub parallel_mode: String,
    /// For how long the applier stood still.
    pub grown_us: f64,
    /// Transactions per second that the primary committed while it did.
    pub load_per_s: Rate,
    /// Transactions not applied when the applier was started.
    pub backlog_transactions: u64,
    /// Transactions per second that the primary committed while the applier applied.
    pub load_while_applying_per_s: Rate,
    /// Transactions per second that the replica applied while the load went on and
    /// there was a backlog: the highest rate of writes that it sustains beside them.
    pub sustained_per_s: Rate,
    /// Whether it applied more than was written, under the load; null when it cannot
    /// be told.
    pub keeps_up: Option<bool>,
    /// Transactions per second that it applied when the load had ended.
    pub catch_up_per_s: Rate,
    /// From the applier's start to the end of the load.
    pub under_load_us: f64,
    /// From the applier's start until nothing was left; null when it had not come to
    /// that.
    pub caught_up_after_us: Option<f64>,
    /// How far apart readings were: how much too large that may be.
    pub resolution_us: f64,
    /// Whether it was measured to its end.
    pub complete: bool,
    /// The course of it.
    pub windows: Vec<BacklogWindow>,
}

/// The record of a `backlog` run.
pub type BacklogDocument = Envelope<BacklogSettings, BacklogResults>;

/// What a `backlog` run came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BacklogResults {
    /// The figures, a row for each replica and number of workers.
    pub rows: Vec<BacklogRow>,
    /// The loads, in the order of the shapes.
    pub load: Vec<LoadRecord>,
}

impl BacklogDocument {
    /// Whether several shapes stand side by side.
    #[must_use]
    pub fn several(&self) -> bool {
        self.target.modes.len() > 1
    }
}
