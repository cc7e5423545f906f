//! Plans: all settings of a run, with defaults filled in.

mod backlog;
mod calibrate;
mod checks;
mod core_use;
mod cost;
mod explain;
mod exposure;
mod file;
mod front;
mod lag;
mod load;
mod load_settings;
mod loss;
mod one_or_more;
mod place;
mod reference;
mod scale;
mod settings;
mod site;
mod stale;
mod starts;
mod stop_condition;
mod tap;
mod target;
mod warm_up;

use schemars::{Schema, SchemaGenerator};
use serde_json::Value;
use toml::Table;

pub use self::{
    backlog::{BacklogPlan, BacklogSettings},
    calibrate::{CalibratePlan, CalibrateSettings, Conditions, ReferencePlan},
    checks::requires,
    core_use::{CoreUse, Decision},
    cost::{CostMode, CostModes, CostPlan, CostServers, CostSettings, Durability, LoggedMode},
    explain::explain,
    exposure::{ExposurePlan, ExposureSettings},
    file::{PlanFile, Planned, command},
    front::{FrontPlan, FrontSettings, Remedy},
    lag::{DEFAULT_SIZE, LagPlan, LagSettings, Method, Methods, Pace, StampJoin, WritePattern},
    load_settings::{LoadRunPlan, LoadSettings},
    loss::{CrashKind, LossCase, LossPlan, LossSettings},
    one_or_more::OneOrMore,
    reference::DelayShape,
    scale::{
        MIN_COUNTS, ReplicaCounts, ScaleMode, ScalePhase, ScalePlan, ScaleSettings, ScaleSite,
    },
    settings::{Settings, default_text, is_absent, on_off, with_default},
    site::{HttpDriver, SitePlan, Through},
    stale::{
        CheckedLoadReads, JudgedConnections, LoadCase, LoadRate, READERS, ReadConsistency,
        ReadDelays, SessionReset, StalePace, StalePlan, StaleSettings, StaleSite,
    },
    stop_condition::{DEFAULT_ROUNDS, StopCondition},
    tap::{GroupBy, TapPlan, TapSettings},
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

fn contradiction<T>(message: impl Into<String>) -> Result<T, PlanError> {
    Err(PlanError::Contradiction(message.into()))
}

#[cfg(test)]
mod tests;
