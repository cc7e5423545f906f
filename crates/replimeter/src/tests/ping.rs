//! `ping`: measures the round trip of `SELECT 1` to every server of the target. A measurement in one file,
//! for tests only.

use std::{collections::BTreeMap, path::Path, sync::atomic::Ordering};

use replimeter_model::plan::{PlanError, Request, Settings, TargetSettings};
use replimeter_model::{envelope::Envelope, record::Distribution, target::Target, time::Nanos};
use replimeter_render::chart::{self, Axis, Chart, Mark, Point, Scale};
use replimeter_render::report::{Block, Cell, Report, Table};
use replimeter_render::rows::{Columns, Rows, TableSpec, columns};
use replimeter_render::{figures::Unit, html::HtmlError};
use replimeter_run::figures::{DimensionSpec, FigureSpec, StatedFigures};
use replimeter_run::{cli_error::CliError, dry_run::PlanEffects, figures, *};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The settings.
#[derive(Clone, Debug, Default, PartialEq, clap::Args, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[command(next_help_heading = "Measurement")]
pub(crate) struct PingSettings {
    /// Ask every server this many times [default: {default}]
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    questions: Option<u32>,
}

impl Settings for PingSettings {
    const NAME: &'static str = "ping";
    type Plan = u32;

    fn plan(&mut self, target: &mut TargetSettings) -> Result<(Vec<Target>, u32), PlanError> {
        match *self.questions.get_or_insert(100) {
            0 => Err(PlanError::Contradiction("questions = 0 asks none".into())),
            questions => Ok((target.plan()?, questions)),
        }
    }
}

/// The server, the send time, and the round trip.
type Trip = (String, Nanos, Nanos);

#[derive(Clone, Default)]
pub(crate) struct Trips;

impl Columns for Trips {
    type Row = Trip;
    const TABLE: TableSpec<Trip, Self> = TableSpec {
        message: "trip",
        group: 1024,
        columns: columns! {
            /// Server
            server: Word = |(server, _, _), _| server;
            /// Send time, since the start of the run
            asked_ns: Long = |(_, asked, _), _| *asked;
            /// Round trip
            trip_us: Real = |(_, _, took), _| *took;
        },
    };
}

/// A server, and its round trips.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
struct PingRow {
    server: String,
    trip: Distribution,
}

/// The record of a run.
type PingDocument = Envelope<PingSettings, PingResults>;

/// The results of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct PingResults {
    rows: Vec<PingRow>,
}

figures! { TRIP = "ping.trip" [mean p50]: Us, Lower, Ratio, of &[DimensionSpec::new("server")]; }

/// The measurement `ping`.
pub(crate) struct Ping;

impl Measurement for Ping {
    const ABOUT: &'static str = "Measure the round trip of an empty question to every server";
    const FIGURES: fn() -> Vec<&'static FigureSpec> = specs;
    const TRIAL_FIGURE: Option<&'static str> = Some("ping.trip.p50");
    const EXAMPLES: &'static str = "Examples:\n  replimeter ping --sandbox async:1";
    const HISTOGRAMS: bool = false;
    type Settings = PingSettings;
    type Options = ();
    type Call = Trip;
    type Accumulator = BTreeMap<String, replimeter_stats::series::Series>;
    type Columns = Trips;
    type Results = PingResults;

    fn effects(of: &mut PlanEffects<'_>, request: &Request<PingSettings>) -> Result<(), CliError> {
        of.targets();
        of.load(format!("{} questions to every server", request.plan));
        Ok(())
    }

    fn run(cx: &mut RunContext<'_, Self>) -> Result<(), CliError> {
        cx.on_servers(&cx.request.targets[0], |cx, servers| {
            cx.record_sandbox(servers.label(), servers.record(), Vec::new())?;
            let members = servers.members().iter();
            let sessions = members.map(|member| replimeter_engine::Session::open(&member.node));
            let mut sessions = sessions.collect::<Result<Vec<_>, _>>()?;
            for number in 1..=*cx.plan {
                for session in &mut sessions {
                    let asked = cx.clock.now();
                    session.run("cannot ask", "SELECT 1")?;
                    let took = cx.clock.now() - asked;
                    cx.take((session.name().into(), asked, took))?;
                }
                let asking = Progress::new(Stage::Measure, "asking");
                cx.observers
                    .progress(asking.done(number.into(), Some((*cx.plan).into()), "times"));
                if cx.stop.load(Ordering::Relaxed) {
                    return Err(CliError::partial());
                }
            }
            Ok(())
        })
    }

    fn accumulator(_: &Request<PingSettings>) -> Self::Accumulator {
        BTreeMap::new()
    }

    fn take(all: &mut Self::Accumulator, _: &u32, trip: Trip, rows: &mut Rows<Trips>) {
        (all.entry(trip.0.clone()).or_default()).record(trip.1, trip.2);
        rows.add(trip);
    }

    fn is_empty(accumulator: &Self::Accumulator) -> bool {
        accumulator.is_empty()
    }

    fn conclude(run: &mut Finished<'_, Self>, all: Self::Accumulator) -> Concluded<PingResults> {
        run.warn([]);
        let rows = all.into_iter().map(|(server, trips)| {
            let trip = trips.distribution();
            PingRow { server, trip }
        });
        let rows = rows.collect();
        Concluded {
            target: run.target(run.request.targets[0].label(), Vec::new()),
            results: PingResults { rows },
            ..Concluded::default()
        }
    }

    fn headline(run: &PingDocument) -> String {
        format!("{} servers answered.", run.results.rows.len())
    }

    fn stated(_: &PingSettings, results: &PingResults) -> StatedFigures {
        let mut figures = StatedFigures::default();
        for row in &results.rows {
            figures.distribution(TRIP, &[&row.server], &row.trip);
        }
        figures
    }

    fn report(run: &PingDocument, _: bool) -> Report {
        let median = |row: &PingRow| Cell::time(row.trip.p50_us, 0.0, Unit::Micro);
        let line = |row: &PingRow| vec![row.server.as_str().into(), median(row)];
        let table = Table::new(&["server", "p50"], 1, run.results.rows.iter().map(line));
        let mut report = Report::of(run, "How far is a server?", String::new());
        report.add(Block::table("trips", "Round trips (µs)", table));
        report
    }

    fn charts(run: &PingDocument, _: &Path) -> Result<Vec<Chart>, HtmlError> {
        let rows = &run.results.rows;
        let point = |row: &PingRow| Point::of(&row.server, row.trip.p50_us);
        Ok(vec![Chart {
            id: "by-server",
            title: "Round trip to each server",
            y: Axis::time("round trip", Unit::Micro, Scale::FromZero),
            mark: Mark::Bars,
            series: vec![chart::Series::new("p50", rows.iter().map(point))],
            table: Table::of(1, rows, &[("server", &|row| row.server.clone())]),
            ..Chart::default()
        }])
    }
}
