//! Settings of a sandbox, and its server programs.

use std::path::{Path, PathBuf};

use replimeter_model::{
    engine::Engine,
    sandbox::SandboxSpec,
    shape::{Mode, Shape},
};

use crate::{
    binaries::{Install, Search},
    capabilities::Capability,
    error::SandboxError,
    home::Home,
    reaper::ReaperProgram,
};

/// Settings of a sandbox.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The servers and their replication.
    pub spec: SandboxSpec,
    /// Where to look for binaries.
    pub search: Search,
    /// The private folder.
    pub home: Home,
    /// Ends processes started by servers when the tool is killed; none when `None`.
    pub reaper: Option<ReaperProgram>,
}

impl Settings {
    /// Returns settings with only a shape.
    #[must_use]
    pub fn of(shape: Shape, search: Search, home: Home) -> Self {
        Self {
            spec: SandboxSpec::of(shape),
            search,
            home,
            reaper: None,
        }
    }
}

/// The binaries of a sandbox.
pub(crate) struct SandboxInstalls {
    /// Of the primary, or of every member.
    pub(crate) primary: Install,
    /// Of the replicas.
    pub(crate) replica: Install,
    /// The stamp library, when it is to be loaded.
    pub(crate) udf: Option<PathBuf>,
}

/// Returns the capability that a mode needs.
fn capability(mode: Mode) -> Capability {
    match mode {
        Mode::None | Mode::Async => Capability::Async,
        Mode::SemiSync => Capability::SemiSync,
        Mode::Chain => Capability::Chain,
        Mode::Galera => Capability::Galera,
        Mode::Group => Capability::Group,
    }
}

impl SandboxInstalls {
    /// Returns the best servers that support the request.
    pub(crate) fn find(settings: &Settings) -> Result<Self, SandboxError> {
        let spec = &settings.spec;
        let (engine, capability) = (spec.shape.engine(), capability(spec.shape.mode()));
        let primary = Install::pick(&settings.search, engine, None, capability)?;
        let replica = match &spec.replica_server {
            None => primary.clone(),
            // A folder, or the prefix of a version.
            Some(wanted) if !is_number(wanted) && Path::new(wanted).is_dir() => {
                let search = Search {
                    servers: Some(PathBuf::from(wanted)),
                    ..settings.search.clone()
                };
                Install::pick(&search, Some(primary.engine), None, capability).or_else(|error| {
                    Install::pick(&search, None, None, capability).map_err(|_| error)
                })?
            }
            Some(wanted) => Install::pick(
                &settings.search,
                Some(primary.engine),
                Some(wanted),
                capability,
            )?,
        };
        if replica.engine != primary.engine {
            return Err(SandboxError::Impossible {
                what: format!(
                    "{} cannot replicate from {} by GTID",
                    replica.engine.product(),
                    primary.engine.product()
                ),
                hint: "choose a server of the same engine for the replicas".to_owned(),
            });
        }
        if spec.wait_for_replicas.is_some_and(|wanted| wanted > 1)
            && primary.engine == Engine::MariaDb
        {
            return Err(SandboxError::Impossible {
                what: "MariaDB waits for one replica only".to_owned(),
                hint: "use mysql/semi-sync:N to wait for several replicas".to_owned(),
            });
        }
        if spec.federated && primary.engine == Engine::MariaDb {
            for install in [&primary, &replica] {
                install
                    .capabilities
                    .require(Capability::Federated)
                    .map_err(|missing| SandboxError::Impossible {
                        what: format!(
                            "{} {} has no FEDERATED engine",
                            install.engine.product(),
                            install.version
                        ),
                        hint: missing.hint,
                    })?;
            }
        }
        let udf = spec.udf.then(|| library(&settings.search)).transpose()?;
        Ok(Self {
            primary,
            replica,
            udf,
        })
    }
}

/// Returns the path of the stamp library.
fn library(search: &Search) -> Result<PathBuf, SandboxError> {
    search.udf.iter().find(|path| path.is_file()).cloned().ok_or_else(|| {
        let searched: Vec<String> = search.udf.iter().map(|path| path.display().to_string()).collect();
        SandboxError::Impossible {
            what: format!("the library of NOW_USEC() was not found; looked for {}", searched.join(", ")),
            hint: "build it with `cargo build --release` (make build), or name it with REPLIMETER_UDF"
                .to_owned(),
        }
    })
}

/// Returns whether a text can only be a version.
fn is_number(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.')
}
