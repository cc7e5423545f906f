//! The settings of `loss`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{PlanError, TargetSpec, contradiction};
use crate::{
    sandbox::{SandboxSpec, WaitPoint},
    shape::{Mode, Shape},
    span::Span,
    target::Target,
};

/// The most crashes of one run.
const MOST_CRASHES: u32 = 1000;
/// The most connections that write.
const MOST_WRITERS: u32 = 256;
/// The longest load before a crash: every transaction is kept in memory until it is
/// known what became of it.
const LONGEST_LOAD: Span = Span::from_secs(60);
/// The longest time between the cut and the end of the primary.
const LONGEST_GAP: Span = Span::from_secs(60);
/// The most bytes of a row: what a BLOB holds.
pub(super) const MOST_BYTES: u64 = 65_535;

/// How the primary ends.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Crash {
    /// By SIGKILL: what it had sent arrives.
    #[default]
    Kill,
    /// Its links are cut, a while later it is killed: what it had sent is lost too.
    Isolated,
}

impl Crash {
    /// The name in plans and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Isolated => "isolated",
        }
    }
}

/// The settings of `loss` as a plan file spells them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LossSpec {
    /// How the primary ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crash: Option<Crash>,
    /// How often, each time with servers that were started anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crashes: Option<u32>,
    /// How long is written before each crash.
    #[serde(rename = "for", skip_serializing_if = "Option::is_none")]
    pub duration: Option<Span>,
    /// Connections that write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writers: Option<u32>,
    /// Inserts per second, all writers together; back to back otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<u64>,
    /// Payload bytes of each row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// From the cut of the links to the end of the primary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap: Option<Span>,
    /// Varies the moments of the crashes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Keep every core of this machine from halting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_awake: Option<bool>,
}

/// A resolved `loss` measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LossPlan {
    /// How the primary ends.
    pub crash: Crash,
    /// How often.
    pub crashes: u32,
    /// How long is written before each crash.
    pub load: Span,
    /// Connections that write.
    pub writers: u32,
    /// Inserts per second; back to back when `None`.
    pub rate: Option<u64>,
    /// Payload bytes of each row.
    pub size: u64,
    /// From the cut to the end; used by [`Crash::Isolated`] only.
    pub gap: Span,
    /// Varies the moments of the crashes.
    pub seed: u64,
    /// Keep every core of this machine from halting.
    pub keep_awake: bool,
}

/// One way of replicating that is crashed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LossCase {
    /// What reports call it: the shape, with the wait point where there are two.
    pub label: String,
    /// What is started.
    pub spec: SandboxSpec,
}

/// Refuses targets that may not be crashed, or where nothing could be lost or kept.
/// For isolated crashes it adds a link, which can be cut.
pub(super) fn check_target(spec: &mut TargetSpec, loss: &LossSpec) -> Result<(), PlanError> {
    let refused = contradiction(
        "loss kills the primary and starts it again: it takes only sandboxes that it starts and removes itself (--sandbox SHAPE), never servers of yours and no sandbox that is kept; `replimeter exposure` says what a crash of theirs would take",
    );
    // That is said before what else may be amiss with them.
    if spec.primary.is_some() || !spec.replicas.is_empty() || !spec.nodes.is_empty() {
        return refused;
    }
    for target in spec.resolve()? {
        let Target::Sandbox(sandbox) = target else {
            return refused;
        };
        check_shape(sandbox.shape)?;
    }
    if loss.crash == Some(Crash::Isolated) && spec.link_delay.is_none() {
        spec.link_delay = Some(Span::from_secs(0));
    }
    Ok(())
}

fn check_shape(shape: Shape) -> Result<(), PlanError> {
    if shape.servers() > 1 {
        return Ok(());
    }
    Err(PlanError::Contradiction(format!(
        "{shape} has no replica: nobody is left to take over, and what the primary acknowledged is on its own disk only. Choose a shape that replicates, such as async:1"
    )))
}

impl LossSpec {
    pub(super) fn resolve(&self) -> Result<LossPlan, PlanError> {
        let crashes = self.crashes.unwrap_or(5);
        if crashes == 0 || crashes > MOST_CRASHES {
            return Err(PlanError::Contradiction(format!(
                "crashes must be from 1 to {MOST_CRASHES}"
            )));
        }
        let load = self.duration.unwrap_or(Span::from_secs(1));
        if load < Span::from_millis(100) || load > LONGEST_LOAD {
            return Err(PlanError::Contradiction(format!(
                "rows are written for 100ms to {LONGEST_LOAD} before a crash: each is remembered until it is known what became of it"
            )));
        }
        let writers = self.writers.unwrap_or(8);
        if writers == 0 || writers > MOST_WRITERS {
            return Err(PlanError::Contradiction(format!(
                "writers must be from 1 to {MOST_WRITERS}"
            )));
        }
        if self.rate == Some(0) {
            return contradiction("a rate of 0 writes nothing; leave it out to write back to back");
        }
        let size = self.size.unwrap_or(100);
        if size == 0 || size > MOST_BYTES {
            return Err(PlanError::Contradiction(format!(
                "a row has from 1 to {MOST_BYTES} bytes"
            )));
        }
        let crash = self.crash.unwrap_or_default();
        if crash == Crash::Kill && self.gap.is_some() {
            return contradiction(
                "a gap lies between the cut and the end of the primary: it belongs to isolated crashes",
            );
        }
        let gap = self.gap.unwrap_or(Span::from_millis(200));
        if gap > LONGEST_GAP {
            return Err(PlanError::Contradiction(format!(
                "a gap of {gap} is longer than {LONGEST_GAP}"
            )));
        }
        Ok(LossPlan {
            crash,
            crashes,
            load,
            writers,
            rate: self.rate,
            size,
            gap,
            seed: self.seed.unwrap_or(1),
            keep_awake: self.keep_awake.unwrap_or(true),
        })
    }
}

impl LossPlan {
    /// The same as a plan file spells it, with every default.
    #[must_use]
    pub fn to_spec(&self) -> LossSpec {
        LossSpec {
            crash: Some(self.crash),
            crashes: Some(self.crashes),
            duration: Some(self.load),
            writers: Some(self.writers),
            rate: self.rate,
            size: Some(self.size),
            gap: (self.crash == Crash::Isolated).then_some(self.gap),
            seed: Some(self.seed),
            keep_awake: Some(self.keep_awake),
        }
    }

    /// What is crashed: every target, a semi-synchronous one with both wait points unless
    /// one is chosen.
    #[must_use]
    pub fn cases(&self, targets: &[Target]) -> Vec<LossCase> {
        let mut cases = Vec::new();
        for target in targets {
            let Target::Sandbox(spec) = target else {
                continue;
            };
            let shape = spec.shape;
            if shape.mode() != Mode::SemiSync {
                cases.push(LossCase {
                    label: shape.to_string(),
                    spec: spec.clone(),
                });
                continue;
            }
            let points = spec.wait_point.map_or_else(
                || vec![WaitPoint::AfterCommit, WaitPoint::AfterSync],
                |point| vec![point],
            );
            for point in points {
                let label = format!("{shape} {}", point.name());
                cases.push(LossCase {
                    label,
                    spec: SandboxSpec {
                        wait_point: Some(point),
                        ..spec.clone()
                    },
                });
            }
        }
        cases
    }
}
