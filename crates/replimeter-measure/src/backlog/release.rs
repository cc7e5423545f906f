//! Brings a stopped applier back to how it was: every exit of the tool comes here.

use std::{
    fmt::Display,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use replimeter_model::engine::Engine;
use replimeter_server::{
    ErrorKind, Node, ServerError, Session,
    flavour::{
        Channel, channels,
        statements::{self, Part},
    },
};

/// How long appliers are tried to be started again when the process ends at once.
const HURRIED_TIMEOUT: Duration = Duration::from_secs(4);
/// The limits of how long an answer is awaited within one attempt.
const ATTEMPT_TIMEOUTS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];
/// The limits of the pause between two attempts; each is twice as long as the one before.
const PAUSES: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(5)];

/// The pause after so many failed attempts, the last of which ended so long after the begin of the
/// first; `None` when the limit has passed. The last attempt begins at the limit.
fn pause(failed: u32, elapsed: Duration, limit: Duration) -> Option<Duration> {
    let left = limit.checked_sub(elapsed).filter(|left| !left.is_zero())?;
    let doubled = 2u32.saturating_pow(failed.saturating_sub(1));
    Some(PAUSES[0].saturating_mul(doubled).min(PAUSES[1]).min(left))
}

/// How long an attempt waits for each answer: a short limit leaves room for a second attempt.
fn attempt_timeout(elapsed: Duration, limit: Duration) -> Duration {
    (limit.saturating_sub(elapsed) / 2).clamp(ATTEMPT_TIMEOUTS[0], ATTEMPT_TIMEOUTS[1])
}

/// Why an attempt failed.
#[derive(Debug)]
enum Failed {
    /// Another attempt may succeed.
    Again(ServerError),
    /// The applier was started and ends by an error of its own.
    Broken(ServerError),
}

impl From<ServerError> for Failed {
    fn from(error: ServerError) -> Self {
        Self::Again(error)
    }
}

/// A connection to the replica; tests have one without a server.
trait Replica {
    fn connection(&self) -> u32;
    fn execute(&mut self, statement: &str) -> Result<(), ServerError>;
    /// The numbers of all connections of this user.
    fn connections(&mut self) -> Result<Vec<u32>, ServerError>;
    /// Whether the applier runs, and its last error.
    fn applier(&mut self) -> Result<(bool, String), ServerError>;
    fn global(&mut self, variable: &str) -> Result<Option<u64>, ServerError>;
    fn unfit(&self, cause: String) -> ServerError;
}

/// A session that knows which channel it is about.
pub(super) struct Connection {
    session: Session,
    engine: Engine,
    user: String,
    channel: String,
}

impl Connection {
    /// The value of a global variable, as a number.
    pub(super) fn number(&mut self, variable: &str) -> Result<Option<u64>, ServerError> {
        self.global(variable)
    }
}

const DOING: &str = "cannot ask for the applier's state";

impl Replica for Connection {
    fn connection(&self) -> u32 {
        self.session.connection_id()
    }

    fn execute(&mut self, statement: &str) -> Result<(), ServerError> {
        self.session.run(
            &format!("cannot execute `{}`", statement.trim_end_matches(';')),
            statement,
        )
    }

    fn connections(&mut self) -> Result<Vec<u32>, ServerError> {
        let rows = self.session.rows(DOING, "SHOW PROCESSLIST")?;
        let own = rows
            .iter()
            .filter(|row| row.get("User") == Some(&self.user));
        Ok(own.filter_map(|row| row.get("Id")?.parse().ok()).collect())
    }

    fn applier(&mut self) -> Result<(bool, String), ServerError> {
        let channels = channels(self.engine, &mut self.session)?;
        match channels
            .into_iter()
            .find(|channel| channel.name == self.channel)
        {
            Some(channel) => Ok((channel.sql_running == "Yes", channel.sql_error)),
            None => Err(self.unfit("the replication channel is gone".to_owned())),
        }
    }

    fn global(&mut self, variable: &str) -> Result<Option<u64>, ServerError> {
        let value = self
            .session
            .value(DOING, &format!("SELECT @@GLOBAL.{variable}"))?;
        Ok(value.and_then(|value| value.parse().ok()))
    }

    fn unfit(&self, cause: String) -> ServerError {
        self.session.unfit(DOING, cause, "")
    }
}

/// The statements that bring an applier back.
#[derive(Debug)]
struct Orders {
    stop: String,
    /// The former number of workers and its variable, if the run changes it.
    workers: Option<(u64, &'static str)>,
    start: String,
}

impl Orders {
    /// All of them, for a person: they are right whatever state the applier is in.
    fn by_hand(&self) -> String {
        let set = self
            .workers
            .map(|(workers, variable)| set(variable, workers));
        [Some(self.stop.clone()), set, Some(self.start.clone())]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// The number of workers counts from the applier's next start on.
fn set(variable: &str, workers: u64) -> String {
    format!("SET GLOBAL {variable} = {workers};")
}

/// What is known of what was sent to the replica.
#[derive(Debug, Default)]
struct State {
    /// A `STOP` was sent, and not answered by success: the applier may stop at any time.
    stopping: bool,
    /// A connection whose last statement was not answered: it may still take effect.
    unanswered: Option<u32>,
    /// It runs as before, and nothing may be sent any more.
    released: bool,
}

impl State {
    /// Has a statement executed that changes the applier.
    fn send(&mut self, replica: &mut dyn Replica, statement: &str) -> Result<(), ServerError> {
        if self.released {
            return Err(replica.unfit("the tool is ending".to_owned()));
        }
        self.unanswered = Some(replica.connection());
        let sent = replica.execute(statement);
        // A refusal is an answer.
        if sent.as_ref().err().is_none_or(|error| {
            matches!(error.kind, ErrorKind::Statement(_) | ErrorKind::Privilege)
        }) {
            self.unanswered = None;
        }
        sent
    }

    fn stop(&mut self, replica: &mut dyn Replica, orders: &Orders) -> Result<(), ServerError> {
        self.stopping = true;
        self.send(replica, &orders.stop)?;
        self.stopping = false;
        Ok(())
    }

    /// Brings the applier back and asks the server whether it is.
    fn bring_back(&mut self, replica: &mut dyn Replica, orders: &Orders) -> Result<(), Failed> {
        if let Some(number) = self.unanswered {
            // A late STOP would stop the applier again after everything else.
            if replica.connections()?.contains(&number) {
                let killed = replica.execute(&format!("KILL {number}"));
                let how = killed
                    .err()
                    .map_or_else(String::new, |error| format!(" ({})", error.cause));
                return Err(replica
                    .unfit(format!(
                        "the statement of connection {number} has not ended{how}"
                    ))
                    .into());
            }
            self.unanswered = None;
        }
        if self.stopping || orders.workers.is_some() {
            self.stop(replica, orders)?;
        }
        if let Some((workers, variable)) = orders.workers {
            self.send(replica, &set(variable, workers))?;
        }
        self.send(replica, &orders.start)?;
        let (running, error) = replica.applier()?;
        if !running && !error.is_empty() {
            return Err(Failed::Broken(
                replica.unfit(format!("it was started and ends with an error: {error}")),
            ));
        }
        if !running {
            return Err(replica
                .unfit("it was started and does not run".to_owned())
                .into());
        }
        if let Some((workers, variable)) = orders.workers {
            let now = replica.global(variable)?;
            if now != Some(workers) {
                let now = now.map_or_else(|| "unknown".to_owned(), |now| now.to_string());
                return Err(replica
                    .unfit(format!("{variable} is {now} and was {workers}"))
                    .into());
            }
        }
        self.released = true;
        Ok(())
    }
}

/// An applier that is not as it was.
#[derive(Debug)]
pub(super) struct Held {
    node: Node,
    engine: Engine,
    channel: String,
    orders: Orders,
    state: Mutex<State>,
    /// An attempt has failed, so that a later success has to be said too.
    doubtful: AtomicBool,
}

/// Every one of them, for the exits that have no [`Held`] at hand.
static HELD: Mutex<Vec<Arc<Held>>> = Mutex::new(Vec::new());

fn all() -> MutexGuard<'static, Vec<Arc<Held>>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Held {
    /// A replica's applier, which [`keep`](Self::keep) has looked after. `workers` is their former
    /// number and its variable, if the run changes it.
    pub(super) fn new(
        node: &Node,
        engine: Engine,
        channel: &Channel,
        workers: Option<(u64, &'static str)>,
    ) -> Self {
        let orders = Orders {
            stop: statements::stop(engine, channel, Part::Applier),
            workers,
            start: statements::start(engine, channel, Part::Applier),
        };
        Self {
            node: node.clone(),
            engine,
            channel: channel.name.clone(),
            orders,
            state: Mutex::default(),
            doubtful: AtomicBool::new(false),
        }
    }

    /// From here on every exit brings it back.
    pub(super) fn keep(self) -> Arc<Self> {
        let held = Arc::new(self);
        all().push(Arc::clone(&held));
        held
    }

    /// It is as it was.
    pub(super) fn forget(self: &Arc<Self>) {
        all().retain(|other| !Arc::ptr_eq(other, self));
    }

    pub(super) fn connect(&self, answer: Duration) -> Result<Connection, ServerError> {
        let session = Session::open(&Node {
            answer,
            ..self.node.clone()
        })?;
        Ok(Connection {
            session,
            engine: self.engine,
            user: self.node.user.clone(),
            channel: self.channel.clone(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn stop(&self, connection: &mut Connection) -> Result<(), ServerError> {
        self.state().stop(connection, &self.orders)
    }

    pub(super) fn set_workers(
        &self,
        connection: &mut Connection,
        variable: &str,
        workers: u64,
    ) -> Result<(), ServerError> {
        self.state().send(connection, &set(variable, workers))
    }

    pub(super) fn start(&self, connection: &mut Connection) -> Result<(), ServerError> {
        self.state().send(connection, &self.orders.start)
    }

    /// One attempt. Two threads never attempt it at the same time: the `STOP` of one would follow the `START` of
    /// the other.
    fn attempt(&self, answer: Duration) -> Result<(), Failed> {
        let deadline = Instant::now() + answer;
        let mut state = loop {
            match self.state.try_lock() {
                Ok(state) => break state,
                Err(TryLockError::Poisoned(poisoned)) => break poisoned.into_inner(),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                    thread::sleep(Duration::from_millis(10))
                }
                Err(TryLockError::WouldBlock) => {
                    let (name, address) = (&self.node.name, self.node.endpoint.address());
                    return Err(ServerError::unfit(
                        name,
                        &address,
                        DOING,
                        "an earlier statement is not answered",
                        "",
                    )
                    .into());
                }
            }
        };
        if state.released {
            return Ok(());
        }
        state.bring_back(&mut self.connect(answer)?, &self.orders)
    }

    /// Says that it failed, and what a person can do.
    fn failed(&self, error: ServerError) -> ServerError {
        let Self { node, orders, .. } = self;
        ServerError {
            doing: "the applier may be stopped, or have another number of workers".to_owned(),
            cause: format!("{}: {}", error.doing, error.cause),
            hint: format!("run on {}: {}", node.name, orders.by_hand()),
            ..error
        }
    }

    /// Brings the applier back to how it was, and tries for as long as `limit` to do so; a limit of zero means
    /// once, and never again. `first` is the error that came before; `say` takes a line for the user.
    ///
    /// # Errors
    /// When it is not certain that the applier runs as before; the hint is the statements that bring it back.
    pub(super) fn release(
        self: &Arc<Self>,
        limit: Duration,
        first: Option<&dyn Display>,
        say: &dyn Fn(&str),
    ) -> Result<(), ServerError> {
        let (name, began, mut failed) = (&self.node.name, Instant::now(), 0);
        loop {
            let error = match self.attempt(attempt_timeout(began.elapsed(), limit)) {
                Ok(()) => {
                    self.forget();
                    if self.doubtful.load(Ordering::Relaxed) {
                        let workers = self
                            .orders
                            .workers
                            .map(|(workers, variable)| format!(", with {variable} = {workers}"));
                        say(&format!(
                            "the applier of {name} runs again as before{}",
                            workers.unwrap_or_default()
                        ));
                    }
                    return Ok(());
                }
                Err(Failed::Broken(error)) => {
                    self.doubtful.store(true, Ordering::Relaxed);
                    return Err(self.failed(error));
                }
                Err(Failed::Again(error)) => error,
            };
            failed += 1;
            let known = self.doubtful.swap(true, Ordering::Relaxed);
            let elapsed = began.elapsed();
            let Some(pause) = pause(failed, elapsed, limit) else {
                if limit.is_zero() {
                    self.forget();
                }
                return Err(self.failed(error));
            };
            if !known {
                let first = first.map_or_else(String::new, |first| format!("{first}; "));
                let error = self.failed(error);
                say(&format!("{first}{error}; {}", error.hint));
            }
            let left = (limit.saturating_sub(elapsed)).as_secs_f64().ceil();
            say(&format!(
                "trying to start the applier of {name} again, {left:.0} s left"
            ));
            thread::sleep(pause);
        }
    }
}

/// Brings every applier that is still held back to how it was, for a process that ends; returns, in
/// words, what could not be brought back, with the statements that do it. `say` takes a line for the user.
pub fn restore_all(say: &dyn Fn(&str)) -> Vec<String> {
    // No lock is kept meanwhile: another thread may be about to add or remove one.
    let held = all().clone();
    let failed = held
        .iter()
        .filter_map(|held| held.release(HURRIED_TIMEOUT, None, say).err());
    failed
        .map(|error| format!("{error}; {}", error.hint))
        .collect()
}

#[cfg(test)]
mod tests {
    use replimeter_model::target::Endpoint;

    use super::*;
    use crate::{
        MeasureError,
        backlog::{ORDER_TIMEOUT, RELEASE_TIMEOUT},
    };

    const WORKERS: Option<(u64, &str)> = Some((3, "slave_parallel_threads"));

    fn orders(workers: Option<(u64, &'static str)>) -> Orders {
        Orders {
            stop: "STOP SLAVE SQL_THREAD;".to_owned(),
            workers,
            start: "START SLAVE SQL_THREAD;".to_owned(),
        }
    }

    fn error(kind: ErrorKind, cause: &str) -> ServerError {
        ServerError {
            kind,
            ..ServerError::unfit("replica1", "h:1", "cannot execute", cause, "")
        }
    }

    /// A replica that answers every statement except one.
    struct Scripted {
        number: u32,
        fails: Option<(&'static str, ErrorKind)>,
        connections: Vec<u32>,
        applier: (bool, &'static str),
        workers: u64,
        sent: Vec<String>,
    }

    impl Scripted {
        fn new(number: u32) -> Self {
            Self {
                number,
                fails: None,
                connections: vec![number],
                applier: (true, ""),
                workers: 3,
                sent: Vec::new(),
            }
        }

        fn failing(number: u32, statement: &'static str, kind: ErrorKind) -> Self {
            Self {
                fails: Some((statement, kind)),
                ..Self::new(number)
            }
        }
    }

    impl Replica for Scripted {
        fn connection(&self) -> u32 {
            self.number
        }

        fn execute(&mut self, statement: &str) -> Result<(), ServerError> {
            self.sent.push(statement.trim_end_matches(';').to_owned());
            match self.fails.filter(|(word, _)| statement.starts_with(word)) {
                Some((_, kind)) => Err(error(kind, "no answer in time")),
                None => Ok(()),
            }
        }

        fn connections(&mut self) -> Result<Vec<u32>, ServerError> {
            Ok(self.connections.clone())
        }

        fn applier(&mut self) -> Result<(bool, String), ServerError> {
            Ok((self.applier.0, self.applier.1.to_owned()))
        }

        fn global(&mut self, _: &str) -> Result<Option<u64>, ServerError> {
            Ok(Some(self.workers))
        }

        fn unfit(&self, cause: String) -> ServerError {
            error(ErrorKind::Unfit, &cause)
        }
    }

    fn cause(failed: Result<(), Failed>) -> String {
        match failed {
            Err(Failed::Again(error)) => error.cause,
            other => panic!("another attempt was to be made: {other:?}"),
        }
    }

    #[test]
    fn last_attempt_begins_at_the_limit() {
        for (limit, most) in [(RELEASE_TIMEOUT, 20), (HURRIED_TIMEOUT, 6)] {
            let (mut elapsed, mut failed, mut pauses) = (Duration::ZERO, 0, Vec::new());
            while let Some(next) = pause(failed + 1, elapsed, limit) {
                failed += 1;
                elapsed += next;
                pauses.push(next);
            }
            assert_eq!(elapsed, limit);
            assert!((4..=most).contains(&failed), "{pauses:?}");
            assert!(
                pauses[..pauses.len() - 1].is_sorted()
                    && pauses.iter().all(|pause| *pause <= PAUSES[1]),
                "{pauses:?}"
            );
        }
        assert_eq!(
            pause(1, ORDER_TIMEOUT * 2, ORDER_TIMEOUT),
            None,
            "an attempt that takes longer than the limit is the last"
        );
        assert_eq!(
            pause(u32::MAX, Duration::ZERO, RELEASE_TIMEOUT),
            Some(PAUSES[1])
        );
    }

    #[test]
    fn a_silent_server_leaves_time_for_a_second_attempt() {
        for limit in [RELEASE_TIMEOUT, HURRIED_TIMEOUT] {
            assert!(attempt_timeout(Duration::ZERO, limit) <= limit / 2);
            assert_eq!(attempt_timeout(limit * 2, limit), ATTEMPT_TIMEOUTS[0]);
        }
    }

    #[test]
    fn unanswered_stop_ends_before_the_start() {
        let mut state = State::default();
        let mut first = Scripted::failing(7, "STOP", ErrorKind::Timeout);
        assert_eq!(
            state.stop(&mut first, &orders(None)).unwrap_err().cause,
            "no answer in time"
        );
        let mut early = Scripted {
            connections: vec![7, 8],
            ..Scripted::new(8)
        };
        let cause = cause(state.bring_back(&mut early, &orders(None)));
        assert_eq!(cause, "the statement of connection 7 has not ended");
        assert_eq!(
            early.sent,
            ["KILL 7"],
            "a START would be undone by the STOP that is still under way"
        );
        // When it has ended it is not known how: only a STOP that is answered tells.
        let mut late = Scripted::new(9);
        state.bring_back(&mut late, &orders(None)).unwrap();
        assert_eq!(
            late.sent,
            ["STOP SLAVE SQL_THREAD", "START SLAVE SQL_THREAD"]
        );
    }

    #[test]
    fn stop_that_the_server_gave_up_is_repeated() {
        let mut state = State::default();
        // MySQL: the applier got the signal and will stop later (rpl_stop_replica_timeout).
        state
            .stop(
                &mut Scripted::failing(7, "STOP", ErrorKind::Statement(1875)),
                &orders(None),
            )
            .unwrap_err();
        let mut again = Scripted {
            connections: vec![7, 8],
            ..Scripted::new(8)
        };
        state.bring_back(&mut again, &orders(None)).unwrap();
        assert_eq!(
            again.sent,
            ["STOP SLAVE SQL_THREAD", "START SLAVE SQL_THREAD"]
        );
    }

    #[test]
    fn stopped_applier_is_only_started() {
        let mut state = State::default();
        let mut replica = Scripted::new(7);
        state.stop(&mut replica, &orders(None)).unwrap();
        state.bring_back(&mut replica, &orders(None)).unwrap();
        assert_eq!(
            replica.sent,
            ["STOP SLAVE SQL_THREAD", "START SLAVE SQL_THREAD"]
        );
        assert!(
            state.send(&mut replica, "STOP SLAVE SQL_THREAD;").is_err(),
            "a released applier is not stopped again"
        );
        assert_eq!(replica.sent.len(), 2);
    }

    #[test]
    fn an_answer_alone_is_no_success() {
        let mut idle = Scripted {
            applier: (false, ""),
            ..Scripted::new(7)
        };
        assert_eq!(
            cause(State::default().bring_back(&mut idle, &orders(WORKERS))),
            "it was started and does not run"
        );
        let mut other = Scripted {
            workers: 5,
            ..Scripted::new(7)
        };
        let mut state = State::default();
        assert_eq!(
            cause(state.bring_back(&mut other, &orders(WORKERS))),
            "slave_parallel_threads is 5 and was 3"
        );
        other.workers = 3;
        other.sent.clear();
        state.bring_back(&mut other, &orders(WORKERS)).unwrap();
        assert_eq!(
            other.sent,
            [
                "STOP SLAVE SQL_THREAD",
                "SET GLOBAL slave_parallel_threads = 3",
                "START SLAVE SQL_THREAD"
            ]
        );
        let mut broken = Scripted {
            applier: (false, "Duplicate entry"),
            ..Scripted::new(7)
        };
        let failed = State::default().bring_back(&mut broken, &orders(None));
        assert!(
            matches!(&failed, Err(Failed::Broken(error)) if error.cause.ends_with("Duplicate entry")),
            "{failed:?}"
        );
    }

    #[test]
    fn no_time_is_one_attempt() {
        // Port 1 of this machine: the connection is refused.
        let node = Node {
            name: "replica1".to_owned(),
            endpoint: Endpoint::parse("mysql://127.0.0.1:1").unwrap().0,
            user: String::new(),
            password: None,
            answer: Duration::from_secs(1),
            namespace: None,
        };
        let held = Held::new(&node, Engine::MariaDb, &Channel::default(), None).keep();
        let said = std::cell::RefCell::new(Vec::new());
        let error = held
            .release(Duration::ZERO, None, &|line| {
                said.borrow_mut().push(line.to_owned())
            })
            .unwrap_err();
        assert!(
            error.hint.starts_with("run on replica1: STOP SLAVE"),
            "{error:?}"
        );
        assert!(said.borrow().is_empty(), "{said:?}");
        assert!(
            !all().iter().any(|other| Arc::ptr_eq(other, &held)),
            "it is not tried again at exit"
        );
    }

    #[test]
    fn both_errors_are_shown() {
        let held = ServerError {
            hint: format!("run on replica1: {}", orders(WORKERS).by_hand()),
            ..error(ErrorKind::Lost, "gone")
        };
        let first = MeasureError::Server(ServerError {
            hint: "restart it".to_owned(),
            ..error(ErrorKind::Timeout, "stalled")
        });
        let both = MeasureError::Held {
            first: Box::new(first),
            held,
        };
        assert_eq!(
            both.to_string(),
            "replica1 (h:1): cannot execute: stalled; replica1 (h:1): cannot execute: gone"
        );
        let statements =
            "STOP SLAVE SQL_THREAD; SET GLOBAL slave_parallel_threads = 3; START SLAVE SQL_THREAD;";
        assert_eq!(
            both.hint(),
            format!("restart it; run on replica1: {statements}")
        );
    }
}
