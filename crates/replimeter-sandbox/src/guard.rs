//! A guard for sandboxes whose servers start programs of their own. The kernel ends
//! a server with the tool, but not a state transfer that the server has started; the
//! guard notices the tool's end, however it comes, and ends what is left.

use std::{
    io::{self, Read},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, Stdio},
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use crate::process::{self, kill_marked};

/// For how long the guard looks for what is left.
const LOOK: Duration = Duration::from_secs(10);
/// How long nothing must have been found.
const QUIET: Duration = Duration::from_millis(300);

/// How the guard is started: this program with a hidden command.
#[derive(Clone, Debug)]
pub struct GuardProgram {
    /// The program.
    pub program: PathBuf,
    /// Arguments in front of the token.
    pub arguments: Vec<String>,
}

/// A running guard; it goes when this is ended or dropped.
#[derive(Debug, Default)]
pub(crate) struct Guard {
    child: Mutex<Option<Child>>,
}

impl Guard {
    /// Starts the guard of what carries this token.
    pub(crate) fn start(&self, program: &GuardProgram, token: &str) -> io::Result<()> {
        let mut command = process::command(&program.program);
        command
            .args(&program.arguments)
            .arg(token)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir("/")
            // What ends the tool's group must not end its guard too.
            .process_group(0);
        let child = command.spawn()?;
        *self
            .child
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = Some(child);
        Ok(())
    }

    /// Lets the guard go: nothing is left to watch.
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

/// The guard itself: waits until `tool` says nothing more, then ends everything that
/// carries its sandbox's token.
pub fn watch(token: &str, tool: &mut dyn Read) {
    // No sandbox has another; nothing else may be hit.
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
    while began.elapsed() < LOOK && quiet_since.elapsed() < QUIET {
        if kill_marked(token) > 0 {
            quiet_since = Instant::now();
        }
        thread::sleep(Duration::from_millis(20));
    }
}
