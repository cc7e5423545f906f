//! Plans: all settings of a run, with defaults filled in; here is what those of all measurements share.

pub mod checks;
pub mod core_use;
mod explain;
mod file;
pub mod load;
mod one_or_more;
mod place;
mod settings;
pub mod starts;
pub mod stop_condition;
mod target;
pub mod warm_up;

use schemars::{Schema, SchemaGenerator};
use serde_json::Value;
use toml::Table;

pub use self::{
    checks::requires,
    core_use::{CoreUse, Decision},
    explain::explain,
    file::{PlanFile, Request, command},
    one_or_more::OneOrMore,
    settings::{Settings, default_text, is_absent, on_off, with_default},
    stop_condition::{DEFAULT_ROUNDS, StopCondition},
    target::{TargetSettings, check_nodes},
    warm_up::WarmUp,
};

/// A measurement's section of plan files.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// The measurement's name.
    pub name: &'static str,
    /// The schema of its settings.
    pub schema: fn(&mut SchemaGenerator) -> Schema,
    /// Default values.
    pub defaults: fn() -> Table,
}

impl Section {
    /// Returns the section of these settings.
    #[must_use]
    pub const fn of<S: Settings>() -> Self {
        Self {
            name: S::NAME,
            schema: SchemaGenerator::subschema_for::<S>,
            defaults: S::defaults,
        }
    }

    /// Returns whether the section has this key.
    fn has(&self, key: &str) -> bool {
        let mut generator = SchemaGenerator::default();
        let reference = (self.schema)(&mut generator);
        let path = reference.get("$ref").and_then(Value::as_str);
        path.and_then(|path| path.rsplit('/').next())
            .and_then(|name| {
                generator
                    .definitions()
                    .get(name)?
                    .get("properties")?
                    .get(key)
            })
            .is_some()
    }
}

/// Reason why a plan is invalid.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The file is not a plan; the message contains the line.
    #[error("{0}")]
    Syntax(String),
    /// Settings that contradict each other.
    #[error("{0}")]
    Contradiction(String),
}

/// Rejects settings that contradict each other.
///
/// # Errors
/// Always.
pub fn contradiction<T>(message: impl Into<String>) -> Result<T, PlanError> {
    Err(PlanError::Contradiction(message.into()))
}
