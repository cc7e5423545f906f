//! Settings of a sandbox, and its server programs.

use std::path::{Path, PathBuf};

use replimeter_engine::Connections;
use replimeter_model::{
    engine::Engine, replication::Mode, sandbox::SandboxSpec, server_option::ServerOption,
    shape::Shape,
};

use crate::{
    binaries::{self, Install, Search},
    capabilities::Capability,
    engine,
    error::SandboxError,
    home::Home,
    reaper::ReaperProgram,
    registry::RunningSandboxes,
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
    /// The connections of the run.
    pub connections: Connections,
    /// The running sandboxes of the program, which it joins.
    pub running: RunningSandboxes,
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
            connections: Connections::default(),
            running: RunningSandboxes::default(),
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
            Some(wanted)
                if wanted.contains('/') || !is_number(wanted) && Path::new(wanted).is_dir() =>
            {
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

impl SandboxInstalls {
    /// Checks that the servers accept their options; starts nothing. MySQL reports unknown names at its start only.
    ///
    /// # Errors
    /// With the server's message, when an option lacks its value or has an impossible one.
    pub(crate) fn check_options(&self, settings: &Settings) -> Result<(), SandboxError> {
        let names = settings.spec.shape.nodes();
        let on_replicas = |name: &&String| name.as_str() != names[0];
        for (install, runs_there) in [(&self.primary, false), (&self.replica, true)] {
            let servers: Vec<&String> = names
                .iter()
                .filter(|name| self.primary == self.replica || on_replicas(name) == runs_there)
                .collect();
            let options: Vec<ServerOption> = settings
                .spec
                .server_options
                .iter()
                .filter(|option| servers.iter().any(|name| option.is_for(name)))
                .map(|option| option.option.clone())
                .collect();
            if options.is_empty() {
                continue;
            }
            let arguments = engine::semi_sync_arguments(install);
            let nowhere = settings.home.servers().join("none");
            let command = || engine::parse_options(install, &arguments, &options, &nowhere);
            if let Some(complaint) =
                binaries::complaint(&install.program, command, settings.home.user())
            {
                return Err(SandboxError::Impossible {
                    what: format!(
                        "{} {} does not accept the server options: {complaint}",
                        install.engine.product(),
                        install.version
                    ),
                    hint: "write --server-option NAME=VALUE with a name and value of the server's manual, such as sync_binlog=1".to_owned(),
                });
            }
            if self.primary == self.replica {
                break;
            }
        }
        Ok(())
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
