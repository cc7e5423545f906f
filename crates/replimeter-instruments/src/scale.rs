//! The loads of a scaling measurement: inserts, selects, updates, and writes and reads together.

pub mod results;
pub mod settings;

use std::time::Duration;

use replimeter_model::load::ReadTarget;

use self::settings::{ScalePhase, ScalePlan};
use crate::{
    load::{ScriptError, Workload},
    trial::{ConditionLoad, Operations, SETTLE, TrialServers},
};

/// How long the client's own limit is measured before each block.
const LIMIT: Duration = Duration::from_millis(300);

/// Workloads of a scaling measurement.
pub struct Workloads {
    /// Inserts of posts.
    pub insert: Workload,
    select: Workload,
    update: Workload,
}

impl Workloads {
    /// Returns those of experiment 2: inserts of posts, and selects of posts by a pattern of their
    /// title; and updates of posts, which its author left as future work.
    ///
    /// # Errors
    /// When a built-in workload cannot be read, which is a bug.
    pub fn published() -> Result<Self, ScriptError> {
        let text = include_str!("../../../loads/post-update.toml");
        let update = Workload::parse("post-update.toml", text)?;
        let named =
            |name: &str| Workload::named(name).map_or_else(|| Workload::parse(name, ""), Ok);
        Ok(Self {
            insert: named("post-insert")?,
            select: named("select")?,
            update,
        })
    }

    /// Returns the load of a phase on these servers.
    #[must_use]
    pub fn of_phase(
        &self,
        phase: ScalePhase,
        plan: &ScalePlan,
        servers: &TrialServers,
    ) -> ConditionLoad<'_> {
        let (primary, replicas) = servers.nodes.split_at(1);
        let (warm_up, length) = (plan.warm_up.0, plan.duration.0);
        let writes = phase.writes().map(|updates| Operations {
            kind: if updates { "update" } else { "insert" },
            workload: if updates { &self.update } else { &self.insert },
            nodes: primary.to_vec(),
            threads: plan.threads,
            reads_only: false,
        });
        let reads = phase.reads().then(|| Operations {
            kind: "select",
            workload: &self.select,
            nodes: match plan.reads {
                ReadTarget::Replicas if !replicas.is_empty() => replicas.to_vec(),
                ReadTarget::All => servers.nodes.clone(),
                ReadTarget::Replicas | ReadTarget::Primary => primary.to_vec(),
            },
            threads: plan.threads,
            reads_only: servers.have_replicas && plan.reads == ReadTarget::Replicas,
        });
        ConditionLoad {
            operations: writes.into_iter().chain(reads).collect(),
            warm_up,
            length,
            limit: Some(LIMIT),
            catch_up: SETTLE + 10 * (warm_up + length),
            must_apply: true,
        }
    }
}
