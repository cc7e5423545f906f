//! One thread of a load: operations over and over, on a connection of its own.

use std::{
    collections::HashMap,
    fs,
    net::TcpStream,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
        mpsc::{Receiver, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use replimeter_model::{
    load::{Arrivals, OpenLoop},
    time::Nanos,
};
use replimeter_server::{
    ErrorKind, Node, ServerError,
    wire::{Bind, Channel, Failed, Prepared, Refusal},
};

use super::{
    gauge::Gauge,
    program::{Move, Program, Routine, Scratch},
    random::Random,
    tally::{Again, Tally},
    value::Draw,
    versions::{Versions, Witness},
};
use crate::clock::{Clock, thread_cpu};

/// Takes a statement's parameters, one after another.
pub(super) type Taker<'a> = &'a mut dyn FnMut(Bind<'_>);

/// How often an operation is begun again after a deadlock or a lock's time-out.
const RETRIES: u32 = 10;
/// So many operations given up without one in between that was done are a broken load,
const BROKEN: u32 = 20;
/// which is held back by such a pause, so that it does not spin.
const AFTER_FAILURE: Duration = Duration::from_millis(10);
/// Pause before an operation is begun again on a member that is not ready.
const BEFORE_READY: Duration = Duration::from_millis(10);
/// Pause before a lost connection is made again.
const BEFORE_RECONNECT: Duration = Duration::from_millis(100);
/// The longest sleep, so that the end is noticed.
const NAP: Duration = Duration::from_millis(20);
/// How long a statement of a load may take.
pub(super) const ANSWER: Duration = Duration::from_secs(60);
/// The server cannot prepare this kind of statement.
const NOT_PREPARABLE: u16 = 1295;

pub(super) const DOING: &str = "cannot run the load";

/// Where a load's statements go.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) node: Node,
    /// A replica by a channel: what is written there would be nowhere else.
    pub(super) reads_only: bool,
    /// A member of a Galera cluster.
    pub(super) galera: bool,
    /// Statements that every connection begins with.
    pub(super) session: Vec<String>,
    /// Who judges the versions that are read here, and the number that this place has there.
    pub(super) versions: Option<(Arc<Versions>, usize)>,
}

impl Place {
    pub(super) fn new(node: Node, reads_only: bool) -> Self {
        Self {
            node,
            reads_only,
            galera: false,
            session: Vec::new(),
            versions: None,
        }
    }

    /// Looks whether it is a member of a Galera cluster: what such a member calls a
    /// deadlock may be another thing.
    pub(super) fn find_out(&mut self, channel: &mut Channel) -> Result<(), ServerError> {
        let size = channel
            .session()
            .pairs(DOING, "SHOW GLOBAL STATUS LIKE 'wsrep_cluster_size'")?;
        self.galera = size
            .values()
            .any(|size| size.parse::<u64>().is_ok_and(|size| size > 0));
        Ok(())
    }

    pub(super) fn open(&self) -> Result<Channel, ServerError> {
        let mut channel = Channel::open(&Node {
            answer: ANSWER,
            ..self.node.clone()
        })?;
        if self.reads_only {
            // Privileged users may write to a server in read-only mode.
            channel
                .session()
                .run(DOING, "SET SESSION TRANSACTION READ ONLY")?;
        }
        channel.session().run(DOING, "USE `replimeter`")?;
        for sql in &self.session {
            channel.session().run(DOING, sql)?;
        }
        Ok(channel)
    }
}

/// A connection with its statements prepared.
pub(super) struct Link {
    pub(super) channel: Channel,
    /// `None` for those that the server takes in words only.
    prepared: Vec<Option<Prepared>>,
    /// Where somebody judges what is read.
    witness: Option<Box<Witness>>,
}

impl Link {
    /// Connects and prepares.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses a statement: its number is given
    /// then.
    pub(super) fn open(
        place: &Place,
        program: &Program,
    ) -> Result<Self, (Option<usize>, ServerError)> {
        let mut channel = place.open().map_err(|error| (None, error))?;
        let mut prepared = Vec::with_capacity(program.statements.len());
        for (index, text) in program.statements.iter().enumerate() {
            prepared.push(match channel.prepare(&text.sql) {
                Ok(statement) => Some(statement),
                Err(error)
                    if error.kind == ErrorKind::Statement(NOT_PREPARABLE)
                        && !text.sql.contains('?') =>
                {
                    None
                }
                Err(error) => return Err((Some(index), error)),
            });
        }
        let witness = place
            .versions
            .as_ref()
            .map(|(versions, number)| Box::new(Witness::new(versions, *number)));
        Ok(Self {
            channel,
            prepared,
            witness,
        })
    }

    /// Runs one of the program's statements once; `bind` is handed what takes its
    /// parameters.
    pub(super) fn once(
        &mut self,
        program: &Program,
        statement: usize,
        bind: &mut dyn FnMut(Taker<'_>),
    ) -> Result<(), Failed> {
        match &mut self.prepared[statement] {
            Some(prepared) => self
                .channel
                .execute(prepared, |binder| bind(&mut |value| binder.push(value)))
                .map(drop),
            None => self
                .channel
                .query(&program.statements[statement].sql)
                .map(drop),
        }
    }

    /// Runs one of the program's statements that has no parameters.
    fn plain(&mut self, program: &Program, statement: usize) -> Result<(), Failed> {
        match &mut self.prepared[statement] {
            Some(prepared) => self.channel.execute(prepared, |_| {}).map(drop),
            None => self
                .channel
                .query(&program.statements[statement].sql)
                .map(drop),
        }
    }
}

/// Runs an operation; which step failed is told when one does.
#[inline]
pub(super) fn run(
    link: &mut Link,
    program: &Program,
    routine: &Routine,
    draw: &mut Draw,
    scratch: &mut Scratch,
    words: &mut String,
) -> Result<(), (usize, Failed)> {
    if !routine.shared.is_empty() {
        scratch.share(&routine.shared, draw);
    }
    let frame = program.frame.filter(|_| routine.transaction);
    if let Some((begin, _)) = frame {
        if let Some(witness) = &mut link.witness {
            witness.begins();
        }
        link.plain(program, begin).map_err(|failed| (0, failed))?;
    }
    for (index, step) in routine.steps.iter().enumerate() {
        match step {
            Move::Words(template) => {
                template.fill(draw, words);
                link.channel
                    .query(words)
                    .map_err(|failed| (index, failed))?;
            }
            Move::Prepared {
                statement,
                parameters,
                repeat,
                keeps,
                version,
            } => {
                for _ in 0..*repeat {
                    let done = match &mut link.prepared[*statement] {
                        Some(prepared) if version.is_some() && link.witness.is_some() => {
                            let Some((version, witness)) = version.zip(link.witness.as_mut())
                            else {
                                continue;
                            };
                            let own = !routine.transaction;
                            witness.run(&mut link.channel, prepared, version, own, |push| {
                                scratch.parameters(parameters, *keeps, draw, push);
                            })
                        }
                        Some(prepared) => link.channel.execute(prepared, |binder| {
                            scratch
                                .parameters(parameters, *keeps, draw, |value| binder.push(value));
                        }),
                        None => link.channel.query(&program.statements[*statement].sql),
                    };
                    if let Err(failed) = done {
                        return Err((index, failed));
                    }
                }
            }
        }
    }
    if let Some((_, commit)) = frame {
        link.plain(program, commit)
            .map_err(|failed| (routine.steps.len(), failed))?;
        if let Some(witness) = &mut link.witness {
            witness.committed();
        }
    }
    Ok(())
}

/// After a lock's time-out the server keeps what went before.
pub(super) fn roll_back(channel: &mut Channel) {
    let _ = channel.query("ROLLBACK");
}

/// What the threads of one squad share.
#[derive(Debug)]
pub(super) struct Shared {
    /// Told to end the stretch.
    stop: AtomicBool,
    /// Operations that end in this span count.
    from: AtomicI64,
    until: AtomicI64,
    /// When the open loop's first operation was due.
    began: AtomicI64,
    /// Operations of the open loop that were begun.
    tickets: AtomicU64,
    /// The turns of a Poisson process that come next.
    poisson: Mutex<Poisson>,
    /// What ended the squad.
    failure: Mutex<Option<ServerError>>,
    pub(super) rate: Option<OpenLoop>,
    /// How long a lost connection is tried again.
    pub(super) patience: Duration,
}

#[derive(Debug)]
struct Poisson {
    random: Random,
    /// Nanoseconds after the beginning.
    next: f64,
    /// Turns that were due, to count those that nobody has taken.
    ahead: u64,
}

const NEVER: i64 = i64::MAX;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(super) fn new(rate: Option<OpenLoop>, patience: Duration, seed: u64) -> Self {
        Self {
            stop: AtomicBool::new(false),
            from: AtomicI64::new(NEVER),
            until: AtomicI64::new(NEVER),
            began: AtomicI64::new(0),
            tickets: AtomicU64::new(0),
            poisson: Mutex::new(Poisson {
                random: Random::new(seed ^ 0x5EED),
                next: 0.0,
                ahead: 0,
            }),
            failure: Mutex::new(None),
            rate,
            patience,
        }
    }

    /// Prepares for a stretch that begins now, counted in that span.
    pub(super) fn start(&self, now: Nanos, from: Option<Nanos>, until: Option<Nanos>) {
        self.stop.store(false, Ordering::Release);
        self.from
            .store(from.map_or(NEVER, |from| from.0), Ordering::Release);
        self.until
            .store(until.map_or(NEVER, |until| until.0), Ordering::Release);
        self.began.store(now.0, Ordering::Release);
        self.tickets.store(0, Ordering::Release);
        let mut poisson = lock(&self.poisson);
        (poisson.next, poisson.ahead) = (0.0, 0);
        *lock(&self.failure) = None;
    }

    /// Counts from now on.
    pub(super) fn count_from(&self, now: Nanos) {
        self.from.store(now.0, Ordering::Release);
    }

    /// Counts what ends before now, and tells the threads to end.
    pub(super) fn stop(&self, now: Nanos) {
        let _ = self.until.fetch_min(now.0, Ordering::AcqRel);
        self.stop.store(true, Ordering::Release);
    }

    /// The span that is counted, as it is known now.
    pub(super) fn span(&self) -> (Nanos, Nanos) {
        (
            Nanos(self.from.load(Ordering::Acquire)),
            Nanos(self.until.load(Ordering::Acquire)),
        )
    }

    #[inline]
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// What ended the squad, if anything did.
    pub(super) fn failure(&self) -> Option<ServerError> {
        lock(&self.failure).clone()
    }

    fn fail(&self, error: ServerError) {
        lock(&self.failure).get_or_insert(error);
    }

    /// Whether anything ended the squad.
    pub(super) fn failed(&self) -> bool {
        lock(&self.failure).is_some()
    }

    /// Operations of the open loop that are due at `now` and that nobody has begun;
    /// none for a closed one.
    pub(super) fn waiting(&self, now: Nanos) -> Option<u64> {
        let open = self.rate?;
        let since = (now.0 - self.began.load(Ordering::Acquire)).max(0);
        let due = match open.arrivals {
            Arrivals::Constant => {
                u64::try_from(u128::from(open.rate) * since.unsigned_abs() as u128 / 1_000_000_000)
                    .unwrap_or(u64::MAX)
            }
            Arrivals::Poisson => {
                // The turns up to now are drawn by a copy: those that were handed out, and the rest.
                let poisson = lock(&self.poisson);
                let (mut random, mut next, mut due) = (poisson.random, poisson.next, poisson.ahead);
                drop(poisson);
                while next <= since as f64 {
                    due += 1;
                    next += random.exponential() * 1e9 / open.rate as f64;
                }
                due
            }
        };
        Some(due.saturating_sub(self.tickets.load(Ordering::Acquire)))
    }

    /// The next operation's turn in an open loop: whichever thread is free takes it.
    fn turn(&self, open: OpenLoop) -> Nanos {
        let began = Nanos(self.began.load(Ordering::Acquire));
        match open.arrivals {
            Arrivals::Constant => {
                let ticket = self.tickets.fetch_add(1, Ordering::AcqRel);
                let after = u128::from(ticket) * 1_000_000_000 / u128::from(open.rate.max(1));
                began + Nanos(i64::try_from(after).unwrap_or(i64::MAX / 2))
            }
            Arrivals::Poisson => {
                let mut poisson = lock(&self.poisson);
                let turn = poisson.next;
                let distance = poisson.random.exponential() * 1e9 / open.rate.max(1) as f64;
                poisson.next += distance;
                poisson.ahead += 1;
                self.tickets.fetch_add(1, Ordering::AcqRel);
                began + Nanos(turn as i64)
            }
        }
    }

    /// Gives a turn back that nobody waited for any more.
    fn give_back(&self) {
        self.tickets.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What others see of a thread.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Seat {
    /// Operations completed in the stretch, the uncounted among them.
    pub(super) operations: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) retries: AtomicU64,
    /// The server's number of its connection, for whoever must end it.
    pub(super) connection: AtomicU64,
    /// Its socket, for whoever must end it when the server does not.
    pub(super) socket: Mutex<Option<TcpStream>>,
    /// Latencies of the last stretch, where somebody wants them.
    pub(super) gauge: Option<Gauge>,
}

impl Seat {
    /// Ends the connection from this side.
    pub(super) fn cut(&self) {
        if let Some(socket) = &*lock(&self.socket) {
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }

    pub(super) fn takes(&self, channel: &mut Channel) {
        self.connection.store(
            u64::from(channel.session().connection_id()),
            Ordering::Release,
        );
        *lock(&self.socket) = channel.socket();
    }
}

/// What a thread is told to do.
#[derive(Clone, Copy, Debug)]
pub(super) enum Order {
    /// Operations, until told to end.
    Load,
    /// Empty questions for so long.
    Ping(Duration),
}

/// An order and its number.
pub(super) type Numbered = (u64, Order);

/// What a thread did.
#[derive(Debug)]
pub(super) struct Report {
    /// The number of the order that it is about.
    pub(super) generation: u64,
    pub(super) thread: usize,
    pub(super) tally: Tally,
    pub(super) cpu: Duration,
    /// How long it was ready to run and had no core.
    pub(super) delay: Option<Duration>,
    /// For empty questions: how many were answered per second.
    pub(super) pings: f64,
}

/// A thread's own.
pub(super) struct Worker {
    /// Its number among the squad's, from 0.
    pub(super) index: usize,
    pub(super) link: Option<Link>,
    pub(super) place: Place,
    pub(super) program: Arc<Program>,
    pub(super) shared: Arc<Shared>,
    pub(super) seat: Arc<Seat>,
    pub(super) draw: Draw,
    pub(super) clock: Clock,
}

/// Processor time and waiting for a core, when the counting began.
struct Marks {
    cpu: Duration,
    delay: Option<Duration>,
}

impl Marks {
    fn take() -> Self {
        Self {
            cpu: thread_cpu(),
            delay: scheduler_delay(),
        }
    }
}

/// How long this thread was ready to run and had no core, since it began.
fn scheduler_delay() -> Option<Duration> {
    let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace()
        .nth(1)?
        .parse()
        .ok()
        .map(Duration::from_nanos)
}

impl Worker {
    /// Does as it is told until nobody tells it anything.
    pub(super) fn serve(mut self, orders: &Receiver<Numbered>, reports: &Sender<Report>) {
        // Ordinary priority: a load must not push the servers aside. Only its sleeps end on time.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        while let Ok((generation, order)) = orders.recv() {
            let report = match order {
                Order::Load => self.load(),
                Order::Ping(length) => self.ping(length),
            };
            let report = Report {
                generation,
                ..report
            };
            if reports.send(report).is_err() {
                return;
            }
        }
    }

    fn load(&mut self) -> Report {
        let mut tally = Tally::new(self.shared.rate.is_some());
        let shared = Arc::clone(&self.shared);
        let (clock, program) = (self.clock, Arc::clone(&self.program));
        let mut scratch = Scratch::default();
        let mut words = String::new();
        let mut marks: Option<Marks> = None;
        let mut last = clock.now();
        let mut before = self.draw.clone();
        let mut in_a_row = 0u32;
        while !shared.stopped() {
            let (intended, began) = match shared.rate {
                None => (last, last),
                Some(open) => {
                    let turn = shared.turn(open);
                    if !self.sleep_until(turn) {
                        shared.give_back();
                        break;
                    }
                    (turn, clock.now())
                }
            };
            self.draw.pass += 1;
            before.restore(&self.draw);
            let routine = program.choose(&mut self.draw);
            if let Some(gauge) = &self.seat.gauge {
                gauge.begins(intended);
            }
            let done = self.one(routine, &mut tally, &before, &mut scratch, &mut words);
            let ended = clock.now();
            last = ended;
            if let Some(gauge) = &self.seat.gauge {
                gauge.ended(done.then_some(ended - intended));
            }
            let (from, until) = shared.span();
            let counts = ended >= from && ended < until;
            if counts && marks.is_none() {
                marks = Some(Marks::take());
            }
            if done {
                in_a_row = 0;
                // One writer: a plain addition, seen by whoever looks.
                self.seat.operations.store(
                    self.seat.operations.load(Ordering::Relaxed) + 1,
                    Ordering::Relaxed,
                );
                if counts {
                    tally.operation(
                        ended - from,
                        ended - intended,
                        ended - began,
                        routine.statements,
                    );
                }
            } else if !shared.stopped() {
                self.seat.failed.fetch_add(1, Ordering::Relaxed);
                tally.failed += u64::from(counts);
                in_a_row = in_a_row.saturating_add(1);
                // A client that gets an error goes on at once.
                if in_a_row >= BROKEN {
                    thread::sleep(AFTER_FAILURE);
                    last = clock.now();
                }
            }
            if ended >= until {
                break;
            }
        }
        let end = Marks::take();
        let (cpu, delay) = match marks {
            None => (Duration::ZERO, None),
            Some(begin) => (
                end.cpu - begin.cpu,
                end.delay
                    .zip(begin.delay)
                    .map(|(end, begin)| end.saturating_sub(begin)),
            ),
        };
        Report {
            generation: 0,
            thread: self.index,
            tally,
            cpu,
            delay,
            pings: 0.0,
        }
    }

    fn ping(&mut self, length: Duration) -> Report {
        let began = Instant::now();
        let mut answered = 0u64;
        while began.elapsed() < length && !self.shared.stopped() {
            let Some(link) = &mut self.link else { break };
            if link.channel.ping().is_err() {
                break;
            }
            answered += 1;
        }
        let pings = answered as f64 / began.elapsed().as_secs_f64().max(1e-9);
        Report {
            generation: 0,
            thread: self.index,
            tally: Tally::new(false),
            cpu: Duration::ZERO,
            delay: None,
            pings,
        }
    }

    /// Sleeps; false when it is over meanwhile.
    fn sleep_until(&self, point: Nanos) -> bool {
        loop {
            if self.shared.stopped() {
                return false;
            }
            let now = self.clock.now();
            if now >= self.shared.span().1 {
                return false;
            }
            let left = point - now;
            if left <= Nanos(0) {
                return true;
            }
            thread::sleep(Duration::from_nanos(left.0.unsigned_abs()).min(NAP));
        }
    }

    /// One operation, begun again with the same values when that may help; whether it
    /// came to its end.
    #[inline]
    fn one(
        &mut self,
        routine: &Routine,
        tally: &mut Tally,
        before: &Draw,
        scratch: &mut Scratch,
        words: &mut String,
    ) -> bool {
        for attempt in 0..=RETRIES {
            if attempt > 0 {
                self.draw.restore(before);
                // The choice was drawn too.
                let _ = self.program.choose(&mut self.draw);
            }
            let Some(link) = &mut self.link else {
                return self.reconnect(None);
            };
            let Err((step, failed)) =
                run(link, &self.program, routine, &mut self.draw, scratch, words)
            else {
                return true;
            };
            if self.shared.stopped() {
                return false;
            }
            match failed {
                Failed::Refused(refusal) => match self
                    .refused(&refusal, tally)
                    .map(|why| self.really(why, routine, step))
                {
                    Some(why) if attempt < RETRIES => {
                        self.seat.retries.fetch_add(1, Ordering::Relaxed);
                        if self.counting() {
                            tally.retry(why);
                        }
                        if why == Again::NotReady {
                            thread::sleep(BEFORE_READY);
                        }
                    }
                    _ => return false,
                },
                Failed::Broken(error) => {
                    if self.counting() {
                        tally.error(None, &error.cause);
                    }
                    return self.reconnect(Some(error));
                }
            }
        }
        false
    }

    /// In a Galera cluster a deadlock outside of a transaction, or at its commit, is one
    /// with what another member wrote. Inside of one the server does not tell.
    fn really(&self, why: Again, routine: &Routine, step: usize) -> Again {
        let alone = match routine.steps.get(step) {
            None => true,
            Some(Move::Prepared { .. }) => !routine.transaction,
            Some(Move::Words(_)) => routine.steps.len() == 1,
        };
        if why == Again::Deadlock && self.place.galera && alone {
            Again::Certification
        } else {
            why
        }
    }

    fn counting(&self) -> bool {
        let (from, until) = self.shared.span();
        (from..until).contains(&self.clock.now())
    }

    /// Notes an error and rolls back; whether the operation may be begun again.
    fn refused(&mut self, refusal: &Refusal, tally: &mut Tally) -> Option<Again> {
        if self.counting() {
            let Refusal {
                code,
                state,
                message,
            } = refusal;
            tally.error(
                Some(*code),
                &format!("{message} (error {code}, SQLSTATE {state})"),
            );
        }
        if let Some(link) = &mut self.link {
            roll_back(&mut link.channel);
        }
        Again::of(refusal)
    }

    /// Makes the connection again, for as long as the squad has patience; the
    /// operation is given up in any case.
    fn reconnect(&mut self, mut error: Option<ServerError>) -> bool {
        self.link = None;
        let deadline = Instant::now() + self.shared.patience;
        loop {
            thread::sleep(BEFORE_RECONNECT);
            if self.shared.stopped() {
                return false;
            }
            match Link::open(&self.place, &self.program) {
                Ok(mut link) => {
                    self.seat.takes(&mut link.channel);
                    self.link = Some(link);
                    return false;
                }
                Err((_, again)) => {
                    if Instant::now() >= deadline {
                        // The first words say what happened, the last only that it is still so.
                        let mut first = error.unwrap_or_else(|| again.clone());
                        if first.cause != again.cause {
                            first.cause = format!("{}; then: {}", first.cause, again.cause);
                        }
                        self.shared.fail(first);
                        return false;
                    }
                    // One connection was lost, however often it is tried again.
                    error.get_or_insert(again);
                }
            }
        }
    }
}

/// Numbers of connections by their server's name, for whoever must end them.
pub(super) type Connections = HashMap<String, (Node, Vec<u64>)>;
