//! How other sessions of this process recognize a connection.

use std::time::Instant;

/// A connection to a server, as other sessions recognize it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenedConnection {
    /// Its number on the server, which gives the same numbers to other clients after a restart.
    pub number: u64,
    /// When it was opened, to a few seconds.
    pub at: Instant,
}
