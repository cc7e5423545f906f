//! One part of a run: connects and prepares everything, then writes and observes.

use std::{
    sync::{
        Mutex,
        atomic::AtomicBool,
        mpsc::{self, Sender},
    },
    thread::{self, Scope, ScopedJoinHandle},
    time::Duration,
};

use replimeter_engine::{Node, ServerError, Session, facts::Facts, flavour::waits};
use replimeter_model::{
    plan::{LagPlan, Method, Pace},
    sample::Phase,
};

use super::{
    Listener, Slot,
    board::{Board, HaltOnDrop},
    collector::{Collector, Ending},
    falls::Fall,
    methods::Possible,
    observer::{Observer, arrival},
    script::Script,
    seen::{Seen, SeenRows},
    stamps::StampReader,
    tap::Tap,
    waiter::Waiter,
    watcher::Watcher,
    writer::{Outlets, Schedule, Writer, WrittenRow},
};
use crate::{
    MeasureError,
    clock::Clock,
    preflight::{CheckedReplica, Cluster},
    table::Held,
};

/// One part of a run: a script of writes, and the servers that are observed.
pub(super) struct Part<'a> {
    pub(super) primary: &'a Node,
    pub(super) observed: &'a [Node],
    pub(super) possible: &'a Possible,
    pub(super) bytes: &'a [u8],
    pub(super) limit: u64,
    pub(super) clock: &'a Clock,
    pub(super) plan: &'a LagPlan,
}

/// Everything that is connected and prepared before the first write of a part.
#[derive(Default)]
struct Prepared {
    writers: Vec<Writer>,
    observers: Vec<Observer>,
    /// For each slot of the method `wait`: its connections.
    waiters: Vec<Vec<Waiter>>,
    taps: Vec<Tap>,
    stamps: Vec<StampReader>,
    watchers: Vec<Watcher>,
    falls: Vec<Fall>,
}

impl Part<'_> {
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
    fn facts<'c>(&self, phase: Phase, replica: usize, cluster: &'c Cluster) -> &'c Facts {
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
    ) -> Result<Prepared, MeasureError> {
        let phase = script.phase();
        let mut prepared = Prepared::default();
        let patience = self.plan.timeout.0 + delay_of(cluster);
        for (replica, node) in self.observed.iter().enumerate() {
            let facts = self.facts(phase, replica, cluster);
            let identity = facts.identity();
            let session = arrival(node, &identity, next_id - 1, patience, stop)?;
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
                    self.plan.federated,
                    self.plan.pace == Pace::Visible,
                )?);
            }
        }
        if !prepared.taps.is_empty() {
            prepared
                .taps
                .push(Tap::open(self.primary, &cluster.primary.facts, 0)?);
        }
        self.prepare_stages(slots, phase, cluster, &mut prepared)?;
        let gtids = !prepared.watchers.is_empty()
            || slots
                .iter()
                .any(|slot| matches!(slot.method, Method::Wait | Method::Tap));
        for _ in 0..self.writers(phase) {
            let stamps = self.possible.stamps.as_ref();
            let writer = Writer::open(
                self.primary,
                &cluster.primary.facts,
                stamps,
                gtids,
                self.plan.real_time,
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
        prepared: &mut Prepared,
    ) -> Result<(), MeasureError> {
        let phase = script.phase();
        let (node, facts) = (&self.observed[replica], self.facts(phase, replica, cluster));
        let mut session = Some(session);
        for &(index, method) in slots {
            match method {
                Method::Poll => prepared.observers.extend(
                    session
                        .take()
                        .map(|session| Observer::new(session, index))
                        .transpose()?,
                ),
                Method::Wait => {
                    let galera = cluster.primary.galera.is_some();
                    let null = phase == Phase::Floor || cluster.replicas.is_empty();
                    let for_nothing = null && !waits::on_the_writer(facts.engine, galera);
                    // Rows in close succession must not wait for each other's verifying reads.
                    let connections = self.writers(phase) + usize::from(script.every().is_some());
                    let waiters =
                        (0..connections).map(|_| Waiter::open(node, facts, index, for_nothing));
                    prepared.waiters.push(waiters.collect::<Result<_, _>>()?);
                }
                Method::Tap => prepared.taps.push(Tap::open(node, facts, replica + 1)?),
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
        prepared: &mut Prepared,
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
            if cluster.primary.galera.is_some() {
                prepared.falls.push(Fall::galera(&checked.server.node.name));
                continue;
            }
            let facts = [&cluster.primary.facts, &checked.server.facts];
            let watcher = Watcher::open(
                [self.primary, &self.observed[index]],
                facts,
                index,
                slot,
                self.clock,
            )?;
            let tap = self.possible.methods.contains(&Method::Tap);
            let name = &checked.server.node.name;
            prepared.falls.push(Fall::new(
                checked.server.facts.engine,
                name,
                tap,
                watcher.clocks(),
            ));
            prepared.watchers.push(watcher);
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
        held: &mut Held,
        cluster: &mut Cluster,
        listener: &mut Listener<'_>,
    ) -> Result<Ending, MeasureError> {
        let phase = script.phase();
        let slots = self.slots(phase);
        let next_id = held.ids.end;
        let last = next_id - 1;
        let board = Board::new(slots.len(), last);
        // Everything is connected and prepared before the first write.
        let mut prepared = self.prepare(&slots, &script, next_id, cluster, listener.stop)?;
        let (sighted, sightings) = mpsc::channel();
        let (words, writes) = mpsc::channel();
        let schedule = Schedule::new(
            &script,
            self.clock,
            &board,
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
            let halt = HaltOnDrop(&board);
            let (board, schedule) = (&board, &schedule);
            let falls = std::mem::take(&mut prepared.falls);
            let start = Start {
                scope,
                clock: self.clock,
                board,
                real_time: self.plan.real_time,
                sighted,
            };
            let writers = std::mem::take(&mut prepared.writers);
            let (observers, waiters) = start.observers(prepared, &waiting);
            let outlets = Outlets { words, waiters };
            let writers: Vec<_> = writers
                .into_iter()
                .map(|writer| {
                    let outlets = outlets.clone();
                    scope.spawn(move || writer.run(schedule, &outlets))
                })
                .collect();
            drop(outlets);
            if let Some(first) = writers.first() {
                board.set_writer(first.thread().clone());
            }
            let collector =
                Collector::new(board, self.clock, self.plan, &slots, falls, last, &script);
            let mut ending = collector.run(&writes, &sightings, cluster, listener);
            // The observers and writers end when the shared state is halted.
            drop(halt);
            let (writers, observers) = (failed(writers), failed(observers));
            *held = schedule.held();
            // After the user's stop, errors of a server that hangs do not matter.
            if !ending.interrupted {
                // The first cause is the collector's, then the writers', then the observers'.
                ending.failure = ending
                    .failure
                    .or(writers.into_iter().chain(observers).next());
            }
            ending
        });
        Ok(ending)
    }
}

/// Measuring threads.
type Threads<'scope> = Vec<ScopedJoinHandle<'scope, Result<(), ServerError>>>;

/// Input for starting the threads. When it is dropped, only the threads can send sightings.
struct Start<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    clock: &'scope Clock,
    board: &'scope Board,
    real_time: bool,
    sighted: Sender<Seen>,
}

impl<'scope> Start<'scope, '_> {
    /// Starts all observing threads. Returns them and, for each replica, the channels of its waiting
    /// connections.
    fn observers(
        self,
        prepared: Prepared,
        waiting: &'scope [Mutex<SeenRows>],
    ) -> (Threads<'scope>, Vec<Vec<Sender<WrittenRow>>>) {
        let Self {
            scope,
            clock,
            board,
            real_time,
            ref sighted,
        } = self;
        let mut threads = Vec::new();
        for observer in prepared.observers {
            let sighted = sighted.clone();
            threads.push(scope.spawn(move || observer.run(clock, board, real_time, &sighted)));
        }
        for tap in prepared.taps {
            let sighted = sighted.clone();
            threads.push(scope.spawn(move || tap.run(clock, board, real_time, &sighted)));
        }
        for watcher in prepared.watchers {
            let sighted = sighted.clone();
            threads.push(scope.spawn(move || watcher.run(clock, board, real_time, &sighted)));
        }
        for reader in prepared.stamps {
            let sighted = sighted.clone();
            threads.push(scope.spawn(move || reader.run(clock, board, &sighted)));
        }
        let mut outlets = Vec::new();
        for (waiters, seen) in prepared.waiters.into_iter().zip(waiting) {
            let mut turns = Vec::new();
            for waiter in waiters {
                let (row, rows) = mpsc::channel();
                turns.push(row);
                let sighted = sighted.clone();
                threads.push(
                    scope.spawn(move || waiter.run(clock, board, real_time, &rows, seen, &sighted)),
                );
            }
            outlets.push(turns);
        }
        (threads, outlets)
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
