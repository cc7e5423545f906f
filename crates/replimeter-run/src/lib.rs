//! The shared parts of all measurements: the trait that they implement, the driver that runs them, the
//! registry that finds them by name, and the record of a run.
//!
//! Nothing here names a measurement.

pub mod cli_error;
pub mod differences;
mod document;
mod driver;
pub mod dry_run;
mod equal_runs;
mod event;
pub mod figures;
mod histograms;
mod journal;
pub mod machine;
mod measurement;
pub mod openmetrics;
pub mod options;
mod recorded;
mod registry;
mod rotation;
pub mod run_dir;
mod screen;
mod stream;
pub mod workloads;

pub use self::{
    document::{AnyRun, CUT, DocumentHead, print_document, publish_report, show},
    driver::{begin_next, each_start, each_target, with_causes},
    event::{Event, Flow, Observer, Observers, Progress, ProgressDetail, Stage},
    measurement::{
        Concluded, Document, Finished, Histograms, Leading, Measurement, Plan, RunContext, RunEnd,
        RunSurroundings, outcome_of, to_measure,
    },
    recorded::{
        Recorded, complete, incomplete_hint, of_files, read_json, read_manifest, read_value,
        require_directory,
    },
    registry::{Entry, PlannedRun, Registry, Replayed, TrialUnit},
    screen::{HangUps, Host, OutputReader, Screen, SourceOpener, json_text},
};
