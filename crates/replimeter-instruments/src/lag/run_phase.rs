//! One part of a run: connects and prepares everything, then writes and observes.

use std::{
    sync::{
        Mutex,
        atomic::AtomicBool,
        mpsc::{self, Sender},
    },
    thread::{self, Scope, ScopedJoinHandle},
    time::{Duration, Instant},
};

use replimeter_engine::{Node, ServerError, Session, dialect::stages, facts::ServerFacts};
use replimeter_model::warning::{Warning, WarningCode};

use super::{
    Event, Slot,
    collector::{Collector, PartEnd},
    methods::AvailableMethods,
    observer_event::{ObserverEvent, SeenRows},
    replica_poller::{ReplicaPoller, arrival},
    script::Script,
    shared_state::{HaltOnDrop, SharedState},
    stage_watcher::StageWatcher,
    stamps::StampReader,
    tap::LogTap,
    waiter::Waiter,
    waterfalls::ReplicaWaterfall,
    writer::{SharedSchedule, Writer, WriterChannels, WrittenRow},
};
use crate::{
    Listener, MeasureError,
    clock::Clock,
    lag::{
        sample::Phase,
        settings::{LagPlan, Method, Pace, StampJoin},
    },
    preflight::{CheckedReplica, Cluster},
    table::RowBudget,
};

/// One part of a run: a script of writes, and the servers that are observed.
pub(super) struct RunPhase<'a> {
    pub(super) primary: &'a Node,
    pub(super) observed: &'a [Node],
    pub(super) possible: &'a AvailableMethods,
    pub(super) bytes: &'a [u8],
    pub(super) limit: u64,
    pub(super) clock: &'a Clock,
    pub(super) plan: &'a LagPlan,
}

/// Everything that is connected and prepared before the first write of a part.
#[derive(Default)]
struct PreparedPhase {
    writers: Vec<Writer>,
    observers: Vec<ReplicaPoller>,
    /// For each slot of the method `wait`: its connections.
    waiters: Vec<Vec<Waiter>>,
    taps: Vec<LogTap>,
    stamps: Vec<StampReader>,
    watchers: Vec<StageWatcher>,
    waterfalls: Vec<ReplicaWaterfall>,
    warnings: Vec<Warning>,
}

/// A replica that takes longer than this and its configured delay to show the first table was behind before the run.
const BEHIND: Duration = Duration::from_secs(1);

/// Returns the warning that a replica was behind when the measurement began.
fn behind(replica: &CheckedReplica, late: Duration) -> Option<Warning> {
    let warning = || {
        Warning::new(
            WarningCode::ReplicaBehind,
            format!(
                "{} was behind when the measurement began: earlier writes took {:.1} s to arrive; the figures describe it after it had caught up",
                replica.server.session.name(),
                late.as_secs_f64()
            ),
            "`replimeter tap` and `replimeter exposure` observe a replica while it is behind; or wait until it has caught up, and run again",
        )
    };
    (late > BEHIND + replica.delay()).then(warning)
}

impl RunPhase<'_> {
    /// Returns the slots of a phase. The floor observes the primary as its own replica, whose stamps
    /// cannot be compared with themselves.
    fn slots(&self, phase: Phase) -> Vec<Slot> {
        let methods = self
            .possible
            .methods
            .iter()
            .filter(|method| phase != Phase::Floor || !method.stamps());
        let methods: Vec<Method> = methods.copied().collect();
        (0..self.observed.len())
            .flat_map(|replica| {
                methods.iter().map(move |method| Slot {
                    replica,
                    method: *method,
                })
            })
            .collect()
    }

    /// Returns the facts of an observed server.
    fn facts<'c>(&self, phase: Phase, replica: usize, cluster: &'c Cluster) -> &'c ServerFacts {
        match (phase, cluster.replicas.get(replica)) {
            (Phase::Floor, _) | (_, None) => &cluster.primary.facts,
            (_, Some(replica)) => &replica.server.facts,
        }
    }

    fn prepare(
        &self,
        slots: &[Slot],
        script: &Script,
        next_id: u64,
        cluster: &mut Cluster,
        stop: &AtomicBool,
    ) -> Result<PreparedPhase, MeasureError> {
        let phase = script.phase();
        let mut prepared = PreparedPhase::default();
        let patience = self.plan.timeout.0 + delay_of(cluster);
        let began = Instant::now();
        for (replica, node) in self.observed.iter().enumerate() {
            let facts = self.facts(phase, replica, cluster);
            let (session, late) = arrival(node, facts.engine, next_id - 1, patience, stop, began)?;
            if let Some(checked) = cluster
                .replicas
                .get(replica)
                .filter(|_| matches!(phase, Phase::WarmUp | Phase::Measure))
            {
                prepared
                    .warnings
                    .extend(late.and_then(|late| behind(checked, late)));
            }
            let own = slots.iter().enumerate();
            let own: Vec<(usize, Method)> = own
                .filter(|(_, slot)| slot.replica == replica)
                .map(|(index, slot)| (index, slot.method))
                .collect();
            self.prepare_observers(&own, session, replica, script, cluster, &mut prepared)?;
            let stamping: Vec<_> = own
                .into_iter()
                .filter(|(_, method)| method.stamps())
                .collect();
            if let (false, Some(checked)) = (stamping.is_empty(), cluster.replicas.get(replica)) {
                prepared.stamps.push(StampReader::open(
                    self.primary,
                    node,
                    &checked.server,
                    self.clock,
                    stamping,
                    next_id - 1,
                    self.plan.join == StampJoin::Federated,
                    self.plan.pace == Pace::Visible,
                )?);
            }
        }
        if !prepared.taps.is_empty() {
            prepared
                .taps
                .push(LogTap::open(self.primary, &cluster.primary.facts, 0)?);
        }
        self.prepare_stages(slots, phase, cluster, &mut prepared)?;
        let commit_ids = !prepared.watchers.is_empty()
            || slots
                .iter()
                .any(|slot| matches!(slot.method, Method::Wait | Method::Tap));
        for _ in 0..self.writers(phase) {
            let stamps = self.possible.stamps.as_ref();
            let writer = Writer::open(
                self.primary,
                &cluster.primary.facts,
                stamps,
                commit_ids,
                self.plan.cores.real_time.on,
            )?;
            prepared.writers.push(writer);
        }
        Ok(prepared)
    }

    /// Prepares to observe one server for these slots. `session` has read all earlier rows.
    fn prepare_observers(
        &self,
        slots: &[(usize, Method)],
        session: Session,
        replica: usize,
        script: &Script,
        cluster: &Cluster,
        prepared: &mut PreparedPhase,
    ) -> Result<(), MeasureError> {
        let phase = script.phase();
        let (node, facts) = (&self.observed[replica], self.facts(phase, replica, cluster));
        let mut session = Some(session);
        for &(index, method) in slots {
            match method {
                Method::Poll => prepared.observers.extend(
                    session
                        .take()
                        .map(|session| ReplicaPoller::new(session, index))
                        .transpose()?,
                ),
                Method::Wait => {
                    // Rows in close succession must not wait for each other's verifying reads.
                    let connections = self.writers(phase) + usize::from(script.gaps().is_some());
                    let waiters = (0..connections).map(|_| Waiter::open(node, facts, index));
                    prepared.waiters.push(waiters.collect::<Result<_, _>>()?);
                }
                Method::Tap => prepared.taps.push(LogTap::open(node, facts, replica + 1)?),
                Method::Stamp | Method::StampUdf => {}
            }
        }
        Ok(())
    }

    /// Prepares to observe the stages of each replica's transactions.
    fn prepare_stages(
        &self,
        slots: &[Slot],
        phase: Phase,
        cluster: &Cluster,
        prepared: &mut PreparedPhase,
    ) -> Result<(), MeasureError> {
        if !self.plan.stages || phase != Phase::Measure {
            return Ok(());
        }
        for (index, checked) in cluster.replicas.iter().enumerate() {
            let poll = |slot: &Slot| {
                *slot
                    == Slot {
                        replica: index,
                        method: Method::Poll,
                    }
            };
            let Some(slot) = slots.iter().position(poll) else {
                continue;
            };
            if !stages::are_reported(&cluster.primary.membership) {
                prepared.waterfalls.push(ReplicaWaterfall::of_a_node());
                continue;
            }
            let facts = [&cluster.primary.facts, &checked.server.facts];
            let stage_watcher = StageWatcher::open(
                [self.primary, &self.observed[index]],
                facts,
                index,
                slot,
                self.clock,
            )?;
            let tap = self.possible.methods.contains(&Method::Tap);
            let name = &checked.server.node.name;
            prepared.waterfalls.push(ReplicaWaterfall::new(
                checked.server.facts.engine,
                name,
                tap,
                stage_watcher.clocks(self.clock.now()),
            ));
            prepared.watchers.push(stage_watcher);
        }
        Ok(())
    }

    /// Returns the number of writing connections; the floor always has one.
    fn writers(&self, phase: Phase) -> usize {
        if phase == Phase::Measure {
            usize::try_from(self.plan.writers).unwrap_or(1)
        } else {
            1
        }
    }

    /// Writes the rows of the script and observes them until all were seen.
    pub(super) fn run(
        &self,
        script: Script,
        held: &mut RowBudget,
        cluster: &mut Cluster,
        listener: &mut Listener<'_, Event>,
    ) -> Result<PartEnd, MeasureError> {
        let phase = script.phase();
        let slots = self.slots(phase);
        let next_id = held.ids.end;
        let last = next_id - 1;
        let shared_state = SharedState::new(slots.len(), last);
        // Everything is connected and prepared before the first write.
        let mut prepared = self.prepare(&slots, &script, next_id, cluster, listener.stop)?;
        let warnings = std::mem::take(&mut prepared.warnings);
        let (sighted, sightings) = mpsc::channel();
        let (events, writes) = mpsc::channel();
        let schedule = SharedSchedule::new(
            &script,
            self.clock,
            &shared_state,
            self.bytes,
            self.limit,
            prepared.writers.len(),
            held,
        );
        let waiting: Vec<Mutex<SeenRows>> = prepared
            .waiters
            .iter()
            .map(|_| Mutex::new(SeenRows::new(last)))
            .collect();
        let ending = thread::scope(|scope| {
            let halt = HaltOnDrop(&shared_state);
            let (shared_state, schedule) = (&shared_state, &schedule);
            let waterfalls = std::mem::take(&mut prepared.waterfalls);
            let start = ThreadStarter {
                scope,
                clock: self.clock,
                shared_state,
                real_time: self.plan.cores.real_time.on,
                sighted,
            };
            let writers = std::mem::take(&mut prepared.writers);
            let (observers, waiters) = start.observers(prepared, &waiting);
            let channels = WriterChannels { events, waiters };
            let writers: Vec<_> = writers
                .into_iter()
                .map(|writer| {
                    let channels = channels.clone();
                    scope.spawn(move || writer.run(schedule, &channels))
                })
                .collect();
            drop(channels);
            if let Some(first) = writers.first() {
                shared_state.set_writer(first.thread().clone());
            }
            let collector = Collector::new(
                shared_state,
                self.clock,
                self.plan,
                &slots,
                waterfalls,
                last,
                &script,
            );
            let mut ending = collector.run(&writes, &sightings, cluster, listener);
            // The observers and writers end when the shared state is halted.
            drop(halt);
            let (writers, observers) = (failed(writers), failed(observers));
            *held = schedule.row_budget();
            // After the user's stop, errors of a server that hangs do not matter.
            if !ending.interrupted {
                // The first cause is the collector's, then the writers', then the observers'.
                ending.failure = ending
                    .failure
                    .or(writers.into_iter().chain(observers).next());
            }
            ending.warnings.extend(warnings);
            ending
        });
        Ok(ending)
    }
}

/// Measuring threads.
type Threads<'scope> = Vec<ScopedJoinHandle<'scope, Result<(), ServerError>>>;

/// Input for starting the threads. When it is dropped, only the threads can send sightings.
struct ThreadStarter<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    clock: &'scope Clock,
    shared_state: &'scope SharedState,
    real_time: bool,
    sighted: Sender<ObserverEvent>,
}

impl<'scope> ThreadStarter<'scope, '_> {
    /// Starts all observing threads. Returns them and, for each replica, the channels of its waiting
    /// connections.
    fn observers(
        self,
        prepared: PreparedPhase,
        waiting: &'scope [Mutex<SeenRows>],
    ) -> (Threads<'scope>, Vec<Vec<Sender<WrittenRow>>>) {
        let mut threads = Vec::new();
        for mut observer in prepared.observers {
            threads.push(self.start(move |clock, shared_state, sighted| {
                observer.watch(clock, shared_state, sighted)
            }));
        }
        for mut tap in prepared.taps {
            threads.push(self.start(move |clock, shared_state, sighted| {
                tap.watch(clock, shared_state, sighted)
            }));
        }
        for mut stage_watcher in prepared.watchers {
            threads.push(self.start(move |clock, shared_state, sighted| {
                stage_watcher.watch(clock, shared_state, sighted)
            }));
        }
        for reader in prepared.stamps {
            let (clock, shared_state, sighted) =
                (self.clock, self.shared_state, self.sighted.clone());
            let read = move || reader.run(clock, shared_state, &sighted);
            threads.push(self.scope.spawn(read));
        }
        let mut channels = Vec::new();
        for (waiters, seen) in prepared.waiters.into_iter().zip(waiting) {
            let mut senders = Vec::new();
            for mut waiter in waiters {
                let (row, rows) = mpsc::channel();
                senders.push(row);
                threads.push(self.start(move |clock, shared_state, sighted| {
                    waiter.watch(clock, shared_state, &rows, seen, sighted)
                }));
            }
            channels.push(senders);
        }
        (threads, channels)
    }

    /// Starts a measuring thread.
    fn start(
        &self,
        watch: impl FnOnce(&Clock, &SharedState, &Sender<ObserverEvent>) -> Result<(), ServerError>
        + Send
        + 'scope,
    ) -> ScopedJoinHandle<'scope, Result<(), ServerError>> {
        let (clock, shared_state, real_time) = (self.clock, self.shared_state, self.real_time);
        let sighted = self.sighted.clone();
        self.scope.spawn(move || {
            shared_state.measuring(real_time, || watch(clock, shared_state, &sighted))
        })
    }
}

/// Joins the threads and returns their failures; a panic is a failure too.
fn failed(threads: Threads<'_>) -> Vec<MeasureError> {
    let ended = |thread: ScopedJoinHandle<'_, Result<(), ServerError>>| match thread.join() {
        Ok(result) => result.err().map(MeasureError::from),
        Err(_) => Some(MeasureError::Thread),
    };
    threads.into_iter().filter_map(ended).collect()
}

/// Returns the longest configured delay of all replicas.
fn delay_of(cluster: &Cluster) -> Duration {
    cluster
        .replicas
        .iter()
        .map(CheckedReplica::delay)
        .max()
        .unwrap_or_default()
}
