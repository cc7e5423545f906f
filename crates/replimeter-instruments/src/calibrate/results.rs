//! The record of a `calibrate` run.

use replimeter_model::{envelope::Envelope, record::Distribution};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{calibrate::settings::CalibrateSettings, lag::results::Floor};

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
    /// Rounds whose row was seen, but not when: a clock was set about then. Not among those
    /// that timed out.
    #[serde(default)]
    pub unplaced: u64,
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

/// Result of one method against the reference server, under one set of conditions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReferenceRow {
    /// The method.
    pub method: String,
    /// Replicas that were observed at the same time, each by an observer of its own.
    pub observers: u32,
    /// Threads that computed on this machine without a pause.
    pub neighbors: u32,
    /// The delays of the rows: a time, `bimodal` or `heavy-tailed`.
    pub delays: String,
    /// Counted observations: rows times observers.
    pub rounds: u64,
    /// Observations that were not seen before the timeout.
    pub timed_out: u64,
    /// Observations whose true instant is not inside the bracket.
    pub outside: u64,
    /// Their share, in percent.
    pub outside_percent: Option<f64>,
    /// Wilson's 95 % confidence interval of the share, widened for dependence between neighboring
    /// rows, in percent.
    pub outside_percent_ci95: Option<[f64; 2]>,
    /// `wait`: share of observations in whose bracket the server did not begin to answer the wait, in
    /// percent: the error of the method without the server's own delay.
    pub answer_outside_percent: Option<f64>,
    /// Its 95 % confidence interval, as above.
    pub answer_outside_percent_ci95: Option<[f64; 2]>,
    /// Width of the brackets.
    pub bracket_us: Distribution,
    /// Middle of the bracket minus the true instant.
    pub error_us: Distribution,
    /// Median of the true lags from the acknowledgement.
    pub true_p50_us: Option<f64>,
    /// Median of the estimate, as `lag` reports it, minus that of the true lags of the same rows: the mean over batches of 100 rows.
    pub bias_p50_us: Option<f64>,
    /// Its 95 % confidence interval, Student's of the batches; null below two of them.
    pub bias_p50_us_ci95: Option<[f64; 2]>,
    /// `wait`: from the true instant until the server began to answer; it is part of the error and of
    /// the bias.
    pub answered_late_us: Distribution,
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
    /// With `--reference`, instead of the above: a row per method, observers, neighbors and delays.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reference: Vec<ReferenceRow>,
}
