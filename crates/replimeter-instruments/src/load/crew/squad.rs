//! What threads are to do, and how far they are.

use std::{sync::Arc, time::Duration};

use replimeter_engine::Node;
use replimeter_model::{load::OpenLoop, time::Nanos};

use crate::load::{fill::DataSet, versions::Versions, workload::Workload};

/// How long a lost connection is tried again, unless asked otherwise.
const PATIENCE: Duration = Duration::from_secs(2);

/// Threads that run one workload.
#[derive(Clone, Debug)]
pub struct Squad<'a> {
    /// What they run.
    pub workload: &'a Workload,
    /// Its data; `None` for as much as the workload has by itself.
    pub data: Option<&'a DataSet>,
    /// The servers over which they are spread in turn.
    pub nodes: Vec<Node>,
    /// How many.
    pub threads: u32,
    /// Their schedule; `None` for each thread's next operation when its last one is
    /// done (closed loop).
    pub rate: Option<OpenLoop>,
    /// Whether their sessions are read-only, as on replicas by a channel, where what is
    /// written would be on no other server.
    pub reads_only: bool,
    /// How long a lost connection is tried again before the stretch ends.
    pub patience: Duration,
    /// Statements that every connection begins with.
    pub session: Vec<String>,
    /// Who judges the versions that are read, and the number that these nodes have there; the same for all of them.
    pub versions: Option<(Arc<Versions>, usize)>,
    /// Whether latencies can be [taken](super::Crew::gauges) while it runs.
    pub gauged: bool,
}

impl<'a> Squad<'a> {
    /// A closed loop.
    #[must_use]
    pub fn new(workload: &'a Workload, nodes: Vec<Node>, threads: u32) -> Self {
        Self {
            workload,
            data: None,
            nodes,
            threads,
            rate: None,
            reads_only: false,
            patience: PATIENCE,
            session: Vec::new(),
            versions: None,
            gauged: false,
        }
    }
}

/// A squad's progress in one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SquadSecond {
    /// Operations completed since the last time.
    pub operations: u64,
    /// Operations given up.
    pub failed: u64,
    /// Operations begun again.
    pub retries: u64,
    /// Operations that are due and that no thread has begun; `None` for a closed loop.
    pub waiting: Option<u64>,
}

/// What is told once a second.
#[derive(Clone, Debug)]
pub struct Second {
    /// Since the stretch began.
    pub at: Nanos,
    /// Whether it counts.
    pub counted: bool,
    /// For each squad, in order.
    pub squads: Vec<SquadSecond>,
}
