//! Errors of sandboxes, with hints.

use std::{
    io,
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
};

use replimeter_engine::ServerError;

/// A failure to find, start or run a sandbox's servers.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// No server binary was found.
    #[error("no {wanted} server found; looked in {}{}", searched.join(", "), passed_over(unusable))]
    NoBinary {
        /// The requested engine.
        wanted: String,
        /// Where it was searched.
        searched: Vec<String>,
        /// Files that look like a server and cannot be used, with the cause.
        unusable: Vec<String>,
    },
    /// A folder of servers that the user named and that cannot be read.
    #[error("cannot use {} as a folder of servers: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A folder that cannot be added as a server.
    #[error("{} cannot be added: {reason}", path.display())]
    Refused {
        /// The folder.
        path: PathBuf,
        /// The cause.
        reason: String,
        /// The suggested remedy.
        hint: String,
    },
    /// A server that does not support a request.
    #[error("{what}")]
    Impossible {
        /// The unsupported request, and the cause.
        what: String,
        /// The suggested remedy.
        hint: String,
    },
    /// A name of no managed sandbox or of none of its servers, or one that is taken.
    #[error("sandbox {name}: {reason}")]
    Name {
        /// The sandbox's name.
        name: String,
        /// Why it cannot be used.
        reason: String,
        /// The suggested remedy.
        hint: String,
    },
    /// A managed sandbox in a wrong state.
    #[error("sandbox {name}: {state}")]
    Managed {
        /// Its name.
        name: String,
        /// Its state.
        state: String,
        /// The suggested remedy.
        hint: String,
    },
    /// A replication link could not be created.
    #[error("cannot create the link {name}: {source}")]
    Link {
        /// Its name.
        name: String,
        /// The cause.
        source: io::Error,
    },
    /// A failed operation on a file or folder of the sandbox.
    #[error("cannot {operation} {}: {source}", path.display())]
    Disk {
        /// The operation.
        operation: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A folder that the servers' user cannot access.
    #[error("the folder {} is not accessible to the system user `{user}`, which runs the servers", path.display())]
    Unreachable {
        /// The folder.
        path: PathBuf,
        /// The user.
        user: String,
    },
    /// A private folder that another user controls.
    #[error("the private folder {} belongs to another user, or others can write to it", path.display())]
    Untrusted {
        /// The folder.
        path: PathBuf,
    },
    /// A private folder below one in which another user can rename folders.
    #[error("the private folder {} is below {}, which another user controls", path.display(), parent.display())]
    UntrustedParent {
        /// The folder.
        path: PathBuf,
        /// The folder above it.
        parent: PathBuf,
    },
    /// A server ended while it started.
    #[error("{node} ended while starting ({status}); the end of its log:\n{log}")]
    Died {
        /// Which server.
        node: String,
        /// How it ended.
        status: String,
        /// The last lines of its log.
        log: String,
    },
    /// A server did not answer, or a replica did not replicate, before the timeout.
    #[error("{node} was not ready within {seconds} s: {state}; the end of its log:\n{log}")]
    NotReady {
        /// Which server.
        node: String,
        /// The timeout in seconds.
        seconds: u64,
        /// Its last state.
        state: String,
        /// The last lines of its log.
        log: String,
    },
    /// A replica that does not receive the primary's writes.
    #[error("{node} does not replicate: {state}")]
    NotReplicating {
        /// Which server.
        node: String,
        /// Why.
        state: String,
    },
    /// A server refused a statement.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The system could not start a process.
    #[error("cannot start {program}: {source}")]
    Spawn {
        /// The program.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// The user interrupted the start.
    #[error("interrupted while the sandbox was starting")]
    Interrupted,
}

impl SandboxError {
    /// Returns the suggested remedy.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::NoBinary { .. } => {
                "install MariaDB or MySQL, add an unpacked server with `replimeter servers add`, or \
                name the folder of one with --servers DIR; in the folder of the sources, `make servers` unpacks one \
                on Debian or Ubuntu without root"
                    .to_owned()
            }
            Self::Folder { .. } => {
                "name the folder of an unpacked server, or a folder of such folders; `replimeter servers` lists what is found without it"
                    .to_owned()
            }
            Self::Impossible { hint, .. }
            | Self::Managed { hint, .. }
            | Self::Name { hint, .. }
            | Self::Refused { hint, .. } => hint.clone(),
            Self::Disk { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                "free some space there, or set REPLIMETER_HOME to a folder on a larger disk".to_owned()
            }
            Self::Disk { .. } => "set REPLIMETER_HOME to a folder that this user may write to".to_owned(),
            Self::Unreachable { .. } => {
                "set REPLIMETER_HOME (or --servers) to a folder every user may enter, such as /var/cache/replimeter".to_owned()
            }
            Self::Untrusted { .. } => "set REPLIMETER_HOME to a folder that you own and only you may write to".to_owned(),
            Self::UntrustedParent { .. } => "set REPLIMETER_HOME to a folder whose parents belong to root, and that only root may write to".to_owned(),
            Self::Died { .. } => "check the server options; the log above shows the cause".to_owned(),
            Self::NotReady { .. } => "check whether the machine is overloaded or out of memory; try again, or with fewer replicas".to_owned(),
            Self::NotReplicating { .. } => {
                "check the server options: replication filters, server ids, binary log".to_owned()
            }
            Self::Server(error) => error.hint.clone(),
            Self::Link { .. } => "check whether the machine is out of ports, files or threads".to_owned(),
            Self::Spawn { .. } => "check that the file is a program for this machine and that this user may execute it".to_owned(),
            Self::Interrupted => String::new(),
        }
    }

    pub(crate) fn disk(
        operation: &'static str,
        path: &std::path::Path,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Disk {
            operation,
            path,
            source,
        }
    }
}

/// Lists unusable files, as the end of a sentence.
fn passed_over(unusable: &[String]) -> String {
    unusable
        .iter()
        .map(|found| format!("\n  cannot be used: {found}"))
        .collect()
}

/// Returns an error when the user has interrupted.
pub(crate) fn check_interrupted(stop: &AtomicBool) -> Result<(), SandboxError> {
    if stop.load(Ordering::Relaxed) {
        Err(SandboxError::Interrupted)
    } else {
        Ok(())
    }
}
