//! The report of a calibration.

use std::collections::BTreeSet;

use replimeter_model::calibrate::CalibrateDocument;

use crate::lag::methods;
use replimeter_render::{
    figures::{Unit, count, time},
    format::Format,
    headline::{with_end_note, with_level},
    report::{Block, Cell, Report, Table},
};

fn figures(run: &CalibrateDocument) -> Table {
    let us = Format::In(Unit::Micro);
    let range = |ends: Option<[f64; 2]>| {
        let ends = ends.map(|ends| ends.map(|end| us.show(end, None)));
        Cell::from(ends.map(|ends| ends.join(" to ")))
    };
    Table::of(
        2,
        &run.results.rows,
        &[
            ("replica", &|row| Cell::from(&row.replica)),
            ("method", &|row| (&row.method).into()),
            ("injected", &|row| us.cell(Some(row.injected_us))),
            ("n", &|row| row.rounds.into()),
            ("measured p50", &|row| us.cell(row.measured.p50_us)),
            ("measured p99", &|row| us.cell(row.measured.p99_us)),
            ("error p50", &|row| us.cell(row.error_p50_us)),
            ("95 %", &|row| range(row.error_p50_us_ci95)),
            ("repetitions", &|row| range(row.error_p50_range)),
            ("error p99", &|row| us.cell(row.error_p99_us)),
            ("95 %", &|row| range(row.error_p99_us_ci95)),
        ],
    )
}

/// Returns the methods of a calibration.
fn used(run: &CalibrateDocument) -> BTreeSet<&str> {
    run.results
        .rows
        .iter()
        .map(|row| row.method.as_str())
        .collect()
}

/// Returns the description of the method.
fn sentences(run: &CalibrateDocument) -> Vec<String> {
    let mut sentences = vec![
        "A TCP link between primary and replica delays every byte by the injected time, one way. The error is the lag through \
         the link with the delay, less the lag through the same link without delay, less the delay, for p50 and for p99. The \
         delays ran in order and in reverse. The repetitions column shows the smallest and the largest error of p50, \
         each relative to its own part without delay. The error includes the link's own overhead. Measured is the lag from \
         send for poll and wait, and from the same event on the primary for stamp and tap."
            .to_owned(),
    ];
    sentences.extend(methods::descriptions(&used(run)));
    sentences
}

/// Returns the headline in one sentence.
#[must_use]
pub(crate) fn answer(run: &CalibrateDocument) -> String {
    let mut parts = Vec::new();
    for method in used(run) {
        let errors = run
            .results
            .rows
            .iter()
            .filter(|row| row.method == method)
            .filter_map(|row| Some((row.error_p50_us?, row)));
        let worst = errors.max_by(|a, b| a.0.abs().total_cmp(&b.0.abs()));
        if let Some((error, row)) = worst {
            let ends = row.error_p50_us_ci95.map_or_else(String::new, |ends| {
                format!(
                    " [{}]",
                    Unit::for_size(error).show_interval(ends).join(", ")
                )
            });
            parts.push(format!(
                "the largest error of p50 by {method} is {}{ends}, at an injected delay of {}",
                time(error),
                time(row.injected_us)
            ));
        }
    }
    let mut text = if parts.is_empty() {
        "Too few rounds for a median.".to_owned()
    } else {
        let parts = parts.join("; ");
        let (first, rest) = parts.split_at(1);
        format!("{}{rest}.", first.to_uppercase())
    };
    if !parts.is_empty()
        && run
            .results
            .rows
            .iter()
            .any(|row| row.error_p50_us.is_some() && row.error_p50_us_ci95.is_none())
    {
        text.push_str(" Too few rounds for an interval.");
    }
    with_end_note(with_level(text), run.status)
}

/// Returns the report of a run.
#[must_use]
pub(crate) fn report(run: &CalibrateDocument) -> Report {
    let rounds = run.results.rows.iter().map(|row| row.rounds).sum();
    let mut report = Report::of(
        run,
        "Error of each method",
        format!("{} samples", count(rounds)),
    );
    report.add(Block::table(
        "figures",
        "Measured lag and error by injected delay (µs)",
        figures(run),
    ));
    report.how = sentences(run);
    let floors = run.results.floors.iter();
    report
        .how
        .extend(floors.map(|floor| methods::floor_of(floor, "")));
    report.with_servers(&run.target)
}
