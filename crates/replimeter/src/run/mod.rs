//! What every measurement shares: the trait that it implements, the driver that carries it
//! out, the registry that finds it by its name, and the record that is kept of a run.
//!
//! Nothing here names a measurement.

mod document;
mod driver;
mod event;
mod measurement;
mod recorded;
mod registry;
mod screen;

#[cfg(test)]
pub(crate) use self::registry::Replayed;
pub(crate) use self::{
    document::{AnyRun, CUT, show},
    driver::{each_target, with_causes},
    event::{Detail, Event, Flow, Observer, Progress, Stage},
    measurement::{Client, Concluded, Finished, Histograms, Measurement, RunContext, to_measure},
    recorded::{Recorded, incomplete_hint, read_json, read_value},
    registry::{Entry, PlannedRun, Registry},
    screen::{Host, Reader, Screen, json_text, plain},
};
