//! A reaper for sandboxes whose servers start programs, or have control groups. The kernel ends a server together with the
//! tool, but not a state transfer that the server started, nor its control group; the reaper detects the end of the tool,
//! regardless of the cause, ends the remaining processes, and removes the groups.

use std::{
    io::{self, Read},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, Stdio},
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use crate::{
    cpus::remove_groups_of,
    process::{self, kill_by_token},
};

/// How long the reaper searches for processes.
const MAX_SEARCH: Duration = Duration::from_secs(10);
/// How long the search must find none.
const QUIET: Duration = Duration::from_millis(300);

/// How to start the reaper: this program with a hidden command.
#[derive(Clone, Debug)]
pub struct ReaperProgram {
    /// The program.
    pub program: PathBuf,
    /// Arguments before the token.
    pub arguments: Vec<String>,
}

impl ReaperProgram {
    /// Starts the program in its own process group, which a signal to that of the tool does not reach, with a pipe as its
    /// standard input.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn spawn(&self, more: &[&str]) -> io::Result<Child> {
        process::command(&self.program)
            .args(&self.arguments)
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir("/")
            .process_group(0)
            .spawn()
    }
}

/// A running reaper; it ends when this is ended or dropped.
#[derive(Debug, Default)]
pub(crate) struct Reaper {
    child: Mutex<Option<Child>>,
}

impl Reaper {
    /// Starts the reaper for processes with this token.
    pub(crate) fn start(&self, program: &ReaperProgram, token: &str) -> io::Result<()> {
        let child = program.spawn(&[token])?;
        *self
            .child
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = Some(child);
        Ok(())
    }

    /// Ends the reaper: there are no processes to watch.
    pub(crate) fn end(&self) {
        if let Some(mut child) = self
            .child
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .take()
        {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Runs the reaper: waits until `tool` is closed, then ends all processes with its sandbox's token, and removes its control groups.
pub fn watch(token: &str, tool: &mut dyn Read) {
    // A sandbox's token has this length; other processes must not be affected.
    if token.len() != 32 {
        return;
    }
    let mut ignored = [0u8; 64];
    loop {
        match tool.read(&mut ignored) {
            Ok(0) => break,
            Err(error) if error.kind() != io::ErrorKind::Interrupted => break,
            _ => {}
        }
    }
    let began = Instant::now();
    let mut quiet_since = began;
    while began.elapsed() < MAX_SEARCH && quiet_since.elapsed() < QUIET {
        if kill_by_token(token) > 0 {
            quiet_since = Instant::now();
        }
        thread::sleep(Duration::from_millis(20));
    }
    // A server that ends holds its group for a while.
    while !remove_groups_of(token) && began.elapsed() < MAX_SEARCH {
        thread::sleep(Duration::from_millis(20));
    }
}
