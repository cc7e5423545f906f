//! Initialised data directories, made once and copied ever after.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use replimeter_model::target::ServerOption;
use sha2::{Digest, Sha256};

use crate::{
    binaries::Install,
    engine,
    error::SandboxError,
    home::{Home, Place},
    process,
    registry::Servers,
};

/// Changes when seeds are made differently, so that old ones are not used.
const FORMAT: u32 = 1;
/// Marks a seed that was written to its end.
const COMPLETE: &str = "replimeter-seed-complete";

/// A data directory to copy.
pub(crate) struct Seed {
    /// The folder.
    pub(crate) path: PathBuf,
    /// Whether an earlier run had made it.
    pub(crate) from_cache: bool,
}

/// The seed for this binary and these options; made when there is none.
pub(crate) fn ensure(
    home: &Home,
    place: &Place,
    servers: &Servers,
    install: &Install,
    options: &[ServerOption],
    stop: &AtomicBool,
) -> Result<Seed, SandboxError> {
    let shaping: Vec<ServerOption> = options.iter().filter(|option| engine::shapes_seed(option)).cloned().collect();
    let path = home.seeds().join(key(install, &shaping)?);
    if path.join(COMPLETE).exists() {
        return Ok(Seed { path, from_cache: true });
    }
    // Made inside the sandbox's own folder, so that a killed run leaves nothing elsewhere.
    let scratch = place.path.join("seed");
    let data = scratch.join("data");
    fs::create_dir_all(&data).map_err(SandboxError::disk("create the folder", &data))?;
    for folder in [&scratch, &data] {
        let mode = fs::Permissions::from_mode(if folder == &scratch { 0o711 } else { 0o700 });
        fs::set_permissions(folder, mode).map_err(SandboxError::disk("set the permissions of", folder))?;
    }
    home.user().own(&data).map_err(SandboxError::disk("change the owner of", &data))?;
    let log = scratch.join("log");
    let (mut command, input) = engine::initialise(install, &data, &shaping, &scratch)
        .map_err(SandboxError::disk("prepare the bootstrap in", &scratch))?;
    process::log_to(&mut command, &log).map_err(SandboxError::disk("open the log", &log))?;
    if let Some(input) = input {
        command.stdin(input);
    }
    let spawn = |source| SandboxError::Spawn { program: install.program.display().to_string(), source };
    let child = process::spawn(command, home.user()).map_err(spawn)?;
    let number = servers.adopt(child);
    let status = loop {
        if let Some(status) = servers.ended(number) {
            break status;
        }
        if stop.load(Ordering::Relaxed) {
            return Err(SandboxError::Interrupted);
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    if !status.success() {
        return Err(SandboxError::Died {
            node: format!("{} {} (making its data directory)", install.engine.product(), install.version),
            status: process::describe(status),
            log: process::log_tail(&log),
        });
    }
    for transient in ["auto.cnf", "ib_buffer_pool"] {
        // auto.cnf holds the server's UUID, which every copy must have of its own.
        let _ = fs::remove_file(data.join(transient));
    }
    keep(&data, &path)?;
    Ok(Seed { path, from_cache: false })
}

/// Moves a finished data directory into the cache; when another run was first,
/// its seed is as good and ours is dropped with the sandbox.
fn keep(data: &Path, path: &Path) -> Result<(), SandboxError> {
    fs::write(data.join(COMPLETE), b"").map_err(SandboxError::disk("write to", data))?;
    match fs::rename(data, path) {
        Ok(()) => Ok(()),
        Err(_) if path.join(COMPLETE).exists() => Ok(()),
        Err(source) => Err(SandboxError::Disk { doing: "move the seed to", path: path.to_owned(), source }),
    }
}

fn key(install: &Install, shaping: &[ServerOption]) -> Result<String, SandboxError> {
    let meta = fs::metadata(&install.program).map_err(SandboxError::disk("examine", &install.program))?;
    let mut options: Vec<String> = shaping.iter().map(ToString::to_string).collect();
    options.sort();
    let text = format!(
        "{FORMAT}\n{}\n{}\n{}\n{}.{}\n{}",
        install.program.display(),
        install.version,
        meta.len(),
        meta.mtime(),
        meta.mtime_nsec(),
        options.join("\n")
    );
    let digest = Sha256::digest(text.as_bytes());
    let hex: String = digest.iter().take(10).map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{}-{}-{hex}", install.engine.name(), install.version))
}
