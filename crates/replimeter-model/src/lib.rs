//! Pure data shared by every crate: times, plans, targets, samples and the
//! record of a run. Nothing here performs I/O or reads a clock.

// Attributes of declared settings name functions of this crate by its name.
extern crate self as replimeter_model;

#[macro_use]
mod text;

pub mod backlog;
pub mod block_selection;
pub mod calibrate;
pub mod compare;
pub mod cost;
pub mod doctor;
pub mod engine;
pub mod envelope;
pub mod equal_runs;
pub mod estimate;
pub mod exposure;
pub mod front;
pub mod host;
pub mod lag;
pub mod load;
pub mod load_results;
pub mod loss;
pub mod manifest;
pub mod plan;
pub mod random;
pub mod record;
pub mod redact;
pub mod replication;
pub mod reproduce;
pub mod resources;
pub mod sample;
pub mod sandbox;
pub mod sandboxes;
pub mod scale;
pub mod schema;
pub mod serde_error;
pub mod server_option;
pub mod servers;
pub mod shape;
pub mod sizes;
pub mod stages;
pub mod stale;
pub mod suggest;
pub mod tap;
pub mod target;
pub mod time;
pub mod time_span;
pub mod trial;
pub mod warning;
