//! `exposure`: polls servers and reports the transactions that a crash would lose.

pub(crate) mod charts;
mod figures;
mod polls;
pub(crate) mod report;

use std::path::Path;

use crate::{
    exposure::{
        polls::PollSamples,
        report::{answer, report},
    },
    window_series::{MAX_WINDOWS, WindowSeries},
};
use clap::Command;
use replimeter_engine::{
    follow::{LOG, SENDS_ONCE},
    source::Servers,
};
use replimeter_instruments::{
    Listener,
    exposure::{
        self, Event, Outcome,
        results::{ExposureDocument, ExposureResults, ExposureRow, ExposureSample, ExposureWindow},
        settings::{ExposurePlan, ExposureSettings},
    },
    preflight::Cluster,
};
use replimeter_model::{
    plan::{CoreUse, Request},
    replication::Mode,
};
use replimeter_render::{chart::Chart, html::HtmlError, report::Report, rows::Rows};
use replimeter_run::{
    self as run, Concluded, Finished, Histograms, Measurement, Progress, ProgressDetail,
    RunContext, Stage,
    cli_error::{CliError, unexpected},
    dry_run::{PlanEffects, pace},
    figures::{FigureSpec, Figures, SampleFile, StatedFigures},
    options::one_target,
    outcome_of,
};
use serde::{Deserialize, Serialize};

/// An event of the measurement.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Call {
    /// The servers have started and passed the checks.
    Shape { label: String, mode: Mode },
    /// One poll.
    Sample(ExposureSample),
    /// The figures of a window.
    Window(ExposureWindow),
    /// The outcome.
    Outcome(Box<Outcome>),
}

/// State gathered during the run.
pub(crate) struct Accumulator {
    label: String,
    mode: Mode,
    timeline: WindowSeries<ExposureWindow>,
    outcome: Option<Outcome>,
}

/// The measurement `exposure`: transactions that a crash of the primary would lose.
pub(crate) struct Exposure;

impl Measurement for Exposure {
    const ABOUT: &'static str = "Report what a crash of the primary would lose; read-only";
    const FIGURES: fn() -> Vec<&'static FigureSpec> = figures::specs;
    const EXAMPLES: &'static str = "\
Examples:
  replimeter exposure --primary {scheme}://u@db1/ --replica {scheme}://u@db2/
  replimeter exposure --topology cluster.toml --duration 10m
  replimeter exposure --sandbox async:1 --link-delay 1ms --duration 10s

Terms of the report:
  exposed  in the primary's {log} and received by no replica: what a crash
           of the primary would lose
  age      time since the oldest exposed transaction was logged
  p99      the value not exceeded in 99 % of the time; – after too few polls

Writes nothing on your servers. Needs the {log} and {id}s on the primary,
and {to follow} ON *.* there; on the replicas only the privilege to see
their state: {to monitor}.";

    type Settings = ExposureSettings;
    type Options = ();
    type Call = Call;
    type Accumulator = Accumulator;
    type Columns = PollSamples;
    type Results = ExposureResults;

    fn target(command: Command) -> Command {
        one_target(command)
    }

    fn client(plan: &ExposurePlan) -> CoreUse {
        plan.cores
    }

    fn effects(
        effects: &mut PlanEffects<'_>,
        request: &Request<ExposureSettings>,
    ) -> Result<(), CliError> {
        let plan = &request.plan;
        effects.targets();
        effects.servers(format!(
            "follows the primary's {LOG} as a replica does, and polls every replica each {}",
            plan.poll_interval
        ));
        effects.cost("primary", 3, SENDS_ONCE);
        let per_s = 1.0 / plan.poll_interval.0.as_secs_f64().max(f64::MIN_POSITIVE);
        effects.cost("each replica", 2, format!("{per_s:.0} status queries/s"));
        if plan.writers == 0 {
            effects.writes("nothing");
        } else {
            effects.own_schema();
            effects.load(format!(
                "{} writers, {}, rows of {} bytes",
                plan.writers,
                pace(plan.rate),
                plan.row_size
            ));
        }
        effects.until(Some(plan.duration));
        Ok(())
    }

    fn run(cx: &mut RunContext<'_, Self>) -> Result<(), CliError> {
        let plan = cx.plan;
        let [target] = cx.request.targets.as_slice() else {
            return Err(unexpected("expected exactly one target"));
        };
        let measure =
            |cx: &mut RunContext<'_, Self>, servers: &mut dyn Servers, mut cluster: Cluster| {
                cx.take(Call::Shape {
                    label: servers.label().to_owned(),
                    mode: cluster.mode,
                })?;
                let (clock, real_time, stop) = (cx.clock, cx.real_time, cx.stop);
                let so_far = cx.streams_figures();
                let mut on = |event| match event {
                    Event::Sample(sample) => cx
                        .take(Call::Sample(sample))
                        .map_err(|failure| failure.message),
                    Event::Window(window, row) => {
                        let seconds = plan.duration.0.as_secs_f64();
                        let exposed = "transactions exposed (max)";
                        cx.observers.progress(
                            Progress::new(Stage::Measure, "polling the replicas")
                                .done(window.end_us / 1e6, Some(seconds), "s")
                                .with(ProgressDetail::Count(
                                    window.transactions_max,
                                    exposed.into(),
                                )),
                        );
                        cx.take(Call::Window(window))
                            .map_err(|failure| failure.message)?;
                        if let Some(row) = row {
                            cx.so_far(|accumulator| ExposureResults {
                                rows: vec![ExposureRow {
                                    shape: accumulator.label.clone(),
                                    ..*row
                                }],
                                ..ExposureResults::default()
                            });
                        }
                        Ok(())
                    }
                    Event::Note(text) => {
                        cx.observers.emit(run::Event::Note(&text));
                        Ok(())
                    }
                };
                let mut listener = Listener {
                    on: &mut on,
                    stop,
                    so_far,
                };
                let result = exposure::run(&mut cluster, plan, &clock, real_time, &mut listener);
                drop(cluster);
                outcome_of(result, servers, |outcome| {
                    (outcome.failure.take(), &mut outcome.warnings)
                })
            };
        let (outcome, failure) = cx.on_checked(target, exposure::check, measure)?;
        let interrupted = outcome.interrupted;
        cx.take(Call::Outcome(Box::new(outcome)))?;
        match failure {
            Some(failure) => Err(failure),
            None if interrupted => Err(CliError::partial()),
            None => Ok(()),
        }
    }

    fn accumulator(_: &Request<ExposureSettings>) -> Accumulator {
        Accumulator {
            label: String::new(),
            mode: Mode::None,
            timeline: WindowSeries::new(MAX_WINDOWS, ExposureWindow::extend),
            outcome: None,
        }
    }

    fn take(
        accumulator: &mut Accumulator,
        _: &ExposurePlan,
        call: Call,
        rows: &mut Rows<PollSamples>,
    ) {
        match call {
            Call::Shape { label, mode } => {
                rows.switch(PollSamples {
                    shape: label.clone(),
                });
                (accumulator.label, accumulator.mode) = (label, mode);
            }
            // The outcome includes the figures of all polls.
            Call::Sample(sample) => rows.add(sample),
            Call::Window(window) => accumulator.timeline.push(&[window]),
            Call::Outcome(outcome) => accumulator.outcome = Some(*outcome),
        }
    }

    fn is_empty(accumulator: &Accumulator) -> bool {
        accumulator.outcome.is_none()
    }

    fn conclude(
        run: &mut Finished<'_, Self>,
        accumulator: Accumulator,
    ) -> Concluded<ExposureResults> {
        let label = accumulator.label;
        let outcome = accumulator.outcome.unwrap_or_default();
        run.warn(outcome.warnings);
        Concluded {
            nothing: outcome.row.polls == 0,
            target: run.target(label.clone(), vec![accumulator.mode.to_string()]),
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
                windows: accumulator.timeline.windows,
                written: outcome.written,
            },
            ..Concluded::default()
        }
    }

    fn headline(document: &ExposureDocument) -> String {
        answer(document)
    }

    fn stated(_: &ExposureSettings, results: &ExposureResults) -> StatedFigures {
        figures::stated(results)
    }

    fn figures(document: &ExposureDocument, samples: &SampleFile) -> Result<Figures, CliError> {
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
    fn long_run_is_merged_into_few_complete_windows() {
        let mut timeline = WindowSeries::new(MAX_WINDOWS, ExposureWindow::extend);
        for second in 0..10_007u64 {
            timeline.push(&[ExposureWindow {
                start_us: second as f64 * 1e6,
                end_us: (second + 1) as f64 * 1e6,
                polls: 100,
                committed: 3,
                transactions_mean: 1.0,
                transactions_max: second,
                ..ExposureWindow::default()
            }]);
        }
        let windows = &timeline.windows;
        assert!(windows.len() <= MAX_WINDOWS, "{}", windows.len());
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
