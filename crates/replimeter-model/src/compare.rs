//! The record of a comparison of two runs, or of two sets of runs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    estimate::{Estimate, Interval},
    record::RunStatus,
    warning::Warning,
};

/// The schema's name and version in every `compare` document.
pub const COMPARE_SCHEMA: &str = "replimeter.compare/1";

/// What a figure is counted in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// Microseconds.
    #[default]
    Us,
    /// Events per second.
    PerS,
    /// Percent of all.
    Percent,
    /// A number of things.
    Count,
    /// Bytes.
    Bytes,
}

/// Which way a figure should go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// Smaller is better.
    #[default]
    Lower,
    /// Larger is better.
    Higher,
    /// Neither: it says what happened, not how well.
    Neither,
}

/// What a comparison of one figure came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// B's is larger.
    Higher,
    /// B's is smaller.
    Lower,
    /// No difference was shown.
    NotShown,
    /// It would count as a difference by itself, but may be chance among so many figures.
    NotAmongAll,
    /// It cannot be told: one side has no interval.
    #[default]
    Unknown,
}

/// A word that tells figures of the same name apart.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub struct Dimension {
    /// What it is: `shape`, `replica`, `method`, `threads`, …
    pub name: String,
    /// Which.
    pub value: String,
}

/// A figure of one side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SideFigure {
    /// The figure: of several runs their mean.
    pub value: f64,
    /// Its 95 % confidence interval; null when there is too little to tell.
    pub ci95: Interval,
    /// Runs behind it.
    pub runs: u64,
    /// Samples behind it: observations, blocks or crashes.
    pub samples: u64,
    /// Blocks that were drawn for the interval; 0 where the record's own interval was taken.
    pub blocks: u64,
    /// Samples in a block, on average.
    pub block_length: f64,
    /// The run is too short to see how long its samples depend on one another: its interval is of four long blocks and may
    /// still be too narrow, or there is none.
    pub short: bool,
}

/// One figure of both sides.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CompareRow {
    /// Its name, such as `lag.p99`.
    pub figure: String,
    /// What it is of.
    pub of: Vec<Dimension>,
    /// The same for people; only what tells this comparison's figures apart.
    pub label: String,
    /// What all its numbers are counted in.
    pub unit: Quantity,
    /// Which way is better.
    pub better: Better,
    /// The first side.
    pub a: SideFigure,
    /// The second side.
    pub b: SideFigure,
    /// B less A; of percentages in percentage points.
    pub difference: Estimate,
    /// B over A; null where one of them is not surely positive.
    pub ratio: Estimate,
    /// The probability of such a difference, or a larger one, were there none; null without intervals.
    pub p_value: Option<f64>,
    /// The same, corrected for the number of figures (Holm 1979).
    pub p_adjusted: Option<f64>,
    /// The smallest difference that would have been shown in four of five such comparisons.
    pub seen_from: Option<f64>,
    /// The same as a rise in percent of A, where the ratio is judged (a drop of p / (1 + p) is as far); null where the
    /// difference is.
    pub seen_from_percent: Option<f64>,
    /// What came of it.
    pub change: Change,
    /// The same in words.
    pub verdict: String,
}

/// One run of a side.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComparedRun {
    /// Where it is kept.
    pub run_dir: String,
    /// What its plan calls itself.
    pub title: Option<String>,
    /// Whether it came to its end.
    pub status: RunStatus,
    /// When it began (RFC 3339, UTC).
    pub started_at: String,
    /// What it measured.
    pub shape: String,
    /// The version of Replimeter that measured.
    pub replimeter: String,
}

/// One side.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CompareSide {
    /// Its runs.
    pub runs: Vec<ComparedRun>,
}

/// A setting that is not the same on both sides.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SettingDifference {
    /// `target`, `plan`, `version`, `machine`, `sandbox` or `variable`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// What it is on the first side; of several runs all values, with bars between them.
    pub a: String,
    /// What it is on the second side.
    pub b: String,
}

/// Figures that only one side has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OnlyOn {
    /// `a` or `b`.
    pub side: String,
    /// What they are of.
    pub of: String,
    /// How many.
    pub figures: u64,
}

/// What became of a condition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It does not fail.
    #[default]
    Passed,
    /// It fails.
    Failed,
    /// There is no interval to judge it by; it fails only where doubt fails.
    NotJudged,
}

one_of! {
    /// What a condition fails by.
    #[derive(Default)]
    pub enum FailWhen {
        /// All of the interval is beyond the limit: noise does not fail
        #[default]
        Proven = "proven",
        /// The figure itself is, whatever its interval: noise may fail
        Estimated = "estimated",
        /// Any of the interval is: what is not shown to be well fails
        Possible = "possible",
    }
}

/// A condition of `--fail-if`, for one figure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Condition {
    /// As it was given.
    pub condition: String,
    /// What it was judged for.
    pub label: String,
    /// The value that was held against the limit: a ratio less 1, a difference, or B's value.
    pub value: f64,
    /// The limit, in the same unit.
    pub limit: f64,
    /// The value's confidence interval, at 95 % for all conditions together; null without one.
    pub ci95: Interval,
    /// What became of it.
    pub outcome: Outcome,
    /// The same in words.
    pub verdict: String,
}

/// The whole document of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CompareDocument {
    /// [`COMPARE_SCHEMA`].
    pub schema: String,
    /// Where the comparison is kept.
    pub run_dir: String,
    /// What measured both sides: `lag`, `stale`, …
    pub command: String,
    /// The finding in a sentence or two.
    pub headline: String,
    /// When it was made (RFC 3339, UTC).
    pub compared_at: String,
    /// The first side: what was.
    pub a: CompareSide,
    /// The second side: what is held against it.
    pub b: CompareSide,
    /// Settings that differ.
    pub differs: Vec<SettingDifference>,
    /// Settings that differ between the runs of one side, by their names.
    pub varies: Vec<SettingDifference>,
    /// A row for each figure of both sides.
    pub results: Vec<CompareRow>,
    /// Figures of one side alone.
    pub only_on: Vec<OnlyOn>,
    /// How many figures the p-values were corrected for.
    pub corrected_for: u64,
    /// The level of every interval.
    pub level: f64,
    /// Resamples behind each.
    pub resamples: u64,
    /// What conditions fail by.
    pub fail_when: FailWhen,
    /// The conditions; empty without `--fail-if`.
    pub conditions: Vec<Condition>,
    /// What a reader must know to trust the figures.
    pub warnings: Vec<Warning>,
}

impl CompareDocument {
    /// Whether a condition failed.
    #[must_use]
    pub fn failed(&self) -> bool {
        let doubt = self.fail_when == FailWhen::Possible;
        self.conditions
            .iter()
            .any(|condition| match condition.outcome {
                Outcome::Failed => true,
                Outcome::NotJudged => doubt,
                Outcome::Passed => false,
            })
    }

    /// Runs of both sides together.
    #[must_use]
    pub fn runs(&self) -> usize {
        self.a.runs.len() + self.b.runs.len()
    }
}
