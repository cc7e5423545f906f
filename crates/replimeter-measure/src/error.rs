//! What can end a measurement.

use replimeter_server::ServerError;

/// Why a measurement did not begin, or ended early.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// A server failed, or is not fit for the measurement.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The samples could not be kept.
    #[error("cannot keep the samples: {0}")]
    Sink(String),
    /// What was to be done to a sandbox could not be done.
    #[error("{message}")]
    Sandbox {
        /// Why.
        message: String,
        /// What to try.
        hint: String,
    },
    /// A thread of ours ended by a panic.
    #[error("a measuring thread ended unexpectedly; this is a defect of Replimeter's")]
    Thread,
    /// The user ended the run before it had begun.
    #[error("interrupted before the measurement began")]
    Interrupted,
}

impl MeasureError {
    /// What to try.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Server(error) => error.hint.clone(),
            Self::Sink(_) => "free some space, or name another folder with --run-dir".to_owned(),
            Self::Thread => "please report it with the messages above".to_owned(),
            Self::Sandbox { hint, .. } => hint.clone(),
            Self::Interrupted => String::new(),
        }
    }
}
