//! Data created for loads, and its removal.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use replimeter_engine::{ErrorClass, Node};
use replimeter_model::warning::{Warning, WarningCode};

use super::{
    fill::{self, DataSet, run_setup},
    worker::LoadTarget,
    workload::Workload,
};
use crate::MeasureError;

/// Data created for loads; removed when dropped.
#[derive(Default)]
pub(super) struct CreatedObjects {
    /// The server on which data sets are created.
    writer: Option<Node>,
    pub(super) sets: Vec<DataSet>,
    /// Scripts whose setup was started, and their servers.
    scripts: Vec<(LoadTarget, Workload)>,
}

impl CreatedObjects {
    /// Creates an empty list; data sets will be created on this server.
    pub(super) fn on_server(writer: &Node) -> Self {
        Self {
            writer: Some(writer.clone()),
            sets: Vec::new(),
            scripts: Vec::new(),
        }
    }

    pub(super) fn data(&self, workload: &Workload) -> Option<&DataSet> {
        self.sets.iter().find(|set| set.is_of(workload))
    }

    /// Runs a script's setup unless it was run before: two loads with one script share its data.
    pub(super) fn run_script(
        &mut self,
        place: &LoadTarget,
        workload: &Workload,
        patience: Duration,
        stop: &AtomicBool,
    ) -> Result<(), MeasureError> {
        let inner = &workload.inner;
        let known = self.scripts.iter().any(|(_, made)| made.inner == *inner);
        if known || inner.setup.is_empty() && inner.teardown.is_empty() {
            return Ok(());
        }
        self.scripts.push((place.clone(), workload.clone()));
        if inner.setup.is_empty() {
            return Ok(());
        }
        let mut session = retry_until(place, patience, stop, || Ok(place.open_session()?))?;
        run_setup(&mut session, workload, stop)
    }

    /// Removes data sets and runs each script's teardown; failures do not stop the rest. Returns these
    /// failures and the warnings from creating the sets.
    pub(super) fn remove(&mut self) -> Vec<Warning> {
        let found = self.sets.iter_mut();
        let mut warnings: Vec<Warning> = found
            .flat_map(|set| std::mem::take(&mut set.warnings))
            .collect();
        if let Some(writer) = &self.writer {
            for set in self.sets.drain(..).rev() {
                warnings.extend(set.remove(writer));
            }
        }
        // Removes in reverse order of creation.
        for (place, workload) in self.scripts.drain(..).rev() {
            let mut failed: Vec<String> = Vec::new();
            match fill::open_for_removal(&place.node, fill::REMOVAL) {
                Ok(mut session) => {
                    for (statement, error) in fill::tear_down(&mut session, &workload) {
                        failed.push(format!(
                            "{error} (line {} of {}: {})",
                            statement.line,
                            workload.name,
                            statement.excerpt()
                        ));
                    }
                }
                Err(error) if !workload.inner.teardown.is_empty() => failed.push(error.to_string()),
                Err(_) => {}
            }
            warnings.extend(failed.into_iter().map(|message| {
                Warning::new(
                    WarningCode::CleanUpIncomplete,
                    message,
                    fill::removal_hint(&workload),
                )
            }));
        }
        warnings
    }
}

impl Drop for CreatedObjects {
    fn drop(&mut self) {
        let _ = self.remove();
    }
}

/// Retries until there is a value, because the data may have to replicate first; `Ok(None)` means to
/// retry.
pub(super) fn retry_until<T>(
    place: &LoadTarget,
    patience: Duration,
    stop: &AtomicBool,
    mut step: impl FnMut() -> Result<T, MeasureError>,
) -> Result<T, MeasureError> {
    let deadline = Instant::now() + patience;
    loop {
        match step() {
            Err(MeasureError::Server(error))
                if place.reads_only
                    && error.class().is_some_and(ErrorClass::is_absent)
                    && Instant::now() < deadline => {}
            other => return other,
        }
        if stop.load(Ordering::Relaxed) {
            return Err(MeasureError::Interrupted);
        }
        thread::sleep(Duration::from_millis(20));
    }
}
