//! Pure data shared by every crate: times, targets, what plans and documents of
//! all measurements have, and the record of a run. Nothing here performs I/O or
//! reads a clock.

// Attributes of declared settings name functions of this crate by its name.
extern crate self as replimeter_model;

#[macro_use]
mod text;

pub mod block_selection;
pub mod bug;
pub mod compare;
pub mod doctor;
pub mod engine;
pub mod envelope;
pub mod equal_runs;
pub mod estimate;
pub mod host;
pub mod load;
pub mod manifest;
pub mod plan;
pub mod random;
pub mod read_consistency;
pub mod record;
pub mod redact;
pub mod replication;
pub mod reproduce;
pub mod resources;
pub mod sandbox;
pub mod sandboxes;
pub mod schema;
pub mod serde_error;
pub mod server_option;
pub mod servers;
pub mod shape;
pub mod sizes;
pub mod stages;
pub mod suggest;
pub mod table_name;
pub mod target;
pub mod time;
pub mod time_span;
pub mod trial;
pub mod warning;
pub mod watch_once;
