//! Initialized data directories (templates), created once and copied from then on.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};

use replimeter_model::server_option::ServerOption;
use sha2::{Digest, Sha256};

use crate::{
    access::write_private,
    binaries::Install,
    copy, engine,
    error::{SandboxError, check_interrupted},
    home::{Home, SandboxFolder},
    ports,
    process::{self, READY},
    registry::Servers,
};

/// Incremented when templates are created differently, so that old ones are not used.
const FORMAT: u32 = 2;
/// Marks a complete template.
const COMPLETE: &str = "replimeter-seed-complete";

/// A data directory to copy.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    /// The folder.
    pub(crate) path: PathBuf,
    /// Whether an earlier run created it.
    pub(crate) from_cache: bool,
}

/// Context for creating a template.
pub(crate) struct TemplateBuilder<'a> {
    /// Where templates are stored.
    pub(crate) home: &'a Home,
    /// The sandbox for which it is created, in whose folder.
    pub(crate) place: &'a SandboxFolder,
    /// Owns the processes.
    pub(crate) servers: &'a Servers,
    /// The options for all servers.
    pub(crate) options: &'a [ServerOption],
    /// Interrupts the creation.
    pub(crate) stop: &'a AtomicBool,
}

impl TemplateBuilder<'_> {
    fn shaping(&self) -> Vec<ServerOption> {
        self.options
            .iter()
            .filter(|option| engine::shapes_template(option))
            .cloned()
            .collect()
    }

    /// Returns the template for this binary and these options; creates it if needed.
    pub(crate) fn plain(&self, install: &Install) -> Result<Template, SandboxError> {
        let shaping = self.shaping();
        let path = self.home.templates().join(key(install, &shaping, "")?);
        if path.join(COMPLETE).exists() {
            return Ok(Template {
                path,
                from_cache: true,
            });
        }
        let (scratch, data) = self.scratch(&path)?;
        copy::empty_folder(&data, self.home.user())?;
        let log = scratch.join("log");
        let (mut command, input) = engine::initialize(install, &data, &shaping, &scratch)
            .map_err(SandboxError::disk("prepare the bootstrap in", &scratch))?;
        process::log_to(&mut command, &log).map_err(SandboxError::disk("open the log", &log))?;
        if let Some(input) = input {
            command.stdin(input);
        }
        let number = self.spawn(install, command)?;
        let status = self.await_end(number, None)?;
        if !status.success() {
            return Err(died(install, status, &log));
        }
        self.finish(&data, path)
    }

    /// Returns the template of a Galera node: a data directory that was a cluster of one node and
    /// was shut down cleanly, so that its clones have the same position and need no state transfer.
    pub(crate) fn galera(&self, install: &Install) -> Result<Template, SandboxError> {
        let library = install.capabilities.galera.clone().unwrap_or_default();
        let path = self.home.templates().join(key(
            install,
            &self.shaping(),
            &format!("galera {}", library.display()),
        )?);
        if path.join(COMPLETE).exists() {
            return Ok(Template {
                path,
                from_cache: true,
            });
        }
        let plain = self.plain(install)?;
        let (scratch, data) = self.scratch(&path)?;
        copy::data(&plain.path, &data, self.home.user())?;
        let log = scratch.join("log");
        let port = ports::reserve().map_err(SandboxError::disk("reserve a port for", &scratch))?;
        let mut command = engine::found_galera(install, &data, &library, port, &self.shaping());
        process::log_to(&mut command, &log).map_err(SandboxError::disk("open the log", &log))?;
        let number = self.spawn(install, command)?;
        let began = Instant::now();
        // It accepts no connections: its log is the only sign of life.
        while !fs::read(&log).is_ok_and(|log| contains(&log, READY_LINE)) {
            if let Some(status) = self.servers.ended(number) {
                return Err(died(install, status, &log));
            }
            check_interrupted(self.stop)?;
            if began.elapsed() > READY {
                return Err(SandboxError::NotReady {
                    node: format!(
                        "{} {} (bootstrapping a Galera cluster)",
                        install.engine.product(),
                        install.version
                    ),
                    seconds: READY.as_secs(),
                    state: "it has not logged that it is ready".to_owned(),
                    log: process::log_tail(&log),
                });
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.servers.request_shutdown(number);
        let status = self.await_end(number, Some((install, &log)))?;
        if !status.success() {
            return Err(died(install, status, &log));
        }
        self.finish(&data, path)
    }

    /// Returns where the template for `path` is created: a folder in the sandbox's own, so that a
    /// killed run leaves nothing elsewhere, with a folder for temporary files; and its data
    /// directory.
    fn scratch(&self, path: &Path) -> Result<(PathBuf, PathBuf), SandboxError> {
        // Each template has its own: primary and replicas may have different binaries of one
        // version.
        let name = path.file_name().unwrap_or_default().display();
        let scratch = self.place.path.join(format!("seed-{name}"));
        fs::create_dir_all(&scratch).map_err(SandboxError::disk("create the folder", &scratch))?;
        fs::set_permissions(&scratch, fs::Permissions::from_mode(0o711))
            .map_err(SandboxError::disk("set the permissions of", &scratch))?;
        let data = scratch.join("data");
        copy::empty_folder(&engine::temporary_folder(&data), self.home.user())?;
        Ok((scratch, data))
    }

    fn spawn(&self, install: &Install, command: Command) -> Result<usize, SandboxError> {
        let spawn = |source| SandboxError::Spawn {
            program: install.program.display().to_string(),
            source,
        };
        Ok(self
            .servers
            .adopt(process::spawn(command, self.home.user(), None).map_err(spawn)?))
    }

    /// Waits for a process; with a timeout when its log is given.
    fn await_end(
        &self,
        number: usize,
        limited: Option<(&Install, &Path)>,
    ) -> Result<ExitStatus, SandboxError> {
        let began = Instant::now();
        loop {
            if let Some(status) = self.servers.ended(number) {
                return Ok(status);
            }
            check_interrupted(self.stop)?;
            if let Some((install, log)) = limited
                && began.elapsed() > READY
            {
                return Err(SandboxError::NotReady {
                    node: format!(
                        "{} {} (initializing its data directory)",
                        install.engine.product(),
                        install.version
                    ),
                    seconds: READY.as_secs(),
                    state: "it does not shut down".to_owned(),
                    log: process::log_tail(log),
                });
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn finish(&self, data: &Path, path: PathBuf) -> Result<Template, SandboxError> {
        // auto.cnf contains the server's UUID, which must differ between copies; the cache of write
        // sets and the view belong to one node.
        for transient in [
            "auto.cnf",
            "ib_buffer_pool",
            "galera.cache",
            "gvwstate.dat",
            "server.pid",
            "server.sock",
        ] {
            let _ = fs::remove_file(data.join(transient));
        }
        keep(data, &path)?;
        Ok(Template {
            path,
            from_cache: false,
        })
    }
}

/// A server's own line in its log, `PROGRAM: ready for connections.`; Galera's line "Synchronized with group, ready for connections" comes
/// before it, when a signal to shut down would be lost.
const READY_LINE: &[u8] = b": ready for connections.";

fn contains(text: &[u8], wanted: &[u8]) -> bool {
    text.windows(wanted.len()).any(|window| window == wanted)
}

fn died(install: &Install, status: ExitStatus, log: &Path) -> SandboxError {
    SandboxError::Died {
        node: format!(
            "{} {} (initializing its data directory)",
            install.engine.product(),
            install.version
        ),
        status: process::describe(status),
        log: process::log_tail(log),
    }
}

/// Moves a finished data directory into the cache; when another run was first, its template is used
/// and this one is removed with the sandbox.
fn keep(data: &Path, path: &Path) -> Result<(), SandboxError> {
    // A template created from another one has the other's mark.
    let _ = fs::remove_file(data.join(COMPLETE));
    write_private(&data.join(COMPLETE), "").map_err(SandboxError::disk("write to", data))?;
    match fs::rename(data, path) {
        Ok(()) => Ok(()),
        Err(_) if path.join(COMPLETE).exists() => Ok(()),
        Err(source) => Err(SandboxError::Disk {
            operation: "move the template to",
            path: path.to_owned(),
            source,
        }),
    }
}

fn key(install: &Install, shaping: &[ServerOption], kind: &str) -> Result<String, SandboxError> {
    let meta =
        fs::metadata(&install.program).map_err(SandboxError::disk("examine", &install.program))?;
    let mut options: Vec<String> = shaping.iter().map(ToString::to_string).collect();
    options.sort();
    let text = format!(
        "{FORMAT}\n{kind}\n{}\n{}\n{}\n{}.{}\n{}",
        install.program.display(),
        install.version,
        meta.len(),
        meta.mtime(),
        meta.mtime_nsec(),
        options.join("\n")
    );
    let digest = Sha256::digest(text.as_bytes());
    let hex: String = digest
        .iter()
        .take(10)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    Ok(format!(
        "{}-{}-{hex}",
        install.engine.name(),
        install.version
    ))
}
