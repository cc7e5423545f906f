//! Finding server binaries and what belongs to them.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use replimeter_model::engine::Engine;

use crate::{error::SandboxError, process, user::SystemUser};

/// Where to look.
#[derive(Clone, Debug, Default)]
pub struct Search {
    /// The one folder the user named; nothing else is looked at then.
    pub servers: Option<PathBuf>,
    /// The folders of `PATH`.
    pub path: Vec<PathBuf>,
    /// The folder that `make servers` unpacks into.
    pub private: PathBuf,
}

/// Folders in which distributions and vendors put servers that are not on PATH.
const USUAL: [&str; 8] = [
    "/usr/sbin",
    "/usr/local/sbin",
    "/usr/libexec",
    "/usr/local/libexec",
    "/usr/local/mysql/bin",
    "/usr/local/mariadb/bin",
    "/opt/mysql/bin",
    "/opt/mariadb/bin",
];

/// Folders of a server's root in which its binary may lie.
const INSIDE: [&str; 7] = ["usr/sbin", "usr/libexec", "usr/bin", "sbin", "bin", "libexec", ""];

/// A server's binary and the folders that belong to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Install {
    /// Which engine it is, by its own word.
    pub engine: Engine,
    /// The version number it states.
    pub version: String,
    /// The binary, links resolved.
    pub program: PathBuf,
    /// `--basedir`.
    pub base: PathBuf,
    /// Messages, character sets and bootstrap SQL.
    pub share: PathBuf,
    /// `--plugin-dir`, when found.
    pub plugins: Option<PathBuf>,
    /// The dynamic loader that came with an unpacked server, when it needs a
    /// newer C library than the system's.
    loader: Option<PathBuf>,
    /// Libraries that came with an unpacked server.
    libraries: Option<PathBuf>,
}

impl Install {
    /// A command that runs the binary, by its own loader when it has one.
    #[must_use]
    pub fn command(&self) -> Command {
        match (&self.loader, &self.libraries) {
            (Some(loader), Some(libraries)) => {
                let mut command = Command::new(loader);
                command.arg("--library-path").arg(libraries).arg(&self.program);
                command
            }
            (_, libraries) => {
                let mut command = Command::new(&self.program);
                if let Some(libraries) = libraries {
                    command.env("LD_LIBRARY_PATH", libraries);
                }
                command
            }
        }
    }

    /// The first server of the engine (of any, MariaDB first, when `None`).
    ///
    /// # Errors
    /// When there is none: where it was looked for.
    pub fn find(search: &Search, engine: Option<Engine>) -> Result<Self, SandboxError> {
        let folders = folders(search);
        let mut candidates = BTreeSet::new();
        let mut found: Vec<Self> = Vec::new();
        for folder in &folders {
            for name in ["mariadbd", "mysqld"] {
                let Ok(program) = folder.join(name).canonicalize() else { continue };
                if candidates.insert(program.clone()) {
                    found.extend(Self::examine(&program));
                }
            }
        }
        let wanted = |install: &&Self| engine.is_none_or(|engine| install.engine == engine);
        let best = found.iter().filter(wanted).find(|install| install.engine == Engine::MariaDb);
        best.or_else(|| found.iter().find(wanted)).cloned().ok_or_else(|| SandboxError::NoBinary {
            wanted: engine.map_or("MariaDB or MySQL", Engine::product).to_owned(),
            searched: match &search.servers {
                Some(servers) => vec![servers.display().to_string()],
                None => {
                    vec!["PATH".to_owned(), USUAL.join(", "), search.private.display().to_string()]
                }
            },
        })
    }

    fn examine(program: &Path) -> Option<Self> {
        let base = program.parent()?.parent()?.to_owned();
        let share = ["share/mysql", "share/mariadb", "share"]
            .into_iter()
            .map(|share| base.join(share))
            .find(|share| share.join("english").is_dir() || share.join("charsets").is_dir())?;
        let root = if base.file_name().is_some_and(|name| name == "usr") { base.parent()? } else { &base };
        let (loader, libraries) = if root == Path::new("/") { (None, None) } else { own_libraries(root) };
        let mut install = Self {
            engine: Engine::MariaDb,
            version: String::new(),
            program: program.to_owned(),
            plugins: plugins(&base),
            base,
            share,
            loader,
            libraries,
        };
        let mut command = install.command();
        command.args(["--no-defaults", "--version"]);
        let output = process::output(command, &SystemUser::choose()).ok()?;
        let text = String::from_utf8_lossy(&output).into_owned();
        (install.engine, install.version) = stated(&text)?;
        Some(install)
    }
}

/// Every folder a binary may be in, in order of preference.
fn folders(search: &Search) -> Vec<PathBuf> {
    let roots_in = |folder: &Path| -> Vec<PathBuf> {
        let mut roots: Vec<PathBuf> = fs::read_dir(folder)
            .map(|entries| entries.filter_map(Result::ok).map(|entry| entry.path()).filter(|path| path.is_dir()).collect())
            .unwrap_or_default();
        // Half-unpacked servers are hidden.
        roots.retain(|root| !root.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.')));
        roots.sort();
        roots.reverse();
        roots
    };
    let inside = |root: &Path| INSIDE.map(|folder| root.join(folder));
    if let Some(servers) = &search.servers {
        let below = roots_in(servers);
        return inside(servers).into_iter().chain(below.iter().flat_map(|root| inside(root))).collect();
    }
    let usual = USUAL.map(PathBuf::from);
    let private = roots_in(&search.private);
    search.path.iter().cloned().chain(usual).chain(private.iter().flat_map(|root| inside(root))).collect()
}

fn plugins(base: &Path) -> Option<PathBuf> {
    ["lib/mysql/plugin", "lib/plugin", "lib64/mysql/plugin", "lib64/mariadb/plugin", "lib/mariadb/plugin"]
        .into_iter()
        .map(|folder| base.join(folder))
        .find(|folder| folder.is_dir())
}

/// The loader and library folder of an unpacked server's own root.
fn own_libraries(root: &Path) -> (Option<PathBuf>, Option<PathBuf>) {
    let triplets = ["x86_64-linux-gnu", "aarch64-linux-gnu"];
    let folder = triplets
        .into_iter()
        .flat_map(|triplet| [root.join("usr/lib").join(triplet), root.join("lib").join(triplet)])
        .find(|folder| folder.is_dir());
    let loader = folder.as_ref().and_then(|folder| {
        ["ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"].into_iter().map(|name| folder.join(name)).find(|loader| loader.exists())
    });
    (loader, folder)
}

/// Engine and number from the answer to `--version`.
fn stated(text: &str) -> Option<(Engine, String)> {
    let (_, rest) = text.split_once(" Ver ")?;
    let number: String = rest.trim_start().chars().take_while(|byte| byte.is_ascii_digit() || *byte == '.').collect();
    let engine = if rest.contains("MariaDB") { Engine::MariaDb } else { Engine::MySql };
    (!number.is_empty()).then_some((engine, number))
}

/// Splits a `PATH` variable.
#[must_use]
pub fn split_path(path: Option<OsString>) -> Vec<PathBuf> {
    path.map(|path| std::env::split_paths(&path).filter(|folder| folder.is_absolute()).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engine_and_version_by_their_own_word() {
        let maria = "/usr/sbin/mariadbd  Ver 10.11.6-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64 (Debian 12)";
        assert_eq!(stated(maria), Some((Engine::MariaDb, "10.11.6".to_owned())));
        let mysql = "/usr/sbin/mysqld  Ver 8.0.36-0ubuntu0.22.04.1 for Linux on x86_64 ((Ubuntu))";
        assert_eq!(stated(mysql), Some((Engine::MySql, "8.0.36".to_owned())));
        assert_eq!(stated("hello"), None);
    }

    #[test]
    fn a_folder_without_servers_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let search = Search { servers: Some(folder.path().to_owned()), ..Search::default() };
        let error = Install::find(&search, None).unwrap_err();
        assert!(error.to_string().contains(&folder.path().display().to_string()), "{error}");
        assert!(error.hint().contains("make servers"));
    }
}
