//! Staleness for a ticket.

use replimeter_model::stale::StaleDocument;

use super::{Head, section, sentences, verbatim, warnings};
use crate::stale as words;

/// The report of a `stale` run.
#[must_use]
pub fn stale(document: &StaleDocument) -> String {
    let head = Head {
        command: "stale",
        title: document.title.as_deref(),
        target: &document.target,
        started_at: &document.started_at,
        answer: &document.answer,
        error: document.error.as_deref(),
    };
    let rows = &document.results;
    let mut out = head.text();
    out.push_str(&section(
        "Reads that missed the write just acknowledged",
        &words::HEADINGS,
        4,
        &words::lines(document),
    ));
    out.push_str(&sentences(
        "As published in 2013",
        &words::summaries(document),
    ));
    out.push_str(&section(
        "Stale reads by the time after the acknowledgement",
        &words::CURVE_HEADINGS,
        1,
        &words::curve_lines(document),
    ));
    let mut synced = words::verdicts(document);
    synced.extend(rows.iter().filter_map(|row| words::price(document, row)));
    out.push_str(&sentences("Synchronous reads", &synced));
    let witnesses = rows
        .iter()
        .filter(|row| row.sync_reads != "off")
        .flat_map(|row| words::witnesses(document, row));
    out.push_str(&verbatim(
        "Witnesses",
        &witnesses
            .map(|lines| lines.join("\n"))
            .collect::<Vec<_>>()
            .join("\n\n"),
    ));
    out.push_str(&section(
        "The load itself",
        &words::LOAD_HEADINGS,
        2,
        &words::load_lines(document),
    ));
    out.push_str(&sentences(
        "How it was measured",
        &words::sentences(document),
    ));
    out.push_str(&warnings(&document.warnings));
    out
}
