//! A calibration for a ticket.

use replimeter_model::calibrate::CalibrateDocument;

use super::{Head, section, sentences, warnings};
use crate::{calibrate as words, methods};

/// The report of a `calibrate` run.
#[must_use]
pub fn calibrate(document: &CalibrateDocument) -> String {
    let head = Head {
        command: "calibrate",
        title: document.title.as_deref(),
        target: &document.target,
        started_at: &document.started_at,
        answer: &document.answer,
        error: document.error.as_deref(),
    };
    let mut out = head.text();
    out.push_str(&section(
        "What each method makes of each delay (µs)",
        &words::HEADINGS,
        2,
        &words::lines(document),
    ));
    let mut how = words::sentences(document);
    how.extend(
        document
            .floors
            .iter()
            .map(|floor| methods::floor_of(floor, "")),
    );
    out.push_str(&sentences("How it was measured", &how));
    out.push_str(&warnings(&document.warnings));
    out
}
