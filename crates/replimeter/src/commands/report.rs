//! `replimeter report`: a run rendered again.

use std::{
    fs,
    io::{self, Write},
    path::Path,
};

use replimeter_model::{
    calibrate::{CALIBRATE_SCHEMA, CalibrateDocument},
    cost::{COST_SCHEMA, CostDocument},
    exposure::{EXPOSURE_SCHEMA, ExposureDocument},
    load::{LOAD_SCHEMA, LoadDocument},
    loss::{LOSS_SCHEMA, LossDocument},
    manifest::{MANIFEST_SCHEMA, Manifest, SandboxRecord, ServerRecord},
    record::{LAG_SCHEMA, LagDocument},
    scale::{SCALE_SCHEMA, ScaleDocument},
    schema,
    stale::{STALE_SCHEMA, StaleDocument},
    tap::{TAP_SCHEMA, TapDocument},
};
use replimeter_report::{
    calibrate, cost, csv, exposure, html, loading, loss, markdown, scale, stale, tap, terminal,
    together::{Findings, Side, letter},
};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    cli::{Form, OutputArgs, ReportArgs},
    failure::{Failure, unexpected},
    run_dir::{MANIFEST, PAGE, PLAN, SAMPLES, SUMMARY, TICKET, write_json, write_text},
};

pub(crate) fn run(args: &ReportArgs) -> Result<(), Failure> {
    if (args.json || args.csv) && args.run_dirs.len() > 1 {
        return Err(Failure::usage("--json and --csv are for a single run", "render the runs one by one"));
    }
    let page = args.together()?;
    let mut read = Vec::new();
    for dir in &args.run_dirs {
        let (document, manifest, plan) = Document::open(dir)?;
        if args.raw && !document.has_sweep() {
            return Err(Failure::usage(format!("{} has no sweep over sizes", dir.display()), "leave --raw out"));
        }
        // The figures are shown even where the page cannot be written.
        let rendered = document.render(dir, &manifest, &plan);
        document.show(args.form())?;
        rendered.map_err(|failure| Failure { hint: "copy the run directory to where you may write".to_owned(), ..failure })?;
        read.push((document, manifest, plan));
    }
    match page {
        Some(page) => together(&page, &read, args.markdown),
        None => Ok(()),
    }
}

/// Writes one page of several runs.
fn together(page: &Path, read: &[(Document, Manifest, String)], markdown: bool) -> Result<(), Failure> {
    let sides: Vec<Side<'_>> = read.iter().enumerate().map(|(index, (document, ..))| document.side(letter(index))).collect();
    let mut all = Manifest { replimeter: env!("CARGO_PKG_VERSION").to_owned(), ..Manifest::default() };
    let mut plans = String::new();
    for (side, (_, manifest, plan)) in sides.iter().zip(read) {
        let named = |shape: &str| format!("{} {shape}", side.letter);
        all.machine = manifest.machine.clone();
        let servers = manifest.servers.iter().cloned();
        all.servers.extend(servers.map(|server| ServerRecord { shape: named(&server.shape), ..server }));
        let sandboxes = manifest.sandboxes.iter().cloned();
        all.sandboxes.extend(sandboxes.map(|sandbox| SandboxRecord { shape: named(&sandbox.shape), ..sandbox }));
        plans.push_str(&format!("# {}: {}\n{plan}\n", side.letter, side.dir));
    }
    if let Some((_, other, _)) = read.iter().find(|(_, manifest, _)| manifest.machine != all.machine) {
        // One page has one place for a machine; a reader must not take it for all.
        all.machine.cpu = format!("several machines, see each run ({}; {} …)", all.machine.cpu, other.machine.cpu);
    }
    let text = html::together(&sides, &all, &plans)
        .map_err(|error| Failure::failed(format!("cannot render the page: {error}"), incomplete_hint()))?;
    write_text(page, &text)?;
    if markdown {
        return Ok(());
    }
    print(&plain(&format!("\nAll together:  file://{}\n", page.display())))
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
            LAG_SCHEMA => Ok(Self::Lag(Box::new(serde_json::from_value(value).map_err(wrong)?))),
            CALIBRATE_SCHEMA => Ok(Self::Calibrate(Box::new(serde_json::from_value(value).map_err(wrong)?))),
            SCALE_SCHEMA => Ok(Self::Scale(Box::new(serde_json::from_value(value).map_err(wrong)?))),
            TAP_SCHEMA => Ok(Self::Tap(Box::new(serde_json::from_value(value).map_err(wrong)?))),
            LOAD_SCHEMA => Ok(Self::Load(Box::new(serde_json::from_value(value).map_err(wrong)?))),
            COST_SCHEMA => Ok(Self::Cost(Box::new(serde_json::from_value(value).map_err(wrong)?))),
            STALE_SCHEMA => Ok(Self::Stale(Box::new(serde_json::from_value(value).map_err(wrong)?))),
            LOSS_SCHEMA => Ok(Self::Loss(Box::new(serde_json::from_value(value).map_err(wrong)?))),
            EXPOSURE_SCHEMA => Ok(Self::Exposure(Box::new(serde_json::from_value(value).map_err(wrong)?))),
            other => {
                let known = [
                    LAG_SCHEMA,
                    CALIBRATE_SCHEMA,
                    TAP_SCHEMA,
                    LOAD_SCHEMA,
                    SCALE_SCHEMA,
                    COST_SCHEMA,
                    STALE_SCHEMA,
                    LOSS_SCHEMA,
                    EXPOSURE_SCHEMA,
                ]
                .join(", ");
                Err(refuse(format!("it has the schema {other}, this version reads {known}")))
            }
        }
    }

    /// Reads a run's record, manifest and plan.
    pub(crate) fn open(dir: &Path) -> Result<(Self, Manifest, String), Failure> {
        let mut document = Self::read(dir)?;
        // The directory may have been moved or copied since.
        document.moved_to(&std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned()));
        Ok((document, read_json(dir, MANIFEST, MANIFEST_SCHEMA)?, read_text(dir, PLAN)?))
    }

    /// The finding in words.
    pub(crate) fn answer(&self) -> &str {
        match self {
            Self::Lag(document) => &document.answer,
            Self::Calibrate(document) => &document.answer,
            Self::Tap(document) => &document.answer,
            Self::Load(document) => &document.answer,
            Self::Scale(document) => &document.answer,
            Self::Cost(document) => &document.answer,
            Self::Stale(document) => &document.answer,
            Self::Loss(document) => &document.answer,
            Self::Exposure(document) => &document.answer,
        }
    }

    fn moved_to(&mut self, dir: &Path) {
        let dir = dir.display().to_string();
        match self {
            Self::Lag(document) => document.run_dir = dir,
            Self::Calibrate(document) => document.run_dir = dir,
            Self::Tap(document) => document.run_dir = dir,
            Self::Load(document) => document.run_dir = dir,
            Self::Scale(document) => document.run_dir = dir,
            Self::Cost(document) => document.run_dir = dir,
            Self::Stale(document) => document.run_dir = dir,
            Self::Loss(document) => document.run_dir = dir,
            Self::Exposure(document) => document.run_dir = dir,
        }
    }

    fn run_dir(&self) -> &str {
        match self {
            Self::Lag(document) => &document.run_dir,
            Self::Calibrate(document) => &document.run_dir,
            Self::Tap(document) => &document.run_dir,
            Self::Load(document) => &document.run_dir,
            Self::Scale(document) => &document.run_dir,
            Self::Cost(document) => &document.run_dir,
            Self::Stale(document) => &document.run_dir,
            Self::Loss(document) => &document.run_dir,
            Self::Exposure(document) => &document.run_dir,
        }
    }

    /// This run as one of several.
    fn side(&self, letter: String) -> Side<'_> {
        macro_rules! side {
            ($document:expr, $command:literal, $shape:expr, $findings:expr, $text:expr) => {
                Side {
                    letter,
                    dir: &$document.run_dir,
                    command: $command,
                    title: $document.title.as_deref(),
                    shape: $shape,
                    started_at: &$document.started_at,
                    answer: &$document.answer,
                    findings: $findings,
                    text: $text,
                }
            };
        }
        match self {
            Self::Lag(run) => side!(run, "lag", &run.target.shape, Findings::Lag(run), terminal::lag(run, false)),
            Self::Calibrate(run) => side!(run, "calibrate", &run.target.shape, Findings::Other, calibrate::text(run)),
            Self::Tap(run) => side!(run, "tap", &run.target.shape, Findings::Other, tap::text(run)),
            Self::Load(run) => side!(run, "load", &run.target.shape, Findings::Load(run), loading::text(run)),
            Self::Scale(run) => side!(run, "scale", &run.target.shape, Findings::Other, scale::text(run)),
            Self::Cost(run) => side!(run, "cost", &run.target.shape, Findings::Cost(run), cost::text(run)),
            Self::Stale(run) => side!(run, "stale", &run.target.shape, Findings::Stale(run), stale::text(run)),
            Self::Loss(run) => side!(run, "loss", &run.target.shape, Findings::Loss(run), loss::text(run)),
            Self::Exposure(run) => side!(run, "exposure", &run.target.shape, Findings::Other, exposure::text(run)),
        }
    }

    fn has_sweep(&self) -> bool {
        matches!(self, Self::Lag(document) if !document.size_sweep.is_empty())
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
        let (name, value) = match self {
            Self::Lag(document) => ("lag", serde_json::to_value(document)),
            Self::Calibrate(document) => ("calibrate", serde_json::to_value(document)),
            Self::Tap(document) => ("tap", serde_json::to_value(document)),
            Self::Load(document) => ("load", serde_json::to_value(document)),
            Self::Scale(document) => ("scale", serde_json::to_value(document)),
            Self::Cost(document) => ("cost", serde_json::to_value(document)),
            Self::Stale(document) => ("stale", serde_json::to_value(document)),
            Self::Loss(document) => ("loss", serde_json::to_value(document)),
            Self::Exposure(document) => ("exposure", serde_json::to_value(document)),
        };
        let refuse =
            |reason: String| Failure::failed(format!("cannot write the table: {reason}"), "please report this as a defect");
        let schema = schema::schema(name).ok_or_else(unexpected)?;
        csv::table(&schema, &value.map_err(|error| refuse(error.to_string()))?).map_err(|error| refuse(error.to_string()))
    }

    /// Writes the page of a run, and its report for a ticket.
    pub(crate) fn render(&self, dir: &Path, manifest: &Manifest, plan: &str) -> Result<(), Failure> {
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
        let page = page.map_err(|error| Failure::failed(format!("cannot render the page: {error}"), incomplete_hint()))?;
        write_text(&dir.join(PAGE), &page).and_then(|()| write_text(&dir.join(TICKET), &self.markdown()))
    }

    /// Prints the report in some form.
    pub(crate) fn show(&self, form: Form) -> Result<(), Failure> {
        let mut text = match (form, self) {
            (Form::Silent, _) => return Ok(()),
            (Form::Markdown, _) => return print(&self.markdown()),
            (Form::Csv, _) => return print(&plain(&self.csv()?)),
            (Form::Json, Self::Lag(document)) => return print_json(document),
            (Form::Json, Self::Calibrate(document)) => return print_json(document),
            (Form::Json, Self::Tap(document)) => return print_json(document),
            (Form::Json, Self::Load(document)) => return print_json(document),
            (Form::Json, Self::Scale(document)) => return print_json(document),
            (Form::Json, Self::Cost(document)) => return print_json(document),
            (Form::Json, Self::Stale(document)) => return print_json(document),
            (Form::Text { raw }, Self::Lag(document)) => terminal::lag(document, raw),
            (Form::Text { .. }, Self::Calibrate(document)) => calibrate::text(document),
            (Form::Text { .. }, Self::Tap(document)) => tap::text(document),
            (Form::Text { .. }, Self::Load(document)) => loading::text(document),
            (Form::Text { .. }, Self::Scale(document)) => scale::text(document),
            (Form::Text { .. }, Self::Cost(document)) => cost::text(document),
            (Form::Text { .. }, Self::Stale(document)) => stale::text(document),
            (Form::Json, Self::Loss(document)) => return print_json(document),
            (Form::Json, Self::Exposure(document)) => return print_json(document),
            (Form::Text { .. }, Self::Loss(document)) => loss::text(document),
            (Form::Text { .. }, Self::Exposure(document)) => exposure::text(document),
        };
        let dir = self.run_dir();
        text.push_str(&format!("\nRun kept in {dir}\n"));
        if Path::new(dir).join(PAGE).exists() {
            text.push_str(&format!("As a page:  file://{dir}/{PAGE}\n"));
        }
        print(&plain(&text))
    }

    /// Writes the record and its page into the run's directory.
    pub(crate) fn keep(&self, dir: &Path, manifest: &Manifest, plan: &str) -> Result<(), Failure> {
        let summary = dir.join(SUMMARY);
        let written = match self {
            Self::Lag(document) => write_json(&summary, document),
            Self::Calibrate(document) => write_json(&summary, document),
            Self::Tap(document) => write_json(&summary, document),
            Self::Load(document) => write_json(&summary, document),
            Self::Scale(document) => write_json(&summary, document),
            Self::Cost(document) => write_json(&summary, document),
            Self::Stale(document) => write_json(&summary, document),
            Self::Loss(document) => write_json(&summary, document),
            Self::Exposure(document) => write_json(&summary, document),
        };
        written.and_then(|()| self.render(dir, manifest, plan))
    }

    /// Writes the record and its page into the run's directory and shows the figures,
    /// which no full disk shall keep from being seen.
    pub(crate) fn publish(&self, dir: &Path, manifest: &Manifest, plan: &str, output: &OutputArgs) -> Result<(), Failure> {
        let written = self.keep(dir, manifest, plan);
        self.show(output.form())?;
        written
    }
}

/// Prints the one document of a command.
pub(crate) fn print_json(document: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(document)
        .map_err(|error| Failure::failed(format!("cannot write the document: {error}"), "please report this as a defect"))?;
    print(&(text + "\n"))
}

/// Prints on standard output; a reader that has left (`| head`) is no error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    print_to_reader(text).map(|_| ())
}

/// Whether there is still somebody who reads standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    There,
    Gone,
}

/// Prints on standard output, and says whether somebody reads it.
pub(crate) fn print_to_reader(text: &str) -> Result<Reader, Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(Reader::There),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(error) => {
            Err(Failure::failed(format!("cannot write to standard output: {error}"), "the run directory has everything"))
        }
    }
}

/// A text without control characters: names from plans and servers must not
/// command the terminal.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|character| if character.is_control() && character != '\n' { '\u{fffd}' } else { character }).collect()
}

fn incomplete_hint() -> &'static str {
    "is this a run directory, and was the run not killed? plan.toml in it can be run again with `replimeter run`"
}

fn read_text(dir: &Path, name: &str) -> Result<String, Failure> {
    let path = dir.join(name);
    fs::read_to_string(&path)
        .map_err(|error| Failure::failed(format!("cannot read {}: {error}", path.display()), incomplete_hint()))
}

fn unusable(path: &Path, reason: &str) -> Failure {
    Failure::failed(format!("cannot use {}: {reason}", path.display()), incomplete_hint())
}

/// A JSON document and the schema that it states.
fn read_value(dir: &Path, name: &str) -> Result<(String, serde_json::Value), Failure> {
    let text = read_text(dir, name)?;
    let path = dir.join(name);
    let value: serde_json::Value = serde_json::from_str(&text).map_err(|error| unusable(&path, &error.to_string()))?;
    let schema = value.get("schema").and_then(serde_json::Value::as_str).map(str::to_owned);
    Ok((schema.ok_or_else(|| unusable(&path, "it states no schema"))?, value))
}

fn read_json<T: DeserializeOwned>(dir: &Path, name: &str, schema: &str) -> Result<T, Failure> {
    let (stated, value) = read_value(dir, name)?;
    let path = dir.join(name);
    if stated != schema {
        return Err(unusable(&path, &format!("it has the schema {stated}, this version reads {schema}")));
    }
    serde_json::from_value(value).map_err(|error| unusable(&path, &error.to_string()))
}
