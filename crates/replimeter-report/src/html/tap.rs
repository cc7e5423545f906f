//! The page of a `tap` run.

use minijinja::{Value, context, value::Serde};
use replimeter_model::{manifest::Manifest, tap::TapDocument};

use super::{HtmlError, frame::Page, pictures};
use crate::{figures::count, tap};

const TEMPLATE: &str = include_str!("tap.html");

/// Renders the page from a run's record.
///
/// # Errors
/// When the template refuses.
pub fn tap(document: &TapDocument, manifest: &Manifest, plan: &str) -> Result<String, HtmlError> {
    let transactions = document.results.first().map_or(0, |row| row.transactions);
    let page = Page {
        template: TEMPLATE,
        command: "tap",
        heading: document
            .title
            .as_deref()
            .unwrap_or("How late is the real traffic?"),
        shape: &document.target.shape,
        extent: format!("{} transactions", count(transactions)),
        document: Value::from(Serde(document)),
        manifest,
        plan,
        several: false,
        pictures: vec![pictures::tap_course(document), pictures::tap_rate(document)],
        text_report: tap::text(document),
    };
    page.render(context! {
        unit => tap::unit(document).symbol(),
        headings => tap::HEADINGS.to_vec(),
        lines => tap::lines(document),
        group_headings => tap::GROUP_HEADINGS.to_vec(),
        groups => tap::groups(document),
        sentences => tap::sentences(document),
    })
}
