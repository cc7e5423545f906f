//! Comparison of several shapes: one line for each replica of each shape.

use replimeter_instruments::lag::results::LagDocument;
use replimeter_model::record::Distribution;

use crate::lag::headline::overall_rows;
use replimeter_render::{figures::Unit, precision::Precision, report::Cell};

/// The columns. The lag from the send leads: shapes acknowledge at different times, so what one counts as lag is write latency of another.
pub(crate) const HEADINGS: [&str; 12] = [
    "shape",
    "mode",
    "replica",
    "n",
    "timed out",
    "from send p50",
    "95 % of from send",
    "write p50",
    "from ack p50",
    "95 % of from ack",
    "from ack p99",
    "bracket p50",
];

/// Returns the note below the table.
pub(crate) fn note(document: &LagDocument) -> String {
    let order = match document.target.fresh_starts {
        0 | 1 => "one after another, in this order".to_owned(),
        starts => format!("in {starts} starts each, in a random order from the second start on"),
    };
    let covered = match document.target.fresh_starts {
        0 => "this run only, not restarts of the servers",
        1 => "one start of each shape only, not the variation between starts",
        _ => "the variation between starts too",
    };
    format!(
        "The shapes were measured {order}; of servers started for this run, only one shape's ran at a time. The interval covers {covered}."
    )
}

/// Returns the lines, in the order of the shapes.
pub(crate) fn lines(document: &LagDocument) -> Vec<Vec<Cell>> {
    let unit = Unit::Micro;
    let p50 = |distribution: &Distribution, precision: Precision<'_>| {
        Cell::time(distribution.p50_us, precision.quantile(0.5), unit)
    };
    let shapes: Vec<&str> = document.target.shape.split(", ").collect();
    let rows = overall_rows(document).into_iter();
    let lines = rows.map(|row| {
        let index = shapes.iter().position(|shape| *shape == row.shape);
        let mode = index
            .and_then(|index| document.target.modes.get(index))
            .cloned()
            .unwrap_or_default();
        let of = |distribution| Precision::of_brackets(&row.bracket_us, distribution);
        let (ack, send) = (&row.from_ack, &row.from_send);
        vec![
            row.shape.clone().into(),
            mode.into(),
            row.replica.clone().into(),
            Cell::Count(ack.count),
            Cell::Count(row.timed_out),
            p50(send, of(send)),
            Cell::interval(send.p50_us_ci95, unit),
            p50(&row.write_latency, Precision::exact(&row.write_latency)),
            p50(ack, of(ack)),
            Cell::interval(ack.p50_us_ci95, unit),
            Cell::time(ack.p99_us, of(ack).quantile(0.99), unit),
            p50(&row.bracket_us, Precision::exact(&row.bracket_us)),
        ]
    });
    lines.collect()
}
