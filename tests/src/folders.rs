//! Paths: the private folder with its servers and templates, and the folders of tests, all below
//! one folder that `scripts/run-suites` creates and removes.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    sync::LazyLock,
};

use tempfile::TempDir;

/// Returns the release binary that `make` builds, since a debug build must not be
/// measured.
///
/// # Panics
/// If it was not built.
#[must_use]
pub fn binary() -> PathBuf {
    let target = std::env::current_exe().unwrap();
    let release = target
        .ancestors()
        .find(|folder| folder.join("deps").is_dir())
        .unwrap()
        .to_owned();
    let binary = release.join("replimeter");
    assert!(
        binary.exists(),
        "{} is missing: run the suites with `make test`",
        binary.display()
    );
    binary
}

/// Returns Replimeter's private folder, where `make servers` puts its binaries.
#[must_use]
pub fn home() -> PathBuf {
    let named = std::env::var_os("REPLIMETER_HOME").map(PathBuf::from);
    named.unwrap_or_else(|| {
        if rustix::process::geteuid().is_root() {
            return PathBuf::from("/var/cache/replimeter");
        }
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        cache
            .unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache"))
            .join("replimeter")
    })
}

/// Returns the folder of all files of this run of the tests. It is in the private folder, so that
/// templates are moved within one file system, and the servers' user has access.
#[must_use]
pub fn scratch() -> &'static Path {
    static SCRATCH: LazyLock<PathBuf> = LazyLock::new(|| {
        let folder = std::env::var_os("REPLIMETER_TESTS")
            .map_or_else(|| home().join("tests"), PathBuf::from);
        open_folder(&folder);
        folder.canonicalize().unwrap()
    });
    &SCRATCH
}

/// Creates a folder that other users may enter, and that is removed when dropped.
///
/// # Panics
/// If the disk returns an error.
#[must_use]
pub fn folder() -> TempDir {
    tempfile::Builder::new()
        .permissions(fs::Permissions::from_mode(0o755))
        .tempdir_in(scratch())
        .unwrap()
}

/// Returns the folder of the servers that tests use, one of each engine: those whose names begin with a word of
/// `REPLIMETER_TEST_SERVERS` (`mariadb-11.8 mysql-8.4`), else the oldest MariaDB and the newest MySQL, which
/// `make servers` gets from the system's own archive.
///
/// # Panics
/// If none is named so.
#[must_use]
pub fn servers() -> &'static Path {
    static SERVERS: LazyLock<PathBuf> = LazyLock::new(|| {
        let folder = scratch().join("servers");
        let _ = fs::remove_dir_all(&folder);
        open_folder(&folder);
        let wanted = std::env::var("REPLIMETER_TEST_SERVERS").unwrap_or_default();
        // HAProxy and `ab`, which are no servers, have one version.
        for engine in ["mariadb-", "mysql-", "web-"] {
            let prefix = wanted.split(' ').find(|name| name.starts_with(engine));
            let entries = fs::read_dir(home().join("servers"));
            let mut found: Vec<String> = entries
                .map(|entries| {
                    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap())
                })
                .into_iter()
                .flatten()
                .filter(|name| name.starts_with(prefix.unwrap_or(engine)))
                .collect();
            found.sort_by_key(|name| version(name));
            let chosen = if engine == "mariadb-" {
                found.first()
            } else {
                found.last()
            };
            assert!(prefix.is_none() || chosen.is_some(), "no server {wanted}");
            if let Some(chosen) = chosen {
                symlink(home().join("servers").join(chosen), folder.join(chosen)).unwrap();
            }
        }
        folder
    });
    &SERVERS
}

/// Returns the folder of the server of an engine (`mariadb`, `mysql`) in [`servers`].
///
/// # Panics
/// If there is none.
#[must_use]
pub fn server_folder(engine: &str) -> PathBuf {
    let found = fs::read_dir(servers())
        .unwrap()
        .map(|entry| entry.unwrap())
        .find(|entry| entry.file_name().to_str().unwrap().starts_with(engine))
        .unwrap_or_else(|| {
            panic!(
                "no {engine} in {}: `make servers` gets it",
                home().display()
            )
        });
    found.path().canonicalize().unwrap()
}

/// Returns the numbers of a version.
fn version(name: &str) -> Vec<u32> {
    let numbers = name.split(|character: char| !character.is_ascii_digit());
    numbers.filter_map(|number| number.parse().ok()).collect()
}

/// Creates a folder that other users may enter.
fn open_folder(path: &Path) {
    fs::create_dir_all(path).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Creates a private folder in `folder`, with the servers and templates that all tests share.
///
/// # Panics
/// If the disk returns an error.
#[must_use]
pub fn private_home(folder: &Path) -> PathBuf {
    let own = folder.join("home");
    if !own.exists() {
        open_folder(&own);
        // Of this run, so that they are where its sandboxes are: in memory, if there is room.
        let templates = scratch().join("seeds");
        open_folder(&templates);
        for shared in [servers(), &templates] {
            symlink(shared, own.join(shared.file_name().unwrap())).unwrap();
        }
    }
    own
}

/// Returns the private folder of the servers that tests start themselves.
#[must_use]
pub(crate) fn common_home() -> &'static Path {
    static COMMON: LazyLock<PathBuf> = LazyLock::new(|| private_home(scratch()));
    &COMMON
}
