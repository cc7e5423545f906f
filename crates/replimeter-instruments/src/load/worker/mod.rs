//! One thread of a load: repeats operations on its own connection.

mod connection;
mod shared;

use std::{
    collections::HashMap,
    fs,
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{Receiver, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use replimeter_engine::{
    Node, ServerError,
    wire::{ServerRefusal, StatementError},
};
use replimeter_model::time::Nanos;

pub(super) use self::{
    connection::{LoadTarget, OPERATION, WorkerConnection, roll_back, run},
    shared::Shared,
};
use super::{
    latency_recorder::WorkerStatus,
    program::{Program, Routine, RoutineStep, Scratch},
    statistics::{LoadStatistics, RetryReason},
    value::Draw,
};
use crate::clock::{Clock, thread_cpu};

/// Number of retries of an operation after a deadlock or a lock timeout.
const RETRIES: u32 = 10;
/// Number of consecutive failures from which a thread pauses after each one.
const BROKEN: u32 = 20;
/// The pause after such a failure, so that a load that always fails does not spin.
const AFTER_FAILURE: Duration = Duration::from_millis(10);
/// Pause before a retry on a member that is not ready.
const BEFORE_READY: Duration = Duration::from_millis(10);
/// Pause before reconnecting.
const BEFORE_RECONNECT: Duration = Duration::from_millis(100);
/// The longest sleep, so that the stop is noticed.
const MAX_SLEEP: Duration = Duration::from_millis(20);

/// A command to a thread.
#[derive(Clone, Copy, Debug)]
pub(super) enum WorkerCommand {
    /// Run operations until stopped.
    Load,
    /// Send pings for this time.
    Ping(Duration),
}

/// A command and its number.
pub(super) type NumberedCommand = (u64, WorkerCommand);

/// Results of a thread.
#[derive(Debug)]
pub(super) struct WorkerReport {
    /// The number of the command that it answers.
    pub(super) generation: u64,
    pub(super) thread: usize,
    pub(super) statistics: LoadStatistics,
    pub(super) cpu: Duration,
    /// Time from the start of the first counted operation to the end of the last one.
    pub(super) busy: Nanos,
    /// Time that the thread was ready to run but had no core.
    pub(super) delay: Option<Duration>,
    /// Number of pings answered per second.
    pub(super) pings: f64,
}

/// State of a thread.
pub(super) struct Worker {
    /// Its index in the load group, from 0.
    pub(super) index: usize,
    pub(super) link: Option<WorkerConnection>,
    pub(super) place: LoadTarget,
    pub(super) program: Arc<Program>,
    pub(super) shared: Arc<Shared>,
    pub(super) status: Arc<WorkerStatus>,
    pub(super) draw: Draw,
    pub(super) clock: Clock,
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
    /// Executes commands until the sender is dropped.
    pub(super) fn serve(
        mut self,
        orders: &Receiver<NumberedCommand>,
        reports: &Sender<WorkerReport>,
    ) {
        // Ordinary priority: a load must not displace the servers. Only its sleeps end on time.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        while let Ok((generation, order)) = orders.recv() {
            let report = match order {
                WorkerCommand::Load => self.load(),
                WorkerCommand::Ping(length) => self.ping(length),
            };
            let report = WorkerReport {
                generation,
                ..report
            };
            if reports.send(report).is_err() {
                return;
            }
        }
    }

    fn load(&mut self) -> WorkerReport {
        let mut statistics = LoadStatistics::new(self.shared.rate.is_some());
        let shared = Arc::clone(&self.shared);
        let (clock, program) = (self.clock, Arc::clone(&self.program));
        let mut scratch = Scratch::default();
        let mut words = String::new();
        let mut marks: Option<UsageMarks> = None;
        let (mut first_counted, mut last_counted) = (None, Nanos(0));
        let mut last = clock.now();
        let mut before = self.draw.clone();
        let mut in_a_row = 0u32;
        while !shared.stopped() {
            let (intended, began) = match shared.rate {
                None => (last, last),
                Some(open) => {
                    let turn = shared.take_due_time(open);
                    if !self.sleep_until(turn) {
                        shared.return_due_time();
                        break;
                    }
                    (turn, clock.now())
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
            if self.counts && marks.is_none() {
                marks = Some(UsageMarks::take());
                first_counted = Some(began);
            }
            self.draw.pass += 1;
            before.restore(&self.draw);
            let routine = program.choose(&mut self.draw);
            if let Some(recorder) = &self.status.recorder {
                recorder.begins(intended);
            }
            let done = self.one(routine, &mut statistics, &before, &mut scratch, &mut words);
            let ended = clock.now();
            last = ended;
            if let Some(recorder) = &self.status.recorder {
                recorder.ended(done.then_some(ended - intended));
            }
            if self.counts {
                last_counted = ended;
            }
            if done {
                in_a_row = 0;
                // There is one writer: a plain addition, visible to all readers.
                self.status.operations.store(
                    self.status.operations.load(Ordering::Relaxed) + 1,
                    Ordering::Relaxed,
                );
                if self.counts {
                    statistics.operation(
                        [began - from, ended - from],
                        ended - intended,
                        ended - began,
                        routine.statements,
                    );
                }
            } else if !shared.stopped() {
                self.status.failed.fetch_add(1, Ordering::Relaxed);
                statistics.failed += u64::from(self.counts);
                in_a_row = in_a_row.saturating_add(1);
                // A client that gets an error continues at once.
                if in_a_row >= BROKEN {
                    thread::sleep(AFTER_FAILURE);
                    last = clock.now();
                }
            }
        }
        let (cpu, delay) = marks.map_or((Duration::ZERO, None), |begin| begin.until_now());
        WorkerReport {
            cpu,
            busy: first_counted.map_or(Nanos(0), |first| last_counted - first),
            delay,
            ..self.report(statistics)
        }
    }

    fn report(&self, statistics: LoadStatistics) -> WorkerReport {
        WorkerReport {
            generation: 0,
            thread: self.index,
            statistics,
            cpu: Duration::ZERO,
            busy: Nanos(0),
            delay: None,
            pings: 0.0,
        }
    }

    fn ping(&mut self, length: Duration) -> WorkerReport {
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
        WorkerReport {
            pings,
            ..self.report(LoadStatistics::new(false))
        }
    }

    /// Sleeps; returns false when the load was stopped before.
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
            thread::sleep(Duration::from_nanos(left.0.unsigned_abs()).min(MAX_SLEEP));
        }
    }

    /// Runs one operation and retries it with the same values where that may help; returns whether it
    /// was completed.
    #[inline]
    fn one(
        &mut self,
        routine: &Routine,
        statistics: &mut LoadStatistics,
        before: &Draw,
        scratch: &mut Scratch,
        words: &mut String,
    ) -> bool {
        for attempt in 0..=RETRIES {
            if attempt > 0 {
                self.draw.restore(before);
                // The choice of the operation was drawn too.
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
                StatementError::Refused(refusal) => match self
                    .refused(&refusal, statistics)
                    .map(|why| self.really(why, routine, step))
                {
                    Some(why) if attempt < RETRIES => {
                        self.status.retries.fetch_add(1, Ordering::Relaxed);
                        if self.counts {
                            statistics.retry(why);
                        }
                        if why == RetryReason::NotReady {
                            thread::sleep(BEFORE_READY);
                        }
                    }
                    _ => return false,
                },
                StatementError::Broken(error) => {
                    if self.counts {
                        statistics.error(None, &error.cause);
                    }
                    return self.reconnect(Some(error));
                }
            }
        }
        false
    }

    /// Returns the true reason of a retry: in a Galera cluster a deadlock outside of a transaction, or
    /// at its commit, is a conflict with another member's write. Inside of a transaction the cause is
    /// unknown.
    fn really(&self, why: RetryReason, routine: &Routine, step: usize) -> RetryReason {
        let alone = match routine.steps.get(step) {
            None => true,
            Some(RoutineStep::Prepared { .. }) => !routine.transaction,
            Some(RoutineStep::Words(_)) => routine.steps.len() == 1,
        };
        if why == RetryReason::Deadlock && self.place.galera && alone {
            RetryReason::Certification
        } else {
            why
        }
    }

    /// Records an error and rolls back; returns why the operation may be retried, if it may.
    fn refused(
        &mut self,
        refusal: &ServerRefusal,
        statistics: &mut LoadStatistics,
    ) -> Option<RetryReason> {
        if self.counts {
            let ServerRefusal {
                code,
                state,
                message,
            } = refusal;
            statistics.error(
                Some(*code),
                &format!("{message} (error {code}, SQLSTATE {state})"),
            );
        }
        if let Some(link) = &mut self.link {
            roll_back(&mut link.channel);
        }
        RetryReason::for_refusal(refusal)
    }

    /// Reconnects, for as long as the load group retries; the current operation fails in any case.
    fn reconnect(&mut self, mut error: Option<ServerError>) -> bool {
        self.link = None;
        let deadline = Instant::now() + self.shared.patience;
        loop {
            thread::sleep(BEFORE_RECONNECT);
            if self.shared.stopped() || self.clock.now() >= self.shared.span().1 {
                return false;
            }
            match WorkerConnection::open(&self.place, &self.program) {
                Ok(mut link) => {
                    self.status.takes(&mut link.channel);
                    self.link = Some(link);
                    return false;
                }
                Err((_, again)) => {
                    if Instant::now() >= deadline {
                        // The first message has the cause; the last one only shows that it persists.
                        let mut first = error.unwrap_or_else(|| again.clone());
                        if first.cause != again.cause {
                            first.cause = format!("{}; then: {}", first.cause, again.cause);
                        }
                        self.shared.fail(first);
                        return false;
                    }
                    // One lost connection counts once, however often reconnecting is tried.
                    error.get_or_insert(again);
                }
            }
        }
    }
}

/// Numbers of connections by their server's name, for killing them.
pub(super) type Connections = HashMap<String, (Node, Vec<u64>)>;
