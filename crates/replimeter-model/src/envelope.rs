//! The record of a run, whatever it measured: what `--json` prints and `summary.json` keeps.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    record::{ClientRecord, RunStatus, TargetRecord},
    warning::Warning,
};

/// The record of a run with the settings and the results of its measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Envelope<S, R> {
    /// `replimeter.COMMAND/VERSION`.
    pub schema: String,
    /// The measurement.
    pub command: String,
    /// What the plan calls itself.
    pub title: Option<String>,
    /// Where the run is kept.
    pub run_dir: String,
    /// When it began (RFC 3339, UTC).
    pub started_at: String,
    /// How long was measured; null where runs of this measurement have no such time.
    pub measured_us: Option<f64>,
    /// Whether it came to its end.
    pub status: RunStatus,
    /// What ended a failed run.
    pub error: Option<String>,
    /// The finding, in a sentence or a few.
    pub headline: String,
    /// The resolved settings.
    pub settings: S,
    /// What was measured.
    pub target: TargetRecord,
    /// The client's own limits.
    pub client: ClientRecord,
    /// What a reader must know to trust the figures.
    pub warnings: Vec<Warning>,
    /// The figures.
    pub results: R,
}
