//! Connections, shared by a few threads, run for any number of windows.

mod free_connections;
mod load_group;
mod loop_thread;
mod progress;
#[cfg(test)]
mod tests;
mod worker_group;

use std::{
    iter,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use replimeter_engine::ServerError;
use replimeter_model::{
    time::Nanos,
    warning::{Warning, WarningCode},
};

pub use self::free_connections::connection_limit;
pub use self::load_group::{GroupProgress, LoadGroup, LoadProgress};
pub(super) use self::worker_group::GroupOutcome;
use self::{
    loop_thread::{LoopCommand, LoopReport},
    progress::ProgressTicker,
    worker_group::{WorkerGroup, check, raise_file_limit},
};
use super::{latency_recorder::LatencyRecorders, result::GroupResult, worker::Shared};
use crate::{
    MeasureError,
    clock::Clock,
    kill::{GivenUp, kill_all},
};

/// How long threads may take to end at the regular end.
const AT_END: Duration = Duration::from_secs(10);
/// How long they may take after the user's stop.
const HURRIED: Duration = Duration::from_secs(3);
/// How long they may take after their connections were ended.
const AFTER_KILL: Duration = Duration::from_secs(1);
/// Interval between checks for the end of a window.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// How the operations of a pool end.
#[derive(Clone, Copy, Debug)]
pub(super) enum PoolEnd {
    /// Those in progress are completed; one that takes longer than this is killed, and counts as failed.
    Complete(Duration),
    /// The user stops the run: those in progress are not retried, and not counted if they do not end in
    /// time.
    Stop,
}

/// Open connections with prepared statements, and threads that wait for a window. When dropped, the
/// threads and connections end.
pub struct WorkerPool {
    clock: Clock,
    worker_groups: Vec<WorkerGroup>,
    given_up: Arc<GivenUp>,
    /// The number of the current command, to recognize late reports.
    generation: u64,
}

impl WorkerPool {
    /// Connects every thread of every load group, prepares every statement, and tries each once in a
    /// transaction that is rolled back (except statements with neither parameters nor reads). A script
    /// is run once, for real.
    ///
    /// # Errors
    /// When a server cannot be reached, has no more connections, or refuses a statement: with its
    /// message, the statement and its line; or when the user stops the run.
    pub fn open(
        load_groups: &[LoadGroup<'_>],
        clock: &Clock,
        stop: &AtomicBool,
    ) -> Result<Self, MeasureError> {
        Self::open_after_trial(load_groups, clock, true, stop)
    }

    pub(super) fn open_after_trial(
        load_groups: &[LoadGroup<'_>],
        clock: &Clock,
        trial: bool,
        stop: &AtomicBool,
    ) -> Result<Self, MeasureError> {
        let mut pool = Self {
            clock: *clock,
            worker_groups: Vec::new(),
            given_up: Arc::default(),
            generation: 0,
        };
        load_groups.iter().try_for_each(check)?;
        raise_file_limit(load_groups)?;
        for (number, load_group) in (0..).zip(load_groups) {
            let worker_group =
                WorkerGroup::open(load_group, number, clock, &pool.given_up, trial, stop)?;
            pool.worker_groups.push(worker_group);
        }
        Ok(pool)
    }

    /// Returns the latencies of each load group while it runs, in order; empty for a load group
    /// whose latencies are not recorded.
    #[must_use]
    pub fn recorders(&self) -> Vec<LatencyRecorders> {
        self.worker_groups
            .iter()
            .map(|worker_group| LatencyRecorders::new(&worker_group.statuses, &self.clock))
            .collect()
    }

    /// Runs all load groups concurrently: `ramp` (the warm-up) uncounted, then `length` counted;
    /// may be called repeatedly. Operations count by their start, and those in progress at the end are
    /// completed. About once a second it calls `second` with the progress, from this
    /// thread. It ends early when `stop` is set or when a load group loses its server; the results
    /// include everything until then.
    pub fn run_interval(
        &mut self,
        ramp: Duration,
        length: Duration,
        stop: &AtomicBool,
        second: &mut dyn FnMut(&LoadProgress),
    ) -> Vec<GroupResult> {
        let began = self.clock.now();
        let from = began + Nanos::from(ramp);
        let until = from + Nanos::from(length);
        self.begin(Some(from), Some(until));
        let mut ticks = ProgressTicker::new(began, from, self.worker_groups.len());
        let mut interrupted = false;
        loop {
            let now = self.clock.now();
            if stop.load(Ordering::Relaxed) {
                interrupted = true;
                break;
            }
            if now >= until
                || self
                    .worker_groups
                    .iter()
                    .any(|worker_group| worker_group.shared.failed())
            {
                break;
            }
            if now >= ticks.next {
                ticks.send_progress(now, &self.worker_groups, second);
            }
            // Counted seconds begin with the counted part, so a report is due at the end of the
            // warm-up too.
            let nearest = (ticks.next.0.min(until.0) - self.clock.now().0)
                .max(0)
                .unsigned_abs();
            thread::sleep(Duration::from_nanos(nearest).min(POLL_INTERVAL));
        }
        let now = self.clock.now();
        let counted = now > from;
        if counted {
            ticks.send_progress(now.max(until), &self.worker_groups, second);
        }
        let unanswered = self.failure().is_some_and(|error| error.unanswered());
        let ending = if interrupted {
            PoolEnd::Stop
        } else {
            PoolEnd::Complete(AT_END)
        };
        let (outcomes, _) = self.end(ending);
        if unanswered && let Some(worker_group) = self.worker_groups.first() {
            // The end of the run does not wait for it with each statement. Afterwards, since the other threads load their
            // servers until they end.
            let connections = &worker_group.places[0].node.connections;
            connections.give_up_on_silent_servers();
        }
        let worker_groups = self.worker_groups.iter().zip(outcomes).zip(ticks.waiting);
        worker_groups
            .map(
                |((worker_group, outcome), waiting_per_second)| GroupResult {
                    ramp: Nanos::from(ramp),
                    waiting_per_second,
                    interrupted,
                    ..worker_group.result(&outcome)
                },
            )
            .collect()
    }

    /// Pings over every connection for this time, and so measures how many statements per second this
    /// client can get answered at most. Returns it for each load group, and keeps it for the results; `None` if a server did
    /// not answer, or the user stops the run.
    pub fn measure_limit(&mut self, length: Duration, stop: &AtomicBool) -> Vec<Option<f64>> {
        let now = self.clock.now();
        for worker_group in &mut self.worker_groups {
            worker_group.shared.start(now, None, None);
        }
        self.order(LoopCommand::Ping(length));
        let deadline = Instant::now() + length + AT_END;
        let generation = self.generation;
        let mut limits = Vec::new();
        for worker_group in &mut self.worker_groups {
            let mut reports: Vec<_> = worker_group.commands.iter().map(|_| None).collect();
            while reports.iter().any(Option::is_none)
                && Instant::now() < deadline
                && !stop.load(Ordering::Relaxed)
            {
                let next = deadline.min(Instant::now() + POLL_INTERVAL);
                worker_group.receive_reports(generation, next, &mut reports);
            }
            let pings = reports.iter().map(|report| Some(report.as_ref()?.pings));
            worker_group.limit = pings.sum();
            limits.push(worker_group.limit);
            if worker_group.limit.is_none() {
                // What follows does not wait for these answers.
                worker_group.abandon();
                let deadline = Instant::now() + AFTER_KILL;
                worker_group.receive_reports(generation, deadline, &mut reports);
            }
        }
        limits
    }

    fn order(&mut self, command: LoopCommand) {
        self.generation += 1;
        for worker_group in &self.worker_groups {
            worker_group.order(self.generation, command);
        }
    }

    /// Starts every thread; operations that start in the span count.
    pub(super) fn begin(&mut self, from: Option<Nanos>, until: Option<Nanos>) {
        let now = self.clock.now();
        for worker_group in &self.worker_groups {
            worker_group.shared.start(now, from, until);
            worker_group
                .statuses
                .iter()
                .for_each(|status| status.reset());
        }
        self.order(LoopCommand::Load);
    }

    /// Starts counting now.
    pub(super) fn count_from_now(&self) {
        let now = self.clock.now();
        for worker_group in &self.worker_groups {
            worker_group.shared.count_from(now);
        }
    }

    /// Lets no further operation start, and waits for those in progress; returns the results of each load
    /// group, and warnings about threads that did not end.
    pub(super) fn end(&mut self, ending: PoolEnd) -> (Vec<GroupOutcome>, Vec<Warning>) {
        let now = self.clock.now();
        let waiting: Vec<Option<u64>> = self
            .worker_groups
            .iter()
            .map(|worker_group| {
                worker_group
                    .shared
                    .waiting(Nanos(now.0.min(worker_group.shared.span().1.0)))
            })
            .collect();
        let patience = match ending {
            PoolEnd::Complete(patience) => patience,
            PoolEnd::Stop => HURRIED,
        };
        for worker_group in &self.worker_groups {
            match ending {
                PoolEnd::Complete(_) => worker_group.shared.close(now),
                PoolEnd::Stop => worker_group.shared.stop(now),
            }
        }
        let generation = self.generation;
        let deadline = Instant::now() + patience;
        let mut warnings = Vec::new();
        let mut outcomes = Vec::new();
        let mut heard: Vec<Vec<Option<LoopReport>>> = Vec::new();
        for worker_group in &self.worker_groups {
            let mut reports: Vec<_> = worker_group.commands.iter().map(|_| None).collect();
            worker_group.receive_reports(generation, deadline, &mut reports);
            heard.push(reports);
        }
        let unfinished: Vec<usize> = self
            .worker_groups
            .iter()
            .map(|worker_group| worker_group.busy().len())
            .collect();
        for worker_group in &self.worker_groups {
            worker_group.shared.stop(now);
        }
        // Running statements end with their connections; what does not end by then is given up.
        let missing =
            |heard: &[Vec<Option<LoopReport>>]| heard.iter().flatten().any(Option::is_none);
        if missing(&heard) {
            self.kill();
            for give_up in [false, true] {
                let deadline = Instant::now() + AFTER_KILL;
                for (worker_group, heard) in self.worker_groups.iter().zip(&mut heard) {
                    if give_up && heard.iter().any(Option::is_none) {
                        let stuck = worker_group.busy().len();
                        warnings.extend((stuck > 0).then(|| unended(worker_group, stuck)));
                        worker_group.abandon();
                    }
                    worker_group.receive_reports(generation, deadline, heard);
                }
            }
        }
        let left = self.given_up.await_end(AFTER_KILL);
        if left > 0 && warnings.is_empty() {
            warnings.extend(
                self.worker_groups
                    .first()
                    .map(|worker_group| unended(worker_group, left)),
            );
        }
        let worker_groups = self.worker_groups.iter().zip(heard);
        for (((worker_group, reports), waiting), unfinished) in
            worker_groups.zip(waiting).zip(unfinished)
        {
            let mut outcome = worker_group.outcome(reports.into_iter().flatten(), waiting);
            if matches!(ending, PoolEnd::Complete(_)) {
                let words = format!(
                    "an operation had not ended {} s after the end of the measured time, and its connection was closed",
                    patience.as_secs()
                );
                for _ in 0..unfinished {
                    outcome.statistics.failed += 1;
                    outcome.statistics.error(None, &words);
                }
            }
            outcomes.push(outcome);
        }
        (outcomes, warnings)
    }

    /// Ends the connections with operations in progress.
    fn kill(&self) {
        let busy = self.worker_groups.iter().flat_map(WorkerGroup::busy);
        kill_all(
            busy.filter_map(|(node, opened)| Some((node, opened?))),
            AFTER_KILL,
        );
    }

    pub(super) fn result(&self, load_group: usize, outcome: &GroupOutcome) -> GroupResult {
        self.worker_groups[load_group].result(outcome)
    }

    /// Returns the empty results of load groups that have not started.
    pub(super) fn empty_outcomes(&self) -> Vec<GroupOutcome> {
        let worker_groups = self.worker_groups.iter();
        worker_groups
            .map(|worker_group| worker_group.outcome(iter::empty(), None))
            .collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.worker_groups.is_empty()
    }

    /// Returns the error that ended a load group, if any.
    pub(super) fn failure(&self) -> Option<ServerError> {
        self.worker_groups
            .iter()
            .find_map(|worker_group| worker_group.shared.failure())
    }

    /// Returns the shared state of each load group's threads.
    pub(super) fn shared(&self) -> Vec<Arc<Shared>> {
        let shared = self
            .worker_groups
            .iter()
            .map(|worker_group| Arc::clone(&worker_group.shared));
        shared.collect()
    }
}

impl Drop for WorkerPool {
    fn drop(&mut self) {
        let now = self.clock.now();
        self.given_up.stop();
        for worker_group in &mut self.worker_groups {
            worker_group.shared.stop(now);
            worker_group.commands.clear();
        }
        let deadline = Instant::now() + HURRIED;
        for worker_group in &self.worker_groups {
            worker_group.ended_by(deadline);
            worker_group.abandon();
        }
        let deadline = Instant::now() + AFTER_KILL;
        for worker_group in &self.worker_groups {
            worker_group.ended_by(deadline);
        }
    }
}

/// Returns the warning about operations that did not end although their connections were ended.
fn unended(worker_group: &WorkerGroup, stuck: usize) -> Warning {
    let place = &worker_group.places[0].node;
    Warning::new(
        WarningCode::CleanUpIncomplete,
        format!(
            "{place}: {stuck} operations of the load did not end; their statements may still be running"
        ),
        "check whether the server is stalled; the statements end when it responds",
    )
}
