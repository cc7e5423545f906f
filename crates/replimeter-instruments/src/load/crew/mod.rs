//! Threads with their connections, run for any number of windows.

mod squad;
mod ticks;
mod unit;

use std::{
    collections::HashMap,
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

pub use self::squad::{Second, Squad, SquadSecond};
pub(super) use self::unit::Outcome;
use self::{ticks::Ticks, unit::Unit};
use super::{
    gauge::Gauges,
    result::SquadResult,
    worker::{Connections, Order, Report, Shared},
};
use crate::{clock::Clock, kill::kill};

/// How long threads may take to end at the regular end.
const AT_END: Duration = Duration::from_secs(10);
/// How long they may take after the user's stop.
pub(super) const HURRIED: Duration = Duration::from_secs(3);
/// How long they may take after their connections were ended.
const AFTER_KILL: Duration = Duration::from_secs(1);
/// Interval between checks for the end of a window.
const LOOK: Duration = Duration::from_millis(20);

/// Open connections with prepared statements, and threads that wait for a window. When dropped, the
/// threads and connections end.
pub struct Crew {
    clock: Clock,
    units: Vec<Unit>,
    /// The number of the current order, to recognize late reports.
    generation: u64,
}

impl Crew {
    /// Connects every thread of every squad, prepares every statement, and tries each once in a
    /// transaction that is rolled back (except statements with neither parameters nor reads). A script
    /// is run once, for real.
    ///
    /// # Errors
    /// When a server cannot be reached, has no more connections, or refuses a statement: with its
    /// message, the statement and its line.
    pub fn open(squads: &[Squad<'_>], clock: &Clock) -> Result<Self, ServerError> {
        Self::open_tried(squads, clock, true)
    }

    pub(super) fn open_tried(
        squads: &[Squad<'_>],
        clock: &Clock,
        trial: bool,
    ) -> Result<Self, ServerError> {
        let mut crew = Self {
            clock: *clock,
            units: Vec::new(),
            generation: 0,
        };
        for (number, squad) in (0..).zip(squads) {
            let unit = Unit::open(squad, number, clock, trial)?;
            crew.units.push(unit);
        }
        Ok(crew)
    }

    /// Returns the latencies of each squad while it runs, in order; empty for a squad that is not
    /// gauged.
    #[must_use]
    pub fn gauges(&self) -> Vec<Gauges> {
        self.units
            .iter()
            .map(|unit| Gauges::new(&unit.seats, &self.clock))
            .collect()
    }

    /// Runs all squads together: `ramp` uncounted, then `length` counted; may be called repeatedly.
    /// About once a second it calls `second` with the progress, from this thread. It ends early when
    /// `stop` is set or when a squad loses its server; the results include everything until then.
    pub fn stretch(
        &mut self,
        ramp: Duration,
        length: Duration,
        stop: &AtomicBool,
        second: &mut dyn FnMut(&Second),
    ) -> Vec<SquadResult> {
        let began = self.clock.now();
        let from = began + Nanos::from(ramp);
        let until = from + Nanos::from(length);
        self.begin(Some(from), Some(until));
        let mut ticks = Ticks::new(began, from, self.units.len());
        let mut interrupted = false;
        loop {
            let now = self.clock.now();
            if stop.load(Ordering::Relaxed) {
                interrupted = true;
                break;
            }
            if now >= until || self.units.iter().any(|unit| unit.shared.failed()) {
                break;
            }
            if now >= ticks.next {
                ticks.tell(now, &self.units, second);
            }
            // Counted seconds begin with the counted part, so the end of the ramp is a tick too.
            let nearest = (ticks.next.0.min(until.0) - self.clock.now().0)
                .max(0)
                .unsigned_abs();
            thread::sleep(Duration::from_nanos(nearest).min(LOOK));
        }
        let now = self.clock.now();
        let counted = now > from;
        if counted {
            ticks.tell(now.max(until), &self.units, second);
        }
        let patience = if interrupted { HURRIED } else { AT_END };
        let (outcomes, _) = self.end(patience);
        let units = self.units.iter().zip(outcomes).zip(ticks.waiting);
        units
            .map(|((unit, outcome), waiting_per_second)| SquadResult {
                ramp: Nanos::from(ramp),
                waiting_per_second,
                interrupted,
                ..unit.result(&outcome)
            })
            .collect()
    }

    /// Pings over every connection for this time, and so measures how many statements per second this
    /// client can get answered at most. Returns it for each squad, and keeps it for the results.
    pub fn measure_limit(&mut self, length: Duration) -> Vec<Option<f64>> {
        let now = self.clock.now();
        for unit in &mut self.units {
            unit.shared.start(now, None, None);
        }
        self.order(Order::Ping(length));
        let deadline = Instant::now() + length + AT_END;
        let generation = self.generation;
        let mut limits = Vec::new();
        for unit in &mut self.units {
            let mut sum = 0.0;
            let mut heard = 0;
            while heard < unit.orders.len() {
                let left = deadline.saturating_duration_since(Instant::now());
                let Ok(report) = unit.reports.recv_timeout(left) else {
                    break;
                };
                if report.generation == generation {
                    sum += report.pings;
                    heard += 1;
                }
            }
            unit.limit = (heard == unit.orders.len()).then_some(sum);
            limits.push(unit.limit);
        }
        limits
    }

    fn order(&mut self, order: Order) {
        self.generation += 1;
        for unit in &self.units {
            for orders in &unit.orders {
                // A thread that has ended reports nothing either.
                let _ = orders.send((self.generation, order));
            }
        }
    }

    /// Starts every thread; operations that end in the span count.
    pub(super) fn begin(&mut self, from: Option<Nanos>, until: Option<Nanos>) {
        let now = self.clock.now();
        for unit in &self.units {
            unit.shared.start(now, from, until);
            for seat in &unit.seats {
                seat.operations.store(0, Ordering::Relaxed);
                seat.failed.store(0, Ordering::Relaxed);
                seat.retries.store(0, Ordering::Relaxed);
            }
        }
        self.order(Order::Load);
    }

    /// Starts counting now.
    pub(super) fn count_from_now(&self) {
        let now = self.clock.now();
        for unit in &self.units {
            unit.shared.count_from(now);
        }
    }

    /// Ends every thread's operations; returns the results of each squad, and warnings about threads
    /// that did not end.
    pub(super) fn end(&mut self, patience: Duration) -> (Vec<Outcome>, Vec<Warning>) {
        let now = self.clock.now();
        let waiting: Vec<Option<u64>> = self
            .units
            .iter()
            .map(|unit| {
                unit.shared
                    .waiting(Nanos(now.0.min(unit.shared.span().1.0)))
            })
            .collect();
        for unit in &self.units {
            unit.shared.stop(now);
        }
        let generation = self.generation;
        let deadline = Instant::now() + patience;
        let mut warnings = Vec::new();
        let mut outcomes = Vec::new();
        let mut heard: Vec<Vec<Option<Report>>> = Vec::new();
        for unit in &self.units {
            heard.push(unit.hear(generation, deadline));
        }
        // Running statements end with their connections; the sockets are closed on this side too.
        let missing = |heard: &[Vec<Option<Report>>]| heard.iter().flatten().any(Option::is_none);
        if missing(&heard) {
            self.kill(&heard);
            let deadline = Instant::now() + AFTER_KILL;
            for (unit, heard) in self.units.iter().zip(&mut heard) {
                unit.hear_more(generation, deadline, heard);
            }
        }
        for ((unit, reports), waiting) in self.units.iter().zip(heard).zip(waiting) {
            let stuck = reports.iter().filter(|report| report.is_none()).count();
            if stuck > 0 {
                let place = &unit.places[0].node;
                warnings.push(Warning::new(
                    WarningCode::CleanUpIncomplete,
                    format!(
                        "{place}: {stuck} threads of the load did not end; their statements may still be running"),
                    "check whether the server is stalled; the threads end when it responds",
                ));
            }
            outcomes.push(unit.outcome(reports.into_iter().flatten(), waiting));
        }
        (outcomes, warnings)
    }

    /// Ends the connections of threads that have not reported.
    fn kill(&self, heard: &[Vec<Option<Report>>]) {
        let silent: Vec<(&Unit, usize)> = self
            .units
            .iter()
            .zip(heard)
            .flat_map(|(unit, reports)| {
                let missing = |index: &usize| reports[*index].is_none();
                (0..reports.len())
                    .filter(missing)
                    .map(move |index| (unit, index))
            })
            .collect();
        let mut by_server: Connections = HashMap::new();
        for (unit, index) in &silent {
            let node = &unit.places[index % unit.places.len()].node;
            by_server
                .entry(node.name.clone())
                .or_insert_with(|| (node.clone(), Vec::new()))
                .1
                .push(unit.seats[*index].connection.load(Ordering::Acquire));
        }
        for (node, connections) in by_server.values() {
            kill(node, connections.iter().copied(), AFTER_KILL);
        }
        silent
            .iter()
            .for_each(|(unit, index)| unit.seats[*index].cut());
    }

    pub(super) fn result(&self, squad: usize, outcome: &Outcome) -> SquadResult {
        self.units[squad].result(outcome)
    }

    /// Returns the empty results of squads that have not started.
    pub(super) fn nothing(&self) -> Vec<Outcome> {
        let units = self.units.iter();
        units
            .map(|unit| unit.outcome(iter::empty(), None))
            .collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.units.is_empty()
    }

    /// Returns the error that ended a squad, if any.
    pub(super) fn failure(&self) -> Option<ServerError> {
        self.units.iter().find_map(|unit| unit.shared.failure())
    }

    /// Returns the shared state of each squad's threads.
    pub(super) fn shared(&self) -> Vec<Arc<Shared>> {
        let shared = self.units.iter().map(|unit| Arc::clone(&unit.shared));
        shared.collect()
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        let now = self.clock.now();
        for unit in &mut self.units {
            unit.shared.stop(now);
            unit.orders.clear();
        }
        let deadline = Instant::now() + HURRIED;
        for unit in &self.units {
            unit.ended_by(deadline);
            unit.seats.iter().for_each(|seat| seat.cut());
        }
        let deadline = Instant::now() + AFTER_KILL;
        for unit in &self.units {
            unit.ended_by(deadline);
        }
    }
}
