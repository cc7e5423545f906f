//! Measuring: the clock, pacing, probes, and the checks before a run; the settings and results of each measurement.
//!
//! Uses servers by their addresses only, never by how they were started, so that the same code measures
//! a sandbox and a user's cluster.

use std::{
    hash::{BuildHasher, RandomState},
    process,
    sync::LazyLock,
};

mod attended;
pub mod backlog;
pub mod calibrate;
pub mod changes;
pub mod clock;
pub mod clock_offset;
pub mod cost;
mod definition;
pub mod discovery;
pub mod doctor;
pub mod error;
pub mod exposure;
pub mod front;
pub mod host;
pub mod keep_awake;
pub mod kill;
#[cfg(test)]
mod known;
pub mod lag;
mod listener;
pub mod load;
pub mod loss;
pub mod pacing;
pub mod preflight;
pub mod priority;
pub mod reference;
pub mod resources;
pub mod scale;
pub mod stale;
pub mod stamp;
pub mod table;
pub mod tap;
#[cfg(test)]
mod tests;
mod transaction;
pub mod trial;
pub mod watch;

pub use error::MeasureError;
pub use error::check_interrupted;
pub use listener::Listener;

/// The only schema that is written to.
pub const SCHEMA: &str = "replimeter";
/// The beginning of the names of tables that rows are written to.
const TABLES: &str = "probe_";
/// The table that this run writes rows to. Its creation and removal replicate, also to servers that were not asked what they have in
/// the schema: no other run's table, and no user's, has its name.
pub static TABLE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "{TABLES}{:016x}",
        RandomState::new().hash_one(process::id())
    )
});
/// The beginning of the names of tables of `watch --probe`.
const WATCH_TABLES: &str = "watch_probe_";
/// The table that this watch writes to.
pub(crate) static WATCH_TABLE: LazyLock<String> =
    LazyLock::new(|| TABLE.replacen(TABLES, WATCH_TABLES, 1));
/// The beginning of the comment of every table of Replimeter.
pub(crate) const MARK: &str = "replimeter: made by a measurement and removed by it";
