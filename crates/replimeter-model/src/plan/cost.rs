//! The settings of `cost`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{PlanError, TargetSpec, contradiction};
use crate::{
    cost::{CostKind, CostMode, CostModes, Durability},
    load::{MOST_THREADS, Size},
    sandbox::{LinkSpec, NodeOption, SandboxSpec, WaitPoint},
    span::Span,
    target::Target,
};

/// The most fresh starts of each mode, and comparisons of a mode with itself.
const MOST: u32 = 1000;
/// The most numbers of threads, and distances.
const MOST_CELLS: usize = 20;
/// The most replicas of each mode.
const MOST_REPLICAS: u32 = 8;
/// The longest distance.
const LONGEST: Span = Span::from_secs(1);
/// The shortest block: below, its own beginning and end are too large a part of it.
const SHORTEST: Span = Span::from_millis(100);

/// The settings of `cost` as a plan file spells them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CostSpec {
    /// Which modes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modes: Option<CostModes>,
    /// Numbers of connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<Vec<u32>>,
    /// Counted time of each mode at each number of threads, over all its starts.
    #[serde(rename = "for", skip_serializing_if = "Option::is_none")]
    pub duration: Option<Span>,
    /// Fresh starts of each mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub starts: Option<u32>,
    /// About how long a block is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<Span>,
    /// How long the load runs before it counts, each time it is started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ramp: Option<Span>,
    /// How much of a commit is on the disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub durability: Option<Durability>,
    /// One-way delays of links between the servers; without links when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub link_delays: Vec<Span>,
    /// What is run: a workload of ours by its name, or a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload: Option<String>,
    /// How much data the workload's tables hold; the workload's own default when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
    /// Servers beside the one that is written to, of the modes that do not say so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u32>,
    /// What shuffles the modes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Compare the first mode with itself so often, and nothing else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub self_test: Option<u32>,
    /// Whether idle cores are kept from halting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_awake: Option<bool>,
}

/// The settings of `cost`, resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostPlan {
    /// Which modes.
    pub modes: CostModes,
    /// Their servers, in the same order; semi-sync once for each wait point.
    pub shapes: Vec<CostShape>,
    /// Numbers of connections.
    pub threads: Vec<u32>,
    /// Counted time of each mode at each number of threads, over all its starts.
    pub duration: Span,
    /// Fresh starts of each mode.
    pub starts: u32,
    /// About how long a block is.
    pub block: Span,
    /// How long the load runs before it counts.
    pub ramp: Span,
    /// How much of a commit is on the disk.
    pub durability: Durability,
    /// One-way delays of links between the servers.
    pub link_delays: Vec<Span>,
    /// What is run.
    pub workload: String,
    /// How much data.
    pub size: Option<Size>,
    /// Servers beside the one that is written to.
    pub replicas: u32,
    /// What shuffles the modes.
    pub seed: u64,
    /// Compare the first mode with itself so often.
    pub self_test: Option<u32>,
    /// Whether idle cores are kept from halting.
    pub keep_awake: bool,
}

/// One line of the price list and the servers that it is measured on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostShape {
    /// The mode.
    pub mode: CostMode,
    /// When a semi-synchronous primary waits.
    pub wait_point: Option<WaitPoint>,
    /// The servers.
    pub spec: SandboxSpec,
}

impl CostPlan {
    /// The blocks of one start at one number of threads, and how long each is.
    #[must_use]
    pub fn blocks(&self) -> (u32, Span) {
        let each = self.duration.0 / self.starts.max(1);
        let count = (each.as_secs_f64() / self.block.0.as_secs_f64())
            .round()
            .clamp(1.0, 10_000.0) as u32;
        (count, Span(each / count))
    }

    /// The same as a plan file spells it, with every default.
    pub(super) fn to_spec(&self) -> CostSpec {
        CostSpec {
            modes: Some(self.modes.clone()),
            threads: Some(self.threads.clone()),
            duration: Some(self.duration),
            starts: Some(self.starts),
            block: Some(self.block),
            ramp: Some(self.ramp),
            durability: Some(self.durability),
            link_delays: self.link_delays.clone(),
            workload: Some(self.workload.clone()),
            size: self.size,
            replicas: Some(self.replicas),
            seed: Some(self.seed),
            self_test: self.self_test,
            keep_awake: Some(self.keep_awake),
        }
    }

    /// A mode's servers, as `none` of the same plan has them: same options, same durability.
    ///
    /// # Errors
    /// When there are no such servers.
    pub fn shape_of(
        &self,
        mode: CostMode,
        target: &TargetSpec,
        wait_point: Option<WaitPoint>,
    ) -> Result<CostShape, PlanError> {
        let shape = mode
            .shape(self.replicas)
            .map_err(PlanError::Contradiction)?;
        let names = shape.nodes();
        let mut options: Vec<NodeOption> = self
            .durability
            .options()
            .iter()
            .filter_map(|option| option.parse().ok())
            .collect();
        // The user's come last and so win.
        options.extend(
            target
                .server_options
                .iter()
                .filter(|option| names.iter().any(|name| option.is_for(name)))
                .cloned(),
        );
        let zero = Span::from_secs(0);
        let linked = mode.kind.replicates()
            && (!self.link_delays.is_empty() || target.link_bandwidth.is_some());
        Ok(CostShape {
            mode,
            wait_point,
            spec: SandboxSpec {
                server_options: options,
                servers: target.servers.clone(),
                wait_point,
                link: linked.then_some(LinkSpec {
                    delay: zero,
                    jitter: zero,
                    bandwidth: target.link_bandwidth,
                }),
                binary_log: mode.kind != CostKind::None,
                cpus: target.cpus_per_server,
                ..SandboxSpec::of(shape)
            },
        })
    }
}

impl CostSpec {
    /// Fills in the defaults.
    pub(super) fn resolve(&self, target: &TargetSpec) -> Result<CostPlan, PlanError> {
        check_target(target)?;
        let modes = self.modes.clone().unwrap_or(CostModes::All);
        let threads = self.threads.clone().unwrap_or_else(|| vec![1, 8]);
        if threads.is_empty() || threads.len() > MOST_CELLS {
            return contradiction("give 1 to 20 numbers of threads, such as 1,8");
        }
        if let Some(wrong) = threads
            .iter()
            .find(|threads| !(1..=MOST_THREADS).contains(threads))
        {
            return Err(PlanError::Contradiction(format!(
                "{wrong} threads: a load has 1 to {MOST_THREADS}"
            )));
        }
        let mut different = threads.clone();
        different.sort_unstable();
        different.dedup();
        if different.len() < threads.len() {
            return contradiction("a number of threads is given twice");
        }
        let mut link_delays = self.link_delays.clone();
        link_delays.sort_unstable();
        link_delays.dedup();
        if link_delays.len() > MOST_CELLS {
            return contradiction("give at most 20 delays");
        }
        if let Some(longest) = link_delays.last().filter(|delay| **delay > LONGEST) {
            return Err(PlanError::Contradiction(format!(
                "a delay of {longest} is longer than {LONGEST}, the longest one"
            )));
        }
        let starts = self
            .starts
            .unwrap_or(if self.self_test.is_some() { 4 } else { 5 });
        if starts == 0 || starts > MOST {
            return contradiction(
                "starts must be from 1 to 1000; from 4 on the intervals hold what they promise",
            );
        }
        if self
            .self_test
            .is_some_and(|comparisons| comparisons == 0 || comparisons > MOST)
        {
            return contradiction("self-test takes 1 to 1000 comparisons");
        }
        if self.self_test.is_some() && starts < 2 {
            return contradiction(
                "a self-test needs 2 starts on each side, or more: one start has no interval",
            );
        }
        let block = self.block.unwrap_or(if self.self_test.is_some() {
            Span::from_millis(500)
        } else {
            Span::from_secs(1)
        });
        let usual = if self.self_test.is_some() {
            Span::from_secs(4)
        } else {
            Span::from_secs(30)
        };
        let duration = self.duration.unwrap_or(usual);
        if block < SHORTEST {
            return Err(PlanError::Contradiction(format!(
                "a block of {block} is too short; the shortest is {SHORTEST}"
            )));
        }
        if duration.0 / starts < SHORTEST.0 {
            return Err(PlanError::Contradiction(format!(
                "{duration} over {starts} starts leaves less than {SHORTEST} to each; give `for` more time"
            )));
        }
        let replicas = self.replicas.unwrap_or(1);
        if replicas == 0 || replicas > MOST_REPLICAS {
            return contradiction("replicas must be from 1 to 8");
        }
        let mut plan = CostPlan {
            modes,
            shapes: Vec::new(),
            threads,
            duration,
            starts,
            block,
            ramp: self.ramp.unwrap_or(Span::from_secs(1)),
            durability: self.durability.unwrap_or_default(),
            link_delays,
            workload: self.workload.clone().unwrap_or_else(|| "insert".to_owned()),
            size: self.size,
            replicas,
            seed: self.seed.unwrap_or(1),
            self_test: self.self_test,
            keep_awake: self.keep_awake.unwrap_or(true),
        };
        for mode in plan.modes.list() {
            let points = match (mode.kind, target.wait_point) {
                (CostKind::SemiSync, None) => {
                    vec![Some(WaitPoint::AfterCommit), Some(WaitPoint::AfterSync)]
                }
                (CostKind::SemiSync, point) => vec![point],
                _ => vec![None],
            };
            for point in points {
                plan.shapes.push(plan.shape_of(mode, target, point)?);
            }
        }
        if target.wait_point.is_some()
            && !plan
                .shapes
                .iter()
                .any(|shape| shape.mode.kind == CostKind::SemiSync)
        {
            return contradiction(
                "a wait point belongs to semi-sync, which is not among the modes",
            );
        }
        if !plan.link_delays.is_empty()
            && !plan.shapes.iter().any(|shape| shape.mode.kind.replicates())
        {
            return contradiction("a link delay needs a mode that replicates, such as async");
        }
        if let Some(option) = target.server_options.iter().find(|option| {
            !plan.shapes.iter().any(|shape| {
                shape
                    .spec
                    .shape
                    .nodes()
                    .iter()
                    .any(|name| option.is_for(name))
            })
        }) {
            return Err(PlanError::Contradiction(format!(
                "the server option `{option}` is for a server that no mode has"
            )));
        }
        Ok(plan)
    }
}

impl CostPlan {
    /// The sandboxes, each once.
    pub(super) fn targets(&self) -> Vec<Target> {
        self.shapes
            .iter()
            .map(|shape| Target::Sandbox(shape.spec.clone()))
            .collect()
    }
}

/// Refuses settings that belong to other commands.
fn check_target(target: &TargetSpec) -> Result<(), PlanError> {
    if target.sandbox.is_some()
        || target.primary.is_some()
        || !target.replicas.is_empty()
        || !target.nodes.is_empty()
    {
        return contradiction(
            "cost starts servers of its own for each mode; name modes (--modes) in place of a target",
        );
    }
    if target.link_delay.is_some() || target.link_jitter.is_some() {
        return contradiction(
            "cost takes the distances as link-delays in [cost], without a jitter",
        );
    }
    let known = TargetSpec {
        server_options: target.server_options.clone(),
        servers: target.servers.clone(),
        wait_point: target.wait_point,
        link_bandwidth: target.link_bandwidth,
        cpus_per_server: target.cpus_per_server,
        ..TargetSpec::default()
    };
    if *target != known {
        return contradiction(
            "of the target's settings cost takes server-options, servers, wait-point, link-bandwidth and cpus-per-server",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{PlanFile, Work};

    fn resolve(cost: &str) -> Result<CostPlan, String> {
        let plan = PlanFile::from_toml(&format!("command = 'cost'\n{cost}"))
            .and_then(|file| file.resolve());
        match plan.map_err(|error| error.to_string())?.work {
            Work::Cost(plan) => Ok(plan),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn everything_by_default() {
        let plan = resolve("").unwrap();
        assert_eq!(
            (plan.threads.as_slice(), plan.starts, plan.durability),
            ([1, 8].as_slice(), 5, Durability::Relaxed)
        );
        // Semi-sync with both wait points.
        assert_eq!(plan.shapes.len(), 7);
        assert_eq!(
            plan.shapes
                .iter()
                .filter(|shape| !shape.spec.binary_log)
                .count(),
            1
        );
        assert!(
            plan.shapes
                .iter()
                .all(|shape| shape.spec.link.is_none() && shape.spec.server_options.len() == 2)
        );
        assert_eq!(plan.blocks(), (6, Span::from_secs(1)));
    }

    #[test]
    fn time_is_shared_by_the_starts_and_cut_into_blocks_of_about_the_length_asked_for() {
        let blocks = |cost: &str| resolve(&format!("[cost]\n{cost}")).unwrap().blocks();
        assert_eq!(
            blocks("for = '7s'\nstarts = 4"),
            (2, Span::from_millis(875))
        );
        assert_eq!(
            blocks("for = '400ms'\nstarts = 4"),
            (1, Span::from_millis(100))
        );
        assert_eq!(
            blocks("for = '10s'\nstarts = 1\nblock = '3s'"),
            (3, Span(std::time::Duration::from_nanos(3_333_333_333)))
        );
    }

    #[test]
    fn links_lead_only_where_something_replicates() {
        let plan = resolve(
            "[cost]\nmodes = 'none,binlog,async,mysql/group:3'\nlink-delays = ['1ms', '0']",
        )
        .unwrap();
        assert_eq!(plan.link_delays, [Span::from_secs(0), Span::from_millis(1)]);
        let linked: Vec<bool> = plan
            .shapes
            .iter()
            .map(|shape| shape.spec.link.is_some())
            .collect();
        assert_eq!(linked, [false, false, true, true]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (cost, want) in [
            ("[cost]\nthreads = [0]", "1 to 1024"),
            ("[cost]\nthreads = []", "numbers of threads"),
            ("[cost]\nthreads = [2, 2]", "twice"),
            ("[cost]\nstarts = 0", "1 to 1000"),
            ("[cost]\nmodes = 'ring'", "unknown mode"),
            ("[cost]\nfor = '100ms'", "more time"),
            ("[cost]\nblock = '1ms'", "too short"),
            ("[cost]\nreplicas = 0", "1 to 8"),
            ("[cost]\nlink-delays = ['2s']", "1s at the most"),
            (
                "[cost]\nmodes = 'none'\nlink-delays = ['1ms']",
                "needs a mode that replicates",
            ),
            ("[cost]\nself-test = 0", "1 to 1000"),
            ("[cost]\nself-test = 3\nstarts = 1", "2 starts"),
            ("[target]\nsandbox = 'async:1'", "name modes"),
            ("[target]\nlink-delay = '1ms'", "link-delays"),
            ("[target]\nudf = true", "takes server-options"),
            (
                "[target]\nwait-point = 'after-sync'\n[cost]\nmodes = 'async'",
                "belongs to semi-sync",
            ),
            (
                "[target]\nserver-options = ['replica5:sync_binlog=1']",
                "no mode has",
            ),
        ] {
            let error = resolve(cost).unwrap_err();
            assert!(error.contains(want), "{cost}: {error}");
        }
    }
}
