//! The record of a `loss` run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{envelope::Envelope, plan::LossSettings, record::Distribution};

/// How a count is distributed over crashes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Counts {
    /// Crashes.
    pub count: u64,
    /// Smallest.
    pub min: Option<u64>,
    /// Arithmetic mean.
    pub mean: Option<f64>,
    /// A 95 % interval of the mean, by the bootstrap over crashes; null below four.
    pub mean_ci95: Option<[f64; 2]>,
    /// Standard deviation (n − 1).
    pub stdev: Option<f64>,
    /// Median.
    pub p50: Option<f64>,
    /// An interval of the median by order statistics, of at least 95 %; null below six
    /// crashes, which cannot carry it.
    pub p50_ci95: Option<[f64; 2]>,
    /// Largest.
    pub max: Option<u64>,
}

/// How many of several crashes something happened in.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Share {
    /// In how many.
    pub count: u64,
    /// Of how many.
    pub of: u64,
    /// In percent.
    pub percent: f64,
    /// Its 95 % confidence interval (Wilson 1927), in percent.
    pub percent_ci95: [f64; 2],
}

/// Transactions that the old primary has and the new one has not.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Errant {
    /// By GTID; null where the server does not tell them all.
    pub transactions: Option<u64>,
    /// The GTIDs as a set, or per domain from the first to the last.
    pub gtids: String,
    /// Rows of ours among them.
    pub rows: u64,
    /// Of these rows, the acknowledged ones.
    pub acknowledged: u64,
    /// Rows that the new primary has and the old one has not: it lost them itself.
    pub lost: u64,
}

/// One crash.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CrashRecord {
    /// What was crashed: the shape, with the wait point where there are two.
    pub shape: String,
    /// Its number, from 1.
    pub number: u64,
    /// From the first write to the crash: the cut of the links, or the end of the primary.
    pub load_us: f64,
    /// Transactions that were begun.
    pub begun: u64,
    /// Of these, acknowledged to the client.
    pub acknowledged: u64,
    /// Of the acknowledged, those after the links were cut.
    pub acknowledged_after_cut: u64,
    /// Of the acknowledged, those that the most advanced replica does not have.
    pub lost: u64,
    /// The missing were acknowledged at most so long before the end of the primary; null
    /// when none is missing.
    pub lost_since_us: Option<f64>,
    /// Of the missing, those acknowledged after the links were cut.
    pub lost_after_cut: u64,
    /// Transactions that another session saw on the primary.
    pub seen: u64,
    /// Of the seen, those that the most advanced replica does not have.
    pub seen_then_lost: u64,
    /// Of these, those that were never acknowledged.
    pub seen_unacknowledged_lost: u64,
    /// Begun, not acknowledged, and on the most advanced replica all the same.
    pub unacknowledged_present: u64,
    /// Begun and not acknowledged.
    pub unacknowledged: u64,
    /// Of these, refused by the server with an error.
    pub refused: u64,
    /// The server that took over: the most advanced replica, or whom the group elected.
    pub promoted: String,
    /// From the end of the primary until every replica had applied what it received; null in
    /// a cluster, where it is part of the first write.
    pub drained_us: Option<f64>,
    /// From the end of the primary until the server that took over had been made writable.
    pub promoted_us: f64,
    /// From the end of the primary until it had acknowledged its first write.
    pub recovery_us: f64,
    /// Transactions that a semi-synchronous primary committed without a replica's
    /// acknowledgement before it ended: it had fallen back.
    pub fallen_back: u64,
    /// From its start until the old primary answered again.
    pub return_us: Option<f64>,
    /// What it has that the new one has not; null when it did not come back.
    pub errant: Option<Errant>,
    /// Why it did not come back, or could not be compared.
    pub return_error: Option<String>,
}

/// What crashes of one way of replicating took with them. Counts are of all crashes
/// together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LossRow {
    /// What was crashed: the shape, with the wait point where there are two.
    pub shape: String,
    /// `mariadb` or `mysql`.
    pub engine: String,
    /// How it replicates: `async`, `semi-sync`, `chain`, `galera`, `group`.
    pub mode: String,
    /// `after-commit` or `after-sync`, of semi-synchronous replication.
    pub wait_point: Option<String>,
    /// How the primary ended: `kill` or `partition`.
    pub crash: String,
    /// How often.
    pub crashes: u64,
    /// Transactions that were acknowledged to the client.
    pub acknowledged: u64,
    /// Of these, those that the most advanced replica does not have.
    pub lost: u64,
    /// Transactions that another session saw on the primary and that are gone.
    pub seen_then_lost: u64,
    /// Of these, those that were never acknowledged.
    pub seen_unacknowledged_lost: u64,
    /// Never acknowledged, and present all the same.
    pub unacknowledged_present: u64,
    /// From the end of the primary until the server that took over had acknowledged its
    /// first write: the median over the crashes.
    pub recovery_us: Option<f64>,
    /// The same, as a distribution.
    pub recovery: Distribution,
    /// An interval of the median by order statistics, as for [`Counts::p50_ci`].
    pub recovery_us_ci95: Option<[f64; 2]>,
    /// In how many crashes an acknowledged transaction was lost.
    pub lossy: Share,
    /// In how many crashes something that was seen was lost.
    pub lossy_to_readers: Share,
    /// Missing transactions per crash.
    pub lost_per_crash: Counts,
    /// Seen and lost transactions per crash.
    pub seen_then_lost_per_crash: Counts,
    /// Acknowledged transactions per second before the crash: the median.
    pub acknowledged_per_s: Option<f64>,
    /// The longest time before the end of the primary at which a missing transaction had
    /// been acknowledged.
    pub lost_since_us: Option<f64>,
    /// Rows on the old primaries, when they came back, that the new ones have not.
    pub errant_rows: u64,
    /// Of these, the acknowledged ones.
    pub errant_acknowledged: u64,
    /// Crashes before which a semi-synchronous primary had fallen back.
    pub fallen_back: u64,
}

/// The record of a `loss` run.
pub type LossDocument = Envelope<LossSettings, LossResults>;

/// What a `loss` run came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LossResults {
    /// The figures, a row for each way of replicating.
    pub rows: Vec<LossRow>,
    /// Every crash; also in `samples.parquet`.
    pub crashes: Vec<CrashRecord>,
    /// Semi-synchronous primaries waited so long for an acknowledgement; null when none was
    /// crashed, or the user chose.
    pub semi_sync_timeout_us: Option<f64>,
}
