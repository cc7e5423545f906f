//! Lag for a ticket.

use replimeter_model::record::LagDocument;

use super::{Head, section, sentences, verbatim, warnings};
use crate::{
    answer::overall_rows, backlog, columns::HEADINGS, load, methods, shapes, sweep, terminal,
    waterfall,
};

/// The report of a `lag` run.
#[must_use]
pub fn lag(document: &LagDocument) -> String {
    let head = Head {
        command: "lag",
        title: document.title.as_deref(),
        target: &document.target,
        started_at: &document.started_at,
        answer: &document.answer,
        error: document.error.as_deref(),
    };
    let mut out = head.text();
    let rounds = document.settings.backlog.is_none();
    if rounds && document.several() {
        out.push_str(&section(
            "Side by side (µs, lag from ack unless said otherwise)",
            &shapes::HEADINGS,
            3,
            &shapes::lines(document),
        ));
        out.push_str(&format!("\n{}\n", super::escaped(shapes::NOTE)));
    }
    if rounds {
        let (unit, lines) = terminal::distribution_lines(document, &overall_rows(document));
        let headings: Vec<&str> = ["replica", "what"].into_iter().chain(HEADINGS).collect();
        out.push_str(&section(
            &format!("Distributions ({})", unit.symbol()),
            &headings,
            2,
            &lines,
        ));
        out.push_str(&verbatim("Methods", &methods::text(document)));
    }
    for one in waterfall::tables(document) {
        let heading = format!(
            "From send to visible, stage by stage ({}), {}",
            one.unit.symbol(),
            one.name
        );
        out.push_str(&section(&heading, &one.headings, 3, &one.lines));
        for note in one.notes {
            out.push_str(&format!("\n{}\n", super::escaped(&note)));
        }
    }
    for table in &document.size_sweep {
        out.push_str(&verbatim(
            &format!(
                "As published in 2006 (first sweep, last row of each step, ms), {}",
                table.replica
            ),
            &sweep::table(table),
        ));
    }
    out.push_str(&verbatim("Backlog", &backlog::text(document)));
    out.push_str(&verbatim("Load", &load::text(document)));
    if rounds && !document.results.is_empty() {
        let mut how = methods::sentences(&methods::used(document));
        if !document.target.options.is_empty() {
            how.push(format!("Servers: {}.", document.target.options.join("; ")));
        }
        how.extend(
            document
                .floors
                .iter()
                .map(|floor| methods::floor(document, floor)),
        );
        out.push_str(&sentences("How it was measured", &how));
    }
    out.push_str(&warnings(&document.warnings));
    out
}
