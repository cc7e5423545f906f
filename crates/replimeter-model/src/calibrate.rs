//! The record of a `calibrate` run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{envelope::Envelope, lag::Floor, plan::CalibrateSettings, record::Distribution};

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
    pub timed_out: u64,
    /// The lag: from send for `poll` and `wait`, from the same event on the primary for
    /// `stamp` and `tap`.
    pub measured: Distribution,
    /// p50 at this delay, less p50 at delay 0, less the delay; null at delay 0.
    pub error_p50_us: Option<f64>,
    /// A 95 % interval of that error: the half-widths of both medians' intervals, added
    /// in quadrature.
    pub error_p50_us_ci95: Option<[f64; 2]>,
    /// The same difference of the 99th percentiles.
    pub error_p99_us: Option<f64>,
    /// Its interval.
    pub error_p99_us_ci95: Option<[f64; 2]>,
    /// The smallest and the largest error of p50 among the repetitions, each against its
    /// own delay 0.
    pub error_p50_range: Option<[f64; 2]>,
}

/// The record of a `calibrate` run.
pub type CalibrateDocument = Envelope<CalibrateSettings, CalibrateResults>;

/// What a `calibrate` run came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CalibrateResults {
    /// A row per replica, method and delay.
    pub rows: Vec<CalibrateRow>,
    /// What each method itself adds.
    pub floors: Vec<Floor>,
}
