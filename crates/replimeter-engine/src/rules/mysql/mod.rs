//! Checks of MariaDB and MySQL.

mod errant;
mod logs;
mod members;
mod primary;
mod semi_sync;
mod settings;

pub use self::{
    errant::errant,
    logs::{broken_chain, logs},
    members::members,
    primary::check_primary,
    semi_sync::acknowledgements,
    settings::{sessions, stages},
};

/// What replication between engines means.
pub const ENGINES_DIFFER: &str =
    "replication between engines is limited, and their GTIDs are not compatible";

/// What to do after a run has written to a replica.
pub const WRITTEN_TO: &str =
    "check that it still replicates; compare its GTIDs with those of its source before a failover";
