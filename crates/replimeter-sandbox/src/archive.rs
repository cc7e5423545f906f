//! Unpacks archives of unknown origin with the system's `tar`, into a private folder: `tar` writes
//! nothing outside of it, and its content is examined before use.

use std::{
    collections::{BTreeMap, VecDeque},
    ffi::OsString,
    fs::{self, File},
    io::{self, Read, Write},
    os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use crate::{
    error::{SandboxError, check_interrupted},
    process,
};

/// Limits of an unpacked archive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnpackLimits {
    /// Total bytes, unpacked.
    pub(crate) bytes: u64,
    /// Files, folders and links.
    pub(crate) entries: u64,
}

/// Ten times the largest existing server.
pub(crate) const LIMITS: UnpackLimits = UnpackLimits {
    bytes: 20 << 30,
    entries: 500_000,
};

/// Interval between progress reports and checks for an interrupt.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The number of polls between two measurements of the tree's size.
const POLLS_PER_SIZE: u32 = 25;

/// Maximum bytes of a path in an archive: those of servers have less than two hundred, and longer ones could not be examined.
const MAX_PATH: usize = 1024;

/// Maximum links in a row, as in the system's own limit.
const MAX_LINKS: u32 = 40;

/// Why an archive was not unpacked.
#[derive(Debug)]
pub(crate) enum UnpackError {
    /// The archive is faulty.
    Archive {
        /// Why.
        reason: String,
        /// The suggested remedy.
        hint: &'static str,
    },
    /// The disk failed, or the user interrupted.
    Sandbox(SandboxError),
}

impl From<SandboxError> for UnpackError {
    fn from(error: SandboxError) -> Self {
        Self::Sandbox(error)
    }
}

const UNPACK: &str = "unpack it, and add the folder";

fn hostile(reason: String) -> UnpackError {
    UnpackError::Archive {
        reason,
        hint: "do not trust this archive; get the server from its vendor or a distribution",
    }
}

fn damaged(cause: impl std::fmt::Display) -> UnpackError {
    UnpackError::Archive {
        reason: format!("it is damaged, incomplete or not a tar archive: {cause}"),
        hint: "check that the download is complete: compare its checksum with the vendor's",
    }
}

/// The links of an unpacked tree, with their targets.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ArchiveLinks(BTreeMap<PathBuf, PathBuf>);

impl ArchiveLinks {
    /// Returns the first link below `root` that points outside it.
    pub(crate) fn leading_out_of(&self, root: &Path) -> Option<(PathBuf, PathBuf)> {
        let below = self.0.iter().filter_map(|(link, target)| {
            Some((link.strip_prefix(root).ok()?.to_owned(), target.clone()))
        });
        let inner: BTreeMap<PathBuf, PathBuf> = below.collect();
        let inner = Self(inner);
        let found = inner
            .0
            .iter()
            .find(|(link, target)| !inner.stays_inside(link, target));
        found.map(|(link, target)| (link.clone(), target.clone()))
    }

    /// Returns whether following a link stays in the tree. Links on the way are followed as the
    /// system would: one may shorten the path, so that a later `..` leaves the tree although the
    /// text does not show it.
    fn stays_inside(&self, link: &Path, target: &Path) -> bool {
        let mut here: PathBuf = link.parent().map(Path::to_owned).unwrap_or_default();
        let mut ahead: VecDeque<OsString> = target.iter().map(OsString::from).collect();
        if target.is_absolute() {
            return false;
        }
        let mut followed = 0;
        while let Some(step) = ahead.pop_front() {
            match step.to_str() {
                Some(".") => {}
                Some("..") => {
                    if !here.pop() {
                        return false;
                    }
                }
                _ => {
                    here.push(&step);
                    if let Some(next) = self.0.get(&here) {
                        followed += 1;
                        if next.is_absolute() {
                            return false;
                        }
                        if followed > MAX_LINKS {
                            // The link is dangling.
                            return true;
                        }
                        here.pop();
                        next.iter()
                            .rev()
                            .for_each(|step| ahead.push_front(step.to_owned()));
                    }
                }
            }
        }
        true
    }
}

/// Returns the option of `tar` for a packed file, by its first bytes; names are unreliable.
fn compression(head: &[u8]) -> Result<Option<&'static str>, UnpackError> {
    let refuse = |what: &str, hint| {
        Err(UnpackError::Archive {
            reason: format!("it is {what}"),
            hint,
        })
    };
    Ok(match head {
        [0x1f, 0x8b, ..] => Some("--gzip"),
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some("--xz"),
        // The second is a skippable frame, with which parallel compressors begin.
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some("--zstd"),
        [b'B', b'Z', b'h', ..] => Some("--bzip2"),
        _ if head.get(257..262) == Some(b"ustar") => None,
        [] => return refuse("an empty file", "check that the download is complete"),
        [b'P', b'K', 3, 4, ..] => return refuse("a zip archive, which is not supported", UNPACK),
        [b'!', b'<', b'a', b'r', b'c', b'h', b'>', ..] => {
            return refuse(
                "a Debian package",
                "unpack it with `dpkg -x PACKAGE DIR`, with all its dependencies, and add the folder",
            );
        }
        [0xed, 0xab, 0xee, 0xdb, ..] => {
            return refuse(
                "an RPM package",
                "unpack it with `rpm2archive` or `rpm2cpio`, with all its dependencies, and add the folder",
            );
        }
        _ => {
            return refuse(
                "not an archive",
                "give the folder of an unpacked server, or a tar archive, plain or packed with gzip, xz, zstd or bzip2",
            );
        }
    })
}

/// Unpacks an archive into an empty private folder. Afterwards every file and folder in it belongs to this
/// process's user and all users may read it (and execute it, where the archive says so): servers run as another
/// user. Programs are searched in `path`. `progress` receives the number of bytes read of the packed file.
pub(crate) fn unpack(
    mut file: File,
    tree: &Path,
    path: &[PathBuf],
    limits: UnpackLimits,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(u64),
) -> Result<ArchiveLinks, UnpackError> {
    let mut head = Vec::new();
    (&mut file)
        .take(512)
        .read_to_end(&mut head)
        .map_err(damaged)?;
    let mut tar = tar(compression(&head)?, tree, path)
        .spawn()
        .map_err(|error| UnpackError::Archive {
            reason: format!("it cannot be unpacked: tar: {error}"),
            hint: "install tar; or unpack it, and add the folder",
        })?;
    let (input, errors) = (tar.stdin.take(), tar.stderr.take());
    let read = AtomicU64::new(0);
    let ended = thread::scope(|scope| {
        // Both end with the pipes, when `tar` does.
        scope.spawn(|| feed(&head, file, input, &read));
        let errors = scope.spawn(|| errors.and_then(|pipe| io::read_to_string(pipe).ok()));
        let refused = supervise(&mut tar, tree, limits, stop, &mut || {
            progress(read.load(Ordering::Relaxed));
        });
        if refused.is_err() {
            let _ = tar.kill();
            let _ = tar.wait();
        }
        let said = errors.join().ok().flatten().unwrap_or_default();
        refused.map(|status| (status, said))
    });
    let (status, said) = ended?;
    if !status.success() {
        // The last line states only that there was an error.
        let cause = said.lines().find(|line| !line.contains("Removing leading"));
        return Err(damaged(cause.unwrap_or("tar failed")));
    }
    let links = settle(tree)?;
    size(tree, limits)?;
    if fs::read_dir(tree).is_ok_and(|mut entries| entries.next().is_none()) {
        return Err(damaged("it is empty"));
    }
    Ok(links)
}

/// Returns the command that unpacks its standard input into a folder.
fn tar(compression: Option<&str>, tree: &Path, path: &[PathBuf]) -> Command {
    let mut command = process::command("tar");
    if let Ok(path) = std::env::join_paths(path)
        && !path.is_empty()
    {
        // `tar` starts the decompressor.
        command.env("PATH", path);
    }
    command
        .args([
            "--extract",
            "--file=-",
            "--no-same-owner",
            "--no-same-permissions",
            "--delay-directory-restore",
        ])
        .args(compression)
        .arg("--directory")
        .arg(tree)
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

/// Waits for `tar`, until the user interrupts or the tree exceeds its limits.
fn supervise(
    tar: &mut Child,
    tree: &Path,
    limits: UnpackLimits,
    stop: &AtomicBool,
    poll: &mut dyn FnMut(),
) -> Result<ExitStatus, UnpackError> {
    for polls in 1u32.. {
        if let Some(status) = tar.try_wait().map_err(damaged)? {
            return Ok(status);
        }
        poll();
        check_interrupted(stop)?;
        if polls.is_multiple_of(POLLS_PER_SIZE)
            && let Err(fault @ UnpackError::Archive { .. }) = size(tree, limits)
        {
            return Err(fault);
        }
        thread::sleep(POLL_INTERVAL);
    }
    Err(damaged("tar did not end in time"))
}

/// Writes the packed file to `tar`, and counts the bytes read.
fn feed(head: &[u8], mut file: File, input: Option<impl Write>, read: &AtomicU64) {
    let Some(mut input) = input else { return };
    let mut buffer = vec![0; 1 << 16];
    let mut next = input.write_all(head).map(|()| head.len());
    // A read error truncates the archive, which `tar` reports; `tar` may also have ended.
    while let Ok(bytes @ 1..) = next {
        read.fetch_add(bytes as u64, Ordering::Relaxed);
        next = file
            .read(&mut buffer)
            .and_then(|bytes| input.write_all(&buffer[..bytes]).map(|()| bytes));
    }
}

/// Calls `visit` with everything in a tree, folders before their content. Entries removed during the walk are skipped.
fn walk(
    tree: &Path,
    visit: &mut dyn FnMut(&Path, &fs::Metadata) -> Result<(), UnpackError>,
) -> Result<(), UnpackError> {
    let longest = tree.as_os_str().len() + 1 + MAX_PATH;
    let mut folders = vec![tree.to_owned()];
    // One folder is open at a time, however deep they are.
    while let Some(folder) = folders.pop() {
        let entries =
            fs::read_dir(&folder).map_err(SandboxError::disk("read the folder", &folder))?;
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.as_os_str().len() > longest {
                return Err(hostile(format!(
                    "it has a path of more than {MAX_PATH} bytes"
                )));
            }
            let Ok(meta) = fs::symlink_metadata(&path) else {
                continue;
            };
            visit(&path, &meta)?;
            if meta.is_dir() {
                folders.push(path);
            }
        }
    }
    Ok(())
}

/// Removes an unpacked tree, however deep its folders are: more than can be open at a time, or than a path can name.
pub(crate) fn remove_tree(tree: &Path) -> io::Result<()> {
    if fs::remove_dir_all(tree).is_ok() {
        return Ok(());
    }
    let mut number = 0u64;
    // Moves the folders of each folder to the top, and removes it.
    loop {
        let mut left = false;
        for entry in fs::read_dir(tree)? {
            let folder = entry?.path();
            left = true;
            if !fs::symlink_metadata(&folder)?.is_dir() {
                fs::remove_file(&folder)?;
                continue;
            }
            fs::set_permissions(&folder, fs::Permissions::from_mode(0o700))?;
            for inner in fs::read_dir(&folder)? {
                let inner = inner?.path();
                if !fs::symlink_metadata(&inner)?.is_dir() {
                    fs::remove_file(&inner)?;
                    continue;
                }
                fs::set_permissions(&inner, fs::Permissions::from_mode(0o700))?;
                let mut place = tree.join(number.to_string());
                while fs::symlink_metadata(&place).is_ok() {
                    number += 1;
                    place = tree.join(number.to_string());
                }
                fs::rename(inner, place)?;
            }
            fs::remove_dir(&folder)?;
        }
        if !left {
            return fs::remove_dir(tree);
        }
    }
}

/// Refuses a tree that exceeds its limits.
fn size(tree: &Path, limits: UnpackLimits) -> Result<(), UnpackError> {
    let (mut bytes, mut entries) = (0, 0);
    walk(tree, &mut |_, meta| {
        bytes += meta.len().max(meta.blocks() * 512);
        entries += 1;
        if bytes > limits.bytes {
            return Err(hostile(format!(
                "it is larger than any server: more than {} MiB unpacked",
                limits.bytes >> 20
            )));
        }
        if entries > limits.entries {
            return Err(hostile(format!(
                "it has more than {} entries",
                limits.entries
            )));
        }
        Ok(())
    })
}

/// Sets the permissions that servers need and no others, and returns the links.
fn settle(tree: &Path) -> Result<ArchiveLinks, UnpackError> {
    let mut links = ArchiveLinks::default();
    walk(tree, &mut |path, meta| {
        let (kind, inside) = (meta.file_type(), path.strip_prefix(tree).unwrap_or(path));
        if kind.is_symlink() {
            let target = fs::read_link(path).map_err(SandboxError::disk("read the link", path))?;
            links.0.insert(inside.to_owned(), target);
            return Ok(());
        }
        if !kind.is_dir() && !kind.is_file() {
            let what = if kind.is_fifo() || kind.is_socket() {
                "a pipe"
            } else {
                "a device"
            };
            return Err(hostile(format!("{} is {what}", inside.display())));
        }
        let executable = kind.is_dir() || meta.permissions().mode() & 0o111 != 0;
        let permissions = fs::Permissions::from_mode(if executable { 0o755 } else { 0o644 });
        Ok(fs::set_permissions(path, permissions)
            .map_err(SandboxError::disk("set the permissions of", path))?)
    })?;
    match links.leading_out_of(Path::new("")) {
        Some((link, target)) => Err(leads_out(&link, &target)),
        None => Ok(links),
    }
}

/// Returns the error for a link that points outside the tree.
pub(crate) fn leads_out(link: &Path, target: &Path) -> UnpackError {
    hostile(format!(
        "the link {} points outside the archive, to {}",
        link.display(),
        target.display()
    ))
}

#[cfg(test)]
mod tests;
