//! Requests to a supervisor, over the socket in its sandbox's folder.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Write},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use crate::{
    error::SandboxError,
    home,
    network::{LinkChange, LinkState},
};

/// The socket's name.
pub(super) const SOCKET: &str = "control.sock";
/// Timeout of an answer.
const ANSWER: Duration = Duration::from_secs(10);
/// Timeout for ending everything.
const ENDING: Duration = Duration::from_secs(90);

/// Requests to a supervisor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SupervisorRequest {
    /// Report the state of servers and links.
    Status,
    /// End the sandbox.
    Down,
    /// Change a replication link, or all of them.
    Link {
        /// The link's name; every link when `None`.
        link: Option<String>,
        /// The change.
        change: LinkChange,
    },
}

/// State of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeState {
    /// Its name.
    pub name: String,
    /// How it ended; `None` while it runs.
    pub ended: Option<String>,
}

/// A supervisor's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SupervisorResponse {
    /// Why it did not fulfill the request.
    pub error: Option<String>,
    /// Its servers.
    pub nodes: Vec<NodeState>,
    /// Its links.
    pub links: Vec<LinkState>,
}

/// Returns a path to the socket that is short enough for a socket address, however deep the folder
/// is. Valid while the folder is open.
pub(super) fn short_path(folder: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", folder.as_raw_fd()))
}

fn connect(folder: &Path) -> io::Result<UnixStream> {
    let open = File::open(folder)?;
    let stream = UnixStream::connect(short_path(&open))?;
    stream.set_read_timeout(Some(ANSWER))?;
    stream.set_write_timeout(Some(ANSWER))?;
    Ok(stream)
}

fn exchange(
    stream: &mut UnixStream,
    question: &SupervisorRequest,
) -> io::Result<SupervisorResponse> {
    let mut text = serde_json::to_string(question)?;
    text.push('\n');
    stream.write_all(text.as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

/// Returns whether a process has ended: its handle becomes readable.
fn has_ended(process: &OwnedFd) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut polled = [PollFd::new(process, PollFlags::IN)];
    matches!(
        poll(
            &mut polled,
            Some(&Timespec {
                tv_sec: 0,
                tv_nsec: 0
            })
        ),
        Ok(1)
    )
}

/// Sends a request to a supervisor.
pub(super) fn ask(
    folder: &Path,
    name: &str,
    question: &SupervisorRequest,
) -> Result<SupervisorResponse, SandboxError> {
    let answer = connect(folder)
        .and_then(|mut stream| exchange(&mut stream, question))
        .map_err(|error| SandboxError::Managed {
            name: name.to_owned(),
            state: format!("its supervisor does not answer: {error}"),
            hint: format!("end it with `replimeter sandbox down {name}` if it hangs"),
        })?;
    match answer.error {
        Some(state) => Err(SandboxError::Managed {
            name: name.to_owned(),
            state,
            hint: "run `replimeter sandbox list`".to_owned(),
        }),
        None => Ok(answer),
    }
}

/// Makes a supervisor end its sandbox, by force when it does not respond, and waits until it has
/// ended.
pub(super) fn end(folder: &Path, name: &str) -> Result<(), SandboxError> {
    let mut supervisor: Option<OwnedFd> = None;
    let began = Instant::now();
    let mut asked = began;
    let mut forced = false;
    loop {
        if supervisor.is_none() {
            if !home::held(folder)? {
                break;
            }
            // One that is starting does not listen yet.
            let connected = connect(folder);
            if matches!(&connected, Err(error) if error.kind() == io::ErrorKind::PermissionDenied) {
                return Err(SandboxError::Managed {
                    name: name.to_owned(),
                    state: "it belongs to another user".to_owned(),
                    hint: "end it as the user who started it".to_owned(),
                });
            }
            if let Ok(mut stream) = connected {
                // The kernel knows which process listens; a number from a file could by now be another
                // process's.
                supervisor = rustix::net::sockopt::socket_peercred(&stream)
                    .ok()
                    .and_then(|peer| pidfd_open(peer.pid, PidfdFlags::empty()).ok());
                asked = Instant::now();
                let _ = exchange(&mut stream, &SupervisorRequest::Down);
            }
        } else if supervisor.as_ref().is_some_and(has_ended) {
            break;
        }
        if let Some(supervisor) = &supervisor
            && asked.elapsed() > ANSWER
            && !forced
            && home::held(folder)?
        {
            // The lock is still held, so the process that listened when the handle was opened is still the
            // supervisor.
            forced = true;
            let _ = pidfd_send_signal(supervisor, Signal::KILL);
        }
        if began.elapsed() > ENDING {
            return Err(SandboxError::Managed {
                name: name.to_owned(),
                state: "its supervisor does not end".to_owned(),
                hint: format!(
                    "find the process that holds {}/lock (fuser, lsof) and end it",
                    folder.display()
                ),
            });
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
