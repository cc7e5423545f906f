//! Load that runs during another measurement.

use std::{
    iter,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    thread,
    time::{Duration, Instant},
};

use replimeter_engine::ServerError;
use replimeter_model::{load::LoadRecord, time::Nanos, warning::Warning};

use super::{
    created_objects::CreatedObjects,
    latency_recorder::LatencyRecorders,
    result::{GroupResult, warnings_of},
    worker::Shared,
    worker_pool::{GroupOutcome, LoadGroup, PoolEnd, WorkerPool},
};
use crate::{MeasureError, clock::Clock};

/// How long a load runs before it counts, and before the other measurement starts.
const RAMP: Duration = Duration::from_secs(1);
/// Interval between checks for the end of the warm-up.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
const SECOND: Duration = Duration::from_secs(1);
/// How long operations in progress at the end may take; a measurement waits for them.
const TO_COMPLETE: Duration = Duration::from_secs(3);

/// Connected threads that run workloads during another measurement, and the data created for them. When
/// dropped without [`finish`](Self::finish), as after an error or a panic, it still ends its threads
/// and removes the data.
pub struct BackgroundLoad {
    clock: Clock,
    threads: LoadThreads,
    // Connections may hold locks on the data to remove, so they end first.
    made: CreatedObjects,
}

/// The threads and their results.
struct LoadThreads {
    pool: WorkerPool,
    running: bool,
    /// The sum of all windows so far, for each load group; empty before the first.
    totals: Vec<GroupOutcome>,
}

/// A running load, as seen by the measurement that it accompanies.
pub struct RunningLoad<'a> {
    pool: &'a WorkerPool,
    /// The latencies of each load group, from the end of the warm-up on.
    pub recorders: Vec<LatencyRecorders>,
}

impl RunningLoad<'_> {
    /// Returns whether a load group has lost its server, which ends the load with an error.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.pool.failure().is_some()
    }
}

/// Result of a measurement during a load.
#[derive(Debug)]
pub struct MeasuredUnderLoad<T> {
    /// The result of the measurement.
    pub value: T,
    /// Warnings about threads that did not end.
    pub warnings: Vec<Warning>,
    /// The error of a load group that lost its server.
    pub failure: Option<ServerError>,
}

impl BackgroundLoad {
    /// Connects the threads of every load group; [`prepare`](Self::prepare) also creates their data.
    ///
    /// # Errors
    /// Those of [`WorkerPool::open`].
    pub fn open(
        load_groups: &[LoadGroup<'_>],
        clock: &Clock,
        stop: &AtomicBool,
    ) -> Result<Self, MeasureError> {
        Ok(Self::new(
            WorkerPool::open(load_groups, clock, stop)?,
            clock,
            CreatedObjects::default(),
        ))
    }

    pub(super) fn new(pool: WorkerPool, clock: &Clock, made: CreatedObjects) -> Self {
        let threads = LoadThreads {
            pool,
            running: false,
            totals: Vec::new(),
        };
        Self {
            clock: *clock,
            threads,
            made,
        }
    }

    /// Runs the load while `measure` runs: starts every thread, waits for the end of the warm-up
    /// unless the user stops the run, counts from there, calls `measure`, and ends the load, also
    /// after an error. Repeated calls add up their counts; the time in between does not count.
    /// Without any load group it only calls `measure`.
    ///
    pub fn run_while<T>(
        &mut self,
        stop: &AtomicBool,
        measure: impl FnOnce(&RunningLoad<'_>) -> T,
    ) -> MeasuredUnderLoad<T> {
        let clock = &self.clock;
        self.threads.begin();
        let pool = &self.threads.pool;
        let ramp = clock.now() + Nanos::from(RAMP);
        while !pool.is_empty()
            && clock.now() < ramp
            && !stop.load(Ordering::Relaxed)
            && pool.failure().is_none()
        {
            thread::sleep(POLL_INTERVAL);
        }
        pool.count_from_now();
        let running = RunningLoad {
            pool,
            recorders: pool.recorders(),
        };
        // Operations of the warm-up do not count.
        running
            .recorders
            .iter()
            .for_each(|recorders| _ = recorders.take());
        let shared = pool.shared();
        let open = shared.iter().any(|shared| shared.rate.is_some());
        let (value, waiting) = thread::scope(|scope| {
            // A panic drops the sender too, which ends the thread.
            let (end, ended) = channel();
            let queues = open.then(|| scope.spawn(|| queues(&shared, clock, ended)));
            let value = measure(&running);
            drop(end);
            let waiting = queues.and_then(|queues| queues.join().ok());
            (value, waiting.unwrap_or_default())
        });
        MeasuredUnderLoad {
            value,
            warnings: self.threads.end(waiting),
            failure: self.threads.pool.failure(),
        }
    }

    /// Returns the results of each load group, summed over all windows; empty before the first.
    #[must_use]
    pub fn results(&self) -> Vec<GroupResult> {
        let LoadThreads { pool, totals, .. } = &self.threads;
        let totals = totals.iter().enumerate();
        totals
            .map(|(load_group, total)| GroupResult {
                ramp: Nanos::from(RAMP),
                ..pool.result(load_group, total)
            })
            .collect()
    }

    /// Ends the connections, removes the created data, and returns the results. The caller fills in the
    /// shape in the records.
    #[must_use]
    pub fn finish(mut self) -> (Vec<LoadRecord>, Vec<Warning>) {
        if self.threads.totals.is_empty() {
            self.threads.totals = self.threads.pool.empty_outcomes();
        }
        let records: Vec<LoadRecord> = self.results().iter().map(GroupResult::record).collect();
        let Self {
            threads, mut made, ..
        } = self;
        drop(threads);
        let mut warnings = made.remove();
        warnings.extend(records.iter().flat_map(warnings_of));
        (records, warnings)
    }
}

impl LoadThreads {
    fn begin(&mut self) {
        self.running = true;
        self.pool.begin(None, None);
    }

    /// Ends every thread's operations; returns warnings about threads that did not end.
    fn end(&mut self, waiting: Vec<Vec<u64>>) -> Vec<Warning> {
        if !std::mem::take(&mut self.running) {
            return Vec::new();
        }
        let (mut outcomes, warnings) = self.pool.end(PoolEnd::Complete(TO_COMPLETE));
        for (outcome, waiting) in outcomes.iter_mut().zip(waiting) {
            outcome.waiting_per_second = waiting;
        }
        if self.totals.is_empty() {
            self.totals = outcomes;
        } else {
            for (total, outcome) in self.totals.iter_mut().zip(&outcomes) {
                total.append(outcome);
            }
        }
        warnings
    }
}

impl Drop for LoadThreads {
    fn drop(&mut self) {
        let _ = self.end(Vec::new());
    }
}

/// Counts once a second, for each load group, the operations of its open loop that are due but not started,
/// until the sender of `ended` is dropped.
fn queues(shared: &[Arc<Shared>], clock: &Clock, ended: Receiver<()>) -> Vec<Vec<u64>> {
    let mut waiting = vec![Vec::new(); shared.len()];
    let began = Instant::now();
    for next in iter::successors(Some(began + SECOND), |next| Some(*next + SECOND)) {
        let left = next.saturating_duration_since(Instant::now());
        if ended.recv_timeout(left) != Err(RecvTimeoutError::Timeout) {
            break;
        }
        for (shared, waiting) in shared.iter().zip(&mut waiting) {
            waiting.extend(shared.waiting(clock.now()));
        }
    }
    waiting
}
