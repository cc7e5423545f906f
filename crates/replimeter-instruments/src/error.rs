//! Errors that end a measurement.

use std::sync::atomic::{AtomicBool, Ordering};

use replimeter_engine::{
    ServerError,
    source::{SourceError, SourceErrorKind},
};
use replimeter_model::bug::REPORT_BUG;

/// Why a measurement did not begin, or ended early.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// A server failed, or is not suitable for the measurement.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The samples could not be stored.
    #[error("cannot store the samples: {0}")]
    Sink(String),
    /// An action on the servers from outside failed.
    #[error(transparent)]
    Source(SourceError),
    /// An applier could not be restored after the measurement had failed.
    #[error("{first}; {held}")]
    Held {
        /// The error that ended the measurement.
        first: Box<MeasureError>,
        /// Why the applier could not be restored; its hint has the statements that restore it.
        held: ServerError,
    },
    /// A measuring thread panicked.
    #[error("internal error: a measuring thread ended unexpectedly")]
    Thread,
    /// The sandbox has no servers, which is a defect.
    #[error("internal error: the sandbox has no server")]
    NoServer,
    /// The user stopped the run before it began.
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
    /// Returns the hint.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Server(error) => error.hint.clone(),
            Self::Held { first, held } if first.hint().is_empty() => held.hint.clone(),
            Self::Held { first, held } => format!("{}; {}", first.hint(), held.hint),
            Self::Sink(_) => "free disk space, or choose another folder with --run-dir".to_owned(),
            Self::Thread => format!("{REPORT_BUG}, with the messages above"),
            Self::NoServer => REPORT_BUG.to_owned(),
            Self::Source(error) => error.hint.clone(),
            Self::Interrupted => String::new(),
        }
    }
}

/// Returns an error when the user stops the run.
///
/// # Errors
/// When `stop` is set.
pub fn check_interrupted(stop: &AtomicBool) -> Result<(), MeasureError> {
    if stop.load(Ordering::Relaxed) {
        Err(MeasureError::Interrupted)
    } else {
        Ok(())
    }
}
