//! The record of a `calibrate` run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    plan::CalibrateSpec,
    record::{ClientRecord, Distribution, Floor, RunStatus, TargetRecord},
    warning::Warning,
};

/// The schema's name and version in every `calibrate` document.
pub const CALIBRATE_SCHEMA: &str = "replimeter.calibrate/1";

/// What one method made of one injected delay on one replica.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CalibrateRow {
    /// The replica's name.
    pub replica: String,
    /// The method.
    pub method: String,
    /// The link's one-way delay.
    pub injected_us: f64,
    /// Counted rounds at this delay.
    pub rounds: u64,
    /// Rounds whose row was not seen in time.
    pub missing: u64,
    /// The lag: from send for `poll` and `wait`, from the same event on the primary for
    /// `stamp` and `tap`.
    pub measured: Distribution,
    /// p50 at this delay, less p50 at delay 0, less the delay; null at delay 0.
    pub error_p50_us: Option<f64>,
    /// A 95 % interval of that error: the half-widths of both medians' intervals, added
    /// in quadrature.
    pub error_p50_ci: Option<[f64; 2]>,
    /// The same difference of the 99th percentiles.
    pub error_p99_us: Option<f64>,
    /// Its interval.
    pub error_p99_ci: Option<[f64; 2]>,
    /// The smallest and the largest error of p50 among the repetitions, each against its
    /// own delay 0.
    pub error_p50_range: Option<[f64; 2]>,
}

/// The whole document of a `calibrate` run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CalibrateDocument {
    /// [`CALIBRATE_SCHEMA`].
    pub schema: String,
    /// Where the run is kept.
    pub run_dir: String,
    /// What the plan calls itself.
    pub title: Option<String>,
    /// Whether it came to its end.
    pub status: RunStatus,
    /// What ended a failed run.
    pub error: Option<String>,
    /// The finding in one sentence.
    pub answer: String,
    /// When it began (RFC 3339, UTC).
    pub started_at: String,
    /// What was measured.
    pub target: TargetRecord,
    /// The resolved settings.
    pub settings: CalibrateSpec,
    /// A row per replica, method and delay.
    pub results: Vec<CalibrateRow>,
    /// What each method itself adds.
    pub floors: Vec<Floor>,
    /// The client's own limits.
    pub client: ClientRecord,
    /// What a reader must know to trust the figures.
    pub warnings: Vec<Warning>,
}
