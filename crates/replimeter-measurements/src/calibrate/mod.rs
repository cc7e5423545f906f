//! `calibrate`: injects known delays and reports the error of each method.

pub(crate) mod charts;
mod figures;
pub(crate) mod report;

use std::path::Path;

use crate::{
    calibrate::report::{answer, report},
    lag::samples::Samples,
};
use clap::{Arg, Command};
use replimeter_engine::source::Faults;
use replimeter_instruments::{
    lag::{self, AvailableMethods, Event, Listener, Outcome},
    preflight::{self, Cluster},
    table::{ProbeTable, RowBudget},
};
use replimeter_model::{
    calibrate::{CalibrateDocument, CalibrateResults, CalibrateRow},
    plan::{
        CalibratePlan, CalibrateSettings, LagPlan, Method, Pace, Planned, StopCondition,
        WritePattern,
    },
    record::Distribution,
    sample::{LagSample, Phase},
    sandbox::LinkSpec,
    target::Target,
    time::Nanos,
    time_span::TimeSpan,
    warning::Warning,
};
use replimeter_render::{chart::Chart, html::HtmlError, report::Report, rows::Rows};
use replimeter_run::{
    Client, Concluded, Finished, Histograms, Measurement, RunContext,
    cli_error::{CliError, unexpected},
    compare::figures::{FigureSpec, Figures, SampleFile},
    dry_run::{LOAD, PlanEffects, SERVERS},
    options::{is_sandbox_option, with_help},
    to_measure,
};
use replimeter_stats::{
    lag::FloorSummary,
    series::{Series, distribution},
    signed::SignedHistogram,
};
use serde::{Deserialize, Serialize};

use super::lag::{floor, record_floor, run_progress};

/// The results of one method for one delay on one replica.
struct Condition {
    replica: usize,
    method: Method,
    delay: TimeSpan,
    all: Series,
    /// One histogram per repetition.
    turns: Vec<SignedHistogram>,
    rounds: u64,
    missing: u64,
}

impl Condition {
    /// Returns the name of its histogram.
    fn tag(&self, names: &[String]) -> String {
        format!(
            "{}/{}/{}/lag",
            names[self.replica],
            self.method.name(),
            self.delay
        )
    }
}

/// Returns the lag that must rise by the delay. It is not from the acknowledgement: without a delay, the
/// replica and its observer compete with the primary's reply for the cores, which delays the acknowledgement
/// and makes that lag too small.
fn lag_of(sample: &LagSample) -> Option<Nanos> {
    sample.from_primary().or_else(|| sample.from_send())
}

/// An event of the measurement.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Call {
    /// The servers have started and passed the checks.
    Shape {
        label: String,
        mode: String,
        replicas: Vec<String>,
        methods: Vec<Method>,
    },
    /// A part with one delay begins, in this repetition (from 0).
    Turn { delay: TimeSpan, repetition: usize },
    /// One observation of a row by one method.
    Sample(LagSample),
    /// The part is over.
    TurnEnded(Box<Outcome>),
}

/// State gathered during the run.
pub(crate) struct Accumulator {
    label: String,
    mode: String,
    names: Vec<String>,
    cells: Vec<Condition>,
    floors: Vec<(Method, FloorSummary)>,
    delay: TimeSpan,
    turn: usize,
    /// The interval between writes.
    every: Nanos,
    lateness: SignedHistogram,
    warnings: Vec<Warning>,
}

/// The measurement `calibrate`: the error of each method.
pub(crate) struct Calibrate;

impl Measurement for Calibrate {
    const ABOUT: &'static str = "Measure the error of each method against known delays";
    const FIGURES: fn() -> Vec<&'static FigureSpec> = figures::specs;
    const EXAMPLES: &'static str = "\
Examples:
  replimeter calibrate
  replimeter calibrate --sandbox mysql/async:1 --method poll,wait,tap
  replimeter calibrate --link-delay 0,1ms,10ms --rounds 500 --json

Terms of the report:
  injected  delay that the link adds, one way
  measured  lag through the link with this delay
  error     measured, less that without delay, less injected
  floor     the lag that the method shows without replication";
    const OWN_SERVERS: Option<fn(&Arg) -> bool> = Some(|option| match option.get_id().as_str() {
        "sandbox" => true,
        // The measurement sets the delays; its links have no other settings.
        "link_delay" | "link_jitter" | "link_bandwidth" => false,
        // Of other modes than async.
        "wait_point" | "wait_for_replicas" | "multi_primary" => false,
        _ => is_sandbox_option(option),
    });

    type Settings = CalibrateSettings;
    type Options = ();
    type Call = Call;
    type Accumulator = Accumulator;
    type Columns = Samples;
    type Results = CalibrateResults;

    fn target(command: Command) -> Command {
        with_help(
            command,
            "sandbox",
            "Shape to start: async:N of either engine [default: async:1]",
            "Such as mysql/async:1; its servers are removed after the run. One per run.",
        )
    }

    fn client(plan: &CalibratePlan) -> Client {
        Client {
            keep_awake: plan.lag.keep_awake,
            real_time: plan.lag.real_time,
        }
    }

    fn effects(
        effects: &mut PlanEffects,
        plan: &Planned<CalibrateSettings>,
    ) -> Result<(), CliError> {
        let work = &plan.plan;
        effects.targets(&plan.targets);
        effects.add_effect(
            SERVERS,
            "routes replication through a link whose delay it changes",
        );
        effects.table(&plan.targets, "lag_probe", "the writer's rows");
        let rounds = match work.lag.writes {
            WritePattern::Rounds {
                until: StopCondition::Rounds(rounds),
                ..
            } => rounds,
            _ => 0,
        };
        let all = rounds * work.link_delays.len() as u64 * u64::from(work.repetitions);
        effects.add_effect(
            LOAD,
            format!(
                "1 writer, {all} rows in total, {} delays",
                work.link_delays.len()
            ),
        );
        Ok(())
    }

    fn run(cx: &mut RunContext<'_, Self>) -> Result<(), CliError> {
        let work = cx.work;
        let [Target::Sandbox(spec)] = cx.plan.targets.as_slice() else {
            return Err(unexpected("expected exactly one target"));
        };
        // The link is in place from the start, so every lag is measured through it.
        let zero = TimeSpan::from_secs(0);
        let mut spec = spec.clone();
        spec.link = Some(LinkSpec {
            delay: zero,
            jitter: zero,
            bandwidth: None,
        });
        let mut servers = cx.open(&Target::Sandbox(spec))?;
        let mut cluster = preflight::check(&to_measure(servers.as_ref()))?;
        cx.record_servers(servers.label(), servers.as_ref(), &mut cluster)?;
        // The link starts without a delay; the record lists the delays that follow.
        if let Some(record) = cx.manifest.sandboxes.last_mut() {
            let delays: Vec<String> = work.link_delays.iter().map(ToString::to_string).collect();
            record.link = Some(format!("{} one way, one after another", delays.join(", ")));
        }
        cx.write_manifest()?;
        let possible = lag::available_methods(&mut cluster, &work.lag.methods)?;
        cx.warn(possible.warnings.iter().cloned());
        let (table, found) = ProbeTable::create(&mut cluster, work.lag.timeout.0)?;
        cx.warn(found);
        cx.take(Call::Shape {
            label: servers.label().to_owned(),
            mode: cluster.mode.to_owned(),
            replicas: cluster.replica_names(),
            methods: possible.methods.clone(),
        })?;
        let faults = servers
            .faults()
            .ok_or_else(|| unexpected("these servers support no fault injection"))?;
        let result = turns(cx, faults, &mut cluster, &possible);
        // The servers are removed anyway.
        table.abandon();
        drop(cluster);
        cx.close(servers);
        result
    }

    fn accumulator(plan: &Planned<CalibrateSettings>) -> Accumulator {
        Accumulator {
            label: String::new(),
            mode: String::new(),
            names: Vec::new(),
            cells: Vec::new(),
            floors: Vec::new(),
            delay: TimeSpan::from_secs(0),
            turn: 0,
            every: match plan.plan.lag.pace {
                Pace::Interval(interval) => Nanos::from(interval.0),
                // The plan always has a write interval.
                Pace::Visible | Pace::Ack => Nanos(0),
            },
            lateness: SignedHistogram::default(),
            warnings: Vec::new(),
        }
    }

    fn take(
        accumulator: &mut Accumulator,
        work: &CalibratePlan,
        call: Call,
        rows: &mut Rows<Samples>,
    ) {
        match call {
            Call::Shape {
                label,
                mode,
                replicas,
                methods,
            } => {
                accumulator.cells = cells(work, replicas.len(), &methods);
                (accumulator.label, accumulator.mode, accumulator.names) = (label, mode, replicas);
            }
            Call::Turn { delay, repetition } => {
                rows.switch(Samples::new(
                    format!("{} +{delay}", accumulator.label),
                    accumulator.names.clone(),
                ));
                (accumulator.delay, accumulator.turn) = (delay, repetition);
            }
            Call::Sample(sample) => {
                accumulator.record(&sample);
                rows.add(sample);
            }
            Call::TurnEnded(outcome) => {
                accumulator.lateness.merge(&outcome.lateness);
                if accumulator.warnings.is_empty() {
                    accumulator.warnings = outcome.warnings;
                }
            }
        }
    }

    fn warnings(accumulator: &Accumulator) -> &[Warning] {
        &accumulator.warnings
    }

    fn is_empty(accumulator: &Accumulator) -> bool {
        accumulator.cells.iter().all(|cell| cell.rounds == 0)
    }

    fn conclude(
        run: &mut Finished<'_, Self>,
        accumulator: Accumulator,
    ) -> Concluded<CalibrateResults> {
        let Accumulator {
            label,
            mode,
            names,
            cells,
            floors,
            lateness,
            warnings,
            ..
        } = &accumulator;
        run.ended.warnings.extend_from_slice(warnings);
        let series = cells
            .iter()
            .map(|cell| (cell.tag(names), cell.all.histogram().clone()));
        let floor = |(method, summary): &_| floor(label, *method, summary);
        Concluded {
            target: run.target(label.clone(), vec![mode.clone()]),
            start_lateness: distribution(lateness),
            histograms: Some(Histograms {
                took: run.ended.at,
                series: series.collect(),
            }),
            results: CalibrateResults {
                rows: results(&accumulator, names),
                floors: floors.iter().map(floor).collect(),
            },
            ..Concluded::default()
        }
    }

    fn headline(document: &CalibrateDocument) -> String {
        answer(document)
    }

    fn figures(document: &CalibrateDocument, _: &SampleFile) -> Result<Figures, CliError> {
        figures::figures(document)
    }

    fn report(document: &CalibrateDocument, _: bool) -> Report {
        report(document)
    }

    fn charts(document: &CalibrateDocument, _: &Path) -> Result<Vec<Chart>, HtmlError> {
        Ok(crate::calibrate::charts::charts(document))
    }
}

impl Accumulator {
    fn record(&mut self, sample: &LagSample) {
        match sample.write.phase {
            Phase::Floor => record_floor(&mut self.floors, sample),
            Phase::Measure => {
                let (delay, turn) = (self.delay, self.turn);
                let own = |cell: &&mut Condition| {
                    (cell.replica, cell.method, cell.delay)
                        == (sample.replica, sample.method, delay)
                };
                let Some(cell) = self.cells.iter_mut().find(own) else {
                    return;
                };
                cell.rounds += 1;
                match (lag_of(sample), cell.turns.get_mut(turn)) {
                    (Some(lag), Some(of_turn)) => {
                        // The parts are separated in time; the autocorrelation is estimated as if they were
                        // not.
                        cell.all
                            .record(Nanos(self.every.0 * cell.rounds.cast_signed()), lag);
                        of_turn.record(lag);
                    }
                    _ => cell.missing += 1,
                }
            }
            _ => {}
        }
    }

    fn cell(&self, replica: usize, method: Method, delay: TimeSpan) -> Option<&Condition> {
        self.cells
            .iter()
            .find(|cell| (cell.replica, cell.method, cell.delay) == (replica, method, delay))
    }
}

fn cells(work: &CalibratePlan, replicas: usize, methods: &[Method]) -> Vec<Condition> {
    let cells = work.link_delays.iter().flat_map(|delay| {
        methods.iter().flat_map(move |method| {
            (0..replicas).map(|replica| Condition {
                replica,
                method: *method,
                delay: *delay,
                all: Series::default(),
                turns: vec![SignedHistogram::default(); work.repetitions as usize],
                rounds: 0,
                missing: 0,
            })
        })
    });
    cells.collect()
}

/// Returns the difference of two quantiles less the delay, with its interval.
fn error(
    value: [Option<f64>; 2],
    ends: [Option<[f64; 2]>; 2],
    injected: f64,
) -> (Option<f64>, Option<[f64; 2]>) {
    let [Some(with), Some(without)] = value else {
        return (None, None);
    };
    let error = with - without - injected;
    let half = |ends: Option<[f64; 2]>| ends.map(|[low, high]| (high - low) / 2.0);
    let ci = half(ends[0])
        .zip(half(ends[1]))
        .map(|(a, b)| (a * a + b * b).sqrt());
    (Some(error), ci.map(|half| [error - half, error + half]))
}

fn row(accumulator: &Accumulator, cell: &Condition, names: &[String]) -> CalibrateRow {
    let injected_us = cell.delay.0.as_secs_f64() * 1e6;
    let measured = cell.all.distribution();
    let base = accumulator
        .cell(cell.replica, cell.method, TimeSpan::from_secs(0))
        .filter(|base| base.delay != cell.delay);
    let mut row = CalibrateRow {
        replica: names[cell.replica].clone(),
        method: cell.method.name().to_owned(),
        injected_us,
        rounds: cell.rounds,
        timed_out: cell.missing,
        ..CalibrateRow::default()
    };
    if let Some(base) = base {
        let without = base.all.distribution();
        let ci = |of: &Distribution, p99: bool| {
            if p99 { of.p99_us_ci95 } else { of.p50_us_ci95 }
        };
        let (p50, p50_ci) = error(
            [measured.p50_us, without.p50_us],
            [ci(&measured, false), ci(&without, false)],
            injected_us,
        );
        let (p99, p99_ci) = error(
            [measured.p99_us, without.p99_us],
            [ci(&measured, true), ci(&without, true)],
            injected_us,
        );
        (
            row.error_p50_us,
            row.error_p50_us_ci95,
            row.error_p99_us,
            row.error_p99_us_ci95,
        ) = (p50, p50_ci, p99, p99_ci);
        let p50 = |histogram: &SignedHistogram| histogram.quantile(0.5).map(Nanos::as_micros);
        let turns: Vec<f64> = cell
            .turns
            .iter()
            .zip(&base.turns)
            .filter_map(|(with, without)| Some(p50(with)? - p50(without)? - injected_us))
            .collect();
        let range = turns
            .iter()
            .fold([f64::MAX, f64::MIN], |[low, high], error| {
                [low.min(*error), high.max(*error)]
            });
        row.error_p50_range = (!turns.is_empty()).then_some(range);
    }
    row.measured = measured;
    row
}

/// Returns the rows by replica, method and delay.
fn results(accumulator: &Accumulator, names: &[String]) -> Vec<CalibrateRow> {
    let mut cells: Vec<&Condition> = accumulator
        .cells
        .iter()
        .filter(|cell| cell.rounds > 0)
        .collect();
    cells.sort_by_key(|cell| (cell.replica, cell.method, cell.delay));
    cells
        .into_iter()
        .map(|cell| row(accumulator, cell, names))
        .collect()
}

/// Measures all delays in order and in reverse, so that a drift of the servers affects all delays alike.
fn turns(
    cx: &mut RunContext<'_, Calibrate>,
    faults: &mut dyn Faults,
    cluster: &mut Cluster,
    possible: &AvailableMethods,
) -> Result<(), CliError> {
    let work = cx.work;
    let mut held = RowBudget::default();
    for turn in 0..work.repetitions as usize {
        let mut delays = work.link_delays.clone();
        if turn % 2 == 1 {
            delays.reverse();
        }
        for (index, delay) in delays.iter().enumerate() {
            faults.set_delay(delay.0)?;
            cx.take(Call::Turn {
                delay: *delay,
                repetition: turn,
            })?;
            // The floor does not depend on the link.
            let floor_rounds = if turn == 0 && index == 0 {
                work.lag.floor_rounds
            } else {
                0
            };
            let plan = LagPlan {
                floor_rounds,
                ..work.lag.clone()
            };
            let (clock, stop) = (cx.clock, cx.stop);
            let mut on = |event: Event<'_>| match event {
                Event::Sample(sample) => cx
                    .take(Call::Sample(*sample))
                    .map_err(|failure| failure.message),
                Event::Compared(_) => Ok(()),
                Event::Progress(progress) => {
                    cx.observers.progress(run_progress(progress));
                    Ok(())
                }
            };
            let mut listener = Listener { on: &mut on, stop };
            let outcome = lag::run(cluster, &plan, possible, held, &clock, &mut listener)?;
            held = outcome.held.clone();
            let failure = CliError::of_measuring(outcome.failure.as_ref(), outcome.interrupted);
            cx.take(Call::TurnEnded(Box::new(outcome)))?;
            if let Some(failure) = failure {
                return Err(failure.for_shape(&format!("with a delay of {delay}"), true));
            }
        }
    }
    Ok(())
}
