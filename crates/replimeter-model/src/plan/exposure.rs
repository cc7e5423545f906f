//! The settings of `exposure`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{PlanError, contradiction};
use crate::{span::Span, target::Target};

/// The shortest stretch that figures are given for.
const SHORTEST: Span = Span::from_millis(100);
/// The shortest time between two looks.
const CLOSEST: Span = Span::from_millis(1);
/// The longest.
const FARTHEST: Span = Span::from_secs(10);
/// The most connections that write.
const MOST_WRITERS: u32 = 256;

/// The settings of `exposure` as a plan file spells them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ExposureSpec {
    /// How long.
    #[serde(rename = "for", skip_serializing_if = "Option::is_none")]
    pub duration: Option<Span>,
    /// Figures for each stretch of this length.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<Span>,
    /// From one question to the replicas to the next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub look: Option<Span>,
    /// Connections that insert rows meanwhile, on a sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writers: Option<u32>,
    /// Inserts per second, all writers together; back to back otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<u64>,
    /// Payload bytes of each such row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// The `server_id` to follow the primary under; a random one when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_id: Option<u32>,
    /// Keep every core of this machine from halting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_awake: Option<bool>,
    /// Give the measuring threads real-time priority where that is permitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub real_time: Option<bool>,
}

/// A resolved `exposure` measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExposurePlan {
    /// How long.
    pub duration: Span,
    /// Figures for each stretch of this length.
    pub every: Span,
    /// From one question to the replicas to the next.
    pub look: Span,
    /// Connections that insert rows meanwhile; 0 for none.
    pub writers: u32,
    /// Inserts per second; back to back when `None`.
    pub rate: Option<u64>,
    /// Payload bytes of each such row.
    pub size: u64,
    /// The `server_id` to follow the primary under.
    pub server_id: Option<u32>,
    /// Keep every core of this machine from halting.
    pub keep_awake: bool,
    /// Give the measuring threads real-time priority.
    pub real_time: bool,
}

impl ExposureSpec {
    pub(super) fn resolve(&self, targets: &[Target]) -> Result<ExposurePlan, PlanError> {
        let [target] = targets else {
            return contradiction(
                "exposure looks at the servers of one target; run it once for each",
            );
        };
        if let Target::Sandbox(spec) = target
            && spec.shape.servers() < 2
        {
            return contradiction(
                "the sandbox has no replica, so nothing is exposed to its loss; choose a shape that replicates",
            );
        }
        let duration = self.duration.unwrap_or(Span::from_secs(60));
        if duration == Span::from_secs(0) {
            return contradiction("for must be above 0");
        }
        let every = self.every.unwrap_or(Span::from_secs(1));
        if every < SHORTEST {
            return Err(PlanError::Contradiction(format!(
                "figures are given for stretches of {SHORTEST} or more"
            )));
        }
        let look = self.look.unwrap_or(Span::from_millis(10));
        if look < CLOSEST || look > FARTHEST {
            return Err(PlanError::Contradiction(format!(
                "the replicas are asked every {CLOSEST} to {FARTHEST}"
            )));
        }
        // In a sandbox of our own nothing happens unless we write.
        let own = matches!(target, Target::Sandbox(_));
        let writers = self.writers.unwrap_or(if own { 4 } else { 0 });
        if writers > 0 && !own {
            return contradiction(
                "exposure writes nothing to servers that it did not start: its writers are for --sandbox SHAPE; there the traffic is your own",
            );
        }
        if writers > MOST_WRITERS {
            return Err(PlanError::Contradiction(format!(
                "writers must be from 0 to {MOST_WRITERS}"
            )));
        }
        if self.rate.is_some() && writers == 0 {
            return contradiction("a rate needs writers");
        }
        if self.rate == Some(0) {
            return contradiction("a rate of 0 writes nothing; leave it out to write back to back");
        }
        let size = self.size.unwrap_or(100);
        if size == 0 || size > super::loss::MOST_BYTES {
            return Err(PlanError::Contradiction(format!(
                "a row has from 1 to {} bytes",
                super::loss::MOST_BYTES
            )));
        }
        if self.server_id == Some(0) {
            return contradiction("a server_id of 0 is nobody's");
        }
        Ok(ExposurePlan {
            duration,
            every,
            look,
            writers,
            rate: self.rate,
            size,
            server_id: self.server_id,
            keep_awake: self
                .keep_awake
                .unwrap_or(!matches!(target, Target::Nodes(_))),
            real_time: self.real_time.unwrap_or(true),
        })
    }
}

impl ExposurePlan {
    /// The same as a plan file spells it, with every default.
    #[must_use]
    pub fn to_spec(&self) -> ExposureSpec {
        let written = self.writers > 0;
        ExposureSpec {
            duration: Some(self.duration),
            every: Some(self.every),
            look: Some(self.look),
            writers: Some(self.writers),
            rate: self.rate,
            size: written.then_some(self.size),
            server_id: self.server_id,
            keep_awake: Some(self.keep_awake),
            real_time: Some(self.real_time),
        }
    }
}
