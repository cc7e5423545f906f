//! Errors for the user: message, hint and exit code.

use std::{fmt, io, process::ExitCode};

use replimeter_engine::{
    ErrorKind, ServerError,
    source::{SourceError, SourceErrorKind},
};
use replimeter_instruments::MeasureError;
use replimeter_model::{
    bug::REPORT_BUG,
    plan::PlanError,
    redact,
    warning::{Warning, WarningCode},
};
use replimeter_render::rows::SamplesError;
use serde::{Deserialize, Serialize};

/// The exit codes of every command: 2 for a mistake in the request, which a second try does not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The measurement is invalid, or would be.
    Invalid = 1,
    /// The request is invalid: an option, a plan, a path that cannot be used, or a name of nothing.
    Usage = 2,
    /// A server, the sandbox or the disk failed.
    Failed = 3,
    /// The user interrupted it.
    Interrupted = 130,
}

/// The failure of a command.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CliError {
    /// Its kind, which determines the exit code.
    pub kind: FailureKind,
    /// The cause, with the name of the affected server.
    pub message: String,
    /// The hint.
    pub hint: String,
    /// The measurement was interrupted with partial results: the beginning of the message, which names the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<String>,
    /// Whether a server gave no answer, which [is an interruption](Self::of_stopped) if the user had stopped the command.
    #[serde(skip)]
    pub unanswered: bool,
}

/// Returns an internal error.
pub fn unexpected(what: impl fmt::Display) -> CliError {
    CliError::failed(format!("internal error: {what}"), REPORT_BUG)
}

impl CliError {
    /// Redacts both texts: they can repeat the user's input, which can be a URL even where something else is
    /// expected.
    fn of(kind: FailureKind, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            kind,
            message: redact::message(&message.into()),
            hint: redact::message(&hint.into()),
            partial: None,
            unanswered: false,
        }
    }

    /// Returns a failure for an invalid request.
    pub fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::of(FailureKind::Usage, message, hint)
    }

    /// Returns a failure of a server, the sandbox or the disk.
    pub fn failed(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::of(FailureKind::Failed, message, hint)
    }

    /// Returns a failure to use a path that the user named: an invalid request, unless the disk failed.
    pub fn of_path(message: impl Into<String>, error: &io::Error, hint: impl Into<String>) -> Self {
        let kind = match error.kind() {
            io::ErrorKind::NotFound
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::IsADirectory
            | io::ErrorKind::AlreadyExists
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::InvalidFilename
            | io::ErrorKind::InvalidInput
            | io::ErrorKind::InvalidData => FailureKind::Usage,
            _ => FailureKind::Failed,
        };
        Self::of(kind, message, hint)
    }

    /// Returns a failure for an invalid measurement.
    pub fn invalid(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::of(FailureKind::Invalid, message, hint)
    }

    /// Returns a failure for an interruption by the user.
    pub fn interrupted(message: impl Into<String>) -> Self {
        Self::of(FailureKind::Interrupted, message, "")
    }

    /// Returns a failure for an interrupted measurement with partial results.
    pub fn partial() -> Self {
        Self {
            partial: Some(String::new()),
            ..Self::interrupted("interrupted; partial results are kept")
        }
    }

    /// Returns the same failure of a run without any result: an interruption left no partial ones. `kept` states
    /// what is kept.
    pub(crate) fn without_results(mut self, kept: &str) -> Self {
        if let Some(target) = self.partial.take() {
            self.message = format!("{target}interrupted before anything was measured; {kept}");
        }
        self
    }

    /// Returns the failure of measuring, if it failed or was interrupted.
    pub fn of_measuring(error: Option<&MeasureError>, interrupted: bool) -> Option<Self> {
        match error {
            Some(error) => Some(Self {
                unanswered: matches!(error, MeasureError::Server(error) if error.unanswered()),
                ..Self::failed(error.to_string(), error.hint())
            }),
            None => interrupted.then(Self::partial),
        }
    }

    /// Returns the failure of a command; `stopped` is whether the user had stopped it: a server that gives no answer is no other
    /// failure then.
    #[must_use]
    pub fn of_stopped(mut self, stopped: bool) -> Self {
        // It is decided once.
        if !std::mem::take(&mut self.unanswered) || !stopped {
            return self;
        }
        Self {
            hint: self.hint,
            ..Self::interrupted(format!("interrupted; {}", self.message))
        }
    }

    /// Adds the shape if there are several, since their servers have the same names.
    pub fn for_shape(mut self, shape: &str, several: bool) -> Self {
        if several {
            self.message = format!("{shape}: {}", self.message);
            self.partial = self.partial.map(|target| format!("{shape}: {target}"));
        }
        self
    }

    /// Returns the warning for the report of a run that ended with it.
    pub fn warning(&self) -> Warning {
        match self.kind {
            FailureKind::Interrupted => Warning::new(
                WarningCode::Interrupted,
                self.message.clone(),
                "run the plan again for complete results",
            ),
            _ => Warning::new(WarningCode::Failed, self.message.clone(), self.hint.clone()),
        }
    }

    /// Returns the exit code of the program.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.kind as u8)
    }
}

impl From<PlanError> for CliError {
    fn from(error: PlanError) -> Self {
        Self::usage(
            error.to_string(),
            "run the command with --help for its options; `replimeter schema plan --markdown` lists the keys of a plan",
        )
    }
}

impl From<ServerError> for CliError {
    fn from(error: ServerError) -> Self {
        let kind = match error.kind {
            ErrorKind::File => FailureKind::Usage,
            _ => FailureKind::Failed,
        };
        Self {
            unanswered: error.unanswered(),
            ..Self::of(kind, error.to_string(), error.hint.clone())
        }
    }
}

impl From<SourceError> for CliError {
    fn from(error: SourceError) -> Self {
        let kind = match error.kind {
            SourceErrorKind::Usage => FailureKind::Usage,
            SourceErrorKind::Unavailable | SourceErrorKind::Failed => FailureKind::Failed,
            SourceErrorKind::Interrupted => FailureKind::Interrupted,
        };
        Self::of(kind, error.message, error.hint)
    }
}

impl From<SamplesError> for CliError {
    fn from(error: SamplesError) -> Self {
        MeasureError::Sink(error.to_string()).into()
    }
}

impl From<MeasureError> for CliError {
    fn from(error: MeasureError) -> Self {
        match error {
            MeasureError::Interrupted => Self::interrupted(error.to_string()),
            MeasureError::Server(error) => error.into(),
            error => Self::failed(error.to_string(), error.hint()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_partial_interruption_can_lose_its_results() {
        let ended = |failure: CliError| {
            failure
                .for_shape("async:1", true)
                .for_shape("x2", true)
                .without_results("no run is kept")
                .message
        };
        assert_eq!(
            ended(CliError::partial()),
            "x2: async:1: interrupted before anything was measured; no run is kept"
        );
        // The same text in an error of a server is not an interruption.
        let text = "interrupted; partial results are kept";
        assert_eq!(
            ended(CliError::failed(text, "")),
            format!("x2: async:1: {text}")
        );
    }
    #[test]
    fn end_by_a_silent_server_is_judged_once() {
        let silent = CliError {
            unanswered: true,
            ..CliError::failed("no answer within 5 s", "")
        };
        let interrupted = silent.clone().of_stopped(true);
        assert_eq!(interrupted.kind, FailureKind::Interrupted);
        // The user stops the clean-up.
        let failed = silent.of_stopped(false).of_stopped(true);
        assert_eq!(failed.kind, FailureKind::Failed);
    }
}
