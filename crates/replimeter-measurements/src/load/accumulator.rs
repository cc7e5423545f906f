//! State of workloads while they run.

use crate::load::seconds::ServerSeconds;
use replimeter_instruments::load::{
    GroupResult,
    results::{DataRecord, LoadRow, SettlingRecord},
};
use replimeter_model::{
    replication::Mode,
    resources::{PerOperation, ServerUse},
    warning::Warning,
};
use replimeter_run::cli_error::CliError;
use replimeter_stats::signed::SignedHistogram;
use serde::{Deserialize, Serialize};

/// An event of the measurement.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Call {
    /// The servers have started and passed the checks.
    Shape { label: String, mode: Mode },
    /// Warnings from servers, data and clean-up.
    Warnings(Vec<Warning>),
    /// A data set is complete.
    Data(DataRecord),
    /// The servers have settled.
    Settled(SettlingRecord),
    /// Another workload uses the data set of this number.
    Shared { data: usize, workload: String },
    /// Every workload ran with this number of threads; the resources of each server, in total and per whole
    /// second.
    Threads {
        threads: u32,
        results: Vec<GroupResult>,
        uses: Vec<ServerUse>,
        timeline: Vec<Vec<ServerUse>>,
    },
}

/// State gathered during the run.
#[derive(Default)]
pub(crate) struct Accumulator {
    pub(super) label: String,
    pub(super) mode: Mode,
    pub(super) data: Vec<DataRecord>,
    pub(super) settling: Vec<SettlingRecord>,
    pub(super) results: Vec<LoadRow>,
    pub(super) histograms: Vec<(String, SignedHistogram)>,
    pub(super) uses: Vec<ServerSeconds>,
    pub(super) warnings: Vec<Warning>,
    pub(super) failure: Option<CliError>,
    pub(super) measured_us: f64,
}

impl Accumulator {
    /// Adds an event.
    pub(super) fn take(&mut self, call: Call) {
        match call {
            Call::Shape { label, mode } => (self.label, self.mode) = (label, mode),
            Call::Warnings(warnings) => self.warnings.extend(warnings),
            Call::Data(record) => self.data.push(record),
            Call::Settled(record) => self.settling.push(record),
            Call::Shared { data, workload } => {
                let data = self.data.get_mut(data);
                data.into_iter()
                    .for_each(|data| data.workloads.push(workload.clone()));
            }
            Call::Threads {
                threads,
                results,
                uses,
                timeline,
            } => self.record_threads(threads, results, &uses, timeline),
        }
    }

    fn record_threads(
        &mut self,
        threads: u32,
        results: Vec<GroupResult>,
        uses: &[ServerUse],
        timeline: Vec<Vec<ServerUse>>,
    ) {
        let operations: u64 = results.iter().map(|result| result.operations).sum();
        let servers: Vec<PerOperation> = uses
            .iter()
            .map(|used| used.per_operation(operations))
            .collect();
        if !results.is_empty() {
            self.uses.push(ServerSeconds { threads, timeline });
        }
        let workloads = results.len() as f64;
        for result in results {
            self.measured_us = self.measured_us.max(0.0) + result.counted.as_micros() / workloads;
            self.warnings.extend(result.warnings());
            let row = LoadRow {
                load: result.record(),
                servers: servers.clone(),
            };
            let tag = format!("{}:{threads}", result.workload);
            self.histograms
                .push((format!("{tag}/response"), result.response.clone()));
            self.histograms
                .push((format!("{tag}/service"), result.service.clone()));
            if let Some(error) = result.failure {
                self.failure.get_or_insert(error.into());
            } else if result.interrupted {
                self.failure.get_or_insert(CliError::partial());
            } else if result.operations == 0 {
                let errors = row
                    .load
                    .errors
                    .first()
                    .map_or_else(String::new, |error| format!(": {}", error.message));
                let message = format!(
                    "{}: no operation completed in the measured time{errors}",
                    result.workload
                );
                self.failure.get_or_insert(CliError::invalid(
                    message,
                    "measure longer, or correct the statement",
                ));
            }
            self.results.push(row);
        }
    }
}
