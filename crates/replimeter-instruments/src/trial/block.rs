//! A block: what a load did in a time, and what it took from the servers.

use std::{sync::atomic::AtomicBool, time::Duration};

use replimeter_engine::{Node, ServerError};
use replimeter_model::{resources::ServerUse, time::Nanos};
use serde::{Deserialize, Serialize};

use crate::{
    MeasureError,
    load::{GroupResult, LoadProgress, WorkerPool, Workload},
};

/// The only kind of operations in a load of one workload.
pub const ONE_KIND: &str = "operations";

fn one_kind() -> String {
    ONE_KIND.to_owned()
}

fn is_one_kind(kind: &String) -> bool {
    kind == ONE_KIND
}

/// Operations of one kind in a condition's load.
pub struct Operations<'a> {
    /// Their name in results.
    pub kind: &'static str,
    /// Their statements.
    pub workload: &'a Workload,
    /// The servers that they run on.
    pub nodes: Vec<Node>,
    /// Number of connections.
    pub threads: u32,
    /// Whether their sessions are read-only.
    pub reads_only: bool,
}

/// What runs in the blocks of a condition.
pub struct ConditionLoad<'a> {
    /// All at once.
    pub operations: Vec<Operations<'a>>,
    /// How long it runs before it counts.
    pub warm_up: Duration,
    /// Length of a block.
    pub length: Duration,
    /// How long the client's own limit is measured before the warm-up.
    pub limit: Option<Duration>,
    /// How long servers may take to apply a block.
    pub catch_up: Duration,
    /// Whether a block that they do not apply in that time is an error.
    pub must_apply: bool,
}

impl ConditionLoad<'_> {
    /// Returns whether it may write.
    pub(super) fn writes(&self) -> bool {
        let mut operations = self.operations.iter();
        operations.any(|one| !one.workload.reads_only())
    }

    pub(super) fn kinds(&self) -> Vec<&'static str> {
        self.operations.iter().map(|one| one.kind).collect()
    }
}

/// Results of one kind of operation in a block.
#[derive(Debug, Serialize, Deserialize)]
pub struct OperationResult {
    /// `insert`, `select` or `update`; [`ONE_KIND`] in a load of one workload.
    #[serde(default = "one_kind", skip_serializing_if = "is_one_kind")]
    pub kind: String,
    /// Results of the load.
    pub result: GroupResult,
    /// p50, p95, p99 and maximum of the latency in µs, from a driver that gives no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<[Option<f64>; 4]>,
}

/// What sends the operations of a block: connections to the servers, or to a site in front of them.
pub trait Clients {
    /// Runs these kinds of operations at once for this time; `progress` is called about once a second. It ends early when `stop` is
    /// set.
    ///
    /// # Errors
    /// When the site or its driver fails.
    fn run(
        &mut self,
        kinds: &[&'static str],
        length: Duration,
        stop: &AtomicBool,
        progress: &mut dyn FnMut(&LoadProgress),
    ) -> Result<Vec<OperationResult>, MeasureError>;
}

/// The kinds are those of its load groups.
impl Clients for WorkerPool {
    fn run(
        &mut self,
        kinds: &[&'static str],
        length: Duration,
        stop: &AtomicBool,
        progress: &mut dyn FnMut(&LoadProgress),
    ) -> Result<Vec<OperationResult>, MeasureError> {
        let results = self.run_interval(Duration::ZERO, length, stop, progress);
        let part = |(kind, result): (&&str, GroupResult)| OperationResult {
            kind: (*kind).to_owned(),
            result,
            latency_us: None,
        };
        Ok(kinds.iter().zip(results).map(part).collect())
    }
}

/// A condition's load for some time on one start of servers.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Block {
    /// Results of each kind of operation.
    pub parts: Vec<OperationResult>,
    /// Resource use of each server in the counted time, the server that is written to first; empty if it is not known by time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uses: Vec<ServerUse>,
    /// The same until every server had applied the block.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub until_applied: Vec<ServerUse>,
    /// The same for each whole second of the counted time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timeline: Vec<Vec<ServerUse>>,
    /// Number of transactions that each other server had not applied at the end; empty where nothing was written or replicated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub behind: Vec<(String, u64)>,
    /// Time from the end of the load until every server had applied it, known within a tenth; `None` if that took too long, and where
    /// nothing was written or replicated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caught_up: Option<Duration>,
    /// Why the block is invalid: commits did not wait as the mode requires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invalid: Option<String>,
    /// Why it does not count although it is valid: a server was out of use behind the site.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absence: Option<String>,
    /// What disturbed it: other virtual machines had the cores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disturbance: Option<Disturbance>,
    /// Share of its time, with its warm-up and the catching up, in which a thread of this machine waited for a disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_wait: Option<f64>,
}

/// What disturbed a block.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Disturbance {
    /// What happened.
    pub reason: String,
    /// Whether the block does not count and was measured again; the last repetition counts.
    pub repeated: bool,
}

impl Block {
    fn results(&self) -> impl Iterator<Item = &GroupResult> {
        self.parts.iter().map(|part| &part.result)
    }

    /// Returns when counting began.
    #[must_use]
    pub fn began(&self) -> Nanos {
        let began = self.results().map(|result| result.began);
        began.min().unwrap_or_default()
    }

    /// Returns the duration of the counted time.
    #[must_use]
    pub fn counted(&self) -> Nanos {
        let counted = self.results().map(|result| result.counted);
        counted.max().unwrap_or_default()
    }

    /// Returns the number of operations of every kind.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.results().map(|result| result.operations).sum()
    }

    /// Returns each server's resource use until every server had applied the block.
    #[must_use]
    pub fn used_until_applied(&self) -> &[ServerUse] {
        if self.until_applied.is_empty() {
            &self.uses
        } else {
            &self.until_applied
        }
    }

    /// Returns the error that ended a load early.
    pub(super) fn failure(&self) -> Option<ServerError> {
        self.results().find_map(|result| result.failure.clone())
    }

    /// Returns whether the user stopped it.
    pub(super) fn interrupted(&self) -> bool {
        self.results().any(|result| result.interrupted)
    }

    /// Returns the error that a lost connection left. A block is too short for the load to give up retrying, and a server that
    /// disappeared must not contribute to the figures.
    pub(super) fn lost_connection(&self) -> Option<&str> {
        let mut errors = self.results().flat_map(|result| &result.errors);
        let lost = errors.find(|error| error.code.is_none())?;
        Some(&lost.message)
    }
}

/// Progress of a block.
#[derive(Clone, Copy, Debug)]
pub enum BlockProgress<'a> {
    /// The load runs.
    Load(&'a LoadProgress),
    /// The data set is restored.
    Restoring,
    /// Servers catch up; the slowest one lacks this number of transactions.
    CatchingUp(u64),
}

/// A block that ended early.
#[derive(Debug)]
pub struct BlockError {
    /// The error.
    pub error: MeasureError,
    /// The results until then.
    pub until_then: Option<Box<Block>>,
}

impl<E: Into<MeasureError>> From<E> for BlockError {
    fn from(error: E) -> Self {
        Self {
            error: error.into(),
            until_then: None,
        }
    }
}
