//! What every measurement shares: the trait that it implements, the driver that carries it
//! out, the registry that finds it by its name, and the record that is kept of a run.
//!
//! Nothing here names a measurement.

pub mod compare;
mod document;
mod driver;
mod event;
pub mod failure;
mod histograms;
pub mod machine;
mod measurement;
pub mod options;
mod recorded;
mod registry;
pub mod run_dir;
mod screen;
pub mod touches;
pub mod workloads;

pub use self::{
    document::{AnyRun, CUT, Head, show},
    driver::{each_target, with_causes},
    event::{Detail, Event, Flow, Observer, Observers, Progress, Stage},
    measurement::{
        Client, Concluded, Document, Ended, Finished, Histograms, Measurement, Plan, RunContext,
        to_measure,
    },
    recorded::{Recorded, incomplete_hint, read_json, read_value},
    registry::{Entry, PlannedRun, Registry, Replayed},
    screen::{Host, Opening, Reader, Screen, json_text, plain},
};
