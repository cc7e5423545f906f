//! The record of a `reproduce` run: each published experiment beside ours.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::record::RunStatus;

/// The schema's name and version in every `reproduce` document.
pub const REPRODUCE_SCHEMA: &str = "replimeter.reproduce/1";

/// Whether ours has the shape of what was published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It has.
    Agrees,
    /// It has another.
    Differs,
    /// The measurement cannot tell.
    #[default]
    Open,
}

impl Verdict {
    /// The word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Agrees => "agrees",
            Self::Differs => "differs",
            Self::Open => "open",
        }
    }
}

/// One thing that the published figures show.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Claim {
    /// What, in words.
    pub claim: String,
    /// As published.
    pub published: String,
    /// As measured here, with its interval where there is one.
    pub ours: String,
    /// Whether they agree.
    pub verdict: Verdict,
    /// Why they differ, or cannot be told apart; empty where they agree.
    pub why: String,
}

/// A table of figures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Table {
    /// Of the columns.
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
    /// What it asked.
    pub question: String,
    /// The command that measures it.
    pub command: String,
    /// The folder of its run, within this run's; null when it has none.
    pub run_dir: Option<String>,
    /// How long it took, with starting servers.
    pub duration_us: f64,
    /// What ended it, if anything did.
    pub error: Option<String>,
    /// Our finding in words.
    pub headline: String,
    /// As it was published.
    pub published: Table,
    /// As measured here.
    pub ours: Table,
    /// What is compared.
    pub claims: Vec<Claim>,
}

/// The whole document of a `reproduce` run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReproduceDocument {
    /// [`REPRODUCE_SCHEMA`].
    pub schema: String,
    /// Where the run is kept.
    pub run_dir: String,
    /// Whether it came to its end.
    pub status: RunStatus,
    /// `small` or `full`.
    pub size: String,
    /// When it began.
    pub started_at: String,
    /// The finding in one sentence.
    pub headline: String,
    /// The experiments, in order.
    pub experiments: Vec<Experiment>,
}
