//! Run directories: created first, written during the run.

use std::{
    fs::{self, DirBuilder, DirEntry},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
};

use serde::Serialize;

use replimeter_render::{files::create_new, rows::partial_of};

use crate::cli_error::{CliError, unexpected};

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
pub const MARKDOWN: &str = "report.md";

/// The histograms of the figures.
pub const HISTOGRAMS: &str = "histograms.hlog";

/// The calls of a run that is under way, or was cut off.
pub(crate) const JOURNAL: &str = "run.journal";

/// The configuration of the load balancer in front of a site.
pub const BALANCER: &str = "haproxy.cfg";
/// The folder of what `ab` printed.
pub const AB: &str = "ab";
/// The folder of the runs of a trial.
pub const PAIRS: &str = "pairs";

/// What run directories contain, of all commands.
pub const FILES: [&str; 11] = [
    PLAN, MANIFEST, SAMPLES, SUMMARY, PAGE, MARKDOWN, HISTOGRAMS, JOURNAL, BALANCER, AB, PAIRS,
];

/// Bytes of a plan, a manifest or a record at most; those of long runs of many servers have some hundred thousand.
pub const MAX_DOCUMENT: u64 = 8 << 20;

/// The default folder of runs.
const RUNS: &str = "replimeter-runs";

/// A run directory; removed on drop unless it is [kept](Self::keep).
pub struct RunDir {
    path: PathBuf,
    kept: bool,
    made: bool,
}

/// The hint where another user could redirect what root writes.
const OF_ROOT: &str =
    "name a new directory in a folder of root with --run-dir, or run as the owner";

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull => "free space there, or name another folder with --run-dir",
        _ => "name a folder that you can write to with --run-dir",
    }
}

/// Returns the failure of writing into a run directory during the run.
pub fn failed(operation: &str, path: &Path, error: &io::Error) -> CliError {
    let message = format!("cannot {operation} {}: {error}", path.display());
    CliError::failed(message, hint(error))
}

/// Returns whether a run has its samples and its record, so that it needs no journal.
pub(crate) fn is_complete(dir: &Path) -> bool {
    [SAMPLES, SUMMARY]
        .iter()
        .all(|name| dir.join(name).exists())
}

/// Returns the failure of a directory that cannot be used at all.
fn unusable(operation: &str, path: &Path, error: &io::Error) -> CliError {
    let message = format!("cannot {operation} {}: {error}", path.display());
    CliError::of_path(message, error, hint(error))
}

/// Returns how another user can put a link where root writes a file; `None` for other users, who share folders as they wish.
fn untrusted(path: &Path) -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    // The owner of a link can change it, too.
    let entries = [fs::symlink_metadata(path), fs::metadata(path)];
    entries
        .into_iter()
        .flatten()
        .find_map(|entry| control(entry.uid(), entry.mode(), entry.is_symlink()))
}

/// Returns how users other than root control an entry with this owner and mode.
fn control(owner: u32, mode: u32, link: bool) -> Option<&'static str> {
    match () {
        () if owner != 0 => Some("another user owns it"),
        // The mode of a link has no meaning.
        () if mode & 0o022 != 0 && !link => Some("other users can write to it"),
        () => None,
    }
}

impl RunDir {
    /// Checks that a directory named by the user can be used, before anything is measured; changes nothing.
    ///
    /// # Errors
    /// When it is a file, a link or not empty, so that a run in it is never overwritten, its parent does not exist, or
    /// as root another user could put links into it.
    pub fn check(named: Option<&Path>) -> Result<(), CliError> {
        let Some(path) = named else { return Ok(()) };
        let refuse = |reason: String, hint: String| {
            let message = format!("cannot use the run directory {}: {reason}", path.display());
            Err(CliError::usage(message, hint))
        };
        let another = "name a new directory with --run-dir, or leave it out";
        if path.is_symlink() {
            return refuse("it is a link".to_owned(), another.to_owned());
        }
        if let Some(reason) = untrusted(path) {
            return refuse(reason.to_owned(), OF_ROOT.to_owned());
        }
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
        if let Some(reason) = untrusted(&parent) {
            let message = format!("cannot use the folder {}: {reason}", parent.display());
            return Err(CliError::usage(message, OF_ROOT));
        }
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

    /// Returns a folder in it, new or as it was created earlier.
    ///
    /// # Errors
    /// If it cannot be created, or something else has its name.
    pub fn folder(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.file(name);
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(_) if fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir()) => Ok(path),
            created => created.map(|()| path),
        }
    }

    /// Keeps the directory from now on.
    pub fn keep(&mut self) {
        self.kept = true;
    }

    /// Returns whether a path is a directory of this user that has files of a run only.
    pub(crate) fn has_only_a_run(path: &Path) -> bool {
        let own = rustix::process::geteuid().as_raw();
        let is_own = fs::symlink_metadata(path).is_ok_and(|dir| dir.is_dir() && dir.uid() == own);
        let partial = partial_of(Path::new(SAMPLES));
        let is_known = |entry: io::Result<DirEntry>| {
            entry.is_ok_and(|entry| {
                let name = entry.file_name();
                partial == name || FILES.iter().any(|known| name == *known)
            })
        };
        is_own && fs::read_dir(path).is_ok_and(|mut entries| entries.all(is_known))
    }

    /// Removes the run in a directory.
    pub(crate) fn remove(path: PathBuf) {
        drop(Self {
            path,
            kept: false,
            made: true,
        });
    }

    fn try_writing(&self) -> Result<(), CliError> {
        let probe = self.file(".replimeter");
        create_new(&probe)
            .and_then(|_| fs::remove_file(&probe))
            .map_err(|error| unusable("write into the run directory", &self.path, &error))
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        for name in FILES {
            let path = self.file(name);
            let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
        }
        let _ = fs::remove_file(partial_of(&self.file(SAMPLES)));
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

/// Writes bytes atomically, follows no link, and returns when they are on the disk.
pub fn write_bytes(path: &Path, bytes: &[u8]) -> Result<(), CliError> {
    replace(path, bytes, true).map_err(|error| failed("write", path, &error))
}

/// Replaces a file, and follows no link. While a server of this machine is measured, `synced` is false: a sync makes
/// its disk slower.
///
/// # Errors
/// If it cannot be written; then it is as before.
pub fn replace(path: &Path, bytes: &[u8], synced: bool) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // Two commands can write the same file at once.
    let partial = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let write = || -> io::Result<()> {
        let mut file = create_new(&partial)?;
        file.write_all(bytes)?;
        if synced {
            file.sync_all()?;
        }
        // Replaces a link, instead of following it.
        fs::rename(&partial, path)?;
        if synced { sync_folder_of(path) } else { Ok(()) }
    };
    // A killed process may have had this id.
    let _ = fs::remove_file(&partial);
    write().inspect_err(|_| {
        let _ = fs::remove_file(&partial);
    })
}

/// Waits until the names in a file's folder are on the disk.
pub(crate) fn sync_folder_of(path: &Path) -> io::Result<()> {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let folder = fs::File::open(parent.unwrap_or(Path::new(".")))?;
    match folder.sync_all() {
        // Some file systems cannot sync a folder.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        synced => synced,
    }
}

/// Writes a value as JSON.
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<(), CliError> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| unexpected(format_args!("cannot write {}: {error}", path.display())))?;
    write_text(path, &(text + "\n"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn planted_links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (dir, outside) = (folder.path().join("run"), folder.path().join("outside"));
        fs::create_dir(&dir).unwrap();
        fs::write(&outside, "kept").unwrap();
        let partial = format!(".{SUMMARY}.{}", std::process::id());
        for name in [SUMMARY, partial.as_str(), ".replimeter"] {
            symlink(&outside, dir.join(name)).unwrap();
        }
        write_text(&dir.join(SUMMARY), "new").unwrap();
        let written = fs::symlink_metadata(dir.join(SUMMARY)).unwrap();
        assert!(written.is_file() && written.permissions().mode() & 0o777 == 0o600);
        assert!(!dir.join(partial).exists());
        let run = RunDir {
            path: dir,
            kept: true,
            made: false,
        };
        assert!(run.try_writing().is_err());
        assert_eq!(fs::read_to_string(&outside).unwrap(), "kept");
    }

    #[test]
    fn folder_of_a_planted_link_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (dir, outside) = (folder.path().join("run"), folder.path().join("outside"));
        fs::create_dir(&outside).unwrap();
        let run = RunDir::create(Some(&dir), "scale").unwrap();
        assert_eq!(run.folder(AB).unwrap(), run.folder(AB).unwrap());
        fs::remove_dir(run.file(AB)).unwrap();
        symlink(&outside, run.file(AB)).unwrap();
        let error = run.folder(AB).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        symlink(outside.join("file"), run.file(BALANCER)).unwrap();
        replace(&run.file(BALANCER), b"new", false).unwrap();
        assert_eq!(fs::read(run.file(BALANCER)).unwrap(), b"new");
        // A run that is not kept leaves nothing.
        drop(run);
        assert!(!dir.exists());
        assert_eq!(fs::read_dir(outside).unwrap().count(), 0);
    }

    #[test]
    fn root_refuses_what_another_user_controls() {
        for (owner, mode, link, controlled) in [
            (0, 0o40_755, false, false),
            (0, 0o120_777, true, false),
            (0, 0o40_775, false, true),
            (0, 0o41_777, false, true),
            (1000, 0o40_700, false, true),
            (1000, 0o120_777, true, true),
        ] {
            let found = control(owner, mode, link);
            assert_eq!(found.is_some(), controlled, "{owner} {mode:o}");
        }
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("run");
        fs::create_dir(&dir).unwrap();
        symlink(&dir, folder.path().join("link")).unwrap();
        let reason = |name: &str| {
            RunDir::check(Some(&folder.path().join(name))).map_err(|failure| failure.message)
        };
        reason("run").unwrap();
        assert!(reason("link").unwrap_err().ends_with("it is a link"));
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).unwrap();
        if rustix::process::geteuid().is_root() {
            assert!(
                reason("run")
                    .unwrap_err()
                    .ends_with("other users can write to it")
            );
        }
    }

    #[test]
    fn failed_write_leaves_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(SUMMARY);
        fs::create_dir(&path).unwrap();
        let failure = write_text(&path, "new").unwrap_err();
        assert!(failure.message.contains(SUMMARY), "{}", failure.message);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
