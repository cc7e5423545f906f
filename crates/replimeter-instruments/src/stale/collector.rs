//! Passes rounds from the measuring threads to the listener.

use std::{
    sync::{atomic::Ordering, mpsc},
    thread,
    time::{Duration, Instant},
};

use replimeter_engine::{Node, ServerError, dialect::connections::OpenedConnection};
use replimeter_model::{plan::StopCondition, time::Nanos};

use super::{
    Event, Outcome, Progress,
    counters::{CountedServer, CounterDifferences},
    shared::Shared,
};
use crate::{
    Listener, MeasureError,
    clock::Clock,
    kill::kill_all,
    preflight::Cluster,
    stale::{
        results::{StalePhase, StaleRound, StaleWindow, Verdict},
        settings::StalePlan,
    },
    table::keep_alive,
};

/// Interval between collections.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Length of a window.
const WINDOW: Nanos = Nanos(500_000_000);
/// Interval between checks of the run's lock.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// Interval between progress reports.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// How long the measuring threads may take to end.
const STOP_TIMEOUT: Duration = Duration::from_millis(1500);
/// Timeout of ending their connections on the servers.
const KILL_TIMEOUT: Duration = Duration::from_secs(1);

/// Passes rounds from the measuring threads to the listener.
pub(super) struct Collector<'a> {
    clock: &'a Clock,
    plan: &'a StalePlan,
    servers: &'a [CountedServer],
    load_failed: &'a dyn Fn() -> bool,
    differences: CounterDifferences,
    began: Nanos,
    window: StaleWindow,
    /// Sum of their times, and their number.
    writes: (f64, u64),
    at_once: u64,
    curve: u64,
    stale: u64,
    phase: StalePhase,
    span: Option<(Nanos, Nanos)>,
}

impl<'a> Collector<'a> {
    pub(super) fn new(
        clock: &'a Clock,
        plan: &'a StalePlan,
        servers: &'a [CountedServer],
        load_failed: &'a dyn Fn() -> bool,
    ) -> Self {
        Self {
            clock,
            plan,
            servers,
            load_failed,
            differences: CounterDifferences::default(),
            began: clock.now(),
            window: StaleWindow::default(),
            writes: (0.0, 0),
            at_once: 0,
            curve: 0,
            stale: 0,
            phase: StalePhase::WarmUp,
            span: None,
        }
    }

    pub(super) fn run(
        &mut self,
        cluster: &mut Cluster,
        heard: &mpsc::Receiver<StaleRound>,
        threads: &[thread::ScopedJoinHandle<'_, Result<u64, ServerError>>],
        shared: &Shared<'_>,
        connections: &[(Node, OpenedConnection)],
        listener: &mut Listener<'_, Event>,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        let (mut alive, mut reported) = (Instant::now(), Instant::now());
        let mut halted: Option<Instant> = None;
        let mut killed = false;
        let end = |outcome: &mut Outcome, error: MeasureError| {
            outcome.failure.get_or_insert(error);
            shared.halt.store(true, Ordering::Relaxed);
        };
        loop {
            // Ended threads are determined first, so that none of their messages is missed.
            let over = threads.iter().all(thread::ScopedJoinHandle::is_finished);
            for round in heard.try_iter() {
                self.take(&round);
                if outcome.failure.is_none()
                    && let Err(error) = listener.send(Event::Round(round))
                {
                    end(&mut outcome, error);
                }
            }
            if let Err(error) = self.close_window(shared, listener) {
                end(&mut outcome, error);
            }
            if over {
                break;
            }
            if halted.is_none() && (listener.is_stopped() || (self.load_failed)()) {
                outcome.interrupted = true;
                shared.halt.store(true, Ordering::Relaxed);
                halted = Some(Instant::now());
            }
            if !killed && halted.is_some_and(|since| since.elapsed() > STOP_TIMEOUT) {
                killed = true;
                let connections = connections.iter().map(|(node, opened)| (node, *opened));
                kill_all(connections, KILL_TIMEOUT);
            }
            if reported.elapsed() > PROGRESS_INTERVAL {
                reported = Instant::now();
                if let Err(error) = listener.send(Event::Progress(self.progress(shared))) {
                    end(&mut outcome, error);
                }
            }
            if alive.elapsed() > KEEP_ALIVE {
                alive = Instant::now();
                if let Err(error) = keep_alive(cluster) {
                    end(&mut outcome, error.into());
                }
            }
            thread::sleep(POLL_INTERVAL);
        }
        if self.window.rounds > 0
            && let Err(error) = self.close(shared, listener)
        {
            end(&mut outcome, error);
        }
        outcome.measured = self.span.map_or(Nanos(0), |(first, last)| last - first);
        outcome
    }

    fn take(&mut self, round: &StaleRound) {
        self.phase = round.phase;
        let larger = |one: Option<f64>, other: Nanos| {
            Some(one.map_or(other.as_micros(), |one| one.max(other.as_micros())))
        };
        let window = &mut self.window;
        // A checked read has no write of its own, a load's write no read.
        let wrote = round.phase != StalePhase::Judged || round.reads.is_empty();
        window.rounds += u64::from(!round.reads.is_empty());
        if wrote {
            let write = round.ack - round.send;
            self.writes.0 += write.as_micros();
            self.writes.1 += 1;
            window.write_max_us = larger(window.write_max_us, write);
        }
        for read in &round.reads {
            window.read_max_us = larger(window.read_max_us, read.end - read.begin);
            if read.verdict == Verdict::Stale {
                window.stale += 1;
                if let Some(end) = read.fresh_end {
                    window.staleness_max_us = larger(window.staleness_max_us, end - round.ack);
                }
            }
        }
        match round.phase {
            StalePhase::AtOnce | StalePhase::Judged => {
                self.at_once += u64::from(!round.reads.is_empty())
            }
            StalePhase::Curve => self.curve += 1,
            StalePhase::WarmUp | StalePhase::Plain | StalePhase::Synced => return,
        }
        self.stale += round
            .reads
            .iter()
            .filter(|read| read.verdict == Verdict::Stale)
            .count() as u64;
        let last = round
            .reads
            .iter()
            .map(|read| read.fresh_end.unwrap_or(read.end))
            .max()
            .unwrap_or(round.ack);
        self.span = Some(self.span.map_or((round.send, last), |(first, before)| {
            (first, before.max(last))
        }));
    }

    fn progress(&self, shared: &Shared<'_>) -> Progress {
        let total = match (self.phase, self.plan.until) {
            (StalePhase::AtOnce, StopCondition::Rounds(rounds)) => Some(rounds),
            (StalePhase::Curve, _) => Some(shared.of_curve.load(Ordering::Relaxed)),
            _ => None,
        };
        let done = if self.phase == StalePhase::Curve {
            self.curve
        } else {
            self.at_once
        };
        Progress {
            phase: self.phase,
            done,
            total,
            stale: self.stale,
        }
    }

    /// Closes the window when its time is over.
    fn close_window(
        &mut self,
        shared: &Shared<'_>,
        listener: &mut Listener<'_, Event>,
    ) -> Result<(), MeasureError> {
        let start = Nanos((self.window.start_us * 1e3) as i64);
        if self.clock.now() - self.began - start < WINDOW {
            return Ok(());
        }
        self.close(shared, listener)
    }

    fn close(
        &mut self,
        shared: &Shared<'_>,
        listener: &mut Listener<'_, Event>,
    ) -> Result<(), MeasureError> {
        let now = self.clock.now();
        let mut window = std::mem::take(&mut self.window);
        window.end_us = (now - self.began).as_micros();
        window.under_way_us = Shared::oldest(&shared.under_way, now);
        window.unshown_us = Shared::oldest(&shared.unshown, now);
        window.write_mean_us = (self.writes.1 > 0).then(|| self.writes.0 / self.writes.1 as f64);
        window.counters = self.differences.take(self.servers);
        self.writes = (0.0, 0);
        self.window.start_us = window.end_us;
        listener.send(Event::Window(window))
    }
}
