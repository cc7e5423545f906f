//! The record of a `backlog` run: how replicas catch up.

use replimeter_model::{
    envelope::Envelope,
    load::{LoadRecord, Rate},
    words,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::backlog::settings::BacklogSettings;

words! {
    /// State of a replica's applier.
    #[derive(Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum BacklogPhase {
        /// Stopped while the load ran.
        Growing = "growing",
        /// Applying while the load ran.
        WithLoad = "with-load",
        /// Applying the rest after the load ended.
        WithoutLoad = "without-load",
    }
}

impl BacklogPhase {
    /// The state in words.
    #[must_use]
    pub fn description(self) -> &'static str {
        match self {
            Self::Growing => "applier stopped",
            Self::WithLoad => "applying under load",
            Self::WithoutLoad => "applying, no load",
        }
    }
}

/// One window of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BacklogWindow {
    /// State of the applier.
    pub phase: BacklogPhase,
    /// Start of the window, since the first reading.
    pub start_us: f64,
    /// End of the window, since the first reading.
    pub end_us: f64,
    /// Transactions that the primary committed in the window.
    pub written: u64,
    /// Transactions that the replica applied in the window.
    pub applied: u64,
    /// Transactions that the replica had not applied at the end of the window.
    pub behind: u64,
}

/// Catch-up of one replica with one number of workers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BacklogRow {
    /// Shape of the sandbox, or `endpoints:N`.
    pub shape: String,
    /// Name of the replica.
    pub replica: String,
    /// Number of applier workers; null when the server does not report it.
    pub workers: Option<u64>,
    /// Server variable that sets the number of workers.
    pub workers_variable: Option<String>,
    /// Parallel applier mode, as the server names it.
    pub parallel_mode: String,
    /// Time for which the applier was stopped.
    pub grown_us: f64,
    /// Transactions per second that the primary committed while the applier was stopped.
    pub load_per_s: Rate,
    /// Transactions not applied when the applier was started.
    pub backlog_transactions: u64,
    /// Transactions per second that the primary committed while the applier applied.
    pub load_while_applying_per_s: Rate,
    /// Transactions per second that the replica applied under the load while there was a backlog: the
    /// highest rate of writes that it sustains at the same time.
    pub sustained_per_s: Rate,
    /// Whether the replica applied more than was written, under the load; null when it cannot be
    /// determined.
    pub keeps_up: Option<bool>,
    /// Transactions per second that the replica applied after the load ended.
    pub catch_up_per_s: Rate,
    /// Time from the start of the applier to the end of the load.
    pub under_load_us: f64,
    /// Time from the start of the applier until nothing was left; null when it did not catch up.
    pub caught_up_after_us: Option<f64>,
    /// Interval between readings: `caught_up_after_us` may be too large by this much.
    pub resolution_us: f64,
    /// Whether the measurement completed.
    pub complete: bool,
    /// Consecutive windows of the measurement.
    pub windows: Vec<BacklogWindow>,
}

/// The record of a `backlog` run.
pub type BacklogDocument = Envelope<BacklogSettings, BacklogResults>;

/// Results of a `backlog` run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BacklogResults {
    /// Figures: one row for each replica and number of workers.
    pub rows: Vec<BacklogRow>,
    /// The loads, in the order of the shapes.
    pub load: Vec<LoadRecord>,
}
