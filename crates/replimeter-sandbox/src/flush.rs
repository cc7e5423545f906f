//! Slows the flushes of servers to the disk, by a library that they load before their own.

use std::{
    fs,
    io::Write,
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    path::{Path, PathBuf},
    process::Command,
};

use replimeter_model::time_span::TimeSpan;

use crate::error::SandboxError;

/// The library (`preload/flush.rs`).
const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/flush.so"));
/// Its name in a sandbox's folder.
const NAME: &str = "flush.so";
/// The least time of a flush for it, in nanoseconds.
const NANOS: &str = "REPLIMETER_FLUSH_NS";

/// The library in a sandbox's folder, and the least time of a flush.
#[derive(Clone, Debug)]
pub(crate) struct FlushDelay {
    library: PathBuf,
    least: TimeSpan,
}

impl FlushDelay {
    /// Writes the library into a sandbox's folder, which is removed with it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn install(folder: &Path, least: TimeSpan) -> Result<Self, SandboxError> {
        let library = folder.join(NAME);
        fs::File::create_new(&library)
            .and_then(|mut file| file.write_all(LIBRARY))
            .map_err(SandboxError::disk("write", &library))?;
        fs::set_permissions(&library, fs::Permissions::from_mode(0o644))
            .map_err(SandboxError::disk("set the permissions of", &library))?;
        Ok(Self { library, least })
    }

    /// Makes a server load it.
    pub(crate) fn prepare(&self, command: &mut Command) {
        let path = self.library.as_os_str().as_bytes();
        // The loader separates names by these and has no escape, so the server begins in the library's folder.
        let preload = match self.library.parent() {
            Some(folder) if path.iter().any(|byte| b" :".contains(byte)) => {
                command.current_dir(folder);
                Path::new(".").join(NAME)
            }
            _ => self.library.clone(),
        };
        command
            .env("LD_PRELOAD", preload)
            .env(NANOS, self.least.0.as_nanos().to_string());
    }

    /// Checks that a running server has loaded it: a loader that cannot continues without.
    ///
    /// # Errors
    /// When it has not.
    pub(crate) fn check(&self, server: &str, pid: u32) -> Result<(), SandboxError> {
        let maps = PathBuf::from(format!("/proc/{pid}/maps"));
        let loaded = fs::read_to_string(&maps).map_err(SandboxError::disk("read", &maps))?;
        let library = self.library.display().to_string();
        if loaded.lines().any(|line| line.ends_with(&library)) {
            return Ok(());
        }
        Err(SandboxError::Impossible {
            what: format!("{server} did not load the library that slows its flushes"),
            hint: "use servers that are linked dynamically for this machine, in a folder of which programs may be executed; or remove --flush-delay".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{
        thread,
        time::{Duration, Instant},
    };

    use super::*;

    #[test]
    fn library_is_loaded_from_a_folder_with_any_name() {
        for name in ["plain", "with space", "a:b"] {
            let outer = tempfile::tempdir().unwrap();
            let folder = outer.path().join(name);
            fs::create_dir(&folder).unwrap();
            let delay = FlushDelay::install(&folder, TimeSpan(Duration::from_millis(1))).unwrap();
            let mut command = Command::new("sleep");
            delay.prepare(command.arg("3600"));
            let mut process = command.spawn().unwrap();
            // The loader maps it soon after the start.
            let deadline = Instant::now() + Duration::from_secs(60);
            let mut loaded = delay.check("sleep", process.id());
            while loaded.is_err() && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(5));
                loaded = delay.check("sleep", process.id());
            }
            process.kill().unwrap();
            process.wait().unwrap();
            assert!(loaded.is_ok(), "{name}: {loaded:?}");
        }
    }
}
