//! What a calibration tells people.

use std::{collections::BTreeSet, fmt::Write as _};

use replimeter_model::calibrate::{CalibrateDocument, CalibrateRow};

use crate::{
    answer::with_ending,
    figures::{Unit, count, time},
    methods,
    terminal::{aligned, how_measured, plain_table, warnings, wrapped},
};

/// The columns.
pub(crate) const HEADINGS: [&str; 11] = [
    "replica",
    "method",
    "injected",
    "n",
    "measured p50",
    "measured p99",
    "error p50",
    "95 %",
    "repetitions",
    "error p99",
    "95 %",
];

fn show(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |us| Unit::Micro.show(us))
}

fn range(ends: Option<[f64; 2]>) -> String {
    ends.map_or_else(
        || "–".to_owned(),
        |[low, high]| format!("{} to {}", Unit::Micro.show(low), Unit::Micro.show(high)),
    )
}

/// Lines of cells.
pub(crate) fn lines(document: &CalibrateDocument) -> Vec<Vec<String>> {
    let line = |row: &CalibrateRow| {
        vec![
            row.replica.clone(),
            row.method.clone(),
            Unit::Micro.show(row.injected_us),
            count(row.rounds),
            show(row.measured.p50_us),
            show(row.measured.p99_us),
            show(row.error_p50_us),
            range(row.error_p50_ci),
            range(row.error_p50_range),
            show(row.error_p99_us),
            range(row.error_p99_ci),
        ]
    };
    document.results.iter().map(line).collect()
}

/// How it was measured.
pub(crate) fn sentences(document: &CalibrateDocument) -> Vec<String> {
    let used: BTreeSet<&str> = document
        .results
        .iter()
        .map(|row| row.method.as_str())
        .collect();
    let mut sentences = vec![
        "A TCP link of ours between primary and replica holds every byte back for the injected time, one way. Error is the lag through \
         the link with the delay, less the lag through the same link without, less the delay: p50 against p50, p99 against p99. The \
         delays had their turns there and back again; the repetitions column has the smallest and the largest error of p50 among them, \
         each against its own turn without delay. What the link itself adds beyond its delay is in the error. Measured is the lag from \
         send by poll and wait, and from the same event on the primary by stamp and tap."
            .to_owned(),
    ];
    sentences.extend(methods::sentences(&used));
    sentences
}

/// The finding in one sentence.
#[must_use]
pub fn answer(document: &CalibrateDocument) -> String {
    let methods: BTreeSet<&str> = document
        .results
        .iter()
        .map(|row| row.method.as_str())
        .collect();
    let mut parts = Vec::new();
    for method in methods {
        let errors = document
            .results
            .iter()
            .filter(|row| row.method == method)
            .filter_map(|row| Some((row.error_p50_us?, row)));
        let worst = errors.max_by(|a, b| a.0.abs().total_cmp(&b.0.abs()));
        if let Some((error, row)) = worst {
            parts.push(format!(
                "{method} is off by at most {} at p50 (at {})",
                time(error.abs()),
                time(row.injected_us)
            ));
        }
    }
    let mut text = if parts.is_empty() {
        "Too few rounds for a median.".to_owned()
    } else {
        format!("{}.", parts.join("; "))
    };
    if !parts.is_empty()
        && document
            .results
            .iter()
            .any(|row| row.error_p50_us.is_some() && row.error_p50_ci.is_none())
    {
        text.push_str(" There are too few rounds to say how sure that is.");
    }
    with_ending(text, document.status)
}

/// The whole text.
#[must_use]
pub fn text(document: &CalibrateDocument) -> String {
    let mut out = String::new();
    let mut versions: Vec<&str> = document
        .target
        .nodes
        .iter()
        .map(|node| node.version.as_str())
        .collect();
    versions.dedup();
    let _ = writeln!(
        out,
        "Replimeter calibrate · {} · {}\n",
        document.target.shape,
        versions.join(", ")
    );
    let _ = writeln!(out, "{}\n", wrapped(&document.answer, 96, ""));
    let mut table = plain_table(HEADINGS.map(str::to_owned).to_vec());
    for line in lines(document) {
        table.add_row(line);
    }
    let _ = writeln!(
        out,
        "What each method makes of each delay (µs)\n{}",
        aligned(table, 2).trim_end()
    );
    out.push_str(&how_measured(&sentences(document)));
    for floor in &document.floors {
        let _ = writeln!(
            out,
            "  {}",
            wrapped(&methods::floor_of(floor, ""), 118, "  ")
        );
    }
    out.push_str(&warnings(&document.warnings));
    out
}
