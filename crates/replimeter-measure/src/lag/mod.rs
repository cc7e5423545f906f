//! Lag: writers on the primary, and for each replica an observer of every method
//! asked for, all on one clock, none waiting for another.

mod arrivals;
mod board;
mod collector;
mod falls;
mod methods;
mod observer;
mod script;
mod seen;
pub mod stages;
mod stamps;
mod tap;
mod waiter;
mod watcher;
mod writer;

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use replimeter_model::{
    plan::{LagPlan, Method},
    sample::{LagSample, Phase, Write},
    stages::Stages,
    time::Nanos,
    warning::{Warning, WarningCode},
};
use replimeter_server::{
    Node, ServerError, Session,
    facts::Facts,
    flavour::{waits, written::Written},
};
use replimeter_stats::signed::SignedHistogram;

use self::{
    board::{Board, HaltOnDrop},
    collector::{Collector, Ending},
    falls::Fall,
    observer::{Observer, arrival},
    script::Script,
    seen::SeenRows,
    stamps::StampReader,
    tap::Tap,
    waiter::Waiter,
    watcher::Watcher,
    writer::{Outlets, Schedule, Writer},
};
pub use self::{
    collector::Progress,
    methods::{Possible, possible},
};
use crate::{
    MeasureError,
    clock::Clock,
    preflight::Cluster,
    priority::prepare_measuring_thread,
    table::{POINT_SELECT, payload},
};

/// Bytes that a packet needs beside the payload.
const PACKET_OVERHEAD: u64 = 256;
/// Largest `max_allowed_packet` any server can be set to, in bytes.
pub const LARGEST_PACKET: u64 = 1 << 30;
/// Point selects whose round trips make the yardstick.
const POINT_SELECTS: usize = 2000;
/// Point selects before those, not counted.
const POINT_SELECTS_WARM_UP: usize = 200;
/// How much longer than the plan's time-out a session waits for an answer.
const ANSWER_MARGIN: Duration = Duration::from_secs(2);

/// One replica, observed in one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    /// Index among the observed servers.
    replica: usize,
    method: Method,
}

/// How two methods differ on one row.
#[derive(Clone, Copy, Debug)]
pub struct Compared {
    /// The replica's index in the target.
    pub replica: usize,
    /// The method that is held against another.
    pub method: Method,
    /// The other.
    pub reference: Method,
    /// The row.
    pub write: Write,
    /// When the method saw the row, less when the other did.
    pub difference: Nanos,
}

/// What the caller does with the run as it goes.
pub struct Listener<'a> {
    /// Takes each sample, in no particular order of replicas.
    pub sample: &'a mut dyn FnMut(&LagSample) -> Result<(), String>,
    /// Takes word of how methods differ on a row that all of them saw.
    pub compared: &'a mut dyn FnMut(&Compared),
    /// Takes word of how far the run is, a few times a second.
    pub progress: &'a mut dyn FnMut(Progress),
    /// Becomes true when the user wants the run to end.
    pub stop: &'a AtomicBool,
}

/// How a run ended and what is not in its samples.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Largest payload that every server accepts, in bytes; larger ones were cut.
    pub size_limit: u64,
    /// The id that a following run on the same table begins with.
    pub next_id: u64,
    /// Counted rounds that were written.
    pub rounds: u64,
    /// Whether the user ended it.
    pub interrupted: bool,
    /// What ended it early.
    pub failure: Option<MeasureError>,
    /// Round trips of a point select on the otherwise idle primary.
    pub point_select: SignedHistogram,
    /// Round trips of point selects that were under way when a write was
    /// acknowledged.
    pub point_select_at_ack: SignedHistogram,
    /// How late the writes started against their schedule.
    pub lateness: SignedHistogram,
    /// From the first counted send to the last acknowledgement.
    pub measured: Nanos,
    /// The waterfall of each replica; empty when stages were not observed.
    pub stages: Vec<Option<Stages>>,
    /// What a reader must know.
    pub warnings: Vec<Warning>,
}

/// Cuts the plan's sizes down to what every server accepts.
fn clamp(cluster: &Cluster, plan: &LagPlan, warnings: &mut Vec<Warning>) -> u64 {
    let limit = cluster
        .max_allowed_packet()
        .unwrap_or(LARGEST_PACKET)
        .saturating_sub(PACKET_OVERHEAD)
        .max(1);
    let wanted = plan.largest_size();
    if wanted > limit {
        warnings.push(Warning::new(
            WarningCode::PayloadClamped,
            format!(
                "the payload of {wanted} bytes was cut to {limit}: the smallest max_allowed_packet is {} bytes, less {PACKET_OVERHEAD} for the statement",
                limit + PACKET_OVERHEAD
            ),
            "raise max_allowed_packet on every server to measure larger rows",
        ));
    }
    limit
}

/// The row that the yardstick's select of this number asks for: all rows in turn,
/// in an order that no cache line follows.
fn yardstick_row(number: u64, rows: std::ops::Range<u64>) -> u64 {
    rows.start + number.wrapping_mul(7919) % (rows.end - rows.start).max(1)
}

/// Round trips of one prepared select of one row by its primary key.
fn point_selects(
    clock: &Clock,
    node: &Node,
    rows: std::ops::Range<u64>,
    real_time: bool,
    stop: &AtomicBool,
) -> Result<SignedHistogram, ServerError> {
    use mysql::prelude::Queryable;
    let mut session = Session::open(node)?;
    let doing = "cannot measure a point select";
    let prepared = session.conn().prep(POINT_SELECT);
    let statement = prepared.map_err(|error| session.error(doing, &error))?;
    let mut trips = SignedHistogram::default();
    prepare_measuring_thread(real_time);
    for round in 0..POINT_SELECTS_WARM_UP + POINT_SELECTS {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let id = yardstick_row(round as u64, rows.clone());
        let began = clock.now();
        let row = session.conn().exec::<u64, _, _>(&statement, (id,));
        let ended = clock.now();
        row.map_err(|error| session.error(doing, &error))?;
        if round >= POINT_SELECTS_WARM_UP {
            trips.record(ended - began);
        }
    }
    Ok(trips)
}

/// Whether the stages can be observed, when they are to be, before anything is written.
///
/// # Errors
/// When writes cannot be told apart by their GTIDs.
pub fn check_stages(cluster: &mut Cluster, plan: &LagPlan) -> Result<(), ServerError> {
    // A Galera node tells nothing, so nothing is asked for by GTID.
    if !plan.stages || cluster.primary.galera.is_some() {
        return Ok(());
    }
    Written::prepare(&mut cluster.primary.session, &cluster.primary.facts)
        .map(|_| ())
        .map_err(|mut error| {
            error.doing = "cannot observe the stages".to_owned();
            error.hint = "set gtid_mode=ON on every server, or leave --stages out".to_owned();
            error
        })
}

/// Measures. The table must be there; see [`crate::table::ProbeTable`]. Rows get ids
/// from `first_id` on: 1 for a new table, and what the outcome says for another run on it.
///
/// The run has two parts: the *floor*, in which the primary is observed as if it
/// were its own replica, and the measurement proper. Without replicas the
/// measurement proper observes the primary too.
///
/// # Errors
/// When the run could not begin. What goes wrong later is in the outcome, beside
/// what was measured until then.
pub fn run(
    cluster: &mut Cluster,
    plan: &LagPlan,
    possible: &Possible,
    first_id: u64,
    clock: &Clock,
    listener: &mut Listener<'_>,
) -> Result<Outcome, MeasureError> {
    let mut warnings = Vec::new();
    let limit = clamp(cluster, plan, &mut warnings);
    let bytes = payload(plan.largest_size().min(limit));
    let answer = plan.timeout.0 + ANSWER_MARGIN;
    let node = |node: &Node| Node {
        answer,
        ..node.clone()
    };
    let primary = node(&cluster.primary.node);
    let replicas: Vec<Node> = cluster
        .replicas
        .iter()
        .map(|replica| node(&replica.server.node))
        .collect();
    let mut outcome = Outcome {
        warnings,
        size_limit: limit,
        ..Outcome::default()
    };
    let mut next_id = first_id;
    let mut part = |script: Script,
                    observed: &[Node],
                    cluster: &mut Cluster,
                    outcome: &mut Outcome,
                    listener: &mut Listener<'_>| {
        let part = Part {
            primary: &primary,
            observed,
            possible,
            bytes: &bytes,
            limit,
            clock,
            plan,
        };
        let ending = part.run(script, &mut next_id, cluster, listener)?;
        absorb(outcome, ending);
        Ok::<bool, MeasureError>(outcome.failure.is_none() && !outcome.interrupted)
    };
    let null_replica = std::slice::from_ref(&primary);
    // The first row proves that what the primary writes arrives, before anything
    // is counted.
    let observed = if replicas.is_empty() {
        null_replica
    } else {
        replicas.as_slice()
    };
    part(Script::proof(), observed, cluster, &mut outcome, listener)?;
    if let Some(failure) = outcome.failure {
        return Err(failure);
    }
    if outcome.interrupted {
        return Err(MeasureError::Interrupted);
    }
    // From here on there is something to keep, whatever happens.
    let mut rest = || -> Result<(), MeasureError> {
        if plan.floor_rounds > 0 {
            if !part(
                Script::floor(plan),
                null_replica,
                cluster,
                &mut outcome,
                listener,
            )? {
                return Ok(());
            }
            // On a thread of its own, since it takes real-time priority as the observer does.
            let rows = first_id + 1..first_id + 1 + plan.floor_rounds * 2;
            let stop = listener.stop;
            let trips = thread::scope(|scope| {
                scope
                    .spawn(|| point_selects(clock, &primary, rows, plan.real_time, stop))
                    .join()
            });
            outcome.point_select = trips.map_err(|_| MeasureError::Thread)??;
        }
        part(
            Script::measure(plan),
            observed,
            cluster,
            &mut outcome,
            listener,
        )?;
        Ok(())
    };
    match rest() {
        Ok(()) => {}
        Err(MeasureError::Interrupted) => outcome.interrupted = true,
        Err(error) => outcome.failure = Some(error),
    }
    outcome.next_id = next_id;
    Ok(outcome)
}

fn absorb(outcome: &mut Outcome, ending: Ending) {
    outcome.rounds += ending.counted;
    outcome.interrupted |= ending.interrupted;
    outcome.failure = outcome.failure.take().or(ending.failure);
    outcome.lateness.merge(&ending.lateness);
    outcome.point_select_at_ack.merge(&ending.at_ack);
    outcome.measured = outcome.measured + ending.measured;
    outcome.warnings.extend(ending.warnings);
    outcome.stages.extend(ending.stages);
}

/// One part of a run: a script of writes, and who is observed meanwhile.
struct Part<'a> {
    primary: &'a Node,
    observed: &'a [Node],
    possible: &'a Possible,
    bytes: &'a [u8],
    limit: u64,
    clock: &'a Clock,
    plan: &'a LagPlan,
}

/// Everything of a part that is connected and prepared, before the first write.
#[derive(Default)]
struct Prepared {
    writers: Vec<Writer>,
    observers: Vec<Observer>,
    /// For each slot of the method `wait`: its connections.
    waiters: Vec<(usize, Vec<Waiter>)>,
    taps: Vec<Tap>,
    stamps: Vec<StampReader>,
    watchers: Vec<Watcher>,
    falls: Vec<Fall>,
}

impl Part<'_> {
    /// Who is observed how: the floor's null replica is the primary, on which a stamp
    /// would be compared with itself.
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

    /// The facts of an observed server.
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
            let mut session = Some(arrival(
                node,
                &facts.identity(),
                next_id - 1,
                patience,
                stop,
            )?);
            for (index, slot) in slots
                .iter()
                .enumerate()
                .filter(|(_, slot)| slot.replica == replica)
            {
                match slot.method {
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
                        // Rows that follow one another closely must not wait for each other's verifying reads.
                        let connections = if script.every().is_some() {
                            self.writers(phase) + 1
                        } else {
                            self.writers(phase)
                        };
                        let waiters =
                            (0..connections).map(|_| Waiter::open(node, facts, index, for_nothing));
                        prepared
                            .waiters
                            .push((index, waiters.collect::<Result<_, _>>()?));
                    }
                    Method::Tap => prepared.taps.push(Tap::open(node, facts, replica + 1)?),
                    Method::Stamp | Method::StampUdf => {}
                }
            }
            let stamping = slots
                .iter()
                .enumerate()
                .filter(|(_, slot)| slot.replica == replica && slot.method.stamps());
            let stamping: Vec<(usize, Method)> =
                stamping.map(|(index, slot)| (index, slot.method)).collect();
            if let (false, Some(checked)) = (stamping.is_empty(), cluster.replicas.get(replica)) {
                let (surveyed, last, federated) =
                    (&checked.server, next_id - 1, self.plan.federated);
                let reader = StampReader::open(
                    self.primary,
                    node,
                    surveyed,
                    self.clock,
                    stamping,
                    last,
                    federated,
                )?;
                prepared.stamps.push(reader);
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
                prepared.falls.push(Fall::galera());
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

    /// Connections that write: the floor has one, whatever the plan says.
    fn writers(&self, phase: Phase) -> usize {
        if phase == Phase::Measure {
            usize::try_from(self.plan.writers).unwrap_or(1)
        } else {
            1
        }
    }

    fn run(
        &self,
        script: Script,
        next_id: &mut u64,
        cluster: &mut Cluster,
        listener: &mut Listener<'_>,
    ) -> Result<Ending, MeasureError> {
        let phase = script.phase();
        let slots = self.slots(phase);
        let last = *next_id - 1;
        let board = Board::new(slots.len(), last);
        // Everything is connected and prepared before the first write.
        let prepared = self.prepare(&slots, &script, *next_id, cluster, listener.stop)?;
        let (sighted, sightings) = mpsc::channel();
        let (words, writes) = mpsc::channel();
        let schedule = Schedule::new(
            &script,
            self.clock,
            &board,
            self.bytes,
            self.limit,
            prepared.writers.len(),
            *next_id,
        );
        let waiting: Vec<Mutex<SeenRows>> = prepared
            .waiters
            .iter()
            .map(|_| Mutex::new(SeenRows::new(last)))
            .collect();
        let (clock, real_time) = (self.clock, self.plan.real_time);
        let ending = thread::scope(|scope| {
            let halt = HaltOnDrop(&board);
            let board = &board;
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
            let mut outlets = Outlets {
                words,
                waiters: Vec::new(),
            };
            for ((_, waiters), seen) in prepared.waiters.into_iter().zip(&waiting) {
                let mut turns = Vec::new();
                for waiter in waiters {
                    let (row, rows) = mpsc::channel();
                    turns.push(row);
                    let sighted = sighted.clone();
                    threads.push(
                        scope.spawn(move || {
                            waiter.run(clock, board, real_time, &rows, seen, &sighted)
                        }),
                    );
                }
                outlets.waiters.push(turns);
            }
            drop(sighted);
            let schedule = &schedule;
            let writers: Vec<_> = prepared
                .writers
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
            let collector = Collector::new(
                board,
                clock,
                self.plan,
                &slots,
                prepared.falls,
                last,
                &script,
            );
            let mut ending = collector.run(&writes, &sightings, cluster, listener);
            // The observers end when the board says so, the writers too.
            drop(halt);
            let failed = |threads: Vec<thread::ScopedJoinHandle<'_, _>>| {
                threads
                    .into_iter()
                    .filter_map(|thread| joined(thread.join()).err())
                    .collect::<Vec<MeasureError>>()
            };
            let (writers, observers) = (failed(writers), failed(threads));
            *next_id = schedule.next_id();
            // Whoever ended the run does not care what a frozen server had to say.
            if !ending.interrupted {
                // The first cause is the collector's own, then the writers', then the observers'.
                ending.failure = ending
                    .failure
                    .or(writers.into_iter().chain(observers).next());
            }
            ending
        });
        Ok(ending)
    }
}

/// What a measuring thread came to; a panic in it is an error here.
fn joined<T>(ended: thread::Result<Result<T, ServerError>>) -> Result<T, MeasureError> {
    Ok(ended.map_err(|_| MeasureError::Thread)??)
}

/// The longest configured delay of all replicas.
fn delay_of(cluster: &Cluster) -> Duration {
    cluster
        .replicas
        .iter()
        .map(crate::preflight::CheckedReplica::delay)
        .max()
        .unwrap_or_default()
}
