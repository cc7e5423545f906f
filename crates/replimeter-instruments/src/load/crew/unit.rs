//! The threads and connections of one squad.

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
    load::{MOST_THREADS, NodeShare},
    time::Nanos,
};

use super::squad::{Squad, SquadSecond};
use crate::{
    clock::Clock,
    load::{
        about,
        gauge::{Gauge, Seat},
        program::Program,
        result::SquadResult,
        script::excerpt,
        tally::Tally,
        trial::try_out,
        value::Draw,
        worker::{DOING, Link, Numbered, Place, Report, Shared, Worker},
    },
};

/// A thread's stack, in bytes: operations need little, and there may be a thousand threads.
const STACK: usize = 256 << 10;
/// Error number for too many connections.
const TOO_MANY: u16 = 1040;

/// Results of a squad's threads in one window.
pub(in crate::load) struct Outcome {
    pub(in crate::load) tally: Tally,
    pub(in crate::load) counted: Nanos,
    pub(in crate::load) began: Nanos,
    pub(in crate::load) cpu: Duration,
    pub(in crate::load) delay: Option<Duration>,
    pub(in crate::load) waiting: Option<u64>,
    pub(in crate::load) waiting_per_second: Vec<u64>,
    /// Operations per server.
    pub(in crate::load) by_node: Vec<u64>,
}

impl Outcome {
    /// Adds a later window; the time in between does not count.
    pub(in crate::load) fn follow(&mut self, later: &Self) {
        self.tally.follow(&later.tally, self.counted);
        self.counted = self.counted + later.counted;
        self.cpu += later.cpu;
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

/// The threads of one squad.
pub(super) struct Unit {
    program: Arc<Program>,
    pub(super) shared: Arc<Shared>,
    pub(super) places: Vec<Place>,
    pub(super) orders: Vec<Sender<Numbered>>,
    pub(super) seats: Vec<Arc<Seat>>,
    threads: Vec<JoinHandle<()>>,
    pub(super) reports: Receiver<Report>,
    pub(super) limit: Option<f64>,
}

impl Unit {
    pub(super) fn open(
        squad: &Squad<'_>,
        number: u64,
        clock: &Clock,
        trial: bool,
    ) -> Result<Self, ServerError> {
        check(squad)?;
        let rows = squad.data.map_or_else(
            || squad.workload.rows(squad.workload.default_size()),
            |data| data.rows,
        );
        let place = |node: &Node| Place {
            session: squad.session.clone(),
            versions: squad.versions.clone(),
            ..Place::new(node.clone(), squad.reads_only)
        };
        let (reporter, reports) = channel();
        let mut unit = Self {
            program: Program::new(squad.workload, rows),
            shared: Arc::new(Shared::new(squad.rate, squad.patience, number)),
            places: squad.nodes.iter().map(place).collect(),
            orders: Vec::new(),
            seats: Vec::new(),
            threads: Vec::new(),
            reports,
            limit: None,
        };
        // All are connected before the first thread starts.
        let workers = (0..squad.threads as usize)
            .map(|index| unit.connect(squad, index, clock, trial))
            .collect::<Result<Vec<_>, _>>()?;
        for worker in workers {
            let (orders, taken) = channel();
            let reporter = reporter.clone();
            let spawned = thread::Builder::new()
                .name("load".to_owned())
                .stack_size(STACK)
                .spawn(move || worker.serve(&taken, &reporter));
            let thread = spawned.map_err(|error| {
                unfit(
                    squad,
                    format!("cannot start another thread: {error}"),
                    "use fewer threads",
                )
            })?;
            unit.threads.push(thread);
            unit.orders.push(orders);
        }
        Ok(unit)
    }

    /// Connects the thread of this number, and tries the program if it is the first on its server.
    fn connect(
        &mut self,
        squad: &Squad<'_>,
        index: usize,
        clock: &Clock,
        trial: bool,
    ) -> Result<Worker, ServerError> {
        let program = &self.program;
        let at = index % self.places.len();
        let mut link = Link::open(&self.places[at], program).map_err(|(statement, error)| {
            let Some(statement) = statement else {
                return connection_refused(error, index, squad.threads);
            };
            let text = &program.statements[statement];
            about(error, &program.workload, text.line, &excerpt(&text.sql))
        })?;
        if index < self.places.len() {
            self.places[at].find_out(&mut link.channel)?;
            if trial {
                try_out(&mut link, program)?;
            }
        }
        let seat = Arc::new(Seat {
            gauge: squad.gauged.then(Gauge::default),
            ..Seat::default()
        });
        seat.takes(&mut link.channel);
        self.seats.push(Arc::clone(&seat));
        Ok(Worker {
            index,
            link: Some(link),
            place: self.places[at].clone(),
            program: Arc::clone(program),
            shared: Arc::clone(&self.shared),
            seat,
            draw: Draw::new(index as u32 + 1, squad.threads, program.sequences),
            clock: *clock,
        })
    }

    /// Returns the reports on this order that arrive in time.
    pub(super) fn hear(&self, generation: u64, deadline: Instant) -> Vec<Option<Report>> {
        let mut heard: Vec<Option<Report>> = self.orders.iter().map(|_| None).collect();
        self.hear_more(generation, deadline, &mut heard);
        heard
    }

    pub(super) fn hear_more(
        &self,
        generation: u64,
        deadline: Instant,
        heard: &mut [Option<Report>],
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
        reports: impl Iterator<Item = Report>,
        waiting: Option<u64>,
    ) -> Outcome {
        let (from, until) = self.shared.span();
        let counted = Nanos((until.0.saturating_sub(from.0)).max(0));
        let mut outcome = Outcome {
            tally: Tally::new(self.shared.rate.is_some()),
            counted,
            began: from,
            cpu: Duration::ZERO,
            delay: Some(Duration::ZERO),
            waiting,
            waiting_per_second: Vec::new(),
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
            // The wait for a server that did not return is not part of the load.
            outcome.counted = Nanos(outcome.counted.0.min(outcome.tally.last.0));
        }
        outcome
    }

    pub(super) fn result(&self, outcome: &Outcome) -> SquadResult {
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
            waiting_per_second: outcome.waiting_per_second.clone(),
            client_cpu: outcome.cpu,
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

    pub(super) fn totals(&self) -> SquadSecond {
        let sum = |of: fn(&Seat) -> u64| self.seats.iter().map(|seat| of(seat)).sum();
        SquadSecond {
            operations: sum(|seat| seat.operations.load(Ordering::Relaxed)),
            failed: sum(|seat| seat.failed.load(Ordering::Relaxed)),
            retries: sum(|seat| seat.retries.load(Ordering::Relaxed)),
            waiting: None,
        }
    }
}

/// Checks that there are servers, threads and a rate.
fn check(squad: &Squad<'_>) -> Result<(), ServerError> {
    if squad.nodes.is_empty() {
        return Err(ServerError::unfit(
            "load",
            "",
            DOING,
            "the load has no server",
            "name a server",
        ));
    }
    if !(1..=MOST_THREADS).contains(&squad.threads) {
        return Err(unfit(
            squad,
            format!(
                "a load takes 1 to {MOST_THREADS} threads, not {}",
                squad.threads
            ),
            "change the number of threads",
        ));
    }
    if squad.rate.is_some_and(|open| open.rate == 0) {
        return Err(unfit(
            squad,
            "the rate is 0",
            "remove the rate for a closed loop",
        ));
    }
    Ok(())
}

/// Returns an error about the first server.
fn unfit(squad: &Squad<'_>, cause: impl Into<String>, hint: &str) -> ServerError {
    let first = &squad.nodes[0];
    first.unfit(DOING, cause, hint)
}

/// Adds the number of the connection, and a hint for the server's limit.
fn connection_refused(mut error: ServerError, index: usize, threads: u32) -> ServerError {
    error.doing = format!(
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
