//! The connections to one server: threads that take requests from a bounded queue.

use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use replimeter_engine::{
    Connections, ErrorKind, Interrupter, Node, ServerError, Session,
    dialect::{connections::OpenedConnection, waits::PreparedWait},
    facts::ServerFacts,
    position::WrittenId,
    sync::lock,
};
use replimeter_instruments::{
    clock::Clock,
    kill::{GivenUp, kill},
};
use replimeter_model::time::Nanos;
use tokio::sync::oneshot;

use super::posts::{self, Form, Post};

/// Requests that may wait for a connection.
const MAX_WAITING: usize = 1000;
/// How long a replica may take to apply a visitor's post before the primary is read instead.
pub(super) const WAIT_LIMIT: Duration = Duration::from_secs(1);
/// Timeout of an answer of the server.
const ANSWER: Duration = Duration::from_secs(10);
/// Time for statements in progress when the pool ends.
const END_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout of ending statements on the server.
const KILL_TIMEOUT: Duration = Duration::from_secs(1);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// What a server is asked for.
pub(super) enum Work {
    Insert(Form),
    /// Posts of a form from this number on.
    Select(Form, u64),
    /// The newest posts, and this one.
    Newest(Option<u64>),
}

/// What it answered.
pub(super) enum WorkResult {
    Inserted {
        post: u64,
        commit_id: Option<String>,
    },
    Posts(Vec<Post>),
}

/// Why it did not.
#[derive(Clone, Debug)]
pub(super) enum Refusal {
    /// Too many requests wait already, or the front ends.
    Busy,
    /// The server is not in use.
    OutOfUse(String),
    /// It had not applied the awaited transaction in time.
    NotApplied,
    Failed(ServerError),
}

/// What a server took for a request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TimeSpent {
    /// The wait for a transaction.
    pub(super) wait: Nanos,
    /// The statement.
    pub(super) statement: Nanos,
}

/// An answer, and the time that the server took for it.
pub(super) type Reply = (Result<WorkResult, Refusal>, TimeSpent);

struct Job {
    work: Work,
    after: Option<String>,
    reply: oneshot::Sender<Reply>,
}

/// A server, and what its connections have to be able to do.
#[derive(Clone)]
pub(super) struct PoolSpec {
    pub(super) node: Node,
    pub(super) facts: ServerFacts,
    /// Whether writes return their commit ids.
    pub(super) returns_commit_id: bool,
    /// Whether reads can wait for a commit.
    pub(super) can_wait: bool,
}

/// The connections to a server.
pub(super) struct Pool {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    spec: PoolSpec,
    clock: Clock,
    queue: Mutex<Queue>,
    arrived: Condvar,
    /// Why the server is not in use; `None` while it is.
    out: Mutex<Option<String>>,
    /// Counts how often it came back: older connections are opened again.
    returned: AtomicU64,
    /// Each thread's connection, and what closes it.
    connections: Mutex<Vec<Option<(OpenedConnection, Interrupter)>>>,
    /// Connections that are not replaced yet.
    given_up: Arc<GivenUp>,
    /// Threads that wait for the end of such a connection.
    without_connection: AtomicUsize,
    ended: AtomicBool,
}

type Queue = VecDeque<Job>;

/// An open connection.
struct Connection {
    session: Session,
    returned: u64,
    commit_id: Option<WrittenId>,
    wait: Option<PreparedWait>,
}

impl PoolSpec {
    fn connect(&self) -> Result<(Session, Option<WrittenId>, Option<PreparedWait>), ServerError> {
        let mut session = Session::open(&Node {
            answer: ANSWER,
            ..self.node.clone()
        })?;
        let commit_id = self
            .returns_commit_id
            .then(|| WrittenId::prepare(&mut session, &self.facts));
        let commit_id = commit_id.transpose()?;
        let wait = self
            .can_wait
            .then(|| PreparedWait::prepare(&mut session, &self.facts));
        let wait = wait.transpose()?;
        Ok((session, commit_id, wait))
    }
}

impl Pool {
    /// Opens the connections, each with its thread.
    ///
    /// # Errors
    /// When the server refuses one, cannot do what `spec` asks for, or the system refuses a thread.
    pub(super) fn start(
        name: &str,
        spec: PoolSpec,
        connections: u32,
        clock: Clock,
        given_up: &Arc<GivenUp>,
    ) -> Result<Self, ServerError> {
        let shared = Arc::new(Shared {
            clock,
            given_up: Arc::clone(given_up),
            without_connection: AtomicUsize::new(0),
            queue: Mutex::default(),
            arrived: Condvar::new(),
            out: Mutex::default(),
            returned: AtomicU64::new(0),
            connections: Mutex::new((0..connections).map(|_| None).collect()),
            ended: AtomicBool::new(false),
            spec,
        });
        let pool = Self {
            shared: Arc::clone(&shared),
            threads: Mutex::default(),
        };
        for index in 0..connections as usize {
            let connection = Some(shared.connect(index)?);
            let shared = Arc::clone(&shared);
            let thread = thread::Builder::new()
                .name(name.to_owned())
                .spawn(move || shared.serve(index, connection));
            let thread = thread.map_err(|error| no_thread(&pool.shared.spec.node, &error))?;
            lock(&pool.threads).push(thread);
        }
        Ok(pool)
    }

    /// Returns the server's name.
    pub(super) fn name(&self) -> &str {
        &self.shared.spec.node.name
    }

    /// Returns the connections of the run.
    pub(super) fn connections(&self) -> &Connections {
        &self.shared.spec.node.connections
    }

    /// Returns why the server is not in use; `None` while it is.
    pub(super) fn out(&self) -> Option<String> {
        self.shared.out()
    }

    /// Takes the server into use, or out of it for a reason. Returns whether that changed.
    pub(super) fn set_out(&self, reason: Option<String>) -> bool {
        self.shared.set_out(reason)
    }

    /// Asks the server, after it has applied `after`.
    pub(super) async fn ask(&self, work: Work, after: Option<String>) -> Reply {
        let refused = |refusal| (Err(refusal), TimeSpent::default());
        if let Some(reason) = self.out() {
            return refused(Refusal::OutOfUse(reason));
        }
        let (reply, answered) = oneshot::channel();
        {
            let mut queue = lock(&self.shared.queue);
            if self.shared.ended.load(Ordering::Relaxed) || queue.len() >= MAX_WAITING {
                return refused(Refusal::Busy);
            }
            queue.push_back(Job { work, after, reply });
        }
        self.shared.arrived.notify_one();
        answered.await.unwrap_or_else(|_| refused(Refusal::Busy))
    }

    /// Ends the threads. Statements in progress have some time, then they are ended on the server too, so that none of them
    /// runs after this.
    pub(super) fn end(&self) {
        {
            let mut queue = lock(&self.shared.queue);
            self.shared.ended.store(true, Ordering::Relaxed);
            // Their requests are answered: the senders are dropped.
            queue.clear();
        }
        self.shared.arrived.notify_all();
        let threads = std::mem::take(&mut *lock(&self.threads));
        let all_ended = || threads.iter().all(JoinHandle::is_finished);
        let deadline = Instant::now() + END_TIMEOUT;
        while !all_ended() && Instant::now() < deadline {
            thread::sleep(POLL_INTERVAL);
        }
        if !all_ended() {
            let open = std::mem::take(&mut *lock(&self.shared.connections));
            let opened = open.iter().flatten().map(|(opened, _)| *opened);
            kill(&self.shared.spec.node, opened, KILL_TIMEOUT);
            for (_, interrupter) in open.into_iter().flatten() {
                interrupter.shut_down();
            }
        }
        for thread in threads {
            let _ = thread.join();
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.end();
    }
}

fn no_thread(node: &Node, error: &io::Error) -> ServerError {
    node.precondition(
        "cannot start a connection",
        format!("the system refuses a thread: {error}"),
        "use fewer --connections, or raise the limit of processes (ulimit -u)",
    )
}

impl Shared {
    fn out(&self) -> Option<String> {
        let waiting = self.without_connection.load(Ordering::Relaxed);
        let none_left = || {
            let all = lock(&self.connections).len();
            (all > 0 && waiting >= all)
                .then(|| "no connection has ended its last statement".to_owned())
        };
        lock(&self.out).clone().or_else(none_left)
    }

    fn set_out(&self, reason: Option<String>) -> bool {
        let mut out = lock(&self.out);
        let changed = out.is_some() != reason.is_some();
        if changed && reason.is_none() {
            self.returned.fetch_add(1, Ordering::Relaxed);
        }
        *out = reason;
        changed
    }

    /// Takes the server out of use after a connection was refused, unless by this process or machine.
    fn set_out_if_away(&self, error: &ServerError) {
        if error.unanswered() {
            self.set_out(Some(error.to_string()));
        }
    }

    /// Returns the next request; `None` when the pool has ended.
    fn next(&self) -> Option<Job> {
        let mut queue = lock(&self.queue);
        loop {
            if self.ended.load(Ordering::Relaxed) {
                return None;
            }
            if let Some(job) = queue.pop_front() {
                return Some(job);
            }
            let waited = self.arrived.wait(queue);
            queue = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Takes requests until the pool ends.
    fn serve(&self, index: usize, mut connection: Option<Connection>) {
        while let Some(job) = self.next() {
            // The request has ended.
            if job.reply.is_closed() {
                continue;
            }
            let mut took = TimeSpent::default();
            let result = self.perform(index, &mut connection, &job, &mut took);
            let is_unanswered =
                matches!(&result, Err(Refusal::Failed(error)) if error.kind == ErrorKind::Timeout);
            let _ = job.reply.send((result, took));
            if is_unanswered && let Some(given_up) = connection.take() {
                self.await_end(index, &given_up);
            }
        }
    }

    /// Waits until the server has ended a connection whose statement was given up: the thread has no other one before.
    fn await_end(&self, index: usize, connection: &Connection) {
        let opened = connection.session.opened();
        if let Some(known) = lock(&self.connections).get_mut(index) {
            *known = None;
        }
        self.given_up.add(&self.spec.node, opened);
        self.without_connection.fetch_add(1, Ordering::Relaxed);
        while self.given_up.contains(opened) && !self.ended.load(Ordering::Relaxed) {
            thread::sleep(POLL_INTERVAL);
        }
        self.without_connection.fetch_sub(1, Ordering::Relaxed);
    }

    /// Opens the connection of a thread.
    fn connect(&self, index: usize) -> Result<Connection, ServerError> {
        let returned = self.returned.load(Ordering::Relaxed);
        let (session, commit_id, wait) = self.spec.connect()?;
        let mut connections = lock(&self.connections);
        // They are gone when the pool has ended.
        if let Some(known) = connections.get_mut(index) {
            *known = Some((session.opened(), session.interrupter()));
        } else {
            session.interrupter().shut_down();
        }
        Ok(Connection {
            session,
            returned,
            commit_id,
            wait,
        })
    }

    /// Performs a request over the thread's connection, which is opened again if it ended or the server was away. A server that
    /// refuses even a new connection is taken out of use.
    fn perform(
        &self,
        index: usize,
        connection: &mut Option<Connection>,
        job: &Job,
        took: &mut TimeSpent,
    ) -> Result<WorkResult, Refusal> {
        // A read whose connection broke is repeated once, since others can close idle connections.
        let attempts = if matches!(job.work, Work::Insert(_)) {
            1
        } else {
            2
        };
        let mut last = Refusal::Busy;
        for _ in 0..attempts {
            if let Some(reason) = self.out() {
                return Err(Refusal::OutOfUse(reason));
            }
            let returned = self.returned.load(Ordering::Relaxed);
            let known = connection.take().filter(|open| open.returned == returned);
            let open = match known.map_or_else(|| self.connect(index), Ok) {
                Ok(open) => connection.insert(open),
                Err(error) => {
                    self.set_out_if_away(&error);
                    return Err(Refusal::Failed(error));
                }
            };
            match open.perform(job, &self.clock, took) {
                // One connection that breaks, or one slow statement, is no absence of the server.
                Err(Refusal::Failed(error)) if error.kind == ErrorKind::Lost => {
                    let again = self.connect(index);
                    *connection = again.inspect_err(|error| self.set_out_if_away(error)).ok();
                    last = Refusal::Failed(error);
                }
                result => return result,
            }
        }
        Err(last)
    }
}

impl Connection {
    fn perform(
        &mut self,
        job: &Job,
        clock: &Clock,
        took: &mut TimeSpent,
    ) -> Result<WorkResult, Refusal> {
        let session = &mut self.session;
        let began = clock.now();
        if let (Some(commit_id), Some(wait)) = (&job.after, &self.wait) {
            let applied = wait.wait(session, commit_id, WAIT_LIMIT);
            took.wait = clock.now() - began;
            if !applied.map_err(Refusal::Failed)? {
                return Err(Refusal::NotApplied);
            }
        }
        let began = clock.now();
        let done = match &job.work {
            Work::Insert(form) => posts::insert(session, form).map(|post| WorkResult::Inserted {
                post,
                commit_id: None,
            }),
            Work::Select(form, first) => {
                posts::select(session, form, *first).map(WorkResult::Posts)
            }
            Work::Newest(own) => posts::newest(session, *own).map(WorkResult::Posts),
        };
        took.statement = clock.now() - began;
        match (done, self.commit_id) {
            // The post exists, even if its commit id cannot be read.
            (Ok(WorkResult::Inserted { post, .. }), Some(commit_id)) => Ok(WorkResult::Inserted {
                post,
                commit_id: commit_id.of_last_write(session).ok().flatten(),
            }),
            (done, _) => done.map_err(Refusal::Failed),
        }
    }
}
