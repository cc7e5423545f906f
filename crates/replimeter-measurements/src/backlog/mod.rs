//! `backlog`: how fast each replica catches up.

pub(crate) mod charts;
mod figures;
pub(crate) mod report;
mod windows;

use std::{path::Path, time::Duration};

use crate::backlog::{
    report::{answer, name, report},
    windows::{BacklogWindows, add_windows},
};
use clap::Command;
use replimeter_engine::source::Servers;
use replimeter_instruments::{
    Listener,
    backlog::{
        self, Outcome, Restoring, Timeouts,
        results::{BacklogDocument, BacklogPhase, BacklogResults, BacklogRow},
        settings::{BacklogPlan, BacklogSettings},
    },
    load::Workload,
    preflight::{self, Cluster},
    table::ProbeTable,
};
use replimeter_model::{
    compare::Quantity,
    load::LoadRecord,
    plan::{CoreUse, Request},
    replication::Mode,
    shape::form,
    target::Target,
    time::Nanos,
};
use replimeter_render::{chart::Chart, html::HtmlError, report::Report, rows::Rows};
use replimeter_run::{
    Concluded, Event, Finished, Leading, Measurement, Progress, ProgressDetail, RunContext, Stage,
    cli_error::CliError,
    dry_run::{PlanEffects, load_connections},
    each_target,
    figures::{FigureSpec, StatedFigures},
    machine,
    options::with_help,
    with_causes,
    workloads::{check_loads, workloads},
};
use serde::{Deserialize, Serialize};

use super::lag::target;

/// How long tests wait for servers before an error; short, so that tests see the timeout.
const SHORT_TIMEOUT: Duration = Duration::from_secs(3);

/// An event of the measurement.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Call {
    /// The servers of a shape have started and passed the checks.
    Shape { label: String, mode: Mode },
    /// The measurement of a shape ended, perhaps early.
    ShapeEnded {
        rows: Vec<BacklogRow>,
        measured: Nanos,
        load: Vec<LoadRecord>,
    },
}

/// State gathered during the run.
#[derive(Default)]
pub(crate) struct Accumulator {
    /// The label and replication mode of the current shape.
    under_way: (String, Mode),
    /// Labels and modes of the measured shapes.
    shapes: Vec<(String, Mode)>,
    rows: Vec<BacklogRow>,
    load: Vec<LoadRecord>,
    measured: Nanos,
}

impl Accumulator {
    /// Returns the results of a run with these rows of the shape under way.
    fn so_far(&self, rows: &[BacklogRow]) -> BacklogResults {
        let current = rows.iter().cloned();
        let current = current.map(|row| of_shape(&self.under_way.0, row));
        BacklogResults {
            rows: self.rows.iter().cloned().chain(current).collect(),
            load: self.load.clone(),
        }
    }
}

/// Returns a row with its shape.
fn of_shape(shape: &str, row: BacklogRow) -> BacklogRow {
    BacklogRow {
        shape: shape.to_owned(),
        ..row
    }
}

/// The measurement `backlog`: how fast each replica catches up.
pub(crate) struct Backlog;

impl Measurement for Backlog {
    const ABOUT: &'static str = "Measure how fast a replica catches up after its applier stopped";
    const FIGURES: fn() -> Vec<&'static FigureSpec> = figures::specs;
    const EXAMPLES: &'static str = "\
Examples:
  replimeter backlog
  replimeter backlog --build-up 30s --workers 1,2,4,8 --load mix:8@primary
  replimeter backlog --load insert:8@primary --rate 3000
  replimeter backlog --sandbox async:1 --server-option {flush option}=0
  replimeter backlog --topology cluster.toml --json

Stops the applier of each replica: reads from it are stale until it has caught
up. At every exit the applier is started again with its former number of
workers. Writes only to the schema `replimeter`. Your own servers also need the
privilege to stop a replica's applier:
{to stop}.

Terms of the report:
  backlog     transactions that a replica has not applied yet
  sustained   rate at which it applies under the load: the highest write rate
              that it can follow
  keeps up    whether the backlog falls while the load runs
  catch-up    rate at which it applies after the load has ended";
    const HISTOGRAMS: bool = false;

    type Settings = BacklogSettings;
    type Options = ();
    type Call = Call;
    type Accumulator = Accumulator;
    type Columns = BacklogWindows;
    type Results = BacklogResults;

    fn target(command: Command) -> Command {
        with_help(
            command,
            "sandbox",
            "Shape to start, or running sandbox; may be repeated [default: async:1]",
            &format!(
                "{}; its servers are removed after the run. A running sandbox stays. Several are measured one after another.",
                form(|mode| mode != Mode::None && !mode.has_members())
            ),
        )
    }

    fn client(plan: &BacklogPlan) -> CoreUse {
        plan.cores
    }

    fn check(request: &Request<BacklogSettings>) -> Result<(), CliError> {
        check_loads(&request.targets, &request.plan.load)
    }

    fn effects(
        effects: &mut PlanEffects<'_>,
        request: &Request<BacklogSettings>,
    ) -> Result<(), CliError> {
        let plan = &request.plan;
        effects.written_targets();
        effects.servers(format!(
            "stops each replica's applier for {} and restarts it with its former settings",
            plan.build_up
        ));
        let loads = load_connections(plan.load.iter().map(|load| &load.spec));
        effects.cost(
            "primary",
            3 + loads,
            "the load, and its position is read during the catch-up",
        );
        effects.cost(
            "each replica",
            4 + loads,
            "its position is read during the catch-up; its applier is stopped, then applies at full speed",
        );
        if !plan.workers.is_empty() {
            effects.servers("sets the number of applier workers for each part, then restores it");
        }
        effects.rated_loads(&plan.load)
    }

    fn run(cx: &mut RunContext<'_, Self>) -> Result<(), CliError> {
        let workloads = workloads(&cx.plan.load)?;
        each_target(cx, |cx, target| measure_start(cx, target, &workloads))
    }

    fn accumulator(_: &Request<BacklogSettings>) -> Accumulator {
        Accumulator::default()
    }

    fn take(
        accumulator: &mut Accumulator,
        _: &BacklogPlan,
        call: Call,
        rows: &mut Rows<BacklogWindows>,
    ) {
        match call {
            Call::Shape { label, mode } => accumulator.under_way = (label, mode),
            Call::ShapeEnded {
                rows: measured_rows,
                measured,
                load,
            } => {
                let shape = std::mem::take(&mut accumulator.under_way);
                for row in &measured_rows {
                    add_windows(rows, &shape.0, row);
                }
                let named = measured_rows.into_iter().map(|row| of_shape(&shape.0, row));
                accumulator.rows.extend(named);
                accumulator
                    .load
                    .extend(load.into_iter().map(|load| LoadRecord {
                        shape: shape.0.clone(),
                        ..load
                    }));
                accumulator.measured = accumulator.measured + measured;
                accumulator.shapes.push(shape);
            }
        }
    }

    fn is_empty(accumulator: &Accumulator) -> bool {
        accumulator.shapes.is_empty()
    }

    fn conclude(
        run: &mut Finished<'_, Self>,
        accumulator: Accumulator,
    ) -> Concluded<BacklogResults> {
        run.warn([]);
        let shapes = accumulator.shapes.iter();
        let shapes = shapes.map(|(label, mode)| (label.as_str(), *mode));
        let unmeasured = |row: &BacklogRow| {
            [&row.load_per_s, &row.sustained_per_s, &row.catch_up_per_s]
                .iter()
                .all(|rate| rate.mean.is_none())
        };
        Concluded {
            nothing: accumulator.rows.iter().all(unmeasured),
            target: target(run, shapes),
            measured_us: Some(accumulator.measured.as_micros()),
            results: BacklogResults {
                rows: accumulator.rows,
                load: accumulator.load,
            },
            ..Concluded::default()
        }
    }

    fn headline(document: &BacklogDocument) -> String {
        answer(document)
    }

    fn leading(document: &BacklogDocument) -> Option<Leading> {
        let row = document.results.rows.first()?;
        let sustained = row.sustained_per_s.mean;
        Leading::of(name(document, row), sustained, Quantity::PerS)
    }

    fn stated(_: &BacklogSettings, results: &BacklogResults) -> StatedFigures {
        figures::stated(results)
    }

    fn report(document: &BacklogDocument, _: bool) -> Report {
        report(document)
    }

    fn charts(document: &BacklogDocument, _: &Path) -> Result<Vec<Chart>, HtmlError> {
        Ok(crate::backlog::charts::charts(document))
    }
}

/// Measures one target.
fn measure_start(
    cx: &mut RunContext<'_, Backlog>,
    target: &Target,
    workloads: &[Workload],
) -> Result<(), CliError> {
    cx.on_checked(target, preflight::check, |cx, servers, cluster| {
        on_servers(cx, servers, cluster, workloads)
    })
}

/// Measures checked servers.
fn on_servers(
    cx: &mut RunContext<'_, Backlog>,
    servers: &dyn Servers,
    mut cluster: Cluster,
    workloads: &[Workload],
) -> Result<(), CliError> {
    let plan = cx.plan;
    backlog::check(&mut cluster, plan)?;
    // Dropping the table releases the lock that excludes other runs.
    let (table, found) = ProbeTable::create(&mut cluster, plan.timeout.0)?;
    cx.warn(found);
    cx.take(Call::Shape {
        label: servers.label().to_owned(),
        mode: cluster.mode,
    })?;
    let before = machine::CoreTime::read();
    let result = measure(cx, &mut cluster, workloads, servers.is_temporary());
    let idle = machine::idle_cores(before);
    let fallen_back = cluster.fall_back_reason();
    let failed = result
        .as_ref()
        .is_ok_and(|(outcome, _)| outcome.failure.is_some());
    let members = failed.then(|| cluster.members_now()).flatten();
    // On every outcome, the table is dropped first.
    cx.remove_table(table, &mut cluster, servers);
    if !cx.keep_cores_awake() {
        cx.warn(idle);
    }
    drop(cluster);
    let (outcome, load) = result?;
    let failure = CliError::of_measuring(outcome.failure.as_ref(), outcome.interrupted);
    cx.take(Call::ShapeEnded {
        rows: outcome.rows,
        measured: outcome.measured,
        load,
    })?;
    with_causes(failure, fallen_back, members, servers)
}

/// Measures under the plan's load. On every outcome, stops the load and removes its data. `temporary` servers
/// are removed at the end of the run, so their state does not matter.
fn measure(
    cx: &mut RunContext<'_, Backlog>,
    cluster: &mut Cluster,
    workloads: &[Workload],
    temporary: bool,
) -> Result<(Outcome, Vec<LoadRecord>), CliError> {
    let (plan, clock, stop) = (cx.plan, cx.clock, cx.stop);
    let observers = &cx.observers;
    let mut load = cx.background_load(&plan.load, workloads, cluster, plan.timeout.0)?;
    let fault = cx.fault();
    let panics = fault == Some("panic-while-measuring");
    let timeouts = match fault {
        Some("impatient-backlog") => Timeouts {
            answer: SHORT_TIMEOUT,
            order: SHORT_TIMEOUT,
            release: SHORT_TIMEOUT,
        },
        _ if temporary => Timeouts {
            release: Duration::ZERO,
            ..Timeouts::default()
        },
        _ => Timeouts::default(),
    };
    if !temporary && let Some(note) = backlog::rescuer_note() {
        observers.emit(Event::Note(&note));
    }
    let run = &*cx;
    let mut on = |event| {
        match event {
            backlog::Event::Progress(progress) => {
                observers.progress(shown(&progress, plan));
                assert!(
                    !(panics && progress.phase == BacklogPhase::Growing),
                    "a fault was requested"
                );
            }
            backlog::Event::Rows(rows) => run.so_far(|accumulator| accumulator.so_far(&rows)),
        }
        Ok(())
    };
    let restoring = Restoring {
        held: cx.held_appliers(),
        timeouts,
        say: &|text| observers.emit(Event::Note(text)),
    };
    let mut listener = Listener {
        on: &mut on,
        stop,
        so_far: cx.streams_figures(),
    };
    let mut outcome = backlog::run(cluster, plan, &mut load, &clock, restoring, &mut listener);
    cx.stage(Stage::CleanUp, "stopping the load");
    let (records, warnings) = load.finish();
    cx.warn(outcome.warnings.drain(..).chain(warnings));
    Ok((outcome, records))
}

/// Converts the measurement's progress for display.
fn shown(progress: &backlog::Progress, plan: &BacklogPlan) -> Progress {
    let workers = progress
        .workers
        .map_or_else(String::new, |workers| format!(", {workers} workers"));
    let growing = progress.phase == BacklogPhase::Growing;
    let whole = growing.then_some(plan.build_up.0.as_secs_f64());
    Progress::new(Stage::Measure, progress.phase.description())
        .part(format!("{}{workers}", progress.replica))
        .done(progress.since.as_secs_f64(), whole, "s")
        .with(ProgressDetail::Count(
            progress.behind,
            "transactions behind".into(),
        ))
}
