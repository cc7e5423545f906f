//! The charts of a `scale` run.

use replimeter_instruments::scale::{
    results::{ScaleDocument, ScaleFit, ScaleRow, ScaleServer},
    settings::ScalePhase,
};

use crate::scale::report::{FigureOf, INSERTS, INSERTS_OF_NONE, SELECTS, SELECTS_OF_NONE, UPDATES};
use replimeter_render::{
    chart::{Axis, Chart, Mark, Point, Scale, SecondAxis, Series, Stroke, Symbol},
    charts::grouped,
    figures::rate,
    format::Format,
    report::Table,
};

/// A figure of a phase at each number of replicas.
type PhaseFigure = (&'static str, ScalePhase, FigureOf);

/// The published four curves, and the same for updates.
const CURVES: [PhaseFigure; 7] = [
    ("insert alone", ScalePhase::Insert, INSERTS),
    ("insert while selecting", ScalePhase::Mixed, INSERTS),
    ("select alone", ScalePhase::Select, SELECTS),
    ("select while inserting", ScalePhase::Mixed, SELECTS),
    ("update alone", ScalePhase::Update, UPDATES),
    ("update while selecting", ScalePhase::MixedUpdate, UPDATES),
    ("select while updating", ScalePhase::MixedUpdate, SELECTS),
];

/// Returns all charts of a run.
#[must_use]
pub(crate) fn charts(run: &ScaleDocument) -> Vec<Chart> {
    vec![
        throughput(run),
        percent(run),
        processors(run),
        writes(run),
        laws(run),
    ]
}

fn is_read(curve: &str) -> bool {
    curve.starts_with("select")
}

/// Returns the rows of a phase.
fn rows_of(run: &ScaleDocument, phase: ScalePhase) -> impl Iterator<Item = &ScaleRow> + Clone {
    let rows = run.results.rows.iter();
    rows.filter(move |row| row.phase == phase.name())
}

/// Returns curves over the number of replicas, with error bars, colored by position; `shown` formats each
/// value.
fn by_replicas(
    run: &ScaleDocument,
    curves: &[PhaseFigure],
    heading: &str,
    shown: fn(f64, Option<[f64; 2]>) -> String,
) -> Chart {
    let (mut series, mut table) = (Vec::new(), Vec::new());
    for (index, (name, phase, pick)) in curves.iter().enumerate() {
        let mut points = Vec::new();
        for row in rows_of(run, *phase) {
            let (Some(value), ends) = pick(row) else {
                continue;
            };
            let [low, high] = ends.map_or([None; 2], |ends| ends.map(Some));
            points.push(Point::new(row.replicas, value).within(low, high));
            table.push((*name, row.replicas, shown(value, ends)));
        }
        if !points.is_empty() {
            series.push(Series {
                colour: Some(index),
                ..Series::new(*name, points)
            });
        }
    }
    Chart {
        x: Axis::new("replicas", Scale::Whole),
        whiskers: true,
        series,
        table: Table::of(
            1,
            table,
            &[
                ("figure", &|(name, ..)| (*name).to_owned()),
                ("replicas", &|(_, replicas, _)| replicas.to_string()),
                (heading, &|(.., shown)| shown.clone()),
            ],
        ),
        ..Chart::default()
    }
}

/// Returns an axis from zero to slightly above the largest value. An interval can be many times that value,
/// and would compress everything else.
fn room<'a>(series: impl Iterator<Item = &'a Series>, least: f64) -> Scale {
    let values = series.flat_map(|series| &series.points);
    let largest = values.filter_map(|point| point.y).fold(least, f64::max);
    Scale::Range([0.0, if largest > 0.0 { largest * 1.5 } else { 1.0 }])
}

/// Returns the throughput for each number of replicas: the first published chart. Inserts and selects differ
/// in magnitude, so each has an axis.
fn throughput(run: &ScaleDocument) -> Chart {
    let mut chart = by_replicas(run, &CURVES, "per second", |value, ends| {
        Format::Rate.show(value, ends)
    });
    for series in chart
        .series
        .iter_mut()
        .filter(|series| is_read(&series.name))
    {
        (series.second, series.dash) = (true, Stroke::Dot);
    }
    let room = |second| {
        room(
            chart.series.iter().filter(|series| series.second == second),
            0.0,
        )
    };
    Chart {
        id: "throughput",
        title: "Throughput by number of replicas",
        note: "Bars are 95 % intervals, cut at the edge of the chart; one start has none. Selects use the axis on the right.".into(),
        y: Axis::new("writes per second", room(false)),
        second: Some(SecondAxis::Right(Axis::new("selects per second (dotted)", room(true)))),
        hover: "{x} replicas: {y} per s",
        ..chart
    }
}

/// Returns the throughput in percent of no replica: the second published chart.
fn percent(run: &ScaleDocument) -> Chart {
    let curves: Vec<PhaseFigure> = CURVES[..4]
        .iter()
        .map(|(name, phase, _)| {
            let pick = if is_read(name) {
                SELECTS_OF_NONE
            } else {
                INSERTS_OF_NONE
            };
            (*name, *phase, pick)
        })
        .collect();
    let chart = by_replicas(run, &curves, "percent", |value, _| format!("{value:.1} %"));
    Chart {
        id: "percent",
        title: "Throughput in percent of no replica",
        note: "100 % is the same phase on a primary alone. Bars are 95 % intervals, cut at the edge of the chart.".into(),
        y: Axis {
            suffix: " %",
            ..Axis::new("percent of no replica", room(chart.series.iter(), 100.0))
        },
        hover: "{x} replicas: {y}",
        ..chart
    }
}

/// Returns a figure of each server while inserting and selecting; the table has every phase.
fn by_server(run: &ScaleDocument, pick: fn(&ScaleServer) -> Option<f64>, format: Format) -> Chart {
    let show = |value| format.show(value, None);
    let name = |server: &ScaleServer| server.per_operation.name.clone();
    let bars = rows_of(run, ScalePhase::Mixed).flat_map(|row| {
        row.servers.iter().map(move |server| {
            let point = |value| Point {
                label: Some(show(value)),
                ..Point::new(row.replicas, value).with_hover_text(show(value))
            };
            (name(server), pick(server).map(point))
        })
    });
    let series = grouped(bars).into_iter();
    let rows = run.results.rows.iter().flat_map(|row| {
        let servers = row.servers.iter();
        servers.filter_map(move |server| Some((row, server, pick(server)?)))
    });
    Chart {
        x: Axis::new("replicas", Scale::Whole),
        mark: Mark::Bars,
        hover: "{x} replicas: {text}",
        series: series
            .map(|(name, points)| Series::new(name, points.into_iter().flatten()))
            .collect(),
        table: Table::of(
            1,
            rows,
            &[
                ("phase", &|(row, ..)| row.phase.clone()),
                ("replicas", &|(row, ..)| row.replicas.to_string()),
                ("server", &|(_, server, _)| name(server)),
                ("figure", &|(.., value)| show(*value)),
            ],
        ),
        ..Chart::default()
    }
}

fn processors(run: &ScaleDocument) -> Chart {
    Chart {
        id: "processors",
        title: "CPU time of each server while inserting and selecting",
        note: "100 % is one core. The table has every phase.".into(),
        y: Axis::new("percent of one core", Scale::FromZero),
        ..by_server(run, |server| server.cpu_percent, Format::Percent)
    }
}

fn writes(run: &ScaleDocument) -> Chart {
    Chart {
        id: "writes",
        title: "Bytes written to storage per second by each server, while inserting and selecting",
        note: "The table has every phase.".into(),
        y: Axis::new("bytes per second", Scale::FromZero),
        ..by_server(run, |server| server.write_bytes_per_s, Format::Bytes)
    }
}

/// Returns the measured values and the fitted law.
fn laws(run: &ScaleDocument) -> Chart {
    let fits = run.results.fits.iter().filter(|fit| fit.refused.is_none());
    let name = |fit: &ScaleFit| format!("{} ({})", fit.figure, fit.phase);
    let mut series = Vec::new();
    for (index, fit) in fits.clone().enumerate() {
        let of = |mark, what: &str, points: Vec<Point>| Series {
            mark: Some(mark),
            colour: Some(index),
            hidden: index > 0 && fit.phase != ScalePhase::Select.name(),
            ..Series::new(name(fit) + what, points)
        };
        let law = fit
            .curve
            .iter()
            .map(|one| Point::new(one.replicas, one.per_s));
        series.push(Series {
            dash: Stroke::Dash,
            ..of(Mark::Curve, ", law", law.collect())
        });
        let starts = fit.residuals.iter();
        let starts = starts.map(|one| Point::new(one.replicas, one.per_s));
        series.push(of(Mark::Points, "", starts.collect()));
        let next = fit.prediction.as_ref();
        if let Some((next, measured)) = next.and_then(|one| Some((one, one.measured_per_s?))) {
            let point = Point::new(next.replicas, measured);
            series.push(Series {
                symbol: Symbol::DiamondOpen,
                size: Some(11.0),
                ..of(Mark::Points, ", predicted one", vec![point])
            });
        }
    }
    let rows = fits.flat_map(|fit| fit.residuals.iter().map(move |one| (fit, one)));
    Chart {
        id: "law",
        title: "Fitted scaling law and measured throughput",
        note: "Each point is the mean of one start. The curve extends to one replica more than the fit.".into(),
        x: Axis::new("replicas", Scale::Whole),
        y: Axis::new("operations per second", Scale::FromZero),
        hover: "{x} replicas: {y} per s",
        series,
        table: Table::of(
            1,
            rows,
            &[
                ("figure", &|(fit, _)| name(fit)),
                ("replicas", &|(_, one)| one.replicas.to_string()),
                ("start", &|(_, one)| one.start.to_string()),
                ("measured", &|(_, one)| rate(one.per_s, one.per_s / 1000.0)),
                ("law", &|(_, one)| rate(one.fitted_per_s, one.fitted_per_s / 1000.0)),
                ("error", &|(_, one)| format!("{:+.1} %", one.percent)),
            ],
        ),
        ..Chart::default()
    }
}
