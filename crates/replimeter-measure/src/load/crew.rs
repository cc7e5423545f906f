//! Threads with their connections, run for as many stretches as wanted.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use replimeter_model::{
    load::{MOST_THREADS, NodeShare, OpenLoop},
    time::Nanos,
    warning::{Warning, WarningCode},
};
use replimeter_server::{ErrorKind, Node, ServerError};

use super::{
    about,
    fill::DataSet,
    gauge::{Gauge, Gauges},
    program::Program,
    result::SquadResult,
    tally::Tally,
    trial::try_out,
    value::Draw,
    versions::Versions,
    worker::{Connections, DOING, Link, Numbered, Order, Place, Report, Seat, Shared, Worker},
    workload::Workload,
};
use crate::{clock::Clock, kill::kill};

/// How long a lost connection is tried again, unless asked otherwise.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long threads may take to end by themselves.
const AT_END: Duration = Duration::from_secs(10);
/// How long they may take when the user wants to be gone.
pub(super) const HURRIED: Duration = Duration::from_secs(3);
/// How long they may take when their connections were ended.
const AFTER_KILL: Duration = Duration::from_secs(1);
/// How often it is looked whether a stretch is over.
const LOOK: Duration = Duration::from_millis(20);
/// A thread's stack: operations need little, and a thousand threads are many.
const STACK: usize = 256 << 10;
/// Too many connections.
const TOO_MANY: u16 = 1040;

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
    /// Whether latencies can be [taken](Crew::gauges) while it runs.
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

/// One squad's threads.
struct Unit {
    program: Arc<Program>,
    shared: Arc<Shared>,
    places: Vec<Place>,
    orders: Vec<Sender<Numbered>>,
    seats: Vec<Arc<Seat>>,
    threads: Vec<JoinHandle<()>>,
    reports: Receiver<Report>,
    limit: Option<f64>,
}

/// Open connections with prepared statements, and threads that wait for a stretch.
/// Dropped, the threads and connections end.
pub struct Crew {
    clock: Clock,
    units: Vec<Unit>,
    /// Of orders, so that a report that comes too late is known.
    generation: u64,
}

/// What a squad's threads did in one stretch.
pub(super) struct Outcome {
    pub(super) tally: Tally,
    pub(super) counted: Nanos,
    pub(super) began: Nanos,
    pub(super) cpu: Duration,
    pub(super) delay: Option<Duration>,
    pub(super) waiting: Option<u64>,
    /// Operations by server.
    pub(super) by_node: Vec<u64>,
}

impl Crew {
    /// Connects every thread of every squad, prepares every statement, and tries each
    /// once in a transaction that is rolled back (but what has neither parameters nor
    /// reads). A script is run once, as it stands.
    ///
    /// # Errors
    /// When a server cannot be reached, has no more connections, or refuses a statement:
    /// with its words, the statement and its line.
    pub fn open(squads: &[Squad<'_>], clock: &Clock) -> Result<Self, ServerError> {
        Self::open_tried(squads, clock, true)
    }

    pub(super) fn open_tried(
        squads: &[Squad<'_>],
        clock: &Clock,
        trial: bool,
    ) -> Result<Self, ServerError> {
        let mut crew = Self {
            clock: *clock,
            units: Vec::new(),
            generation: 0,
        };
        for (number, squad) in (0..).zip(squads) {
            let unit = Unit::open(squad, number, clock, trial)?;
            crew.units.push(unit);
        }
        Ok(crew)
    }

    /// What shows each squad's latencies while it runs, in order; of a squad that is not gauged nothing.
    #[must_use]
    pub fn gauges(&self) -> Vec<Gauges> {
        self.units
            .iter()
            .map(|unit| Gauges::new(&unit.seats, &self.clock))
            .collect()
    }

    /// Runs all squads together: `ramp` uncounted, then `length` counted; may be called
    /// again and again. About once a second `second` is told how it goes, from this
    /// thread. It ends early when `stop` is set or when a squad loses its server; what
    /// was measured until then is in the results.
    pub fn stretch(
        &mut self,
        ramp: Duration,
        length: Duration,
        stop: &AtomicBool,
        second: &mut dyn FnMut(&Second),
    ) -> Vec<SquadResult> {
        let began = self.clock.now();
        let from = began + Nanos::from(ramp);
        let until = from + Nanos::from(length);
        self.begin(Some(from), Some(until));
        let mut ticks = Ticks::new(began, from, self.units.len());
        let mut interrupted = false;
        loop {
            let now = self.clock.now();
            if stop.load(Ordering::Relaxed) {
                interrupted = true;
                break;
            }
            if now >= until || self.units.iter().any(|unit| unit.shared.failed()) {
                break;
            }
            if now >= ticks.next {
                ticks.tell(now, &self.units, second);
            }
            // Seconds of the counted part begin with it, so the end of the ramp is a tick too.
            let nearest = (ticks.next.0.min(until.0) - self.clock.now().0)
                .max(0)
                .unsigned_abs();
            thread::sleep(Duration::from_nanos(nearest).min(LOOK));
        }
        let now = self.clock.now();
        let counted = now > from;
        if counted {
            ticks.tell(now.max(until), &self.units, second);
        }
        let patience = if interrupted { HURRIED } else { AT_END };
        let (outcomes, _) = self.end(patience);
        let units = self.units.iter().zip(outcomes).zip(ticks.waiting);
        units
            .map(|((unit, outcome), waiting_per_second)| SquadResult {
                ramp: Nanos::from(ramp),
                waiting_per_second,
                interrupted,
                ..unit.result(&outcome)
            })
            .collect()
    }

    /// Asks empty questions over every connection for so long, and so measures how many
    /// statements this client can get answered at most. Tells it for each squad, and
    /// keeps it for the results.
    pub fn measure_limit(&mut self, length: Duration) -> Vec<Option<f64>> {
        let now = self.clock.now();
        for unit in &mut self.units {
            unit.shared.start(now, None, None);
        }
        self.order(Order::Ping(length));
        let deadline = Instant::now() + length + AT_END;
        let generation = self.generation;
        let mut limits = Vec::new();
        for unit in &mut self.units {
            let mut sum = 0.0;
            let mut heard = 0;
            while heard < unit.orders.len() {
                let left = deadline.saturating_duration_since(Instant::now());
                let Ok(report) = unit.reports.recv_timeout(left) else {
                    break;
                };
                if report.generation == generation {
                    sum += report.pings;
                    heard += 1;
                }
            }
            unit.limit = (heard == unit.orders.len()).then_some(sum);
            limits.push(unit.limit);
        }
        limits
    }

    fn order(&mut self, order: Order) {
        self.generation += 1;
        for unit in &self.units {
            for orders in &unit.orders {
                // A thread that is gone has nothing to report either.
                let _ = orders.send((self.generation, order));
            }
        }
    }

    /// Starts every thread; what ends in the span counts.
    pub(super) fn begin(&mut self, from: Option<Nanos>, until: Option<Nanos>) {
        let now = self.clock.now();
        for unit in &self.units {
            unit.shared.start(now, from, until);
            for seat in &unit.seats {
                seat.operations.store(0, Ordering::Relaxed);
                seat.failed.store(0, Ordering::Relaxed);
                seat.retries.store(0, Ordering::Relaxed);
            }
        }
        self.order(Order::Load);
    }

    /// Counts from now on.
    pub(super) fn count_from_now(&self) {
        let now = self.clock.now();
        for unit in &self.units {
            unit.shared.count_from(now);
        }
    }

    /// Ends every thread's operations; what each squad did, and which threads do not end
    /// whatever is done to them.
    pub(super) fn end(&mut self, patience: Duration) -> (Vec<Outcome>, Vec<Warning>) {
        let now = self.clock.now();
        let waiting: Vec<Option<u64>> = self
            .units
            .iter()
            .map(|unit| {
                unit.shared
                    .waiting(Nanos(now.0.min(unit.shared.span().1.0)))
            })
            .collect();
        for unit in &self.units {
            unit.shared.stop(now);
        }
        let generation = self.generation;
        let deadline = Instant::now() + patience;
        let mut warnings = Vec::new();
        let mut outcomes = Vec::new();
        let mut heard: Vec<Vec<Option<Report>>> = Vec::new();
        for unit in &self.units {
            heard.push(unit.hear(generation, deadline));
        }
        // Statements under way end with their connections; ours are shut from this side too.
        let missing = |heard: &[Vec<Option<Report>>]| heard.iter().flatten().any(Option::is_none);
        if missing(&heard) {
            self.kill(&heard);
            let deadline = Instant::now() + AFTER_KILL;
            for (unit, heard) in self.units.iter().zip(&mut heard) {
                unit.hear_more(generation, deadline, heard);
            }
        }
        for ((unit, reports), waiting) in self.units.iter().zip(heard).zip(waiting) {
            let stuck = reports.iter().filter(|report| report.is_none()).count();
            if stuck > 0 {
                let place = &unit.places[0].node;
                warnings.push(Warning::new(
                    WarningCode::CleanUpIncomplete,
                    format!(
                        "{} ({}): {stuck} threads of the load do not end; their statements may still be under way",
                        place.name,
                        place.endpoint.address()
                    ),
                    "is the server stalled? they end when it goes on",
                ));
            }
            outcomes.push(unit.outcome(reports.into_iter().flatten(), waiting));
        }
        (outcomes, warnings)
    }

    /// Ends the connections of threads that have not reported.
    fn kill(&self, heard: &[Vec<Option<Report>>]) {
        let mut by_server: Connections = HashMap::new();
        for (unit, reports) in self.units.iter().zip(heard) {
            for (index, _) in reports
                .iter()
                .enumerate()
                .filter(|(_, report)| report.is_none())
            {
                let place = &unit.places[index % unit.places.len()];
                let entry = by_server
                    .entry(place.node.name.clone())
                    .or_insert_with(|| (place.node.clone(), Vec::new()));
                entry
                    .1
                    .push(unit.seats[index].connection.load(Ordering::Acquire));
            }
        }
        for (node, connections) in by_server.values() {
            kill(node, connections.iter().copied(), AFTER_KILL);
        }
        for (unit, reports) in self.units.iter().zip(heard) {
            for (index, _) in reports
                .iter()
                .enumerate()
                .filter(|(_, report)| report.is_none())
            {
                unit.seats[index].cut();
            }
        }
    }

    pub(super) fn result(&self, squad: usize, outcome: &Outcome) -> SquadResult {
        self.units[squad].result(outcome)
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        let now = self.clock.now();
        for unit in &mut self.units {
            unit.shared.stop(now);
            unit.orders.clear();
        }
        let deadline = Instant::now() + HURRIED;
        for unit in &mut self.units {
            while unit.threads.iter().any(|thread| !thread.is_finished())
                && Instant::now() < deadline
            {
                thread::sleep(Duration::from_millis(2));
            }
            unit.seats.iter().for_each(|seat| seat.cut());
        }
        let deadline = Instant::now() + AFTER_KILL;
        for unit in &mut self.units {
            while unit.threads.iter().any(|thread| !thread.is_finished())
                && Instant::now() < deadline
            {
                thread::sleep(Duration::from_millis(2));
            }
        }
    }
}

impl Unit {
    fn open(
        squad: &Squad<'_>,
        number: u64,
        clock: &Clock,
        trial: bool,
    ) -> Result<Self, ServerError> {
        let Some(first) = squad.nodes.first() else {
            return Err(ServerError::unfit(
                "load",
                "",
                DOING,
                "it has no server to run on",
                "name one",
            ));
        };
        let unfit = |cause: String, hint: &str| {
            ServerError::unfit(&first.name, &first.endpoint.address(), DOING, cause, hint)
        };
        if !(1..=MOST_THREADS).contains(&squad.threads) {
            return Err(unfit(
                format!(
                    "a load has 1 to {MOST_THREADS} threads, not {}",
                    squad.threads
                ),
                "ask for at least one",
            ));
        }
        if squad.rate.is_some_and(|open| open.rate == 0) {
            return Err(unfit(
                "a rate of 0 is no load".to_owned(),
                "leave the rate out for a closed loop",
            ));
        }
        let rows = squad.data.map_or_else(
            || squad.workload.rows(squad.workload.default_size()),
            |data| data.rows,
        );
        let program = Program::new(squad.workload, rows);
        let places: Vec<Place> = squad
            .nodes
            .iter()
            .map(|node| Place {
                session: squad.session.clone(),
                versions: squad.versions.clone(),
                ..Place::new(node.clone(), squad.reads_only)
            })
            .collect();
        let shared = Arc::new(Shared::new(squad.rate, squad.patience, number));
        let (reporter, reports) = channel();
        let mut unit = Self {
            program: Arc::clone(&program),
            shared: Arc::clone(&shared),
            places,
            orders: Vec::new(),
            seats: Vec::new(),
            threads: Vec::new(),
            reports,
            limit: None,
        };
        let mut workers = Vec::new();
        for index in 0..squad.threads as usize {
            let place = &unit.places[index % unit.places.len()];
            let mut link =
                Link::open(place, &program).map_err(|(statement, error)| match statement {
                    Some(statement) => {
                        let text = &program.statements[statement];
                        about(
                            error,
                            &program.workload,
                            text.line,
                            &super::workload::excerpt(&text.sql),
                        )
                    }
                    None => connection_refused(error, index, squad.threads),
                })?;
            let first_here = index < unit.places.len();
            if first_here {
                unit.places[index].find_out(&mut link.channel)?;
            }
            if trial && first_here {
                try_out(&mut link, &program)?;
            }
            let place = &unit.places[index % unit.places.len()];
            let seat = Arc::new(Seat {
                gauge: squad.gauged.then(Gauge::default),
                ..Seat::default()
            });
            seat.takes(&mut link.channel);
            unit.seats.push(Arc::clone(&seat));
            workers.push(Worker {
                index,
                link: Some(link),
                place: place.clone(),
                program: Arc::clone(&program),
                shared: Arc::clone(&shared),
                seat,
                draw: Draw::new(index as u32 + 1, squad.threads, program.sequences),
                clock: *clock,
            });
        }
        // All are connected before the first thread is there.
        for worker in workers {
            let (orders, taken) = channel();
            let reporter = reporter.clone();
            let spawned = thread::Builder::new()
                .name("load".to_owned())
                .stack_size(STACK)
                .spawn(move || worker.serve(&taken, &reporter));
            unit.threads
                .push(spawned.map_err(|error| {
                    unfit(format!("no more threads: {error}"), "ask for fewer")
                })?);
            unit.orders.push(orders);
        }
        Ok(unit)
    }

    /// The reports of this order, as far as they come in time.
    fn hear(&self, generation: u64, deadline: Instant) -> Vec<Option<Report>> {
        let mut heard: Vec<Option<Report>> = self.orders.iter().map(|_| None).collect();
        self.hear_more(generation, deadline, &mut heard);
        heard
    }

    fn hear_more(&self, generation: u64, deadline: Instant, heard: &mut [Option<Report>]) {
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

    fn outcome(&self, reports: impl Iterator<Item = Report>, waiting: Option<u64>) -> Outcome {
        let (from, until) = self.shared.span();
        let counted = Nanos((until.0.saturating_sub(from.0)).max(0));
        let mut outcome = Outcome {
            tally: Tally::new(self.shared.rate.is_some()),
            counted,
            began: from,
            cpu: Duration::ZERO,
            delay: Some(Duration::ZERO),
            waiting,
            by_node: vec![0; self.places.len()],
        };
        for report in reports {
            outcome.by_node[report.thread % self.places.len()] += report.tally.operations;
            outcome.tally.merge(&report.tally);
            outcome.cpu += report.cpu;
            outcome.delay = outcome
                .delay
                .zip(report.delay)
                .map(|(sum, delay)| sum + delay);
        }
        if self.shared.failed() {
            // The wait for a server that did not come back is no time of the load's.
            outcome.counted = Nanos(outcome.counted.0.min(outcome.tally.last.0));
        }
        outcome
    }

    fn result(&self, outcome: &Outcome) -> SquadResult {
        let Outcome { tally, counted, .. } = outcome;
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
        SquadResult {
            workload: self.program.workload.name.clone(),
            threads: self.seats.len() as u32,
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
            operations: tally.operations,
            statements: tally.statements,
            throughput: tally.throughput(*counted),
            per_second: tally.per_second(*counted),
            by_node: by_node.collect(),
            response: tally.response().clone(),
            service: tally.service.clone(),
            retries: tally.retried(),
            failed: tally.failed,
            errors: tally.errors(),
            waiting: outcome.waiting,
            waiting_per_second: Vec::new(),
            client_cpu: outcome.cpu,
            client_delay: outcome.delay,
            limit_per_s: self.limit,
            failure: self.shared.failure(),
            interrupted: false,
        }
    }

    fn totals(&self) -> SquadSecond {
        let sum = |of: fn(&Seat) -> u64| self.seats.iter().map(|seat| of(seat)).sum();
        SquadSecond {
            operations: sum(|seat| seat.operations.load(Ordering::Relaxed)),
            failed: sum(|seat| seat.failed.load(Ordering::Relaxed)),
            retries: sum(|seat| seat.retries.load(Ordering::Relaxed)),
            waiting: None,
        }
    }
}

/// When a second is told next, and what was told before.
struct Ticks {
    began: Nanos,
    from: Nanos,
    next: Nanos,
    last: Vec<SquadSecond>,
    waiting: Vec<Vec<u64>>,
}

const SECOND: Nanos = Nanos(1_000_000_000);

impl Ticks {
    fn new(began: Nanos, from: Nanos, squads: usize) -> Self {
        let ramp = from - began;
        let next = if ramp <= Nanos(0) {
            began + SECOND
        } else {
            Nanos((began + SECOND).0.min(from.0))
        };
        Self {
            began,
            from,
            next,
            last: vec![SquadSecond::default(); squads],
            waiting: vec![Vec::new(); squads],
        }
    }

    fn tell(&mut self, now: Nanos, units: &[Unit], second: &mut dyn FnMut(&Second)) {
        let counted = self.next > self.from;
        let mut squads = Vec::new();
        for ((unit, last), waiting) in units.iter().zip(&mut self.last).zip(&mut self.waiting) {
            let total = unit.totals();
            let due = unit.shared.waiting(now);
            if counted && let Some(due) = due {
                waiting.push(due);
            }
            squads.push(SquadSecond {
                operations: total.operations - last.operations,
                failed: total.failed - last.failed,
                retries: total.retries - last.retries,
                waiting: due,
            });
            *last = total;
        }
        second(&Second {
            at: now - self.began,
            counted,
            squads,
        });
        // The end of the ramp is a tick, so that counted seconds are whole.
        let next = self.next + SECOND;
        self.next = if self.next < self.from {
            Nanos(next.0.min(self.from.0))
        } else {
            next
        };
    }
}

/// Adds which connection of how many it was, and what a limit means.
fn connection_refused(mut error: ServerError, index: usize, threads: u32) -> ServerError {
    error.doing = format!(
        "cannot open connection {} of {threads} of the load",
        index + 1
    );
    if error.kind == ErrorKind::Statement(TOO_MANY) {
        error.hint =
            "raise max_connections on the server, close other clients, or ask for fewer threads"
                .to_owned();
    }
    error
}
