//! What can end a measurement.

use std::sync::atomic::{AtomicBool, Ordering};

use replimeter_engine::{
    ServerError,
    source::{SourceError, SourceErrorKind},
};

/// Why a measurement did not begin, or ended early.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// A server failed, or is not fit for the measurement.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The samples could not be kept.
    #[error("cannot store the samples: {0}")]
    Sink(String),
    /// Something could not be done to the servers from outside.
    #[error(transparent)]
    Source(SourceError),
    /// An applier could not be brought back to how it was, after the measurement had failed.
    #[error("{first}; {held}")]
    Held {
        /// What ended the measurement.
        first: Box<MeasureError>,
        /// What keeps the applier from being brought back; its hint is the statements that do it.
        held: ServerError,
    },
    /// A thread of ours ended by a panic.
    #[error("internal error: a measuring thread ended unexpectedly")]
    Thread,
    /// The user ended the run before it had begun.
    #[error("interrupted before the measurement began")]
    Interrupted,
}

impl From<SourceError> for MeasureError {
    fn from(error: SourceError) -> Self {
        match error.kind {
            SourceErrorKind::Interrupted => Self::Interrupted,
            _ => Self::Source(error),
        }
    }
}

impl MeasureError {
    /// What to try.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Server(error) => error.hint.clone(),
            Self::Held { first, held } if first.hint().is_empty() => held.hint.clone(),
            Self::Held { first, held } => format!("{}; {}", first.hint(), held.hint),
            Self::Sink(_) => "free disk space, or choose another folder with --run-dir".to_owned(),
            Self::Thread => "report this as a defect, with the messages above".to_owned(),
            Self::Source(error) => error.hint.clone(),
            Self::Interrupted => String::new(),
        }
    }
}

/// An error when the user wants to end.
pub(crate) fn heed(stop: &AtomicBool) -> Result<(), MeasureError> {
    if stop.load(Ordering::Relaxed) {
        Err(MeasureError::Interrupted)
    } else {
        Ok(())
    }
}
