//! `tap`: follows servers' binary logs and reports the lag of real traffic.

pub(crate) mod charts;
mod figures;
pub(crate) mod report;
mod windows;

use std::{path::Path, time::Duration};

use crate::{
    tap::{
        report::{answer, progress_line, report},
        windows::TapWindows,
    },
    window_series::{MAX_WINDOWS, WindowSeries},
};
use clap::Command;
use replimeter_engine::follow::{FOLLOWS, LOG, SENDS_ONCE};
use replimeter_engine::source::Servers;
use replimeter_instruments::{
    Listener,
    preflight::Cluster,
    tap::{
        self, Event, Outcome,
        results::{TapDocument, TapResults, TapRow, TapWindow},
        settings::{TapPlan, TapSettings},
    },
};
use replimeter_model::{
    compare::Quantity,
    plan::{CoreUse, Request},
    replication::Mode,
    time::Nanos,
};
use replimeter_render::{chart::Chart, html::HtmlError, report::Report, rows::Rows};
use replimeter_run::{
    self as run, Concluded, Finished, Histograms, Leading, Measurement, Progress, RunContext,
    Stage,
    cli_error::{CliError, unexpected},
    dry_run::PlanEffects,
    figures::{FigureSpec, Figures, SampleFile, StatedFigures},
    options::{CommandLineSettings, one_target},
    outcome_of,
};
use serde::{Deserialize, Serialize};

/// An event of the measurement.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Call {
    /// The servers have started and passed the checks; configured delays on the path to each replica.
    Shape {
        label: String,
        mode: Mode,
        delays: Vec<Duration>,
    },
    /// The figures of a window, for each replica.
    Windows(Vec<TapWindow>),
    /// The outcome.
    Outcome(Box<Outcome>),
}

/// State gathered during the run.
pub(crate) struct Accumulator {
    label: String,
    mode: Mode,
    delays: Vec<Duration>,
    timeline: WindowSeries<TapWindow>,
    outcome: Option<Outcome>,
}

impl Accumulator {
    /// Returns the results of a run with these rows so far.
    fn so_far(&self, rows: Vec<TapRow>) -> TapResults {
        let named = |row| TapRow {
            shape: self.label.clone(),
            ..row
        };
        TapResults {
            rows: rows.into_iter().map(named).collect(),
            windows: self.timeline.windows.last().cloned().into_iter().collect(),
            ..TapResults::default()
        }
    }
}

/// Options of the command line only.
#[derive(Clone, Copy, Default)]
pub(crate) struct Options {
    /// Write windows to standard error even if it is not a terminal.
    pub(crate) lines: bool,
}

/// The measurement `tap`: the lag of every transaction of real traffic.
pub(crate) struct Tap;

impl Measurement for Tap {
    const ABOUT: &'static str = "Report the lag of real traffic from the {log}s; read-only";
    const FIGURES: fn() -> Vec<&'static FigureSpec> = figures::specs;
    const EXAMPLES: &'static str = "\
Examples:
  replimeter tap --primary {scheme}://u@db1/ --replica {scheme}://u@db2/
  replimeter tap --topology cluster.toml --duration 10m --group-by table
  replimeter tap --sandbox work --include shop --exclude shop.sessions
  replimeter tap --topology cluster.toml --stream samples > windows.jsonl

Terms of the report:
  lag        from the arrival of a transaction from the primary's {log} to
             its arrival from the replica's
  matched    transactions that arrived from both logs: these have a lag
  pending    not yet arrived from the replica
  unmatched  will have no lag: filtered by the replica, written there, or lost
             with a connection
  floor      the same for the primary followed twice: the method's own error

Writes nothing on any server. Needs {log}s and {id}s on the primary and on
every replica, and the privilege {to follow} ON *.*; `replimeter doctor`
shows missing ones. Without --duration, Ctrl-C ends the run regularly.";

    type Settings = TapSettings;
    type Options = Options;
    type Call = Call;
    type Accumulator = Accumulator;
    type Columns = TapWindows;
    type Results = TapResults;

    fn target(command: Command) -> Command {
        one_target(command)
    }

    fn client(plan: &TapPlan) -> CoreUse {
        plan.cores
    }

    fn options(given: &CommandLineSettings) -> Options {
        Options {
            lines: given.settings.contains_key("report-interval"),
        }
    }

    fn effects(
        effects: &mut PlanEffects<'_>,
        request: &Request<TapSettings>,
    ) -> Result<(), CliError> {
        let plan = &request.plan;
        effects.targets();
        effects.servers(FOLLOWS);
        // A server keeps the connection of a lost stream until it has something to send on it.
        effects.cost(
            "primary",
            5,
            format!(
                "{SENDS_ONCE}, and twice for the first {}",
                plan.floor_duration
            ),
        );
        effects.cost("each replica", 4, SENDS_ONCE);
        effects.writes("nothing");
        effects.until(plan.duration);
        Ok(())
    }

    fn run(cx: &mut RunContext<'_, Self>) -> Result<(), CliError> {
        let plan = cx.plan;
        let [target] = cx.request.targets.as_slice() else {
            return Err(unexpected("expected exactly one target"));
        };
        let measure =
            |cx: &mut RunContext<'_, Self>, servers: &mut dyn Servers, mut cluster: Cluster| {
                let delays = cluster.replicas.iter().map(|replica| replica.delay());
                cx.take(Call::Shape {
                    label: servers.label().to_owned(),
                    mode: cluster.mode,
                    delays: delays.collect(),
                })?;
                let logs = Progress::new(Stage::Measure, format!("following the {LOG}s"));
                cx.observers.progress(logs.clone());
                let until = plan.duration.map(|duration| duration.0.as_secs_f64());
                let shown = cx.options.lines || cx.is_watched();
                let (clock, real_time, stop) = (cx.clock, cx.real_time, cx.stop);
                let so_far = cx.streams_figures();
                let folder = cx.run_dir.path().to_owned();
                let mut on = |event| {
                    let (windows, so_far) = match event {
                        Event::Note(text) => {
                            cx.observers.emit(run::Event::Note(&text));
                            return Ok(());
                        }
                        Event::Windows(windows, so_far) => (windows, so_far),
                    };
                    let end = windows
                        .iter()
                        .map(|window| window.end_us)
                        .fold(0.0, f64::max);
                    cx.observers
                        .progress(logs.clone().done(end / 1e6, until, "s"));
                    if shown {
                        let lines = windows.iter().map(progress_line);
                        lines.for_each(|line| cx.observers.emit(run::Event::Note(&line)));
                    }
                    cx.take(Call::Windows(windows))
                        .map_err(|failure| failure.message)?;
                    if let Some(rows) = so_far {
                        cx.so_far(|accumulator| accumulator.so_far(rows));
                    }
                    Ok(())
                };
                let mut listener = Listener {
                    on: &mut on,
                    stop,
                    so_far,
                };
                let result = tap::run(
                    &mut cluster,
                    plan,
                    &clock,
                    real_time,
                    &folder,
                    &mut listener,
                );
                drop(cluster);
                outcome_of(result, servers, |outcome| {
                    (outcome.failure.take(), &mut outcome.warnings)
                })
            };
        let (outcome, failure) = cx.on_checked(target, tap::check, measure)?;
        let interrupted = outcome.interrupted;
        cx.take(Call::Outcome(Box::new(outcome)))?;
        match failure {
            Some(failure) => Err(failure),
            // Without a requested end, an interruption by the user is the normal end.
            None if interrupted && plan.duration.is_some() => Err(CliError::partial()),
            None => Ok(()),
        }
    }

    fn accumulator(_: &Request<TapSettings>) -> Accumulator {
        Accumulator {
            label: String::new(),
            mode: Mode::None,
            delays: Vec::new(),
            timeline: WindowSeries::new(MAX_WINDOWS, TapWindow::extend),
            outcome: None,
        }
    }

    fn take(accumulator: &mut Accumulator, _: &TapPlan, call: Call, rows: &mut Rows<TapWindows>) {
        match call {
            Call::Shape {
                label,
                mode,
                delays,
            } => {
                rows.switch(TapWindows {
                    shape: label.clone(),
                });
                (accumulator.label, accumulator.mode, accumulator.delays) = (label, mode, delays);
            }
            Call::Windows(windows) => {
                accumulator.timeline.push(&windows);
                windows.into_iter().for_each(|window| rows.add(window));
            }
            Call::Outcome(outcome) => accumulator.outcome = Some(*outcome),
        }
    }

    fn is_empty(accumulator: &Accumulator) -> bool {
        accumulator.outcome.is_none()
    }

    fn conclude(run: &mut Finished<'_, Self>, accumulator: Accumulator) -> Concluded<TapResults> {
        let label = accumulator.label;
        let outcome = accumulator.outcome.unwrap_or_default();
        run.warn(outcome.warnings);
        let tags = outcome
            .results
            .iter()
            .map(|row| format!("{label}/{}/lag", row.replica));
        let histograms = Histograms {
            took: outcome.measured,
            series: tags.zip(outcome.lags).collect(),
        };
        let rows = outcome.results.into_iter().zip(accumulator.delays);
        let rows = rows.map(|(row, delay)| TapRow {
            shape: label.clone(),
            configured_delay_us: (!delay.is_zero()).then_some(delay.as_secs_f64() * 1e6),
            ..row
        });
        Concluded {
            target: run.target(label.clone(), vec![accumulator.mode.to_string()]),
            measured_us: Some(outcome.measured.as_micros()),
            histograms: Some(histograms),
            results: TapResults {
                rows: rows.collect(),
                floor: outcome.floor,
                windows: accumulator.timeline.windows,
                streams: outcome.streams,
                clocks: outcome.clocks,
                cpu_us_per_transaction: (outcome.transactions > 0)
                    .then(|| Nanos::from(outcome.cpu).as_micros() / outcome.transactions as f64),
                spilled_bytes: outcome.spilled_bytes,
            },
            ..Concluded::default()
        }
    }

    fn headline(document: &TapDocument) -> String {
        answer(document)
    }

    fn leading(document: &TapDocument) -> Option<Leading> {
        let row = document.results.rows.first()?;
        Leading::of(row.replica.clone(), row.lag.p50_us, Quantity::Us)
    }

    fn stated(_: &TapSettings, results: &TapResults) -> StatedFigures {
        figures::stated(results)
    }

    fn figures(document: &TapDocument, samples: &SampleFile) -> Result<Figures, CliError> {
        figures::figures(document, samples)
    }

    fn report(document: &TapDocument, _: bool) -> Report {
        report(document)
    }

    fn charts(document: &TapDocument, _: &Path) -> Result<Vec<Chart>, HtmlError> {
        Ok(crate::tap::charts::charts(document))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_run_is_merged_into_few_complete_windows() {
        let mut timeline = WindowSeries::new(MAX_WINDOWS, TapWindow::extend);
        for second in 0..10_007u64 {
            let window = |name: &str| TapWindow {
                replica: name.to_owned(),
                start_us: second as f64 * 1e6,
                end_us: (second + 1) as f64 * 1e6,
                transactions: 1,
                max_us: Some(second as f64),
                ..TapWindow::default()
            };
            timeline.push(&[window("a"), window("b")]);
        }
        assert!(
            timeline.windows.len() <= MAX_WINDOWS,
            "{}",
            timeline.windows.len()
        );
        let of = |name: &'static str| {
            timeline
                .windows
                .iter()
                .filter(move |window| window.replica == name)
        };
        assert_eq!(
            of("a").map(|window| window.transactions).sum::<u64>(),
            10_007
        );
        assert_eq!(
            of("b")
                .filter_map(|window| window.max_us)
                .fold(0.0, f64::max),
            10_006.0
        );
        let windows: Vec<_> = of("a").collect();
        assert!(
            windows
                .windows(2)
                .all(|pair| pair[0].end_us == pair[1].start_us)
        );
    }
}
