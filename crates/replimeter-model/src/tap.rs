//! The record of a `tap` run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{envelope::Envelope, plan::TapSettings, record::Distribution};

/// Why transactions have no lag, and how many.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnmatchedReason {
    /// In a few words.
    pub reason: String,
    /// How many.
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
    /// Their bytes in the primary's binary log.
    pub bytes: u64,
    /// Their lag.
    pub lag: Distribution,
}

/// What one replica did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TapRow {
    /// The sandbox's shape, or `endpoints:N` for servers of the user's.
    pub shape: String,
    /// The replica's name.
    pub replica: String,
    /// Transactions that arrived from the primary while it was followed.
    pub transactions: u64,
    /// Those that arrived from the replica too.
    pub matched: u64,
    /// Those that arrived from the replica first; their lag is negative.
    pub inverted: u64,
    /// The largest of these inversions, as a positive time; null for none.
    pub largest_inversion_us: Option<f64>,
    /// Those of the primary that will have no lag.
    pub unmatched: u64,
    /// Why; also what is on the replica only, which counts above for nothing.
    pub unmatched_reasons: Vec<UnmatchedReason>,
    /// Those that the replica had still to show when the run ended.
    pub pending: u64,
    /// How old the oldest of them was.
    pub behind_us: Option<f64>,
    /// Transactions of the replica that the primary had committed before the run.
    pub before_start: u64,
    /// Arrival from the replica less arrival from the primary.
    pub lag: Distribution,
    /// Bytes of the transactions, in the primary's binary log.
    pub bytes: u64,
    /// Broken down by schema or table.
    pub group_by: Vec<TapGroup>,
    /// MySQL: from the commit, by the primary's clock, to the arrival from the replica,
    /// by ours; moved to one clock by the measured offset ([`TapResults::clocks`]).
    pub commit_to_arrival: Option<Distribution>,
    /// MySQL: from the commit by the primary's clock to that by the replica's, both
    /// moved to our clock.
    pub by_servers: Option<Distribution>,
    /// The replica's configured delay, which `lag` includes; null when none.
    pub configured_delay_us: Option<f64>,
}

/// One stretch of the run, of one replica.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TapWindow {
    /// The replica's name.
    pub replica: String,
    /// Beginning, since the run's.
    pub start_us: f64,
    /// End.
    pub end_us: f64,
    /// Transactions that arrived from the primary.
    pub transactions: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Transactions that arrived from the replica and have a lag.
    pub matched: u64,
    /// Of those, the ones that the replica showed first.
    pub inverted: u64,
    /// Smallest lag of them.
    pub min_us: Option<f64>,
    /// Median, when twenty or more. Of a window made of several, the largest of theirs.
    pub p50_us: Option<f64>,
    /// 99th percentile, when a thousand or more. Of a window made of several, the
    /// largest of theirs.
    pub p99_us: Option<f64>,
    /// Largest.
    pub max_us: Option<f64>,
    /// Transactions of the primary that the replica had still to show at the end.
    pub pending: u64,
    /// How old the oldest of them was; null for none.
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

/// The primary followed twice: what the method itself adds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TapFloor {
    /// Transactions that both connections showed.
    pub transactions: u64,
    /// Arrival over the second connection less arrival over the first.
    pub difference: Distribution,
    /// The same without its sign.
    pub difference_abs: Distribution,
}

/// One followed binary log.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TapStream {
    /// The server's name.
    pub name: String,
    /// The `server_id` under which it was followed.
    pub server_id: u32,
    /// Whole transactions.
    pub transactions: u64,
    /// Bytes.
    pub bytes: u64,
    /// Events of kinds that this version does not know; passed over.
    pub unknown_events: u64,
    /// Changes to another file.
    pub rotations: u64,
    /// How often the connection was made again.
    pub reconnects: u64,
    /// Transactions whose list of tables is not complete, since they were too large.
    pub partial_tables: u64,
    /// Whether it was encrypted.
    pub tls: bool,
    /// Processor time of the thread that read it, per transaction.
    pub cpu_us_per_transaction: Option<f64>,
}

/// A server's clock beside ours.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TapClock {
    /// The server's name.
    pub name: String,
    /// Its time less the client's, at the beginning.
    pub offset_us: f64,
    /// Times of it were placed with an error of at most this.
    pub bound_us: f64,
    /// By how much the offset had changed at the end.
    pub drift_us: f64,
    /// How often it was set meanwhile; times about then are left out.
    pub steps: u64,
}

/// The record of a `tap` run.
pub type TapDocument = Envelope<TapSettings, TapResults>;

/// What a `tap` run came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TapResults {
    /// The figures, a row per replica.
    pub rows: Vec<TapRow>,
    /// What the method itself adds; null when it was switched off or nothing was
    /// committed meanwhile.
    pub floor: Option<TapFloor>,
    /// The course of the run; neighbouring windows are joined when there are many. All are
    /// in `samples.parquet`.
    pub windows: Vec<TapWindow>,
    /// The followed logs; the primary's first.
    pub streams: Vec<TapStream>,
    /// Clocks of servers that write times into their logs (MySQL).
    #[serde(default)]
    pub clocks: Vec<TapClock>,
    /// Processor time of ours per transaction of the primary, all streams and the
    /// matching together.
    pub cpu_us_per_transaction: Option<f64>,
    /// Bytes of arrivals that waited on disk, at most.
    pub spilled_bytes: u64,
}
