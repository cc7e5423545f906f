//! The record of a `tap` run.

use replimeter_model::{envelope::Envelope, record::Distribution};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::tap::settings::TapSettings;

/// Reason why transactions have no lag, and their number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnmatchedReason {
    /// Reason in a few words.
    pub reason: String,
    /// Number of transactions.
    pub count: u64,
}

/// Transactions that touch one schema or table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TapGroup {
    /// The schema.
    pub schema: String,
    /// The table; empty for a whole schema, and for statements.
    pub table: String,
    /// Transactions that arrived from the primary; one that touches several counts for
    /// each.
    pub transactions: u64,
    /// Bytes in the primary's binary log.
    pub bytes: u64,
    /// Lag of these transactions.
    pub lag: Distribution,
}

/// Lag of one replica.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TapRow {
    /// Shape of the sandbox, or `endpoints:N` for the user's servers.
    pub shape: String,
    /// Name of the replica.
    pub replica: String,
    /// Transactions that arrived from the primary during the run.
    pub transactions: u64,
    /// Transactions that also arrived from the replica.
    pub matched: u64,
    /// Transactions that arrived from the replica first; their lag is negative.
    pub inverted: u64,
    /// The largest of these inversions, as a positive time; null for none.
    pub largest_inversion_us: Option<f64>,
    /// Transactions of the primary that will have no lag.
    pub unmatched: u64,
    /// Reasons for these; also counts transactions that are on the replica only.
    pub unmatched_reasons: Vec<UnmatchedReason>,
    /// Transactions that the replica had not shown when the run ended.
    pub pending: u64,
    /// Age of the oldest pending transaction.
    pub behind_us: Option<f64>,
    /// Transactions of the replica that the primary has, and its stream does not: it had committed them before the run,
    /// or its stream has a gap.
    pub before_start: u64,
    /// Time of arrival from the replica minus time of arrival from the primary.
    pub lag: Distribution,
    /// Bytes of the transactions, in the primary's binary log.
    pub bytes: u64,
    /// Figures by schema or table.
    pub group_by: Vec<TapGroup>,
    /// MySQL: from the commit, by the primary's clock, to the arrival from the replica,
    /// by the client's; moved to one clock by the measured offset ([`TapResults::clocks`]).
    pub commit_to_arrival: Option<Distribution>,
    /// MySQL: from the commit by the primary's clock to that by the replica's, both
    /// moved to the client's clock.
    pub by_servers: Option<Distribution>,
    /// Configured delay of the replica, which `lag` includes; null without one.
    pub configured_delay_us: Option<f64>,
}

/// One window of the run, of one replica.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TapWindow {
    /// Name of the replica.
    pub replica: String,
    /// Start of the window, since the start of the run.
    pub start_us: f64,
    /// End of the window, since the start of the run.
    pub end_us: f64,
    /// Transactions that arrived from the primary.
    pub transactions: u64,
    /// Bytes of these transactions.
    pub bytes: u64,
    /// Transactions that arrived from the replica and have a lag.
    pub matched: u64,
    /// Matched transactions that the replica showed first.
    pub inverted: u64,
    /// Smallest lag.
    pub min_us: Option<f64>,
    /// Median lag; null for fewer than twenty. Of joined windows the largest median.
    pub p50_us: Option<f64>,
    /// 99th percentile of the lag; null for fewer than a thousand. Of joined windows the largest.
    pub p99_us: Option<f64>,
    /// Largest lag.
    pub max_us: Option<f64>,
    /// Transactions of the primary that the replica had not shown at the end.
    pub pending: u64,
    /// Age of the oldest pending transaction; null for none.
    pub behind_us: Option<f64>,
}

impl TapWindow {
    /// Joins the window that follows.
    pub fn extend(&mut self, next: &Self) {
        let larger =
            |one: Option<f64>, other: Option<f64>| one.into_iter().chain(other).reduce(f64::max);
        self.end_us = next.end_us;
        self.transactions += next.transactions;
        self.bytes += next.bytes;
        self.matched += next.matched;
        self.inverted += next.inverted;
        self.min_us = self.min_us.into_iter().chain(next.min_us).reduce(f64::min);
        self.p50_us = larger(self.p50_us, next.p50_us);
        self.p99_us = larger(self.p99_us, next.p99_us);
        self.max_us = larger(self.max_us, next.max_us);
        self.pending = next.pending;
        self.behind_us = larger(self.behind_us, next.behind_us);
    }
}

/// The primary followed twice: the error of the method itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TapFloor {
    /// Transactions that both connections showed.
    pub transactions: u64,
    /// Time of arrival over the second connection minus that over the first.
    pub difference: Distribution,
    /// Absolute value of the difference.
    pub difference_abs: Distribution,
}

/// One followed binary log.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TapStream {
    /// Name of the server.
    pub name: String,
    /// The `server_id` under which it was followed.
    pub server_id: u32,
    /// Complete transactions.
    pub transactions: u64,
    /// Bytes.
    pub bytes: u64,
    /// Events of unknown kinds, which are skipped.
    pub unknown_events: u64,
    /// Changes to another log file.
    pub rotations: u64,
    /// Number of reconnections.
    pub reconnects: u64,
    /// Transactions that were too large for a complete list of their tables.
    pub partial_tables: u64,
    /// Whether the connection was encrypted.
    pub tls: bool,
    /// Processor time of the thread that read the log, per transaction.
    pub cpu_us_per_transaction: Option<f64>,
}

/// A server's clock compared with the client's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TapClock {
    /// Name of the server.
    pub name: String,
    /// The server's time minus the client's, at the start.
    pub offset_us: f64,
    /// Largest error of times that are moved to the client's clock.
    pub bound_us: f64,
    /// Change of the offset until the end.
    pub drift_us: f64,
    /// Number of times that the clock was set during the run; times about then are left out.
    pub steps: u64,
}

/// The record of a `tap` run.
pub type TapDocument = Envelope<TapSettings, TapResults>;

/// Results of a `tap` run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TapResults {
    /// Figures: one row per replica.
    pub rows: Vec<TapRow>,
    /// Error of the method itself; null when it was switched off or nothing was committed in that
    /// time.
    pub floor: Option<TapFloor>,
    /// Consecutive windows of the run; neighboring ones are joined when there are many. All are
    /// in `samples.parquet`.
    pub windows: Vec<TapWindow>,
    /// Followed logs; the primary's is first.
    pub streams: Vec<TapStream>,
    /// Clocks of servers that write times into their logs (MySQL).
    #[serde(default)]
    pub clocks: Vec<TapClock>,
    /// Processor time of Replimeter per transaction of the primary: all streams and the matching.
    pub cpu_us_per_transaction: Option<f64>,
    /// Largest number of bytes of arrivals that waited on disk.
    pub spilled_bytes: u64,
}
