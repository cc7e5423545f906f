//! How a run ended.

use std::time::Duration;

use replimeter_model::{host::HostRecord, manifest::Manifest, time::Nanos, warning::Warning};
use serde::{Deserialize, Serialize};

use super::Histograms;
use crate::{
    cli_error::CliError, histograms, journal::Journal, run_dir::RunDir, stream::SharedStream,
};

/// The end of a run, besides its plan, its manifest and the measured state.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunEnd {
    /// The run directory.
    pub run_dir: String,
    /// Whether idle cores were kept awake.
    pub keep_awake: bool,
    /// Why, or why not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub keep_awake_reason: String,
    /// Whether the measuring threads had real-time priority.
    pub real_time: bool,
    /// Why, or why not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub real_time_reason: String,
    /// The clock's resolution.
    pub clock_step: Duration,
    /// What else used this machine.
    #[serde(default, skip_serializing_if = "HostRecord::is_empty")]
    pub host: HostRecord,
    /// The clock's last reading.
    pub at: Nanos,
    /// Warnings from the checks, the servers and the clean-up.
    pub warnings: Vec<Warning>,
    /// The failure or interruption that ended it, if any.
    pub failure: Option<CliError>,
}

/// How a run ended, after its calls; the last such line counts.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LastCall {
    /// The last line of a recorded run.
    Ended(RunEnd),
    /// How it would have ended if it was cut off then.
    CutOff(RunEnd),
}

/// Returns the failure of a run whose journal has no end.
pub(super) fn cut_off() -> CliError {
    CliError::interrupted(
        "the run was killed, or could not write its end; the figures cover what it had written until then",
    )
}

/// A run after measuring.
pub(crate) struct CompletedRun<'a> {
    pub(crate) run_dir: RunDir,
    pub(crate) manifest: Manifest,
    /// The text of `plan.toml`.
    pub(crate) plan: String,
    pub(crate) ended: RunEnd,
    pub(crate) journal: Journal,
    pub(crate) stream: Option<SharedStream<'a>>,
}

impl CompletedRun<'_> {
    /// Writes the histograms of the figures.
    pub(crate) fn keep_histograms(&self, histograms: Option<&Histograms>) -> Result<(), CliError> {
        let Some(Histograms { took, series }) = histograms else {
            return Ok(());
        };
        histograms::keep(self.run_dir.path(), &self.manifest, *took, series)
    }
}
