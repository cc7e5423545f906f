//! The threads and connections of one load group.

use std::{
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{Receiver, Sender, channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use replimeter_engine::{ErrorKind, Node, ServerError};
use replimeter_model::{
    load::{MAX_THREADS, NodeShare},
    time::Nanos,
};

use super::load_group::{GroupProgress, LoadGroup};
use crate::{
    clock::Clock,
    load::{
        about,
        latency_recorder::{LatencyRecorder, WorkerStatus},
        program::Program,
        result::GroupResult,
        script::excerpt,
        statistics::LoadStatistics,
        trial::try_out,
        value::Draw,
        worker::{
            LoadTarget, NumberedCommand, OPERATION, Shared, Worker, WorkerConnection, WorkerReport,
        },
    },
};

/// A thread's stack, in bytes: operations need little, and there may be a thousand threads.
const STACK: usize = 256 << 10;
/// Error number for too many connections.
const TOO_MANY: u16 = 1040;

/// Results of a load group's threads in one window.
pub(in crate::load) struct GroupOutcome {
    pub(in crate::load) statistics: LoadStatistics,
    pub(in crate::load) counted: Nanos,
    pub(in crate::load) began: Nanos,
    pub(in crate::load) cpu: Duration,
    /// Sum of the threads' times from the start of the first counted operation to the end of the last.
    pub(in crate::load) busy: Nanos,
    pub(in crate::load) delay: Option<Duration>,
    pub(in crate::load) waiting: Option<u64>,
    pub(in crate::load) waiting_per_second: Vec<u64>,
    /// Operations per server.
    pub(in crate::load) by_node: Vec<u64>,
}

impl GroupOutcome {
    /// Adds a later window; the time in between does not count.
    pub(in crate::load) fn append(&mut self, later: &Self) {
        self.statistics.append(&later.statistics, self.counted);
        self.counted = self.counted + later.counted;
        self.cpu += later.cpu;
        self.busy = self.busy + later.busy;
        self.delay = self.delay.zip(later.delay).map(|(sum, delay)| sum + delay);
        self.waiting = self
            .waiting
            .zip(later.waiting)
            .map(|(sum, waiting)| sum + waiting);
        self.waiting_per_second.extend(&later.waiting_per_second);
        for (mine, theirs) in self.by_node.iter_mut().zip(&later.by_node) {
            *mine += theirs;
        }
    }
}

/// The threads of one load group.
pub(super) struct WorkerGroup {
    program: Arc<Program>,
    pub(super) shared: Arc<Shared>,
    pub(super) places: Vec<LoadTarget>,
    pub(super) orders: Vec<Sender<NumberedCommand>>,
    pub(super) statuses: Vec<Arc<WorkerStatus>>,
    threads: Vec<JoinHandle<()>>,
    pub(super) reports: Receiver<WorkerReport>,
    pub(super) limit: Option<f64>,
}

impl WorkerGroup {
    pub(super) fn open(
        load_group: &LoadGroup<'_>,
        number: u64,
        clock: &Clock,
        trial: bool,
    ) -> Result<Self, ServerError> {
        check(load_group)?;
        let rows = load_group.data.map_or_else(
            || load_group.workload.rows(load_group.workload.default_size()),
            |data| data.rows,
        );
        let place = |node: &Node| LoadTarget {
            session: load_group.session.clone(),
            versions: load_group.versions.clone(),
            ..LoadTarget::new(node.clone(), load_group.reads_only)
        };
        let (reporter, reports) = channel();
        let mut worker_group = Self {
            program: Program::new(load_group.workload, rows),
            shared: Arc::new(Shared::new(load_group.rate, load_group.patience, number)),
            places: load_group.nodes.iter().map(place).collect(),
            orders: Vec::new(),
            statuses: Vec::new(),
            threads: Vec::new(),
            reports,
            limit: None,
        };
        // All are connected before the first thread starts.
        let workers = (0..load_group.threads as usize)
            .map(|index| worker_group.connect(load_group, index, clock, trial))
            .collect::<Result<Vec<_>, _>>()?;
        for worker in workers {
            let (orders, taken) = channel();
            let reporter = reporter.clone();
            let spawned = thread::Builder::new()
                .name("load".to_owned())
                .stack_size(STACK)
                .spawn(move || worker.serve(&taken, &reporter));
            let thread = spawned.map_err(|error| {
                precondition(
                    load_group,
                    format!("cannot start another thread: {error}"),
                    "use fewer threads",
                )
            })?;
            worker_group.threads.push(thread);
            worker_group.orders.push(orders);
        }
        Ok(worker_group)
    }

    /// Connects the thread of this number, and tries the program if it is the first on its server.
    fn connect(
        &mut self,
        load_group: &LoadGroup<'_>,
        index: usize,
        clock: &Clock,
        trial: bool,
    ) -> Result<Worker, ServerError> {
        let program = &self.program;
        let at = index % self.places.len();
        let mut link =
            WorkerConnection::open(&self.places[at], program).map_err(|(statement, error)| {
                let Some(statement) = statement else {
                    return connection_refused(error, index, load_group.threads);
                };
                let text = &program.statements[statement];
                about(error, &program.workload, text.line, &excerpt(&text.sql))
            })?;
        if index < self.places.len() {
            self.places[at].detect_galera(&mut link.channel)?;
            if trial {
                try_out(&mut link, program)?;
            }
        }
        let status = Arc::new(WorkerStatus {
            recorder: load_group.latencies.then(LatencyRecorder::default),
            ..WorkerStatus::default()
        });
        status.takes(&mut link.channel);
        self.statuses.push(Arc::clone(&status));
        Ok(Worker {
            index,
            link: Some(link),
            place: self.places[at].clone(),
            program: Arc::clone(program),
            shared: Arc::clone(&self.shared),
            status,
            draw: Draw::new(index as u32 + 1, load_group.threads, program.sequences),
            clock: *clock,
            counts: false,
        })
    }

    /// Returns the reports on this command that arrive in time.
    pub(super) fn receive_report(
        &self,
        generation: u64,
        deadline: Instant,
    ) -> Vec<Option<WorkerReport>> {
        let mut heard: Vec<Option<WorkerReport>> = self.orders.iter().map(|_| None).collect();
        self.receive_reports(generation, deadline, &mut heard);
        heard
    }

    pub(super) fn receive_reports(
        &self,
        generation: u64,
        deadline: Instant,
        heard: &mut [Option<WorkerReport>],
    ) {
        while heard.iter().any(Option::is_none) {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(report) = self.reports.recv_timeout(left) else {
                return;
            };
            if report.generation == generation
                && let Some(place) = heard.get_mut(report.thread)
            {
                *place = Some(report);
            }
        }
    }

    pub(super) fn outcome(
        &self,
        reports: impl Iterator<Item = WorkerReport>,
        waiting: Option<u64>,
    ) -> GroupOutcome {
        let (from, until) = self.shared.span();
        let counted = Nanos((until.0.saturating_sub(from.0)).max(0));
        let mut outcome = GroupOutcome {
            statistics: LoadStatistics::new(self.shared.rate.is_some()),
            counted,
            began: from,
            cpu: Duration::ZERO,
            busy: Nanos(0),
            delay: Some(Duration::ZERO),
            waiting,
            waiting_per_second: Vec::new(),
            by_node: vec![0; self.places.len()],
        };
        for report in reports {
            outcome.by_node[report.thread % self.places.len()] += report.statistics.operations;
            outcome.statistics.merge(&report.statistics);
            outcome.cpu += report.cpu;
            outcome.busy = outcome.busy + report.busy;
            outcome.delay = outcome
                .delay
                .zip(report.delay)
                .map(|(sum, delay)| sum + delay);
        }
        if self.shared.failed() {
            // The wait for a server that did not return is not part of the load.
            outcome.counted = Nanos(outcome.counted.0.min(outcome.statistics.last.0));
        }
        outcome
    }

    pub(super) fn result(&self, outcome: &GroupOutcome) -> GroupResult {
        let GroupOutcome {
            statistics,
            counted,
            ..
        } = outcome;
        let seconds = counted.0 as f64 / 1e9;
        let by_node = self
            .places
            .iter()
            .zip(&outcome.by_node)
            .map(|(place, operations)| NodeShare {
                node: place.node.name.clone(),
                operations: *operations,
                per_s: (seconds > 0.0).then(|| *operations as f64 / seconds),
            });
        GroupResult {
            workload: self.program.workload.name.clone(),
            threads: self.statuses.len() as u32,
            nodes: self
                .places
                .iter()
                .map(|place| place.node.name.clone())
                .collect(),
            rate: self.shared.rate,
            statements_per_operation: self.program.workload.statements(),
            ramp: Nanos(0),
            began: outcome.began,
            counted: *counted,
            operations: statistics.operations,
            statements: statistics.statements,
            throughput: statistics.throughput(*counted),
            per_second: statistics.per_second(*counted),
            by_node: by_node.collect(),
            response: statistics.response().clone(),
            service: statistics.service.clone(),
            retries: statistics.retried(),
            failed: statistics.failed,
            errors: statistics.errors(),
            waiting: outcome.waiting,
            waiting_per_second: outcome.waiting_per_second.clone(),
            client_cpu: outcome.cpu,
            busy: outcome.busy,
            client_delay: outcome.delay,
            cores: thread::available_parallelism().map_or(1, std::num::NonZero::get),
            limit_per_s: self.limit,
            failure: self.shared.failure(),
            interrupted: false,
        }
    }

    /// Returns whether its threads end before the deadline.
    pub(super) fn ended_by(&self, deadline: Instant) -> bool {
        while self.threads.iter().any(|thread| !thread.is_finished()) {
            if Instant::now() >= deadline {
                return false;
            }
            thread::sleep(Duration::from_millis(2));
        }
        true
    }

    pub(super) fn totals(&self) -> GroupProgress {
        let sum =
            |of: fn(&WorkerStatus) -> u64| self.statuses.iter().map(|status| of(status)).sum();
        GroupProgress {
            operations: sum(|status| status.operations.load(Ordering::Relaxed)),
            failed: sum(|status| status.failed.load(Ordering::Relaxed)),
            retries: sum(|status| status.retries.load(Ordering::Relaxed)),
            waiting: None,
        }
    }
}

/// Checks that there are servers, threads and a rate.
fn check(load_group: &LoadGroup<'_>) -> Result<(), ServerError> {
    if load_group.nodes.is_empty() {
        return Err(ServerError::precondition(
            "load",
            "",
            OPERATION,
            "the load has no server",
            "name a server",
        ));
    }
    if !(1..=MAX_THREADS).contains(&load_group.threads) {
        return Err(precondition(
            load_group,
            format!(
                "a load takes 1 to {MAX_THREADS} threads, not {}",
                load_group.threads
            ),
            "change the number of threads",
        ));
    }
    if load_group.rate.is_some_and(|open| open.rate == 0) {
        return Err(precondition(
            load_group,
            "the rate is 0",
            "remove the rate for a closed loop",
        ));
    }
    Ok(())
}

/// Returns an error about the first server.
fn precondition(load_group: &LoadGroup<'_>, cause: impl Into<String>, hint: &str) -> ServerError {
    let first = &load_group.nodes[0];
    first.precondition(OPERATION, cause, hint)
}

/// Adds the number of the connection, and a hint for the server's limit.
fn connection_refused(mut error: ServerError, index: usize, threads: u32) -> ServerError {
    error.operation = format!(
        "cannot open connection {} of {threads} of the load",
        index + 1
    );
    if error.kind == ErrorKind::Statement(TOO_MANY) {
        error.hint =
            "raise max_connections on the server, close other clients, or use fewer threads"
                .to_owned();
    }
    error
}
