//! The charts of a `load` run.

use replimeter_instruments::load::results::LoadDocument;
use replimeter_model::load::LoadRecord;

use crate::load::report::description;
use replimeter_render::{
    chart::{Axis, Chart, Point, Scale, Series, Stroke},
    charts::{times_in, unit_for},
    figures::count,
    report::Table,
};

/// Returns all charts of a run: operations over time, latency, and, for an open loop, waiting operations.
#[must_use]
pub(crate) fn charts(run: &LoadDocument) -> Vec<Chart> {
    let throughput = Chart {
        id: "throughput",
        title: "Operations per second over time",
        note: "Of the measured time; parts with different numbers of threads ran one after another and are drawn over each other.".into(),
        ..by_second(run, "operations", |load| &load.per_second)
    };
    let mut charts = vec![throughput, times(run)];
    let mut loads = run.results.rows.iter();
    if loads.any(|row| !row.load.waiting_per_second.is_empty()) {
        charts.push(Chart {
            id: "waiting",
            title: "Waiting operations: due and not started",
            note: "A rising line shows a rate that the servers, or the client, cannot sustain."
                .into(),
            ..by_second(run, "waiting", |load| &load.waiting_per_second)
        });
    }
    charts
}

/// Returns the chart of a count for each second of the measured time.
fn by_second(run: &LoadDocument, title: &str, pick: fn(&LoadRecord) -> &Vec<u64>) -> Chart {
    let loads = || run.results.rows.iter().map(|row| &row.load);
    let numbers = |load| (1u32..).zip(pick(load));
    let series = loads().map(|load| {
        let point = |(second, number): (u32, &u64)| Point::new(second, *number as f64);
        Series::new(description(load), numbers(load).map(point))
    });
    Chart {
        x: Axis::new("second of the measured time", Scale::Linear),
        y: Axis::new(title, Scale::FromZero),
        hover: "second {x}: {y:n}",
        series: series.collect(),
        table: Table::of(
            1,
            loads().flat_map(|load| numbers(load).map(move |at| (load, at))),
            &[
                ("load", &|(load, _)| description(load)),
                ("second", &|(_, (second, _))| second.to_string()),
                (title, &|(_, (_, number))| count(**number)),
            ],
        ),
        ..Chart::default()
    }
}

/// Returns the chart of latency, from the intended start and from the actual start.
fn times(run: &LoadDocument) -> Chart {
    let loads = run.results.rows.iter().map(|row| &row.load);
    let unit = unit_for(loads.clone().filter_map(|load| load.latency.p50_us));
    let (mut series, mut rows) = (Vec::new(), Vec::new());
    for (index, load) in loads.enumerate() {
        for (of, times, dash) in [
            ("response", &load.latency, Stroke::Solid),
            ("service", &load.service, Stroke::Dot),
        ] {
            let quantiles = [
                ("p50", times.p50_us),
                ("p90", times.p90_us),
                ("p95", times.p95_us),
                ("p99", times.p99_us),
                ("p99.9", times.p999_us),
            ];
            let points = quantiles.map(|(name, us)| Point::of(name, us));
            series.push(Series {
                dash,
                colour: Some(index),
                ..Series::new(format!("{}, {of}", description(load)), points)
            });
            let mut row = vec![description(load), of.to_owned()];
            row.extend(quantiles.map(|(_, us)| times_in(unit)(us)));
            rows.push(row);
        }
    }
    let headings = ["load", "time", "p50", "p90", "p95", "p99", "p99.9"];
    Chart {
        id: "times",
        title: "Operation latency",
        note: format!(
            "In {}; response is from the intended start, service from the actual start. The axis is logarithmic.",
            unit.symbol()
        ),
        x: Axis::new("quantile", Scale::Linear),
        y: Axis::time("time", unit, Scale::Log),
        hover: "{x}: {y}",
        series,
        table: Table::new(&headings, 2, rows),
        ..Chart::default()
    }
}
