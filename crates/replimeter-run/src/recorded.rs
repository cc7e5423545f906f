//! Reads the record of a run from its directory.

use std::{fs, path::Path, sync::atomic::AtomicBool};

use replimeter_engine::{catch_panic, manifest};
use replimeter_model::{
    bug::REPORT_BUG,
    manifest::{MANIFEST_SCHEMA, Manifest},
    serde_error::plain,
};
use replimeter_render::{files, rows::partial_of};
use rustix::param::page_size;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    document::{AnyRun, render},
    registry::Registry,
};
use crate::{
    cli_error::{CliError, unexpected},
    histograms,
    journal::{self, Found},
    measurement::Histograms,
    options::CommandLineSettings,
    run_dir::{
        JOURNAL, MANIFEST, MAX_DOCUMENT, PLAN, SAMPLES, SUMMARY, failed, is_complete, write_text,
    },
};

/// A run's directory: its record, its manifest and its plan.
pub struct Recorded {
    /// Its record.
    pub run: Box<dyn AnyRun>,
    /// The manifest.
    pub manifest: Manifest,
    /// The text of `plan.toml`.
    pub plan: String,
}

impl Recorded {
    /// Reads a run directory.
    ///
    /// # Errors
    /// If its files cannot be read, or it was cut off and cannot be completed before `stop` becomes true.
    pub fn open(registry: &Registry, dir: &Path, stop: &AtomicBool) -> Result<Self, CliError> {
        complete(registry, dir, stop)?;
        let mut run = read(registry, dir)?;
        // The directory can have been moved or copied since.
        let absolute = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
        run.moved_to(absolute.display().to_string());
        Ok(Self {
            run,
            manifest: read_manifest(dir)?,
            plan: read_text(dir, PLAN)?,
        })
    }

    /// Writes the page and the Markdown report.
    pub fn render(&self, dir: &Path) -> Result<(), CliError> {
        render(self.run.as_ref(), dir, &self.manifest, &self.plan)
    }
}

/// Reads `summary.json` of any measurement.
fn read(registry: &Registry, dir: &Path) -> Result<Box<dyn AnyRun>, CliError> {
    let (stated, value) = read_value(dir, SUMMARY)?;
    let path = dir.join(SUMMARY);
    let mut entries = registry.entries();
    if let Some(entry) = entries.find(|entry| entry.schema() == stated) {
        return entry
            .read(value)
            .map_err(|error| unusable(&path, &plain(&error)));
    }
    let known: Vec<String> = registry.entries().map(|entry| entry.schema()).collect();
    Err(other_schema(&path, &stated, &known))
}

/// Returns the hint for a schema that is not one of `known`, such as `replimeter.lag/1`.
fn schema_hint(stated: &str, known: &[String]) -> Option<&'static str> {
    let version = |schema: &str| {
        let (name, version) = schema.rsplit_once('/')?;
        Some((name.to_owned(), version.parse::<u32>().ok()?))
    };
    if stated.starts_with("replimeter.reproduce/") {
        return Some(
            "use `replimeter report` with this reproduction alone; each folder in it is a run",
        );
    }
    if stated.starts_with("replimeter.compare/") {
        return Some("open the report.html of this comparison, or run `replimeter compare` again");
    }
    let (name, number) = version(stated)?;
    let newer = known
        .iter()
        .filter_map(|known| version(known))
        .any(|(known, ours)| known == name && number > ours);
    newer.then_some("update Replimeter (`replimeter --version`), or use the run's report.html; a newer version made this run")
}

/// Reads and renders files of runs. Files that others wrote can have values that no run has, and on which code relies.
///
/// # Errors
/// Those of `work`, and that the files contradict each other if it panics.
pub fn of_files<T>(work: impl FnOnce() -> Result<T, CliError>) -> Result<T, CliError> {
    catch_panic(work).unwrap_or_else(|_| {
        Err(CliError::failed(
            "cannot use the files of these runs: their values contradict each other",
            format!("if they were edited, restore them; otherwise {REPORT_BUG}, with the files"),
        ))
    })
}

/// Memory that results are made in from a journal, which anyone can have written; a run takes a tenth.
const MAX_MEMORY: u64 = 1 << 30;
/// Calls between two looks at the memory.
const CALLS_PER_CHECK: u64 = 1000;

/// The calls of a journal, which end with an error when what is made of them takes too much memory.
struct BoundedCalls<'a, L> {
    lines: L,
    path: &'a Path,
    read: u64,
    /// Memory of this process, in bytes.
    memory: fn() -> u64,
    most: u64,
}

impl<'a, L> BoundedCalls<'a, L> {
    fn new(lines: L, path: &'a Path, memory: fn() -> u64) -> Self {
        Self {
            lines,
            path,
            read: 0,
            memory,
            most: memory() + MAX_MEMORY,
        }
    }
}

impl<L: Iterator<Item = Value>> Iterator for BoundedCalls<'_, L> {
    type Item = Result<Value, CliError>;

    fn next(&mut self) -> Option<Self::Item> {
        let call = self.lines.next()?;
        self.read += 1;
        if self.read.is_multiple_of(CALLS_PER_CHECK) && (self.memory)() > self.most {
            let message = format!(
                "cannot use {}: the results of its first {} calls take more than {} GiB of memory",
                self.path.display(),
                self.read,
                MAX_MEMORY >> 30
            );
            let hint = format!(
                "check where it comes from: a run takes a tenth of that; if it is of a run, {REPORT_BUG}"
            );
            return Some(Err(CliError::failed(message, hint)));
        }
        Some(Ok(call))
    }
}

/// Returns the memory that this process uses, in bytes; 0 if the system does not say.
fn used_memory() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let resident = text.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    resident.unwrap_or(0) * page_size() as u64
}

/// Returns the hint for a run directory that lacks a file.
pub fn incomplete_hint() -> &'static str {
    "check that this is a run directory with whole files; `replimeter report` completes one of a run that was killed"
}

/// The hint for a path that is not a run directory.
const RUN_DIRECTORY: &str = "name the folder of a run, such as replimeter-runs/20261121T120000Z-lag; `compare` also takes several with commas, or a folder of runs";

/// Refuses a run directory that is not there.
///
/// # Errors
/// When it does not exist or is not a folder.
pub fn require_directory(dir: &Path) -> Result<(), CliError> {
    let reason = match dir.is_dir() {
        true => return Ok(()),
        false if dir.exists() => "it is not a folder",
        false => "it does not exist",
    };
    Err(CliError::usage(
        format!("cannot use {} as a run directory: {reason}", dir.display()),
        RUN_DIRECTORY,
    ))
}

/// Makes the samples and the record of a run that was cut off from its journal; changes nothing if it has both,
/// or no journal. A record is kept: it can have more than a journal that could not be written to its end.
///
/// # Errors
/// If the run is still active, has no results, its files cannot be read or written, or `stop` becomes true.
pub fn complete(registry: &Registry, dir: &Path, stop: &AtomicBool) -> Result<(), CliError> {
    if is_complete(dir) {
        return Ok(());
    }
    let incomplete = |reason: &str, hint: &str| {
        let message = format!("the run {} is incomplete: {reason}", dir.display());
        CliError::failed(message, hint)
    };
    let has_record = dir.join(SUMMARY).exists();
    let again = "for figures, run its plan.toml again with `replimeter run`";
    let path = dir.join(JOURNAL);
    let mut lines = match journal::open(&path) {
        Ok(Found::Missing) => return Ok(()),
        Ok(Found::Active) => {
            let message = format!("the run {} is still active", dir.display());
            return Err(CliError::failed(message, "wait for its end"));
        }
        Ok(Found::Lines(lines)) => lines,
        // Without its samples it has its figures.
        Err(_) if has_record => return Ok(()),
        Err(error) => {
            let reason = format!("it has no {SUMMARY}, and {JOURNAL} cannot be read: {error}");
            return Err(incomplete(&reason, again));
        }
    };
    if !dir.join(MANIFEST).exists() {
        return Err(incomplete("it was cut off before it measured", again));
    }
    let plan = read_text(dir, PLAN)?;
    let manifest = read_manifest(dir)?;
    let command = registry.plan(&plan, &CommandLineSettings::default())?;
    let entry = registry.get(command.name());
    let entry = entry.ok_or_else(|| unexpected("the plan's measurement is not known"))?;
    let samples = dir.join(SAMPLES);
    // A killed run leaves it, and a killed `report` the others.
    let _ = fs::remove_file(partial_of(&samples));
    let made = dir.join(".replayed");
    for left in [&made, &partial_of(&made)] {
        let _ = fs::remove_file(left);
    }
    let mut calls = BoundedCalls::new(&mut lines, &path, used_memory);
    let replayed = entry.replay(&plan, &manifest, &mut calls, &made, stop)?;
    // Samples without a record are complete, and can have more than a journal whose end is missing.
    let placed = match replayed.run.is_some() || !samples.exists() {
        true => fs::rename(&made, &samples),
        false => fs::remove_file(&made),
    };
    placed.map_err(|error| failed("write", &samples, &error))?;
    if has_record {
        drop(lines);
        // If it stays, it is ignored.
        let _ = fs::remove_file(path);
        return Ok(());
    }
    let Some(run) = replayed.run else {
        let command = command.name();
        return Err(incomplete(
            &format!(
                "it was cut off before `{command}` had results, which it makes from complete parts of a run; {SAMPLES} has the rows that were on the disk"
            ),
            again,
        ));
    };
    if let Some(Histograms { took, series }) = &replayed.histograms {
        histograms::keep(dir, &manifest, *took, series)?;
    }
    write_text(&dir.join(SUMMARY), &run.json()?)?;
    drop(lines);
    // If it stays, it is ignored.
    let _ = fs::remove_file(path);
    Ok(())
}

fn read_text(dir: &Path, name: &str) -> Result<String, CliError> {
    require_directory(dir)?;
    let path = dir.join(name);
    if ![PLAN, SUMMARY, MANIFEST]
        .iter()
        .any(|name| dir.join(name).exists())
    {
        return Err(CliError::usage(
            format!(
                "cannot use {} as a run directory: it has no {SUMMARY}",
                dir.display()
            ),
            RUN_DIRECTORY,
        ));
    }
    files::read_text(&path, MAX_DOCUMENT).map_err(|error| {
        CliError::failed(
            format!("cannot read {}: {error}", path.display()),
            incomplete_hint(),
        )
    })
}

fn unusable(path: &Path, reason: &str) -> CliError {
    CliError::failed(
        format!("cannot use {}: {reason}", path.display()),
        incomplete_hint(),
    )
}

/// Returns the failure for a document with an unknown schema.
fn other_schema(path: &Path, stated: &str, known: &[String]) -> CliError {
    let reads = known.join(", ");
    let failure = unusable(
        path,
        &format!("it has the schema {stated}, this version reads {reads}"),
    );
    match schema_hint(stated, known) {
        Some(hint) => CliError {
            hint: hint.to_owned(),
            ..failure
        },
        None => failure,
    }
}

/// Reads a JSON document and its schema.
pub fn read_value(dir: &Path, name: &str) -> Result<(String, Value), CliError> {
    let text = read_text(dir, name)?;
    let path = dir.join(name);
    let value: Value =
        serde_json::from_str(&text).map_err(|error| unusable(&path, &error.to_string()))?;
    let schema = value
        .get("schema")
        .and_then(Value::as_str)
        .map(str::to_owned);
    Ok((
        schema.ok_or_else(|| unusable(&path, "it has no schema"))?,
        value,
    ))
}

/// Reads the manifest of a run.
///
/// # Errors
/// If it cannot be read, or has another schema.
pub fn read_manifest(dir: &Path) -> Result<Manifest, CliError> {
    let mut read: Manifest = read_json(dir, MANIFEST, MANIFEST_SCHEMA)?;
    manifest::complete(&mut read.servers);
    Ok(read)
}

/// Reads a JSON document of this schema.
///
/// # Errors
/// If it cannot be read, or has another schema.
pub fn read_json<T: DeserializeOwned>(dir: &Path, name: &str, schema: &str) -> Result<T, CliError> {
    let (stated, value) = read_value(dir, name)?;
    let path = dir.join(name);
    if stated != schema {
        return Err(other_schema(&path, &stated, &[schema.to_owned()]));
    }
    serde_json::from_value(value).map_err(|error| unusable(&path, &plain(&error)))
}

#[cfg(test)]
mod tests {
    use std::iter;

    use super::*;

    #[test]
    fn journal_that_takes_too_much_memory_is_an_error() {
        let calls = || iter::repeat_n(Value::Null, 5000);
        let path = Path::new("run/journal");
        let all: Vec<_> = BoundedCalls::new(calls(), path, used_memory).collect();
        assert!(all.len() == 5000 && all.iter().all(Result::is_ok));
        let mut bounded = BoundedCalls::new(calls(), path, || MAX_MEMORY + 1);
        bounded.most = MAX_MEMORY;
        let refused = bounded.position(|call| call.is_err());
        assert_eq!(refused, Some(CALLS_PER_CHECK as usize - 1));
        bounded.read = CALLS_PER_CHECK - 1;
        let error = bounded.next().unwrap().unwrap_err();
        assert!(error.message.contains("run/journal"), "{error:?}");
    }
}
