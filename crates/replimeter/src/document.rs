//! The record of a run, whatever it measured: read, rendered, shown and kept.

use std::{fs, path::Path};

use replimeter_model::{
    calibrate::{CALIBRATE_SCHEMA, CalibrateDocument},
    cost::{COST_SCHEMA, CostDocument},
    exposure::{EXPOSURE_SCHEMA, ExposureDocument},
    load::{LOAD_SCHEMA, LoadDocument},
    loss::{LOSS_SCHEMA, LossDocument},
    manifest::{MANIFEST_SCHEMA, Manifest},
    record::{LAG_SCHEMA, LagDocument},
    scale::{SCALE_SCHEMA, ScaleDocument},
    schema,
    stale::{STALE_SCHEMA, StaleDocument},
    tap::{TAP_SCHEMA, TapDocument},
};
use replimeter_report::{
    calibrate, cost, csv, exposure, html, loading, loss, markdown, scale, stale, tap, terminal,
    together::{Findings, Side, Way},
};
use serde::de::DeserializeOwned;

use crate::{
    cli::{Form, OutputArgs},
    failure::{Failure, unexpected},
    print::{plain, print, print_json},
    run_dir::{MANIFEST, PAGE, PLAN, SAMPLES, SUMMARY, TICKET, write_json, write_text},
};

/// What this version reads.
const SCHEMAS: [&str; 9] = [
    LAG_SCHEMA,
    CALIBRATE_SCHEMA,
    TAP_SCHEMA,
    LOAD_SCHEMA,
    SCALE_SCHEMA,
    COST_SCHEMA,
    STALE_SCHEMA,
    LOSS_SCHEMA,
    EXPOSURE_SCHEMA,
];

/// The same of whatever document it is.
macro_rules! whatever {
    ($self:expr, $document:ident => $value:expr) => {
        match $self {
            Document::Lag($document) => $value,
            Document::Calibrate($document) => $value,
            Document::Tap($document) => $value,
            Document::Load($document) => $value,
            Document::Scale($document) => $value,
            Document::Cost($document) => $value,
            Document::Stale($document) => $value,
            Document::Loss($document) => $value,
            Document::Exposure($document) => $value,
        }
    };
}

/// The record of a run, by what it measured.
pub(crate) enum Document {
    Lag(Box<LagDocument>),
    Calibrate(Box<CalibrateDocument>),
    Tap(Box<TapDocument>),
    Load(Box<LoadDocument>),
    Scale(Box<ScaleDocument>),
    Cost(Box<CostDocument>),
    Stale(Box<StaleDocument>),
    Loss(Box<LossDocument>),
    Exposure(Box<ExposureDocument>),
}

impl Document {
    /// Reads `summary.json`, whatever run it is of.
    fn read(dir: &Path) -> Result<Self, Failure> {
        let (schema, value) = read_value(dir, SUMMARY)?;
        let path = dir.join(SUMMARY);
        let refuse = |reason: String| unusable(&path, &reason);
        let wrong = |error: serde_json::Error| refuse(error.to_string());
        match schema.as_str() {
            LAG_SCHEMA => Ok(Self::Lag(Box::new(
                serde_json::from_value(value).map_err(wrong)?,
            ))),
            CALIBRATE_SCHEMA => Ok(Self::Calibrate(Box::new(
                serde_json::from_value(value).map_err(wrong)?,
            ))),
            SCALE_SCHEMA => Ok(Self::Scale(Box::new(
                serde_json::from_value(value).map_err(wrong)?,
            ))),
            TAP_SCHEMA => Ok(Self::Tap(Box::new(
                serde_json::from_value(value).map_err(wrong)?,
            ))),
            LOAD_SCHEMA => Ok(Self::Load(Box::new(
                serde_json::from_value(value).map_err(wrong)?,
            ))),
            COST_SCHEMA => Ok(Self::Cost(Box::new(
                serde_json::from_value(value).map_err(wrong)?,
            ))),
            STALE_SCHEMA => Ok(Self::Stale(Box::new(
                serde_json::from_value(value).map_err(wrong)?,
            ))),
            LOSS_SCHEMA => Ok(Self::Loss(Box::new(
                serde_json::from_value(value).map_err(wrong)?,
            ))),
            EXPOSURE_SCHEMA => Ok(Self::Exposure(Box::new(
                serde_json::from_value(value).map_err(wrong)?,
            ))),
            other => {
                let failure = refuse(format!(
                    "it has the schema {other}, this version reads {}",
                    SCHEMAS.join(", ")
                ));
                Err(match schema_hint(other, &SCHEMAS) {
                    Some(hint) => Failure {
                        hint: hint.to_owned(),
                        ..failure
                    },
                    None => failure,
                })
            }
        }
    }

    /// Reads a run's record, manifest and plan.
    pub(crate) fn open(dir: &Path) -> Result<(Self, Manifest, String), Failure> {
        let mut document = Self::read(dir)?;
        // The directory may have been moved or copied since.
        document.moved_to(&std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned()));
        Ok((
            document,
            read_json(dir, MANIFEST, MANIFEST_SCHEMA)?,
            read_text(dir, PLAN)?,
        ))
    }

    /// The finding in words.
    pub(crate) fn answer(&self) -> &str {
        whatever!(self, document => &document.answer)
    }

    fn moved_to(&mut self, dir: &Path) {
        let dir = dir.display().to_string();
        whatever!(self, document => document.run_dir = dir)
    }

    fn run_dir(&self) -> &str {
        whatever!(self, document => &document.run_dir)
    }

    /// The command that measured it.
    fn command(&self) -> &'static str {
        match self {
            Self::Lag(_) => "lag",
            Self::Calibrate(_) => "calibrate",
            Self::Tap(_) => "tap",
            Self::Load(_) => "load",
            Self::Scale(_) => "scale",
            Self::Cost(_) => "cost",
            Self::Stale(_) => "stale",
            Self::Loss(_) => "loss",
            Self::Exposure(_) => "exposure",
        }
    }

    /// This run as one of several.
    pub(crate) fn side(&self, letter: String, manifest: &Manifest) -> Side<'_> {
        let findings = match self {
            Self::Lag(run) => Findings::Lag(run),
            Self::Load(run) => Findings::Load(run),
            Self::Cost(run) => Findings::Cost(run),
            Self::Stale(run) => Findings::Stale(run),
            Self::Loss(run) => Findings::Loss(run),
            Self::Calibrate(_) | Self::Tap(_) | Self::Scale(_) | Self::Exposure(_) => {
                Findings::Other
            }
        };
        let (command, text) = (self.command(), self.text(false));
        whatever!(self, run => Side {
            letter,
            dir: &run.run_dir,
            command,
            title: run.title.as_deref(),
            shape: &run.target.shape,
            started_at: &run.started_at,
            answer: &run.answer,
            findings,
            ways: Way::of_run(&run.target, manifest),
            text,
        })
    }

    pub(crate) fn has_sweep(&self) -> bool {
        matches!(self, Self::Lag(document) if !document.size_sweep.is_empty())
    }

    /// The report for a terminal.
    fn text(&self, raw: bool) -> String {
        match self {
            Self::Lag(document) => terminal::lag(document, raw),
            Self::Calibrate(document) => calibrate::text(document),
            Self::Tap(document) => tap::text(document),
            Self::Load(document) => loading::text(document),
            Self::Scale(document) => scale::text(document),
            Self::Cost(document) => cost::text(document),
            Self::Stale(document) => stale::text(document),
            Self::Loss(document) => loss::text(document),
            Self::Exposure(document) => exposure::text(document),
        }
    }

    /// The report for a ticket.
    fn markdown(&self) -> String {
        match self {
            Self::Lag(document) => markdown::lag(document),
            Self::Calibrate(document) => markdown::calibrate(document),
            Self::Tap(document) => markdown::tap(document),
            Self::Load(document) => markdown::load(document),
            Self::Scale(document) => markdown::scale(document),
            Self::Cost(document) => markdown::cost(document),
            Self::Stale(document) => markdown::stale(document),
            Self::Loss(document) => markdown::loss(document),
            Self::Exposure(document) => markdown::exposure(document),
        }
    }

    /// The rows of its results as CSV.
    fn csv(&self) -> Result<String, Failure> {
        let value = whatever!(self, document => serde_json::to_value(document));
        let refuse = |reason: String| {
            Failure::failed(
                format!("cannot write the table: {reason}"),
                "please report this as a defect",
            )
        };
        let schema = schema::schema(self.command()).ok_or_else(unexpected)?;
        csv::table(&schema, &value.map_err(|error| refuse(error.to_string()))?)
            .map_err(|error| refuse(error.to_string()))
    }

    /// Writes the page of a run, and its report for a ticket.
    pub(crate) fn render(
        &self,
        dir: &Path,
        manifest: &Manifest,
        plan: &str,
    ) -> Result<(), Failure> {
        let page = match self {
            Self::Lag(document) => html::lag(document, manifest, plan, &dir.join(SAMPLES)),
            Self::Calibrate(document) => html::calibrate(document, manifest, plan),
            Self::Tap(document) => html::tap(document, manifest, plan),
            Self::Load(document) => html::load(document, manifest, plan),
            Self::Scale(document) => html::scale(document, manifest, plan),
            Self::Cost(document) => html::cost(document, manifest, plan),
            Self::Stale(document) => html::stale(document, manifest, plan),
            Self::Loss(document) => html::loss(document, manifest, plan),
            Self::Exposure(document) => html::exposure(document, manifest, plan),
        };
        let page =
            page.map_err(|error| Failure::failed(format!("cannot render the page: {error}"), CUT))?;
        write_text(&dir.join(PAGE), &page)
            .and_then(|()| write_text(&dir.join(TICKET), &self.markdown()))
    }

    /// Prints the report in some form; `page` is whether there is a page of these figures.
    pub(crate) fn show(&self, form: Form, page: bool) -> Result<(), Failure> {
        let mut text = match form {
            Form::Silent => return Ok(()),
            Form::Markdown => return print(&self.markdown()),
            Form::Csv => return print(&plain(&self.csv()?)),
            Form::Json => return whatever!(self, document => print_json(document)),
            Form::Text { raw } => self.text(raw),
        };
        let dir = self.run_dir();
        text.push_str(&format!("\nRun kept in {dir}\n"));
        if page && Path::new(dir).join(PAGE).exists() {
            text.push_str(&format!("As a page:  file://{dir}/{PAGE}\n"));
        }
        print(&plain(&text))
    }

    /// Writes the record and its page into the run's directory.
    pub(crate) fn keep(&self, dir: &Path, manifest: &Manifest, plan: &str) -> Result<(), Failure> {
        let summary = dir.join(SUMMARY);
        let written = whatever!(self, document => write_json(&summary, document));
        written.and_then(|()| self.render(dir, manifest, plan))
    }

    /// Writes the record and its page into the run's directory and shows the figures,
    /// which no full disk shall keep from being seen.
    pub(crate) fn publish(
        &self,
        dir: &Path,
        manifest: &Manifest,
        plan: &str,
        output: &OutputArgs,
    ) -> Result<(), Failure> {
        let written = self.keep(dir, manifest, plan);
        self.show(output.form(), written.is_ok())?;
        written
    }
}

/// What to try when the samples behind a page cannot be used; the figures need none of them.
pub(crate) const CUT: &str = "is samples.parquet whole, and of this run? one that was cut off while it was copied, or by a kill, cannot be mended: plan.toml \
                              beside it can be run again with `replimeter run`; --json, --csv and --markdown need no samples";

/// What to try with a schema that is not one of `known`: a name as `replimeter.lag/1`.
fn schema_hint(stated: &str, known: &[&str]) -> Option<&'static str> {
    let version = |schema: &str| {
        let (name, version) = schema.rsplit_once('/')?;
        Some((name.to_owned(), version.parse::<u32>().ok()?))
    };
    if stated.starts_with("replimeter.reproduce/") {
        return Some(
            "it is a reproduction, which `replimeter report` takes by itself; each folder in it is a run",
        );
    }
    if stated.starts_with("replimeter.compare/") {
        return Some(
            "it is a comparison: its report.html is beside it, and `replimeter compare` makes one anew",
        );
    }
    let (name, number) = version(stated)?;
    let newer = known
        .iter()
        .filter_map(|known| version(known))
        .any(|(known, ours)| known == name && number > ours);
    newer.then_some("a newer Replimeter made this run: update this one (`replimeter --version`), or use the other's report.html")
}

pub(crate) fn incomplete_hint() -> &'static str {
    "is this a run directory, and was the run not killed? plan.toml in it can be run again with `replimeter run`"
}

fn read_text(dir: &Path, name: &str) -> Result<String, Failure> {
    let path = dir.join(name);
    fs::read_to_string(&path).map_err(|error| {
        Failure::failed(
            format!("cannot read {}: {error}", path.display()),
            incomplete_hint(),
        )
    })
}

fn unusable(path: &Path, reason: &str) -> Failure {
    Failure::failed(
        format!("cannot use {}: {reason}", path.display()),
        incomplete_hint(),
    )
}

/// A JSON document and the schema that it states.
pub(crate) fn read_value(dir: &Path, name: &str) -> Result<(String, serde_json::Value), Failure> {
    let text = read_text(dir, name)?;
    let path = dir.join(name);
    let value: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| unusable(&path, &error.to_string()))?;
    let schema = value
        .get("schema")
        .and_then(serde_json::Value::as_str)
        .map(str::to_owned);
    Ok((
        schema.ok_or_else(|| unusable(&path, "it states no schema"))?,
        value,
    ))
}

pub(crate) fn read_json<T: DeserializeOwned>(
    dir: &Path,
    name: &str,
    schema: &str,
) -> Result<T, Failure> {
    let (stated, value) = read_value(dir, name)?;
    let path = dir.join(name);
    if stated != schema {
        let failure = unusable(
            &path,
            &format!("it has the schema {stated}, this version reads {schema}"),
        );
        return Err(match schema_hint(&stated, &[schema]) {
            Some(hint) => Failure {
                hint: hint.to_owned(),
                ..failure
            },
            None => failure,
        });
    }
    serde_json::from_value(value).map_err(|error| unusable(&path, &error.to_string()))
}
