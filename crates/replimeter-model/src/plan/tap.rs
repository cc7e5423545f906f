//! The settings of `tap`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{PlanError, contradiction};
use crate::{span::Span, target::Target};

/// The shortest stretch that figures are given for.
const SHORTEST: Span = Span::from_millis(100);

/// The longest rest between two looks at a stream.
const LONGEST_REST: Span = Span::from_millis(100);

/// By what lag is broken down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// By the schema that a transaction touches.
    Schema,
    /// By the table.
    Table,
}

/// The settings of `tap` as a plan file spells them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TapSpec {
    /// How long; until the user ends it when absent.
    #[serde(rename = "for", skip_serializing_if = "Option::is_none")]
    pub duration: Option<Span>,
    /// Figures for each stretch of this length.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<Span>,
    /// How long the primary is followed twice, to know the method's own error; 0 for not
    /// at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub floor: Option<Span>,
    /// Break lag down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<By>,
    /// Only transactions that touch one of these schemas or tables (`schema.table`); all
    /// when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<String>,
    /// No transactions that touch nothing but these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<String>,
    /// Rest for so long after what has arrived was read: fewer wake-ups, and stamps that
    /// are late by up to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rest: Option<Span>,
    /// The first of the `server_id`s to follow under; random ones when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_id: Option<u32>,
    /// Keep every core of this machine from halting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_awake: Option<bool>,
    /// Give the measuring threads real-time priority where that is permitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub real_time: Option<bool>,
}

/// A resolved `tap` measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapPlan {
    /// How long; until the user ends it when `None`.
    pub duration: Option<Span>,
    /// Figures for each stretch of this length.
    pub every: Span,
    /// How long the primary is followed twice; 0 for not at all.
    pub floor: Span,
    /// Break lag down.
    pub by: Option<By>,
    /// Only transactions that touch one of these.
    pub only: Vec<String>,
    /// No transactions that touch nothing but these.
    pub except: Vec<String>,
    /// Rest for so long after what has arrived was read; 0 for not at all.
    pub rest: Span,
    /// The first of the `server_id`s to follow under.
    pub server_id: Option<u32>,
    /// Keep every core of this machine from halting.
    pub keep_awake: bool,
    /// Give the measuring threads real-time priority.
    pub real_time: bool,
}

impl TapSpec {
    pub(super) fn resolve(&self, targets: &[Target]) -> Result<TapPlan, PlanError> {
        if targets.len() > 1 {
            return contradiction("tap follows the servers of one target; run it once for each");
        }
        let every = self.every.unwrap_or(Span::from_secs(1));
        if every < SHORTEST {
            return Err(PlanError::Contradiction(format!(
                "figures are given for stretches of {SHORTEST} or more"
            )));
        }
        if self
            .duration
            .is_some_and(|duration| duration == Span::from_secs(0))
        {
            return contradiction("for must be above 0; leave it out to follow until you end it");
        }
        if self.rest.is_some_and(|rest| rest > LONGEST_REST) {
            return Err(PlanError::Contradiction(format!(
                "stamps would be late by more than {LONGEST_REST}; choose a shorter rest"
            )));
        }
        if self.server_id == Some(0) {
            return contradiction("a server_id of 0 is nobody's");
        }
        if let Some(name) = self.only.iter().chain(&self.except).find(|name| {
            let parts: Vec<&str> = name.split('.').collect();
            parts.len() > 2 || parts.contains(&"")
        }) {
            return Err(PlanError::Contradiction(format!(
                "`{name}` names no schema and no table; write schema or schema.table"
            )));
        }
        Ok(TapPlan {
            duration: self.duration,
            every,
            floor: self.floor.unwrap_or(Span::from_secs(5)),
            by: self.by,
            only: self.only.clone(),
            except: self.except.clone(),
            rest: self.rest.unwrap_or(Span::from_secs(0)),
            server_id: self.server_id,
            keep_awake: self
                .keep_awake
                .unwrap_or(!matches!(targets, [Target::Nodes(_)])),
            real_time: self.real_time.unwrap_or(true),
        })
    }
}

impl TapPlan {
    /// The same as a plan file spells it, with every default.
    #[must_use]
    pub fn to_spec(&self) -> TapSpec {
        TapSpec {
            duration: self.duration,
            every: Some(self.every),
            floor: Some(self.floor),
            by: self.by,
            only: self.only.clone(),
            except: self.except.clone(),
            rest: Some(self.rest),
            server_id: self.server_id,
            keep_awake: Some(self.keep_awake),
            real_time: Some(self.real_time),
        }
    }

    /// Whether transactions must tell the tables that they touch.
    #[must_use]
    pub fn needs_tables(&self) -> bool {
        self.by.is_some() || !self.only.is_empty() || !self.except.is_empty()
    }
}
