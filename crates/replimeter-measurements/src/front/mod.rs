//! `front`: serves a small site in front of the servers, and reports what its visitors met.

mod charts;
mod figures;
mod gathered;
mod report;
mod serve;
mod windows;

use std::{path::Path, sync::atomic::AtomicBool};

use clap::Command;
use replimeter_instruments::{
    front::{
        results::{FrontDocument, FrontResults, FrontWindow},
        settings::{FrontPlan, FrontSettings},
    },
    load,
};
use replimeter_model::{
    plan::{CoreUse, Request},
    replication::Mode,
    warning::{Warning, WarningCode},
};
use replimeter_render::{chart::Chart, html::HtmlError, report::Report, rows::Rows};
use replimeter_run::{
    Concluded, Finished, Measurement, RunContext, Stage,
    cli_error::{CliError, unexpected},
    dry_run::PlanEffects,
    figures::{FigureSpec, StatedFigures},
    options::one_target,
};
use serde::{Deserialize, Serialize};

use self::windows::FrontWindows;
use crate::{
    data::Data,
    window_series::{MAX_WINDOWS, WindowSeries},
};

/// The workload whose table the posts are in.
const WORKLOAD: &str = "post-insert";
/// An event of the measurement.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Call {
    /// The servers have started and passed the checks.
    Shape { label: String, mode: Mode },
    /// A window, the figures of the run until its end, and warnings about servers that were out of use until then.
    Window {
        window: FrontWindow,
        so_far: Box<FrontResults>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        outages: Vec<Warning>,
    },
    /// Warnings of the run.
    Warnings(Vec<Warning>),
}

/// State gathered during the run.
pub(crate) struct Accumulator {
    label: String,
    mode: Mode,
    warnings: Vec<Warning>,
    outages: Vec<Warning>,
    timeline: WindowSeries<FrontWindow>,
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
  replimeter front --sandbox async:2 --fronts 2
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

    fn effects(
        effects: &mut PlanEffects<'_>,
        request: &Request<FrontSettings>,
    ) -> Result<(), CliError> {
        let plan = &request.plan;
        effects.written_targets();
        effects.tables(WORKLOAD, false)?;
        effects.servers(format!(
            "serves HTTP at {}{}; each POST to /insert adds a row, {} at most",
            plan.listen,
            if plan.fronts > 1 {
                format!(" by {} fronts behind HAProxy", plan.fronts)
            } else {
                String::new()
            },
            plan.max_rows
        ));
        // One holds the lock, one asks for the state, and one ends what was given up.
        let connections = u64::from(plan.connections) * u64::from(plan.fronts) + 3;
        for role in ["primary", "each replica"] {
            let done = "the statements of the requests; a question for its state, twice a second";
            effects.cost(role, connections, done);
        }
        effects.until(plan.duration);
        Ok(())
    }

    fn run(cx: &mut RunContext<'_, Self>) -> Result<(), CliError> {
        let [target] = cx.request.targets.as_slice() else {
            return Err(unexpected("expected exactly one target"));
        };
        // Before anything is changed.
        let listener = serve::listen(cx)?;
        cx.on_checked(target, load::check, |cx, servers, mut cluster| {
            let found = load::claim(&mut cluster)?;
            cx.take(Call::Warnings(found))?;
            cx.take(Call::Shape {
                label: servers.label().to_owned(),
                mode: cluster.mode,
            })?;
            let mut data = Data {
                primary: cluster.primary.node.clone(),
                sets: Vec::new(),
                stays: servers.is_temporary(),
            };
            let result = serve::serve(cx, listener, &mut cluster, &mut data);
            cx.stage(Stage::CleanUp, "removing the posts");
            let mut warnings = restore(&data);
            warnings.extend(data.remove());
            cx.warn(warnings);
            result
        })
    }

    fn accumulator(_: &Request<FrontSettings>) -> Accumulator {
        Accumulator {
            label: String::new(),
            mode: Mode::None,
            warnings: Vec::new(),
            outages: Vec::new(),
            timeline: WindowSeries::new(MAX_WINDOWS, FrontWindow::extend),
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
            Call::Window {
                window,
                so_far,
                outages,
            } => {
                accumulator.outages = outages;
                accumulator.until_us = window.end_us;
                accumulator.timeline.push(std::slice::from_ref(&window));
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
        run.warn(accumulator.outages);
        Concluded {
            target: run.target(accumulator.label, vec![accumulator.mode.to_string()]),
            measured_us: Some(accumulator.until_us),
            results: FrontResults {
                windows: accumulator.timeline.windows,
                ..accumulator.results.unwrap_or_default()
            },
            ..Concluded::default()
        }
    }

    fn headline(document: &FrontDocument) -> String {
        report::answer(document)
    }

    fn stated(_: &FrontSettings, results: &FrontResults) -> StatedFigures {
        figures::stated(results)
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
