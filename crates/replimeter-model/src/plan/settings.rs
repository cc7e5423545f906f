//! Settings of a measurement, declared once for the command line, plan files and documents.

use std::fmt;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};
use toml::{Table, Value};

use super::{PlanError, TargetSettings};
use crate::target::Target;

/// The settings of a measurement. A setting that is not given is `None`, or empty; a doc comment is the help of an
/// option and the description of a key, in which `{default}` stands for the value that [`Settings::plan`] fills in.
pub trait Settings:
    clap::Args + Serialize + DeserializeOwned + JsonSchema + Clone + Default + PartialEq + fmt::Debug
{
    /// The measurement's name: its command, and its section of a plan file.
    const NAME: &'static str;
    /// The resolved measurement.
    type Plan: Clone + PartialEq + fmt::Debug;

    /// Fills in all defaults, here and in the target, and validates the plan: the result is what `plan.toml` holds.
    ///
    /// # Errors
    /// When settings contradict each other or name what does not exist.
    fn plan(&mut self, target: &mut TargetSettings)
    -> Result<(Vec<Target>, Self::Plan), PlanError>;

    /// Leaves one of the starts that share its rounds, in settings with every default.
    fn leave_one_start(&mut self) {}

    /// Returns the workloads by their names or paths; on the command line, paths are relative to its directory.
    fn workloads(&mut self) -> Vec<&mut String> {
        Vec::new()
    }

    /// Returns the default values.
    #[must_use]
    fn defaults() -> Table {
        let mut settings = Self::default();
        settings
            .plan(&mut TargetSettings::default())
            .ok()
            .and_then(|_| Table::try_from(&settings).ok())
            .unwrap_or_default()
    }
}

/// Returns a default as the command line has it.
#[must_use]
pub fn default_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Boolean(true) => "on".to_owned(),
        Value::Boolean(false) => "off".to_owned(),
        Value::Array(all) => all.iter().map(default_text).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

/// Returns a description with the setting's default in place of `{default}`.
#[must_use]
pub fn with_default(about: &str, key: &str, defaults: &Table) -> String {
    match defaults.get(key) {
        Some(value) => about.replace("{default}", &default_text(value)),
        None => about.to_owned(),
    }
}

/// Parses `on` and `off`.
pub(crate) fn on_off() -> impl TypedValueParser<Value = bool> {
    PossibleValuesParser::new(["on", "off"]).map(|word| word == "on")
}
