//! Settings and progress of a group of threads.

use std::{sync::Arc, time::Duration};

use replimeter_engine::Node;
use replimeter_model::{load::OpenLoop, time::Nanos};

use crate::load::{fill::DataSet, versions::Versions, workload::Workload};

/// Default time for which a lost connection is retried.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Threads that run one workload.
#[derive(Clone, Debug)]
pub struct LoadGroup<'a> {
    /// The workload.
    pub workload: &'a Workload,
    /// Its data; `None` for the workload's default size.
    pub data: Option<&'a DataSet>,
    /// The servers, to which threads are assigned in rotation.
    pub nodes: Vec<Node>,
    /// Number of threads.
    pub threads: u32,
    /// Their schedule; `None` for a closed loop, in which a thread's next operation starts when its
    /// last one is done.
    pub rate: Option<OpenLoop>,
    /// Whether their sessions are read-only, as on replicas with a channel, where writes would exist on
    /// no other server.
    pub reads_only: bool,
    /// How long a lost connection is retried before the window ends.
    pub patience: Duration,
    /// Statements that open every session.
    pub session: Vec<String>,
    /// The recorder of the versions that are read, and the index of these nodes in it; the same for all
    /// of them.
    pub versions: Option<(Arc<Versions>, usize)>,
    /// Connections that are opened per second; `None` as fast as the servers take them.
    pub connect_rate: Option<u32>,
    /// Whether latencies can be [read](super::WorkerPool::recorders) while it runs.
    pub latencies: bool,
}

impl<'a> LoadGroup<'a> {
    /// Creates a closed loop.
    #[must_use]
    pub fn new(workload: &'a Workload, nodes: Vec<Node>, threads: u32) -> Self {
        Self {
            workload,
            data: None,
            nodes,
            threads,
            rate: None,
            reads_only: false,
            patience: RECONNECT_TIMEOUT,
            session: Vec::new(),
            versions: None,
            connect_rate: None,
            latencies: false,
        }
    }

    /// Returns how many of this number of threads the server of this index gets.
    pub(super) fn share(&self, index: u32, threads: u32) -> u64 {
        (index..threads).step_by(self.nodes.len()).len() as u64
    }
}

/// Progress of a load group in one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupProgress {
    /// Operations completed since the last report.
    pub operations: u64,
    /// Operations that failed.
    pub failed: u64,
    /// Operations that were retried.
    pub retries: u64,
    /// Operations that are due but not started; `None` for a closed loop.
    pub waiting: Option<u64>,
}

/// Progress of the load, once a second.
#[derive(Clone, Debug)]
pub struct LoadProgress {
    /// Time since the window began.
    pub at: Nanos,
    /// Whether it counts.
    pub counted: bool,
    /// Progress of each load group, in order.
    pub load_groups: Vec<GroupProgress>,
}
