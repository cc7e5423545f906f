//! Measures one start of servers under load, for `cost` and `scale`: each condition's load in blocks, the servers' resource use, how
//! long the others took to apply it, and whether the mode stayed in effect.

mod block;
mod replicas;

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use replimeter_engine::{CommitGuard, Node, Session, facts::ServerFacts, source::Member};
use replimeter_model::{
    load::DataSize, manifest::ServerRecord, replication::Mode, target::Role, time::Nanos,
    warning::Warning,
};

pub use self::block::{
    Block, BlockError, BlockProgress, Clients, ConditionLoad, Disturbance, ONE_KIND,
    OperationResult, Operations,
};
use self::replicas::{CaughtUp, Replicas};
use crate::{
    MeasureError,
    clock::Clock,
    load::{DataSet, FillProgress, LoadGroup, LoadProgress, WorkerPool, Workload, fill_sandbox},
    pacing::poll,
    resources::{METER_INTERVAL, Meter, NamedProcess, ResourceWatch},
};

/// How long servers may take to apply all writes before the next block.
pub const SETTLE: Duration = Duration::from_secs(120);
/// How long semi-synchronous replication may take to recover from a fallback.
const RECOVERY: Duration = Duration::from_secs(15);
/// Interval between checks whether it has.
const RECOVERY_CHECK: Duration = Duration::from_millis(10);

/// How servers are prepared.
pub struct Preparation<'a> {
    /// How they replicate.
    pub mode: Mode,
    /// The workload that defines the tables.
    pub workload: &'a Workload,
    /// The size of its data set.
    pub size: DataSize,
    /// Whether resource use is known for each second, too.
    pub by_time: bool,
}

/// One start of servers with a data set.
pub struct TrialServers {
    clock: Clock,
    needs_guard: bool,
    session: Session,
    replicas: Replicas,
    watch: ResourceWatch,
    by_time: bool,
    /// Whether a load has written since the data set was complete.
    written: bool,
    /// Whether every server has applied what was written.
    applied: bool,
    /// Every server, beginning with the one that is written to.
    pub nodes: Vec<Node>,
    /// Whether some are replicas, on which a row of a load would exist on no other server.
    pub have_replicas: bool,
    /// The data set.
    pub data: DataSet,
    /// Records of the servers for the manifest.
    pub records: Vec<ServerRecord>,
    /// Warnings about the servers.
    pub warnings: Vec<Warning>,
}

/// The clients of a condition, warmed up.
pub struct WarmClients<'c> {
    clients: Box<dyn Clients + 'c>,
    /// Whether they are connected to the servers, not to a site.
    direct: bool,
}

impl TrialServers {
    /// Connects to the servers, beginning with the one that is written to, creates the data set and waits until every server has it.
    ///
    /// # Errors
    /// When a server does not answer, or the data set cannot be created.
    pub fn open(
        servers: &[Member],
        preparation: &Preparation<'_>,
        clock: &Clock,
        filled: &mut dyn FnMut(&FillProgress),
        stop: &AtomicBool,
    ) -> Result<Self, MeasureError> {
        let mode = preparation.mode;
        let mut records = Vec::new();
        let mut sessions = Vec::new();
        let mut engine = None;
        for server in servers {
            let mut session = Session::open(&server.node)?;
            let facts = ServerFacts::read(&mut session)?;
            records.push(facts.record(&session));
            engine.get_or_insert(facts.engine);
            sessions.push(session);
        }
        let mut sessions = sessions.into_iter();
        let (Some(engine), Some(session)) = (engine, sessions.next()) else {
            return Err(MeasureError::NoServer);
        };
        let replicas = Replicas::new(mode, engine, sessions.collect());
        let nodes: Vec<Node> = servers.iter().map(|server| server.node.clone()).collect();
        let Preparation { workload, size, .. } = *preparation;
        let mut data = fill_sandbox(&nodes, workload, size, filled, stop)?;
        data.wait_on(&nodes[1..], SETTLE + 10 * data.took, stop)?;
        let meter = Meter::open(servers, clock)?;
        let mut warnings = meter.warnings();
        warnings.append(&mut data.warnings);
        Ok(Self {
            clock: *clock,
            needs_guard: mode.waits_for_receipt() && !replicas.is_empty(),
            nodes,
            session,
            replicas,
            data,
            watch: match preparation.by_time {
                true => ResourceWatch::start(meter, METER_INTERVAL),
                false => ResourceWatch::on_request(meter),
            },
            by_time: preparation.by_time,
            have_replicas: servers
                .iter()
                .any(|server| server.role == Some(Role::Replica)),
            written: false,
            applied: true,
            records,
            warnings,
        })
    }

    /// Also meters these processes.
    pub fn meter(&self, processes: Vec<NamedProcess>) {
        self.watch.add(processes);
    }

    /// Measures the client's ping limit: pings per second over this load's connections. The client cannot run more statements than
    /// that on this server.
    ///
    /// # Errors
    /// When the server fails, or the user stops the run.
    pub fn ping_limit(
        &self,
        load: &ConditionLoad<'_>,
        length: Duration,
        stop: &AtomicBool,
    ) -> Result<Option<f64>, MeasureError> {
        let mut pool = self.connect(load, stop)?;
        Ok(pool.measure_limit(length, stop).first().copied().flatten())
    }

    fn connect(
        &self,
        load: &ConditionLoad<'_>,
        stop: &AtomicBool,
    ) -> Result<WorkerPool, MeasureError> {
        let groups = load.operations.iter().map(|one| LoadGroup {
            data: Some(&self.data),
            reads_only: one.reads_only,
            ..LoadGroup::new(one.workload, one.nodes.clone(), one.threads)
        });
        let groups: Vec<LoadGroup<'_>> = groups.collect();
        WorkerPool::open(&groups, &self.clock, stop)
    }

    /// Restores the data set if a load changed it, connects the clients unless they are those of a `site`, and warms them up.
    ///
    /// # Errors
    /// When a server fails, or the user stops the run.
    pub fn begin<'c>(
        &mut self,
        load: &ConditionLoad<'_>,
        site: Option<Box<dyn Clients + 'c>>,
        step: &mut dyn FnMut(BlockProgress<'_>),
        stop: &AtomicBool,
    ) -> Result<WarmClients<'c>, MeasureError> {
        if std::mem::take(&mut self.written) {
            step(BlockProgress::Restoring);
            self.data.restore(&self.nodes[0], stop)?;
            self.applied = false;
        }
        self.settle(step, stop)?;
        let direct = site.is_none();
        let mut clients: Box<dyn Clients + 'c> = match site {
            Some(site) => site,
            None => {
                let mut pool = self.connect(load, stop)?;
                if let Some(limit) = load.limit {
                    pool.measure_limit(limit, stop);
                }
                Box::new(pool)
            }
        };
        self.written = load.writes();
        if !load.warm_up.is_zero() {
            // Separately, so that the other servers begin the counted part without a backlog.
            let parts = clients.run(&load.kinds(), load.warm_up, stop, &mut |second| {
                let second = LoadProgress {
                    counted: false,
                    ..second.clone()
                };
                step(BlockProgress::Load(&second));
            })?;
            let warm_up = Block {
                parts,
                ..Block::default()
            };
            self.check(&warm_up, direct, stop)?;
            if load.writes() {
                self.catch_up(load.catch_up, load.must_apply, step, stop)?;
            }
        }
        Ok(WarmClients { clients, direct })
    }

    /// Runs one block, and waits until every server has applied it.
    ///
    /// # Errors
    /// When a server fails, or no longer replicates, or the user stops the run; with the results until then.
    pub fn block(
        &mut self,
        load: &ConditionLoad<'_>,
        warm: &mut WarmClients<'_>,
        step: &mut dyn FnMut(BlockProgress<'_>),
        stop: &AtomicBool,
    ) -> Result<Block, BlockError> {
        // What is left of the load before would count in this block's resources, and in the time to apply it.
        self.settle(step, stop)?;
        let guard = self.guard(stop)?;
        let before = self.watch.read();
        let mut parts = warm
            .clients
            .run(&load.kinds(), load.length, stop, &mut |second| {
                step(BlockProgress::Load(second));
            })?;
        for part in &mut parts {
            part.result.ramp = Nanos::from(load.warm_up);
        }
        let mut block = Block {
            parts,
            ..Block::default()
        };
        if self.by_time {
            (block.uses, block.timeline) = self.watch.of_load(block.began(), block.counted());
        }
        let result = self.check(&block, warm.direct, stop);
        let result = result.and_then(|()| {
            if load.writes() {
                let caught_up = self.catch_up(load.catch_up, load.must_apply, step, stop)?;
                block.caught_up = caught_up.took.filter(|_| !self.replicas.is_empty());
                block.behind = caught_up.behind;
            }
            // Read now, the resources include all that the block has the other servers do. Closing the clients' connections would take
            // time, in which they catch up unobserved.
            block.until_applied = self.watch.between(&before, &self.watch.read());
            if let Some(guard) = guard {
                let fallback = guard.fallback(&mut self.session)?;
                block.invalid = fallback.map(|fallback| fallback.to_string());
            }
            Ok(self.replicas.verify()?)
        });
        match result {
            Ok(()) => Ok(block),
            Err(error) => Err(BlockError {
                error,
                until_then: (block.counted().0 > 0).then(|| Box::new(block)),
            }),
        }
    }

    /// Returns why a load ended early.
    fn check(&self, block: &Block, direct: bool, stop: &AtomicBool) -> Result<(), MeasureError> {
        if let Some(failure) = block.failure() {
            return Err(failure.into());
        }
        if block.interrupted() || stop.load(Ordering::Relaxed) {
            return Err(MeasureError::Interrupted);
        }
        match block.lost_connection().filter(|_| direct) {
            None => Ok(()),
            Some(lost) => Err(self
                .session
                .precondition(
                    "the load lost its connections",
                    lost,
                    "check whether the server stopped; see its error log",
                )
                .into()),
        }
    }

    /// Waits until every server has applied all writes, if one had not.
    fn settle(
        &mut self,
        step: &mut dyn FnMut(BlockProgress<'_>),
        stop: &AtomicBool,
    ) -> Result<(), MeasureError> {
        if !self.applied {
            self.catch_up(SETTLE, true, step, stop)?;
        }
        Ok(())
    }

    /// Waits until every server has applied all writes, for at most `limit`, after which it is an error if they must.
    fn catch_up(
        &mut self,
        limit: Duration,
        must_apply: bool,
        step: &mut dyn FnMut(BlockProgress<'_>),
        stop: &AtomicBool,
    ) -> Result<CaughtUp, MeasureError> {
        let mut progress = |behind| step(BlockProgress::CatchingUp(behind));
        let session = &mut self.session;
        let caught_up = self
            .replicas
            .catch_up(session, limit, &mut progress, stop)?;
        self.applied = caught_up.took.is_some();
        match caught_up.lacking.as_ref().filter(|_| must_apply) {
            Some((behind, name)) if !self.applied => {
                let seconds = limit.as_secs();
                let cause =
                    format!("{name} still has {behind} transactions to apply after {seconds} s");
                let hint = "use fewer threads or a shorter time (--duration), or run `replimeter backlog` to see whether it keeps up";
                let error = session.precondition("cannot start the next block", cause, hint);
                Err(error.into())
            }
            _ => Ok(caught_up),
        }
    }

    /// Returns the guard of commits that wait for a replica, once they do; `None` where the mode has none.
    fn guard(&mut self, stop: &AtomicBool) -> Result<Option<CommitGuard>, MeasureError> {
        if !self.needs_guard {
            return Ok(None);
        }
        let session = &mut self.session;
        let guard = poll(RECOVERY, RECOVERY_CHECK, stop, || {
            Ok(CommitGuard::begin(session)?)
        })?;
        guard.map(Some).ok_or_else(|| {
            let cause = format!(
                "it fell back to asynchronous replication and did not recover within {} s",
                RECOVERY.as_secs()
            );
            let hint = "check the replicas and their receivers, lower the load, or raise the timeout (--server-option)";
            self.session
                .precondition("cannot measure semi-synchronous replication", cause, hint)
                .into()
        })
    }
}
