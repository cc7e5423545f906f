use tar::{Builder, EntryType, Header};

use super::*;

static NEVER: AtomicBool = AtomicBool::new(false);

/// An archive entry: kind, unmodified path (the library refuses hostile ones), content, link.
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
    result: Result<ArchiveLinks, UnpackError>,
}

impl Unpacked {
    fn tree(&self) -> PathBuf {
        self.outer.path().join("tree")
    }

    /// Checks that it was refused for this reason and that nothing is left next to the tree.
    fn refused(&self, why: &str) {
        let Err(UnpackError::Archive { reason, hint }) = &self.result else {
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

fn unpacked_with(bytes: &[u8], limits: UnpackLimits, stop: &AtomicBool) -> Unpacked {
    let outer = tempfile::tempdir().unwrap();
    let (packed, tree) = (outer.path().join("packed"), outer.path().join("tree"));
    fs::write(&packed, bytes).unwrap();
    fs::create_dir(&tree).unwrap();
    let result = unpack(
        File::open(packed).unwrap(),
        &tree,
        &[],
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

/// Compresses bytes with a program of the system.
fn packed(program: &str, bytes: &[u8]) -> Vec<u8> {
    let mut child = std::process::Command::new(program)
        .arg("-c")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    thread::scope(|scope| {
        scope.spawn(move || input.write_all(bytes).unwrap());
        child.wait_with_output().unwrap().stdout
    })
}

type Pack = fn(&[u8]) -> Vec<u8>;

/// Returns the compressors of this machine: `xz` may be missing.
fn packers() -> Vec<Pack> {
    let xz_is_there = std::process::Command::new("xz")
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .is_ok();
    if xz_is_there {
        vec![gzip, xz]
    } else {
        vec![gzip]
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    packed("gzip", bytes)
}

fn xz(bytes: &[u8]) -> Vec<u8> {
    packed("xz", bytes)
}

#[test]
fn every_compression_unpacks_from_any_split() {
    let plain = good();
    let (front, back) = plain.split_at(plain.len() / 2);
    check_good(&unpacked(&plain));
    for pack in packers() {
        check_good(&unpacked(&pack(&plain)));
        check_good(&unpacked(&[pack(front), pack(back)].concat()));
    }
}

#[test]
fn truncated_archive_is_damaged() {
    let plain = good();
    for packed in packers()
        .into_iter()
        .map(|pack| pack(&plain))
        .chain([plain.clone()])
    {
        for end in [packed.len() / 3, packed.len() / 2, packed.len() - 1] {
            if packed.len() == plain.len() && end == packed.len() - 1 {
                // Only a zero of the padding is gone.
                continue;
            }
            unpacked(&packed[..end]).refused("damaged, incomplete or not a tar archive");
        }
    }
}

#[test]
fn changed_byte_is_detected() {
    let plain = good();
    for mut packed in packers().into_iter().map(|pack| pack(&plain)) {
        let middle = packed.len() / 2;
        packed[middle] ^= 0x10;
        let unpacked = unpacked(&packed);
        assert!(
            matches!(unpacked.result, Err(UnpackError::Archive { .. })),
            "{:?}",
            unpacked.result
        );
    }
}

#[test]
fn non_archive_is_named_by_its_kind() {
    unpacked(b"").refused("empty file");
    unpacked(b"Dear reader,\nthis is a letter.\n").refused("not an archive");
    unpacked(&[0; 4096]).refused("not an archive");
    unpacked(b"PK\x03\x04rest").refused("zip archive");
    unpacked(b"BZh91AY&SY").refused("damaged, incomplete or not a tar archive");
    unpacked(b"!<arch>\ndebian-binary").refused("Debian package");
    unpacked(&gzip(b"a letter, packed")).refused("damaged, incomplete or not a tar archive");
}

#[test]
fn paths_leaving_the_folder_are_refused() {
    unpacked(&tar_of(|tar| file(tar, "../x"))).refused("../x");
    unpacked(&tar_of(|tar| file(tar, "a/../../x"))).refused("a/../../x");
    unpacked(&tar_of(|tar| {
        entry(tar, EntryType::Directory, "../d/", 0o755, b"", "")
    }))
    .refused("../d");
    let absolute = unpacked(&tar_of(|tar| file(tar, "/tmp/replimeter-x")));
    assert_eq!(
        fs::read(absolute.tree().join("tmp/replimeter-x")).unwrap(),
        b"hello",
        "{:?}",
        absolute.result
    );
    assert!(!Path::new("/tmp/replimeter-x").exists());
}

#[test]
fn links_leaving_the_folder_are_refused() {
    unpacked(&tar_of(|tar| link(tar, "a", "/etc"))).refused("points outside");
    unpacked(&tar_of(|tar| link(tar, "a", ".."))).refused("points outside");
    unpacked(&tar_of(|tar| link(tar, "a/b", "../../x"))).refused("points outside");
    // Each looks harmless; together they climb.
    let together = tar_of(|tar| {
        file(tar, "x/y/z");
        link(tar, "x/y/up", "../..");
        link(tar, "out", "x/y/up/../secret");
    });
    unpacked(&together).refused("points outside");
    for target in ["/etc/passwd", "../packed", "nothing"] {
        unpacked(&tar_of(|tar| {
            entry(tar, EntryType::Link, "a", 0o644, b"", target)
        }))
        .refused("damaged");
    }
}

#[test]
fn file_through_a_link_is_refused() {
    let outward = tar_of(|tar| {
        link(tar, "a", "..");
        file(tar, "a/x");
    });
    unpacked(&outward).refused("");
    let absolute = tar_of(|tar| {
        link(tar, "a", "/tmp");
        file(tar, "a/replimeter-y");
    });
    unpacked(&absolute).refused("");
    assert!(!Path::new("/tmp/replimeter-y").exists());
    let hard = tar_of(|tar| {
        link(tar, "a", "../packed");
        entry(tar, EntryType::Link, "d/a", 0o644, b"", "a");
    });
    unpacked(&hard).refused("points outside");
}

#[test]
fn circular_links_are_refused() {
    let circle = tar_of(|tar| {
        link(tar, "a", "b");
        link(tar, "b", "a");
    });
    assert!(unpacked(&circle).result.is_ok());
}

#[test]
fn link_may_leave_its_folder_but_not_the_server() {
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
fn devices_and_pipes_are_refused() {
    // Only root may create a device.
    unpacked(&tar_of(|tar| {
        entry(tar, EntryType::Char, "null", 0o666, b"", "")
    }))
    .refused("null");
    unpacked(&tar_of(|tar| {
        entry(tar, EntryType::Block, "disk", 0o666, b"", "")
    }))
    .refused("disk");
    unpacked(&tar_of(|tar| {
        entry(tar, EntryType::Fifo, "pipe", 0o666, b"", "")
    }))
    .refused("a pipe");
}

#[test]
fn size_and_count_limits_are_enforced() {
    let small = UnpackLimits {
        bytes: 50_000,
        entries: 3,
    };
    unpacked_with(
        &gzip(&good()),
        UnpackLimits {
            entries: 100,
            ..small
        },
        &NEVER,
    )
    .refused("larger than any server");
    let many = tar_of(|tar| (0..4).for_each(|number| file(tar, &format!("f{number}"))));
    unpacked_with(&many, small, &NEVER).refused("more than 3 entries");
}

#[test]
fn unpacking_can_be_interrupted() {
    let unpacked = unpacked_with(&good(), LIMITS, &AtomicBool::new(true));
    assert!(
        matches!(
            unpacked.result,
            Err(UnpackError::Sandbox(SandboxError::Interrupted))
        ),
        "{:?}",
        unpacked.result
    );
}

#[test]
fn paths_near_the_limit_of_the_system_are_refused_and_removed() {
    // The longest path that `tar` can name in its folder, with a link that leads out of it.
    let deep = "d/".repeat(2_040);
    let bytes = tar_of(|builder| {
        file(builder, "a");
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Symlink);
        header.set_size(0);
        builder
            .append_link(&mut header, format!("{deep}l"), "/etc")
            .unwrap();
    });
    let unpacked = unpacked(&bytes);
    unpacked.refused("a path of more than 1024 bytes");
    remove_tree(&unpacked.tree()).unwrap();
    assert!(!unpacked.tree().exists());
}
