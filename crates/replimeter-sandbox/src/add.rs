//! Adds a server of any origin to the private folder.
//!
//! A folder is linked: nothing is copied, so an upgrade in place takes effect and no disk space is
//! used. An archive is unpacked next to its final place, under a hidden name that no search reads,
//! and is renamed in one step after every check. A killed attempt leaves only that hidden folder,
//! whose lock is free then; the next attempt removes it.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
};

use rustix::fs::{FlockOperation, flock};
use tempfile::NamedTempFile;

use crate::{
    archive::{self, LIMITS, UnpackError, UnpackLimits},
    binaries::{Install, Origin, Search, UnusableServer, programs_of},
    error::{SandboxError, check_interrupted},
    home::{Home, make_folder},
};

/// The prefix of hidden names; `scripts/get-servers` has its own.
const HIDDEN: &str = ".add-";
const LOCK: &str = ".lock";
const TREE: &str = ".tmp";

/// Progress of adding a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// An archive is being unpacked.
    Unpacking {
        /// Bytes of it read so far.
        done: u64,
        /// Its size in bytes.
        total: u64,
    },
    /// The server's engine and version are being checked.
    Checking,
}

/// A server that was added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Added {
    /// The server, in its place.
    pub install: Install,
    /// Its entry in the private folder.
    pub place: PathBuf,
    /// The folder that the entry links to, when it is a link.
    pub linked_to: Option<PathBuf>,
}

/// Adds the server in `source`, an unpacked folder or a packed archive, to the
/// private folder, under the name of its engine and version.
///
/// # Errors
/// When it is not a server, cannot run here, is not trustworthy or already exists, or when the disk
/// fails; the private folder is unchanged then.
pub fn add(
    home: &Home,
    search: &Search,
    source: &Path,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(Progress),
) -> Result<Added, SandboxError> {
    add_within(home, search, source, LIMITS, stop, progress)
}

fn add_within(
    home: &Home,
    search: &Search,
    source: &Path,
    limits: UnpackLimits,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(Progress),
) -> Result<Added, SandboxError> {
    let task = AddTask {
        home,
        path: &search.path,
        source,
        stop,
    };
    let meta = fs::metadata(source).map_err(|error| task.unreadable(&error))?;
    if meta.is_dir() {
        progress(Progress::Checking);
        task.link()
    } else if meta.is_file() {
        task.unpack(meta.len(), limits, progress)
    } else {
        Err(task.refuse(
            "it is neither a folder nor a file".to_owned(),
            "give a folder or an archive",
        ))
    }
}

struct AddTask<'a> {
    home: &'a Home,
    path: &'a [PathBuf],
    source: &'a Path,
    stop: &'a AtomicBool,
}

impl AddTask<'_> {
    fn refuse(&self, reason: String, hint: impl Into<String>) -> SandboxError {
        SandboxError::Refused {
            path: self.source.to_owned(),
            reason,
            hint: hint.into(),
        }
    }

    fn unreadable(&self, error: &io::Error) -> SandboxError {
        self.refuse(
            format!("it cannot be read: {error}"),
            "give a folder or an archive that this user may read",
        )
    }

    fn unusable(&self, unusable: UnusableServer, root: &Path) -> SandboxError {
        // Below a hidden folder that will be removed: the path within the server is more useful.
        let path = unusable
            .path
            .strip_prefix(root)
            .unwrap_or(&unusable.path)
            .display();
        self.refuse(
            format!("its server {path} cannot be used: {}", unusable.cause),
            unusable.hint,
        )
    }

    fn link(&self) -> Result<Added, SandboxError> {
        let folder = self
            .source
            .canonicalize()
            .map_err(|error| self.unreadable(&error))?;
        fs::read_dir(&folder).map_err(|error| self.unreadable(&error))?;
        self.home.check_reach(&folder)?;
        let (root, programs) = self.locate(&folder)?;
        programs
            .iter()
            .try_for_each(|program| self.home.check_reach(program))?;
        let root = root
            .canonicalize()
            .map_err(|error| self.unreadable(&error))?;
        let install = self.examine(&root, &programs)?;
        let ground = ServersFolder::prepare(self.home)?;
        let place = self.free_place(&ground, &install)?;
        check_interrupted(self.stop)?;
        symlink(&root, &place).map_err(|error| self.taken(&place, error))?;
        ground.keep();
        Ok(Added {
            install,
            place,
            linked_to: Some(root),
        })
    }

    fn unpack(
        &self,
        total: u64,
        limits: UnpackLimits,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Added, SandboxError> {
        let file = File::open(self.source).map_err(|error| self.unreadable(&error))?;
        let ground = ServersFolder::prepare(self.home)?;
        let workshop = UnpackFolder::open(&ground.servers)?;
        let tree = &workshop.tree;
        let told = &mut |done| progress(Progress::Unpacking { done, total });
        let blame = |fault| match fault {
            UnpackError::Archive { reason, hint } => self.refuse(reason, hint),
            UnpackError::Sandbox(error) => error,
        };
        let links =
            archive::unpack(file, tree, self.path, limits, self.stop, told).map_err(blame)?;
        progress(Progress::Checking);
        // Until here the folder is private.
        fs::set_permissions(tree, fs::Permissions::from_mode(0o755))
            .map_err(SandboxError::disk("set the permissions of", tree))?;
        let (root, mut programs) = self.locate(tree)?;
        // A folder around the server is dropped: links must not depend on it.
        if let Some((link, target)) =
            links.leading_out_of(root.strip_prefix(tree).unwrap_or(Path::new("")))
        {
            return Err(blame(archive::leads_out(&link, &target)));
        }
        programs.retain(|program| {
            program
                .parent()
                .and_then(Path::parent)
                .is_some_and(|base| base.starts_with(&root))
        });
        let install = self.examine(&root, &programs)?;
        let place = self.free_place(&ground, &install)?;
        check_interrupted(self.stop)?;
        fs::rename(&root, &place).map_err(|error| self.taken(&place, error))?;
        let moved = install
            .program
            .strip_prefix(&root)
            .map(|inside| place.join(inside))
            .unwrap_or(install.program);
        let install = Install::examine(&moved, Origin::Private, self.path).map_err(|unusable| {
            let _ = fs::remove_dir_all(&place);
            self.unusable(unusable, &place)
        })?;
        ground.keep();
        Ok(Added {
            install,
            place,
            linked_to: None,
        })
    }

    /// Returns the server's own folder, this one or one directly below it, and its programs.
    fn locate(&self, folder: &Path) -> Result<(PathBuf, Vec<PathBuf>), SandboxError> {
        let programs = programs_of(folder);
        if !programs.is_empty() {
            return Ok((folder.to_owned(), programs));
        }
        let mut names: Vec<String> = Vec::new();
        let mut found = Vec::new();
        for entry in fs::read_dir(folder)
            .map_err(|error| self.unreadable(&error))?
            .flatten()
        {
            names.push(entry.file_name().to_string_lossy().into_owned());
            let programs = programs_of(&entry.path());
            if !programs.is_empty() {
                found.push((entry.path(), programs));
            }
        }
        names.sort();
        if found.len() > 1 {
            let mut names: Vec<String> = found
                .iter()
                .filter_map(|(root, _)| root.file_name())
                .map(|name| name.to_string_lossy().into_owned())
                .collect();
            names.sort();
            return Err(self.refuse(
                format!("it contains several servers: {}", listed(&names)),
                "add them one by one",
            ));
        }
        found.pop().ok_or_else(|| {
            self.refuse(
                format!("no mariadbd or mysqld in it; it contains {}", listed(&names)),
                "give the folder whose usr/sbin, sbin or bin contains mariadbd or mysqld, or an archive of it; build sources first",
            )
        })
    }

    fn examine(&self, root: &Path, programs: &[PathBuf]) -> Result<Install, SandboxError> {
        let mut first = None;
        for program in programs {
            match Install::examine(program, Origin::Private, self.path) {
                Ok(install) => return Ok(install),
                Err(unusable) => {
                    first.get_or_insert(unusable);
                }
            }
        }
        Err(match first {
            Some(unusable) => self.unusable(unusable, root),
            None => self.refuse(
                "its server is not in a folder such as bin".to_owned(),
                "pack the whole server",
            ),
        })
    }

    fn free_place(
        &self,
        ground: &ServersFolder,
        install: &Install,
    ) -> Result<PathBuf, SandboxError> {
        let place = ground
            .servers
            .join(format!("{}-{}", install.engine.name(), install.version));
        // A dangling link occupies the place, too.
        if fs::symlink_metadata(&place).is_ok() {
            return Err(self.there_already(&place));
        }
        Ok(place)
    }

    fn there_already(&self, place: &Path) -> SandboxError {
        let removal = if place.is_symlink() { "rm" } else { "rm -r" };
        self.refuse(
            format!("{} already exists", place.display()),
            format!(
                "remove it with `{removal} {0}`; or keep both: rename it, for example to {0}-old",
                place.display()
            ),
        )
    }

    /// Returns the error when the last step fails, possibly because another process was faster.
    fn taken(&self, place: &Path, error: io::Error) -> SandboxError {
        match error.kind() {
            io::ErrorKind::AlreadyExists
            | io::ErrorKind::DirectoryNotEmpty
            | io::ErrorKind::NotADirectory => self.there_already(place),
            _ => SandboxError::disk("create", place)(error),
        }
    }
}

/// Joins names for a sentence.
fn listed(names: &[String]) -> String {
    const MAX_NAMES: usize = 8;
    match names {
        [] => "nothing".to_owned(),
        names if names.len() <= MAX_NAMES => names.join(", "),
        names => format!(
            "{} and {} more",
            names[..MAX_NAMES].join(", "),
            names.len() - MAX_NAMES
        ),
    }
}

/// The folder of servers; removed when its creation fails.
struct ServersFolder {
    servers: PathBuf,
    /// The folders created for it, the outer one first.
    made: Vec<PathBuf>,
}

impl ServersFolder {
    fn prepare(home: &Home) -> Result<Self, SandboxError> {
        let servers = home.servers();
        let root = servers.parent().unwrap_or(&servers).to_owned();
        // As root, servers run as another user, who must have access to them.
        let (outer, inner) = if home.user().become_ids.is_some() {
            (0o711, 0o755)
        } else {
            (0o700, 0o700)
        };
        let mut ground = Self {
            servers: servers.clone(),
            made: Vec::new(),
        };
        for (folder, mode) in [(root, outer), (servers, inner)] {
            if !folder.exists() {
                ground.made.push(folder.clone());
            }
            make_folder(&folder, mode)?;
        }
        home.check_reach(&ground.servers)?;
        Ok(ground)
    }

    fn keep(mut self) {
        self.made.clear();
    }
}

impl Drop for ServersFolder {
    fn drop(&mut self) {
        for folder in self.made.iter().rev() {
            // Fails when another process has put something there.
            let _ = fs::remove_dir(folder);
        }
    }
}

/// A hidden folder to unpack into, with a lock file next to it that is held while this lives. The
/// lock is created before the folder and removed after it, so a folder whose lock is missing or
/// free is abandoned.
struct UnpackFolder {
    tree: PathBuf,
    _lock: NamedTempFile,
}

impl UnpackFolder {
    fn open(servers: &Path) -> Result<Self, SandboxError> {
        remove_abandoned(servers);
        let disk = |error| SandboxError::disk("create a file in", servers)(error);
        loop {
            let lock = tempfile::Builder::new()
                .prefix(HIDDEN)
                .suffix(LOCK)
                .tempfile_in(servers)
                .map_err(disk)?;
            // A cleanup may have removed it just before it was locked.
            if flock(lock.as_file(), FlockOperation::NonBlockingLockExclusive).is_err()
                || !lock.path().exists()
            {
                continue;
            }
            let tree = tree_of(lock.path());
            fs::create_dir(&tree).map_err(SandboxError::disk("create the folder", &tree))?;
            let workshop = Self { tree, _lock: lock };
            fs::set_permissions(&workshop.tree, fs::Permissions::from_mode(0o700))
                .map_err(SandboxError::disk("set the permissions of", &workshop.tree))?;
            return Ok(workshop);
        }
    }
}

impl Drop for UnpackFolder {
    fn drop(&mut self) {
        // The next attempt removes what cannot be removed now.
        let _ = archive::remove_tree(&self.tree);
    }
}

fn tree_of(lock: &Path) -> PathBuf {
    lock.with_extension(TREE.trim_start_matches('.'))
}

/// Removes the folders of killed attempts.
fn remove_abandoned(servers: &Path) {
    for entry in fs::read_dir(servers).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with(HIDDEN) || !name.ends_with(LOCK) {
            continue;
        }
        let path = entry.path();
        let Ok(lock) = File::options().write(true).open(&path) else {
            continue;
        };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = archive::remove_tree(&tree_of(&path));
            let _ = fs::remove_file(&path);
        }
    }
}

#[cfg(test)]
mod tests;
