//! Interface to a run's servers and to faults injected into them.
//!
//! A measurement asks a [`ServerSource`] for the servers of its target; it does not depend on how
//! they are started, found or reached.

use std::{
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
    time::Duration,
};

use replimeter_model::{
    engine::Engine,
    manifest::SandboxRecord,
    sandbox::SandboxSpec,
    target::{Role, Target},
};

use crate::{ErrorKind, Node, ServerError};

/// Gets the servers of a target.
pub trait ServerSource {
    /// Returns the server program on which the primary of such a sandbox, or every member, would
    /// run. Starts nothing.
    ///
    /// # Errors
    /// [`SourceErrorKind::Unavailable`] when no server here supports it.
    fn available(&self, spec: &SandboxSpec) -> Result<Install, SourceError>;

    /// Checks whether the servers of a target are available. Starts nothing.
    ///
    /// # Errors
    /// When they are not.
    fn check_available(&self, target: &Target) -> Result<(), SourceError>;

    /// Returns a folder on the file system of sandboxes' data; `None` without sandboxes.
    fn data_folder(&self) -> Option<PathBuf> {
        None
    }

    /// Returns the path of an installed program other than a server.
    ///
    /// # Errors
    /// [`SourceErrorKind::Unavailable`] when it is not installed.
    fn program(&self, name: &str) -> Result<PathBuf, SourceError>;

    /// Starts such a program.
    ///
    /// # Errors
    /// When the system refuses.
    fn start_program(&self, spec: ProgramSpec<'_>) -> Result<Box<dyn Program>, SourceError>;

    /// Starts, finds or prepares to reach the servers of a target.
    ///
    /// # Errors
    /// When they are not available; nothing is left behind then.
    fn open(
        &mut self,
        target: &Target,
        context: &OpenContext<'_>,
    ) -> Result<Box<dyn Servers>, SourceError>;
}

/// A program to start.
pub struct ProgramSpec<'a> {
    /// Its path.
    pub path: &'a Path,
    /// Its arguments; files are named relative to its folder.
    pub arguments: &'a [&'a str],
    /// Files of its folder, and their texts.
    pub files: &'a [(&'a str, &'a str)],
    /// What it gets as standard input.
    pub stdin: Option<OwnedFd>,
}

/// A running program, which ends with the tool. Dropping it kills it.
pub trait Program: Send {
    /// Returns its process.
    fn pid(&self) -> u32;

    /// Returns how it ended and what it wrote last, if it has ended: whether it succeeded, and the text.
    fn ended(&mut self) -> Option<(bool, String)>;

    /// Returns the text of a file of its folder, at most this number of bytes of it.
    ///
    /// # Errors
    /// When there is no such file, or it is no text.
    fn read_file(&self, name: &str, most: u64) -> std::io::Result<String>;

    /// Removes its folder: it has read its files.
    fn remove_files(&mut self);
}

/// Callbacks for opening servers.
pub struct OpenContext<'a> {
    /// Receives progress texts.
    pub say: &'a dyn Fn(&str),
    /// Clears the progress line before the user is asked for input.
    pub quiet: &'a dyn Fn(),
    /// Becomes true when the user wants the run to end.
    pub stop: &'a AtomicBool,
}

/// A server program that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Install {
    /// Its engine, as the program reports it.
    pub engine: Engine,
    /// Its version, as the program reports it.
    pub version: String,
    /// The binary, links resolved.
    pub program: PathBuf,
}

/// The servers of a target. Those started for the run are stopped and removed when this is dropped.
pub trait Servers {
    /// Returns their name in reports.
    fn label(&self) -> &str;

    /// Returns the members, the writer first.
    fn members(&self) -> &[Member];

    /// Reads again which servers there are, and how to log in, from where their owner declares it. Returns whether it can have changed.
    ///
    /// # Errors
    /// When that cannot be read; the members are as before.
    fn read_again(&mut self) -> Result<bool, SourceError> {
        Ok(false)
    }

    /// Returns the sandbox's record; `None` when they are not a sandbox.
    fn record(&self) -> Option<&SandboxRecord> {
        None
    }

    /// Returns whether they were started for this run and are removed after it, with all their
    /// data.
    fn is_temporary(&self) -> bool {
        false
    }

    /// Returns a hint for a failed measurement of them, when their owner has one.
    fn advice(&self) -> Option<String> {
        None
    }

    /// Returns how the process of a member ended, if it ended and that is known.
    fn ended(&self, _member: usize) -> Option<String> {
        None
    }

    /// Returns the last lines of a member's error log, if the log is removed with the member.
    fn log_end(&self, _member: usize) -> Option<String> {
        None
    }

    /// Returns the faults that can be injected; `None` for servers that must not be harmed.
    fn faults(&mut self) -> Option<&mut dyn Faults> {
        None
    }

    /// Stops and removes everything started for the run.
    ///
    /// # Errors
    /// When something could not be removed.
    fn close(self: Box<Self>) -> Result<(), SourceError> {
        Ok(())
    }
}

/// A server as its owner declares it.
#[derive(Clone, Debug)]
pub struct Member {
    /// How to reach it.
    pub node: Node,
    /// The role that the user declares; `None` to detect it.
    pub role: Option<Role>,
    /// The name of its declared source.
    pub source: Option<String>,
    /// What a run may do to it that it otherwise refuses.
    pub allowed: Allowed,
    /// Its process on this machine, when it is known.
    pub pid: Option<u32>,
}

/// What users allow a run that can harm servers that they did not name.
#[derive(Clone, Copy, Debug, Default)]
pub struct Allowed {
    /// To write to a primary that replicates from a server that is not named.
    pub write_to_replica: bool,
    /// To create the tables of a workload though a replica could not be asked whether it has tables of these names.
    pub unasked_replicas: bool,
}

impl From<&Node> for Member {
    /// Returns a member without declarations.
    fn from(node: &Node) -> Self {
        Self {
            node: node.clone(),
            role: None,
            source: None,
            allowed: Allowed::default(),
            pid: None,
        }
    }
}

/// Faults that can be injected into servers. Servers are named as in the members' list.
pub trait Faults {
    /// Delays every replication link, one way.
    ///
    /// # Errors
    /// When replication does not go through links that can be delayed.
    fn set_delay(&mut self, delay: Duration) -> Result<(), SourceError>;

    /// Isolates a server from all others, but not from its clients.
    ///
    /// # Errors
    /// When replication does not go through links that can be cut.
    fn isolate(&mut self, server: &str) -> Result<(), SourceError>;

    /// Kills a server immediately, without waiting for its end.
    ///
    /// # Errors
    /// When none has this name.
    fn kill(&mut self, server: &str) -> Result<(), SourceError>;

    /// Makes another server take writes after the primary died, and returns its name: the wished
    /// one, unless a group elected another.
    ///
    /// # Errors
    /// When no server takes over in time.
    fn promote(
        &mut self,
        wished: &str,
        dead: &str,
        stop: &AtomicBool,
    ) -> Result<String, SourceError>;

    /// Restarts a killed server, alone, with its data.
    ///
    /// # Errors
    /// When it does not start.
    fn restart(&mut self, server: &str, stop: &AtomicBool) -> Result<Node, SourceError>;
}

/// The kind of a failure, for callers that react to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceErrorKind {
    /// The request is invalid here.
    Usage,
    /// No server here supports the request.
    Unavailable,
    /// A server, the system or the disk failed.
    Failed,
    /// The user interrupted it.
    Interrupted,
}

/// Why servers are not available, or a fault could not be injected.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct SourceError {
    /// Which kind of failure.
    pub kind: SourceErrorKind,
    /// Why it failed.
    pub message: String,
    /// The suggested remedy.
    pub hint: String,
}

impl From<ServerError> for SourceError {
    fn from(error: ServerError) -> Self {
        let kind = match error.kind {
            ErrorKind::File => SourceErrorKind::Usage,
            _ => SourceErrorKind::Failed,
        };
        Self::new(kind, error.to_string(), error.hint.clone())
    }
}

impl SourceError {
    /// Returns a failure of this kind.
    #[must_use]
    pub fn new(kind: SourceErrorKind, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            hint: hint.into(),
        }
    }
}
