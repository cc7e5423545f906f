//! What `watch` finds, and the record of a run.

use std::collections::BTreeMap;

use replimeter_model::envelope::Envelope;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::settings::WatchSettings;
pub use super::state::State;

/// The ends of a replica's lag, in µs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LagRange {
    /// It is at least this.
    pub low_us: f64,
    /// It is at most this; null if that is not known: the replica was behind when the watch began.
    pub high_us: Option<f64>,
}

/// One server at one poll.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WatchSample {
    /// When the states were decided, since the start of the run.
    pub at_us: f64,
    /// The server.
    pub server: String,
    /// Its state.
    pub state: Option<State>,
    /// Why it is that one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Its lag; null if it is not known, and for the primary.
    pub lag: Option<LagRange>,
    /// Transactions of the primary that it had not applied.
    pub behind: Option<u64>,
    /// The largest lag that its own status column reports, in seconds.
    pub seconds_behind: Option<u64>,
    /// Time since the last proof that its link works.
    pub proof_age_us: Option<f64>,
    /// Transactions that only it has.
    pub errant: Option<u64>,
    /// Time that it applies later on purpose, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_s: Option<u64>,
    /// Transactions in the queue of a cluster's member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<f64>,
    /// Share of the time since the last answer in which flow control paused a cluster's member, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_percent: Option<f64>,
    /// Age of its last answer.
    pub answer_age_us: Option<f64>,
    /// Time that the last answer took.
    pub answer_took_us: Option<f64>,
    /// Largest lag of the last 10 s.
    pub max_10s: Option<LagRange>,
    /// Largest lag of the last 5 min.
    pub max_5min: Option<LagRange>,
}

impl WatchSample {
    /// Returns its state.
    #[must_use]
    pub fn state(&self) -> State {
        self.state.unwrap_or(State::Unknown)
    }
}

/// All servers at one poll.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WatchRound {
    /// The servers, in their declared order.
    pub servers: Vec<WatchSample>,
    /// Transactions that no replica has received; null if that is not known.
    pub not_received: Option<u64>,
    /// Whether commits wait for a replica; null for a primary that is not semi-synchronous.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<bool>,
    /// Replicas of the primary that are not watched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_watched: Vec<String>,
}

impl WatchRound {
    /// Returns when the states were decided, since the start of the watch.
    #[must_use]
    pub fn at_us(&self) -> f64 {
        self.servers.first().map_or(0.0, |sample| sample.at_us)
    }
}

/// Something that happened.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WatchChange {
    /// When it was seen, since the start of the run.
    pub at_us: f64,
    /// The server.
    pub server: String,
    /// What happened, as a sentence without the server's name.
    pub text: String,
    /// The server's state since then; null if it did not change.
    pub state: Option<State>,
}

/// A server over the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WatchRow {
    /// The server.
    pub server: String,
    /// Its state at the end.
    pub state: Option<State>,
    /// Number of polls at which its lag was known.
    pub samples: u64,
    /// Largest lower end of its lag: it was this late at some time.
    pub lag_max_low_us: Option<f64>,
    /// Largest upper end of its lag: it was never later than this when asked. Null if an upper end was not known.
    pub lag_max_high_us: Option<f64>,
    /// Share of the time in which its lag was above `max-lag` for certain, in percent.
    pub late_percent: Option<f64>,
    /// Share of the time in which it may have been, in percent: with the polls whose bound contains `max-lag`, or was not known.
    pub maybe_late_percent: Option<f64>,
    /// Time in each state.
    pub state_us: BTreeMap<String, f64>,
    /// Largest number of transactions behind.
    pub behind_max: Option<u64>,
    /// Transactions at the end that only it has.
    pub errant: Option<u64>,
}

/// One window of a replica.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WatchWindow {
    /// Start of the window, since the start of the run.
    pub start_us: f64,
    /// End of the window, since the start of the run.
    pub end_us: f64,
    /// The server.
    pub server: String,
    /// Its worst state.
    pub state: Option<State>,
    /// Largest lower end of its lag; null if it was not known.
    pub lag_max_low_us: Option<f64>,
    /// Largest upper end of its lag; null if one was not known.
    pub lag_max_high_us: Option<f64>,
    /// Largest number of transactions behind.
    pub behind_max: Option<u64>,
}

/// Results of a `watch` run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WatchResults {
    /// The servers' name in reports.
    pub shape: String,
    /// Every server over the run.
    pub rows: Vec<WatchRow>,
    /// Consecutive windows of each replica; neighboring ones are joined when there are many.
    pub windows: Vec<WatchWindow>,
    /// What happened, in order; the oldest are left out when there are many.
    pub changes: Vec<WatchChange>,
    /// Number of changes, those left out included.
    pub changes_seen: u64,
    /// Number of polls.
    pub polls: u64,
}

/// The record of a `watch` run.
pub type WatchDocument = Envelope<WatchSettings, WatchResults>;
