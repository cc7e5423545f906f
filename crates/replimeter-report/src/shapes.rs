//! Several shapes side by side: one line for each replica of each.

use replimeter_model::record::{Distribution, LagDocument};

use crate::{
    answer::overall_rows,
    figures::{Unit, count},
    precision::Precision,
};

/// The columns.
pub(crate) const HEADINGS: [&str; 11] = [
    "shape",
    "mode",
    "replica",
    "n",
    "missing",
    "write p50",
    "p50",
    "95 % of p50",
    "p99",
    "from send p50",
    "bracket p50",
];

/// What a reader of the table must know.
pub(crate) const NOTE: &str = "The shapes were measured one after another, in this order; of servers started for this run only one shape's ran at a time. \
     The interval is of the run: how much one start differs from the next is not in it.";

/// Lines of cells, in the order of the shapes.
pub(crate) fn lines(document: &LagDocument) -> Vec<Vec<String>> {
    let rows = overall_rows(document);
    let unit = Unit::for_size(0.0);
    let show = |value: Option<f64>, half: f64| {
        value.map_or_else(|| "–".to_owned(), |us| unit.show_within(us, half))
    };
    let p50 = |distribution: &Distribution, precision: Precision<'_>| {
        show(distribution.p50_us, precision.quantile(0.5))
    };
    let shapes: Vec<&str> = document.target.shape.split(", ").collect();
    let lines = rows.iter().map(|row| {
        let index = shapes.iter().position(|shape| *shape == row.shape);
        let mode = index
            .and_then(|index| document.target.modes.get(index))
            .cloned()
            .unwrap_or_default();
        let of = |distribution| Precision::of_lag(row, distribution);
        let interval = row.from_ack.ci95.as_ref().and_then(|ci| ci.p50_us);
        vec![
            row.shape.clone(),
            mode,
            row.replica.clone(),
            count(row.from_ack.count),
            count(row.missing),
            p50(&row.insert, Precision::exact(&row.insert)),
            p50(&row.from_ack, of(&row.from_ack)),
            interval.map_or_else(|| "–".to_owned(), |ends| unit.show_interval(ends).join("–")),
            show(row.from_ack.p99_us, of(&row.from_ack).quantile(0.99)),
            p50(&row.from_send, of(&row.from_send)),
            p50(&row.error_us, Precision::exact(&row.error_us)),
        ]
    });
    lines.collect()
}
