//! Staleness: a write on one server, a read on others at a chosen time after its acknowledgement, and whether the
//! read shows it.

mod counters;
mod judge;
mod rounds;
pub mod rows;
mod sides;

use std::{
    sync::{
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use replimeter_model::{
    plan::{Pool, StalePlan, SyncReads, Until},
    stale::{StalePhase, StaleRound, StaleWindow, Verdict},
    time::Nanos,
    warning::{Warning, WarningCode},
};
use replimeter_server::{
    Node, ServerError,
    facts::Facts,
    flavour::{
        pressure::Pressure,
        sync_reads::{Guarantee, Kind, guarantee},
        waits,
    },
};

use self::{
    counters::{Counted, Differences},
    rounds::{Crew, Rounds, read_on},
    rows::{Held, Rows},
    sides::{Reader, Writer},
};
use crate::{
    MeasureError,
    clock::Clock,
    load::Versions,
    preflight::Cluster,
    priority::prepare_measuring_thread,
    survey::{Relation, Surveyed},
    table::keep_alive,
};

/// What the writer's user needs on the schema.
pub const WRITER_PRIVILEGES: [&str; 6] = ["CREATE", "DROP", "INSERT", "UPDATE", "DELETE", "SELECT"];
/// How much longer than the plan's time-out a session waits for an answer.
const ANSWER_MARGIN: Duration = Duration::from_secs(2);
/// How often the collector looks for rounds.
const LOOK: Duration = Duration::from_millis(2);
/// The length of a stretch that figures are given for.
const STRETCH: Nanos = Nanos(500_000_000);
/// How often the run's lock is looked after.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// How often progress is told.
const TELL: Duration = Duration::from_millis(100);
/// How long the measuring threads may take to end by themselves.
const PATIENCE: Duration = Duration::from_millis(1500);

/// A server that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReaderRef {
    /// The writer itself: a null replica.
    Writer,
    /// The replica, or other member, of this number.
    Replica(usize),
}

impl ReaderRef {
    fn of(self, cluster: &Cluster) -> (&Surveyed, &Relation) {
        match self {
            Self::Writer => (&cluster.primary, &Relation::Writer),
            Self::Replica(index) => (
                &cluster.replicas[index].server,
                &cluster.replicas[index].relation,
            ),
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(self, cluster: &Cluster) -> String {
        self.of(cluster).0.node.name.clone()
    }

    /// Its configured delay.
    #[must_use]
    pub fn delay(self, cluster: &Cluster) -> Duration {
        match self {
            Self::Writer => Duration::ZERO,
            Self::Replica(index) => cluster.replicas[index].delay(),
        }
    }
}

/// The readers of these names, or all there are but the writer; the writer itself when it stands alone.
///
/// # Errors
/// When there is no server of that name.
pub fn readers(cluster: &Cluster, wanted: &[String]) -> Result<Vec<ReaderRef>, ServerError> {
    if wanted.is_empty() {
        return Ok(match cluster.replicas.len() {
            0 => vec![ReaderRef::Writer],
            count => (0..count).map(ReaderRef::Replica).collect(),
        });
    }
    let find = |name: &String| {
        if *name == cluster.primary.node.name || name == "writer" {
            return Ok(ReaderRef::Writer);
        }
        let index = cluster
            .replicas
            .iter()
            .position(|replica| replica.server.node.name == *name);
        // The first that is not the writer.
        let index = index.or((name == "reader" && !cluster.replicas.is_empty()).then_some(0));
        index
            .map(ReaderRef::Replica)
            .ok_or_else(|| unknown(cluster, name, "cannot choose the reader"))
    };
    wanted.iter().map(find).collect()
}

/// There is no server of that name.
#[must_use]
pub fn unknown(cluster: &Cluster, name: &str, doing: &str) -> ServerError {
    let mut names = vec![cluster.primary.node.name.clone()];
    names.extend(cluster.replica_names());
    cluster.primary.session.unfit(
        doing,
        format!("the target has no server called `{name}`; it has {}", names.join(", ")),
        "name one of them; `writer` and `reader` stand for the one that is written to and the first other one",
    )
}

fn kind(server: &Surveyed, relation: &Relation) -> Kind {
    match relation {
        Relation::Galera => Kind::Galera,
        Relation::Group => Kind::Group,
        Relation::Writer if server.galera.is_some() => Kind::Galera,
        Relation::Writer if server.group().is_some() => Kind::Group,
        Relation::Writer | Relation::Channel { .. } => Kind::Channel(server.facts.engine),
    }
}

/// How each reader's reads are made to wait.
///
/// # Errors
/// When a server does not have that way.
pub fn guarantees(
    cluster: &Cluster,
    readers: &[ReaderRef],
    level: SyncReads,
    timeout: Duration,
) -> Result<Vec<Guarantee>, ServerError> {
    let found = readers.iter().map(|reader| {
        let (server, relation) = reader.of(cluster);
        guarantee(level, kind(server, relation), timeout)
            .map_err(|(cause, hint)| server.session.unfit("cannot make reads wait", cause, hint))
    });
    found.collect()
}

/// Fills the table, and waits until every reader has it.
///
/// # Errors
/// When a server fails, or the rows do not arrive.
pub fn fill(
    cluster: &mut Cluster,
    readers: &[ReaderRef],
    plan: &StalePlan,
    stop: &AtomicBool,
) -> Result<(), MeasureError> {
    rows::fill(cluster, u64::from(plan.rows), stop)?;
    for reader in readers {
        let (server, _) = reader.of(cluster);
        let patience = plan.timeout.0 + reader.delay(cluster);
        rows::arrival(
            &server.node,
            &server.facts,
            u64::from(plan.rows),
            patience,
            stop,
        )?;
    }
    Ok(())
}

/// What is measured in one go.
#[derive(Clone, Debug)]
pub struct Part<'a> {
    /// Who is read.
    pub readers: &'a [ReaderRef],
    /// How each reader's reads are made to wait.
    pub guarantees: &'a [Guarantee],
    /// What becomes of synchronous connections between rounds.
    pub pool: Pool,
    /// The number of the first round.
    pub first_round: u64,
    /// Whether measuring threads take real-time priority.
    pub real_time: bool,
    /// The versions that a load writes and reads, whose reads are judged in place of rounds; its places are numbered as
    /// the readers are.
    pub judged: Option<&'a Versions>,
}

impl Part<'_> {
    /// Whether reads are made to wait.
    fn synced(&self) -> bool {
        self.guarantees
            .iter()
            .any(|guarantee| guarantee.level != SyncReads::Off)
    }
}

/// How far it is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// What goes on.
    pub phase: StalePhase,
    /// Rounds with a read at once so far, or rounds of the curve.
    pub done: u64,
    /// Of how many; `None` when it ends by time, or is not known.
    pub total: Option<u64>,
    /// Stale first reads so far, of all readers.
    pub stale: u64,
}

/// What the caller does with the run as it goes.
pub struct Listener<'a> {
    /// Takes each round.
    pub round: &'a mut dyn FnMut(&StaleRound) -> Result<(), String>,
    /// Takes each stretch of half a second.
    pub window: &'a mut dyn FnMut(StaleWindow),
    /// Takes word of how far the run is, a few times a second.
    pub progress: &'a mut dyn FnMut(Progress),
    /// Whether the run is to end: the user wants it to, or the load has failed.
    pub stop: &'a dyn Fn() -> bool,
}

/// How it ended.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The number that the next part's first round has.
    pub next_round: u64,
    /// Whether it was ended from outside.
    pub interrupted: bool,
    /// What ended it early.
    pub failure: Option<MeasureError>,
    /// From the first counted round to the last.
    pub measured: Nanos,
    /// What a reader must know.
    pub warnings: Vec<Warning>,
}

/// What the threads share.
struct Shared<'a> {
    clock: &'a Clock,
    halt: AtomicBool,
    /// Nothing more comes.
    over: AtomicBool,
    /// When the writer's, and each reader's, request under way was sent; 0 for none.
    under_way: Vec<AtomicI64>,
    /// When the write was acknowledged that each reader does not show yet; 0 for none.
    unshown: Vec<AtomicI64>,
    /// Rounds whose write lost every time.
    lost: AtomicU64,
    all_lost: AtomicBool,
    /// Rounds of the curve, once they are known.
    of_curve: AtomicU64,
}

impl Shared<'_> {
    /// A request was sent, or answered (0).
    fn under_way(&self, who: usize, since: Nanos) {
        if let Some(under_way) = self.under_way.get(who) {
            under_way.store(since.0, Ordering::Relaxed);
        }
    }

    /// A reader does not show what was acknowledged then, or shows it (0).
    fn unshown(&self, reader: usize, since: Nanos) {
        if let Some(unshown) = self.unshown.get(reader) {
            unshown.store(since.0, Ordering::Relaxed);
        }
    }

    /// How long the oldest of these has been so.
    fn oldest(of: &[AtomicI64], now: Nanos) -> f64 {
        let since = of
            .iter()
            .map(|since| since.load(Ordering::Relaxed))
            .filter(|since| *since != 0)
            .min();
        since.map_or(0.0, |since| (now - Nanos(since)).as_micros())
    }

    fn halted(&self) -> bool {
        self.halt.load(Ordering::Relaxed)
    }

    fn over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Does a thread's work; its failure ends the whole part.
    fn work<T>(&self, work: impl FnOnce() -> Result<T, ServerError>) -> Result<T, ServerError> {
        let result = work();
        if result.is_err() {
            self.halt.store(true, Ordering::Relaxed);
        }
        result
    }
}

/// Ends the part when dropped: a scope waits for its threads even while a panic unwinds through it.
struct HaltOnDrop<'a, 'b>(&'a Shared<'b>);

impl Drop for HaltOnDrop<'_, '_> {
    fn drop(&mut self) {
        self.0.halt.store(true, Ordering::Relaxed);
        self.0.over.store(true, Ordering::Relaxed);
    }
}

/// Everything of a part that is connected and prepared.
struct Prepared {
    /// The plain one, then the one with synchronous reads; none when a load's own reads are judged.
    writers: Vec<Writer>,
    readers: Vec<Reader>,
    /// What the rows hold.
    held: Held,
    /// Node and number of every connection that can be held up.
    connections: Vec<(Node, u32)>,
}

fn prepare(cluster: &Cluster, plan: &StalePlan, part: &Part<'_>) -> Result<Prepared, ServerError> {
    let answer = plan.timeout.0 + ANSWER_MARGIN;
    let patient = |node: &Node| Node {
        answer,
        ..node.clone()
    };
    let primary = patient(&cluster.primary.node);
    let facts: &Facts = &cluster.primary.facts;
    let off = Guarantee {
        level: SyncReads::Off,
        reader: Vec::new(),
        writer: Vec::new(),
        gtid: false,
        words: String::new(),
    };
    let synced = part.synced();
    // What is asked of the writer is the same for every reader, as far as it asks anything.
    let asks = part
        .guarantees
        .iter()
        .find(|guarantee| !guarantee.writer.is_empty() || guarantee.gtid)
        .unwrap_or(&off);
    let guarantees = if synced { vec![&off, asks] } else { vec![&off] };
    let mut writers: Vec<Writer> = guarantees
        .into_iter()
        .map(|guarantee| Writer::open(&primary, facts, guarantee))
        .collect::<Result<_, _>>()?;
    let mut connections: Vec<(Node, u32)> = writers
        .iter()
        .map(|writer| (primary.clone(), writer.connection()))
        .collect();
    // Asked while a reader waits: a writer that hangs says nothing.
    let origin = cluster.primary.impatient();
    let rows = Rows::new(plan.seed, plan.rows);
    let held = writers
        .first_mut()
        .map(|writer| writer.values(&rows))
        .transpose()?
        .unwrap_or_default();
    let mut readers = Vec::new();
    for (index, (reader, guarantee)) in part.readers.iter().zip(part.guarantees).enumerate() {
        let (server, _) = reader.of(cluster);
        let node = patient(&server.node);
        let for_nothing = *reader == ReaderRef::Writer
            && !waits::on_the_writer(server.facts.engine, cluster.primary.galera.is_some());
        let patience = plan.timeout.0 + reader.delay(cluster);
        let opened = Reader::open(
            index,
            [&node, &origin],
            &server.facts,
            guarantee,
            rows,
            [for_nothing, synced],
            [patience, plan.timeout.0],
        )?;
        connections.extend(
            opened
                .connections()
                .into_iter()
                .map(|number| (node.clone(), number)),
        );
        readers.push(opened);
    }
    Ok(Prepared {
        writers,
        readers,
        held: Held::new(held),
        connections,
    })
}

fn counted(cluster: &Cluster) -> Vec<Counted> {
    let of = |server: &Surveyed| {
        let pressure = match (&server.galera, server.group()) {
            (Some(_), _) => Pressure::Galera,
            (None, Some(_)) => Pressure::Group,
            (None, None) => Pressure::Channel(server.facts.engine),
        };
        Counted::new(&server.node, pressure)
    };
    std::iter::once(&cluster.primary)
        .chain(cluster.replicas.iter().map(|replica| &replica.server))
        .map(of)
        .collect()
}

/// Measures one part. The table must be there and [filled](fill).
///
/// # Errors
/// When the part could not begin. What goes wrong later is in the outcome.
pub fn run(
    cluster: &mut Cluster,
    plan: &StalePlan,
    part: &Part<'_>,
    clock: &Clock,
    listener: &mut Listener<'_>,
) -> Result<Outcome, MeasureError> {
    let prepared = match part.judged {
        Some(_) => Prepared {
            writers: Vec::new(),
            readers: Vec::new(),
            held: Held::default(),
            connections: Vec::new(),
        },
        None => prepare(cluster, plan, part)?,
    };
    let servers = counted(cluster);
    let shared = Shared {
        clock,
        halt: AtomicBool::new(false),
        over: AtomicBool::new(false),
        under_way: (0..=part.readers.len())
            .map(|_| AtomicI64::new(0))
            .collect(),
        unshown: part.readers.iter().map(|_| AtomicI64::new(0)).collect(),
        lost: AtomicU64::new(0),
        all_lost: AtomicBool::new(false),
        of_curve: AtomicU64::new(0),
    };
    let (out, heard) = mpsc::channel();
    let began = clock.now();
    let mut outcome = thread::scope(|scope| {
        let halt = HaltOnDrop(&shared);
        let (shared, real_time) = (&shared, part.real_time);
        let watchers: Vec<_> = servers
            .iter()
            .map(|server| scope.spawn(move || server.watch(shared)))
            .collect();
        let mut threads: Vec<thread::ScopedJoinHandle<'_, Result<u64, ServerError>>> = Vec::new();
        match (part.judged, plan.until) {
            (Some(versions), Until::Elapsed(length)) => {
                let (out, end, readers) = (
                    out.clone(),
                    began + Nanos::from(length.0),
                    part.readers.len(),
                );
                let base = part.first_round;
                threads.push(scope.spawn(move || {
                    judge::listen(versions, shared, readers, end, &out);
                    Ok(base)
                }));
            }
            _ => {
                let mut readers = prepared.readers;
                let crew = if readers.len() == 1 {
                    readers.pop().map(|reader| Crew::One(Box::new(reader)))
                } else {
                    let (answer, answers) = mpsc::channel();
                    let mut orders = Vec::new();
                    for reader in readers {
                        let (order, tasks) = mpsc::channel();
                        orders.push(order);
                        let answer = answer.clone();
                        scope.spawn(move || {
                            prepare_measuring_thread(real_time);
                            read_on(reader, shared, &tasks, &answer);
                        });
                    }
                    Some(Crew::Several { orders, answers })
                };
                let mut writers = prepared.writers.into_iter();
                if let (Some(crew), Some(plain)) = (crew, writers.next()) {
                    let rounds = Rounds {
                        shared,
                        plan,
                        rows: Rows::new(plan.seed, plan.rows),
                        held: prepared.held,
                        readers: part.readers.len(),
                        plain,
                        synced: writers.next(),
                        pool: part.pool,
                        crew,
                        out: out.clone(),
                        next: part.first_round,
                        longest: None,
                        lost: 0,
                    };
                    threads.push(scope.spawn(move || {
                        prepare_measuring_thread(real_time);
                        shared.work(|| rounds.all())
                    }));
                }
            }
        }
        drop(out);
        let mut collector = Collector::new(clock, plan, &servers);
        let mut outcome = collector.run(
            cluster,
            &heard,
            &threads,
            shared,
            &prepared.connections,
            listener,
        );
        drop(halt);
        watchers
            .iter()
            .for_each(|watcher| watcher.thread().unpark());
        outcome.next_round = part.first_round;
        for thread in threads {
            match thread.join() {
                Ok(Ok(next)) => outcome.next_round = outcome.next_round.max(next),
                // Whoever ended the run does not care what a server had to say then.
                Ok(Err(error)) if !outcome.interrupted => {
                    outcome.failure = outcome.failure.or(Some(error.into()))
                }
                Ok(Err(_)) => {}
                Err(_) => outcome.failure = outcome.failure.or(Some(MeasureError::Thread)),
            }
        }
        outcome
    });
    let lost = shared.lost.into_inner();
    if shared.all_lost.into_inner() && outcome.failure.is_none() {
        let error = cluster.primary.session.unfit(
            "cannot write",
            "a hundred writes one after another lost against others (deadlock, lock wait time-out or failed certification)",
            "what else writes to `replimeter`.`lag_probe`, on which node? a certification conflict comes from another node",
        );
        outcome.failure = Some(error.into());
    }
    if let Some(versions) = part.judged {
        outcome.warnings.extend(of_versions(versions));
    }
    if lost > 0 {
        outcome.warnings.push(Warning::new(
            WarningCode::LoadErrors,
            format!("rounds given up, since their write lost against others every time it was repeated: {lost}"),
            "they count for nothing; what else writes to `replimeter`.`lag_probe`?",
        ));
    }
    Ok(outcome)
}

/// What a reader must know of a load's versions.
fn of_versions(versions: &Versions) -> Vec<Warning> {
    let mut warnings = Vec::new();
    if versions.foreign() > 0 {
        warnings.push(Warning::new(
            WarningCode::ChangedByOthers,
            format!(
                "{} writes were given a version of their row that had been acknowledged before they were sent",
                versions.foreign()
            ),
            "somebody else puts the versions back, or a server has lost what it acknowledged; the shares cannot be trusted",
        ));
    }
    if versions.beyond() > 0 {
        warnings.push(Warning::new(
            WarningCode::NotChecked,
            format!(
                "{} writes were of rows beyond the first million: their reads were not judged",
                versions.beyond()
            ),
            "ask for fewer rows (--load-size)",
        ));
    }
    warnings
}

/// Somebody else has written to our rows.
#[must_use]
pub fn changed_by_others(rounds: u64) -> Warning {
    Warning::new(
        WarningCode::ChangedByOthers,
        format!(
            "in {rounds} rounds a row held what this run had not written: somebody else changes `replimeter`.`lag_probe`"
        ),
        "these rounds count for nothing; nobody else may write to that table meanwhile",
    )
}

/// Takes rounds from the measuring thread and hands them on.
struct Collector<'a> {
    clock: &'a Clock,
    plan: &'a StalePlan,
    servers: &'a [Counted],
    differences: Differences,
    began: Nanos,
    window: StaleWindow,
    /// Their times, and how many.
    writes: (f64, u64),
    at_once: u64,
    curve: u64,
    stale: u64,
    phase: StalePhase,
    span: Option<(Nanos, Nanos)>,
}

impl<'a> Collector<'a> {
    fn new(clock: &'a Clock, plan: &'a StalePlan, servers: &'a [Counted]) -> Self {
        Self {
            clock,
            plan,
            servers,
            differences: Differences::default(),
            began: clock.now(),
            window: StaleWindow::default(),
            writes: (0.0, 0),
            at_once: 0,
            curve: 0,
            stale: 0,
            phase: StalePhase::WarmUp,
            span: None,
        }
    }

    fn run(
        &mut self,
        cluster: &mut Cluster,
        heard: &mpsc::Receiver<StaleRound>,
        threads: &[thread::ScopedJoinHandle<'_, Result<u64, ServerError>>],
        shared: &Shared<'_>,
        connections: &[(Node, u32)],
        listener: &mut Listener<'_>,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        let (mut alive, mut told) = (Instant::now(), Instant::now());
        let mut halted: Option<Instant> = None;
        let mut killed = false;
        loop {
            // What ended before is asked first, so that nothing it left behind is missed.
            let over = threads.iter().all(thread::ScopedJoinHandle::is_finished);
            for round in heard.try_iter() {
                self.take(&round);
                if outcome.failure.is_none()
                    && let Err(reason) = (listener.round)(&round)
                {
                    outcome.failure = Some(MeasureError::Sink(reason));
                    shared.halt.store(true, Ordering::Relaxed);
                }
            }
            self.stretch(shared, listener);
            if over {
                break;
            }
            if halted.is_none() && (listener.stop)() {
                outcome.interrupted = true;
                shared.halt.store(true, Ordering::Relaxed);
                halted = Some(Instant::now());
            }
            if !killed && halted.is_some_and(|since| since.elapsed() > PATIENCE) {
                killed = true;
                kill(connections);
            }
            if told.elapsed() > TELL {
                told = Instant::now();
                (listener.progress)(self.progress(shared));
            }
            if alive.elapsed() > KEEP_ALIVE {
                alive = Instant::now();
                if let Err(error) = keep_alive(cluster) {
                    outcome.failure.get_or_insert(error.into());
                    shared.halt.store(true, Ordering::Relaxed);
                }
            }
            thread::sleep(LOOK);
        }
        if self.window.rounds > 0 {
            self.close(shared, listener);
        }
        outcome.measured = self.span.map_or(Nanos(0), |(first, last)| last - first);
        outcome
    }

    fn take(&mut self, round: &StaleRound) {
        self.phase = round.phase;
        let larger = |one: Option<f64>, other: Nanos| {
            Some(one.map_or(other.as_micros(), |one| one.max(other.as_micros())))
        };
        let window = &mut self.window;
        // A judged read has no write of its own, a judged write no read.
        let wrote = round.phase != StalePhase::Judged || round.reads.is_empty();
        window.rounds += u64::from(!round.reads.is_empty());
        if wrote {
            let write = round.ack - round.send;
            self.writes.0 += write.as_micros();
            self.writes.1 += 1;
            window.write_max_us = larger(window.write_max_us, write);
        }
        for read in &round.reads {
            window.read_max_us = larger(window.read_max_us, read.end - read.begin);
            if read.verdict == Verdict::Stale {
                window.stale += 1;
                if let Some(end) = read.fresh_end {
                    window.delay_max_us = larger(window.delay_max_us, end - round.ack);
                }
            }
        }
        match round.phase {
            StalePhase::AtOnce | StalePhase::Judged => {
                self.at_once += u64::from(!round.reads.is_empty())
            }
            StalePhase::Curve => self.curve += 1,
            StalePhase::WarmUp | StalePhase::Plain | StalePhase::Synced => return,
        }
        self.stale += round
            .reads
            .iter()
            .filter(|read| read.verdict == Verdict::Stale)
            .count() as u64;
        let last = round
            .reads
            .iter()
            .map(|read| read.fresh_end.unwrap_or(read.end))
            .max()
            .unwrap_or(round.ack);
        self.span = Some(self.span.map_or((round.send, last), |(first, before)| {
            (first, before.max(last))
        }));
    }

    fn progress(&self, shared: &Shared<'_>) -> Progress {
        let total = match (self.phase, self.plan.until) {
            (StalePhase::AtOnce, Until::Rounds(rounds)) => Some(rounds),
            (StalePhase::Curve, _) => Some(shared.of_curve.load(Ordering::Relaxed)),
            _ => None,
        };
        let done = if self.phase == StalePhase::Curve {
            self.curve
        } else {
            self.at_once
        };
        Progress {
            phase: self.phase,
            done,
            total,
            stale: self.stale,
        }
    }

    /// Closes the window when its time is over.
    fn stretch(&mut self, shared: &Shared<'_>, listener: &mut Listener<'_>) {
        let start = Nanos((self.window.start_us * 1e3) as i64);
        if self.clock.now() - self.began - start >= STRETCH {
            self.close(shared, listener);
        }
    }

    fn close(&mut self, shared: &Shared<'_>, listener: &mut Listener<'_>) {
        let now = self.clock.now();
        let mut window = std::mem::take(&mut self.window);
        window.end_us = (now - self.began).as_micros();
        window.under_way_us = Shared::oldest(&shared.under_way, now);
        window.unshown_us = Shared::oldest(&shared.unshown, now);
        window.write_mean_us = (self.writes.1 > 0).then(|| self.writes.0 / self.writes.1 as f64);
        window.counters = self.differences.take(self.servers);
        self.writes = (0.0, 0);
        self.window.start_us = window.end_us;
        (listener.window)(window);
    }
}

/// Ends what holds the measuring threads up; a server that does not let us cannot be helped.
fn kill(connections: &[(Node, u32)]) {
    for (node, number) in connections {
        crate::kill::kill(node, [u64::from(*number)], Duration::from_secs(1));
    }
}
