//! The settings of `load`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{OneOrMore, PlanError, TargetSpec, contradiction};
use crate::{
    load::{Arrivals, MOST_THREADS, OpenLoop, Reads, Size},
    span::Span,
    target::{NodeSpec, PRIMARY, Role, Target},
};

/// The most numbers of threads that one run tries.
const MOST_STEPS: usize = 64;

/// The settings of `load` as a plan file spells them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LoadingSpec {
    /// Workloads by their names or paths; several run beside one another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload: Option<OneOrMore<String>>,
    /// Connections of each workload; several numbers are tried one after another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<OneOrMore<u32>>,
    /// Operations per second of each workload, whatever became of those before; back to
    /// back otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<u64>,
    /// When the operations of a rate are due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arrivals: Option<Arrivals>,
    /// How long it is counted.
    #[serde(rename = "for", skip_serializing_if = "Option::is_none")]
    pub duration: Option<Span>,
    /// How long it runs before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ramp: Option<Span>,
    /// How much data; what each workload says otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
    /// Where workloads go that only read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reads: Option<Reads>,
    /// Whether the data stays for a later run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep_data: bool,
    /// How long a replica may take to receive the data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// Keep every core of this machine from halting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_awake: Option<bool>,
}

/// A resolved `load`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadingPlan {
    /// Workloads by their names or paths; never empty.
    pub workloads: Vec<String>,
    /// Connections of each workload, one number after another; never empty.
    pub threads: Vec<u32>,
    /// The schedule of each workload; `None` for a closed loop.
    pub rate: Option<OpenLoop>,
    /// How long it is counted.
    pub duration: Span,
    /// How long it runs before.
    pub ramp: Span,
    /// How much data; `None` for what each workload says.
    pub size: Option<Size>,
    /// Where workloads go that only read.
    pub reads: Reads,
    /// Whether the data stays.
    pub keep_data: bool,
    /// How long a replica may take to receive the data.
    pub timeout: Span,
    /// Keep every core of this machine from halting.
    pub keep_awake: bool,
}

/// A load needs no replica: the user's primary may stand alone.
pub(super) fn alone(target: &mut TargetSpec) {
    if target.replicas.is_empty()
        && target.nodes.is_empty()
        && let Some(url) = target.primary.take()
    {
        target.nodes = vec![NodeSpec {
            name: PRIMARY.to_owned(),
            role: Some(Role::Primary),
            source: None,
            url,
        }];
    }
}

impl LoadingSpec {
    pub(super) fn resolve(&self, targets: &[Target]) -> Result<LoadingPlan, PlanError> {
        if targets.len() > 1 {
            return contradiction("load takes one target; run it once for each");
        }
        let workloads = self
            .workload
            .as_ref()
            .map_or_else(|| vec!["insert".to_owned()], OneOrMore::all);
        let threads = self
            .threads
            .as_ref()
            .map_or_else(|| vec![8], OneOrMore::all);
        if workloads.is_empty() || threads.is_empty() {
            return contradiction("a load needs a workload and a number of threads");
        }
        let twice = workloads
            .iter()
            .enumerate()
            .find(|(index, name)| workloads[..*index].contains(name));
        if let Some((_, twice)) = twice {
            return Err(PlanError::Contradiction(format!(
                "the workload {twice} is given twice; ask for more threads instead"
            )));
        }
        if threads
            .iter()
            .any(|threads| !(1..=MOST_THREADS).contains(threads))
        {
            return Err(PlanError::Contradiction(format!(
                "a load has 1 to {MOST_THREADS} threads"
            )));
        }
        if threads.len() > MOST_STEPS {
            return Err(PlanError::Contradiction(format!(
                "at most {MOST_STEPS} numbers of threads are tried in one run"
            )));
        }
        if self.rate == Some(0) {
            return contradiction("a rate of 0 is no load; leave rate out for a closed loop");
        }
        if self.rate.is_none() && self.arrivals.is_some() {
            return contradiction("arrivals belong to an open loop; add a rate");
        }
        let duration = self.duration.unwrap_or(Span::from_secs(30));
        if duration.0.is_zero() {
            return contradiction("for must be above 0");
        }
        Ok(LoadingPlan {
            workloads,
            threads,
            rate: self.rate.map(|rate| OpenLoop {
                rate,
                arrivals: self.arrivals.unwrap_or_default(),
            }),
            duration,
            ramp: self.ramp.unwrap_or(Span::from_secs(2)),
            size: self.size,
            reads: self.reads.unwrap_or_default(),
            keep_data: self.keep_data,
            timeout: self.timeout.unwrap_or(Span::from_secs(600)),
            keep_awake: self
                .keep_awake
                .unwrap_or(!matches!(targets, [Target::Nodes(_)])),
        })
    }
}

impl LoadingPlan {
    /// The same as a plan file spells it, with every default.
    #[must_use]
    pub fn to_spec(&self) -> LoadingSpec {
        LoadingSpec {
            workload: OneOrMore::of(self.workloads.clone()),
            threads: OneOrMore::of(self.threads.clone()),
            rate: self.rate.map(|open| open.rate),
            arrivals: self.rate.map(|open| open.arrivals),
            duration: Some(self.duration),
            ramp: Some(self.ramp),
            size: self.size,
            reads: Some(self.reads),
            keep_data: self.keep_data,
            timeout: Some(self.timeout),
            keep_awake: Some(self.keep_awake),
        }
    }
}
