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
    crew::{Crew, HURRIED, Outcome, Squad},
    gauge::Gauges,
    made::Made,
    result::{SquadResult, judge},
    worker::Shared,
};
use crate::clock::Clock;

/// How long a load runs before it counts, and before the other measurement starts.
const RAMP: Duration = Duration::from_secs(1);
/// Interval between checks for the end of the ramp.
const LOOK: Duration = Duration::from_millis(10);
const SECOND: Duration = Duration::from_secs(1);

/// Connected threads that run workloads during another measurement, and the data created for them. When
/// dropped without [`finish`](Self::finish), as after an error or a panic, it still ends its threads
/// and removes the data.
pub struct BackgroundLoad {
    clock: Clock,
    threads: Threads,
    // Connections may hold locks on the data to remove, so they end first.
    made: Made,
}

/// The threads and their results.
struct Threads {
    crew: Crew,
    running: bool,
    /// The sum of all windows so far, for each squad; empty before the first.
    totals: Vec<Outcome>,
}

/// A running load, as seen by the measurement that it accompanies.
pub struct Running<'a> {
    crew: &'a Crew,
    /// The latencies of each squad, from the end of the ramp on.
    pub gauges: Vec<Gauges>,
}

impl Running<'_> {
    /// Returns whether a squad has lost its server, which ends the load with an error.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.crew.failure().is_some()
    }
}

/// Result of a measurement during a load.
#[derive(Debug)]
pub struct Ran<T> {
    /// The result of the measurement.
    pub value: T,
    /// Warnings about threads that did not end.
    pub warnings: Vec<Warning>,
    /// The error of a squad that lost its server.
    pub failure: Option<ServerError>,
}

impl BackgroundLoad {
    /// Connects the threads of every squad; [`prepare`](Self::prepare) also creates their data.
    ///
    /// # Errors
    /// Those of [`Crew::open`].
    pub fn open(squads: &[Squad<'_>], clock: &Clock) -> Result<Self, ServerError> {
        Ok(Self::new(
            Crew::open(squads, clock)?,
            clock,
            Made::default(),
        ))
    }

    pub(super) fn new(crew: Crew, clock: &Clock, made: Made) -> Self {
        let threads = Threads {
            crew,
            running: false,
            totals: Vec::new(),
        };
        Self {
            clock: *clock,
            threads,
            made,
        }
    }

    /// Runs the load while `measure` runs: starts every thread, waits for the end of the ramp unless
    /// the user stops the run, counts from there, calls `measure`, and ends the load, also after an
    /// error. Repeated calls add up their counts; the time in between does not count. Without any squad
    /// it only calls `measure`.
    ///
    pub fn run_while<T>(
        &mut self,
        stop: &AtomicBool,
        measure: impl FnOnce(&Running<'_>) -> T,
    ) -> Ran<T> {
        let clock = &self.clock;
        self.threads.begin();
        let crew = &self.threads.crew;
        let ramp = clock.now() + Nanos::from(RAMP);
        while !crew.is_empty()
            && clock.now() < ramp
            && !stop.load(Ordering::Relaxed)
            && crew.failure().is_none()
        {
            thread::sleep(LOOK);
        }
        crew.count_from_now();
        let running = Running {
            crew,
            gauges: crew.gauges(),
        };
        // Operations of the ramp do not count.
        running.gauges.iter().for_each(|gauges| _ = gauges.take());
        let shared = crew.shared();
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
        Ran {
            value,
            warnings: self.threads.end(waiting),
            failure: self.threads.crew.failure(),
        }
    }

    /// Returns the results of each squad, summed over all windows; empty before the first.
    #[must_use]
    pub fn results(&self) -> Vec<SquadResult> {
        let Threads { crew, totals, .. } = &self.threads;
        let totals = totals.iter().enumerate();
        totals
            .map(|(squad, total)| SquadResult {
                ramp: Nanos::from(RAMP),
                ..crew.result(squad, total)
            })
            .collect()
    }

    /// Ends the connections, removes the created data, and returns the results. The caller fills in the
    /// shape in the records.
    #[must_use]
    pub fn finish(mut self) -> (Vec<LoadRecord>, Vec<Warning>) {
        if self.threads.totals.is_empty() {
            self.threads.totals = self.threads.crew.nothing();
        }
        let records: Vec<LoadRecord> = self.results().iter().map(SquadResult::record).collect();
        let Self {
            threads, mut made, ..
        } = self;
        drop(threads);
        let mut warnings = made.remove();
        warnings.extend(records.iter().flat_map(judge));
        (records, warnings)
    }
}

impl Threads {
    fn begin(&mut self) {
        self.running = true;
        self.crew.begin(None, None);
    }

    /// Ends every thread's operations; returns warnings about threads that did not end.
    fn end(&mut self, waiting: Vec<Vec<u64>>) -> Vec<Warning> {
        if !std::mem::take(&mut self.running) {
            return Vec::new();
        }
        let (mut outcomes, warnings) = self.crew.end(HURRIED);
        for (outcome, waiting) in outcomes.iter_mut().zip(waiting) {
            outcome.waiting_per_second = waiting;
        }
        if self.totals.is_empty() {
            self.totals = outcomes;
        } else {
            for (total, outcome) in self.totals.iter_mut().zip(&outcomes) {
                total.follow(outcome);
            }
        }
        warnings
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        let _ = self.end(Vec::new());
    }
}

/// Counts once a second, for each squad, the operations of its open loop that are due but not started,
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
