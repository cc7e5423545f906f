//! The report of a calibration.

use std::collections::BTreeSet;

use replimeter_model::calibrate::{AblationEffect, CalibrateDocument};

use crate::lag::methods;
use replimeter_render::{
    figures::{Unit, count, time},
    format::{Format, number, on_off},
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

/// Returns the name of a setting, with the other one.
fn setting(effect: &AblationEffect) -> String {
    match (effect.keep_awake, effect.real_time) {
        (Some(awake), _) => format!("{}, keep-awake {}", effect.of, on_off(awake)),
        (_, Some(real_time)) => format!("{}, real-time {}", effect.of, on_off(real_time)),
        _ => effect.of.clone(),
    }
}

fn effects(run: &CalibrateDocument) -> Table {
    let word = |on: Option<bool>| Cell::from(on.map(on_off));
    Table::of(
        2,
        &run.results.effects,
        &[
            ("threads", &|row| u64::from(row.threads).into()),
            ("of", &|row| setting(row).into()),
            ("n", &|row| u64::from(row.repetitions).into()),
            ("lag", &|row| Format::Ratio.estimate(&row.lag_ratio)),
            ("throughput", &|row| {
                Format::Ratio.estimate(&row.throughput_ratio)
            }),
            ("default", &|row| word(row.default_on)),
            (
                "by these figures",
                &|row| match (row.default_on, row.other_default) {
                    (None, _) => Cell::NONE,
                    (_, None) => "open".into(),
                    (Some(on), Some(other)) => word(Some(on != other)),
                },
            ),
        ],
    )
}

fn conditions(run: &CalibrateDocument) -> Table {
    let us = Format::In(Unit::Micro);
    Table::of(
        4,
        &run.results.ablation,
        &[
            ("threads", &|row| u64::from(row.threads).into()),
            ("keep-awake", &|row| on_off(row.keep_awake).into()),
            ("real-time", &|row| on_off(row.real_time).into()),
            ("method", &|row| match (&row.method, row.methods.len()) {
                (None, _) => "none".into(),
                (Some(method), 1) => Cell::from(method),
                (Some(method), _) => format!("{method}, among all").into(),
            }),
            ("n", &|row| row.rounds.into()),
            ("lag from send p50", &|row| {
                us.with_interval_ends(row.from_send.p50_us, row.from_send.p50_us_ci95)
            }),
            ("p99", &|row| {
                us.with_interval_ends(row.from_send.p99_us, row.from_send.p99_us_ci95)
            }),
            ("not seen", &|row| row.timed_out.into()),
            ("load (per s)", &|row| {
                Format::Rate.estimate(&row.throughput)
            }),
        ],
    )
}

/// Returns the headline of an ablation.
fn ablation_answer(run: &CalibrateDocument) -> String {
    let settings = || {
        run.results
            .effects
            .iter()
            .filter(|effect| effect.default_on.is_some())
    };
    let others = settings().filter(|effect| effect.other_default == Some(true));
    let named: Vec<String> = others
        .map(|effect| {
            let state = on_off(effect.default_on != Some(true));
            let threads = number(effect.threads, "thread");
            format!("{state} for {} with {threads}", setting(effect))
        })
        .collect();
    let open = settings()
        .filter(|effect| effect.other_default.is_none())
        .count();
    let all = settings().count();
    if named.is_empty() {
        return format!(
            "No figure asks for another default; {open} of {all} comparisons are open."
        );
    }
    format!(
        "These figures ask for other defaults: {}; {open} of {all} comparisons are open.",
        named.join("; ")
    )
}

/// Returns the methods of a calibration.
fn used(run: &CalibrateDocument) -> BTreeSet<&str> {
    let rows = run.results.rows.iter().map(|row| row.method.as_str());
    let reference = run.results.reference.iter();
    let ablation = run.results.ablation.iter();
    rows.chain(reference.map(|row| row.method.as_str()))
        .chain(ablation.filter_map(|row| row.method.as_deref()))
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
    if !run.results.ablation.is_empty() {
        return with_end_note(ablation_answer(run), run.status);
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
    let ablation = run.results.ablation.iter().map(|row| row.rounds);
    let rounds = rounds.chain(reference).chain(ablation).sum();
    let mut report = Report::of(
        run,
        "Error of each method",
        format!("{} samples", count(rounds)),
    );
    if !run.results.ablation.is_empty() {
        let title = "What each setting and method changes: with, divided by without";
        report.add(Block::table("effects", title, effects(run)));
        let title = "Lag (µs) and load under each combination";
        report.add(Block::table("ablation", title, conditions(run)));
    } else if run.results.reference.is_empty() {
        let title = "Measured lag and error by injected delay (µs)";
        report.add(Block::table("figures", title, figures(run)));
    } else {
        let title = "Error of each method against the true instants (µs)";
        report.add(Block::table("reference", title, reference_figures(run)));
    }
    let floors = run.results.floors.iter();
    report.how = floors.map(|floor| methods::floor_of(floor, "")).collect();
    if !run.results.ablation.is_empty() {
        let covered =
            "Intervals cover this start of the servers only, not the variation between starts.";
        report.how.push(covered.to_owned());
    }
    report.with_servers(&run.target)
}
