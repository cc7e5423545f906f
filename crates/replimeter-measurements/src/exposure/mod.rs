//! `exposure`: polls servers and reports the transactions that a crash would lose.

pub(crate) mod charts;
mod figures;
mod looks;
pub(crate) mod report;

use std::path::Path;

use crate::{
    exposure::looks::Looks,
    exposure::report::{answer, report},
};
use replimeter_instruments::exposure::{self, Event, Listener, Outcome};
use replimeter_model::{
    exposure::{ExposureDocument, ExposureResults, ExposureRow, ExposureSample, ExposureWindow},
    plan::{ExposurePlan, ExposureSettings, Planned},
};
use replimeter_render::{chart::Chart, html::HtmlError, report::Report, rows::Rows};
use replimeter_run::{
    self as run, Client, Concluded, Detail, Finished, Histograms, Measurement, Progress,
    RunContext, Stage,
    compare::figures::{Figures, SampleFile},
    failure::{Failure, unexpected},
    to_measure,
    touches::{LOAD, SERVERS, TIME, Touches, WRITES},
};
use serde::{Deserialize, Serialize};

use crate::course::Course;

/// Maximum number of windows in the document; adjacent windows are joined above it.
const MOST_WINDOWS: usize = 1800;

/// An event of the measurement.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Call {
    /// The servers have started and passed the checks.
    Shape { label: String, mode: String },
    /// One poll.
    Sample(ExposureSample),
    /// The figures of a window.
    Window(ExposureWindow),
    /// The outcome.
    Outcome(Box<Outcome>),
}

/// State gathered during the run.
pub(crate) struct Gathered {
    label: String,
    mode: String,
    course: Course<ExposureWindow>,
    outcome: Option<Outcome>,
}

/// The measurement `exposure`: transactions that a crash of the primary would lose.
pub(crate) struct Exposure;

impl Measurement for Exposure {
    const ABOUT: &'static str =
        "Report what a crash of the primary would lose, at any time; read-only";
    const EXAMPLES: &'static str = "\
Examples:
  replimeter exposure --primary mysql://u@db1/ --replica mysql://u@db2/
  replimeter exposure --topology cluster.toml --duration 10m
  replimeter exposure --sandbox async:1 --link-delay 1ms --duration 10s

Writes nothing on your servers. Needs the binary log and GTIDs on the primary,
and the privileges of `tap` there; on the replicas only the privilege to see
their replication status. docs/reference/exposure.md explains every figure.";

    type Settings = ExposureSettings;
    type Options = ();
    type Call = Call;
    type Gathered = Gathered;
    type Columns = Looks;
    type Results = ExposureResults;

    fn client(plan: &ExposurePlan) -> Client {
        Client {
            keep_awake: plan.keep_awake,
            real_time: plan.real_time,
        }
    }

    fn touches(touches: &mut Touches, plan: &Planned<ExposureSettings>) -> Result<(), Failure> {
        let work = &plan.plan;
        touches.targets(&plan.targets);
        touches.say(
            SERVERS,
            format!(
                "follows the primary's binary log as a replica does, and polls every replica each {}",
                work.poll_interval
            ),
        );
        if work.writers == 0 {
            touches.say(WRITES, "nothing");
        } else {
            touches.say(WRITES, "schema `replimeter` of these servers only");
            let how = work.rate.map_or_else(
                || "back to back".to_owned(),
                |rate| format!("{rate} per second"),
            );
            touches.say(
                LOAD,
                format!(
                    "{} writers, {how}, rows of {} bytes",
                    work.writers, work.row_size
                ),
            );
        }
        touches.say(TIME, format!("for {}", work.duration));
        Ok(())
    }

    fn run(cx: &mut RunContext<'_, Self>) -> Result<(), Failure> {
        let work = cx.work;
        let [target] = cx.plan.targets.as_slice() else {
            return Err(unexpected("expected exactly one target"));
        };
        let servers = cx.open(target)?;
        cx.stage(Stage::Servers, "checking the servers");
        let mut cluster = exposure::check(&to_measure(servers.as_ref()))?;
        cx.met(servers.label(), servers.as_ref(), &mut cluster)?;
        cx.take(Call::Shape {
            label: servers.label().to_owned(),
            mode: cluster.mode.to_owned(),
        })?;
        let (clock, real_time, stop) = (cx.clock, cx.real_time, cx.stop);
        let mut on = |event: Event<'_>| match event {
            Event::Sample(sample) => cx
                .take(Call::Sample(sample.clone()))
                .map_err(|failure| failure.message),
            Event::Window(window) => {
                let seconds = work.duration.0.as_secs_f64();
                let exposed = "transactions exposed (max)";
                cx.observers.progress(
                    Progress::new(Stage::Measure, "polling the replicas")
                        .done(window.end_us / 1e6, Some(seconds), "s")
                        .with(Detail::Count(window.transactions_max, exposed.into())),
                );
                cx.take(Call::Window(window.clone()))
                    .map_err(|failure| failure.message)
            }
            Event::Note(text) => {
                cx.observers.emit(run::Event::Note(text));
                Ok(())
            }
        };
        let mut listener = Listener { on: &mut on, stop };
        let result = exposure::run(&mut cluster, work, &clock, real_time, &mut listener);
        drop(cluster);
        cx.close(servers);
        let mut outcome = result?;
        let (failure, interrupted) = (outcome.failure.take(), outcome.interrupted);
        cx.take(Call::Outcome(Box::new(outcome)))?;
        match failure {
            Some(error) => Err(error.into()),
            None if interrupted => Err(Failure::cut_short()),
            None => Ok(()),
        }
    }

    fn gathered(_: &Planned<ExposureSettings>) -> Gathered {
        Gathered {
            label: String::new(),
            mode: String::new(),
            course: Course::new(MOST_WINDOWS, ExposureWindow::extend),
            outcome: None,
        }
    }

    fn take(gathered: &mut Gathered, _: &ExposurePlan, call: Call, rows: &mut Rows<Looks>) {
        match call {
            Call::Shape { label, mode } => {
                rows.switch(Looks {
                    shape: label.clone(),
                });
                (gathered.label, gathered.mode) = (label, mode);
            }
            // The outcome includes the figures of all polls.
            Call::Sample(sample) => rows.add(sample),
            Call::Window(window) => gathered.course.push(&[window]),
            Call::Outcome(outcome) => gathered.outcome = Some(*outcome),
        }
    }

    fn is_empty(gathered: &Gathered) -> bool {
        gathered.outcome.is_none()
    }

    fn conclude(run: &mut Finished<'_, Self>, gathered: Gathered) -> Concluded<ExposureResults> {
        let label = gathered.label;
        let outcome = gathered.outcome.unwrap_or_default();
        run.warn(outcome.warnings);
        Concluded {
            target: run.target(label.clone(), vec![gathered.mode]),
            measured_us: Some(outcome.measured.as_micros()),
            histograms: Some(Histograms {
                took: outcome.measured,
                series: vec![(format!("{label}/age"), outcome.age)],
            }),
            results: ExposureResults {
                rows: vec![ExposureRow {
                    shape: label,
                    ..outcome.row
                }],
                windows: gathered.course.windows,
                written: outcome.written,
            },
            ..Concluded::default()
        }
    }

    fn headline(document: &ExposureDocument) -> String {
        answer(document)
    }

    fn figures(document: &ExposureDocument, samples: &SampleFile) -> Result<Figures, Failure> {
        figures::figures(document, samples)
    }

    fn report(document: &ExposureDocument, _: bool) -> Report {
        report(document)
    }

    fn charts(document: &ExposureDocument, _: &Path) -> Result<Vec<Chart>, HtmlError> {
        Ok(crate::exposure::charts::charts(document))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_is_told_in_few_windows_and_nothing_is_lost() {
        let mut course = Course::new(MOST_WINDOWS, ExposureWindow::extend);
        for second in 0..10_007u64 {
            course.push(&[ExposureWindow {
                start_us: second as f64 * 1e6,
                end_us: (second + 1) as f64 * 1e6,
                polls: 100,
                committed: 3,
                transactions_mean: 1.0,
                transactions_max: second,
                ..ExposureWindow::default()
            }]);
        }
        let windows = &course.windows;
        assert!(windows.len() <= MOST_WINDOWS, "{}", windows.len());
        assert_eq!(
            windows.iter().map(|window| window.committed).sum::<u64>(),
            3 * 10_007
        );
        assert_eq!(
            windows.iter().map(|window| window.transactions_max).max(),
            Some(10_006)
        );
        assert!(
            windows
                .windows(2)
                .all(|pair| pair[0].end_us == pair[1].start_us)
        );
        assert!(
            windows
                .iter()
                .all(|window| (window.transactions_mean - 1.0).abs() < 1e-9)
        );
    }
}
