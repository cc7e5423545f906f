//! Lag of the real traffic for a ticket.

use replimeter_model::tap::TapDocument;

use super::{Head, section, sentences, warnings};
use crate::tap as words;

/// The report of a `tap` run.
#[must_use]
pub fn tap(document: &TapDocument) -> String {
    let head = Head {
        command: "tap",
        title: document.title.as_deref(),
        target: &document.target,
        started_at: &document.started_at,
        answer: &document.answer,
        error: document.error.as_deref(),
    };
    let mut out = head.text();
    let unit = words::unit(document).symbol();
    out.push_str(&section(
        &format!("Lag of the real traffic ({unit})"),
        &words::HEADINGS,
        1,
        &words::lines(document),
    ));
    out.push_str(&section(
        &format!("By what the transactions touch ({unit})"),
        &words::GROUP_HEADINGS,
        2,
        &words::groups(document),
    ));
    out.push_str(&sentences(
        "How it was measured",
        &words::sentences(document),
    ));
    out.push_str(&warnings(&document.warnings));
    out
}
