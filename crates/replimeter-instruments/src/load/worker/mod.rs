//! One connection of a load: repeats operations. The connections of a thread share its event loop.

mod connection;
mod shared;

use std::{
    cell::RefCell,
    fs,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use replimeter_engine::{
    ErrorClass, ErrorKind, ServerError,
    dialect::connections::OpenedConnection,
    wire::{ServerRefusal, StatementError},
};
use replimeter_model::time::Nanos;

pub(super) use self::{
    connection::{LoadTarget, LoopTarget, WorkerConnection, run},
    shared::Shared,
};
use super::{
    OPERATION,
    event_loop::TaskHandle,
    latency_recorder::{LoopStatus, WorkerStatus},
    program::{Program, Routine, RoutineStep, Scratch},
    statistics::LoadStatistics,
    value::Draw,
};
use crate::{
    clock::{Clock, thread_cpu},
    kill::GivenUp,
};

/// Number of retries of an operation after a deadlock or a lock timeout.
const RETRIES: u32 = 10;
/// Number of consecutive failures from which a connection pauses after each one.
const BROKEN: u32 = 20;
/// The pause after such a failure, so that a load that always fails does not spin.
const AFTER_FAILURE: Duration = Duration::from_millis(10);
/// Pause before a retry on a member that is not ready.
const BEFORE_READY: Duration = Duration::from_millis(10);
/// Pause before reconnecting.
const BEFORE_RECONNECT: Duration = Duration::from_millis(100);
/// How long the server may take to end a connection that was killed.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// What the connections of one thread share.
pub(super) struct WorkerContext {
    pub(super) program: Arc<Program>,
    pub(super) shared: Arc<Shared>,
    pub(super) status: Arc<LoopStatus>,
    pub(super) given_up: Arc<GivenUp>,
    pub(super) clock: Clock,
    pub(super) window: RefCell<WindowCounts>,
}

/// Counts of one thread in one window.
pub(super) struct WindowCounts {
    pub(super) statistics: LoadStatistics,
    /// Operations per server.
    pub(super) by_node: Vec<u64>,
    marks: Option<UsageMarks>,
    /// Sum of the connections' times from the start of the first counted operation to the end of the last one.
    pub(super) busy: Nanos,
    /// Pings answered per second.
    pub(super) pings: f64,
}

impl WindowCounts {
    pub(super) fn new(open: bool, nodes: usize) -> Self {
        Self {
            statistics: LoadStatistics::new(open),
            by_node: vec![0; nodes],
            marks: None,
            busy: Nanos(0),
            pings: 0.0,
        }
    }

    /// Returns the processor time, and the time that the thread was ready to run but had no core, since counting began.
    pub(super) fn usage(&mut self) -> (Duration, Option<Duration>) {
        let marks = self.marks.take();
        marks.map_or((Duration::ZERO, None), UsageMarks::until_now)
    }
}

/// State of a connection.
pub(super) struct Worker {
    /// Its index in the load group, from 0.
    pub(super) index: usize,
    /// The index of its server in the load group.
    pub(super) node: usize,
    pub(super) link: Option<WorkerConnection>,
    /// The connection before, if it was given up and may still be open on the server.
    pub(super) given_up: Option<OpenedConnection>,
    pub(super) place: LoopTarget,
    pub(super) status: Arc<WorkerStatus>,
    pub(super) task: TaskHandle,
    pub(super) draw: Draw,
    /// Whether the current operation started in the counted time.
    pub(super) counts: bool,
}

/// Processor time and waiting time for a core, when counting began.
struct UsageMarks {
    cpu: Duration,
    delay: Option<Duration>,
}

impl UsageMarks {
    fn take() -> Self {
        Self {
            cpu: thread_cpu(),
            delay: scheduler_delay(),
        }
    }

    /// Returns the difference to now.
    fn until_now(self) -> (Duration, Option<Duration>) {
        let end = Self::take();
        let delay = end
            .delay
            .zip(self.delay)
            .map(|(end, begin)| end.saturating_sub(begin));
        (end.cpu - self.cpu, delay)
    }
}

/// Returns the time that this thread was ready to run but had no core, since it started.
fn scheduler_delay() -> Option<Duration> {
    let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace()
        .nth(1)?
        .parse()
        .ok()
        .map(Duration::from_nanos)
}

impl Worker {
    /// Connects, and prepares the statements.
    ///
    /// # Errors
    /// Those of [`WorkerConnection::open`].
    pub(super) async fn connect(
        &mut self,
        context: &WorkerContext,
    ) -> Result<(), (Option<usize>, ServerError)> {
        let link = WorkerConnection::open(&self.place, &context.program, &self.task).await?;
        self.status.connected(&link.channel);
        self.link = Some(link);
        Ok(())
    }

    /// Runs operations until the window ends.
    pub(super) async fn load(&mut self, context: &WorkerContext) {
        let WorkerContext {
            program,
            shared,
            status,
            clock,
            window,
            ..
        } = context;
        let mut scratch = Scratch::default();
        let mut words = String::new();
        let (mut first_counted, mut last_counted) = (None, Nanos(0));
        let mut last = clock.now();
        let mut before = self.draw.clone();
        let mut in_a_row = 0u32;
        while !shared.stopped() {
            let (intended, began) = match shared.rate {
                None => (last, last),
                Some(open) => {
                    let due = shared.take_due_time(open);
                    if !self.sleep_until(context, due).await {
                        shared.return_due_time();
                        break;
                    }
                    (due, clock.now())
                }
            };
            let (from, until) = shared.span();
            if began >= until {
                if shared.rate.is_some() {
                    shared.return_due_time();
                }
                break;
            }
            // An operation counts by its start, however long it takes: counted by their ends, those
            // that a stall delays beyond the end of the window would be missing from the latencies.
            self.counts = began >= from;
            if self.counts && first_counted.is_none() {
                first_counted = Some(began);
                window
                    .borrow_mut()
                    .marks
                    .get_or_insert_with(UsageMarks::take);
                self.task.count_delays();
            }
            self.draw.pass += 1;
            before.restore(&self.draw);
            let routine = program.choose(&mut self.draw);
            self.status.begins(intended);
            let done = self
                .one(context, routine, &before, &mut scratch, &mut words)
                .await;
            let ended = clock.now();
            last = ended;
            self.status.ends();
            if self.counts {
                last_counted = ended;
            }
            if done {
                in_a_row = 0;
                status.completed(ended - intended);
                if self.counts {
                    let window = &mut *window.borrow_mut();
                    window.by_node[self.node] += 1;
                    window.statistics.operation(
                        [began - from, ended - from],
                        ended - intended,
                        ended - began,
                        routine.statements,
                    );
                }
            } else if !shared.stopped() {
                status.failed.fetch_add(1, Ordering::Relaxed);
                window.borrow_mut().statistics.failed += u64::from(self.counts);
                in_a_row = in_a_row.saturating_add(1);
                // A client that gets an error continues at once.
                if in_a_row >= BROKEN {
                    self.task.sleep(AFTER_FAILURE).await;
                    last = clock.now();
                }
            }
        }
        let busy = first_counted.map_or(Nanos(0), |first| last_counted - first);
        let window = &mut *window.borrow_mut();
        window.busy = window.busy + busy;
    }

    /// Sends pings for this time.
    pub(super) async fn ping(&mut self, context: &WorkerContext, length: Duration) {
        let began = Instant::now();
        let mut answered = 0u64;
        while began.elapsed() < length && !context.shared.stopped() {
            let Some(link) = &mut self.link else { break };
            if link.channel.ping().await.is_err() {
                break;
            }
            answered += 1;
        }
        let pings = answered as f64 / began.elapsed().as_secs_f64().max(1e-9);
        context.window.borrow_mut().pings += pings;
    }

    /// Sleeps; returns false when the load was stopped before.
    async fn sleep_until(&self, context: &WorkerContext, point: Nanos) -> bool {
        loop {
            if context.shared.stopped() {
                return false;
            }
            let now = context.clock.now();
            let until = context.shared.span().1;
            if now >= until {
                return false;
            }
            if now >= point {
                return true;
            }
            self.task.sleep_until(point.min(until)).await;
        }
    }

    /// Runs one operation and retries it with the same values where that may help; returns whether it
    /// was completed.
    #[inline]
    async fn one(
        &mut self,
        context: &WorkerContext,
        routine: &Routine,
        before: &Draw,
        scratch: &mut Scratch,
        words: &mut String,
    ) -> bool {
        let program = &*context.program;
        for attempt in 0..=RETRIES {
            if attempt > 0 {
                self.draw.restore(before);
                // The choice of the operation was drawn too.
                let _ = program.choose(&mut self.draw);
            }
            let Some(link) = &mut self.link else {
                self.reconnect(context, None).await;
                return false;
            };
            let done = run(link, program, routine, &mut self.draw, scratch, words).await;
            let Err((step, failed)) = done else {
                return true;
            };
            if context.shared.stopped() {
                if matches!(failed, StatementError::Broken(_)) {
                    self.link = None;
                    self.status.disconnected();
                }
                return false;
            }
            match failed {
                StatementError::Refused(refusal) => {
                    let why = self.refused(context, &refusal).await;
                    match why.map(|why| self.really(why, routine, step)) {
                        Some(why) if attempt < RETRIES => {
                            context.status.retries.fetch_add(1, Ordering::Relaxed);
                            if self.counts {
                                context.window.borrow_mut().statistics.retry(why);
                            }
                            if why == ErrorClass::NotReady {
                                self.task.sleep(BEFORE_READY).await;
                            }
                        }
                        _ => return false,
                    }
                }
                StatementError::Broken(error) => {
                    self.broken(context, error).await;
                    return false;
                }
            }
        }
        false
    }

    /// Returns the true reason of a retry: in a Galera cluster a deadlock outside of a transaction, or
    /// at its commit, is a conflict with another member's write. Inside of a transaction the cause is
    /// unknown.
    fn really(&self, why: ErrorClass, routine: &Routine, step: usize) -> ErrorClass {
        let alone = match routine.steps.get(step) {
            None => true,
            Some(RoutineStep::Prepared { .. }) => !routine.transaction,
            Some(RoutineStep::Words(_)) => routine.steps.len() == 1,
        };
        if why == ErrorClass::Deadlock && self.place.target.certifies && alone {
            ErrorClass::Certification
        } else {
            why
        }
    }

    /// Records an error and rolls back; returns why the operation may be retried, if it may.
    async fn refused(
        &mut self,
        context: &WorkerContext,
        refusal: &ServerRefusal,
    ) -> Option<ErrorClass> {
        if self.counts {
            let ServerRefusal {
                code,
                state,
                message,
            } = refusal;
            context.window.borrow_mut().statistics.error(
                Some(*code),
                &format!("{message} (error {code}, SQLSTATE {state})"),
            );
        }
        if let Some(link) = &mut self.link
            && let Err(error) = link.channel.roll_back().await
        {
            self.broken(context, error).await;
            return None;
        }
        Some(refusal.class()).filter(|class| class.is_retried())
    }

    /// Records the loss of the connection, and reconnects.
    async fn broken(&mut self, context: &WorkerContext, error: ServerError) {
        if self.counts {
            let statistics = &mut context.window.borrow_mut().statistics;
            statistics.error(None, &error.cause);
        }
        self.reconnect(context, Some(error)).await;
    }

    /// Closes a connection whose operation was given up, and begins to end it on the server.
    pub(super) fn give_up(&mut self, given_up: &Arc<GivenUp>) {
        self.status.disconnected();
        if let Some(link) = self.link.take() {
            let opened = link.channel.opened();
            given_up.add(&self.place.target.node, opened);
            self.given_up = Some(opened);
        }
    }

    /// Waits until the server has ended a connection that was given up; returns whether another one may be opened.
    async fn await_end(&mut self, context: &WorkerContext, error: Option<&ServerError>) -> bool {
        let Some(opened) = self.given_up else {
            return true;
        };
        let deadline = Instant::now() + END_TIMEOUT;
        while context.given_up.contains(opened) {
            if context.shared.stopped() || context.clock.now() >= context.shared.span().1 {
                return false;
            }
            if Instant::now() >= deadline {
                let node = &self.place.target.node;
                let cause = format!(
                    "its connection {} was killed and has not ended",
                    opened.number
                );
                let hint = "check whether the server is stalled";
                let mut first = error
                    .cloned()
                    .unwrap_or_else(|| node.precondition(OPERATION, "no answer", hint));
                first.cause = format!("{}; {cause}", first.cause);
                context.shared.fail(first);
                return false;
            }
            self.task.sleep(BEFORE_RECONNECT).await;
        }
        self.given_up = None;
        true
    }

    /// Reconnects, for as long as the load group retries; the current operation fails in any case.
    async fn reconnect(&mut self, context: &WorkerContext, mut error: Option<ServerError>) {
        if error
            .as_ref()
            .is_some_and(|error| error.kind == ErrorKind::Timeout)
        {
            self.give_up(&context.given_up);
        }
        self.link = None;
        self.status.disconnected();
        if !self.await_end(context, error.as_ref()).await {
            return;
        }
        let shared = &context.shared;
        let deadline = Instant::now() + shared.patience;
        loop {
            self.task.sleep(BEFORE_RECONNECT).await;
            if shared.stopped() || context.clock.now() >= shared.span().1 {
                return;
            }
            let Err((_, again)) = self.connect(context).await else {
                return;
            };
            // Another server than the named one remains another.
            if again.kind == ErrorKind::Unfit || Instant::now() >= deadline {
                // The first message has the cause; the last one only shows that it persists.
                let mut first = error.unwrap_or_else(|| again.clone());
                if first.cause != again.cause {
                    first.cause = format!("{}; then: {}", first.cause, again.cause);
                    if !again.unanswered() {
                        // The server is there, and this is what to mend.
                        (first.kind, first.hint) = (again.kind, again.hint);
                    }
                }
                shared.fail(first);
                return;
            }
            // One lost connection counts once, however often reconnecting is tried.
            error.get_or_insert(again);
        }
    }
}
