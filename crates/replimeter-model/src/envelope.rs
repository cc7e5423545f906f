//! The record of a run of any measurement: what `--json` prints and `summary.json` keeps.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    equal_runs::EqualRuns,
    record::{ClientRecord, RunStatus, TargetRecord},
    warning::Warning,
};

/// The record of a run with the settings and the results of its measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(bound(
    serialize = "S: Serialize, R: Serialize",
    deserialize = "S: DeserializeOwned, R: Deserialize<'de>"
))]
#[schemars(bound = "S: JsonSchema, R: JsonSchema")]
pub struct Envelope<S, R> {
    /// `replimeter.COMMAND/VERSION`.
    pub schema: String,
    /// The measurement.
    pub command: String,
    /// Title from the plan.
    pub title: Option<String>,
    /// Run directory.
    pub run_dir: String,
    /// Start of the run (RFC 3339, UTC).
    pub started_at: String,
    /// Time that was measured, in microseconds; null for measurements without such a time.
    pub measured_us: Option<f64>,
    /// Whether the run completed.
    pub status: RunStatus,
    /// Error that ended a failed run.
    pub error: Option<String>,
    /// Main finding, in one or a few sentences.
    pub headline: String,
    /// How much runs of this plan differ; absent unless the folder of the run directory has five or more that are complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub equal_runs: Option<EqualRuns>,
    /// The resolved settings, under the names of the plan's keys in snake_case.
    #[serde(with = "settings")]
    #[schemars(with = "S")]
    pub settings: S,
    /// Servers that were measured.
    pub target: TargetRecord,
    /// Limits of the client.
    pub client: ClientRecord,
    /// Warnings: facts that affect the figures.
    pub warnings: Vec<Warning>,
    /// The figures.
    pub results: R,
}

impl<S, R> Envelope<S, R> {
    /// Returns whether several shapes are side by side.
    #[must_use]
    pub fn several(&self) -> bool {
        self.target.modes.len() > 1
    }
}

/// Settings have the keys of plan files, in kebab-case; a document has all of its keys in snake_case.
mod settings {
    use serde::{Deserializer, Serializer, de, ser};
    use serde_json::{Map, Value};

    use super::{Deserialize, DeserializeOwned, Serialize};

    pub(super) fn serialize<T: Serialize, S: Serializer>(
        settings: &T,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let value = serde_json::to_value(settings).map_err(ser::Error::custom)?;
        renamed(value, '-', '_').serialize(serializer)
    }

    pub(super) fn deserialize<'de, T: DeserializeOwned, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<T, D::Error> {
        let value = Value::deserialize(deserializer)?;
        T::deserialize(renamed(value, '_', '-')).map_err(de::Error::custom)
    }

    /// The settings with one character of their keys replaced by another.
    fn renamed(settings: Value, from: char, to: char) -> Value {
        let Value::Object(keys) = settings else {
            return settings;
        };
        let to = to.to_string();
        let keys: Map<String, Value> = keys
            .into_iter()
            .map(|(key, value)| (key.replace(from, &to), value))
            .collect();
        Value::Object(keys)
    }
}
