//! Copies data directories as the server itself would have created them.

use std::{
    fs::{self, File},
    io,
    os::{
        fd::AsRawFd,
        unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

use rustix::fs::{FallocateFlags, OFlags, SeekFrom, copy_file_range, fallocate, seek};

use crate::{error::SandboxError, user::SystemUser};

/// Creates an empty folder that only `user` may enter.
pub(crate) fn empty_folder(path: &Path, user: &SystemUser) -> Result<(), SandboxError> {
    fs::create_dir(path).map_err(SandboxError::disk("create the folder", path))?;
    close(path)?;
    user.own(path)
        .map_err(SandboxError::disk("change the owner of", path))
}

/// Restricts a folder to its owner.
fn close(path: &Path) -> Result<(), SandboxError> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o700))
        .map_err(SandboxError::disk("set the permissions of", path))
}

/// Copies a data directory, as [`folder`] does; only `user` may enter the copy.
pub(crate) fn data(from: &Path, to: &Path, user: &SystemUser) -> Result<(), SandboxError> {
    folder(from, to, user)?;
    close(to)
}

/// Opens a file or folder to read. No link is followed: `user` owns the template and can replace its parts at any time.
fn open(path: &Path, kind: OFlags) -> io::Result<File> {
    // A pipe would block.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | kind;
    File::options()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
}

/// Copies a folder and everything in it, and gives the copy to `user`.
///
/// Ranges that were allocated but never written (most of a fresh redo log) are allocated again and
/// not written: copying them as zeros would leave a hundred megabytes for the kernel to write back
/// during a run, and leaving them as holes would make the server's first writes allocate.
fn folder(from: &Path, to: &Path, user: &SystemUser) -> Result<(), SandboxError> {
    folder_at(from, from, to, user)
}

/// Copies a folder that is opened at `path`; errors give its name, `from`.
fn folder_at(path: &Path, from: &Path, to: &Path, user: &SystemUser) -> Result<(), SandboxError> {
    fs::create_dir(to).map_err(SandboxError::disk("create the folder", to))?;
    let opened =
        open(path, OFlags::DIRECTORY).map_err(SandboxError::disk("read the folder", from))?;
    // The path of the open folder, which cannot be replaced.
    let inside = PathBuf::from(format!("/proc/self/fd/{}", opened.as_raw_fd()));
    let entries = fs::read_dir(&inside).map_err(SandboxError::disk("read the folder", from))?;
    for entry in entries {
        let entry = entry.map_err(SandboxError::disk("read the folder", from))?;
        let name = entry.file_name();
        let (source, target) = (from.join(&name), to.join(&name));
        let kind = entry
            .file_type()
            .map_err(SandboxError::disk("examine", &source))?;
        if kind.is_dir() {
            folder_at(&entry.path(), &source, &target, user)?;
        } else if kind.is_file() {
            file(&entry.path(), &target).map_err(SandboxError::disk("copy to", &target))?;
            user.own(&target)
                .map_err(SandboxError::disk("change the owner of", &target))?;
        }
    }
    user.own(to)
        .map_err(SandboxError::disk("change the owner of", to))
}

fn file(from: &Path, to: &Path) -> io::Result<()> {
    let source = open(from, OFlags::empty())?;
    let meta = source.metadata()?;
    let target = File::create_new(to)?;
    target.set_permissions(meta.permissions())?;
    let length = meta.len();
    let allocated = meta.blocks() * 512 >= length;
    if !(allocated && fallocate(&target, FallocateFlags::empty(), 0, length.max(1)).is_ok()) {
        target.set_len(length)?;
    }
    if target.metadata()?.len() != length {
        target.set_len(length)?;
    }
    let mut at = 0;
    while at < length {
        let start = match seek(&source, SeekFrom::Data(at)) {
            Ok(start) => start,
            // Only a hole until the end.
            Err(rustix::io::Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        let end = seek(&source, SeekFrom::Hole(start))?.min(length);
        let (mut read, mut write) = (start, start);
        while read < end {
            let wanted = usize::try_from(end - read).unwrap_or(usize::MAX);
            if copy_file_range(&source, Some(&mut read), &target, Some(&mut write), wanted)? == 0 {
                break;
            }
        }
        at = end;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, Write};

    use super::*;

    #[test]
    fn copy_keeps_contents_lengths_and_holes() {
        let folder_of_test = tempfile::tempdir().unwrap();
        let from = folder_of_test.path().join("from");
        fs::create_dir_all(from.join("inner")).unwrap();
        fs::write(from.join("inner/full"), b"abc").unwrap();
        fs::write(from.join("empty"), b"").unwrap();
        let mut holes = File::create(from.join("holes")).unwrap();
        holes.seek(io::SeekFrom::Start(5_000_000)).unwrap();
        holes.write_all(b"tail").unwrap();
        holes.set_len(9_000_000).unwrap();
        let to = folder_of_test.path().join("to");
        folder(
            &from,
            &to,
            &SystemUser {
                name: String::new(),
                become_ids: None,
            },
        )
        .unwrap();
        for name in ["inner/full", "empty", "holes"] {
            assert_eq!(
                fs::read(from.join(name)).unwrap(),
                fs::read(to.join(name)).unwrap(),
                "{name}"
            );
        }
    }

    #[test]
    fn copy_follows_no_link_that_appears_during_it() {
        use std::{
            os::unix::fs::symlink,
            sync::atomic::{AtomicBool, Ordering},
        };

        use rustix::fs::{CWD, RenameFlags, renameat_with};

        let folder_of_test = tempfile::tempdir().unwrap();
        let at = |name: &str| folder_of_test.path().join(name);
        for (path, text) in [
            ("outside", "secret"),
            ("from/inner", "own"),
            ("swapped", ""),
        ] {
            fs::create_dir_all(at(path)).unwrap();
            fs::write(at(path).join("file"), text).unwrap();
        }
        fs::write(at("from/file"), "own").unwrap();
        symlink(at("outside"), at("swapped/inner")).unwrap();
        fs::remove_file(at("swapped/file")).unwrap();
        symlink(at("outside/file"), at("swapped/file")).unwrap();
        let user = SystemUser {
            name: String::new(),
            become_ids: None,
        };
        /// Ends the other thread, also when a check fails: the scope waits for it.
        struct Over<'a>(&'a AtomicBool);
        impl Drop for Over<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let over = AtomicBool::new(false);
        let mut refused = 0;
        std::thread::scope(|scope| {
            let _over = Over(&over);
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    for name in ["inner", "file"] {
                        let [one, other] = ["from", "swapped"].map(|of| at(of).join(name));
                        renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).unwrap();
                    }
                }
            });
            for number in 0..20_000 {
                if refused == 20 {
                    break;
                }
                let to = at(&format!("to{number}"));
                if let Err(error) = folder(&at("from"), &to, &user) {
                    refused += 1;
                    let error = error.to_string();
                    assert!(!error.contains("/proc/"), "{error}");
                }
                let copied = ["file", "inner/file"].map(|name| fs::read(to.join(name)));
                fs::remove_dir_all(&to).unwrap();
                let outside = copied.iter().flatten().any(|text| text == b"secret");
                assert!(!outside, "copy {number} has a file from outside");
            }
        });
        assert!(refused > 0, "no link appeared at the right time");
    }
}
