//! The pages of `loss` and `exposure` runs.

use minijinja::{Value, context, value::Serde};
use replimeter_model::{exposure::ExposureDocument, loss::LossDocument, manifest::Manifest};

use super::{HtmlError, frame::Page, pictures};
use crate::{exposure, figures::count, loss};

const LOSS: &str = include_str!("loss.html");
const EXPOSURE: &str = include_str!("exposure.html");

/// Renders the page of a `loss` run from its record.
///
/// # Errors
/// When the template refuses.
pub fn loss(document: &LossDocument, manifest: &Manifest, plan: &str) -> Result<String, HtmlError> {
    let page = Page {
        template: LOSS,
        command: "loss",
        heading: document
            .title
            .as_deref()
            .unwrap_or("What does a crash take with it?"),
        shape: &document.target.shape,
        extent: format!("{} crashes", count(document.crashes.len() as u64)),
        document: Value::from(Serde(document)),
        manifest,
        plan,
        several: document.results.len() > 1,
        pictures: vec![pictures::losses(document), pictures::recoveries(document)],
        text_report: loss::text(document),
    };
    page.render(context! {
        headings => loss::HEADINGS.to_vec(),
        lines => loss::lines(document),
        crash_headings => loss::CRASH_HEADINGS.to_vec(),
        crashes => loss::crashes(document),
        sentences => loss::sentences(document),
    })
}

/// Renders the page of an `exposure` run from its record.
///
/// # Errors
/// When the template refuses.
pub fn exposure(
    document: &ExposureDocument,
    manifest: &Manifest,
    plan: &str,
) -> Result<String, HtmlError> {
    let page = Page {
        template: EXPOSURE,
        command: "exposure",
        heading: document
            .title
            .as_deref()
            .unwrap_or("What would a crash take with it?"),
        shape: &document.target.shape,
        extent: format!(
            "{} looks",
            count(document.results.iter().map(|row| row.looks).sum())
        ),
        document: Value::from(Serde(document)),
        manifest,
        plan,
        several: false,
        pictures: pictures::exposures(document),
        text_report: exposure::text(document),
    };
    page.render(context! {
        headings => exposure::HEADINGS.to_vec(),
        lines => exposure::lines(document),
        sentences => exposure::sentences(document),
    })
}
