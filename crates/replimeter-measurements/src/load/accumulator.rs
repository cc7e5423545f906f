//! State of workloads while they run.

use crate::load::seconds::ServerSeconds;
use replimeter_instruments::load::{
    GroupResult, LoadGroup,
    results::{DataRecord, LoadResults, LoadRow, SettlingRecord},
};
use replimeter_model::{
    load::{LoadRecord, Rate},
    replication::Mode,
    resources::{PerOperation, ServerUse},
    time::Nanos,
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

    /// Returns the rows of complete intervals, and the throughput so far of the one under way.
    pub(super) fn so_far(
        &self,
        load_groups: &[LoadGroup<'_>],
        passes: &[u64],
        counted: Nanos,
    ) -> LoadResults {
        let under_way = load_groups.iter().zip(passes).map(|(load_group, passes)| {
            let mean = *passes as f64 * 1e9 / counted.0 as f64;
            let nodes = load_group.nodes.iter().map(|node| node.name.as_str());
            LoadRow {
                load: LoadRecord {
                    workload: load_group.workload.name.clone(),
                    threads: load_group.threads,
                    node: nodes.collect::<Vec<_>>().join(", "),
                    passes: *passes,
                    throughput: Rate {
                        mean: Some(mean).filter(|_| counted > Nanos(0)),
                        ..Rate::default()
                    },
                    ..LoadRecord::default()
                },
                ..LoadRow::default()
            }
        });
        let mut rows: Vec<LoadRow> = self.results.iter().cloned().chain(under_way).collect();
        for row in &mut rows {
            row.load.shape.clone_from(&self.label);
        }
        LoadResults {
            rows,
            ..LoadResults::default()
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
