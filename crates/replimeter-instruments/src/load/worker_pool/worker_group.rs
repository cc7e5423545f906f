//! The threads and connections of one load group.

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use replimeter_engine::{
    ErrorClass, ErrorKind, Node, ServerError, Session,
    dialect::{certifies, connections::OpenedConnection},
};
use replimeter_model::{
    load::{MAX_THREADS, NodeShare},
    time::Nanos,
};
use replimeter_stats::signed::SignedHistogram;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{
    AFTER_KILL, POLL_INTERVAL,
    free_connections::{TOO_MANY_HINT, check_room},
    load_group::{GroupProgress, LoadGroup},
    loop_thread::{LoopCommand, LoopReport, LoopThread},
};
use crate::{
    MeasureError,
    clock::Clock,
    kill::{GivenUp, kill},
    load::{
        OPERATION,
        event_loop::EventLoop,
        latency_recorder::LoopStatus,
        program::Program,
        result::{GroupResult, ScarceConnections},
        statistics::LoadStatistics,
        trial::try_out,
        worker::{LoadTarget, LoopTarget, Shared, WorkerConnection},
    },
};

/// Connections of one thread from which another thread shares them, if there is a core for it.
const PER_LOOP: usize = 64;
/// Files that this process opens besides the connections of a load, with a margin.
const OTHER_FILES: u64 = 256;

/// Results of a load group's threads in one window.
pub(in crate::load) struct GroupOutcome {
    pub(in crate::load) statistics: LoadStatistics,
    pub(in crate::load) counted: Nanos,
    pub(in crate::load) began: Nanos,
    pub(in crate::load) cpu: Duration,
    /// Sum of the connections' times from the start of the first counted operation to the end of the last.
    pub(in crate::load) busy: Nanos,
    pub(in crate::load) delay: Option<Duration>,
    /// How long answers waited for their thread.
    pub(in crate::load) loop_delay: SignedHistogram,
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
        self.loop_delay.merge(&later.loop_delay);
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
    connections: usize,
    pub(super) commands: Vec<Sender<(u64, LoopCommand)>>,
    pub(super) statuses: Vec<Arc<LoopStatus>>,
    threads: Vec<JoinHandle<()>>,
    pub(super) reports: Receiver<LoopReport>,
    pub(super) limit: Option<f64>,
    /// Servers of which it takes nearly all connections.
    scarce: Vec<ScarceConnections>,
    /// Set to drop operations in progress.
    abandon: Arc<AtomicBool>,
}

impl WorkerGroup {
    pub(super) fn open(
        load_group: &LoadGroup<'_>,
        number: u64,
        clock: &Clock,
        given_up: &Arc<GivenUp>,
        trial: bool,
        stop: &AtomicBool,
    ) -> Result<Self, MeasureError> {
        let rows = load_group.data.map_or_else(
            || load_group.workload.rows(load_group.workload.default_size()),
            |data| data.rows,
        );
        let program = Program::new(load_group.workload, rows);
        let (mut places, mut scarce) = (Vec::new(), Vec::new());
        for (index, node) in (0..).zip(&load_group.nodes) {
            let mut place = LoadTarget {
                session: load_group.session.clone(),
                versions: load_group.versions.clone(),
                ..LoadTarget::new(node.clone(), load_group.reads_only)
            };
            let mut session = Session::open(node)?;
            place.certifies = certifies(&mut session, OPERATION)?;
            let needed = load_group.share(index, load_group.threads);
            scarce.extend(check_room(node, &mut session, needed)?);
            drop(session);
            if trial {
                try_place(&place, &program, clock, stop)?;
            }
            places.push(place);
        }
        let opened =
            Self::open_connections(load_group, places, program, number, clock, given_up, stop)?;
        Ok(Self { scarce, ..opened })
    }

    /// Opens the connections to servers that were checked.
    pub(super) fn open_connections(
        load_group: &LoadGroup<'_>,
        places: Vec<LoadTarget>,
        program: Arc<Program>,
        number: u64,
        clock: &Clock,
        given_up: &Arc<GivenUp>,
        stop: &AtomicBool,
    ) -> Result<Self, MeasureError> {
        let (reporter, reports) = channel();
        let mut worker_group = Self {
            program,
            shared: Arc::new(Shared::new(load_group.rate, load_group.patience, number)),
            places,
            connections: load_group.threads as usize,
            commands: Vec::new(),
            statuses: Vec::new(),
            threads: Vec::new(),
            reports,
            limit: None,
            scarce: Vec::new(),
            abandon: Arc::default(),
        };
        worker_group.start(load_group, clock, given_up, &reporter)?;
        worker_group.connect(load_group, stop)?;
        Ok(worker_group)
    }

    /// Starts the threads, which have no connections yet.
    fn start(
        &mut self,
        load_group: &LoadGroup<'_>,
        clock: &Clock,
        given_up: &Arc<GivenUp>,
        reporter: &Sender<LoopReport>,
    ) -> Result<(), ServerError> {
        let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let loops = self.connections.div_ceil(PER_LOOP).min(cores);
        for index in 0..loops {
            let own = (index..self.connections).step_by(loops).len();
            let status = Arc::new(LoopStatus::new(own, load_group.latencies));
            let (commands, taken) = channel();
            let reporter = reporter.clone();
            let work = LoopThread {
                index,
                loops,
                connections: self.connections,
                places: self.places.clone(),
                program: Arc::clone(&self.program),
                shared: Arc::clone(&self.shared),
                status: Arc::clone(&status),
                given_up: Arc::clone(given_up),
                clock: *clock,
                connect_interval: Nanos(
                    load_group
                        .connect_rate
                        .map_or(0, |rate| 1_000_000_000 / i64::from(rate.max(1))),
                ),
                abandon: Arc::clone(&self.abandon),
            };
            let spawned = thread::Builder::new()
                .name("load".to_owned())
                .spawn(move || work.serve(&taken, &reporter));
            let thread = spawned.map_err(|error| {
                precondition(
                    load_group,
                    format!("cannot start another thread: {error}"),
                    "use fewer threads",
                )
            })?;
            self.threads.push(thread);
            self.commands.push(commands);
            self.statuses.push(status);
        }
        Ok(())
    }

    /// Opens every connection, unless the user stops the run.
    fn connect(&self, load_group: &LoadGroup<'_>, stop: &AtomicBool) -> Result<(), MeasureError> {
        self.order(0, LoopCommand::Connect);
        let mut reports: Vec<_> = self.commands.iter().map(|_| None).collect();
        while reports.iter().any(Option::is_none) {
            self.receive_reports(0, Instant::now() + POLL_INTERVAL, &mut reports);
            if stop.load(Ordering::Relaxed) {
                self.abandon();
                return Err(MeasureError::Interrupted);
            }
        }
        let refused = reports.into_iter().flatten();
        let first = refused
            .filter_map(|report| report.refused)
            .min_by_key(|(index, _)| *index);
        match first {
            Some((index, error)) => {
                Err(connection_refused(error, index, load_group.threads).into())
            }
            None => Ok(()),
        }
    }

    /// Gives every thread a command.
    pub(super) fn order(&self, generation: u64, command: LoopCommand) {
        self.abandon.store(false, Ordering::Relaxed);
        for commands in &self.commands {
            // A thread that has ended reports nothing either.
            let _ = commands.send((generation, command));
        }
    }

    /// Drops the operations in progress.
    pub(super) fn abandon(&self) {
        self.abandon.store(true, Ordering::Relaxed);
    }

    /// Returns the server of each operation in progress, and its connection unless that is lost.
    pub(super) fn busy(&self) -> Vec<(&Node, Option<OpenedConnection>)> {
        let loops = self.statuses.len();
        let mut busy = Vec::new();
        for (first, status) in self.statuses.iter().enumerate() {
            for (own, connection) in status.connections.iter().enumerate() {
                if connection.busy() {
                    let place = (first + own * loops) % self.places.len();
                    busy.push((&self.places[place].node, connection.connection()));
                }
            }
        }
        busy
    }

    /// Receives the reports on a command that arrive in time.
    pub(super) fn receive_reports(
        &self,
        generation: u64,
        deadline: Instant,
        heard: &mut [Option<LoopReport>],
    ) {
        while heard.iter().any(Option::is_none) {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(report) = self.reports.recv_timeout(left) else {
                return;
            };
            if report.generation == generation
                && let Some(place) = heard.get_mut(report.index)
            {
                *place = Some(report);
            }
        }
    }

    pub(super) fn outcome(
        &self,
        reports: impl Iterator<Item = LoopReport>,
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
            loop_delay: SignedHistogram::default(),
            waiting,
            waiting_per_second: Vec::new(),
            by_node: vec![0; self.places.len()],
        };
        for report in reports {
            for (sum, operations) in outcome.by_node.iter_mut().zip(&report.by_node) {
                *sum += operations;
            }
            outcome.statistics.merge(&report.statistics);
            outcome.cpu += report.cpu;
            outcome.busy = outcome.busy + report.busy;
            outcome.loop_delay.merge(&report.loop_delay);
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
            threads: self.connections as u32,
            loops: self.statuses.len() as u32,
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
            loop_delay: outcome.loop_delay.clone(),
            cores: thread::available_parallelism().map_or(1, std::num::NonZero::get),
            limit_per_s: self.limit,
            scarce: self.scarce.clone(),
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
        let sum = |of: fn(&LoopStatus) -> u64| self.statuses.iter().map(|status| of(status)).sum();
        GroupProgress {
            operations: sum(LoopStatus::operations),
            failed: sum(|status| status.failed.load(Ordering::Relaxed)),
            retries: sum(|status| status.retries.load(Ordering::Relaxed)),
            waiting: None,
        }
    }
}

/// Checks that there are servers, threads and a rate.
pub(super) fn check(load_group: &LoadGroup<'_>) -> Result<(), ServerError> {
    if load_group.nodes.is_empty() {
        return Err(ServerError::precondition(
            "load",
            "",
            OPERATION,
            "the load has no server",
            "give --primary URL, or --sandbox none",
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

/// Lets this process open a socket for every connection of these groups.
pub(super) fn raise_file_limit(load_groups: &[LoadGroup<'_>]) -> Result<(), ServerError> {
    let Some(load_group) = load_groups.first() else {
        return Ok(());
    };
    let threads: u64 = load_groups
        .iter()
        .map(|group| u64::from(group.threads))
        .sum();
    let needed = threads + OTHER_FILES;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    if let Some(maximum) = limit.maximum.filter(|maximum| *maximum < needed) {
        return Err(precondition(
            load_group,
            format!(
                "{threads} threads need {needed} open files, and this process may have {maximum}"
            ),
            "use fewer threads, or raise the limit of open files (ulimit -Hn)",
        ));
    }
    let raised = Rlimit {
        current: Some(needed),
        ..limit
    };
    setrlimit(Resource::Nofile, raised).map_err(|error| {
        precondition(
            load_group,
            format!("the limit of open files cannot be raised to {needed}: {error}"),
            "use fewer threads, or raise the limit of open files (ulimit -n)",
        )
    })
}

/// Tries the program on a server, over a connection of its own.
fn try_place(
    place: &LoadTarget,
    program: &Program,
    clock: &Clock,
    stop: &AtomicBool,
) -> Result<(), MeasureError> {
    let events = EventLoop::open(clock, &place.node)?;
    let (task, target) = (events.handle(0), LoopTarget::new(place));
    let tried = Cell::new(None);
    let trial = async {
        let opened = WorkerConnection::open(&target, program, &task).await;
        let mut link = opened.map_err(|error| program.explain(error))?;
        tried.set(Some(link.channel.opened()));
        try_out(&mut link, program, &task).await
    };
    let done = events.block_on(trial, stop);
    let given_up = match &done {
        Ok(Err(error)) => error.kind == ErrorKind::Timeout,
        done => done.is_err(),
    };
    if given_up {
        kill(&place.node, tried.get(), AFTER_KILL);
    }
    Ok(done??)
}

/// Returns an error about the first server.
fn precondition(load_group: &LoadGroup<'_>, cause: impl Into<String>, hint: &str) -> ServerError {
    let first = &load_group.nodes[0];
    first.precondition(OPERATION, cause, hint)
}

/// Adds the number of the connection, and a hint for the server's limit.
fn connection_refused(mut error: ServerError, index: usize, threads: u32) -> ServerError {
    if error.operation.starts_with(OPERATION) {
        // A statement was refused, not the connection.
        return error;
    }
    error.operation = format!(
        "cannot open connection {} of {threads} of the load",
        index + 1
    );
    if error.class() == Some(ErrorClass::TooManyConnections) {
        error.hint = TOO_MANY_HINT.to_owned();
    }
    error
}
