use tar::{Builder, Header};

use super::*;

static NEVER: AtomicBool = AtomicBool::new(false);
const SERVER: &str = "#!/bin/sh\necho 'mysqld  Ver 9.9.1-3 for Linux on x86_64'\n";

struct TestFolders {
    outer: tempfile::TempDir,
}

impl TestFolders {
    fn new() -> Self {
        let outer = tempfile::tempdir().unwrap();
        fs::set_permissions(outer.path(), fs::Permissions::from_mode(0o755)).unwrap();
        Self { outer }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.outer.path().join(name)
    }

    fn home(&self) -> Home {
        Home::at(self.path("home")).unwrap()
    }

    /// Returns an archive of files; files in `bin` or `sbin` are executable.
    fn archive(&self, files: &[(&str, &str)]) -> PathBuf {
        let mut builder = Builder::new(Vec::new());
        for (path, content) in files {
            let mut header = Header::new_gnu();
            header.set_mode(if path.contains("bin/") { 0o700 } else { 0o600 });
            header.set_size(content.len() as u64);
            builder
                .append_data(&mut header, path, content.as_bytes())
                .unwrap();
        }
        let path = self.path("server.tar");
        fs::write(&path, builder.into_inner().unwrap()).unwrap();
        path
    }

    fn folder(&self, files: &[(&str, &str)]) -> PathBuf {
        let folder = self.path("folder");
        for (path, content) in files {
            let path = folder.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        folder
    }

    fn add(&self, source: &Path) -> Result<Added, SandboxError> {
        add(
            &self.home(),
            &Search::default(),
            source,
            &NEVER,
            &mut |_| {},
        )
    }

    /// Checks that it is refused with this text and that nothing is left of it.
    fn refused(&self, source: &Path, wanted: &str) {
        let error = self.add(source).unwrap_err();
        let text = format!("{error} {}", error.hint());
        assert!(text.contains(wanted), "{text}");
        assert!(
            !self.path("home").exists(),
            "something was left behind after: {text}"
        );
    }

    fn entries(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.home().servers())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

#[test]
fn archive_with_or_without_top_folder_is_added() {
    for around in ["", "mysql-9.9.1-linux/"] {
        let area = TestFolders::new();
        let (program, text) = (
            format!("{around}bin/mysqld"),
            format!("{around}share/english/errmsg.sys"),
        );
        let mut heard = Vec::new();
        let archive = area.archive(&[(&program, SERVER), (&text, "x")]);
        let added = add(
            &area.home(),
            &Search::default(),
            &archive,
            &NEVER,
            &mut |progress| heard.push(progress),
        )
        .unwrap();
        assert_eq!(added.install.version, "9.9.1");
        assert_eq!(area.entries(), ["mysql-9.9.1"]);
        assert!(
            added
                .install
                .program
                .ends_with("servers/mysql-9.9.1/bin/mysqld")
        );
        assert_eq!(added.linked_to, None);
        assert_eq!(heard.last(), Some(&Progress::Checking));
        let search = Search {
            private: area.home().servers(),
            ..Search::default()
        };
        let found = Install::all(&search);
        assert!(found.contains(&added.install), "{found:?}");

        let error = area.add(&archive).unwrap_err();
        assert!(error.to_string().contains("already exists"), "{error}");
        assert!(error.hint().contains("`rm -r "), "{}", error.hint());
        assert_eq!(area.entries(), ["mysql-9.9.1"]);
    }
}

#[test]
fn folder_is_linked_with_its_target() {
    let area = TestFolders::new();
    let folder = area.folder(&[
        ("top/usr/sbin/mysqld", SERVER),
        ("top/usr/share/mysql/english/errmsg.sys", "x"),
    ]);
    let added = area.add(&folder).unwrap();
    let root = folder.join("top").canonicalize().unwrap();
    assert_eq!(added.linked_to.as_ref(), Some(&root));
    assert_eq!(fs::read_link(&added.place).unwrap(), root);
    let error = area.add(&folder).unwrap_err();
    assert!(error.hint().contains("`rm /"), "{}", error.hint());
    fs::remove_dir_all(&folder).unwrap();
    let search = Search {
        private: area.home().servers(),
        ..Search::default()
    };
    assert!(
        Install::discovery(&search)
            .unusable
            .iter()
            .any(|found| found.path == added.place)
    );
}

#[test]
fn invalid_server_is_refused_without_leftovers() {
    let area = TestFolders::new();
    area.refused(&area.path("nothing"), "cannot be read");
    let empty = area.path("empty");
    fs::create_dir(&empty).unwrap();
    area.refused(&empty, "no mariadbd or mysqld in it; it contains nothing");
    let text = area.path("letter.tar.gz");
    fs::write(&text, "Dear reader").unwrap();
    area.refused(&text, "it is not an archive");
    area.refused(Path::new("/dev/null"), "neither a folder nor a file");
    area.refused(
        &area.archive(&[("src/sql/main.cc", "int main;"), ("README", "x")]),
        "it contains README, src",
    );
    area.refused(
        &area.archive(&[("mysqld", SERVER), ("share/english/x", "")]),
        "its server is not in a folder",
    );
    area.refused(
        &area.archive(&[("bin/mysqld", SERVER)]),
        "its server bin/mysqld cannot be used: its messages",
    );
    let fails = "#!/bin/sh\necho 'GLIBC_9.99 not found' >&2\nexit 1\n";
    area.refused(
        &area.archive(&[("bin/mysqld", fails), ("share/english/x", "")]),
        "GLIBC_9.99 not found",
    );
    let two = [("a/bin/mysqld", SERVER), ("b/bin/mysqld", SERVER)];
    area.refused(&area.archive(&two), "it contains several servers: a, b");
    area.refused(&area.folder(&two), "it contains several servers: a, b");
}

#[test]
fn too_large_or_canceled_add_leaves_nothing() {
    let area = TestFolders::new();
    let archive = area.archive(&[("bin/mysqld", SERVER), ("share/english/x", "")]);
    let limits = UnpackLimits {
        bytes: 1000,
        entries: 10,
    };
    let error = add_within(
        &area.home(),
        &Search::default(),
        &archive,
        limits,
        &NEVER,
        &mut |_| {},
    )
    .unwrap_err();
    assert!(
        error.to_string().contains("larger than any server"),
        "{error}"
    );
    let stop = AtomicBool::new(true);
    let error = add(
        &area.home(),
        &Search::default(),
        &archive,
        &stop,
        &mut |_| {},
    )
    .unwrap_err();
    assert!(matches!(error, SandboxError::Interrupted));
    assert!(!area.path("home").exists());
}

#[test]
fn link_into_an_omitted_folder_is_refused() {
    let area = TestFolders::new();
    let mut builder = Builder::new(Vec::new());
    for (path, mode, content) in [
        ("top/bin/mysqld", 0o755, SERVER),
        ("top/share/english/x", 0o644, ""),
        ("beside/x", 0o644, ""),
    ] {
        let mut header = Header::new_gnu();
        header.set_mode(mode);
        header.set_size(content.len() as u64);
        builder
            .append_data(&mut header, path, content.as_bytes())
            .unwrap();
    }
    let mut header = Header::new_gnu();
    header.set_entry_type(tar::EntryType::Symlink);
    header.set_size(0);
    builder
        .append_link(&mut header, "top/lib", "../beside")
        .unwrap();
    let path = area.path("server.tar");
    fs::write(&path, builder.into_inner().unwrap()).unwrap();
    area.refused(
        &path,
        "the link lib points outside the archive, to ../beside",
    );
}

#[test]
fn leftovers_are_removed_and_active_attempts_kept() {
    let area = TestFolders::new();
    let archive = area.archive(&[("bin/mysqld", SERVER), ("share/english/x", "")]);
    let ground = ServersFolder::prepare(&area.home()).unwrap();
    let under_way = UnpackFolder::open(&ground.servers).unwrap();
    fs::create_dir_all(ground.servers.join(".add-dead.tmp/bin")).unwrap();
    fs::write(ground.servers.join(".add-dead.lock"), "").unwrap();
    fs::create_dir_all(ground.servers.join(".mysql-1.tmp")).unwrap();
    area.add(&archive).unwrap();
    let mut expected = vec![".mysql-1.tmp".to_owned(), "mysql-9.9.1".to_owned()];
    for path in [&under_way.tree, under_way._lock.path()] {
        expected.push(path.file_name().unwrap().to_str().unwrap().to_owned());
    }
    expected.sort();
    assert_eq!(area.entries(), expected);
    drop(under_way);
    assert_eq!(area.entries(), [".mysql-1.tmp", "mysql-9.9.1"]);
}
