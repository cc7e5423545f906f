//! Why a sandbox could not be had, and what to try.

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
        /// Which engine was asked for.
        wanted: String,
        /// Where it was looked for.
        searched: Vec<String>,
        /// What looked like a server and could not be used, with the cause.
        unusable: Vec<String>,
    },
    /// Something that was to be added and is no server.
    #[error("{} cannot be added: {reason}", path.display())]
    Refused {
        /// What was to be added.
        path: PathBuf,
        /// Why not.
        reason: String,
        /// What to try.
        hint: String,
    },
    /// A server that cannot do what is asked for.
    #[error("{what}")]
    Impossible {
        /// What it cannot do, and why.
        what: String,
        /// What to install or ask for instead.
        hint: String,
    },
    /// A kept sandbox that is not there, or not as it should be.
    #[error("sandbox {name}: {state}")]
    Kept {
        /// Its name.
        name: String,
        /// What is the matter.
        state: String,
        /// What to try.
        hint: String,
    },
    /// A replication link of ours could not be put up.
    #[error("cannot create the link {name}: {source}")]
    Link {
        /// Its name.
        name: String,
        /// Why not.
        source: io::Error,
    },
    /// A file or folder of the sandbox.
    #[error("cannot {doing} {}: {source}", path.display())]
    Disk {
        /// What was being done.
        doing: &'static str,
        /// With which file or folder.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A folder that the servers' user cannot enter.
    #[error("the folder {} is not accessible to the system user `{user}`, which runs the servers", path.display())]
    Unreachable {
        /// The folder.
        path: PathBuf,
        /// The user.
        user: String,
    },
    /// A private folder that somebody else controls.
    #[error("the private folder {} belongs to another user, or others can write to it", path.display())]
    Untrusted {
        /// The folder.
        path: PathBuf,
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
    /// A server did not answer, or a replica did not replicate, in time.
    #[error("{node} was not ready within {seconds} s: {state}; the end of its log:\n{log}")]
    NotReady {
        /// Which server.
        node: String,
        /// How long it was waited for.
        seconds: u64,
        /// What it last said.
        state: String,
        /// The last lines of its log.
        log: String,
    },
    /// A replica that cannot show what the primary writes.
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
    /// The system refused a process.
    #[error("cannot start {program}: {source}")]
    Spawn {
        /// The program.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// The user ended the tool meanwhile.
    #[error("interrupted while the sandbox was starting")]
    Interrupted,
}

impl SandboxError {
    /// What to try.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::NoBinary { .. } => {
                "on Debian or Ubuntu run `make servers` (or scripts/get-servers) in the source folder: it unpacks \
                a server into a private folder, without root and without a service; elsewhere install MariaDB, or \
                name the folder of an unpacked server with --servers DIR"
                    .to_owned()
            }
            Self::Impossible { hint, .. } | Self::Kept { hint, .. } | Self::Refused { hint, .. } => hint.clone(),
            Self::Disk { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                "free some space there, or set REPLIMETER_HOME to a folder on a larger disk".to_owned()
            }
            Self::Disk { .. } => "set REPLIMETER_HOME to a folder that this user may write to".to_owned(),
            Self::Unreachable { .. } => {
                "set REPLIMETER_HOME (or --servers) to a folder every user may enter, such as /var/cache/replimeter".to_owned()
            }
            Self::Untrusted { .. } => "set REPLIMETER_HOME to a folder that you own and only you may write to".to_owned(),
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
        doing: &'static str,
        path: &std::path::Path,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Disk {
            doing,
            path,
            source,
        }
    }
}

/// What a search met and could not use, as the end of a sentence.
fn passed_over(unusable: &[String]) -> String {
    unusable
        .iter()
        .map(|found| format!("\n  cannot be used: {found}"))
        .collect()
}

/// An error when the user wants to end.
pub(crate) fn heed(stop: &AtomicBool) -> Result<(), SandboxError> {
    if stop.load(Ordering::Relaxed) {
        Err(SandboxError::Interrupted)
    } else {
        Ok(())
    }
}
