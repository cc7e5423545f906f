//! What crashes took, and what one would take, for a ticket.

use replimeter_model::{exposure::ExposureDocument, loss::LossDocument};

use super::{Head, section, sentences, warnings};
use crate::{exposure as exposed, loss as lost};

/// The report of a `loss` run.
#[must_use]
pub fn loss(document: &LossDocument) -> String {
    let head = Head {
        command: "loss",
        title: document.title.as_deref(),
        target: &document.target,
        started_at: &document.started_at,
        answer: &document.answer,
        error: document.error.as_deref(),
    };
    let mut out = head.text();
    out.push_str(&section(
        "What the crashes took",
        &lost::HEADINGS,
        1,
        &lost::lines(document),
    ));
    out.push_str(&section(
        "Every crash",
        &lost::CRASH_HEADINGS,
        1,
        &lost::crashes(document),
    ));
    out.push_str(&sentences(
        "How it was measured",
        &lost::sentences(document),
    ));
    out.push_str(&warnings(&document.warnings));
    out
}

/// The report of an `exposure` run.
#[must_use]
pub fn exposure(document: &ExposureDocument) -> String {
    let head = Head {
        command: "exposure",
        title: document.title.as_deref(),
        target: &document.target,
        started_at: &document.started_at,
        answer: &document.answer,
        error: document.error.as_deref(),
    };
    let mut out = head.text();
    out.push_str(&section(
        "What a crash would have taken",
        &exposed::HEADINGS,
        1,
        &exposed::lines(document),
    ));
    out.push_str(&sentences(
        "How it was measured",
        &exposed::sentences(document),
    ));
    out.push_str(&warnings(&document.warnings));
    out
}
