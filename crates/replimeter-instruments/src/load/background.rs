//! Load that runs while something else is measured.

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

/// How long a load runs before it is counted, and before anything is measured beside it.
const RAMP: Duration = Duration::from_secs(1);
/// How often the end of the ramp is looked for.
const LOOK: Duration = Duration::from_millis(10);
const SECOND: Duration = Duration::from_secs(1);

/// Connected threads that run workloads while something else is measured, and what was made for
/// them. Dropped without [`finish`](Self::finish), as an error or a panic does, it still ends its
/// threads and removes what was made.
pub struct BackgroundLoad {
    clock: Clock,
    threads: Threads,
    // Connections may hold locks on what is removed, so they go first.
    made: Made,
}

/// The threads, and what they did.
struct Threads {
    crew: Crew,
    running: bool,
    /// What the stretches came to so far, for each squad; empty before the first.
    totals: Vec<Outcome>,
}

/// A load that runs, as what is measured beside it sees it.
pub struct Running<'a> {
    crew: &'a Crew,
    /// What shows the latencies of each squad, from the end of the ramp on.
    pub gauges: Vec<Gauges>,
}

impl Running<'_> {
    /// Whether a squad has lost its server, which ends the load with an error.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.crew.failure().is_some()
    }
}

/// What came of measuring while a load ran.
#[derive(Debug)]
pub struct Ran<T> {
    /// What was measured.
    pub value: T,
    /// Which threads do not end.
    pub warnings: Vec<Warning>,
    /// What ended a squad that lost its server.
    pub failure: Option<ServerError>,
}

impl BackgroundLoad {
    /// Connects the threads of every squad; [`prepare`](Self::prepare) makes what they need, too.
    ///
    /// # Errors
    /// As [`Crew::open`].
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

    /// Runs the load while `measure` runs: starts every thread, waits for the end of the ramp
    /// unless the user ends the run, counts from there, calls `measure`, and ends the load,
    /// whatever that returns. It may be called again: what was counted is added up, and the time
    /// in between does not count. Without any squad it only calls `measure`.
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
        // What the ramp came to is nobody's.
        running.gauges.iter().for_each(|gauges| _ = gauges.take());
        let shared = crew.shared();
        let open = shared.iter().any(|shared| shared.rate.is_some());
        let (value, waiting) = thread::scope(|scope| {
            // A panic drops it too, which ends the thread.
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

    /// What each squad's stretches came to; nothing before the first.
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

    /// Ends the connections, removes what was made for the load, and tells what it came to. The
    /// shape in the records is the caller's to fill in.
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

    /// Ends every thread's operations; which do not end.
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

/// Counts once a second, for each squad, how many operations of its open loop are due that no thread
/// has begun, until the other end of `ended` is gone.
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
