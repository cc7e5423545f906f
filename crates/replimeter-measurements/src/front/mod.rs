//! `front`: serves a small site in front of the servers, and reports what its visitors met.

mod charts;
mod figures;
mod gathered;
mod report;
mod windows;

use std::{
    net::TcpListener,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use clap::Command;
use replimeter_engine::{Node, give_up_on_silent_servers};
use replimeter_instruments::load::{self, FillProgress};
use replimeter_instruments::preflight::Cluster;
use replimeter_instruments::table::keep_alive;
use replimeter_model::{
    front::{FrontDocument, FrontResults, FrontWindow},
    plan::{CoreUse, FrontPlan, FrontSettings, Planned},
    time::Nanos,
    warning::{Warning, WarningCode},
};
use replimeter_render::{chart::Chart, html::HtmlError, report::Report, rows::Rows};
use replimeter_run::{
    Concluded, Event, Finished, Measurement, Progress, ProgressDetail, RunContext, Stage,
    cli_error::{CliError, unexpected},
    compare::figures::{FigureSpec, Figures, SampleFile},
    dry_run::{PlanEffects, SERVERS, ServerCost, TIME},
    options::one_target,
    to_measure, with_advice,
    workloads::{filling, workload},
};
use replimeter_web::front::{Front as WebFront, FrontError, FrontServers, FrontSpec};
use serde::{Deserialize, Serialize};

use self::{gathered::Gathered, windows::FrontWindows};
use crate::{data::Data, window_series::WindowSeries};

/// The workload whose table the posts are in.
const WORKLOAD: &str = "post-insert";
/// Maximum number of windows in the document; adjacent windows are joined above it.
const MAX_WINDOWS: usize = 1800;
/// Timeout for a replica to receive the first rows.
const FILL_TIMEOUT: Duration = Duration::from_secs(600);
/// Interval between checks whether the run ends.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Interval between checks of the run's lock.
const LOCK_INTERVAL: Nanos = Nanos(10_000_000_000);

/// An event of the measurement.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Call {
    /// The servers have started and passed the checks.
    Shape { label: String, mode: String },
    /// A window, and the figures of the run until its end.
    Window {
        window: FrontWindow,
        so_far: Box<FrontResults>,
    },
    /// Warnings of the run.
    Warnings(Vec<Warning>),
}

/// State gathered during the run.
pub(crate) struct Accumulator {
    label: String,
    mode: String,
    warnings: Vec<Warning>,
    course: WindowSeries<FrontWindow>,
    results: Option<FrontResults>,
    until_us: f64,
}

/// The measurement `front`: a site in front of the servers.
pub(crate) struct Front;

impl Measurement for Front {
    const ABOUT: &'static str = "Serve a small site in front of the servers, to post and reload";
    const FIGURES: fn() -> Vec<&'static FigureSpec> = figures::specs;
    const HISTOGRAMS: bool = false;
    const EXAMPLES: &'static str = "\
Examples:
  replimeter front --sandbox async:2
  replimeter front --sandbox async:1 --link-delay 50ms --remedy wait-for-gtid
  replimeter front --topology cluster.toml --listen 127.0.0.1:9000
  ab -n 10000 -c 10 -l http://127.0.0.1:8080/

Requests: GET / (the newest posts, as a page or as JSON), POST /insert and
/select (forms with title and date), GET /healthz.

Terms of the report:
  response  from the complete request to its answer
  missing   pages that lack the last post of the visitor who reads them
  behind    pages that lack any post that had been acknowledged
  age       of a page: time since the oldest post that it lacks was acknowledged

The posts are in the schema `replimeter`, and are removed at the end. Without
--duration, Ctrl-C ends the run regularly.";

    type Settings = FrontSettings;
    type Options = ();
    type Call = Call;
    type Accumulator = Accumulator;
    type Columns = FrontWindows;
    type Results = FrontResults;

    fn target(command: Command) -> Command {
        one_target(command)
    }

    fn client(plan: &FrontPlan) -> CoreUse {
        plan.cores
    }

    fn effects(effects: &mut PlanEffects, plan: &Planned<FrontSettings>) -> Result<(), CliError> {
        let work = &plan.plan;
        effects.targets(&plan.targets);
        effects.tables(WORKLOAD, false)?;
        effects.add_effect(
            SERVERS,
            format!(
                "serves HTTP at {}; each POST to /insert adds a row, {} at most",
                work.listen, work.max_rows
            ),
        );
        let connections = u64::from(work.connections);
        effects.costs(
            &plan.targets,
            [("primary", 3), ("each replica", 2)].map(|(role, more)| ServerCost {
                role,
                connections: connections + more,
                work: "the statements of the requests; a question for its state, twice a second"
                    .to_owned(),
            }),
        );
        let until = work.duration.map_or_else(
            || "until interrupted".to_owned(),
            |duration| format!("for {duration}"),
        );
        effects.add_effect(TIME, until);
        Ok(())
    }

    fn run(cx: &mut RunContext<'_, Self>) -> Result<(), CliError> {
        let work = cx.work;
        let [target] = cx.plan.targets.as_slice() else {
            return Err(unexpected("expected exactly one target"));
        };
        // Before anything is changed.
        let listener = TcpListener::bind(work.listen).map_err(|error| {
            CliError::usage(
                format!("cannot listen at {}: {error}", work.listen),
                "give another address with --listen; port 0 is any free port",
            )
        })?;
        let servers = cx.open(target)?;
        cx.stage(Stage::Servers, "checking the servers");
        let mut cluster = load::check(&to_measure(servers.as_ref()))
            .map_err(|error| with_advice(error.into(), servers.as_ref()))?;
        let found = load::claim(&mut cluster)?;
        cx.record_servers(servers.label(), servers.as_ref(), &mut cluster)?;
        cx.take(Call::Warnings(found))?;
        cx.take(Call::Shape {
            label: servers.label().to_owned(),
            mode: cluster.mode.to_owned(),
        })?;
        let mut data = Data {
            primary: cluster.primary.node.clone(),
            sets: Vec::new(),
            stays: servers.is_temporary(),
        };
        let result = serve(cx, listener, &mut cluster, &mut data);
        cx.stage(Stage::CleanUp, "removing the posts");
        let mut warnings = restore(&data);
        warnings.extend(data.remove());
        cx.warn(warnings);
        drop(cluster);
        cx.close(servers);
        result
    }

    fn accumulator(_: &Planned<FrontSettings>) -> Accumulator {
        Accumulator {
            label: String::new(),
            mode: String::new(),
            warnings: Vec::new(),
            course: WindowSeries::new(MAX_WINDOWS, FrontWindow::extend),
            results: None,
            until_us: 0.0,
        }
    }

    fn take(
        accumulator: &mut Accumulator,
        _: &FrontPlan,
        call: Call,
        rows: &mut Rows<FrontWindows>,
    ) {
        match call {
            Call::Shape { label, mode } => (accumulator.label, accumulator.mode) = (label, mode),
            Call::Warnings(warnings) => accumulator.warnings.extend(warnings),
            Call::Window { window, so_far } => {
                accumulator.until_us = window.end_us;
                accumulator.course.push(std::slice::from_ref(&window));
                rows.add(window);
                accumulator.results = Some(*so_far);
            }
        }
    }

    fn warnings(accumulator: &Accumulator) -> &[Warning] {
        &accumulator.warnings
    }

    fn is_empty(accumulator: &Accumulator) -> bool {
        accumulator.results.is_none()
    }

    fn conclude(run: &mut Finished<'_, Self>, accumulator: Accumulator) -> Concluded<FrontResults> {
        run.warn(accumulator.warnings);
        Concluded {
            target: run.target(accumulator.label, vec![accumulator.mode]),
            measured_us: Some(accumulator.until_us),
            results: FrontResults {
                windows: accumulator.course.windows,
                ..accumulator.results.unwrap_or_default()
            },
            ..Concluded::default()
        }
    }

    fn headline(document: &FrontDocument) -> String {
        report::answer(document)
    }

    fn figures(document: &FrontDocument, _: &SampleFile) -> Result<Figures, CliError> {
        Ok(figures::figures(document))
    }

    fn report(document: &FrontDocument, _: bool) -> Report {
        report::report(document)
    }

    fn charts(document: &FrontDocument, _: &Path) -> Result<Vec<Chart>, HtmlError> {
        Ok(charts::charts(document))
    }
}

/// Removes added rows from a data set that existed before. It is done also after an interruption.
fn restore(data: &Data) -> Vec<Warning> {
    let kept = data.sets.iter().filter(|set| set.reused && !data.stays);
    let failed = kept.filter_map(|set| set.restore(&data.primary, &AtomicBool::new(false)).err());
    failed
        .map(|error| {
            Warning::new(
                WarningCode::CleanUpIncomplete,
                format!("the posts that were added to the existing data set remain: {error}"),
                "the next load with this data set removes them",
            )
        })
        .collect()
}

/// Creates the table, serves, and ends the front and what it runs on the servers.
fn serve(
    cx: &mut RunContext<'_, Front>,
    listener: TcpListener,
    cluster: &mut Cluster,
    data: &mut Data,
) -> Result<(), CliError> {
    let work = cx.work;
    let observers = &cx.observers;
    let mut progress = |filled: &FillProgress| observers.progress(filling(filled));
    let mut set = load::fill(
        cluster,
        &workload(WORKLOAD)?,
        work.data_size,
        &mut progress,
        cx.stop,
    )?;
    let warnings = std::mem::take(&mut set.warnings);
    let rows = set.rows;
    data.sets.push(set);
    cx.take(Call::Warnings(warnings))?;
    cx.stage(
        Stage::Prepare,
        "waiting for the replicas to receive the data",
    );
    let replicas: Vec<Node> = cluster.replica_nodes();
    for set in &data.sets {
        set.wait_on(&replicas, FILL_TIMEOUT, cx.stop)?;
    }
    let names = std::iter::once(cluster.primary.node.name.clone()).chain(cluster.replica_names());
    let gathered = Gathered::of(names.collect());
    let servers = FrontServers {
        primary: (cluster.primary.node.clone(), cluster.primary.facts.clone()),
        replicas: std::mem::take(&mut cluster.replicas),
    };
    let spec = FrontSpec {
        names: work.allow_host.clone(),
        reads: work.reads,
        remedy: work.remedy,
        primary_for: work.primary_for.0,
        connections: work.connections,
        cost: work.cost.0,
        max_rows: work.max_rows,
        rows,
        run: cx.clock.origin_unix_us() as u64,
    };
    let front =
        WebFront::start(listener, servers, &spec, cx.clock).map_err(|error| match error {
            FrontError::Server(error) => CliError::from(error),
            FrontError::System(error) => CliError::failed(
                format!("cannot start the front: {error}"),
                "raise the limits of processes and open files (ulimit -u, ulimit -n)",
            ),
        })?;
    let watched = watch(cx, &front, gathered, cluster);
    if front.misses_a_server() {
        // So that the end of the run is bounded.
        give_up_on_silent_servers();
    }
    front.end();
    watched
}

/// Takes the front's requests window by window, until the run ends.
fn watch(
    cx: &mut RunContext<'_, Front>,
    front: &WebFront,
    mut gathered: Gathered,
    cluster: &mut Cluster,
) -> Result<(), CliError> {
    let work = cx.work;
    let label = cx.accumulator.label.clone();
    let address = front.address().to_string();
    cx.observers.emit(Event::Note(&format!(
        "serving at http://{address}/ {}",
        work.duration
            .map_or_else(|| "until Ctrl-C".to_owned(), |time| format!("for {time}"))
    )));
    let (began, cpu_before) = (cx.clock.now(), WebFront::processor_time());
    let end = work
        .duration
        .map(|duration| began + Nanos::from(duration.0));
    let mut start = began;
    let mut lock_due = began + LOCK_INTERVAL;
    loop {
        let due = start + Nanos::from(work.report_interval.0);
        let due = end.map_or(due, |end| if end < due { end } else { due });
        while cx.clock.now() < due && !cx.stop.load(Ordering::Relaxed) && !front.is_finished() {
            thread::sleep(CHECK_INTERVAL);
        }
        for change in front.take_changes() {
            cx.observers.emit(Event::Note(&change));
        }
        let now = cx.clock.now();
        let window = gathered.add(front.take_traffic(), start - began, now - began);
        let seconds = (now - began).as_micros() / 1e6;
        let cpu = WebFront::processor_time().saturating_sub(cpu_before);
        let cpu_us = Nanos::from(cpu).as_micros();
        cx.observers.progress(
            Progress::new(Stage::Measure, format!("serving at http://{address}/"))
                .done(seconds, work.duration.map(|time| time.0.as_secs_f64()), "s")
                .with(ProgressDetail::Count(window.requests, "requests".into())),
        );
        let so_far = gathered.results(&label, &address, seconds, cpu_us);
        cx.take(Call::Window {
            window,
            so_far: Box::new(so_far),
        })?;
        if front.is_finished() {
            return Err(CliError::failed(
                "internal error: the front ended unexpectedly",
                "report this as a bug, with the messages above",
            ));
        }
        let interrupted = cx.stop.load(Ordering::Relaxed);
        if interrupted || end.is_some_and(|end| now >= end) {
            break;
        }
        start = now;
        if now >= lock_due {
            keep_alive(cluster)?;
            lock_due = now + LOCK_INTERVAL;
        }
    }
    if gathered.left_out() > 0 {
        cx.take(Call::Warnings(vec![Warning::new(
            WarningCode::LoadClientBound,
            format!(
                "{} requests are in no figure: they came faster than they could be recorded",
                gathered.left_out()
            ),
            "use a shorter --report-interval",
        )]))?;
    }
    // Without a requested end, an interruption by the user is the normal end.
    if work.duration.is_some() && cx.stop.load(Ordering::Relaxed) {
        return Err(CliError::partial());
    }
    Ok(())
}
