//! The record of a `lag` run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    envelope::Envelope,
    load::LoadRecord,
    plan::LagSettings,
    record::{Bin, Distribution, Innermost, Window},
    stages::Stages,
};

/// A bar of experiment 3's histogram: lags that round to `tenth` × 0.1 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tenth {
    /// Tenths of a millisecond.
    pub bin: i64,
    /// Rows.
    pub count: u64,
}

/// Whether rows could be read when the server said that they were applied.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Readable {
    /// Waits that were followed by a read.
    pub rounds: u64,
    /// Waits after which the first read did not show the row.
    pub not_at_once: u64,
    /// From the wait's return to the end of the first read that showed the row; one
    /// round trip when it was readable at once.
    pub gap: Distribution,
}

/// How one method differs from another on the same rows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Against {
    /// The other method.
    pub method: String,
    /// This method's time less the other's, row by row.
    pub difference: Distribution,
}

/// What one replica did, for one payload size or for all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LagRow {
    /// The sandbox's shape, or `endpoints:N` for servers of the user's.
    pub shape: String,
    /// The replica's name.
    pub replica: String,
    /// How it was observed.
    pub method: String,
    /// Payload bytes; null for all sizes of a sweep together.
    pub size_bytes: Option<u64>,
    /// Counted rounds.
    pub rounds: u64,
    /// Rounds whose row was not seen in time.
    pub timed_out: u64,
    /// Rounds whose row came, but whose stamps cannot be placed, since a clock was set
    /// about then; not among the missing.
    #[serde(default)]
    pub unplaced: u64,
    /// Lag from the acknowledgement, upper end of each bracket; may be negative.
    pub from_ack: Distribution,
    /// Lag from the send, upper end of each bracket.
    pub from_send: Distribution,
    /// Lag from the intended start, upper end of each bracket.
    pub from_intended: Distribution,
    /// Width of the brackets: how far the truth may lie below the upper end.
    pub bracket_us: Distribution,
    /// Lag from the acknowledgement by `estimator`: where within the brackets the
    /// truth is most probable to be. `min_us` and `max_us` are the ends of what it covers.
    pub estimate: Distribution,
    /// How `estimate` was made from the brackets.
    pub estimator: String,
    /// From the same event on the primary, like for like: from execution to execution
    /// (`stamp`), from binary log to binary log (`tap`); empty for other methods.
    #[serde(default)]
    pub from_primary: Distribution,
    /// Rows by lag, rounded to 0.1 ms as experiment 3 was published: of `from_primary`, or of `from_ack` for methods without it.
    #[serde(default)]
    pub histogram_100us: Vec<Tenth>,
    /// For `wait`: whether the row could be read when the wait returned.
    #[serde(default)]
    pub readable: Option<Readable>,
    /// How this method disagrees with another on the same rows; null for the method
    /// that the others are held against.
    #[serde(default)]
    pub method_differences: Option<Against>,
    /// What the brackets leave open.
    #[serde(default)]
    pub estimate_within: Innermost,
    /// Stages of the transactions; null when they were not observed.
    pub stages: Option<Stages>,
    /// The write on the primary, send to acknowledgement.
    pub write_latency: Distribution,
    /// The read that showed the row.
    pub retrieval: Distribution,
    /// The replica's configured delay, which `from_…` include; null when none.
    pub configured_delay_us: Option<f64>,
    /// Histogram of `from_ack`.
    pub histogram: Vec<Bin>,
    /// `from_ack` over the course of the run.
    pub windows: Vec<Window>,
}

/// The primary observed as if it were its own replica: what the method adds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Floor {
    /// The shape whose primary it is.
    pub shape: String,
    /// How it was observed.
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
    /// Round trip of one prepared select of one row by its primary key, on the
    /// primary while it had nothing else to do.
    pub point_select: Distribution,
    /// The same, of those selects that were under way when a write was
    /// acknowledged: the yardstick of the floor, under the floor's own load.
    pub point_select_at_ack: Distribution,
}

/// One line of the published table of experiment 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SweepLoop {
    /// Which repetition of the sweep, from 1.
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
    /// Total less insert less retrieval.
    pub bare_us: f64,
    /// The send, in microseconds since 1970 by the client's calendar clock.
    pub inserted_unix_us: i64,
    /// The end of that read, likewise.
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

/// Rows that were not seen in time, each counted once though several methods looked
/// for it.
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

/// What a `lag` run came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LagResults {
    /// The figures, a row per replica and payload size.
    pub rows: Vec<LagRow>,
    /// Rounds that were measured but not counted.
    pub warm_up_rounds: u64,
    /// What each method itself adds, on each shape; empty when it was switched off.
    pub floors: Vec<Floor>,
    /// The loads that ran meanwhile, in the order of the shapes.
    #[serde(default)]
    pub load: Vec<LoadRecord>,
    /// Experiment 1's table, per replica; empty without a sweep.
    pub size_sweep: Vec<SweepTable>,
}

impl LagDocument {
    /// Whether several shapes stand side by side.
    #[must_use]
    pub fn several(&self) -> bool {
        self.target.modes.len() > 1
    }

    /// Whether rows were observed in several ways.
    #[must_use]
    pub fn several_methods(&self) -> bool {
        self.results
            .rows
            .iter()
            .any(|row| row.method != self.results.rows[0].method)
    }

    /// How people tell a replica's series from the others.
    #[must_use]
    pub fn label(&self, shape: &str, replica: &str, method: &str) -> String {
        let name = if self.several() {
            format!("{shape} {replica}")
        } else {
            replica.to_owned()
        };
        if self.several_methods() {
            format!("{name} {method}")
        } else {
            name
        }
    }

    /// The label of a row.
    #[must_use]
    pub fn label_of(&self, row: &LagRow) -> String {
        self.label(&row.shape, &row.replica, &row.method)
    }
}
