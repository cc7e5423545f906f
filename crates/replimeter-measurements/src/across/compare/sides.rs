//! The runs of both sides, and why some cannot be compared.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
};

use replimeter_engine::manifest::complete as complete_servers;
use replimeter_model::{
    compare::ComparedRun,
    manifest::{MANIFEST_SCHEMA, Manifest},
    record::RunStatus,
    serde_error::plain,
};
use replimeter_render::files;
use replimeter_run::{
    AnyRun, Entry, Registry,
    cli_error::CliError,
    complete,
    differences::Documents,
    figures::Figure,
    require_directory,
    run_dir::{MANIFEST, MAX_DOCUMENT, PLAN, SUMMARY},
};
use serde::Deserialize as _;
use serde_json::Value;

use super::super::figures_of;

/// A run directory.
pub(crate) struct ComparedDirectory {
    pub(super) dir: PathBuf,
    pub(super) measured: &'static dyn Entry,
    pub(crate) documents: Documents,
}

fn incomplete(dir: &Path, reason: &str) -> CliError {
    CliError::failed(
        format!("the run {} is incomplete: {reason}", dir.display()),
        "if the run is still active, wait for its end; if it was killed, run its plan.toml again with `replimeter run`",
    )
}

/// Reads a file of a run.
fn text(dir: &Path, name: &str) -> Result<String, CliError> {
    let path = dir.join(name);
    match files::read_text(&path, MAX_DOCUMENT) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(incomplete(dir, &format!("it has no {name}")))
        }
        Err(error) => Err(CliError::failed(
            format!("cannot read {}: {error}", path.display()),
            "copy the run to a folder that you can read; runs are readable by their owner only",
        )),
    }
}

/// Reads a document of a run; returns the index of its schema among the known ones.
fn document(dir: &Path, name: &str, known: &[&str]) -> Result<(usize, Value), CliError> {
    let path = dir.join(name);
    let text = text(dir, name)?;
    let value: Value = serde_json::from_str(&text)
        .map_err(|error| incomplete(dir, &format!("{name} is truncated or corrupt ({error})")))?;
    let Some(schema) = value
        .get("schema")
        .and_then(Value::as_str)
        .map(str::to_owned)
    else {
        return Err(CliError::failed(
            format!("cannot use {}: it has no schema", path.display()),
            "name run directories made by Replimeter",
        ));
    };
    if let Some(place) = known.iter().position(|known| *known == schema) {
        return Ok((place, value));
    }
    let parts = |schema: &str| {
        let (what, version) = schema.rsplit_once('/')?;
        Some((what.to_owned(), version.parse::<u32>().ok()?))
    };
    let ours = parts(&schema).and_then(|(what, version)| {
        let (known, ours) = known
            .iter()
            .find_map(|known| Some((known, parts(known)?)).filter(|(_, ours)| ours.0 == what))?;
        Some((*known, version > ours.1))
    });
    Err(match ours {
        Some((known, true)) => CliError::failed(
            format!(
                "cannot use {}: its schema {schema} is newer than {known}, which this version reads",
                path.display()
            ),
            "compare with the version of Replimeter that made the run, or a later one",
        ),
        _ => CliError::failed(
            format!(
                "cannot use {}: it has the schema {schema}, this version compares {}",
                path.display(),
                known.join(", ")
            ),
            "name run directories of one measuring command",
        ),
    })
}

impl ComparedDirectory {
    /// Reads a run's documents; its samples are read later.
    pub(crate) fn read(
        registry: &'static Registry,
        dir: &Path,
        stop: &AtomicBool,
    ) -> Result<Self, CliError> {
        // A run directory can be moved or copied, so its current path is used.
        let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
        let entries: Vec<&'static dyn Entry> = registry.entries().collect();
        let schemas: Vec<String> = entries.iter().map(|entry| entry.schema()).collect();
        let schemas: Vec<&str> = schemas.iter().map(String::as_str).collect();
        complete(registry, &dir, stop)?;
        let (place, summary) = document(&dir, SUMMARY, &schemas)?;
        let (_, manifest) = document(&dir, MANIFEST, &[MANIFEST_SCHEMA])?;
        let mut manifest: Manifest = serde_json::from_value(manifest).map_err(|error| {
            incomplete(&dir, &format!("{MANIFEST} is invalid ({})", plain(&error)))
        })?;
        complete_servers(&mut manifest.servers);
        let plan = text(&dir, PLAN)?;
        let run = Self {
            dir,
            measured: entries[place],
            documents: Documents {
                summary,
                manifest,
                plan,
            },
        };
        let ended = match run.about().status {
            RunStatus::Complete | RunStatus::Interrupted => return Ok(run),
            RunStatus::Failed => "it failed",
            RunStatus::Invalid => "its results are invalid",
        };
        Err(CliError::usage(
            format!(
                "the run {} cannot be compared: {ended} ({})",
                run.dir.display(),
                run.error()
            ),
            "run its plan.toml again with `replimeter run`, and compare that run",
        ))
    }

    /// Returns its record, parsed by its measurement.
    pub(super) fn record(&self) -> Result<Box<dyn AnyRun>, CliError> {
        self.measured.read(self.documents.summary.clone()).map_err(|error| {
            CliError::failed(
                format!("cannot use the record of {}: {}", self.dir.display(), plain(&error)),
                "if it was edited, restore it, or run its plan.toml again with `replimeter run`",
            )
        })
    }

    /// Returns all its figures, in display order.
    pub(super) fn figures(&self) -> Result<Vec<Figure>, CliError> {
        let figures = figures_of(self.record()?.as_ref(), &self.dir)?;
        if figures.is_empty() {
            return Err(CliError::usage(
                format!(
                    "the run {} cannot be compared: it has no counted samples",
                    self.dir.display()
                ),
                "measure longer, and check that samples.parquet belongs to this run",
            ));
        }
        Ok(figures)
    }

    /// Returns how often it started the servers of each shape; 0 if they ran already.
    pub(super) fn fresh_starts(&self) -> u64 {
        let starts = self.documents.summary.pointer("/target/fresh_starts");
        starts.and_then(Value::as_u64).unwrap_or(0)
    }

    fn error(&self) -> &str {
        let words = self
            .documents
            .summary
            .get("error")
            .and_then(Value::as_str)
            .or_else(|| {
                self.documents
                    .summary
                    .get("headline")
                    .and_then(Value::as_str)
            });
        words
            .unwrap_or("no reason recorded")
            .lines()
            .next()
            .unwrap_or_default()
    }

    /// Returns its entry in a comparison.
    pub(super) fn about(&self) -> ComparedRun {
        let word = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        ComparedRun {
            run_dir: self.dir.display().to_string(),
            title: word(self.documents.summary.get("title")),
            // An unknown status is from a later version, and treated as incomplete.
            status: self
                .documents
                .summary
                .get("status")
                .map_or(RunStatus::Complete, |status| {
                    RunStatus::deserialize(status).unwrap_or(RunStatus::Failed)
                }),
            started_at: word(self.documents.summary.get("started_at")).unwrap_or_default(),
            shape: word(self.documents.summary.pointer("/target/shape")).unwrap_or_default(),
            starts: self.fresh_starts(),
            replimeter: self.documents.manifest.replimeter.clone(),
        }
    }
}

/// Returns whether a folder is a run, even an incomplete one.
fn is_run(dir: &Path) -> bool {
    [PLAN, SUMMARY, MANIFEST]
        .iter()
        .any(|name| dir.join(name).is_file())
}

/// Returns whether it is a comparison, which can be among the runs.
fn is_comparison(dir: &Path) -> bool {
    let text = files::read_text(&dir.join(SUMMARY), MAX_DOCUMENT).unwrap_or_default();
    text.chars()
        .take(200)
        .collect::<String>()
        .contains("replimeter.compare/")
}

/// Returns the run directories that a word names: one, several with commas, or all in a folder.
pub(super) fn named(word: &str) -> Result<Vec<PathBuf>, CliError> {
    if !Path::new(word).exists() && word.contains(',') {
        let parts = word.split(',').filter(|part| !part.is_empty());
        return Ok(parts.map(named).collect::<Result<Vec<_>, _>>()?.concat());
    }
    let dir = Path::new(word);
    require_directory(dir)?;
    if is_run(dir) {
        return Ok(vec![dir.to_owned()]);
    }
    let entries = fs::read_dir(dir).map_err(|error| {
        CliError::of_path(
            format!("cannot read {word}: {error}"),
            &error,
            "name a folder of runs that you can read",
        )
    })?;
    let mut runs: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.is_dir() && is_run(path) && !is_comparison(path))
        .collect();
    runs.sort();
    if runs.is_empty() {
        return Err(CliError::usage(
            format!(
                "cannot use {word}: it is neither a run directory nor a folder of run directories"
            ),
            "name the folder that contains plan.toml and summary.json, or its parent folder",
        ));
    }
    Ok(runs)
}
