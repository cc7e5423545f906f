//! A comparison, for a ticket or a review.

use std::fmt::Write as _;

use replimeter_model::compare::CompareDocument;

use super::{escaped, section, sentences, warnings};
use crate::compare as compared;

/// The report of a comparison.
#[must_use]
pub fn compare(document: &CompareDocument) -> String {
    let mut out = format!("# Replimeter compare: {}\n\n", escaped(&document.command));
    for side in [
        compared::side("A", &document.a),
        compared::side("B", &document.b),
    ] {
        let _ = writeln!(out, "- {}", escaped(&side));
    }
    let _ = writeln!(out, "\n{}", escaped(&document.answer));
    let settings = compared::settings(&document.differs, false);
    let more = document.differs.len() - settings.len();
    out.push_str(&section(
        "What differs beside the figures",
        &compared::SETTING_HEADINGS,
        4,
        &settings,
    ));
    if more > 0 {
        let _ = writeln!(out, "\nAnd {more} other variables.");
    }
    let varies = compared::settings(&document.varies, false);
    out.push_str(&section(
        "What differs among the runs of one side",
        &compared::SETTING_HEADINGS,
        4,
        &varies,
    ));
    out.push_str(&section(
        "Figures",
        &compared::HEADINGS,
        2,
        &compared::lines(document),
    ));
    out.push_str(&sentences("Not compared", &compared::only_on(document)));
    out.push_str(&section(
        "Conditions",
        &compared::CONDITION_HEADINGS,
        3,
        &compared::conditions(document),
    ));
    out.push_str(&sentences(
        "How it was compared",
        &compared::sentences(document),
    ));
    out.push_str(&warnings(&document.warnings));
    out
}

#[cfg(test)]
mod tests {
    use crate::compare::tests::example;

    #[test]
    fn names_stay_names() {
        let text = super::compare(&example());
        assert!(
            text.contains("| lag.p50 | \\<script> |")
                && text.contains("## What differs beside the figures"),
            "{text}"
        );
    }
}
