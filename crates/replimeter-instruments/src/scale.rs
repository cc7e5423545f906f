//! Measures one start of a scaling measurement: inserts, selects, and both together, on a primary with
//! a number of replicas, and the resource use of every server.

pub mod results;
pub mod settings;

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use replimeter_engine::{
    Node, ServerError, Session,
    dialect::{
        self,
        acknowledgement::{self, PrimaryState},
    },
    facts::ServerFacts,
    position::Position,
    source::Member,
};
use replimeter_model::{
    engine::Engine, load::ReadTarget, replication::Mode, resources::ServerUse, target::Role,
    time::Nanos, warning::Warning,
};
use serde::{Deserialize, Serialize};

use self::settings::{ScalePhase, ScalePlan};
use crate::{
    MeasureError, check_interrupted,
    clock::Clock,
    load::{
        DataSet, FillProgress, GroupResult, LoadGroup, LoadProgress, ScriptError, WorkerPool,
        Workload, fill_sandbox,
    },
    pacing::{self, poll},
    resources::{Meter, NamedProcess, ResourceWatch},
};

/// How long replicas may take to apply all writes, in addition to ten times the time of writing.
const SETTLE: Duration = Duration::from_secs(120);
/// Interval between checks of their progress.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Interval between readings of the servers' processes.
const METER_INTERVAL: Duration = Duration::from_millis(250);
/// How long the client's own limit is measured before each block.
const LIMIT: Duration = Duration::from_millis(300);
/// How long semi-synchronous replication may take to recover from a fallback.
const RECOVERY: Duration = Duration::from_secs(15);

/// Workloads of a scaling measurement.
pub struct Workloads {
    insert: Workload,
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
}

/// Results of one kind of operation in a block.
#[derive(Debug, Serialize, Deserialize)]
pub struct OperationResult {
    /// `insert`, `select` or `update`.
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

/// One block: a phase for some time.
#[derive(Debug, Serialize, Deserialize)]
pub struct Block {
    /// The phase.
    pub phase: ScalePhase,
    /// Results of each kind of operation.
    pub parts: Vec<OperationResult>,
    /// When counting began.
    pub began: Nanos,
    /// Duration of the counted time.
    pub counted: Nanos,
    /// Resource use of each server, the primary first.
    pub uses: Vec<ServerUse>,
    /// The same until every replica had applied the block.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub until_applied: Vec<ServerUse>,
    /// The same for each whole second.
    pub timeline: Vec<Vec<ServerUse>>,
    /// Time from the end of the load until every replica had all of it, known within a tenth; `None` where nothing was written
    /// or replicated.
    pub caught_up: Option<Duration>,
    /// Why the block is invalid: semi-synchronous replication was not in effect.
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
    /// Returns each server's resource use until every replica had applied the block.
    #[must_use]
    pub fn used_until_applied(&self) -> &[ServerUse] {
        if self.until_applied.is_empty() {
            &self.uses
        } else {
            &self.until_applied
        }
    }

    /// Returns the number of operations of every kind.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.parts.iter().map(|part| part.result.operations).sum()
    }
}

/// Progress of a block.
#[derive(Clone, Copy, Debug)]
pub enum BlockProgress<'a> {
    /// The load runs.
    Load(&'a LoadProgress),
    /// Replicas catch up; the slowest one lacks this number of transactions.
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

/// Returns the kinds of operations of a phase.
fn kinds(phase: ScalePhase) -> Vec<&'static str> {
    let writes = phase
        .writes()
        .map(|updates| if updates { "update" } else { "insert" });
    let reads = phase.reads().then_some("select");
    writes.into_iter().chain(reads).collect()
}

/// A replica and its position.
struct ReplicaProgress {
    name: String,
    engine: Engine,
    session: Session,
}

/// A primary with its replicas, filled and ready to be measured.
pub struct PreparedServers<'a> {
    plan: &'a ScalePlan,
    workloads: &'a Workloads,
    clock: Clock,
    writer: Node,
    readers: Vec<Node>,
    reads_only: bool,
    engine: Engine,
    session: Session,
    followers: Vec<ReplicaProgress>,
    data: DataSet,
    watch: ResourceWatch,
    /// Warnings about the servers.
    pub warnings: Vec<Warning>,
}

impl<'a> PreparedServers<'a> {
    /// Connects to the servers, beginning with the primary, creates the data set and waits until every
    /// replica has it.
    ///
    /// # Errors
    /// When a server does not answer, or the data set cannot be created.
    pub fn open(
        servers: &[Member],
        plan: &'a ScalePlan,
        workloads: &'a Workloads,
        clock: &Clock,
        filled: &mut dyn FnMut(&FillProgress),
        stop: &AtomicBool,
    ) -> Result<Self, MeasureError> {
        let Some((primary, replicas)) = servers.split_first() else {
            return Err(MeasureError::NoServer);
        };
        let mut session = Session::open(&primary.node)?;
        let engine = ServerFacts::read(&mut session)?.engine;
        let mut followers = Vec::new();
        for replica in replicas {
            let mut session = Session::open(&replica.node)?;
            let engine = ServerFacts::read(&mut session)?.engine;
            followers.push(ReplicaProgress {
                name: replica.node.name.clone(),
                engine,
                session,
            });
        }
        let writer = primary.node.clone();
        let nodes: Vec<Node> = servers.iter().map(|server| server.node.clone()).collect();
        let mut data = fill_sandbox(&nodes, &workloads.insert, plan.data_size, filled, stop)?;
        data.wait_on(&nodes[1..], SETTLE + 10 * data.took, stop)?;
        let readers = match plan.reads {
            ReadTarget::Primary => vec![writer.clone()],
            ReadTarget::Replicas if replicas.is_empty() => vec![writer.clone()],
            ReadTarget::Replicas => nodes[1..].to_vec(),
            ReadTarget::All => nodes,
        };
        let reads_only = servers
            .iter()
            .any(|server| server.role == Some(Role::Replica))
            && plan.reads == ReadTarget::Replicas;
        let meter = Meter::open(servers, clock)?;
        let mut warnings = meter.warnings();
        warnings.append(&mut data.warnings);
        let watch = ResourceWatch::start(meter, METER_INTERVAL);
        Ok(Self {
            plan,
            workloads,
            clock: *clock,
            writer,
            readers,
            reads_only,
            engine,
            session,
            followers,
            data,
            watch,
            warnings,
        })
    }

    /// Returns the rows and bytes of the data set.
    #[must_use]
    pub fn data(&self) -> (u64, u64) {
        (self.data.rows, self.data.bytes)
    }

    /// Also meters these processes.
    pub fn meter(&self, processes: Vec<NamedProcess>) {
        self.watch.add(processes);
    }

    /// Runs one block, directly or through a site, waits until every replica has applied it, and restores the data set.
    ///
    /// # Errors
    /// When a server fails, or the user stops the run; with the results until then.
    pub fn block(
        &mut self,
        phase: ScalePhase,
        site: Option<&mut dyn Clients>,
        step: &mut dyn FnMut(BlockProgress<'_>),
        stop: &AtomicBool,
    ) -> Result<Block, BlockError> {
        let before = self.semi_sync(stop)?;
        let (ramp, length) = (self.plan.warm_up.0, self.plan.duration.0);
        let kinds = kinds(phase);
        let mut pool = None;
        let clients: &mut dyn Clients = match site {
            Some(site) => site,
            None => {
                let open = WorkerPool::open(&self.load_groups(phase), &self.clock, stop)?;
                let pool = pool.insert(open);
                pool.measure_limit(LIMIT, stop);
                pool
            }
        };
        // The warm-up is separate, so that the replicas begin the counted part without a backlog.
        let warm_up = clients.run(&kinds, ramp, stop, &mut |second| {
            let second = LoadProgress {
                counted: false,
                ..second.clone()
            };
            step(BlockProgress::Load(&second));
        })?;
        let lost = warm_up.into_iter().find_map(|part| part.result.failure);
        if let Some(lost) = lost {
            return Err(MeasureError::from(lost).into());
        }
        if phase.writes().is_some() {
            self.catch_up(10 * ramp, step, stop)?;
        }
        let mut parts = clients.run(&kinds, length, stop, &mut |second| {
            step(BlockProgress::Load(second))
        })?;
        for part in &mut parts {
            part.result.ramp = Nanos::from(ramp);
        }
        let mut results = parts.iter().map(|part| &part.result);
        let failure = results.clone().find_map(|result| result.failure.clone());
        let interrupted = stop.load(Ordering::Relaxed) || results.any(|result| result.interrupted);
        let mut block = self.measured(phase, parts);
        let broken = match failure {
            Some(failure) => Some(MeasureError::from(failure)),
            None if interrupted => Some(MeasureError::Interrupted),
            None => None,
        };
        if let Some(error) = broken {
            let until_then = (block.counted.0 > 0).then(|| Box::new(block));
            return Err(BlockError { error, until_then });
        }
        let rest = |block: &mut Block, prepared: &mut Self| -> Result<(), MeasureError> {
            if phase.writes().is_some() {
                let caught_up = prepared.catch_up(10 * (ramp + length), step, stop)?;
                block.caught_up = (!prepared.followers.is_empty()).then_some(caught_up);
                let applied = prepared.watch.read();
                // Not before: closing connections takes time, in which replicas would catch up unobserved.
                drop(pool);
                block.until_applied = prepared.watch.over(block.began, applied.at);
                block.invalid = prepared.invalid(before.as_ref())?;
                prepared.data.restore(&prepared.writer, stop)?;
                prepared.catch_up(10 * (ramp + length), step, stop)?;
            }
            Ok(())
        };
        match rest(&mut block, self) {
            Ok(()) => Ok(block),
            // The counted part was complete.
            Err(error) => Err(BlockError {
                error,
                until_then: Some(Box::new(block)),
            }),
        }
    }

    /// Returns the load groups of a phase, in the order of its kinds of operations.
    fn load_groups(&self, phase: ScalePhase) -> Vec<LoadGroup<'_>> {
        let mut load_groups = Vec::new();
        if let Some(updates) = phase.writes() {
            let workload = if updates {
                &self.workloads.update
            } else {
                &self.workloads.insert
            };
            load_groups.push(LoadGroup {
                data: Some(&self.data),
                ..LoadGroup::new(workload, vec![self.writer.clone()], self.plan.threads)
            });
        }
        if phase.reads() {
            load_groups.push(LoadGroup {
                data: Some(&self.data),
                reads_only: self.reads_only,
                ..LoadGroup::new(
                    &self.workloads.select,
                    self.readers.clone(),
                    self.plan.threads,
                )
            });
        }
        load_groups
    }

    /// Returns a block with these results and the servers' resource use.
    fn measured(&mut self, phase: ScalePhase, parts: Vec<OperationResult>) -> Block {
        // Nothing is known after the last reading.
        let _ = self.watch.read();
        let results = || parts.iter().map(|part| &part.result);
        let began = results().map(|result| result.began).min();
        let counted = results().map(|result| result.counted).max();
        let (began, counted) = (began.unwrap_or_default(), counted.unwrap_or_default());
        Block {
            phase,
            parts,
            began,
            counted,
            uses: self.watch.over(began, began + counted),
            until_applied: Vec::new(),
            timeline: self.timeline(began, counted),
            caught_up: None,
            invalid: None,
            absence: None,
            disturbance: None,
            disk_wait: None,
        }
    }

    /// Returns the resource use in each whole second of a block.
    fn timeline(&self, began: Nanos, counted: Nanos) -> Vec<Vec<ServerUse>> {
        const SECOND: i64 = 1_000_000_000;
        let seconds = u32::try_from(counted.0 / SECOND).unwrap_or(0).min(3600);
        self.watch
            .series(began, began + Nanos(i64::from(seconds) * SECOND), seconds)
    }

    /// Waits until every replica has applied all writes; returns how long that took.
    fn catch_up(
        &mut self,
        patience: Duration,
        step: &mut dyn FnMut(BlockProgress<'_>),
        stop: &AtomicBool,
    ) -> Result<Duration, MeasureError> {
        if self.followers.is_empty() {
            return Ok(Duration::ZERO);
        }
        let written = Position::written(self.engine, &mut self.session)?;
        let limit = SETTLE + patience;
        let mut reported = Instant::now();
        // The first replica that may lack writes, and how many it lacked when it was last asked.
        let (mut index, mut behind) = (0, 0);
        let took = pacing::catch_up(limit, || {
            while let Some(follower) = self.followers.get_mut(index) {
                behind = Position::applied(follower.engine, &mut follower.session)?
                    .behind(&written)
                    .map_err(|error| error.on(&follower.session))?;
                if behind == 0 {
                    index += 1;
                    continue;
                }
                check_interrupted(stop)?;
                if reported.elapsed() > Duration::from_millis(200) {
                    reported = Instant::now();
                    step(BlockProgress::CatchingUp(behind));
                    self.runs(index)?;
                }
                return Ok(true);
            }
            Ok(false)
        })?;
        took.ok_or_else(|| {
            let name = self.followers.get(index).map_or("a replica", |one| &one.name);
            let cause = format!(
                "{name} still has {behind} transactions to apply after {} s",
                limit.as_secs()
            );
            let hint = "measure for a shorter time (--duration), or give the replica more workers (--server-option)";
            self.session
                .precondition("cannot start the next block", cause, hint)
                .into()
        })
    }

    /// Returns an error when a replica no longer replicates.
    fn runs(&mut self, index: usize) -> Result<(), ServerError> {
        let follower = &mut self.followers[index];
        let channels = dialect::channels(follower.engine, &mut follower.session)?;
        match channels.first() {
            Some(channel) if channel.running() => Ok(()),
            Some(channel) => Err(follower.session.precondition(
                "no longer replicates",
                channel.state(),
                "see the server's error log",
            )),
            None => Err(dialect::channel_gone(
                &follower.session,
                "no longer replicates",
            )),
        }
    }

    /// Returns the state of semi-synchronous replication once it is in effect; `None` where it is not
    /// used.
    fn semi_sync(&mut self, stop: &AtomicBool) -> Result<Option<PrimaryState>, MeasureError> {
        if self.plan.mode.mode() != Mode::SemiSync || self.followers.is_empty() {
            return Ok(None);
        }
        let session = &mut self.session;
        let active = poll(RECOVERY, POLL_INTERVAL, stop, || {
            let state = acknowledgement::state(session)?.0;
            Ok(state.filter(|state| state.active))
        })?;
        active.map(Some).ok_or_else(|| {
            let cause = format!(
                "it fell back to asynchronous replication and did not recover within {} s",
                RECOVERY.as_secs()
            );
            let hint = "check the replicas, lower the load, or raise the timeout (--server-option)";
            session
                .precondition("cannot measure semi-synchronous replication", cause, hint)
                .into()
        })
    }

    /// Returns why a block was not entirely semi-synchronous.
    fn invalid(&mut self, before: Option<&PrimaryState>) -> Result<Option<String>, ServerError> {
        let Some(before) = before else {
            return Ok(None);
        };
        let now = acknowledgement::state(&mut self.session)?
            .0
            .unwrap_or_default();
        let missed = now.unacknowledged.saturating_sub(before.unacknowledged);
        Ok((missed > 0 || !now.active).then(|| {
            format!("semi-synchronous replication fell back: {missed} transactions were committed without an acknowledgement")
        }))
    }
}
