//! The record of an `exposure` run.

use replimeter_model::{envelope::Envelope, record::Distribution, replication::Mode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::exposure::settings::ExposureSettings;

/// Distribution of an amount over time: a poll counts with the time for which it stands, half of that since the poll
/// before and half of that until the next one.
///
/// A quantile is null with fewer than ten polls beyond it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AmountDistribution {
    /// Mean over time.
    pub mean: Option<f64>,
    /// 95 % confidence interval of the mean, from whole stalls; null with fewer than twenty of them, and where longer ones
    /// than were seen may decide the mean.
    pub mean_ci95: Option<[f64; 2]>,
    /// Median.
    pub p50: Option<f64>,
    /// 90th percentile.
    pub p90: Option<f64>,
    /// 95th percentile.
    pub p95: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// 99.9th percentile.
    pub p999: Option<f64>,
    /// Largest.
    pub max: Option<f64>,
}

/// Transactions that no replica had received.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExposureRow {
    /// Shape of the sandbox, or `endpoints:N` for the user's servers.
    pub shape: String,
    /// `mariadb` or `mysql`.
    pub engine: String,
    /// Replication mode.
    pub mode: Mode,
    /// Reason why no acknowledged transaction is ever exposed in this mode; null where it may be.
    /// The transactions below are then in progress and not acknowledged yet.
    pub zero_by_construction: Option<String>,
    /// Number of polls.
    pub polls: u64,
    /// Transactions in the primary's binary log during the run, without those that a replica wrote itself.
    pub committed: u64,
    /// Bytes of these transactions.
    pub bytes_committed: u64,
    /// Stalls: times in which the number of exposed transactions rose to twice its mean less its lower quartile, until it
    /// had fallen to that quartile.
    #[serde(default)]
    pub stalls: u64,
    /// Transactions in the primary's log that no replica had received.
    pub transactions: AmountDistribution,
    /// Bytes of the transactions that no replica had received.
    pub bytes: AmountDistribution,
    /// Time that the oldest of them had been in the primary's log, over time; 0 when there was none. `count` is the
    /// number of polls.
    pub age: Distribution,
    /// Share of the time with at least one such transaction, in percent.
    pub exposed_percent: f64,
    /// 95 % confidence interval of `exposed_percent`, as that of a mean.
    pub exposed_percent_ci95: Option<[f64; 2]>,
    /// Duration of a poll, from question to answer: the figures may be too high by the
    /// transactions of this time.
    pub poll_duration_us: Distribution,
    /// Time in which a semi-synchronous primary was not in effect, in percent; null for other
    /// primaries. It is asked twice a second, so a shorter fallback may show in `unacknowledged` only.
    pub fallen_back_percent: Option<f64>,
    /// Transactions that a semi-synchronous primary committed without a replica's acknowledgement, by its own
    /// counter; absent for other primaries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unacknowledged: Option<u64>,
}

/// One window of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExposureWindow {
    /// Start of the window, since the start of the run.
    pub start_us: f64,
    /// End of the window, since the start of the run.
    pub end_us: f64,
    /// Number of polls.
    pub polls: u64,
    /// Transactions in the primary's log during the window.
    pub committed: u64,
    /// Mean number of transactions that no replica had, over the time between polls.
    pub transactions_mean: f64,
    /// Largest number of transactions that no replica had.
    pub transactions_max: u64,
    /// Largest number of their bytes.
    pub bytes_max: u64,
    /// Largest age of the oldest one.
    pub age_max_us: f64,
}

impl ExposureWindow {
    /// Joins the window that follows.
    pub fn extend(&mut self, next: &Self) {
        let times = (self.end_us - self.start_us, next.end_us - next.start_us);
        self.transactions_mean = (self.transactions_mean * times.0
            + next.transactions_mean * times.1)
            / (times.0 + times.1).max(f64::MIN_POSITIVE);
        self.end_us = next.end_us;
        self.polls += next.polls;
        self.committed += next.committed;
        self.transactions_max = self.transactions_max.max(next.transactions_max);
        self.bytes_max = self.bytes_max.max(next.bytes_max);
        self.age_max_us = self.age_max_us.max(next.age_max_us);
    }
}

/// One poll.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExposureSample {
    /// End of the poll, since the start of the run.
    pub at_us: f64,
    /// Time from the question to the last answer.
    pub poll_duration_us: f64,
    /// Replicas that answered.
    pub answered: u64,
    /// Transactions that none had received.
    pub transactions: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Age of the oldest of them; null for none.
    pub age_us: Option<f64>,
    /// Whether a semi-synchronous primary was in effect; null for other primaries.
    #[serde(rename = "semi_sync")]
    pub waits: Option<bool>,
}

/// The record of an `exposure` run.
pub type ExposureDocument = Envelope<ExposureSettings, ExposureResults>;

/// Results of an `exposure` run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExposureResults {
    /// Figures: one row.
    pub rows: Vec<ExposureRow>,
    /// Consecutive windows of the run; neighboring ones are joined when there are many.
    pub windows: Vec<ExposureWindow>,
    /// Rows that Replimeter's writers inserted during the run; null without them.
    pub written: Option<u64>,
}
