//! The supervisor: the process that owns a managed sandbox.

use std::{
    fs::{self, DirBuilder, File},
    io::{self, BufRead, BufReader, Write},
    os::{
        fd::AsRawFd,
        unix::{
            fs::{DirBuilderExt, PermissionsExt},
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use super::{
    ManagedNode, ManagedRecord, NodeState, RECORD, SCHEMA, SupervisorConfig, SupervisorRequest,
    SupervisorResponse, TOPOLOGY,
    client::{SOCKET, short_path},
};
use crate::{
    access::{CREDENTIALS, write_private},
    error::SandboxError,
    member::Member,
    sandbox::Sandbox,
    settings::Settings,
};

/// Timeout for a client's request.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);

/// Starts the sandbox, reports `ready` (with its record, as a line of JSON), and runs it until a
/// request or `stop` ends it.
///
/// # Errors
/// When it could not be started, or not be removed afterwards.
pub fn supervise(
    order: &SupervisorConfig,
    settings: &Settings,
    now: &dyn Fn() -> String,
    stop: &AtomicBool,
    ready: &mut dyn FnMut(&ManagedRecord) -> io::Result<()>,
) -> Result<(), SandboxError> {
    let mut sandbox = Sandbox::start_named(settings, Some(&order.name), stop)?;
    let folder = sandbox.folder().to_owned();
    let disk = |operation| SandboxError::disk(operation, &folder);
    super::clients::write_client_files(&sandbox, sandbox.install())?;
    let record = record(order, &sandbox, now());
    let text = serde_json::to_string_pretty(&record)
        .map_err(|error| disk("write the record in")(error.into()))?;
    let listener = listen_privately(&folder).map_err(disk("listen in"))?;
    listener.set_nonblocking(true).map_err(disk("listen in"))?;
    write_private(&folder.join(TOPOLOGY), &topology(&record))
        .map_err(disk("write the topology in"))?;
    // Atomic: its presence means that all files are complete.
    write_private(&folder.join("record.partial"), &text)
        .and_then(|()| fs::rename(folder.join("record.partial"), folder.join(RECORD)))
        .map_err(disk("write the record in"))?;
    ready(&record).map_err(disk("report"))?;
    let mut waiting: Option<UnixStream> = None;
    while !stop.load(Ordering::Relaxed) {
        match wait(&listener) {
            Ok(Some(mut stream)) => match question(&mut stream) {
                Ok(SupervisorRequest::Down) => {
                    waiting = Some(stream);
                    break;
                }
                Ok(question) => {
                    let _ = reply(&mut stream, &answer(&mut sandbox, &question));
                }
                Err(error) => {
                    let _ = reply(
                        &mut stream,
                        &SupervisorResponse {
                            error: Some(error.to_string()),
                            ..SupervisorResponse::default()
                        },
                    );
                }
            },
            Ok(None) => {}
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
    let ended = sandbox.close();
    if let Some(mut stream) = waiting {
        let error = ended.as_ref().err().map(ToString::to_string);
        let _ = reply(
            &mut stream,
            &SupervisorResponse {
                error,
                ..SupervisorResponse::default()
            },
        );
    }
    ended
}

/// Listens at the socket of a sandbox's folder. A user who can write to it can end the sandbox, so it appears there when it is private.
fn listen_privately(folder: &Path) -> io::Result<UnixListener> {
    let private = folder.join("control.partial");
    DirBuilder::new().mode(0o700).create(&private)?;
    let listener = UnixListener::bind(short_path(&File::open(&private)?))?;
    let socket = private.join(SOCKET);
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o600))?;
    fs::rename(socket, folder.join(SOCKET))?;
    fs::remove_dir(private)?;
    Ok(listener)
}

/// Returns the next client, or `None` after a while, so that `stop` is checked.
fn wait(listener: &UnixListener) -> io::Result<Option<UnixStream>> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut polled = [PollFd::new(listener, PollFlags::IN)];
    let timeout = Timespec {
        tv_sec: 0,
        tv_nsec: 100_000_000,
    };
    if matches!(
        poll(&mut polled, Some(&timeout)),
        Ok(0) | Err(rustix::io::Errno::INTR)
    ) {
        return Ok(None);
    }
    match listener.accept() {
        Ok((stream, _)) => Ok(Some(stream)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

fn question(stream: &mut UnixStream) -> io::Result<SupervisorRequest> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(CLIENT_TIMEOUT))?;
    stream.set_write_timeout(Some(CLIENT_TIMEOUT))?;
    let mut line = String::new();
    BufReader::new(io::Read::take(&mut *stream, 64 * 1024)).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

fn reply(stream: &mut UnixStream, answer: &SupervisorResponse) -> io::Result<()> {
    let mut text = serde_json::to_string(answer)?;
    text.push('\n');
    stream.write_all(text.as_bytes())
}

fn answer(sandbox: &mut Sandbox, question: &SupervisorRequest) -> SupervisorResponse {
    let error = match question {
        SupervisorRequest::Link { link, change } => {
            sandbox.change_link(link.as_deref(), change).err()
        }
        SupervisorRequest::Status | SupervisorRequest::Down => None,
    };
    let nodes = sandbox.members().iter().enumerate();
    let nodes = nodes.map(|(index, member)| NodeState {
        name: member.node.name.clone(),
        ended: sandbox.ended(index),
    });
    SupervisorResponse {
        error,
        nodes: nodes.collect(),
        links: sandbox.links(),
    }
}

fn record(order: &SupervisorConfig, sandbox: &Sandbox, since: String) -> ManagedRecord {
    let node = |member: &Member| ManagedNode {
        name: member.node.name.clone(),
        role: member.role,
        source: member.source.clone(),
        port: member.node.endpoint.port,
        socket: member.socket(),
        log: member.log(),
        version: member.version.clone(),
        // Through this process's open file, which exists while the lock is held.
        namespace: member.node.namespace.as_ref().map(|namespace| {
            PathBuf::from(format!(
                "/proc/{}/fd/{}",
                std::process::id(),
                namespace.file().as_raw_fd()
            ))
        }),
    };
    ManagedRecord {
        schema: SCHEMA.to_owned(),
        name: order.name.clone(),
        shape: order.spec.shape.to_string(),
        since,
        nodes: sandbox.members().iter().map(node).collect(),
        links: sandbox.links().into_iter().map(|link| link.name).collect(),
        sandbox: sandbox.record().clone(),
    }
}

/// Returns the servers as a topology file for `--topology`.
fn topology(record: &ManagedRecord) -> String {
    let mut text = format!(
        "# The sandbox {} ({}); user and password are in {CREDENTIALS}.\n",
        record.name, record.shape
    );
    if record.nodes.iter().any(|node| node.namespace.is_some()) {
        text.push_str("# Its members have networks of their own: connections through the link include its delay. To\n");
        text.push_str(&format!(
            "# reach them without it: --sandbox {}\n",
            record.name
        ));
    }
    text.push_str(&format!("defaults-file = \"{CREDENTIALS}\"\n"));
    for node in &record.nodes {
        text.push_str(&format!(
            "\n[[node]]\nname = \"{}\"\nrole = \"{}\"\n",
            node.name,
            node.role.name()
        ));
        if let Some(source) = &node.source {
            text.push_str(&format!("source = \"{source}\"\n"));
        }
        text.push_str(&format!(
            "url = \"mysql://127.0.0.1:{}/?ssl-mode=disabled\"\n",
            node.port
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_socket_appears_when_it_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let seen = std::thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                loop {
                    if let Ok(meta) = fs::symlink_metadata(folder.path().join(SOCKET)) {
                        return meta.permissions().mode() & 0o777;
                    }
                }
            });
            let listener = listen_privately(folder.path()).unwrap();
            let seen = watcher.join().unwrap();
            UnixStream::connect(folder.path().join(SOCKET)).unwrap();
            drop(listener);
            seen
        });
        assert_eq!(seen, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
