use std::os::unix::fs::PermissionsExt;

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

    /// Returns a folder with these files, which are executable.
    fn folder(&self, name: &str, files: &[(&str, &str)]) -> PathBuf {
        let folder = self.path(name);
        for (path, content) in files {
            let path = folder.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        folder
    }

    fn add(&self, source: &Path) -> Result<Added, SandboxError> {
        add(&self.home(), &Search::default(), source, &NEVER)
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
}

#[test]
fn folder_with_or_without_top_folder_is_linked() {
    for top in ["", "top/"] {
        let area = TestFolders::new();
        let (program, text) = (
            format!("{top}usr/sbin/mysqld"),
            format!("{top}usr/share/mysql/english/errmsg.sys"),
        );
        let folder = area.folder("folder", &[(&program, SERVER), (&text, "x")]);
        let added = area.add(&folder).unwrap();
        assert_eq!(added.install.version, "9.9.1");
        assert_eq!(added.place, area.home().servers().join("mysql-9.9.1"));
        let root = folder.join(top).canonicalize().unwrap();
        assert_eq!(added.folder, root);
        assert_eq!(fs::read_link(&added.place).unwrap(), root);
        let search = Search {
            private: area.home().servers(),
            ..Search::default()
        };
        let found = Install::all(&search);
        assert!(found.contains(&added.install), "{found:?}");

        let error = area.add(&folder).unwrap_err();
        assert!(error.to_string().contains("already exists"), "{error}");
        assert!(error.hint().contains("`rm /"), "{}", error.hint());
        fs::remove_dir_all(&folder).unwrap();
        assert!(
            Install::discovery(&search)
                .unusable
                .iter()
                .any(|found| found.path == added.place)
        );
    }
}

#[test]
fn folder_of_the_same_version_is_kept() {
    let area = TestFolders::new();
    let folder = area.folder("folder", &[("bin/mysqld", SERVER), ("share/english/x", "")]);
    let kept = area.folder("home/servers/mysql-9.9.1", &[("bin/mysqld", SERVER)]);
    fs::set_permissions(area.path("home"), fs::Permissions::from_mode(0o755)).unwrap();
    let error = area.add(&folder).unwrap_err();
    assert!(error.hint().contains("`rm -r /"), "{}", error.hint());
    assert!(kept.join("bin/mysqld").is_file());
}

#[test]
fn invalid_server_is_refused_without_leftovers() {
    let area = TestFolders::new();
    area.refused(&area.path("nothing"), "cannot be read");
    let empty = area.path("empty");
    fs::create_dir(&empty).unwrap();
    area.refused(&empty, "no mariadbd or mysqld in it; it contains nothing");
    let archive = area.path("server.tar.xz");
    fs::write(&archive, "packed").unwrap();
    area.refused(&archive, "it is a file, not a folder");
    area.refused(
        &archive,
        &format!("`tar -xf {} -C FOLDER`", archive.display()),
    );
    area.refused(
        &area.folder(
            "sources",
            &[("src/sql/main.cc", "int main;"), ("README", "x")],
        ),
        "it contains README, src",
    );
    area.refused(
        &area.folder("incomplete", &[("bin/mysqld", SERVER)]),
        "its server bin/mysqld cannot be used: its messages",
    );
    let fails = "#!/bin/sh\necho 'GLIBC_9.99 not found' >&2\nexit 1\n";
    area.refused(
        &area.folder("fails", &[("bin/mysqld", fails), ("share/english/x", "")]),
        "GLIBC_9.99 not found",
    );
    let two = [("a/bin/mysqld", SERVER), ("b/bin/mysqld", SERVER)];
    area.refused(
        &area.folder("two", &two),
        "it contains several servers: a, b",
    );
}

#[test]
fn interrupted_add_leaves_nothing() {
    let area = TestFolders::new();
    let folder = area.folder("folder", &[("bin/mysqld", SERVER), ("share/english/x", "")]);
    let stop = AtomicBool::new(true);
    let error = add(&area.home(), &Search::default(), &folder, &stop).unwrap_err();
    assert!(matches!(error, SandboxError::Interrupted));
    assert!(!area.path("home").exists());
}
