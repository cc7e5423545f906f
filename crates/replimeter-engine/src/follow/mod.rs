//! Follows a server's binary log as a replica would, without storing it.
//!
//! [`Decoder`] turns bytes into transactions, [`Follower`] receives the bytes from a server,
//! [`requirements`] checks beforehand whether a server can be followed.

use replimeter_model::engine::Engine;

mod connect;
mod decoder;
mod event;
mod follower;
pub mod requirements;
mod resume;
mod tables;

pub use connect::StartPosition;
pub use decoder::{CompleteTransaction, Decoder, Position, StreamCounts, StreamError};
pub use event::CommitTimes;
pub use follower::{Follower, ReadProgress};
pub use tables::{TableId, Tables};

/// What the log that is followed is called in texts.
pub const LOG: &str = "binary log";
/// What following does on servers.
pub const FOLLOWS: &str =
    "follows the binary logs of the primary and of each replica, as a replica does";
/// What it costs a server.
pub const SENDS_ONCE: &str = "sends its binary log once";
/// What lag is between two such logs.
pub const FROM_LOG_TO_LOG: &str = "from binary log to binary log";

/// The servers whose log has the times of commits.
pub const HAVE_COMMIT_TIMES: &str = "servers of MySQL";

/// Returns whether the log has the times of commits, by its server's clock.
#[must_use]
pub fn has_commit_times(engine: Engine) -> bool {
    engine == Engine::MySql
}

/// Returns the warning about transactions without an id, and its hint.
#[must_use]
pub fn without_id(transactions: u64) -> (String, &'static str) {
    (
        format!("{transactions} transactions had no GTID and could not be matched"),
        "enable GTIDs for all sessions (gtid_mode=ON)",
    )
}
