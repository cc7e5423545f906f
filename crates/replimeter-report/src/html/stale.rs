//! The page of a `stale` run.

use minijinja::{Value, context, value::Serde};
use replimeter_model::{manifest::Manifest, stale::StaleDocument};

use super::{HtmlError, frame::Page, stale_pictures};
use crate::{figures::count, stale};

const TEMPLATE: &str = include_str!("stale.html");

/// Renders the page from a run's record.
///
/// # Errors
/// When the template refuses.
pub fn stale(
    document: &StaleDocument,
    manifest: &Manifest,
    plan: &str,
) -> Result<String, HtmlError> {
    let page = Page {
        template: TEMPLATE,
        command: "stale",
        heading: document
            .title
            .as_deref()
            .unwrap_or("How often does a read miss what was just written?"),
        shape: &document.target.shape,
        extent: format!(
            "{} reads at once",
            count(document.results.iter().map(|row| row.rounds).sum())
        ),
        document: Value::from(Serde(document)),
        manifest,
        plan,
        several: document.target.modes.len() > 1,
        pictures: stale_pictures::all(document),
        text_report: stale::text(document),
    };
    let rows = &document.results;
    page.render(context! {
        headings => stale::HEADINGS.to_vec(),
        lines => stale::lines(document),
        load_headings => stale::LOAD_HEADINGS.to_vec(),
        loads => stale::load_lines(document),
        published => stale::summaries(document),
        verdicts => stale::verdicts(document),
        prices => rows.iter().filter_map(|row| stale::price(document, row)).collect::<Vec<_>>(),
        witnesses => rows.iter().flat_map(|row| stale::witnesses(document, row)).collect::<Vec<_>>(),
        sentences => stale::sentences(document),
    })
}
