//! Where the servers of a run come from, and what can be done to them from outside.
//!
//! A measurement asks a [`ServerSource`] for the servers of its target; how they are
//! started, found or reached is not its concern.

use std::{path::PathBuf, sync::atomic::AtomicBool, time::Duration};

use replimeter_model::{
    engine::Engine,
    manifest::SandboxRecord,
    sandbox::SandboxSpec,
    target::{Role, Target},
};

use crate::{Node, ServerError};

/// Gets the servers of a target.
pub trait ServerSource {
    /// Returns the server that the primary of such a sandbox, or every member, would run
    /// on. Starts nothing.
    ///
    /// # Errors
    /// [`SourceErrorKind::Unavailable`] when no server here can do what is asked for.
    fn available(&self, spec: &SandboxSpec) -> Result<Install, SourceError>;

    /// Checks whether the servers of a target can be had at all. Starts nothing.
    ///
    /// # Errors
    /// When they cannot.
    fn possible(&self, target: &Target) -> Result<(), SourceError>;

    /// Starts, finds or prepares to reach the servers of a target.
    ///
    /// # Errors
    /// When they cannot be had; nothing is left behind then.
    fn open(
        &mut self,
        target: &Target,
        context: &OpenContext<'_>,
    ) -> Result<Box<dyn Servers>, SourceError>;
}

/// What goes with the opening of servers.
pub struct OpenContext<'a> {
    /// Is told what goes on.
    pub say: &'a dyn Fn(&str),
    /// Clears the line of progress, before the user is asked for something.
    pub quiet: &'a dyn Fn(),
    /// Becomes true when the user wants the run to end.
    pub stop: &'a AtomicBool,
}

/// A server program that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Install {
    /// Which engine it is, by its own word.
    pub engine: Engine,
    /// The version number it states.
    pub version: String,
    /// The binary, links resolved.
    pub program: PathBuf,
}

/// The servers of a target. Those that were started for the run are ended and removed
/// when this is dropped.
pub trait Servers {
    /// Returns what reports call them.
    fn label(&self) -> &str;

    /// Returns each server, the one that is written to first.
    fn members(&self) -> &[Member];

    /// Returns how the sandbox came to be, when they are one.
    fn record(&self) -> Option<&SandboxRecord> {
        None
    }

    /// Returns whether they were started for this run and are removed after it, with
    /// everything that is on them.
    fn is_temporary(&self) -> bool {
        false
    }

    /// Returns what to try when a measurement of them fails, when their owner knows
    /// something.
    fn advice(&self) -> Option<String> {
        None
    }

    /// Returns how the process of a member ended, when it did and that is known.
    fn ended(&self, _member: usize) -> Option<String> {
        None
    }

    /// Returns what can be done to them on purpose; nothing to servers that are to live on.
    fn faults(&mut self) -> Option<&mut dyn Faults> {
        None
    }

    /// Ends and removes what was started for the run.
    ///
    /// # Errors
    /// When something could not be removed.
    fn close(self: Box<Self>) -> Result<(), SourceError> {
        Ok(())
    }
}

/// A server, and what its owner says of it.
#[derive(Clone, Debug)]
pub struct Member {
    /// How to reach it.
    pub node: Node,
    /// The role that the user declares; `None` to detect it.
    pub role: Option<Role>,
    /// The name of the server it is said to replicate from.
    pub source: Option<String>,
    /// Its process on this machine, when it is known.
    pub pid: Option<u32>,
}

impl From<&Node> for Member {
    /// A server of which nothing is said.
    fn from(node: &Node) -> Self {
        Self {
            node: node.clone(),
            role: None,
            source: None,
            pid: None,
        }
    }
}

/// What can be done to servers on purpose. Servers are named as in the members' list.
pub trait Faults {
    /// Delays every replication link, one way.
    ///
    /// # Errors
    /// When replication does not go through links that can be delayed.
    fn set_delay(&mut self, delay: Duration) -> Result<(), SourceError>;

    /// Cuts a server off from all others, but not from its clients.
    ///
    /// # Errors
    /// When replication does not go through links that can be cut.
    fn isolate(&mut self, server: &str) -> Result<(), SourceError>;

    /// Kills a server at once, and does not wait for its end.
    ///
    /// # Errors
    /// When there is none of this name.
    fn kill(&mut self, server: &str) -> Result<(), SourceError>;

    /// Makes another server take writes in the place of a dead one, and returns its name:
    /// the wished one, unless a group elected another.
    ///
    /// # Errors
    /// When no server takes over in time.
    fn promote(
        &mut self,
        wished: &str,
        dead: &str,
        stop: &AtomicBool,
    ) -> Result<String, SourceError>;

    /// Starts a server that was killed again, alone, with the data that it had.
    ///
    /// # Errors
    /// When it does not start.
    fn restart(&mut self, server: &str, stop: &AtomicBool) -> Result<Node, SourceError>;
}

/// The kind of a failure, for callers that react to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceErrorKind {
    /// The request makes no sense here.
    Usage,
    /// No server here can do what is asked for.
    Unavailable,
    /// A server, the system or the disk failed.
    Failed,
    /// The user ended it.
    Interrupted,
}

/// Why servers cannot be had, or something could not be done to them.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct SourceError {
    /// Which kind of failure.
    pub kind: SourceErrorKind,
    /// Why it failed.
    pub message: String,
    /// What to try.
    pub hint: String,
}

impl From<ServerError> for SourceError {
    fn from(error: ServerError) -> Self {
        Self::new(
            SourceErrorKind::Failed,
            error.to_string(),
            error.hint.clone(),
        )
    }
}

impl SourceError {
    /// A failure of this kind.
    #[must_use]
    pub fn new(kind: SourceErrorKind, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            hint: hint.into(),
        }
    }
}
