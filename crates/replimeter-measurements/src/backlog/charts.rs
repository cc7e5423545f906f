//! The chart of a `backlog` run.

use replimeter_instruments::backlog::results::BacklogDocument;

use crate::backlog::report;
use replimeter_render::{
    chart::{Axis, Chart, Point, Scale, Series},
    figures::count,
    report::Table,
};

/// Returns the chart of a run: the backlog over time, one line for each replica and number of workers.
#[must_use]
pub(crate) fn charts(document: &BacklogDocument) -> Vec<Chart> {
    let lines = document.results.rows.iter();
    let lines = lines.map(|row| (report::name(document, row), report::points(row)));
    let lines: Vec<(String, Vec<_>)> = lines.collect();
    let series = lines.iter().map(|(name, points)| {
        let points = points.iter().map(|(at, behind, phase)| {
            Point::new((at * 1e4).round() / 1e4, *behind as f64)
                .with_hover_text(phase.description())
        });
        Series::new(name, points)
    });
    let rows = lines.iter();
    let rows = rows.flat_map(|(name, points)| points.iter().map(move |point| (name, point)));
    vec![Chart {
        id: "backlog",
        title: "Backlog over time",
        note: "It grows while the applier is stopped, then changes under load, and finally falls without load.".into(),
        x: Axis::new("time since the end of the load's warm-up (s)", Scale::FromZero),
        y: Axis::new("transactions not applied", Scale::FromZero),
        hover: "after {x:.3} s: {y:n} transactions behind ({text})",
        series: series.collect(),
        table: Table::of(
            1,
            rows,
            &[
                ("series", &|(name, _)| (*name).clone()),
                ("after (s)", &|(_, (at, ..))| format!("{at:.3}")),
                ("applier", &|(_, (.., phase))| phase.description().to_owned()),
                ("transactions behind", &|(_, (_, behind, _))| count(*behind)),
            ],
        ),
        ..Chart::default()
    }]
}
