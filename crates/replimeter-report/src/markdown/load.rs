//! A load for a ticket.

use replimeter_model::load::LoadDocument;

use super::{Head, section, sentences, warnings};
use crate::loading as words;

/// The report of a `load` run.
#[must_use]
pub fn load(document: &LoadDocument) -> String {
    let head = Head {
        command: "load",
        title: document.title.as_deref(),
        target: &document.target,
        started_at: &document.started_at,
        answer: &document.answer,
        error: document.error.as_deref(),
    };
    let mut out = head.text();
    out.push_str(&section(
        "Operations per second and their times",
        &words::HEADINGS,
        2,
        &words::lines(document),
    ));
    out.push_str(&section(
        "What each server spends on an operation",
        &words::SERVER_HEADINGS,
        2,
        &words::servers(document),
    ));
    out.push_str(&sentences("Beside them", &words::notes(document)));
    out.push_str(&sentences(
        "How it was measured",
        &words::sentences(document),
    ));
    out.push_str(&warnings(&document.warnings));
    out
}
