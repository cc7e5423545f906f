//! The record of an `exposure` run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{envelope::Envelope, plan::ExposureSettings, record::Distribution};

/// How an amount is distributed over the looks at it, which are evenly spaced in time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Amount {
    /// Mean over time.
    pub mean: Option<f64>,
    /// Median.
    pub p50: Option<f64>,
    /// 90th percentile; null with fewer than ten looks beyond it.
    pub p90: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// 99.9th percentile.
    pub p999: Option<f64>,
    /// Largest.
    pub max: Option<f64>,
}

/// What no replica had received.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExposureRow {
    /// The sandbox's shape, or `endpoints:N` for servers of the user's.
    pub shape: String,
    /// `mariadb` or `mysql`.
    pub engine: String,
    /// How it replicates.
    pub mode: String,
    /// Why no acknowledged transaction is ever exposed in this mode; null where it may be.
    /// What is counted below is then under way and not acknowledged yet.
    pub zero_by_construction: Option<String>,
    /// Looks.
    pub polls: u64,
    /// Transactions in the primary's binary log meanwhile.
    pub committed: u64,
    /// Their bytes.
    pub bytes_committed: u64,
    /// Transactions in the primary's log that no replica had received.
    pub transactions: Amount,
    /// Their bytes.
    pub bytes: Amount,
    /// How long the oldest of them had been in the primary's log; 0 when there was none.
    pub age: Distribution,
    /// Share of the time in which there was any, in percent.
    pub exposed_percent: f64,
    /// What the figures may be too high by: the width of a look, from question to answer.
    pub poll_duration_us: Distribution,
    /// Time in which a semi-synchronous primary was not in effect, in percent; null when it
    /// is none.
    pub fallen_back_percent: Option<f64>,
}

/// One stretch of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExposureWindow {
    /// Beginning, since the run's.
    pub start_us: f64,
    /// End.
    pub end_us: f64,
    /// Looks.
    pub polls: u64,
    /// Transactions in the primary's log meanwhile.
    pub committed: u64,
    /// Mean number that no replica had.
    pub transactions_mean: f64,
    /// Largest.
    pub transactions_max: u64,
    /// Largest of their bytes.
    pub bytes_max: u64,
    /// Largest age of the oldest.
    pub age_max_us: f64,
}

impl ExposureWindow {
    /// Joins the window that follows.
    pub fn extend(&mut self, next: &Self) {
        let looks = (self.polls + next.polls).max(1) as f64;
        self.transactions_mean = (self.transactions_mean * self.polls as f64
            + next.transactions_mean * next.polls as f64)
            / looks;
        self.end_us = next.end_us;
        self.polls += next.polls;
        self.committed += next.committed;
        self.transactions_max = self.transactions_max.max(next.transactions_max);
        self.bytes_max = self.bytes_max.max(next.bytes_max);
        self.age_max_us = self.age_max_us.max(next.age_max_us);
    }
}

/// One look.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExposureSample {
    /// When it ended, since the run's beginning.
    pub at_us: f64,
    /// From the question to the last answer.
    pub poll_duration_us: f64,
    /// Replicas that answered.
    pub answered: u64,
    /// Transactions that none had received.
    pub transactions: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Age of the oldest of them; null for none.
    pub age_us: Option<f64>,
    /// Whether a semi-synchronous primary was in effect; null when it is none.
    pub semi_sync: Option<bool>,
}

/// The record of an `exposure` run.
pub type ExposureDocument = Envelope<ExposureSettings, ExposureResults>;

/// What an `exposure` run came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExposureResults {
    /// The figures, one row.
    pub rows: Vec<ExposureRow>,
    /// The course of the run; neighbouring windows are joined when there are many.
    pub windows: Vec<ExposureWindow>,
    /// Rows that our own writers inserted meanwhile; null without them.
    pub written: Option<u64>,
}
