//! The report of a calibration.

use std::collections::BTreeSet;

use replimeter_instruments::calibrate::results::CalibrateDocument;

use crate::lag::methods;
use replimeter_render::{
    figures::{Unit, count, time},
    format::{Format, number},
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

fn reference_figures(run: &CalibrateDocument) -> Table {
    let us = Format::In(Unit::Micro);
    Table::of(
        1,
        &run.results.reference,
        &[
            ("method", &|row| Cell::from(&row.method)),
            ("observers", &|row| u64::from(row.observers).into()),
            ("neighbors", &|row| u64::from(row.neighbors).into()),
            ("delay", &|row| Cell::from(&row.delays)),
            ("n", &|row| row.rounds.into()),
            ("outside (%)", &|row| {
                Format::Share.with_interval_ends(row.outside_percent, row.outside_percent_ci95)
            }),
            ("answer outside (%)", &|row| {
                let ends = row.answer_outside_percent_ci95;
                Format::Share.with_interval_ends(row.answer_outside_percent, ends)
            }),
            ("bracket p50", &|row| us.cell(row.bracket_us.p50_us)),
            ("error p50", &|row| {
                us.with_interval_ends(row.error_us.p50_us, row.error_us.p50_us_ci95)
            }),
            ("error p99", &|row| us.cell(row.error_us.p99_us)),
            ("bias of the estimate", &|row| {
                us.with_interval_ends(row.bias_p50_us, row.bias_p50_us_ci95)
            }),
            ("answered late p50", &|row| {
                us.cell(row.answered_late_us.p50_us)
            }),
        ],
    )
}

/// Returns the methods of a calibration.
fn used(run: &CalibrateDocument) -> BTreeSet<&str> {
    let rows = run.results.rows.iter().map(|row| row.method.as_str());
    let reference = run.results.reference.iter();
    rows.chain(reference.map(|row| row.method.as_str()))
        .collect()
}

/// Returns the headline of a run against the reference.
fn reference_answer(run: &CalibrateDocument) -> String {
    let parts = used(run).into_iter().map(|method| {
        let rows = run
            .results
            .reference
            .iter()
            .filter(|row| row.method == method);
        let (all, outside) = rows.clone().fold((0, 0), |(all, outside), row| {
            (all + row.rounds - row.timed_out, outside + row.outside)
        });
        let worst = rows
            .filter_map(|row| Some((row.bias_p50_us?, row)))
            .max_by(|a, b| a.0.abs().total_cmp(&b.0.abs()));
        let bias = worst.map_or_else(
            || "too few rounds for a median".to_owned(),
            |(bias, row)| {
                format!(
                    "the largest bias of the estimate is {}, with {}, {} and a delay of {}",
                    time(bias),
                    number(row.observers, "observer"),
                    number(row.neighbors, "neighbor"),
                    row.delays
                )
            },
        );
        format!(
            "by {method}, the true instant is inside the bracket of {} of {} rows; {bias}",
            count(all - outside),
            count(all)
        )
    });
    let text = parts.collect::<Vec<_>>().join(". ").replace(". by", ". By");
    let (first, rest) = text.split_at(text.len().min(1));
    format!("{}{rest}.", first.to_uppercase())
}

/// Returns the headline in one sentence.
#[must_use]
pub(crate) fn answer(run: &CalibrateDocument) -> String {
    if !run.results.reference.is_empty() {
        return with_end_note(reference_answer(run), run.status);
    }
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
    let reference = run.results.reference.iter().map(|row| row.rounds);
    let rounds = run.results.rows.iter().map(|row| row.rounds);
    let rounds = rounds.chain(reference).sum();
    let mut report = Report::of(
        run,
        "Error of each method",
        format!("{} samples", count(rounds)),
    );
    if run.results.reference.is_empty() {
        let title = "Measured lag and error by injected delay (µs)";
        report.add(Block::table("figures", title, figures(run)));
    } else {
        let title = "Error of each method against the true instants (µs)";
        report.add(Block::table("reference", title, reference_figures(run)));
    }
    let floors = run.results.floors.iter();
    report.how = floors.map(|floor| methods::floor_of(floor, "")).collect();
    report.with_servers(&run.target)
}
