//! Run directories: created first, written during the run.

use std::{
    fs::{self, DirBuilder},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use serde::Serialize;

use crate::cli_error::CliError;

/// The plan.
pub const PLAN: &str = "plan.toml";
/// The manifest: versions, servers, settings in effect.
pub const MANIFEST: &str = "manifest.json";
/// One row per observation.
pub const SAMPLES: &str = "samples.parquet";
/// The figures.
pub const SUMMARY: &str = "summary.json";
/// The HTML page.
pub const PAGE: &str = "report.html";
/// The Markdown report.
pub const TICKET: &str = "report.md";

/// The histograms of the figures.
pub const HISTOGRAMS: &str = "histograms.hlog";

/// The default folder of runs.
const RUNS: &str = "replimeter-runs";

/// A run directory; removed on drop unless it is [kept](Self::keep).
pub struct RunDir {
    path: PathBuf,
    kept: bool,
    made: bool,
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull => "free space there, or name another folder with --run-dir",
        _ => "name a folder that you can write to with --run-dir",
    }
}

/// Returns the failure of writing into a run directory during the run.
fn failed(operation: &str, path: &Path, error: &io::Error) -> CliError {
    let message = format!("cannot {operation} {}: {error}", path.display());
    CliError::failed(message, hint(error))
}

/// Returns the failure of a directory that cannot be used at all.
fn unusable(operation: &str, path: &Path, error: &io::Error) -> CliError {
    let message = format!("cannot {operation} {}: {error}", path.display());
    CliError::of_path(message, error, hint(error))
}

impl RunDir {
    /// Checks that a directory named by the user can be used, before anything is measured; changes nothing.
    ///
    /// # Errors
    /// When it is a file or not empty, so that a run in it is never overwritten, or its parent does not exist.
    pub fn check(named: Option<&Path>) -> Result<(), CliError> {
        let Some(path) = named else { return Ok(()) };
        let refuse = |reason: String, hint: String| {
            let message = format!("cannot use the run directory {}: {reason}", path.display());
            Err(CliError::usage(message, hint))
        };
        let another = "name a new directory with --run-dir, or leave it out";
        match fs::read_dir(path).map(|mut entries| entries.next().is_some()) {
            Ok(false) => return Ok(()),
            Ok(true) if path.join(PLAN).exists() || path.join(SUMMARY).exists() => {
                return refuse("it has a run already".to_owned(), another.to_owned());
            }
            Ok(true) => return refuse("it is not empty".to_owned(), another.to_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(_) if path.is_file() => {
                return refuse("it is a file".to_owned(), another.to_owned());
            }
            Err(error) => return Err(unusable("use the run directory", path, &error)),
        }
        let full = absolute(path);
        match full.parent() {
            Some(parent) if !parent.is_dir() => refuse(
                format!("there is no folder {}", parent.display()),
                format!(
                    "create it with `mkdir -p {}`, or name another directory",
                    parent.display()
                ),
            ),
            _ => Ok(()),
        }
    }

    /// Creates the directory named by the user (new, or empty), or a new one below `replimeter-runs/` in the
    /// current folder.
    pub fn create(named: Option<&Path>, command: &str) -> Result<Self, CliError> {
        let make = |path: &Path| DirBuilder::new().mode(0o700).create(path);
        if let Some(path) = named {
            Self::check(named)?;
            let made = !path.exists();
            if made {
                make(path).map_err(|error| unusable("create the run directory", path, &error))?;
            }
            let dir = Self {
                path: absolute(path),
                kept: false,
                made,
            };
            dir.try_writing()?;
            return Ok(dir);
        }
        let parent = absolute(Path::new(RUNS));
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&parent)
            .map_err(|error| unusable("create the folder", &parent, &error))?;
        let stamp = jiff::Timestamp::now()
            .strftime("%Y%m%dT%H%M%SZ")
            .to_string();
        for number in 1u32.. {
            let suffix = if number == 1 {
                String::new()
            } else {
                format!("-{number}")
            };
            let path = parent.join(format!("{stamp}-{command}{suffix}"));
            match make(&path) {
                Ok(()) => {
                    return Ok(Self {
                        path,
                        kept: false,
                        made: true,
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(unusable("create the run directory", &path, &error)),
            }
        }
        unreachable!("the loop ends by returning")
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of one of its files.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Keeps the directory from now on.
    pub fn keep(&mut self) {
        self.kept = true;
    }

    fn try_writing(&self) -> Result<(), CliError> {
        let probe = self.file(".replimeter");
        fs::write(&probe, b"")
            .and_then(|()| fs::remove_file(&probe))
            .map_err(|error| unusable("write into the run directory", &self.path, &error))
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        for name in [PLAN, MANIFEST, SAMPLES, SUMMARY, PAGE, TICKET, HISTOGRAMS] {
            let _ = fs::remove_file(self.file(name));
        }
        if self.made {
            let _ = fs::remove_dir(&self.path);
        }
        if let Some(parent) = self.path.parent().filter(|parent| parent.ends_with(RUNS)) {
            // Fails, as it should, if another run is in it.
            let _ = fs::remove_dir(parent);
        }
    }
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Writes a text atomically: a reader finds the old file or the new one.
pub fn write_text(path: &Path, text: &str) -> Result<(), CliError> {
    write_bytes(path, text.as_bytes())
}

/// Writes bytes atomically.
pub fn write_bytes(path: &Path, bytes: &[u8]) -> Result<(), CliError> {
    let partial = path.with_extension("partial");
    let write = || -> io::Result<()> {
        let mut file = fs::File::options()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&partial)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&partial, path)
    };
    write().map_err(|error| {
        let _ = fs::remove_file(&partial);
        failed("write", path, &error)
    })
}

/// Writes a value as JSON.
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<(), CliError> {
    let text = serde_json::to_string_pretty(value).map_err(|error| {
        CliError::failed(
            format!("cannot write {}: {error}", path.display()),
            "report this as a bug",
        )
    })?;
    write_text(path, &(text + "\n"))
}
