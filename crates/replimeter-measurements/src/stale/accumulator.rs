//! State of the run during the measurement.

use replimeter_instruments::{
    load::GroupResult,
    stale::{
        Outcome,
        results::{StaleResults, StaleRound, StaleWindow},
    },
};
use replimeter_model::{
    record::{first_start, is_first_start},
    replication::Mode,
    time::Nanos,
    warning::Warning,
};
use replimeter_render::rows::Rows;
use serde::{Deserialize, Serialize};

use super::{
    case_rounds::{CaseAccumulator, CaseRounds},
    remedy::SiteUse,
};
use crate::stale::samples::{SampleLabels, add_round};

/// An event of the measurement.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Call {
    /// The servers of a shape have started and passed the checks.
    Shape {
        label: String,
        /// The start of these servers, from 1.
        #[serde(default = "first_start", skip_serializing_if = "is_first_start")]
        start: u32,
        mode: Mode,
    },
    /// Warnings from servers, data and clean-up.
    Warnings(Vec<Warning>),
    /// A case begins.
    Case(CaseAccumulator),
    /// A round ended.
    Round(StaleRound),
    /// A window ended.
    Window(StaleWindow),
    /// What the site of the case did until then.
    Site(SiteUse),
    /// The case ended; without an outcome it could not be measured at all.
    CaseEnded {
        outcome: Option<Outcome>,
        loads: Vec<GroupResult>,
    },
}

/// State gathered during the run.
#[derive(Default)]
pub(crate) struct Accumulator {
    /// The start of the servers under way.
    start: u32,
    /// The index of the case that is measured.
    under_way: Option<usize>,
    cases: Vec<CaseRounds>,
    pub(super) modes: Vec<String>,
    pub(super) labels: Vec<String>,
    pub(super) measured: Nanos,
    pub(super) warnings: Vec<Warning>,
}

impl Accumulator {
    /// Adds an event, and its rows to the samples.
    pub(crate) fn take(&mut self, call: Call, rows: &mut Rows<SampleLabels>) {
        match call {
            Call::Shape { label, start, mode } => {
                self.start = start;
                if !self.labels.contains(&label) {
                    self.labels.push(label);
                    self.modes.push(mode.to_string());
                }
            }
            Call::Warnings(warnings) => self.warnings.extend(warnings),
            Call::Case(case) => {
                rows.switch(SampleLabels {
                    shape: case.shape.clone(),
                    start: self.start,
                    load: case.load.clone(),
                    sync_reads: case.level().to_owned(),
                    pool: case.connections().to_owned(),
                    readers: case
                        .readers
                        .iter()
                        .map(|reader| reader.name.clone())
                        .collect(),
                });
                let known = self.cases.iter().position(|one| one.case.is(&case));
                let index = known.unwrap_or(self.cases.len());
                if known.is_none() {
                    self.cases.push(CaseRounds::new(case));
                }
                self.cases[index].begin_start();
                self.under_way = Some(index);
            }
            Call::Round(round) => {
                if let Some(index) = self.under_way {
                    self.cases[index].record(&round);
                    add_round(rows, &round);
                }
            }
            Call::Window(window) => {
                if let Some(index) = self.under_way {
                    self.cases[index].window(window);
                }
            }
            Call::Site(used) => {
                if let Some(index) = self.under_way {
                    let sum = self.cases[index].site.get_or_insert_default();
                    sum.add(used);
                }
            }
            Call::CaseEnded { outcome, loads } => {
                if let Some(index) = self.under_way.take() {
                    self.end(index, outcome, loads);
                }
            }
        }
    }

    /// Returns whether no round was counted.
    pub(super) fn is_empty(&self) -> bool {
        let mut ended = self.cases.iter().filter(|rounds| rounds.ended);
        ended.all(|rounds| rounds.summaries.iter().all(|one| one.rounds() == 0))
    }

    /// Returns the number of starts in which every case was measured.
    pub(super) fn starts(&self) -> u32 {
        let cases = self.cases.iter().map(|rounds| rounds.starts);
        cases.filter(|starts| *starts > 0).min().unwrap_or(0)
    }

    /// Ends the case under way of a run that was cut off; its loads have no results.
    pub(super) fn cut_off(&mut self) {
        if let Some(index) = self.under_way.take()
            && let Some([first, last]) = self.cases[index].span
        {
            let outcome = Outcome {
                measured: last - first,
                ..Outcome::default()
            };
            self.end(index, Some(outcome), Vec::new());
        }
    }

    /// Adds how a start of a case ended; without an outcome it could not be measured at all.
    fn end(&mut self, index: usize, outcome: Option<Outcome>, loads: Vec<GroupResult>) {
        let rounds = &mut self.cases[index];
        rounds.ended = true;
        self.warnings.extend(rounds.warn_of_foreign());
        let Some(outcome) = outcome else { return };
        rounds.starts += 1;
        for load in loads {
            self.warnings.extend(load.warnings());
            self.warnings.extend(rounds.unfinished(&load));
            rounds.add_load(&load, self.start);
        }
        self.measured = self.measured + outcome.measured;
        self.warnings.extend(outcome.warnings);
    }

    /// Returns the results so far of a run that continues, as far as figures state them.
    pub(super) fn so_far(&self) -> StaleResults {
        StaleResults {
            rows: self.cases.iter().flat_map(CaseRounds::rows).collect(),
            ..StaleResults::default()
        }
    }

    /// Returns the results, and warnings about them.
    pub(super) fn results(&mut self) -> (StaleResults, Vec<Warning>) {
        let mut results = StaleResults::default();
        let mut warnings = Vec::new();
        for rounds in std::mem::take(&mut self.cases) {
            if rounds.ended {
                rounds.finish(&mut results, &mut warnings);
            }
        }
        (results, warnings)
    }
}
