//! The private folder: server binaries, seeds and running sandboxes.

use std::{
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};

use crate::{error::SandboxError, process, user::SystemUser};

/// The private folder and the user its servers run as.
#[derive(Clone, Debug)]
pub struct Home {
    root: PathBuf,
    user: SystemUser,
}

/// A sandbox's own folder, held by a lock for as long as this lives.
#[derive(Debug)]
pub(crate) struct Place {
    /// The folder.
    pub(crate) path: PathBuf,
    /// Locked; the lock ends with the process, however that ends.
    _lock: File,
}

impl Home {
    /// The private folder at `root`; nothing is touched yet.
    ///
    /// # Errors
    /// When it belongs to another user than us or root, or others may write to it:
    /// what lies in it is executed.
    pub fn at(root: PathBuf) -> Result<Self, SandboxError> {
        if let Ok(meta) = fs::metadata(&root) {
            let ours = meta.uid() == rustix::process::geteuid().as_raw() || meta.uid() == 0;
            if !ours || meta.permissions().mode() & 0o022 != 0 {
                return Err(SandboxError::Untrusted { path: root });
            }
        }
        Ok(Self { root, user: SystemUser::choose() })
    }

    /// Where unpacked server binaries are kept.
    #[must_use]
    pub fn servers(&self) -> PathBuf {
        self.root.join("servers")
    }

    pub(crate) fn user(&self) -> &SystemUser {
        &self.user
    }

    pub(crate) fn seeds(&self) -> PathBuf {
        self.root.join("seeds")
    }

    fn sandboxes(&self) -> PathBuf {
        self.root.join("sandboxes")
    }

    /// Removes what killed runs left and makes a folder for a new sandbox.
    pub(crate) fn claim(&self) -> Result<Place, SandboxError> {
        // Other users may pass through to the servers they run, and list nothing.
        let mode = if self.user.become_ids.is_some() { 0o711 } else { 0o700 };
        let parent = self.sandboxes();
        for folder in [&self.root, &parent] {
            make_folder(folder, mode)?;
        }
        make_folder(&self.seeds(), 0o700)?;
        if let Some(path) = self.user.blocked_at(&parent) {
            return Err(SandboxError::Unreachable { path, user: self.user.name.clone() });
        }
        // One at a time: between making a folder and locking it, it looks abandoned.
        let gate = lock_file(&parent.join(".lock"))?;
        flock(&gate, FlockOperation::LockExclusive).map_err(|error| SandboxError::disk("lock", &parent)(error.into()))?;
        remove_abandoned(&parent)?;
        let path = (0u32..)
            .map(|number| parent.join(format!("{}-{number}", std::process::id())))
            .find(|path| !path.exists())
            .ok_or_else(|| SandboxError::disk("create a folder in", &parent)(io::Error::other("every name is taken")))?;
        make_folder(&path, mode)?;
        let lock = lock_file(&path.join("lock"))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|error| SandboxError::disk("lock", &path)(error.into()))?;
        Ok(Place { path, _lock: lock })
    }
}

fn make_folder(path: &Path, mode: u32) -> Result<(), SandboxError> {
    if path.is_dir() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o755).create(path).map_err(SandboxError::disk("create the folder", path))?;
    // The mode by name, since the process's umask may be stricter.
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(SandboxError::disk("set the permissions of", path))
}

fn lock_file(path: &Path) -> Result<File, SandboxError> {
    File::options().create(true).truncate(false).write(true).open(path).map_err(SandboxError::disk("open the lock file", path))
}

/// Removes every sandbox whose lock nobody holds.
fn remove_abandoned(parent: &Path) -> Result<(), SandboxError> {
    let entries = fs::read_dir(parent).map_err(SandboxError::disk("read the folder", parent))?;
    for entry in entries.filter_map(Result::ok) {
        let path = entry.path();
        if !path.is_dir() {
            continue;
        }
        let lock = lock_file(&path.join("lock"))?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            remove_folder(&path)?;
        }
    }
    Ok(())
}

/// Removes a sandbox's folder, ending first what still runs in it.
pub(crate) fn remove_folder(path: &Path) -> Result<(), SandboxError> {
    let mut last = None;
    // A server that is being killed may still make a file while we remove.
    for attempt in 0..50 {
        process::kill_inside(path);
        match fs::remove_dir_all(path) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => last = Some(error),
        }
        std::thread::sleep(std::time::Duration::from_millis(2 * attempt));
    }
    Err(SandboxError::disk("remove the folder", path)(last.unwrap_or_else(|| io::Error::other("it keeps filling"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_others_may_write_to_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(Home::at(folder.path().to_owned()), Err(SandboxError::Untrusted { .. })));
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        assert!(Home::at(folder.path().to_owned()).is_ok());
    }

    #[test]
    fn abandoned_folders_go_and_held_ones_stay() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let home = Home::at(folder.path().join("home")).unwrap();
        let held = home.claim().unwrap();
        let abandoned = home.claim().unwrap();
        let (held_path, abandoned_path) = (held.path.clone(), abandoned.path.clone());
        fs::write(abandoned_path.join("data"), b"x").unwrap();
        drop(abandoned);
        let third = home.claim().unwrap();
        assert!(held_path.exists());
        assert!(!abandoned_path.join("data").exists());
        assert_ne!(third.path, held_path);
    }
}
