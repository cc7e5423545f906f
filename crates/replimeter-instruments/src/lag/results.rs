//! The record of a `lag` run.

use replimeter_model::{
    envelope::Envelope,
    estimate::Estimate,
    load::LoadRecord,
    record::{Bin, Distribution, EstimateBounds, Window},
    stages::Stages,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::lag::settings::LagSettings;

/// One bin of experiment 3's histogram: lags that round to `bin` × 0.1 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HistogramBin {
    /// Number of the bin: the lag in units of 0.1 ms.
    pub bin: i64,
    /// Rows in the bin.
    pub count: u64,
}

/// Whether rows could be read when the server reported them as applied.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReadableRows {
    /// Waits that were followed by a read.
    pub rounds: u64,
    /// Waits after which the first read did not show the row.
    pub not_at_once: u64,
    /// Time from the return of the wait to the end of the first read that showed the row; one
    /// round trip when the row was readable at once.
    pub gap: Distribution,
}

/// Difference between two methods on the same rows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MethodDifference {
    /// The other method.
    pub method: String,
    /// This method's time minus the other method's, row by row.
    pub difference: Distribution,
}

/// Lag of one replica by one method, for one payload size or for all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LagRow {
    /// Shape of the sandbox, or `endpoints:N` for the user's servers.
    pub shape: String,
    /// Name of the replica.
    pub replica: String,
    /// Method of observation: `poll`, `wait`, `stamp`, `stamp-udf` or `tap`.
    pub method: String,
    /// Payload bytes; null for all sizes of a sweep together.
    pub size_bytes: Option<u64>,
    /// Counted rounds.
    pub rounds: u64,
    /// Rounds whose row was not seen before the timeout.
    pub timed_out: u64,
    /// Rounds whose row was seen, but not when: a clock was set about then. Not among those
    /// that timed out.
    #[serde(default)]
    pub unplaced: u64,
    /// Lag from the acknowledgement, upper end of each bracket; may be negative.
    pub from_ack: Distribution,
    /// Lag from the send, upper end of each bracket.
    pub from_send: Distribution,
    /// Lag from the intended start, upper end of each bracket.
    pub from_intended: Distribution,
    /// Width of the brackets: how far the true time may lie below the upper end.
    pub bracket_us: Distribution,
    /// Lag from the acknowledgement by `estimator`: the most probable position within the
    /// brackets (`turnbull-npmle`), or their upper ends (`upper-ends`, for `wait`). `min_us` and `max_us` are the ends of the range that it covers.
    pub estimate: Distribution,
    /// Estimator that made `estimate` from the brackets.
    pub estimator: String,
    /// From the same event on the primary, both times measured alike: from execution to execution
    /// (`stamp`), from binary log to binary log (`tap`); empty for other methods.
    #[serde(default)]
    pub from_primary: Distribution,
    /// Histogram in bins of 0.1 ms, as experiment 3 was published: of `from_primary`, or of
    /// `from_ack` for methods without it.
    #[serde(default)]
    pub histogram_100us: Vec<HistogramBin>,
    /// Share of the rows in `histogram_100us` that are later than five times their median, in percent; null where the median
    /// is not positive.
    #[serde(default)]
    pub far_percent: Option<f64>,
    /// Its 95 % interval, for late rows that come together in time or in a start; null where the run is too short to
    /// estimate how far they do.
    #[serde(default)]
    pub far_percent_ci95: Option<[f64; 2]>,
    /// For `wait`: whether the row could be read when the wait returned.
    #[serde(default)]
    pub readable: Option<ReadableRows>,
    /// Difference from another method on the same rows; null for the method that the others are
    /// compared with.
    #[serde(default)]
    pub method_differences: Option<MethodDifference>,
    /// Bounds that the brackets leave for `estimate`.
    #[serde(default)]
    pub estimate_within: EstimateBounds,
    /// Stages of the transactions; null when they were not observed.
    pub stages: Option<Stages>,
    /// Latency of the write on the primary, from send to acknowledgement.
    pub write_latency: Distribution,
    /// Duration of the read that showed the row.
    pub retrieval: Distribution,
    /// Configured delay of the replica, which `from_…` includes; null without one.
    pub configured_delay_us: Option<f64>,
    /// Histogram of `from_ack`.
    pub histogram: Vec<Bin>,
    /// `from_ack` in consecutive windows of the run.
    pub windows: Vec<Window>,
    /// `from_ack` by the number of the row within its start; empty where starts have ten rows or fewer, and by size.
    #[serde(default)]
    pub by_row_number: Vec<LagOfRows>,
}

/// Lag of the rows with these numbers within their starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LagOfRows {
    /// The first number, from 1.
    pub first: u64,
    /// The last number.
    pub last: u64,
    /// Rows that were seen, of all starts.
    pub count: u64,
    /// Their median, from the acknowledgement; null of too few.
    pub p50_us: Option<f64>,
    /// Ratio of the starts' medians to those of the last rows: the geometric mean over the starts, with Student's interval. An
    /// interval that excludes 1 shows that servers had not settled.
    pub of_last: Estimate,
}

/// The null replica: the primary observed as if it were its own replica. Shows the error of
/// the method itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Floor {
    /// Shape that the primary belongs to.
    pub shape: String,
    /// Method of observation.
    pub method: String,
    /// Rounds.
    pub rounds: u64,
    /// Upper end of the bracket, from the acknowledgement.
    pub from_ack: Distribution,
    /// Bracket midpoint, from the acknowledgement.
    pub estimate: Distribution,
    /// Absolute value of the bracket midpoint, from the acknowledgement.
    pub midpoint_abs: Distribution,
    /// Width of the brackets.
    pub bracket_us: Distribution,
    /// For `tap`: from one tap of the primary to a second one.
    #[serde(default)]
    pub from_primary: Distribution,
    /// Round trip of a prepared select of one row by primary key, on the idle primary.
    pub point_select: Distribution,
    /// Round trip of such selects that were in progress when a write was acknowledged, under the
    /// load of the floor itself.
    pub point_select_at_ack: Distribution,
}

/// One line of the published table of experiment 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SweepLoop {
    /// Number of the repetition of the sweep, from 1.
    pub sweep: u32,
    /// The step, from 1.
    #[serde(rename = "loop")]
    pub step: u32,
    /// Payload bytes.
    pub size_bytes: u64,
    /// Sequence number of the step's last row.
    pub sequence: u64,
    /// The write of the step's last row.
    pub insert_us: f64,
    /// The read that showed it.
    pub retrieval_us: f64,
    /// From its send to the end of that read.
    pub total_us: f64,
    /// Total minus insert minus retrieval.
    pub bare_us: f64,
    /// The send, in microseconds since 1970 by the client's calendar clock.
    pub inserted_unix_us: i64,
    /// The end of that read, in the same unit.
    pub fetched_unix_us: i64,
}

/// Experiment 1's table for one replica.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SweepTable {
    /// The replica's name.
    pub replica: String,
    /// All loops of all sweeps, in order.
    pub loops: Vec<SweepLoop>,
}

/// Returns the number of rows that were not seen before the timeout; a row counts once for all methods.
#[must_use]
pub fn missing_rows<'a>(rows: impl Iterator<Item = &'a LagRow>) -> u64 {
    let mut most: std::collections::BTreeMap<(&str, &str, Option<u64>), u64> =
        std::collections::BTreeMap::new();
    for row in rows {
        let of = most
            .entry((&row.shape, &row.replica, row.size_bytes))
            .or_default();
        *of = (*of).max(row.timed_out);
    }
    most.values().sum()
}

/// The record of a `lag` run.
pub type LagDocument = Envelope<LagSettings, LagResults>;

/// Results of a `lag` run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LagResults {
    /// Figures: one row per replica, method and payload size.
    pub rows: Vec<LagRow>,
    /// Rounds that were measured but not counted.
    pub warm_up_rounds: u64,
    /// Error of each method itself, on each shape; empty when it was switched off.
    pub floors: Vec<Floor>,
    /// Background loads, in the order of the shapes.
    #[serde(default)]
    pub load: Vec<LoadRecord>,
    /// Experiment 1's table, per replica; empty without a sweep.
    pub size_sweep: Vec<SweepTable>,
}

impl LagResults {
    /// Returns whether rows were observed in several ways.
    #[must_use]
    pub fn several_methods(&self) -> bool {
        let mut rows = self.rows.iter();
        rows.any(|row| row.method != self.rows[0].method)
    }
}
