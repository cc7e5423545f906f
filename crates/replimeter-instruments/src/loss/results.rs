//! The record of a `loss` run.

use replimeter_model::{envelope::Envelope, record::Distribution, replication::Mode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::loss::settings::LossSettings;

/// Distribution of a count over crashes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CountSummary {
    /// Crashes.
    pub count: u64,
    /// Smallest.
    pub min: Option<u64>,
    /// Arithmetic mean.
    pub mean: Option<f64>,
    /// 95 % confidence interval of the mean, from the share of crashes with a loss and the size of the losses; null below
    /// seven crashes with a loss.
    pub mean_ci95: Option<[f64; 2]>,
    /// Standard deviation (n − 1).
    pub stdev: Option<f64>,
    /// Median.
    pub p50: Option<f64>,
    /// Confidence interval of the median by order statistics, of at least 95 %; null below six
    /// crashes.
    pub p50_ci95: Option<[f64; 2]>,
    /// Largest.
    pub max: Option<u64>,
}

/// Share of crashes in which an event happened.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CrashShare {
    /// Crashes with the event.
    pub count: u64,
    /// All crashes.
    pub of: u64,
    /// Share in percent.
    pub percent: f64,
    /// Its 95 % confidence interval (Wilson 1927), in percent.
    pub percent_ci95: [f64; 2],
}

/// Transactions that the old primary has and the new one does not.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ErrantTransactions {
    /// Number of transactions by GTID; null where the server does not list all of them.
    pub transactions: Option<u64>,
    /// The GTIDs as a set, or per domain from the first to the last.
    #[serde(rename = "gtids")]
    pub commit_ids: String,
    /// Rows of Replimeter's table among them.
    pub rows: u64,
    /// Acknowledged rows among these.
    pub acknowledged: u64,
    /// Rows that the new primary has and the old one lost itself.
    pub lost: u64,
}

/// One crash.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CrashRecord {
    /// Shape that was crashed, with the wait point where there are two.
    pub shape: String,
    /// Number of the crash, from 1.
    pub number: u64,
    /// Time from the first write to the crash: the cut of the links, or the end of the primary.
    pub load_us: f64,
    /// Transactions that were begun.
    pub begun: u64,
    /// Transactions that were acknowledged to the client.
    pub acknowledged: u64,
    /// Acknowledged transactions after the links were cut.
    pub acknowledged_after_cut: u64,
    /// Acknowledged transactions that the most advanced replica does not have.
    pub lost: u64,
    /// Longest time before the end of the primary at which a lost transaction was acknowledged;
    /// null when none was lost.
    pub lost_since_us: Option<f64>,
    /// Lost transactions that were acknowledged after the links were cut.
    pub lost_after_cut: u64,
    /// Transactions that another session saw on the primary.
    pub seen: u64,
    /// Seen transactions that the most advanced replica does not have.
    pub seen_then_lost: u64,
    /// Seen and lost transactions that were never acknowledged.
    pub seen_unacknowledged_lost: u64,
    /// Transactions that were not acknowledged, but are on the most advanced replica.
    pub unacknowledged_present: u64,
    /// Transactions that were begun and not acknowledged.
    pub unacknowledged: u64,
    /// Unacknowledged transactions that the server refused with an error.
    pub refused: u64,
    /// Server that took over: the most advanced replica, or the member that the group elected.
    pub promoted: String,
    /// Time from the end of the primary until every replica had applied what it received; null
    /// in a cluster, where it is part of the first write.
    pub drained_us: Option<f64>,
    /// Time from the end of the primary until the server that took over was made writable.
    pub promoted_us: f64,
    /// Time from the end of the primary until the server that took over acknowledged its first
    /// write.
    pub recovery_us: f64,
    /// Transactions that a semi-synchronous primary committed without a replica's
    /// acknowledgement before it ended: it had fallen back.
    pub fallen_back: u64,
    /// Time from the start of the old primary until it answered again.
    pub return_us: Option<f64>,
    /// Transactions that only the old primary has; null when it did not come back.
    pub errant: Option<ErrantTransactions>,
    /// Reason why the old primary did not come back, or could not be compared.
    pub return_error: Option<String>,
}

/// Losses of one way of replicating. Counts are of all crashes together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LossRow {
    /// Shape that was crashed, with the wait point where there are two.
    pub shape: String,
    /// `mariadb` or `mysql`.
    pub engine: String,
    /// Replication mode.
    pub mode: Mode,
    /// `after-commit` or `after-sync` of semi-synchronous replication.
    pub wait_point: Option<String>,
    /// How the primary ended: `kill` or `partition`.
    pub crash: String,
    /// Number of crashes.
    pub crashes: u64,
    /// Transactions that were acknowledged to the client.
    pub acknowledged: u64,
    /// Acknowledged transactions that the most advanced replica does not have.
    pub lost: u64,
    /// Transactions that another session saw on the primary and that are lost.
    pub seen_then_lost: u64,
    /// Seen and lost transactions that were never acknowledged.
    pub seen_unacknowledged_lost: u64,
    /// Transactions that were never acknowledged, but are present.
    pub unacknowledged_present: u64,
    /// Time from the end of the primary until the server that took over acknowledged its first
    /// write: the median over the crashes.
    pub recovery_us: Option<f64>,
    /// Distribution of the recovery time.
    pub recovery: Distribution,
    /// Confidence interval of the median by order statistics, as for [`CountSummary::p50_ci95`].
    pub recovery_us_ci95: Option<[f64; 2]>,
    /// Crashes in which an acknowledged transaction was lost.
    pub lossy: CrashShare,
    /// Crashes in which a transaction that was seen was lost.
    pub lossy_to_readers: CrashShare,
    /// Lost transactions per crash.
    pub lost_per_crash: CountSummary,
    /// Seen and lost transactions per crash.
    pub seen_then_lost_per_crash: CountSummary,
    /// Acknowledged transactions per second before the crash: the median.
    pub acknowledged_per_s: Option<f64>,
    /// Longest time before the end of the primary at which a lost transaction was acknowledged.
    pub lost_since_us: Option<f64>,
    /// Rows on the returned old primaries that the new ones do not have.
    pub errant_rows: u64,
    /// Acknowledged rows among these.
    pub errant_acknowledged: u64,
    /// Crashes before which a semi-synchronous primary had fallen back.
    pub fallen_back: u64,
}

/// The record of a `loss` run.
pub type LossDocument = Envelope<LossSettings, LossResults>;

/// Results of a `loss` run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LossResults {
    /// Figures: one row for each way of replicating.
    pub rows: Vec<LossRow>,
    /// Every crash; also in `samples.parquet`.
    pub crashes: Vec<CrashRecord>,
    /// Time that semi-synchronous primaries waited for an acknowledgement; null when none was
    /// crashed, or the user set it.
    #[serde(rename = "semi_sync_timeout_us")]
    pub acknowledgement_timeout_us: Option<f64>,
}
