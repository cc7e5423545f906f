//! The record of a trial of two plans.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    compare::{Better, Dimension, Quantity, SettingDifference},
    estimate::Estimate,
    record::RunStatus,
    warning::Warning,
};

/// The schema's name and version in every `trial` document.
pub const TRIAL_SCHEMA: &str = "replimeter.trial/1";

one_of! {
    /// Outcome of a trial for its first figure.
    #[derive(Default)]
    pub enum TrialOutcome {
        /// B's is higher
        Higher = "higher",
        /// B's is lower
        Lower = "lower",
        /// Both are equal within the limit
        Equal = "equal",
        /// Neither a difference nor equality was shown
        #[default]
        Open = "open",
    }
}

/// One side of a trial.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TrialSide {
    /// Plan file.
    pub plan: String,
    /// Title from the plan.
    pub title: Option<String>,
    /// Shape that was measured.
    pub shape: String,
}

/// A pair of starts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrialPair {
    /// Number, from 1.
    pub number: u32,
    /// Side that was measured first: `a` or `b`.
    pub first: String,
    /// The first figure of A; null in a lost pair.
    pub a: Option<f64>,
    /// The first figure of B.
    pub b: Option<f64>,
    /// Why the pair does not count; null if it does.
    pub lost: Option<String>,
}

/// The result after some pairs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrialInterim {
    /// Pairs that counted so far.
    pub pairs: u32,
    /// B divided by A, with its interval at the confidence of each check.
    pub ratio: Estimate,
    /// P-value of these pairs alone.
    pub p_value: f64,
}

/// A figure of a trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrialFigure {
    /// Name, such as `lag.from_send.p50`.
    pub figure: String,
    /// Attributes of the figure.
    pub of: Vec<Dimension>,
    /// Unit of `a` and `b`.
    pub unit: Quantity,
    /// Direction of improvement.
    pub better: Better,
    /// Pairs that have it on both sides.
    pub pairs: u32,
    /// Geometric mean of A.
    pub a: f64,
    /// Geometric mean of B.
    pub b: f64,
    /// B divided by A, with its interval at the confidence of each check.
    pub ratio: Estimate,
    /// Whether a difference was shown.
    pub differs: bool,
}

/// The whole document of a trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrialDocument {
    /// [`TRIAL_SCHEMA`].
    pub schema: String,
    /// Directory of the trial.
    pub run_dir: String,
    /// Measurement of both sides: `lag` or `load`.
    pub command: String,
    /// Main finding, in one or two sentences.
    pub headline: String,
    /// Whether it ran to its end.
    pub status: RunStatus,
    /// What ended it early; null without a failure.
    pub error: Option<String>,
    /// Start (RFC 3339, UTC).
    pub started_at: String,
    /// First side: the baseline.
    pub a: TrialSide,
    /// Second side.
    pub b: TrialSide,
    /// Whether each unit is a fresh start of the servers; otherwise it is a run of servers that ran already, and what a restart
    /// changes is not in the result.
    pub restarts: bool,
    /// Settings that differ.
    pub differs: Vec<SettingDifference>,
    /// Outcome for the first figure.
    pub outcome: TrialOutcome,
    /// Largest number of pairs.
    pub max_pairs: u32,
    /// Difference up to which the sides count as equal, in percent.
    pub equal_within_percent: f64,
    /// P-value below which a check shows a difference: at most 5 % of trials without a difference show one at any check.
    pub level: f64,
    /// Seed of the order within pairs.
    pub seed: u64,
    /// The first figure, on which the trial is decided; null without a pair.
    pub primary: Option<TrialFigure>,
    /// Other figures, tested together only after the first one differs.
    pub others: Vec<TrialFigure>,
    /// Results after every ten pairs, and at the end.
    pub interim: Vec<TrialInterim>,
    /// All pairs.
    pub pairs: Vec<TrialPair>,
    /// Warnings: facts that affect the figures.
    pub warnings: Vec<Warning>,
}

impl TrialDocument {
    /// Returns the pairs that do not count.
    pub fn lost(&self) -> impl Iterator<Item = &TrialPair> {
        self.pairs.iter().filter(|pair| pair.lost.is_some())
    }

    /// Returns whether the first figure was shown to be worse in B.
    #[must_use]
    pub fn is_worse(&self) -> bool {
        let better = self.primary.as_ref().map(|figure| figure.better);
        matches!(
            (self.outcome, better),
            (TrialOutcome::Higher, Some(Better::Lower))
                | (TrialOutcome::Lower, Some(Better::Higher))
        )
    }
}
