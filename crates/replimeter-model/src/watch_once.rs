//! The JSON document of `watch --once`: whether every replica has applied what the primary had.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::time_span::TimeSpan;

/// The schema of [`WatchOnceDocument`].
pub const WATCH_ONCE_SCHEMA: &str = "replimeter.watch-once/1";

one_of! {
    /// Whether a replica has applied what the primary had.
    pub enum OnceState {
        /// It has applied it within the limit
        Ok = "ok",
        /// It had not applied it within the limit
        Late = "late",
        /// It is not known
        Unknown = "unknown",
    }
}

/// `replimeter watch --once --json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WatchOnceDocument {
    /// [`WATCH_ONCE_SCHEMA`].
    pub schema: String,
    /// The servers' name in reports.
    pub shape: String,
    /// `late` if a replica is; `unknown` if that is not known of one; else `ok`.
    pub status: OnceState,
    /// The server that takes the writes; null if none was found.
    pub primary: Option<String>,
    /// Why its position is not known; null if it is.
    pub error: Option<String>,
    /// The limit, such as `5s`.
    pub max_lag: TimeSpan,
    /// Every replica.
    pub results: Vec<OnceRow>,
}

/// One replica.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OnceRow {
    /// The replica.
    pub server: String,
    /// Whether it has applied what the primary had.
    pub state: OnceState,
    /// Time after the primary's position was known at which it was seen to have applied it; it may have done so sooner. Null if it was
    /// not seen.
    pub within_us: Option<f64>,
    /// Transactions that it lacked when it answered last; null if it lacked none, or they cannot be counted.
    pub behind: Option<u64>,
    /// Why it is late or unknown, and what it reports of its replication; empty if there is nothing to say.
    pub reason: String,
}

impl OnceState {
    /// Returns the state of all replicas together.
    #[must_use]
    pub fn of(rows: &[OnceRow]) -> Self {
        let any = |state: Self| rows.iter().any(|row| row.state == state);
        match (any(Self::Late), any(Self::Unknown)) {
            (true, _) => Self::Late,
            (_, true) => Self::Unknown,
            _ => Self::Ok,
        }
    }
}
