//! The record of a `calibrate` run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{envelope::Envelope, lag::Floor, plan::CalibrateSettings, record::Distribution};

/// Result of one method for one injected delay on one replica.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CalibrateRow {
    /// Name of the replica.
    pub replica: String,
    /// The method.
    pub method: String,
    /// One-way delay of the link.
    pub injected_us: f64,
    /// Counted rounds at this delay.
    pub rounds: u64,
    /// Rounds whose row was not seen before the timeout.
    pub timed_out: u64,
    /// Lag: from send for `poll` and `wait`, from the same event on the primary for `stamp` and
    /// `tap`.
    pub measured: Distribution,
    /// p50 at this delay, minus p50 at delay 0, minus the delay; null at delay 0.
    pub error_p50_us: Option<f64>,
    /// 95 % confidence interval of that error: the half-widths of both medians' intervals, added
    /// in quadrature.
    pub error_p50_us_ci95: Option<[f64; 2]>,
    /// The same difference of the 99th percentiles.
    pub error_p99_us: Option<f64>,
    /// Confidence interval of the error of the 99th percentile.
    pub error_p99_us_ci95: Option<[f64; 2]>,
    /// Smallest and largest error of p50 among the repetitions, each against its own delay 0.
    pub error_p50_range: Option<[f64; 2]>,
}

/// The record of a `calibrate` run.
pub type CalibrateDocument = Envelope<CalibrateSettings, CalibrateResults>;

/// Results of a `calibrate` run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CalibrateResults {
    /// A row per replica, method and delay.
    pub rows: Vec<CalibrateRow>,
    /// Error of each method itself.
    pub floors: Vec<Floor>,
}
