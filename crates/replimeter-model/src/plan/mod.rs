//! Plans: all settings of a run, with defaults filled in.

mod backlog;
mod calibrate;
mod cost;
mod exposure;
mod file;
mod lag;
mod load;
mod load_settings;
mod loss;
mod one_or_more;
mod place;
mod scale;
mod settings;
mod stale;
mod tap;
mod target;
mod units;
mod warm_up;

use schemars::{Schema, SchemaGenerator};
use serde_json::Value;
use toml::Table;

pub use self::{
    backlog::{BacklogPlan, BacklogSettings},
    calibrate::{CalibratePlan, CalibrateSettings},
    cost::{CostKind, CostMode, CostModes, CostPlan, CostServers, CostSettings, Durability},
    exposure::{ExposurePlan, ExposureSettings},
    file::{PlanFile, Planned, command},
    lag::{
        DEFAULT_ROUNDS, DEFAULT_SIZE, LagPlan, LagSettings, Method, Methods, Pace, StampJoin,
        StopCondition, WritePattern,
    },
    load_settings::{LoadRunPlan, LoadSettings},
    loss::{CrashKind, LossCase, LossPlan, LossSettings},
    scale::{MIN_COUNTS, ReplicaCounts, ScaleMode, ScalePhase, ScalePlan, ScaleSettings},
    settings::{Settings, default_text, with_default},
    stale::{
        CheckedLoadReads, JudgedConnections, LoadCase, READERS, ReadConsistency, ReadDelays,
        SessionReset, StalePace, StalePlan, StaleSettings,
    },
    tap::{GroupBy, TapPlan, TapSettings},
    target::{TargetSettings, check_nodes},
    warm_up::WarmUp,
};
use crate::{redact, suggest};

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

fn contradiction<T>(message: &str) -> Result<T, PlanError> {
    Err(PlanError::Contradiction(message.to_owned()))
}

/// Returns a message about an error in a TOML text, with line, column and a suggestion;
/// with an excerpt unless that could contain a password. `sections` are those of plan files.
#[must_use]
pub fn explain(error: &toml::de::Error, text: &str, sections: &[Section]) -> String {
    let excerpt = error.to_string();
    // Any line of a multi-line or unterminated string can be a part of a URL.
    let several_lines = ["\"\"\"", "'''"]
        .into_iter()
        .any(|mark| text.contains(mark))
        || toml::de::DeTable::parse(text).is_err() && redact::may_hold_password(text);
    let mut explained = if several_lines || redact::may_hold_password(&excerpt) {
        let (line, column) =
            place::line_and_column(text, error.span().map_or(0, |span| span.start));
        format!(
            "line {line}, column {column}: {}",
            redact::serde_message(error.message())
        )
    } else {
        excerpt.trim_end().to_owned()
    };
    if let Some((wrong, known)) = suggest::unknown(error.message()) {
        let hint = suggest::nearest(wrong, known).map(|word| format!("did you mean `{word}`?"));
        let hint = hint.or_else(|| {
            let target = Section {
                name: "target",
                schema: SchemaGenerator::subschema_for::<TargetSettings>,
                defaults: Table::new,
            };
            let all = std::iter::once(&target).chain(sections);
            let names: Vec<&str> = all
                .filter(|section| section.has(wrong))
                .map(|section| section.name)
                .collect();
            (!names.is_empty())
                .then(|| format!("`{wrong}` is a key of [{}]", names.join("] and [")))
        });
        explained.extend(hint.map(|hint| format!("\n{hint}")));
    }
    explained
}

#[cfg(test)]
mod tests;
