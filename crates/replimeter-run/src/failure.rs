//! Errors as the user meets them: the cause, what to try, and the exit code.

use std::process::ExitCode;

use replimeter_engine::{
    ServerError,
    source::{SourceError, SourceErrorKind},
};
use replimeter_instruments::MeasureError;
use replimeter_model::{
    plan::PlanError,
    redact,
    warning::{Warning, WarningCode},
};
use replimeter_render::rows::SamplesError;
use serde::{Deserialize, Serialize};

/// The exit codes of every command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The measurement is invalid, or would be.
    Invalid = 1,
    /// The request makes no sense.
    Usage = 2,
    /// A server, the sandbox or the disk failed.
    Failed = 3,
    /// The user ended it.
    Interrupted = 130,
}

/// Why a command did not do what it was asked for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Failure {
    /// What it means for the exit code.
    pub kind: Kind,
    /// The cause, with the name of the server that it is about.
    pub message: String,
    /// What to try.
    pub hint: String,
}

/// For what cannot happen.
pub fn unexpected(what: &str) -> Failure {
    Failure::failed(format!("internal error: {what}"), "report this as a bug")
}

impl Failure {
    /// Both texts may repeat what the user gave, which may be a URL wherever something else is expected.
    fn of(kind: Kind, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            kind,
            message: redact::message(&message.into()),
            hint: redact::message(&hint.into()),
        }
    }

    /// The request makes no sense.
    pub fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::of(Kind::Usage, message, hint)
    }

    /// A server, the sandbox or the disk failed.
    pub fn failed(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::of(Kind::Failed, message, hint)
    }

    /// The measurement is invalid.
    pub fn invalid(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::of(Kind::Invalid, message, hint)
    }

    /// The user ended it.
    pub fn interrupted(message: impl Into<String>) -> Self {
        Self::of(Kind::Interrupted, message, "")
    }

    /// The user ended a measurement that has figures already.
    pub fn cut_short() -> Self {
        Self::interrupted("interrupted; partial results are kept")
    }

    /// What measuring ended with, when not with success: an error, or the user.
    pub fn of_measuring(error: Option<&MeasureError>, interrupted: bool) -> Option<Self> {
        match error {
            Some(error) => Some(Self::failed(error.to_string(), error.hint())),
            None => interrupted.then(Self::cut_short),
        }
    }

    /// Says which of several shapes it is about: their servers have the same names.
    pub fn about(mut self, shape: &str, several: bool) -> Self {
        if several {
            self.message = format!("{shape}: {}", self.message);
        }
        self
    }

    /// What a report says of a run that ended with it.
    pub fn warning(&self) -> Warning {
        match self.kind {
            Kind::Interrupted => Warning::new(
                WarningCode::Interrupted,
                self.message.clone(),
                "run the plan again for complete results",
            ),
            _ => Warning::new(WarningCode::Failed, self.message.clone(), self.hint.clone()),
        }
    }

    /// What the program ends with.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.kind as u8)
    }
}

impl From<PlanError> for Failure {
    fn from(error: PlanError) -> Self {
        Self::usage(
            error.to_string(),
            "see `replimeter COMMAND --help` for every setting, docs/plans.md for those of a plan",
        )
    }
}

impl From<ServerError> for Failure {
    fn from(error: ServerError) -> Self {
        let hint = error.hint.clone();
        Self::failed(error.to_string(), hint)
    }
}

impl From<SourceError> for Failure {
    fn from(error: SourceError) -> Self {
        let kind = match error.kind {
            SourceErrorKind::Usage => Kind::Usage,
            SourceErrorKind::Unavailable | SourceErrorKind::Failed => Kind::Failed,
            SourceErrorKind::Interrupted => Kind::Interrupted,
        };
        Self::of(kind, error.message, error.hint)
    }
}

impl From<SamplesError> for Failure {
    fn from(error: SamplesError) -> Self {
        MeasureError::Sink(error.to_string()).into()
    }
}

impl From<MeasureError> for Failure {
    fn from(error: MeasureError) -> Self {
        match error {
            MeasureError::Interrupted => Self::interrupted(error.to_string()),
            error => Self::failed(error.to_string(), error.hint()),
        }
    }
}
