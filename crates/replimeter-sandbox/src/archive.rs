//! Unpacking an archive of unknown origin: nothing is written outside of the
//! folder, and nothing that could lead outside is created in it.

use std::{
    cell::Cell,
    collections::{BTreeMap, HashSet, VecDeque},
    ffi::OsString,
    fs::{self, File},
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink},
    path::{Component, Path, PathBuf},
    rc::Rc,
    sync::atomic::{AtomicBool, Ordering},
};

use flate2::bufread::MultiGzDecoder;
use lzma_rust2::XzReader;
use ruzstd::decoding::{
    BlockDecodingStrategy, FrameDecoder,
    errors::{FrameDecoderError, ReadFrameHeaderError},
};
use tar::EntryType;

use crate::error::SandboxError;

/// What an archive may grow to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// All of its content, unpacked.
    pub(crate) bytes: u64,
    /// Files, folders and links.
    pub(crate) entries: u64,
}

/// Ten times the largest server there is.
pub(crate) const LIMITS: Limits = Limits {
    bytes: 20 << 30,
    entries: 500_000,
};

/// What may stand between two entries: long names, extended attributes. The
/// library keeps it in memory.
const HEADERS: u64 = 4 << 20;

/// Memory that a decoder may use, in KiB; what the strongest levels of xz need is
/// an eighth of it.
const DECODER_KIB: u32 = 512 * 1024;

/// Links that follow one another before the system gives up, too.
const MOST_LINKS: u32 = 40;

/// Why an archive was not unpacked.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The archive is to blame.
    Archive {
        /// Why.
        reason: String,
        /// What to try.
        hint: &'static str,
    },
    /// The disk, or the user's wish to end.
    Sandbox(SandboxError),
}

impl From<SandboxError> for Fault {
    fn from(error: SandboxError) -> Self {
        Self::Sandbox(error)
    }
}

fn hostile(reason: String) -> Fault {
    Fault::Archive {
        reason,
        hint: "do not trust this archive; take the server from its vendor or a distribution",
    }
}

/// The links of an unpacked tree: where each is, and what it says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Links(BTreeMap<PathBuf, PathBuf>);

impl Links {
    /// The first link below `root` that leads out of it.
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

    /// Whether following a link stays in the tree. Links on the way are followed as
    /// the system would: one may shorten the path, so that a later `..` climbs out
    /// although the text does not look like it.
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
                        if followed > MOST_LINKS {
                            // It leads nowhere.
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

/// What the readers below the archive tell one another and the loop above.
#[derive(Default)]
struct Gauge {
    /// Bytes taken from the packed file.
    packed: Cell<u64>,
    /// Bytes unpacked.
    unpacked: Cell<u64>,
    /// Bytes that may still be read now.
    allowance: Cell<u64>,
    /// Zero bytes at the end of what was read.
    zeros: Cell<u64>,
    /// Why reading was refused.
    refused: Cell<Option<Refusal>>,
}

#[derive(Clone, Copy)]
enum Refusal {
    Stopped,
    TooLarge,
    HeaderTooLarge,
}

/// Counts what is taken from the packed file.
struct Counted {
    file: File,
    gauge: Rc<Gauge>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.gauge
            .packed
            .set(self.gauge.packed.get() + count as u64);
        Ok(count)
    }
}

/// Ends an archive that grows too large, and one that the user has had enough of.
struct Bounded<'a> {
    inner: Box<dyn Read>,
    gauge: Rc<Gauge>,
    most: u64,
    stop: &'a AtomicBool,
}

impl Read for Bounded<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let refuse = |refusal| {
            self.gauge.refused.set(Some(refusal));
            Err(io::Error::other("refused"))
        };
        if self.stop.load(Ordering::Relaxed) {
            return refuse(Refusal::Stopped);
        }
        let count = self.inner.read(buffer)?;
        let read = count as u64;
        let unpacked = self.gauge.unpacked.get() + read;
        self.gauge.unpacked.set(unpacked);
        if unpacked > self.most {
            return refuse(Refusal::TooLarge);
        }
        let Some(left) = self.gauge.allowance.get().checked_sub(read) else {
            return refuse(Refusal::HeaderTooLarge);
        };
        self.gauge.allowance.set(left);
        let zeros = buffer[..count]
            .iter()
            .rev()
            .take_while(|byte| **byte == 0)
            .count() as u64;
        self.gauge.zeros.set(if zeros == read {
            self.gauge.zeros.get() + zeros
        } else {
            zeros
        });
        Ok(count)
    }
}

/// All frames of a zstd file, one after another, with their checksums compared.
struct Zstd<R> {
    source: R,
    decoder: FrameDecoder,
    inside: bool,
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.inside {
                if self.source.fill_buf()?.is_empty() {
                    return Ok(0);
                }
                match self.decoder.reset(&mut self.source) {
                    Ok(()) => self.inside = true,
                    Err(FrameDecoderError::ReadFrameHeaderError(
                        ReadFrameHeaderError::SkipFrame { length, .. },
                    )) => {
                        io::copy(
                            &mut self.source.by_ref().take(u64::from(length)),
                            &mut io::sink(),
                        )?;
                        continue;
                    }
                    Err(error) => return Err(io::Error::other(error)),
                }
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                self.decoder
                    .decode_blocks(&mut self.source, BlockDecodingStrategy::UptoBlocks(1))
                    .map_err(io::Error::other)?;
            }
            let count = self.decoder.read(buffer)?;
            if count > 0 {
                return Ok(count);
            }
            let stated = self.decoder.get_checksum_from_data();
            if stated.is_some() && stated != self.decoder.get_calculated_checksum() {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "the checksum is wrong",
                ));
            }
            self.inside = false;
        }
    }
}

/// The reader of a packed file by its first bytes; names lie.
fn decoder(file: File, gauge: &Rc<Gauge>) -> Result<Box<dyn Read>, Fault> {
    let mut packed = BufReader::with_capacity(
        1 << 18,
        Counted {
            file,
            gauge: Rc::clone(gauge),
        },
    );
    let head = packed.fill_buf().map_err(|error| damaged(&error))?;
    let refuse = |what: &str, hint| {
        Err(Fault::Archive {
            reason: format!("it is {what}"),
            hint,
        })
    };
    const UNPACK: &str = "unpack it yourself, and add the folder";
    Ok(match head {
        [0x1f, 0x8b, ..] => Box::new(MultiGzDecoder::new(packed)),
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => {
            Box::new(XzReader::new_mem_limit(packed, true, DECODER_KIB))
        }
        // The second is a frame to be skipped, which parallel packers begin with.
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Box::new(Zstd {
            source: packed,
            decoder: FrameDecoder::new(),
            inside: false,
        }),
        _ if head.get(257..262) == Some(b"ustar") => Box::new(packed),
        [] => return refuse("an empty file", "was it downloaded to its end?"),
        [b'B', b'Z', b'h', ..] => {
            return refuse("packed with bzip2, which is not supported", UNPACK);
        }
        [b'P', b'K', 3, 4, ..] => return refuse("a zip archive, which is not supported", UNPACK),
        [b'!', b'<', b'a', b'r', b'c', b'h', b'>', ..] => {
            return refuse(
                "a Debian package",
                "unpack it with `dpkg -x PACKAGE DIR`, with all it needs, and add the folder",
            );
        }
        [0xed, 0xab, 0xee, 0xdb, ..] => {
            return refuse(
                "an RPM package",
                "unpack it with `rpm2archive` or `rpm2cpio`, with all it needs, and add the folder",
            );
        }
        _ => {
            return refuse(
                "no archive",
                "give the folder of an unpacked server, or a tar archive, plain or packed with gzip, xz or zstd",
            );
        }
    })
}

fn damaged(error: &io::Error) -> Fault {
    Fault::Archive {
        reason: format!("it is damaged, incomplete or no tar archive: {error}"),
        hint: "was it downloaded to its end? compare its checksum with the vendor's",
    }
}

/// Unpacks an archive into an empty folder. Every file and folder belongs to us
/// and may be read (and, where the archive says so, executed) by everybody:
/// servers run as another user. `progress` hears how many bytes of the packed
/// file were read.
pub(crate) fn unpack(
    file: File,
    tree: &Path,
    limits: Limits,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(u64),
) -> Result<Links, Fault> {
    let gauge = Rc::new(Gauge::default());
    let inner = decoder(file, &gauge)?;
    let bounded = Bounded {
        inner,
        gauge: Rc::clone(&gauge),
        most: limits.bytes,
        stop,
    };
    let unpacking = Unpacking {
        tree,
        limits,
        gauge: &gauge,
        links: Links::default(),
        folders: HashSet::new(),
        bytes: 0,
    };
    unpacking
        .run(bounded, progress)
        .map_err(|fault| match gauge.refused.get() {
            // What the library made of our refusal says less than the refusal.
            Some(Refusal::Stopped) => SandboxError::Interrupted.into(),
            Some(Refusal::TooLarge) => too_large(limits),
            Some(Refusal::HeaderTooLarge) => {
                hostile("an entry has a name or attributes of several megabytes".to_owned())
            }
            None => fault,
        })
}

fn too_large(limits: Limits) -> Fault {
    hostile(format!(
        "it is larger than any server: more than {} MiB unpacked",
        limits.bytes >> 20
    ))
}

struct Unpacking<'a> {
    tree: &'a Path,
    limits: Limits,
    gauge: &'a Gauge,
    /// Made last, so that nothing is ever written through one.
    links: Links,
    folders: HashSet<PathBuf>,
    bytes: u64,
}

impl Unpacking<'_> {
    fn run(mut self, bounded: Bounded<'_>, progress: &mut dyn FnMut(u64)) -> Result<Links, Fault> {
        let mut archive = tar::Archive::new(bounded);
        let mut entries = archive.entries().map_err(|error| damaged(&error))?;
        let mut count = 0;
        loop {
            self.gauge.allowance.set(HEADERS);
            let Some(entry) = entries.next() else { break };
            let mut entry = entry.map_err(|error| damaged(&error))?;
            self.gauge.allowance.set(u64::MAX);
            count += 1;
            if count > self.limits.entries {
                return Err(hostile(format!(
                    "it holds more than {} entries",
                    self.limits.entries
                )));
            }
            self.entry(&mut entry, progress)?;
            // What an entry carries beyond what its kind has.
            io::copy(&mut entry, &mut io::sink()).map_err(|error| damaged(&error))?;
            progress(self.gauge.packed.get());
        }
        // To the very end, where the checksums of the packers are.
        self.gauge.allowance.set(u64::MAX);
        io::copy(&mut archive.into_inner(), &mut io::sink()).map_err(|error| damaged(&error))?;
        if self.gauge.zeros.get() < 512 {
            return Err(damaged(&io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the end of the archive is missing",
            )));
        }
        self.make_links()?;
        Ok(self.links)
    }

    fn entry(
        &mut self,
        entry: &mut tar::Entry<'_, Bounded<'_>>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), Fault> {
        let kind = entry.header().entry_type();
        if kind == EntryType::XGlobalHeader {
            return Ok(());
        }
        let named = entry.path().map_err(|error| damaged(&error))?.into_owned();
        let path =
            inner(&named).map_err(|how| hostile(format!("the entry {} {how}", named.display())))?;
        // Archives from before 1988 know a folder by its last character.
        let folder = kind == EntryType::Directory || entry.path_bytes().ends_with(b"/");
        match kind {
            _ if folder => self.make_folders(&path),
            _ if path.as_os_str().is_empty() => {
                Err(hostile("an entry that is no folder has no name".to_owned()))
            }
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                self.make_parent(&path)?;
                self.file(entry, &path, progress)
            }
            EntryType::Symlink => {
                let target = target(entry)?;
                if target.is_absolute() {
                    return Err(leads_out(&path, &target));
                }
                self.make_parent(&path)?;
                self.links.0.insert(path, target);
                Ok(())
            }
            EntryType::Link => {
                let target = target(entry)?;
                let original = inner(&target).map_err(|_| leads_out(&path, &target))?;
                self.make_parent(&path)?;
                self.hard_link(&path, &original)
            }
            EntryType::Char | EntryType::Block => {
                Err(hostile(format!("the entry {} is a device", path.display())))
            }
            EntryType::Fifo => Err(hostile(format!("the entry {} is a pipe", path.display()))),
            other => Err(hostile(format!(
                "the entry {} is of a kind that no server has ({:?})",
                path.display(),
                other.as_byte() as char
            ))),
        }
    }

    fn make_parent(&mut self, path: &Path) -> Result<(), Fault> {
        path.parent()
            .map_or(Ok(()), |parent| self.make_folders(parent))
    }

    /// Makes a folder and those above it. There are no links in the tree yet.
    fn make_folders(&mut self, path: &Path) -> Result<(), Fault> {
        if path.as_os_str().is_empty() || self.folders.contains(path) {
            return Ok(());
        }
        self.make_parent(path)?;
        let full = self.tree.join(path);
        match fs::create_dir(&full) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(twice(path)),
            Err(error) => return Err(SandboxError::disk("create the folder", &full)(error).into()),
        }
        set_mode(&full, 0o755)?;
        self.folders.insert(path.to_owned());
        Ok(())
    }

    fn file(
        &mut self,
        entry: &mut tar::Entry<'_, Bounded<'_>>,
        path: &Path,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), Fault> {
        // A sparse file is larger than what the archive holds of it.
        self.bytes = self.bytes.saturating_add(entry.size());
        if self.bytes > self.limits.bytes {
            return Err(too_large(self.limits));
        }
        let full = self.tree.join(path);
        let executable = entry.header().mode().map_err(|error| damaged(&error))? & 0o100 != 0;
        self.replace(path);
        let mut file = match File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&full)
        {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(twice(path)),
            Err(error) => return Err(SandboxError::disk("create", &full)(error).into()),
        };
        let mut buffer = vec![0u8; 1 << 17];
        loop {
            let count = entry.read(&mut buffer).map_err(|error| damaged(&error))?;
            if count == 0 {
                break;
            }
            file.write_all(&buffer[..count])
                .map_err(SandboxError::disk("write to", &full))?;
            progress(self.gauge.packed.get());
        }
        // Neither setuid nor setgid nor sticky survives this.
        set_mode(&full, if executable { 0o755 } else { 0o644 })
    }

    fn hard_link(&mut self, path: &Path, original: &Path) -> Result<(), Fault> {
        if let Some(target) = self.links.0.get(original).cloned() {
            // A second name of a link is a link that says the same; elsewhere it would lead elsewhere.
            if original.parent() != path.parent() {
                return Err(leads_out(path, original));
            }
            self.links.0.insert(path.to_owned(), target);
            return Ok(());
        }
        let full = self.tree.join(path);
        let source = self.tree.join(original);
        if !fs::symlink_metadata(&source).is_ok_and(|meta| meta.is_file()) {
            return Err(damaged(&io::Error::other(format!(
                "{} is a link to {}, which is not before it in the archive",
                path.display(),
                original.display()
            ))));
        }
        if path == original {
            return Ok(());
        }
        self.replace(path);
        match fs::hard_link(&source, &full) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(twice(path)),
            result => Ok(result.map_err(SandboxError::disk("create the link", &full))?),
        }
    }

    /// Makes room: of two entries with the same name the later one counts, as in
    /// an archive that was appended to.
    fn replace(&mut self, path: &Path) {
        self.links.0.remove(path);
        // Not a folder: this fails then, and so will what comes.
        let _ = fs::remove_file(self.tree.join(path));
    }

    fn make_links(&self) -> Result<(), Fault> {
        if let Some((link, target)) = self.links.leading_out_of(Path::new("")) {
            return Err(leads_out(&link, &target));
        }
        for (link, target) in &self.links.0 {
            let full = self.tree.join(link);
            let _ = fs::remove_file(&full);
            match symlink(target, &full) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    return Err(twice(link));
                }
                result => result.map_err(SandboxError::disk("create the link", &full))?,
            }
        }
        Ok(())
    }
}

fn set_mode(path: &Path, mode: u32) -> Result<(), Fault> {
    // By name, since the process's umask may be stricter.
    let permissions = fs::Permissions::from_mode(mode);
    Ok(fs::set_permissions(path, permissions)
        .map_err(SandboxError::disk("set the permissions of", path))?)
}

fn target(entry: &tar::Entry<'_, Bounded<'_>>) -> Result<PathBuf, Fault> {
    let target = entry.link_name().map_err(|error| damaged(&error))?;
    target
        .map(std::borrow::Cow::into_owned)
        .ok_or_else(|| damaged(&io::Error::other("a link without a target")))
}

/// The error for a link that leads out of the tree.
pub(crate) fn leads_out(link: &Path, target: &Path) -> Fault {
    hostile(format!(
        "the link {} leads out of the archive, to {}",
        link.display(),
        target.display()
    ))
}

fn twice(path: &Path) -> Fault {
    hostile(format!(
        "{} is in it twice, as different things",
        path.display()
    ))
}

/// A path inside of the tree, without `.` and doubled slashes.
fn inner(path: &Path) -> Result<PathBuf, &'static str> {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => clean.push(name),
            Component::CurDir => {}
            Component::ParentDir => return Err("climbs out of the archive with `..`"),
            Component::RootDir | Component::Prefix(_) => return Err("has an absolute path"),
        }
    }
    Ok(clean)
}

#[cfg(test)]
mod tests {
    use tar::{Builder, Header};

    use super::*;

    static NEVER: AtomicBool = AtomicBool::new(false);

    /// An archive entry: kind, path as it is (the library refuses hostile ones), content, link.
    fn entry(
        builder: &mut Builder<Vec<u8>>,
        kind: EntryType,
        path: &str,
        mode: u32,
        content: &[u8],
        link: &str,
    ) {
        let mut header = Header::new_gnu();
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(12345);
        header.set_size(content.len() as u64);
        header.set_cksum();
        builder.append(&header, content).unwrap();
    }

    fn tar_of(fill: impl FnOnce(&mut Builder<Vec<u8>>)) -> Vec<u8> {
        let mut builder = Builder::new(Vec::new());
        fill(&mut builder);
        builder.into_inner().unwrap()
    }

    fn file(builder: &mut Builder<Vec<u8>>, path: &str) {
        entry(builder, EntryType::Regular, path, 0o644, b"hello", "");
    }

    fn link(builder: &mut Builder<Vec<u8>>, path: &str, target: &str) {
        entry(builder, EntryType::Symlink, path, 0o777, b"", target);
    }

    struct Unpacked {
        outer: tempfile::TempDir,
        result: Result<Links, Fault>,
    }

    impl Unpacked {
        fn tree(&self) -> PathBuf {
            self.outer.path().join("tree")
        }

        /// Checks that it was refused for this reason and that nothing lies beside the tree.
        fn refused(&self, why: &str) {
            let Err(Fault::Archive { reason, hint }) = &self.result else {
                panic!("{:?}", self.result)
            };
            assert!(reason.contains(why), "{reason}");
            assert!(!hint.is_empty());
            let names: Vec<_> = fs::read_dir(self.outer.path())
                .unwrap()
                .map(|entry| entry.unwrap().file_name())
                .collect();
            assert_eq!(names.len(), 2, "{names:?}");
        }
    }

    fn unpacked_with(bytes: &[u8], limits: Limits, stop: &AtomicBool) -> Unpacked {
        let outer = tempfile::tempdir().unwrap();
        let (packed, tree) = (outer.path().join("packed"), outer.path().join("tree"));
        fs::write(&packed, bytes).unwrap();
        fs::create_dir(&tree).unwrap();
        let result = unpack(
            File::open(packed).unwrap(),
            &tree,
            limits,
            stop,
            &mut |_| {},
        );
        Unpacked { outer, result }
    }

    fn unpacked(bytes: &[u8]) -> Unpacked {
        unpacked_with(bytes, LIMITS, &NEVER)
    }

    fn good() -> Vec<u8> {
        tar_of(|tar| {
            entry(tar, EntryType::Directory, "./", 0o700, b"", "");
            entry(tar, EntryType::Directory, "bin/", 0o2700, b"", "");
            entry(
                tar,
                EntryType::Regular,
                "bin/server",
                0o6755,
                &[7; 100_000],
                "",
            );
            file(tar, "share/deep/text");
            link(tar, "bin/daemon", "server");
            link(tar, "lib64", "share/../share");
            entry(tar, EntryType::Link, "bin/again", 0o644, b"", "bin/server");
            entry(tar, EntryType::Link, "bin/second", 0o644, b"", "bin/daemon");
        })
    }

    fn check_good(unpacked: &Unpacked) {
        assert!(unpacked.result.is_ok(), "{:?}", unpacked.result);
        let tree = unpacked.tree();
        let mode = |path: &str| {
            fs::symlink_metadata(tree.join(path))
                .unwrap()
                .permissions()
                .mode()
                & 0o7777
        };
        assert_eq!(mode("bin"), 0o755);
        assert_eq!(mode("bin/server"), 0o755, "neither setuid nor setgid");
        assert_eq!(mode("share/deep/text"), 0o644);
        assert_eq!(fs::read(tree.join("bin/second")).unwrap(), [7; 100_000]);
        assert_eq!(fs::read(tree.join("bin/again")).unwrap(), [7; 100_000]);
        assert_eq!(fs::read(tree.join("lib64/deep/text")).unwrap(), b"hello");
        use std::os::unix::fs::MetadataExt;
        assert_eq!(
            fs::metadata(tree.join("bin/server")).unwrap().uid(),
            rustix::process::geteuid().as_raw()
        );
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn xz(bytes: &[u8]) -> Vec<u8> {
        let mut encoder =
            lzma_rust2::XzWriter::new(Vec::new(), lzma_rust2::XzOptions::with_preset(1)).unwrap();
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(bytes: &[u8]) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
    }

    #[test]
    fn every_compression_in_one_piece_and_in_several() {
        let plain = good();
        let (front, back) = plain.split_at(plain.len() / 2);
        check_good(&unpacked(&plain));
        for pack in [gzip, xz, zstd] {
            check_good(&unpacked(&pack(&plain)));
            check_good(&unpacked(&[pack(front), pack(back)].concat()));
        }
        let skipped = [
            &[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3][..],
            &zstd(&plain),
        ]
        .concat();
        check_good(&unpacked(&skipped));
    }

    #[test]
    fn half_an_archive_is_damaged_wherever_it_is_cut() {
        let plain = good();
        for packed in [plain.clone(), gzip(&plain), xz(&plain), zstd(&plain)] {
            for end in [packed.len() / 3, packed.len() / 2, packed.len() - 1] {
                if packed.len() == plain.len() && end == packed.len() - 1 {
                    // Only a zero of the padding is gone.
                    continue;
                }
                unpacked(&packed[..end]).refused("damaged, incomplete or no tar archive");
            }
        }
        // Between two entries, where only the missing end gives it away.
        unpacked(&plain[..512 * 3 + 100_352]).refused("the end of the archive is missing");
    }

    #[test]
    fn a_changed_byte_is_noticed() {
        let plain = good();
        for mut packed in [gzip(&plain), xz(&plain), zstd(&plain)] {
            let middle = packed.len() / 2;
            packed[middle] ^= 0x10;
            let unpacked = unpacked(&packed);
            assert!(
                matches!(unpacked.result, Err(Fault::Archive { .. })),
                "{:?}",
                unpacked.result
            );
        }
    }

    #[test]
    fn what_is_no_archive_says_what_it_is() {
        unpacked(b"").refused("empty file");
        unpacked(b"Dear reader,\nthis is a letter.\n").refused("no archive");
        unpacked(&[0; 4096]).refused("no archive");
        unpacked(b"PK\x03\x04rest").refused("zip archive");
        unpacked(b"BZh91AY&SY").refused("bzip2");
        unpacked(b"!<arch>\ndebian-binary").refused("Debian package");
        unpacked(&gzip(b"a letter, packed")).refused("damaged, incomplete or no tar archive");
    }

    #[test]
    fn paths_that_climb_out() {
        unpacked(&tar_of(|tar| file(tar, "../x"))).refused("climbs out");
        unpacked(&tar_of(|tar| file(tar, "a/../../x"))).refused("climbs out");
        unpacked(&tar_of(|tar| file(tar, "/tmp/replimeter-x"))).refused("absolute path");
        unpacked(&tar_of(|tar| {
            entry(tar, EntryType::Directory, "../d/", 0o755, b"", "")
        }))
        .refused("climbs out");
    }

    #[test]
    fn links_that_lead_out() {
        unpacked(&tar_of(|tar| link(tar, "a", "/etc"))).refused("leads out");
        unpacked(&tar_of(|tar| link(tar, "a", ".."))).refused("leads out");
        unpacked(&tar_of(|tar| link(tar, "a/b", "../../x"))).refused("leads out");
        // Each looks harmless; together they climb.
        let together = tar_of(|tar| {
            file(tar, "x/y/z");
            link(tar, "x/y/up", "../..");
            link(tar, "out", "x/y/up/../secret");
        });
        unpacked(&together).refused("leads out");
        unpacked(&tar_of(|tar| {
            entry(tar, EntryType::Link, "a", 0o644, b"", "/etc/passwd")
        }))
        .refused("leads out");
        unpacked(&tar_of(|tar| {
            entry(tar, EntryType::Link, "a", 0o644, b"", "../packed")
        }))
        .refused("leads out");
        let dangling = tar_of(|tar| entry(tar, EntryType::Link, "a", 0o644, b"", "nothing"));
        unpacked(&dangling).refused("not before it in the archive");
    }

    #[test]
    fn a_file_through_a_link() {
        let outward = tar_of(|tar| {
            link(tar, "a", "..");
            file(tar, "a/x");
        });
        unpacked(&outward).refused("");
        let inward = tar_of(|tar| {
            file(tar, "b/y");
            link(tar, "a", "b");
            file(tar, "a/x");
        });
        unpacked(&inward).refused("twice");
        let hard = tar_of(|tar| {
            link(tar, "a", "../packed");
            entry(tar, EntryType::Link, "d/a", 0o644, b"", "a");
        });
        unpacked(&hard).refused("leads out");
    }

    #[test]
    fn links_in_a_circle_lead_nowhere() {
        let circle = tar_of(|tar| {
            link(tar, "a", "b");
            link(tar, "b", "a");
        });
        assert!(unpacked(&circle).result.is_ok());
    }

    #[test]
    fn a_link_may_leave_its_folder_but_not_the_servers_own() {
        let archive = tar_of(|tar| {
            file(tar, "other/x");
            link(tar, "server/a", "../other/x");
        });
        let unpacked = unpacked(&archive);
        let links = unpacked.result.unwrap();
        assert_eq!(links.leading_out_of(Path::new("")), None);
        assert!(links.leading_out_of(Path::new("server")).is_some());
    }

    #[test]
    fn devices_and_pipes() {
        unpacked(&tar_of(|tar| {
            entry(tar, EntryType::Char, "null", 0o666, b"", "")
        }))
        .refused("a device");
        unpacked(&tar_of(|tar| {
            entry(tar, EntryType::Block, "disk", 0o666, b"", "")
        }))
        .refused("a device");
        unpacked(&tar_of(|tar| {
            entry(tar, EntryType::Fifo, "pipe", 0o666, b"", "")
        }))
        .refused("a pipe");
        unpacked(&tar_of(|tar| {
            entry(tar, EntryType::new(b'Q'), "odd", 0o666, b"", "")
        }))
        .refused("a kind that no server has");
    }

    #[test]
    fn bounds_on_size_and_number() {
        let small = Limits {
            bytes: 50_000,
            entries: 3,
        };
        unpacked_with(&gzip(&good()), small, &NEVER).refused("larger than any server");
        let many = tar_of(|tar| (0..4).for_each(|number| file(tar, &format!("f{number}"))));
        unpacked_with(&many, small, &NEVER).refused("more than 3 entries");
        let long_name = tar_of(|tar| {
            entry(
                tar,
                EntryType::GNULongName,
                "././@LongLink",
                0o644,
                &vec![b'n'; 5 << 20],
                "",
            );
            file(tar, "x");
        });
        unpacked(&gzip(&long_name)).refused("several megabytes");
    }

    #[test]
    fn the_users_wish_to_end_is_heard() {
        let unpacked = unpacked_with(&good(), LIMITS, &AtomicBool::new(true));
        assert!(
            matches!(
                unpacked.result,
                Err(Fault::Sandbox(SandboxError::Interrupted))
            ),
            "{:?}",
            unpacked.result
        );
    }
}
