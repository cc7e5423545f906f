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

/// Unit of a figure.
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
    /// A count.
    Count,
    /// Bytes.
    Bytes,
}

/// Direction of improvement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// Smaller is better.
    #[default]
    Lower,
    /// Larger is better.
    Higher,
    /// Neither: a fact, not a quality.
    Neither,
}

/// What the comparison's p-values and intervals come from, which decides what it can say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// Runs of A and B alternate in time, and are the units: a difference is one of the settings.
    AlternatingRuns,
    /// The known spread between runs of equal settings: a difference is more than such runs differ by, of unknown cause.
    KnownSpread,
    /// What varied within the runs, or between runs of one side: a difference is one of these runs, of unknown cause.
    #[default]
    WithinRuns,
}

/// Result of the comparison of one figure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// B's is larger.
    Higher,
    /// B's is smaller.
    Lower,
    /// No difference was shown.
    NotShown,
    /// A difference on its own, but possibly chance among this many figures.
    NotAmongAll,
    /// The runs differ, and the cause is unknown: the runs did not alternate.
    Differs,
    /// Not determined: one side has no interval.
    #[default]
    Unknown,
}

/// Attribute that distinguishes figures of the same name.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub struct Dimension {
    /// Name: `shape`, `replica`, `method`, `threads`, …
    pub name: String,
    /// Value.
    pub value: String,
}

/// A figure of one side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SideFigure {
    /// The figure; of several runs, or several starts of one run, their geometric mean (arithmetic if one is not positive).
    pub value: f64,
    /// Its 95 % confidence interval; null when there is too little data.
    pub ci95: Interval,
    /// Number of runs.
    pub runs: u64,
    /// Number of fresh starts of the servers behind it; 0 for servers that ran already, and for figures of a command
    /// that resamples its starts.
    #[serde(default)]
    pub starts: u64,
    /// Number of samples: observations, blocks or crashes.
    pub samples: u64,
    /// Blocks that were drawn for the interval; 0 where the record's own interval was taken.
    pub blocks: u64,
    /// Samples in a block, on average; 0 without blocks.
    pub block_length: f64,
    /// The run is too short to determine how long its samples depend on one another: its interval is
    /// made from four long blocks and may still be too narrow, or there is no interval.
    pub short: bool,
}

/// One figure of both sides.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CompareRow {
    /// Name of the figure, such as `lag.p99`.
    pub figure: String,
    /// Attributes of the figure.
    pub of: Vec<Dimension>,
    /// The attributes in words; only those that distinguish this comparison's figures.
    pub label: String,
    /// Unit of all numbers of the row.
    pub unit: Quantity,
    /// Direction of improvement.
    pub better: Better,
    /// The first side.
    pub a: SideFigure,
    /// The second side.
    pub b: SideFigure,
    /// B minus A; of percentages in percentage points.
    pub difference: Estimate,
    /// B divided by A; null where one of them is not surely positive.
    pub ratio: Estimate,
    /// The known standard deviation between runs of equal settings, if the test is by it: of the ratio's logarithm where there is a
    /// `seen_from_percent`, otherwise in the unit of the row. Null where it is unknown or not needed.
    #[serde(default)]
    pub known_spread: Option<f64>,
    /// Probability of such a difference, or a larger one, if there were none; null without
    /// intervals.
    pub p_value: Option<f64>,
    /// The p-value corrected for the number of figures (Holm 1979).
    pub p_adjusted: Option<f64>,
    /// The smallest difference that would have been shown in four of five such comparisons.
    pub seen_from: Option<f64>,
    /// The same as a rise in percent of A, where the ratio is judged (a drop of p / (1 + p) is as far); null where the
    /// difference is.
    pub seen_from_percent: Option<f64>,
    /// Result of the comparison.
    pub change: Change,
    /// The result in words.
    pub verdict: String,
}

/// One run of a side.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComparedRun {
    /// Run directory.
    pub run_dir: String,
    /// Title from the plan.
    pub title: Option<String>,
    /// Whether the run completed.
    pub status: RunStatus,
    /// Start of the run (RFC 3339, UTC).
    pub started_at: String,
    /// Shape that was measured.
    pub shape: String,
    /// How often the servers were started for it; 0 for servers that ran already.
    #[serde(default)]
    pub starts: u64,
    /// Version of Replimeter that measured it.
    pub replimeter: String,
}

/// One side.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CompareSide {
    /// Runs of the side.
    pub runs: Vec<ComparedRun>,
}

/// Setting that differs between the sides.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SettingDifference {
    /// `target`, `plan`, `version`, `machine`, `sandbox` or `variable`.
    pub kind: String,
    /// Name of the setting.
    pub name: String,
    /// Value on the first side; of several runs all values, separated by bars.
    pub a: String,
    /// Value on the second side.
    pub b: String,
}

/// Figures that only one side has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OnlyOn {
    /// `a` or `b`.
    pub side: String,
    /// Attributes of the figures.
    pub of: String,
    /// Number of figures.
    pub figures: u64,
}

/// Outcome of a condition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The condition passed.
    #[default]
    Passed,
    /// The condition failed.
    Failed,
    /// Not shown: the interval contains the limit, or the figure has none. It fails only under the rule `possible`.
    Inconclusive,
}

one_of! {
    /// Rule by which a condition fails: how much of the figure's interval has to be beyond the limit.
    #[derive(Default)]
    pub enum FailWhen {
        /// The whole interval: noise seldom fails
        #[default]
        Proven = "proven",
        /// The figure itself, regardless of its interval: noise may fail
        Estimated = "estimated",
        /// Any part of the interval: an inconclusive condition fails too
        Possible = "possible",
    }
}

/// A condition of `--fail-if`, for one figure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Condition {
    /// Text of the condition.
    pub condition: String,
    /// Figure that the condition was judged for.
    pub label: String,
    /// Value that was compared with the limit: a ratio minus 1, a difference, or B's value.
    pub value: f64,
    /// The limit, in the same unit.
    pub limit: f64,
    /// The value's confidence interval, at 95 % for all conditions together; null without one.
    pub ci95: Interval,
    /// Outcome of the condition.
    pub outcome: Outcome,
    /// The outcome in words.
    pub verdict: String,
}

/// The whole document of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CompareDocument {
    /// [`COMPARE_SCHEMA`].
    pub schema: String,
    /// Directory of the comparison.
    pub run_dir: String,
    /// Measurement of both sides: `lag`, `stale`, …
    pub command: String,
    /// Main finding, in one or two sentences.
    pub headline: String,
    /// Time of the comparison (RFC 3339, UTC).
    pub compared_at: String,
    /// First side: the baseline.
    pub a: CompareSide,
    /// Second side, which is compared with the first.
    pub b: CompareSide,
    /// What p-values and intervals come from.
    pub basis: Basis,
    /// Runs of equal settings from which the spread between runs is known; 0 if it is unknown or not needed.
    pub known_from: u64,
    /// Settings that differ.
    pub differs: Vec<SettingDifference>,
    /// Settings that differ between the runs of one side, by their names.
    pub varies: Vec<SettingDifference>,
    /// A row for each figure of both sides.
    pub results: Vec<CompareRow>,
    /// Figures of one side alone.
    pub only_on: Vec<OnlyOn>,
    /// Number of figures that the p-values were corrected for: at most 5 % of comparisons of equal settings show any difference, unless the
    /// basis is `within-runs`.
    pub corrected_for: u64,
    /// The level of every interval.
    pub level: f64,
    /// Resamples behind each interval.
    pub resamples: u64,
    /// Rule by which conditions fail.
    pub fail_when: FailWhen,
    /// The conditions; empty without `--fail-if`.
    pub conditions: Vec<Condition>,
    /// Warnings: facts that affect the figures.
    pub warnings: Vec<Warning>,
}

impl CompareDocument {
    /// Whether a condition failed.
    #[must_use]
    pub fn failed(&self) -> bool {
        self.conditions
            .iter()
            .any(|condition| self.fails(condition))
    }

    /// Whether this condition failed, by the rule of the comparison.
    #[must_use]
    pub fn fails(&self, condition: &Condition) -> bool {
        match condition.outcome {
            Outcome::Failed => true,
            Outcome::Inconclusive => self.fail_when == FailWhen::Possible,
            Outcome::Passed => false,
        }
    }

    /// Whether the servers of a run ran already.
    #[must_use]
    pub fn servers_ran(&self) -> bool {
        let mut runs = self.a.runs.iter().chain(&self.b.runs);
        runs.any(|run| run.starts == 0)
    }

    /// Runs of both sides together.
    #[must_use]
    pub fn runs(&self) -> usize {
        self.a.runs.len() + self.b.runs.len()
    }
}
