//! The private folder: server binaries, templates and running sandboxes.

use std::{
    fs::{self, DirBuilder, File},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use replimeter_model::sandbox::SandboxName;
use rustix::fs::{FlockOperation, flock};

use crate::{error::SandboxError, process, user::SystemUser};

/// Part of the message when a name is in use.
pub const TAKEN: &str = "a sandbox of this name is running";

/// The private folder and the user that runs its servers.
#[derive(Clone, Debug)]
pub struct Home {
    root: PathBuf,
    user: SystemUser,
}

/// A sandbox's folder, locked while this lives.
#[derive(Debug)]
pub(crate) struct SandboxFolder {
    /// The folder.
    pub(crate) path: PathBuf,
    /// Locked; the lock ends with the process, however that ends.
    _lock: File,
}

impl Home {
    /// Returns the private folder at `root`, without changing anything.
    ///
    /// # Errors
    /// When it belongs to a user other than the current one or root, or others can write to it: its
    /// files are executed. As root also when another user could rename a folder above it.
    pub fn at(root: PathBuf) -> Result<Self, SandboxError> {
        if let Ok(meta) = fs::metadata(&root) {
            let ours = meta.uid() == rustix::process::geteuid().as_raw() || meta.uid() == 0;
            if !ours || meta.permissions().mode() & 0o022 != 0 {
                return Err(SandboxError::Untrusted { path: root });
            }
        }
        if rustix::process::geteuid().is_root()
            && let Some(parent) = untrusted_parent(&root)
        {
            return Err(SandboxError::UntrustedParent { path: root, parent });
        }
        Ok(Self {
            root,
            user: SystemUser::choose(),
        })
    }

    /// Returns the folder itself.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the folder of unpacked server binaries.
    #[must_use]
    pub fn servers(&self) -> PathBuf {
        self.root.join("servers")
    }

    pub(crate) fn user(&self) -> &SystemUser {
        &self.user
    }

    /// Checks that the servers' user can access a path.
    pub(crate) fn check_reach(&self, path: &Path) -> Result<(), SandboxError> {
        match self.user.blocked_at(path) {
            None => Ok(()),
            Some(path) => Err(SandboxError::Unreachable {
                path,
                user: self.user.name.clone(),
            }),
        }
    }

    pub(crate) fn templates(&self) -> PathBuf {
        self.root.join("seeds")
    }

    /// Returns the folder of sandboxes, links resolved: processes are recognized by the path in
    /// their arguments.
    fn sandboxes(&self) -> PathBuf {
        let path = self.root.join("sandboxes");
        path.canonicalize().unwrap_or(path)
    }

    /// Returns the folder of the managed sandbox of this name, whether it exists or not. A name
    /// begins with a letter, the folder of a nameless sandbox with a digit.
    pub(crate) fn sandbox_path(&self, name: &SandboxName) -> PathBuf {
        self.place(name.as_str())
    }

    /// Returns the folder of this name.
    pub(crate) fn place(&self, name: &str) -> PathBuf {
        self.sandboxes().join(name)
    }

    /// Returns the folders of all managed sandboxes, including dead ones.
    pub(crate) fn named(&self) -> Result<Vec<PathBuf>, SandboxError> {
        let parent = self.sandboxes();
        if !parent.is_dir() {
            return Ok(Vec::new());
        }
        let entries =
            fs::read_dir(&parent).map_err(SandboxError::disk("read the folder", &parent))?;
        let named = |path: &PathBuf| {
            path.is_dir()
                && path
                    .file_name()
                    .and_then(|name| name.to_str())
                    .is_some_and(|name| name.parse::<SandboxName>().is_ok())
        };
        Ok(entries
            .filter_map(Result::ok)
            .map(|entry| entry.path())
            .filter(named)
            .collect())
    }

    /// Removes a sandbox's folder when it is not locked; succeeds when it does not exist.
    pub(crate) fn remove_if_abandoned(&self, folder: &Path) -> Result<(), SandboxError> {
        let _gate = self.gate()?;
        if folder.is_dir() && !held(folder)? {
            remove_folder(folder)
        } else {
            Ok(())
        }
    }

    fn gate(&self) -> Result<File, SandboxError> {
        gate(&self.sandboxes())
    }

    /// Removes the folders of killed runs and creates a folder for a new sandbox, with this name
    /// when it is managed.
    pub(crate) fn create_folder(
        &self,
        name: Option<&SandboxName>,
    ) -> Result<SandboxFolder, SandboxError> {
        // Other users can traverse it to the servers that they run, but not list it.
        let mode = if self.user.become_ids.is_some() {
            0o711
        } else {
            0o700
        };
        for folder in [&self.root, &self.sandboxes()] {
            make_folder(folder, mode)?;
        }
        let parent = self.sandboxes();
        make_folder(&self.templates(), 0o700)?;
        self.check_reach(&parent)?;
        let _gate = self.gate()?;
        remove_abandoned(&parent)?;
        let path = match name {
            Some(name) if self.sandbox_path(name).exists() => {
                return Err(SandboxError::Name {
                    name: name.to_string(),
                    reason: TAKEN.to_owned(),
                    hint: format!(
                        "choose another name with --name, or end it first: replimeter sandbox down {name}"
                    ),
                });
            }
            Some(name) => self.sandbox_path(name),
            None => (0u32..)
                .map(|number| parent.join(format!("{}-{number}", std::process::id())))
                .find(|path| !path.exists())
                .ok_or_else(|| {
                    SandboxError::disk("create a folder in", &parent)(io::Error::other(
                        "every name is in use",
                    ))
                })?,
        };
        make_folder(&path, mode)?;
        let lock = lock_file(&path.join("lock"))?;
        // Another process may be checking the lock at this moment.
        flock(&lock, FlockOperation::LockExclusive)
            .map_err(|error| SandboxError::disk("lock", &path)(error.into()))?;
        // For users who read the file; Replimeter does not trust the number.
        let _ = (&lock).write_all(format!("{}\n", std::process::id()).as_bytes());
        Ok(SandboxFolder { path, _lock: lock })
    }
}

/// Returns the first folder above `path`, as named and with links resolved, in which a user other than
/// the current one and root can rename folders. With the sticky bit only the owner of a folder can.
fn untrusted_parent(path: &Path) -> Option<PathBuf> {
    let own = rustix::process::geteuid().as_raw();
    let named = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let real = path.canonicalize().unwrap_or_else(|_| named.clone());
    let mut above = named.ancestors().skip(1).chain(real.ancestors().skip(1));
    above
        .find(|folder| {
            fs::metadata(folder).is_ok_and(|meta| {
                let (owner, mode) = (meta.uid(), meta.permissions().mode());
                (owner != own && owner != 0) || (mode & 0o022 != 0 && mode & 0o1000 == 0)
            })
        })
        .map(Path::to_owned)
}

pub(crate) fn make_folder(path: &Path, mode: u32) -> Result<(), SandboxError> {
    if path.is_dir() {
        return Ok(());
    }
    DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(path)
        .map_err(SandboxError::disk("create the folder", path))?;
    // Sets the mode explicitly, since the process's umask may be stricter.
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .map_err(SandboxError::disk("set the permissions of", path))
}

fn lock_file(path: &Path) -> Result<File, SandboxError> {
    File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .map_err(SandboxError::disk("open the lock file", path))
}

/// Returns whether a sandbox's folder is locked.
pub(crate) fn held(folder: &Path) -> Result<bool, SandboxError> {
    let path = folder.join("lock");
    let lock = match File::open(&path) {
        Ok(lock) => lock,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(SandboxError::disk("open the lock file", &path)(error)),
    };
    Ok(flock(&lock, FlockOperation::NonBlockingLockShared).is_err())
}

/// Returns the lock for creating and removing folders: between creation and locking, a folder
/// appears abandoned.
fn gate(parent: &Path) -> Result<File, SandboxError> {
    let gate = lock_file(&parent.join(".lock"))?;
    flock(&gate, FlockOperation::LockExclusive)
        .map_err(|error| SandboxError::disk("lock", parent)(error.into()))?;
    Ok(gate)
}

/// Removes every sandbox that is not locked.
fn remove_abandoned(parent: &Path) -> Result<(), SandboxError> {
    let entries = fs::read_dir(parent).map_err(SandboxError::disk("read the folder", parent))?;
    for entry in entries.filter_map(Result::ok) {
        let path = entry.path();
        if !path.is_dir() {
            continue;
        }
        let lock = match lock_file(&path.join("lock")) {
            Ok(lock) => lock,
            // Another process is removing it.
            Err(_) if !path.exists() => continue,
            Err(error) => return Err(error),
        };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            remove_folder(&path)?;
        }
    }
    Ok(())
}

/// Renames a sandbox's folder, so that its name is free, and removes it.
pub(crate) fn remove_sandbox(path: &Path) -> Result<(), SandboxError> {
    kill_all_inside(path);
    let Some(parent) = path.parent() else {
        return remove_folder(path);
    };
    let aside = {
        let _gate = gate(parent)?;
        let aside = (0u32..)
            .map(|number| parent.join(format!(".gone-{}-{number}", std::process::id())))
            .find(|path| !path.exists());
        aside.filter(|aside| fs::rename(path, aside).is_ok())
    };
    remove_folder(aside.as_deref().unwrap_or(path))
}

/// Ends all processes of a sandbox's folder, including those started in the meantime.
fn kill_all_inside(path: &Path) {
    let began = std::time::Instant::now();
    while process::kill_in_folder(path) > 0 && began.elapsed() < std::time::Duration::from_secs(5) {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

/// Removes a folder, after ending the processes that still run in it.
pub(crate) fn remove_folder(path: &Path) -> Result<(), SandboxError> {
    let mut last = None;
    // A server that is being killed may still create a file during the removal.
    for attempt in 0..50 {
        kill_all_inside(path);
        match fs::remove_dir_all(path) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => last = Some(error),
        }
        std::thread::sleep(std::time::Duration::from_millis(2 * attempt));
    }
    Err(SandboxError::disk("remove the folder", path)(
        last.unwrap_or_else(|| io::Error::other("new files keep appearing in it")),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_writable_by_others_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(
            Home::at(folder.path().to_owned()),
            Err(SandboxError::Untrusted { .. })
        ));
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        assert!(Home::at(folder.path().to_owned()).is_ok());
    }

    #[test]
    fn folder_below_one_that_others_control_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (parent, safe) = (folder.path().join("parent"), folder.path().join("safe"));
        for path in [&parent, &safe] {
            fs::create_dir_all(path.join("home")).unwrap();
        }
        std::os::unix::fs::symlink(parent.join("home"), safe.join("link")).unwrap();
        let set = |mode| fs::set_permissions(&parent, fs::Permissions::from_mode(mode)).unwrap();
        let found = |path: PathBuf| untrusted_parent(&path);
        set(0o777);
        for path in [
            parent.join("home"),
            parent.join("home/new/newer"),
            safe.join("link"),
        ] {
            assert_eq!(found(path), Some(parent.canonicalize().unwrap()));
        }
        assert_eq!(found(safe.join("home")), None);
        for mode in [0o1777, 0o755] {
            set(mode);
            assert_eq!(found(parent.join("home")), None);
        }
    }

    #[test]
    fn abandoned_folders_are_removed_and_locked_ones_kept() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let home = Home::at(folder.path().join("home")).unwrap();
        let held = home.create_folder(None).unwrap();
        let abandoned = home.create_folder(None).unwrap();
        let (held_path, abandoned_path) = (held.path.clone(), abandoned.path.clone());
        fs::write(abandoned_path.join("data"), b"x").unwrap();
        drop(abandoned);
        let third = home.create_folder(None).unwrap();
        assert!(held_path.exists());
        assert!(!abandoned_path.join("data").exists());
        assert_ne!(third.path, held_path);
    }
}
