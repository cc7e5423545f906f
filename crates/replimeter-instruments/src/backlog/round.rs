//! One replica's round: its applier is stopped, started under the load, and left to catch up without
//! it, while both servers are read.

use std::{thread, time::Duration};

use replimeter_engine::{
    ErrorKind, ServerError,
    dialect::{
        Channel,
        appliers::{USE_THREADS, appliers},
    },
};
use replimeter_model::{
    bug::REPORT_BUG,
    time::Nanos,
    warning::{Warning, WarningCode},
};

use super::{
    Event, Progress, Restoring,
    applier::Applier,
    position_probe::PositionProbe,
    readings::{BacklogReading, PhaseReadings},
    round_readings::{RoundReadings, RoundTimes},
};
use crate::{
    Listener, MeasureError,
    backlog::{
        results::{BacklogPhase, BacklogRow},
        settings::BacklogPlan,
    },
    clock::Clock,
    load::BackgroundLoad,
    preflight::{CheckedReplica, Cluster},
    table::keep_alive,
};

/// The minimum and maximum interval between readings.
const READINGS: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(100)];
/// Interval between progress reports and checks of the replica's state.
const CHECK_INTERVAL: Nanos = Nanos(1_000_000_000);
/// Interval at which the session with the run's lock is used.
const KEEP_ALIVE: Nanos = Nanos(10_000_000_000);
/// Maximum time to catch up, as a multiple of the build-up time.
const LIMIT: u32 = 20;
/// Minimum of this limit.
const MIN_LIMIT: Duration = Duration::from_secs(30);

/// The measurement of one replica with one number of workers.
pub(super) struct Round<'a, 'l> {
    plan: &'a BacklogPlan,
    clock: &'a Clock,
    restoring: Restoring<'a>,
    index: usize,
    workers: Option<u32>,
    listener: &'a mut Listener<'l, Event>,
    /// When the first reading began.
    pub(super) origin: Nanos,
    next_check: Nanos,
    next_keep_alive: Nanos,
    pub(super) warnings: Vec<Warning>,
}

impl<'a, 'l> Round<'a, 'l> {
    pub(super) fn new(
        plan: &'a BacklogPlan,
        clock: &'a Clock,
        restoring: Restoring<'a>,
        index: usize,
        workers: Option<u32>,
        listener: &'a mut Listener<'l, Event>,
    ) -> Self {
        Self {
            plan,
            clock,
            restoring,
            index,
            workers,
            listener,
            origin: clock.now(),
            next_check: Nanos(0),
            next_keep_alive: clock.now() + KEEP_ALIVE,
            warnings: Vec::new(),
        }
    }
}

impl Round<'_, '_> {
    /// Returns the interval between readings.
    fn every(&self) -> Duration {
        (self.plan.build_up.0 / 100).clamp(READINGS[0], READINGS[1])
    }

    fn limit(&self) -> Nanos {
        Nanos::from((self.plan.build_up.0 * LIMIT).max(MIN_LIMIT))
    }

    fn stopped(&self) -> bool {
        self.listener.is_stopped()
    }

    /// Measures the round; `out` receives the figures so far also after an error.
    pub(super) fn measure(
        &mut self,
        cluster: &mut Cluster,
        load: &mut BackgroundLoad,
        out: &mut Option<BacklogRow>,
    ) -> Result<(), MeasureError> {
        let mut probe = PositionProbe::open(cluster, self.index, self.restoring.timeouts.answer)?;
        self.settle(cluster, &mut probe)?;
        let replica = &cluster.replicas[self.index];
        let applier =
            Applier::stop_applier(replica, &channel(replica)?, self.workers, self.restoring)?;
        let mut round_readings = RoundReadings {
            replica: replica.server.node.name.clone(),
            workers: applier
                .workers
                .map(|(workers, variable)| (workers, variable.to_owned())),
            parallel_mode: self.parallel_mode(replica),
            moments: RoundTimes {
                stopped: self.clock.now(),
                started: None,
                caught: false,
            },
            every: self.every(),
            growing: PhaseReadings::new(BacklogPhase::Growing),
            with_load: PhaseReadings::new(BacklogPhase::WithLoad),
            without_load: PhaseReadings::new(BacklogPhase::WithoutLoad),
        };
        let ended = self.walk(cluster, load, &mut probe, &applier, &mut round_readings);
        let row = round_readings.row();
        if ended.is_ok() && !self.stopped() {
            self.judge(&row);
        }
        *out = row;
        applier.release(ended, &mut self.warnings)
    }

    /// Returns how the replica distributes work to its workers; warns when it does not.
    fn parallel_mode(&mut self, replica: &CheckedReplica) -> String {
        let appliers = appliers(&replica.server.facts).unwrap_or_default();
        if appliers.ignores_threads() && self.workers.is_some_and(|workers| workers > 1) {
            self.warnings.push(Warning::new(
                WarningCode::BacklogUnclear,
                format!(
                    "{}: its parallel mode is `none`, so more workers do not change its rates",
                    replica.server.node.name
                ),
                USE_THREADS,
            ));
        }
        appliers.mode
    }

    /// Reads both servers from the applier's stop until the replica has caught up; `walked` receives
    /// the readings also after an error.
    fn walk(
        &mut self,
        cluster: &mut Cluster,
        load: &mut BackgroundLoad,
        probe: &mut PositionProbe,
        applier: &Applier<'_>,
        round_readings: &mut RoundReadings,
    ) -> Result<(), MeasureError> {
        let stop = self.listener.stop;
        let mut ran = load.run_while(stop, |_| {
            self.run_with_load(cluster, probe, applier, round_readings)
        });
        self.warnings.append(&mut ran.warnings);
        ran.failure.map_or(Ok(()), Err)?;
        ran.value?;
        if self.stopped() {
            return Ok(());
        }
        let limit = self.limit();
        let caught = &mut round_readings.moments.caught;
        self.read_while(
            cluster,
            probe,
            &mut round_readings.without_load,
            BacklogPhase::WithoutLoad,
            |reading, before, since| {
                *caught = caught_up(reading, before);
                !*caught && since < limit
            },
        )
    }

    /// Builds up the backlog, starts the applier, and lets it work under the load.
    fn run_with_load(
        &mut self,
        cluster: &mut Cluster,
        probe: &mut PositionProbe,
        applier: &Applier<'_>,
        round_readings: &mut RoundReadings,
    ) -> Result<(), MeasureError> {
        let grow = Nanos::from(self.plan.build_up.0);
        self.origin = self.clock.now();
        self.read_while(
            cluster,
            probe,
            &mut round_readings.growing,
            BacklogPhase::Growing,
            |_, _, since| since < grow,
        )?;
        let mut connection = applier.connect()?;
        // The rate counts from here, including the applier's start.
        round_readings.with_load.push(probe.read(self.clock)?);
        round_readings.moments.started = Some(self.clock.now());
        applier.start(&mut connection)?;
        drop(connection);
        if self.stopped() {
            return Ok(());
        }
        // The second half is left for the time without load.
        let enough = round_readings
            .with_load
            .last()
            .map_or(0, |last| last.behind / 2);
        self.read_while(
            cluster,
            probe,
            &mut round_readings.with_load,
            BacklogPhase::WithLoad,
            |reading, _, since| since < grow && reading.behind > enough,
        )
    }

    /// Waits until the replica has caught up, so that the backlog belongs to this round.
    fn settle(
        &mut self,
        cluster: &mut Cluster,
        probe: &mut PositionProbe,
    ) -> Result<(), MeasureError> {
        let mut before = PhaseReadings::new(BacklogPhase::WithoutLoad);
        let limit = self.limit();
        let mut settled = false;
        self.read_while(
            cluster,
            probe,
            &mut before,
            BacklogPhase::WithoutLoad,
            |reading, before, since| {
                settled = caught_up(reading, before);
                !settled && since < limit
            },
        )?;
        if self.stopped() {
            return Err(MeasureError::Interrupted);
        }
        if !settled {
            let last = before.last().map_or(0, |last| last.behind);
            let session = &cluster.replicas[self.index].server.session;
            let cause = format!(
                "it is {last} transactions behind and did not catch up within {:.0} s",
                limit.as_micros() / 1e6
            );
            return Err(session
                .precondition(
                    "cannot build up a backlog",
                    cause,
                    "wait until it has caught up, and stop other writers",
                )
                .into());
        }
        Ok(())
    }

    /// Reads both servers while `goes_on` returns true.
    fn read_while(
        &mut self,
        cluster: &mut Cluster,
        probe: &mut PositionProbe,
        readings: &mut PhaseReadings,
        phase: BacklogPhase,
        mut goes_on: impl FnMut(&BacklogReading, Option<BacklogReading>, Nanos) -> bool,
    ) -> Result<(), MeasureError> {
        let began = self.clock.now();
        let every = Nanos::from(self.every());
        let mut next = began;
        loop {
            let before = readings.last();
            let reading = probe.read(self.clock)?;
            readings.push(reading);
            let now = self.clock.now();
            if !goes_on(&reading, before, now - began) || self.stopped() {
                return Ok(());
            }
            if now >= self.next_check {
                self.next_check = now + CHECK_INTERVAL;
                self.listener.send(Event::Progress(Progress {
                    replica: cluster.replicas[self.index].server.node.name.clone(),
                    workers: self.workers,
                    phase,
                    since: Duration::from_nanos((now - began).0.unsigned_abs()),
                    behind: reading.behind,
                }))?;
                // The applier needs time to start; a replica without work is not checked.
                if phase != BacklogPhase::Growing && now - began >= CHECK_INTERVAL {
                    still_applying(&cluster.replicas[self.index])?;
                }
            }
            if now >= self.next_keep_alive {
                self.next_keep_alive = now + KEEP_ALIVE;
                keep_alive(cluster)?;
            }
            next = next + every;
            let left = next - self.clock.now();
            if left > Nanos(0) {
                thread::sleep(Duration::from_nanos(left.0.unsigned_abs()));
            } else {
                next = self.clock.now();
            }
        }
    }

    fn judge(&mut self, row: &Option<BacklogRow>) {
        let Some(row) = row else { return };
        if row.backlog_transactions == 0 {
            self.warnings.push(Warning::new(
                WarningCode::BacklogUnclear,
                format!("{}: the load wrote nothing on the primary while the applier was stopped; without a backlog there is no catch-up rate", row.replica),
                "use a load that writes, such as insert:8@primary",
            ));
        } else if row.caught_up_after_us.is_none() {
            self.warnings.push(Warning::new(
                WarningCode::BacklogUnclear,
                format!(
                    "{}: it did not catch up within {:.0} s after the end of the load; its catch-up time is unknown",
                    row.replica,
                    self.limit().as_micros() / 1e6
                ),
                "stop other writers on the primary, or use a lighter load",
            ));
        } else if row.sustained_per_s.ci95.low.is_none() || row.catch_up_per_s.ci95.low.is_none() {
            self.warnings.push(Warning::new(
                WarningCode::BacklogUnclear,
                format!(
                    "{}: it caught up within too few readings ({} ms apart); its rates have no intervals",
                    row.replica,
                    row.resolution_us / 1e3
                ),
                "build up the backlog for longer, or use a heavier load",
            ));
        }
    }
}

/// Returns whether the replica has caught up: less is missing than was written between two readings,
/// because other clients may write too.
fn caught_up(reading: &BacklogReading, before: Option<BacklogReading>) -> bool {
    reading.behind <= before.map_or(0, |before| reading.written.saturating_sub(before.written))
}

fn channel(replica: &CheckedReplica) -> Result<Channel, ServerError> {
    replica.channel().cloned().ok_or_else(|| {
        replica.server.session.precondition(
            "cannot build up a backlog",
            "it has no replication channel",
            REPORT_BUG,
        )
    })
}

/// Returns an error if the applier was started but does not run.
fn still_applying(replica: &CheckedReplica) -> Result<(), ServerError> {
    let state = match replica.state_now() {
        // The server is busy; further readings fail if it does not answer at all.
        Err(error) if matches!(error.kind, ErrorKind::Timeout) => return Ok(()),
        other => other?,
    };
    // A receiver without a connection has a backlog left that the applier works off, or waits for the source.
    if (state.running || state.reconnecting) && !state.failed {
        return Ok(());
    }
    Err(replica
        .server
        .session
        .precondition("cannot catch up", state.words, state.hint))
}
