//! The chart of a `calibrate` run.

use replimeter_instruments::calibrate::results::{CalibrateDocument, CalibrateRow, ReferenceRow};

use replimeter_render::{
    chart::{Axis, Chart, Point, Scale, Series},
    charts::{grouped, times_in},
    figures::{Unit, time},
    format::number,
    report::Table,
};

/// Returns a chart of errors with intervals, a line for each name.
fn of_errors(x: &'static str, points: impl Iterator<Item = (String, Point)>) -> Chart {
    let lines = grouped(points).into_iter();
    Chart {
        note: "Zero means no error. Bars are 95 % intervals.".into(),
        x: Axis::new(x, Scale::Linear),
        y: Axis::time("error of p50", Unit::Micro, Scale::Linear),
        hover: "{x}: {y}",
        whiskers: true,
        series: lines
            .map(|(name, points)| Series::new(name, points))
            .collect(),
        ..Chart::default()
    }
}

/// Returns the chart of measured less injected delay, by method, with intervals.
#[must_use]
pub(crate) fn charts(run: &CalibrateDocument) -> Vec<Chart> {
    if !run.results.reference.is_empty() {
        return reference(run);
    }
    let point = |row: &CalibrateRow| {
        let error = row.error_p50_us?;
        let half = row
            .error_p50_us_ci95
            .map_or(0.0, |[low, high]| (high - low) / 2.0);
        let point = Point::of(time(row.injected_us), error).within(error - half, error + half);
        Some((format!("{} {}", row.replica, row.method), point))
    };
    let points = run.results.rows.iter().filter_map(point);
    let shown = times_in(Unit::Micro);
    vec![Chart {
        id: "calibration",
        title: "Error of p50: measured less injected delay",
        table: Table::of(
            1,
            &run.results.rows,
            &[
                ("replica", &|row| row.replica.clone()),
                ("method", &|row| row.method.clone()),
                ("injected", &|row| time(row.injected_us)),
                ("error p50 (µs)", &|row| shown(row.error_p50_us)),
                ("error p99 (µs)", &|row| shown(row.error_p99_us)),
            ],
        ),
        ..of_errors("injected delay", points)
    }]
}

/// Returns the chart of the error against the reference, by method, observers and neighbors.
fn reference(run: &CalibrateDocument) -> Vec<Chart> {
    let point = |row: &ReferenceRow| {
        let error = row.error_us.p50_us?;
        let [low, high] = row.error_us.p50_us_ci95.unwrap_or([error; 2]);
        let line = format!(
            "{}, {}, {}",
            row.method,
            number(row.observers, "observer"),
            number(row.neighbors, "neighbor")
        );
        Some((line, Point::of(&row.delays, error).within(low, high)))
    };
    let points = run.results.reference.iter().filter_map(point);
    let shown = times_in(Unit::Micro);
    vec![Chart {
        id: "reference",
        title: "Error of p50: middle of the bracket less the true instant",
        table: Table::of(
            2,
            &run.results.reference,
            &[
                ("method", &|row| row.method.clone()),
                ("delay", &|row| row.delays.clone()),
                ("observers", &|row| row.observers.to_string()),
                ("neighbors", &|row| row.neighbors.to_string()),
                ("error p50 (µs)", &|row| shown(row.error_us.p50_us)),
                ("error p99 (µs)", &|row| shown(row.error_us.p99_us)),
            ],
        ),
        ..of_errors("delay", points)
    }]
}
