//! The shared parts of all measurements: the trait that they implement, the driver that runs them, the
//! registry that finds them by name, and the record of a run.
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
