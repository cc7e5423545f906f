//! The record of a run of any measurement: rendered, printed and kept.

use std::{any::Any, path::Path};

use replimeter_model::{
    host::HostRecord, manifest::Manifest, plan::Settings as _, record::TargetRecord, schema,
};
use replimeter_render::{
    chart::Chart,
    csv,
    html::{self, HtmlError},
    markdown,
    report::Report,
};
use serde::Serialize;
use serde_json::Value;

use super::{
    measurement::{Document, Measurement},
    screen::{Screen, json_text},
};
use crate::{
    cli_error::{CliError, unexpected},
    figures::{Figures, SampleFile},
    options::{OutputArgs, OutputForm},
    run_dir::{MARKDOWN, PAGE, SAMPLES, SUMMARY, write_text},
};

/// The record of a run of any measurement.
pub trait AnyRun {
    /// Returns its command.
    fn command(&self) -> &'static str;
    /// Returns its head.
    fn head(&self) -> DocumentHead<'_>;
    /// Sets the run directory.
    fn moved_to(&mut self, dir: String);
    /// Returns the JSON Schema of the document.
    fn schema(&self) -> Value;
    /// Returns the document as JSON.
    fn json(&self) -> Result<String, CliError>;
    /// Returns the report; `raw` adds the raw lines, if there are any.
    fn report(&self, raw: bool) -> Report;
    /// Returns the charts of its page.
    fn charts(&self, samples: &Path) -> Result<Vec<Chart>, HtmlError>;
    /// Returns whether there are raw lines.
    fn has_raw(&self) -> bool;
    /// Returns its figures for a comparison.
    fn figures(&self, samples: &SampleFile) -> Result<Figures, CliError>;
    /// Returns the document itself.
    fn document(&self) -> &dyn Any;
}

/// The record of a run of one measurement.
pub(super) struct RecordedDocument<M: Measurement>(pub(super) Document<M>);

/// The head of a run's record.
pub struct DocumentHead<'a> {
    /// The run directory.
    pub run_dir: &'a str,
    /// The title in the plan.
    pub title: Option<&'a str>,
    /// When it began, in UTC.
    pub started_at: &'a str,
    /// The headline.
    pub headline: &'a str,
    /// The target.
    pub target: &'a TargetRecord,
    /// The machine while it measured.
    pub machine: &'a HostRecord,
}

impl<M: Measurement> AnyRun for RecordedDocument<M> {
    fn command(&self) -> &'static str {
        M::Settings::NAME
    }

    fn head(&self) -> DocumentHead<'_> {
        let run = &self.0;
        DocumentHead {
            run_dir: &run.run_dir,
            title: run.title.as_deref(),
            started_at: &run.started_at,
            headline: &run.headline,
            target: &run.target,
            machine: &run.client.host,
        }
    }

    fn moved_to(&mut self, dir: String) {
        self.0.run_dir = dir;
    }

    fn schema(&self) -> Value {
        schema::run::<M::Settings, M::Results>()
    }

    fn json(&self) -> Result<String, CliError> {
        json_text(&self.0)
    }

    fn report(&self, raw: bool) -> Report {
        M::report(&self.0, raw)
    }

    fn charts(&self, samples: &Path) -> Result<Vec<Chart>, HtmlError> {
        M::charts(&self.0, samples)
    }

    fn has_raw(&self) -> bool {
        M::kept_raw(&self.0)
    }

    fn figures(&self, samples: &SampleFile) -> Result<Figures, CliError> {
        M::figures(&self.0, samples)
    }

    fn document(&self) -> &dyn Any {
        &self.0
    }
}

/// The hint if the samples for a page cannot be used; the figures do not need them.
pub const CUT: &str = "check that samples.parquet is complete and belongs to this run; if it was truncated, run plan.toml again \
                              with `replimeter run`; --json, --csv and --markdown need no samples";

/// Returns the rows of a run's results as CSV.
fn csv(run: &dyn AnyRun) -> Result<String, CliError> {
    let refuse = |reason: String| unexpected(format_args!("cannot write the table: {reason}"));
    let value: Value =
        serde_json::from_str(&run.json()?).map_err(|error| refuse(error.to_string()))?;
    csv::table(&run.schema(), &value).map_err(|error| refuse(error.to_string()))
}

/// Writes the page of a run, and its Markdown report.
pub(super) fn render(
    run: &dyn AnyRun,
    dir: &Path,
    manifest: &Manifest,
    plan: &str,
) -> Result<(), CliError> {
    let report = run.report(false);
    let page = run
        .charts(&dir.join(SAMPLES))
        .and_then(|charts| html::page(&report, charts, manifest, plan))
        .map_err(|error| CliError::failed(format!("cannot render the page: {error}"), CUT))?;
    write_text(&dir.join(PAGE), &page)
        .and_then(|()| write_text(&dir.join(MARKDOWN), &markdown::render(&report)))
}

/// Prints a document in a form: its report, with the text `below` it for people at a terminal, or as JSON.
///
/// # Errors
/// When it cannot be printed, or `json` fails.
pub fn print_document(
    form: OutputForm,
    report: &Report,
    json: impl FnOnce() -> Result<String, CliError>,
    below: &str,
    screen: &dyn Screen,
) -> Result<(), CliError> {
    screen.print(&form.of(report, json, below)?).map(|_| ())
}

/// Returns the lines below a report: what is kept in its directory, and its page if that is up to date.
fn places(kept: Option<&str>, dir: &Path, up_to_date: bool) -> String {
    let mut text = "\n".to_owned();
    if let Some(kept) = kept {
        text.push_str(&format!("{kept} kept in {}\n", dir.display()));
    }
    let page = dir.join(PAGE);
    if up_to_date && page.exists() {
        text.push_str(&format!("As a page:  file://{}\n", page.display()));
    }
    text
}

/// Prints the results of a run in a form; `page` is whether its page is up to date.
pub fn show(
    run: &dyn AnyRun,
    form: OutputForm,
    page: bool,
    screen: &dyn Screen,
) -> Result<(), CliError> {
    let text = match form {
        OutputForm::Silent => return Ok(()),
        OutputForm::Csv => csv(run)?,
        form => {
            let report = run.report(form == OutputForm::Raw);
            let below = places(Some("Run"), Path::new(run.head().run_dir), page);
            form.of(&report, || run.json(), &below)?
        }
    };
    screen.print(&text).map(|_| ())
}

/// Writes the record and its page into the run directory.
pub(super) fn keep(
    run: &dyn AnyRun,
    dir: &Path,
    manifest: &Manifest,
    plan: &str,
) -> Result<(), CliError> {
    write_text(&dir.join(SUMMARY), &run.json()?).and_then(|()| render(run, dir, manifest, plan))
}

/// Writes the page and the Markdown report of a document about several runs into its directory, and prints the report, even if they cannot be
/// written; `kept` says what was kept there.
///
/// # Errors
/// When the page cannot be rendered, or something cannot be written or printed.
pub fn publish_report(
    document: &impl Serialize,
    report: &Report,
    page: Result<String, HtmlError>,
    dir: &Path,
    kept: Option<&str>,
    form: OutputForm,
    screen: &dyn Screen,
) -> Result<(), CliError> {
    let page = page.map_err(|error| unexpected(format_args!("cannot render the page: {error}")));
    let written = page
        .and_then(|page| write_text(&dir.join(PAGE), &page))
        .and_then(|()| write_text(&dir.join(MARKDOWN), &markdown::render(report)));
    let below = places(kept, dir, written.is_ok());
    print_document(form, report, || json_text(document), &below, screen)?;
    written
}

/// Writes the record and its page into the run directory, and prints the report even if the disk is full.
pub(super) fn publish(
    run: &dyn AnyRun,
    dir: &Path,
    manifest: &Manifest,
    plan: &str,
    output: &OutputArgs,
    screen: &dyn Screen,
) -> Result<(), CliError> {
    let written = match output.without_page {
        true => write_text(&dir.join(SUMMARY), &run.json()?),
        false => keep(run, dir, manifest, plan),
    };
    show(run, output.form.chosen, written.is_ok(), screen)?;
    written
}
