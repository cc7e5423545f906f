//! Checks of MariaDB and MySQL.

mod errant;
mod logs;
mod members;
mod semi_sync;
mod settings;

pub use self::{
    errant::errant,
    logs::{broken_chain, logs},
    members::members,
    semi_sync::acknowledgements,
    settings::{sessions, stages},
};

/// What replication between engines means.
pub const ENGINES_DIFFER: &str =
    "replication between engines is limited, and their GTIDs are not compatible";
