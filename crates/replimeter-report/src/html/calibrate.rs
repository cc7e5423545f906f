//! The page of a `calibrate` run.

use minijinja::{Value, context, value::Serde};
use replimeter_model::{calibrate::CalibrateDocument, manifest::Manifest};

use super::{HtmlError, frame::Page, pictures};
use crate::{calibrate, figures::count, methods};

const TEMPLATE: &str = include_str!("calibrate.html");

/// Renders the page from a run's record.
///
/// # Errors
/// When the template refuses.
pub fn calibrate(
    document: &CalibrateDocument,
    manifest: &Manifest,
    plan: &str,
) -> Result<String, HtmlError> {
    let page = Page {
        template: TEMPLATE,
        command: "calibrate",
        heading: document
            .title
            .as_deref()
            .unwrap_or("How far off is each method?"),
        shape: &document.target.shape,
        extent: format!(
            "{} samples",
            count(document.results.iter().map(|row| row.rounds).sum())
        ),
        document: Value::from(Serde(document)),
        manifest,
        plan,
        several: false,
        pictures: vec![pictures::calibration(document)],
        text_report: calibrate::text(document),
    };
    let floors: Vec<String> = document
        .floors
        .iter()
        .map(|floor| methods::floor_of(floor, ""))
        .collect();
    page.render(context! {
        headings => calibrate::HEADINGS.to_vec(),
        lines => calibrate::lines(document),
        sentences => calibrate::sentences(document),
        floors,
    })
}
