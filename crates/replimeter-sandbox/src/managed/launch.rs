//! Starts a supervisor and waits for its report.

use std::{
    ffi::OsString,
    io::{self, BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::ManagedRecord;
use crate::{error::SandboxError, process};

/// The report of a supervisor on its standard output, sent once.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LaunchReport {
    /// The sandbox is ready.
    Ready(Box<ManagedRecord>),
    /// It could not be started.
    Failed {
        /// Why.
        message: String,
        /// The suggested remedy.
        hint: String,
        /// Whether the user interrupted it.
        interrupted: bool,
    },
}

/// Starts a supervisor: `program` with `arguments`, with `order` on its standard input and only `environment` as its environment.
/// It belongs to no terminal and outlives this process; but until it has reported that the sandbox is ready and has received the
/// confirmation to continue, the end of this process ends it, too.
///
/// # Errors
/// When it cannot be started or ends without a report.
pub fn launch(
    program: &Path,
    arguments: &[&str],
    environment: &[(&str, OsString)],
    order: &str,
    stop: &AtomicBool,
) -> Result<LaunchReport, SandboxError> {
    let spawn = |source| SandboxError::Spawn {
        program: program.display().to_string(),
        source,
    };
    let mut command = process::command(program);
    command
        .args(arguments)
        .envs(environment.iter().map(|(name, value)| (name, value)));
    detach(&mut command);
    let mut child = command.spawn().map_err(spawn)?;
    let (input, output) = (child.stdin.take(), child.stdout.take());
    let (Some(mut input), Some(output)) = (input, output) else {
        return Err(spawn(io::Error::other(
            "it has no standard input or output",
        )));
    };
    input
        .write_all(format!("{order}\n").as_bytes())
        .map_err(spawn)?;
    let mut input = Some(input);
    let line = first_line(output, &mut input, stop).map_err(spawn)?;
    match serde_json::from_str::<LaunchReport>(&line) {
        Ok(LaunchReport::Ready(record)) => {
            let Some(mut input) = input else {
                let _ = child.wait();
                return Err(SandboxError::Interrupted);
            };
            input.write_all(b"go on\n").map_err(spawn)?;
            Ok(LaunchReport::Ready(record))
        }
        Ok(failed) => {
            let _ = child.wait();
            Ok(failed)
        }
        Err(_) => Err(died(&mut child)),
    }
}

/// Detaches a command from the terminal and from everything else inherited but its standard input
/// and output.
fn detach(command: &mut Command) {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .current_dir("/");
    #[allow(
        unsafe_code,
        reason = "the supervisor must leave the terminal's session, and what it inherited, between fork and exec"
    )]
    // SAFETY: both calls are async-signal-safe and allocate nothing.
    unsafe {
        command.pre_exec(|| {
            // It outlives the caller: an inherited lock or pipe must not stay open in it. Kernels
            // before 5.11 refuse, and then it stays open.
            let _ = libc::syscall(
                libc::SYS_close_range,
                3,
                libc::c_uint::MAX,
                libc::CLOSE_RANGE_CLOEXEC,
            );
            rustix::process::setsid()
                .map(|_| ())
                .map_err(io::Error::from)
        });
    }
}

/// Returns the first line of a supervisor's output, empty when it ended without one. Its input is
/// closed when the user interrupts, which makes it end, too.
fn first_line(
    output: ChildStdout,
    input: &mut Option<ChildStdin>,
    stop: &AtomicBool,
) -> io::Result<String> {
    let (said, hear) = mpsc::channel();
    thread::spawn(move || {
        let mut line = String::new();
        let read = BufReader::new(output).read_line(&mut line).map(|_| line);
        let _ = said.send(read);
    });
    loop {
        match hear.recv_timeout(Duration::from_millis(50)) {
            Ok(line) => return line,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                if stop.load(Ordering::Relaxed) {
                    *input = None;
                }
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(String::new()),
        }
    }
}

fn died(child: &mut Child) -> SandboxError {
    let status = child
        .wait()
        .map_or_else(|error| error.to_string(), |status| status.to_string());
    SandboxError::Managed {
        name: "supervisor".to_owned(),
        state: format!("it ended without an error message ({status})"),
        hint: "check whether it was killed or the machine ran out of memory".to_owned(),
    }
}
