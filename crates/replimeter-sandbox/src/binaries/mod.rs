//! Finds server binaries and their files.

mod examine;
mod folders;
#[cfg(test)]
mod tests;

use std::{
    cmp::Reverse,
    collections::BTreeSet,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use replimeter_model::{engine::Engine, words};

use crate::{
    capabilities::{Capabilities, Capability, version_numbers},
    error::SandboxError,
    process,
};
use folders::{folders, programs};

pub(crate) use examine::complaint;
pub(crate) use folders::{USUAL, own_libraries, programs_of};

/// Where to look.
#[derive(Clone, Debug, Default)]
pub struct Search {
    /// The folder that the user named; then no other is searched.
    pub servers: Option<PathBuf>,
    /// The folders of `PATH`.
    pub path: Vec<PathBuf>,
    /// The folder that `make servers` unpacks into.
    pub private: PathBuf,
    /// Paths of the stamp library; the first that exists is used.
    pub udf: Vec<PathBuf>,
}

words! {
    /// How a server was found.
    pub enum Origin {
        /// In the folder that the user named.
        Named = "named",
        /// On PATH or in a usual folder.
        System = "system",
        /// In the private folder.
        Private = "private",
    }
}

/// A server's binary and the folders that belong to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Install {
    /// Its engine, as the program reports it.
    pub engine: Engine,
    /// Its version, as the program reports it.
    pub version: String,
    /// The binary, links resolved.
    pub program: PathBuf,
    /// `--basedir`.
    pub base: PathBuf,
    /// Messages, character sets and bootstrap SQL.
    pub share: PathBuf,
    /// `--plugin-dir`, when found.
    pub plugins: Option<PathBuf>,
    /// How it was found.
    pub origin: Origin,
    /// Its capabilities.
    pub capabilities: Capabilities,
    /// Its requirements to run.
    surroundings: ServerSupport,
}

/// Files that a server's binary needs to run.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ServerSupport {
    /// The dynamic loader of an unpacked server, when it needs a newer C library than the system's.
    loader: Option<PathBuf>,
    /// Libraries of an unpacked server.
    libraries: Option<PathBuf>,
    /// Where its scripts search for programs: its own folders, then the user's PATH.
    tools: Vec<PathBuf>,
}

/// A file that looks like a server but cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnusableServer {
    /// The program, or the entry of the private folder.
    pub path: PathBuf,
    /// Why not.
    pub cause: String,
    /// The suggested remedy.
    pub hint: String,
}

/// The result of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchResult {
    /// Servers, the best first: MariaDB before MySQL, then the newest first.
    pub installs: Vec<Install>,
    /// Files that could not be used.
    pub unusable: Vec<UnusableServer>,
}

impl ServerSupport {
    fn command(&self, program: &Path) -> Command {
        let mut command = match (&self.loader, &self.libraries) {
            (Some(loader), Some(libraries)) => {
                let mut command = process::command(loader);
                command.arg("--library-path").arg(libraries).arg(program);
                command
            }
            _ => process::command(program),
        };
        command.envs(self.environment());
        command
    }

    /// Returns PATH for the scripts that a server starts (`wsrep_sst_rsync`, which starts `rsync`
    /// and `lsof`), and the library folder of an unpacked server and its tools.
    fn environment(&self) -> Vec<(String, OsString)> {
        let mut environment = Vec::new();
        // PATH cannot contain a folder with a colon in its name.
        if let Ok(path) = std::env::join_paths(&self.tools) {
            environment.push(("PATH".to_owned(), path));
        }
        if let (None, Some(libraries)) = (&self.loader, &self.libraries) {
            environment.push((
                "LD_LIBRARY_PATH".to_owned(),
                libraries.clone().into_os_string(),
            ));
        }
        environment
    }
}

impl Install {
    /// Returns a command that runs the binary, with its own loader if it has one, in a clean
    /// environment that contains its libraries and scripts.
    #[must_use]
    pub fn command(&self) -> Command {
        self.surroundings.command(&self.program)
    }

    /// Returns a command that runs another program of the same installation.
    pub(crate) fn client(&self, program: &Path) -> Command {
        self.surroundings.command(program)
    }

    /// Returns the variables that [`Install::command`] sets, for the server's other
    /// programs.
    #[must_use]
    pub fn environment(&self) -> Vec<(String, OsString)> {
        self.surroundings.environment()
    }

    /// Returns every server found, the best first: MariaDB before MySQL, then the newest first.
    /// Unusable ones are skipped; [`Install::discovery`] lists them.
    #[must_use]
    pub fn all(search: &Search) -> Vec<Self> {
        Self::discovery(search).installs
    }

    /// Returns every server found, and every unusable file that looks like one.
    #[must_use]
    pub fn discovery(search: &Search) -> SearchResult {
        let mut discovery = SearchResult::default();
        let mut seen = BTreeSet::new();
        for (folder, origin) in folders(search, &mut discovery.unusable) {
            for program in programs(&folder) {
                if seen.insert(program.clone()) {
                    match Self::examine(&program, origin, &search.path) {
                        Ok(install) => discovery.installs.push(install),
                        Err(unusable) => discovery.unusable.push(unusable),
                    }
                }
            }
        }
        // Stable: of two equal ones the system's is first.
        discovery.installs.sort_by_key(|install| {
            (
                install.engine != Engine::MariaDb,
                Reverse(version_numbers(&install.version)),
            )
        });
        discovery
    }

    /// Returns the best server of the engine (of any when `None`).
    ///
    /// # Errors
    /// When none is found: the searched places, and what could not be used.
    pub fn find(search: &Search, engine: Option<Engine>) -> Result<Self, SandboxError> {
        // Every server has this capability.
        Self::pick(search, engine, None, Capability::Async)
    }

    /// Returns the first server found that is of the engine, has a version with this prefix, and
    /// has the capability.
    ///
    /// # Errors
    /// When none is found: the searched places, what was found, or what to install.
    pub(crate) fn pick(
        search: &Search,
        engine: Option<Engine>,
        version: Option<&str>,
        capability: Capability,
    ) -> Result<Self, SandboxError> {
        let discovery = Self::discovery(search);
        let of_engine = || {
            discovery
                .installs
                .iter()
                .filter(|install| engine.is_none_or(|engine| install.engine == engine))
        };
        let mut fitting = of_engine()
            .filter(|install| version.is_none_or(|version| is_version(&install.version, version)));
        let Some(first) = fitting.clone().next() else {
            return Err(match version {
                None => discovery.none(search, engine),
                Some(version) => {
                    let known: Vec<String> = discovery
                        .installs
                        .iter()
                        .map(|install| format!("{} {}", install.engine.product(), install.version))
                        .collect();
                    SandboxError::Impossible {
                        what: format!(
                            "no server for the replicas: `{version}` is neither a folder nor a version of {} that was found",
                            engine.map_or("a server", Engine::product)
                        ),
                        hint: format!(
                            "found: {}; `replimeter servers` lists them, `replimeter servers add` adds one",
                            known.join(", ")
                        ),
                    }
                }
            });
        };
        if let Some(able) = fitting.find(|install| install.capabilities.has(capability)) {
            return Ok(able.clone());
        }
        let lacking = first.capabilities.require(capability).err();
        let hint = lacking.map_or_else(String::new, |missing| missing.hint);
        Err(SandboxError::Impossible {
            what: format!(
                "{} {} ({}) has no {}",
                first.engine.product(),
                first.version,
                first.program.display(),
                capability.name()
            ),
            hint,
        })
    }
}

/// Returns whether a version equals the given one, or belongs to that series: 10.11 is not 10.1.
fn is_version(version: &str, wanted: &str) -> bool {
    version
        .strip_prefix(wanted)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

impl SearchResult {
    /// Returns the error for a search that found nothing suitable (any engine when `None`).
    #[must_use]
    pub fn none(&self, search: &Search, engine: Option<Engine>) -> SandboxError {
        if let Some(folder) = &search.servers
            && let Err(source) = fs::read_dir(folder)
        {
            let path = folder.clone();
            return SandboxError::Folder { path, source };
        }
        SandboxError::NoBinary {
            wanted: engine
                .map_or("MariaDB or MySQL", Engine::product)
                .to_owned(),
            searched: match &search.servers {
                Some(servers) => vec![servers.display().to_string()],
                None => vec![
                    "PATH".to_owned(),
                    USUAL.join(", "),
                    search.private.display().to_string(),
                ],
            },
            unusable: self
                .unusable
                .iter()
                .map(|found| format!("{}: {}", found.path.display(), found.cause))
                .collect(),
        }
    }
}

/// Splits a `PATH` variable.
#[must_use]
pub fn split_path(path: Option<OsString>) -> Vec<PathBuf> {
    path.map(|path| {
        std::env::split_paths(&path)
            .filter(|folder| folder.is_absolute())
            .collect()
    })
    .unwrap_or_default()
}
