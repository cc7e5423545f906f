//! The charts of a `cost` run.

use std::collections::BTreeMap;

use replimeter_instruments::cost::results::{CostDocument, CostRow};
use replimeter_model::resources::PerOperation;

use crate::cost::report::{delay, label, relative, unit};
use replimeter_render::{
    chart::{Axis, Chart, Mark, Point, Scale, Series},
    charts::{grouped, times_in},
    figures::Unit,
    format::{Format, number, per_second},
    report::Table,
};

/// Returns all charts of a run.
#[must_use]
pub(crate) fn charts(run: &CostDocument) -> Vec<Chart> {
    vec![throughput(run), added(run), processor(run), distance(run)]
}

/// Returns the label below a row's bar.
fn bar(run: &CostDocument, row: &CostRow) -> String {
    let far = row.link_delay_us.map(|us| format!(", {}", delay(us)));
    label(run, row) + &far.unwrap_or_default()
}

/// Groups the rows by number of threads, in ascending order.
fn by_threads(run: &CostDocument) -> BTreeMap<u32, Vec<&CostRow>> {
    let mut groups: BTreeMap<u32, Vec<&CostRow>> = BTreeMap::new();
    for row in &run.results.rows {
        groups.entry(row.threads).or_default().push(row);
    }
    groups
}

/// Returns a series for each number of threads.
fn series_by_threads(run: &CostDocument, point: impl Fn(&CostRow) -> Option<Point>) -> Vec<Series> {
    let groups = by_threads(run).into_iter();
    let series = groups.map(|(threads, rows)| {
        let name = number(threads, "thread");
        Series::new(name, rows.into_iter().filter_map(&point))
    });
    series.collect()
}

fn throughput(run: &CostDocument) -> Chart {
    let over_none = |row: &CostRow| Format::Ratio.estimate(&relative(row)).display_text();
    let point = |row: &CostRow| {
        let of = row.throughput;
        let point = Point::of(bar(run, row), of.mean).within(of.ci95.low, of.ci95.high);
        Some(point.with_hover_text(over_none(row)))
    };
    Chart {
        id: "throughput",
        title: "Throughput in each mode",
        note: "Whiskers are 95 % intervals over the starts.".into(),
        y: Axis::new("operations per second", Scale::FromZero),
        mark: Mark::Bars,
        hover: "{x}: {y} per s, {text} of none",
        whiskers: true,
        series: series_by_threads(run, point),
        table: Table::of(
            1,
            by_threads(run).into_values().flatten(),
            &[
                ("mode", &|row| bar(run, row)),
                ("threads", &|row| row.threads.to_string()),
                ("per second", &|row| per_second(row.throughput.mean)),
                ("low", &|row| per_second(row.throughput.ci95.low)),
                ("high", &|row| per_second(row.throughput.ci95.high)),
                ("over none", &|row| over_none(row)),
            ],
        ),
        ..Chart::default()
    }
}

fn added(run: &CostDocument) -> Chart {
    let unit = unit(run);
    let shown = times_in(unit);
    let point = |row: &CostRow| {
        let of = row.added.latency_us;
        Some(Point::of(bar(run, row), of.value?).within(of.ci95.low, of.ci95.high))
    };
    let rows = by_threads(run).into_values().flatten();
    Chart {
        id: "added",
        title: "Latency added by each mode",
        note: "Mean latency less that of none, for the same binary and number of threads; below zero, the mode is faster.".into(),
        y: Axis::time("added to the mean latency", unit, Scale::Linear),
        mark: Mark::Bars,
        hover: "{x}: {y} more than none",
        whiskers: true,
        series: series_by_threads(run, point),
        table: Table::of(
            1,
            rows.filter(|row| row.added.latency_us.value.is_some()),
            &[
                ("mode", &|row| bar(run, row)),
                ("threads", &|row| row.threads.to_string()),
                (unit.symbol(), &|row| shown(row.added.latency_us.value)),
                ("low", &|row| shown(row.added.latency_us.ci95.low)),
                ("high", &|row| shown(row.added.latency_us.ci95.high)),
            ],
        ),
        ..Chart::default()
    }
}

/// Returns the CPU time of all servers, stacked.
fn processor(run: &CostDocument) -> Chart {
    let shown = times_in(Unit::Micro);
    let rows = run.results.rows.iter().flat_map(|row| {
        let servers = row.servers.iter().enumerate();
        servers.map(move |(place, server)| (row, place, server))
    });
    let bars = rows.clone().map(|(row, place, server)| {
        // Both a primary and a cluster's first node are the server that is written to.
        let place = match place {
            0 => "writer".to_owned(),
            other => format!("other {other}"),
        };
        let threads = number(row.threads, "thread");
        let bar = format!("{}, {threads}", bar(run, row));
        (
            place,
            Point::of(bar, server.cpu_us_per_op).with_hover_text(&server.name),
        )
    });
    let series = grouped(bars).into_iter();
    Chart {
        id: "processor",
        title: "CPU time per operation by server",
        y: Axis::time("CPU time per operation", Unit::Micro, Scale::FromZero),
        mark: Mark::StackedBars,
        hover: "{x}: {text} {y} per operation",
        series: series
            .map(|(place, points)| Series::new(place, points))
            .collect(),
        table: Table::of(
            1,
            rows,
            &[
                ("mode", &|(row, ..)| bar(run, row)),
                ("threads", &|(row, ..)| row.threads.to_string()),
                ("server", &|(.., server): &(_, _, &PerOperation)| {
                    server.name.clone()
                }),
                ("CPU (µs)", &|(.., server)| shown(server.cpu_us_per_op)),
                ("user", &|(.., server)| shown(server.cpu_user_us_per_op)),
                ("system", &|(.., server)| shown(server.cpu_system_us_per_op)),
            ],
        ),
        ..Chart::default()
    }
}

/// Returns the added latency by link delay, for modes measured with several delays.
fn distance(run: &CostDocument) -> Chart {
    let unit = unit(run);
    let rows = run.results.rows.iter().filter_map(|row| {
        let threads = number(row.threads, "thread");
        let name = format!("{}, {threads}", label(run, row));
        Some((
            name,
            (
                row.link_delay_us?,
                row.added.latency_us,
                row.added.latency_us.value?,
            ),
        ))
    });
    let mut lines = grouped(rows);
    lines.retain(|(_, rows)| rows.len() > 1);
    let series = lines.iter().map(|(name, rows)| {
        let rows = rows.iter();
        Series::new(
            name,
            rows.map(|(far, of, us)| Point::new(*far, *us).within(of.ci95.low, of.ci95.high)),
        )
    });
    let rows = lines.iter();
    let rows = rows.flat_map(|(name, rows)| rows.iter().map(move |row| (name, row)));
    Chart {
        id: "distance",
        title: "Added latency by link delay",
        note: "Latency that each mode adds to the mean, over links that delay every byte by this time, each way.".into(),
        x: Axis::time("one-way delay", Unit::Milli, Scale::FromZero),
        y: Axis::time("added to the mean latency", unit, Scale::Linear),
        hover: "{x} one way: {y}",
        whiskers: true,
        series: series.collect(),
        table: Table::of(
            1,
            rows,
            &[
                ("series", &|(name, _)| (*name).clone()),
                ("one way", &|(_, (far, ..))| delay(*far)),
                (unit.symbol(), &|(_, (.., us))| unit.show(*us)),
            ],
        ),
        ..Chart::default()
    }
}
