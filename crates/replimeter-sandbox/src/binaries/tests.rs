use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
};

use replimeter_engine::source::{SourceError, SourceErrorKind};

use super::{examine::parse_version, *};

#[test]
fn engine_and_version_are_parsed_from_output() {
    let maria = "/usr/sbin/mariadbd  Ver 10.11.6-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64 (Debian 12)";
    assert_eq!(
        parse_version(maria),
        Some((Engine::MariaDb, "10.11.6".to_owned()))
    );
    let mysql = "/usr/sbin/mysqld  Ver 8.0.36-0ubuntu0.22.04.1 for Linux on x86_64 ((Ubuntu))";
    assert_eq!(
        parse_version(mysql),
        Some((Engine::MySql, "8.0.36".to_owned()))
    );
    assert_eq!(parse_version("hello"), None);
}

/// A shell script that answers `--version`, in a folder that every user may enter.
fn fake(root: &Path, program: &str, text: &str) {
    let path = root.join(program);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::create_dir_all(
        path.parent()
            .unwrap()
            .parent()
            .unwrap()
            .join("share/english"),
    )
    .unwrap();
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn open_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

fn answer(version: &str) -> String {
    format!("#!/bin/sh\necho \"server  Ver {version} for Linux on x86_64\"\n")
}

#[test]
fn best_server_is_first_and_each_is_listed_once() {
    let folder = open_folder();
    fake(folder.path(), "a/bin/mysqld", &answer("9.7.4"));
    fake(
        folder.path(),
        "b/usr/sbin/mariadbd",
        &answer("10.6.20-MariaDB"),
    );
    fake(folder.path(), "c/bin/mariadbd", &answer("10.11.6-MariaDB"));
    symlink("mariadbd", folder.path().join("c/bin/mysqld")).unwrap();
    symlink("c", folder.path().join("linked")).unwrap();
    fake(
        folder.path(),
        ".hidden/bin/mariadbd",
        &answer("12.0.1-MariaDB"),
    );
    let search = Search {
        servers: Some(folder.path().to_owned()),
        ..Search::default()
    };
    let discovery = Install::discovery(&search);
    let versions: Vec<&str> = discovery
        .installs
        .iter()
        .map(|install| install.version.as_str())
        .collect();
    assert_eq!(versions, ["10.11.6", "10.6.20", "9.7.4"], "{discovery:?}");
    assert_eq!(discovery.unusable, []);
    assert_eq!(Install::find(&search, None).unwrap().version, "10.11.6");
    assert_eq!(
        Install::find(&search, Some(Engine::MySql)).unwrap().version,
        "9.7.4"
    );
    assert!(
        Install::all(&search)
            .iter()
            .all(|install| install.origin == Origin::Named)
    );
    let search = Search {
        private: folder.path().to_owned(),
        ..Search::default()
    };
    assert!(
        Install::all(&search)
            .iter()
            .any(|install| install.origin == Origin::Private)
    );
}

#[test]
fn unusable_server_is_named_with_its_cause() {
    let folder = open_folder();
    let mut foreign = b"\x7fELF\x02\x01\x01".to_vec();
    foreign.resize(64, 0);
    // An architecture that no test machine has.
    foreign[18] = 21;
    for (root, content) in [
        ("foreign", foreign),
        ("letter", b"Dear reader, this is no program at all".to_vec()),
        (
            "library",
            b"#!/bin/sh\necho 'error while loading shared libraries: libaio.so.1' >&2\nexit 127\n"
                .to_vec(),
        ),
        ("wrapper", b"#!/bin/sh\necho hello\n".to_vec()),
    ] {
        fake(folder.path(), &format!("{root}/bin/mysqld"), "");
        fs::write(folder.path().join(root).join("bin/mysqld"), content).unwrap();
    }
    fake(folder.path(), "bare/bin/mysqld", &answer("9.7.4"));
    fs::remove_dir_all(folder.path().join("bare/share")).unwrap();
    symlink("/no/such/folder", folder.path().join("gone")).unwrap();
    let discovery = Install::discovery(&Search {
        servers: Some(folder.path().to_owned()),
        ..Search::default()
    });
    assert_eq!(discovery.installs, []);
    for (root, cause, hint) in [
        (
            "foreign",
            "it is built for powerpc64, but this machine is",
            "make servers",
        ),
        ("letter", "not a program", "make servers"),
        ("library", "libaio.so.1", "install the missing library"),
        ("wrapper", "but: hello", "--servers DIR"),
        (
            "bare",
            "its messages and character sets are not in",
            "whole",
        ),
        ("gone", "links to /no/such/folder", "rm "),
    ] {
        let found = discovery.unusable.iter().find(|found| {
            found
                .path
                .starts_with(folder.path().canonicalize().unwrap().join(root))
        });
        let found = found.unwrap_or_else(|| panic!("{root} is missing in {discovery:?}"));
        assert!(
            found.cause.contains(cause) && found.hint.contains(hint),
            "{found:?}"
        );
    }
    let error = discovery.none(&Search::default(), None).to_string();
    assert!(
        error.contains("cannot be used") && error.contains("libaio.so.1"),
        "{error}"
    );
}

#[test]
fn scripts_find_server_tools_first() {
    let folder = open_folder();
    fake(
        folder.path(),
        "usr/sbin/mariadbd",
        &answer("10.11.6-MariaDB"),
    );
    fake(folder.path(), "usr/bin/wsrep_sst_rsync", "");
    fs::create_dir_all(folder.path().join("usr/lib/x86_64-linux-gnu")).unwrap();
    let path = vec![PathBuf::from("/usr/local/bin")];
    let search = Search {
        servers: Some(folder.path().to_owned()),
        path,
        ..Search::default()
    };
    let install = Install::find(&search, None).unwrap();
    let environment: std::collections::BTreeMap<_, _> = install.environment().into_iter().collect();
    let root = folder.path().canonicalize().unwrap();
    let path = environment["PATH"].to_str().unwrap();
    assert!(
        path.starts_with(&format!("{}:", root.join("usr/bin").display())),
        "{path}"
    );
    assert!(path.contains(":/usr/local/bin:/usr/bin:/bin"), "{path}");
    assert_eq!(
        environment["LD_LIBRARY_PATH"],
        root.join("usr/lib/x86_64-linux-gnu")
    );
}

#[test]
fn folder_without_servers_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let search = Search {
        servers: Some(folder.path().to_owned()),
        ..Search::default()
    };
    let error = Install::find(&search, None).unwrap_err();
    assert!(
        error
            .to_string()
            .contains(&folder.path().display().to_string()),
        "{error}"
    );
    assert!(error.hint().contains("make servers"));
}

#[test]
fn named_folder_that_is_none_is_a_mistake_of_the_request() {
    let file = tempfile::NamedTempFile::new().unwrap();
    for (path, want) in [
        (PathBuf::from("/no/such"), "No such file"),
        (file.path().to_owned(), "Not a directory"),
    ] {
        let search = Search {
            servers: Some(path.clone()),
            ..Search::default()
        };
        let error = Install::find(&search, None).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains(want) && text.contains(path.to_str().unwrap()),
            "{text}"
        );
        assert_eq!(SourceError::from(error).kind, SourceErrorKind::Usage);
    }
}
