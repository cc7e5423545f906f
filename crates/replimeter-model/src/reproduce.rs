//! The record of a `reproduce` run: each published experiment next to its reproduction.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::record::RunStatus;

/// The schema's name and version in every `reproduce` document.
pub const REPRODUCE_SCHEMA: &str = "replimeter.reproduce/1";

/// Whether the measurement agrees with the published result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It agrees.
    Agrees,
    /// It agrees in a run that changes the supposed cause, and differs or is open without that.
    Explained,
    /// It differs.
    Differs,
    /// The measurement does not decide it.
    #[default]
    Open,
}

impl Verdict {
    /// Returns its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Agrees => "agrees",
            Self::Explained => "explained",
            Self::Differs => "differs",
            Self::Open => "open",
        }
    }
}

/// One claim that the published figures support.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Claim {
    /// The claim in words.
    pub claim: String,
    /// As published.
    pub published: String,
    /// Measured here, with the interval where there is one.
    pub ours: String,
    /// Whether they agree.
    pub verdict: Verdict,
    /// Reason for a difference or an open verdict; empty where they agree.
    pub why: String,
}

/// A table of figures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Table {
    /// Headings of the columns.
    pub headings: Vec<String>,
    /// Cells.
    pub lines: Vec<Vec<String>>,
}

/// One experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Experiment {
    /// 1 to 5.
    pub number: u32,
    /// Its name, author and year.
    pub title: String,
    /// Question of the experiment.
    pub question: String,
    /// The command that measures it.
    pub command: String,
    /// Folders of its runs, within this run's; several where one run is compared with another.
    pub run_dirs: Vec<String>,
    /// Duration, including the start of servers.
    pub duration_us: f64,
    /// Error that ended it, if any.
    pub error: Option<String>,
    /// Main finding of this measurement.
    pub headline: String,
    /// As it was published.
    pub published: Table,
    /// As measured here.
    pub ours: Table,
    /// Claims that are compared.
    pub claims: Vec<Claim>,
}

/// The whole document of a `reproduce` run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReproduceDocument {
    /// [`REPRODUCE_SCHEMA`].
    pub schema: String,
    /// Run directory.
    pub run_dir: String,
    /// Whether the run completed.
    pub status: RunStatus,
    /// `small` or `full`.
    pub size: String,
    /// Start of the run (RFC 3339, UTC).
    pub started_at: String,
    /// Main finding, in one sentence.
    pub headline: String,
    /// The experiments, in order.
    pub experiments: Vec<Experiment>,
}
