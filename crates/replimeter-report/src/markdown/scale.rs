//! A scaling measurement for a ticket.

use replimeter_model::scale::ScaleDocument;

use super::{Head, section, sentences, warnings};
use crate::scale as words;

/// The report of a `scale` run.
#[must_use]
pub fn scale(document: &ScaleDocument) -> String {
    let head = Head {
        command: "scale",
        title: document.title.as_deref(),
        target: &document.target,
        started_at: &document.started_at,
        answer: &document.answer,
        error: document.error.as_deref(),
    };
    let mut out = head.text();
    let title = "Throughput by replicas; processor time and writes while both run";
    out.push_str(&section(
        title,
        &words::HEADINGS,
        1,
        &words::lines(document),
    ));
    out.push_str(&section(
        "Updates",
        &words::UPDATE_HEADINGS,
        1,
        &words::update_lines(document),
    ));
    out.push_str(&section(
        "Percent of no replica",
        &words::PERCENT_HEADINGS,
        1,
        &words::percent_lines(document),
    ));
    out.push_str(&section(
        "What each server spent",
        &words::SERVER_HEADINGS,
        3,
        &words::server_lines(document),
    ));
    out.push_str(&section(
        "Scaling law",
        &words::LAW_HEADINGS,
        2,
        &words::law_lines(document),
    ));
    out.push_str(&sentences(
        "The law and what was measured",
        &words::law_sentences(document),
    ));
    out.push_str(&sentences(
        "How it was measured",
        &words::sentences(document),
    ));
    out.push_str(&warnings(&document.warnings));
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn its_tables_are_there() {
        let text = super::scale(&crate::scale::tests::example());
        for wanted in [
            "| replicas | insert alone/s |",
            "## Percent of no replica",
            "## What each server spent",
            "no law is fitted",
        ] {
            assert!(text.contains(wanted), "`{wanted}` is missing in {text}");
        }
    }
}
