//! The stages of transactions, from the send to visibility.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::record::Distribution;

/// A moment in a transaction's replication, in the order of asynchronous replication.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Mark {
    /// The client is about to hand the statement to the socket.
    Send,
    /// In the primary's binary log.
    #[serde(rename = "in-binlog")]
    Logged,
    /// In the replica's relay log.
    Received,
    /// A thread of the replica begins to apply it.
    ApplyBegan,
    /// Applied and committed on the replica.
    Applied,
    /// Visible to a reader of the replica.
    Visible,
    /// The client has the primary's answer. Part of the chain of stages only where
    /// replication precedes it (Galera); parallel to it otherwise.
    Ack,
}

impl Mark {
    /// Returns its name in reports.
    #[must_use]
    pub fn description(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Logged => "in binlog",
            Self::Received => "received",
            Self::ApplyBegan => "apply began",
            Self::Applied => "applied",
            Self::Visible => "visible",
            Self::Ack => "ack",
        }
    }

    /// Returns the name of the stage from this mark to `next`.
    #[must_use]
    pub fn stage(self, next: Self) -> &'static str {
        match (self, next) {
            (Self::Send, Self::Logged) => "commit",
            (Self::Send, Self::Ack) => "replicate and certify",
            (Self::Send, Self::Received) => "commit and transfer",
            (Self::Logged, Self::Received) => "transfer",
            (Self::Logged, Self::Ack) => "acknowledge",
            (Self::Logged, Self::Visible) => "transfer and apply",
            (Self::Received, Self::ApplyBegan) => "queue",
            (Self::Received, Self::Applied) => "queue and apply",
            (Self::ApplyBegan | Self::Ack, Self::Applied)
            | (Self::Ack | Self::Received, Self::Visible) => "apply",
            (Self::ApplyBegan, Self::Visible) => "apply and show",
            (Self::Applied, Self::Visible) => "show",
            _ => "rest",
        }
    }
}

/// One mark with its error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MarkRecord {
    /// The mark.
    pub mark: Mark,
    /// Clock that stamped the mark: `client`, `primary`, `replica1` …; a server's stamps are
    /// moved to the client's clock by a measured offset.
    pub clock: String,
    /// Half-width of the error on the client's clock, mean over the transactions.
    pub error_mean_us: Option<f64>,
    /// Largest half-width of the error.
    pub error_max_us: Option<f64>,
}

/// One stage of the way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stage {
    /// Name of the stage.
    pub name: String,
    /// Mark at which the stage begins.
    pub from: Mark,
    /// Mark at which the stage ends.
    pub to: Mark,
    /// Duration of the stage. Negative where its error bar is wider than it is long, or where a
    /// server does not stamp in order: a worker may begin before the receiver has stamped the
    /// end, and a row is visible before the worker stamps the end.
    pub duration: Distribution,
    /// Half-width of the error of one such duration, mean over the transactions.
    pub error_mean_us: f64,
    /// Transactions that ended it before they began it, by more than the error bar.
    pub inversions: u64,
    /// The largest such inversion, a negative number. Nothing is clamped.
    pub worst_inversion_us: Option<f64>,
}

/// Mean stages of the transactions near one quantile of the end-to-end time.
///
/// Percentiles do not add; means of the same transactions do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct QuantileBreakdown {
    /// `p50`, `p90` or `p99` of the end-to-end time.
    pub quantile: String,
    /// Number of transactions: the nearest 1 %, and at least ten.
    pub count: u64,
    /// Mean end-to-end time of these transactions.
    pub end_to_end_us: f64,
    /// Mean stages of these transactions, in order.
    pub stages_us: Vec<f64>,
    /// End-to-end time minus the sum of the stages.
    pub residue_us: f64,
}

/// Waterfall of one replica.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stages {
    /// Transactions that were observed.
    pub transactions: u64,
    /// Transactions of which every stage is known; all distributions are of these.
    pub covered: u64,
    /// Transactions of which a stage is unknown, because the server had overwritten it with
    /// another transaction's.
    pub overwritten: u64,
    /// The marks of the chain, and the acknowledgement.
    pub marks: Vec<MarkRecord>,
    /// From the chain's first mark to its last, both on the client's clock.
    pub end_to_end: Distribution,
    /// The stages in order, from the chain's first mark to its last.
    pub stages: Vec<Stage>,
    /// Stages that run in parallel with the chain; they are in no sum.
    pub parallel_stages: Vec<Stage>,
    /// End-to-end time minus the sum of the stages, by transaction. A stage between two
    /// marks of one clock is measured on that clock, end to end on the client's.
    pub residue: Distribution,
    /// Transactions whose residue is beyond the error bars of their stages.
    pub residue_beyond: u64,
    /// Mean stages of the transactions near p50, p90 and p99.
    pub tail_breakdown: Vec<QuantileBreakdown>,
}
