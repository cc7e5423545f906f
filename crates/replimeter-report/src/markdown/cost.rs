//! A price list for a ticket.

use replimeter_model::cost::CostDocument;

use super::{Head, section, sentences, warnings};
use crate::cost as words;

/// The report of a `cost` run.
#[must_use]
pub fn cost(document: &CostDocument) -> String {
    let head = Head {
        command: "cost",
        title: document.title.as_deref(),
        target: &document.target,
        started_at: &document.started_at,
        answer: &document.answer,
        error: document.error.as_deref(),
    };
    let mut out = head.text();
    out.push_str(&sentences("Prices", &words::sentences(document)));
    out.push_str(&section(
        "One mode against itself",
        &words::SELF_HEADINGS,
        0,
        &words::comparisons(document),
    ));
    let heading = format!(
        "Price list (latencies in {})",
        words::unit(document).symbol()
    );
    out.push_str(&section(
        &heading,
        &words::HEADINGS,
        1,
        &words::lines(document),
    ));
    out.push_str(&section(
        "As published in 2010 (one thread)",
        &words::PUBLISHED_HEADINGS,
        1,
        &words::published(document),
    ));
    out.push_str(&section(
        "Over none of the same binary",
        &words::RATIO_HEADINGS,
        1,
        &words::ratios(document),
    ));
    out.push_str(&section(
        "Step by step (µs per operation)",
        &words::STEP_HEADINGS,
        2,
        &words::steps(document),
    ));
    out.push_str(&section(
        "What each server spends on an operation",
        &words::SERVER_HEADINGS,
        1,
        &words::servers(document),
    ));
    out.push_str(&sentences("How it was measured", &words::how(document)));
    out.push_str(&warnings(&document.warnings));
    out
}
