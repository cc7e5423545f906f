//! A meter that is read continuously, so that the usage of any time span of the run can be computed
//! afterwards.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use replimeter_engine::{dialect::counters::Counters, sync::lock};
use replimeter_model::{resources::ServerUse, time::Nanos};

use super::{Meter, NamedProcess, Reading, ServerCounters, process::ProcessCounters};

/// Maximum number of stored readings; beyond it every other one is dropped.
const MAX_READINGS: usize = 4096;
/// Interval between readings of the servers' own counters.
const ASK: Duration = Duration::from_secs(1);
/// Shortest pause between readings, in which others get the state even if each reading waits for a frozen server.
const PAUSE: Duration = Duration::from_millis(1);

/// Nanoseconds in a second.
const SECOND: i64 = 1_000_000_000;
/// Maximum number of seconds of a load.
const MAX_SECONDS: i64 = 36_000;

/// State shared by the thread and its owner.
struct Shared {
    state: Mutex<State>,
    wake: Condvar,
}

struct State {
    meter: Meter,
    readings: Vec<Reading>,
    /// The interval between two stored readings.
    every: Duration,
    ended: bool,
}

/// Interval between readings of the servers' processes in a run.
pub const METER_INTERVAL: Duration = Duration::from_millis(250);

/// A meter that is read on a separate thread.
pub struct ResourceWatch {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

fn open(shared: &Shared) -> MutexGuard<'_, State> {
    // A panic elsewhere loses a reading, not the counters.
    lock(&shared.state)
}

impl ResourceWatch {
    /// Starts to read the servers' processes at this interval, and their own counters once a
    /// second.
    #[must_use]
    pub fn start(mut meter: Meter, every: Duration) -> Self {
        let first = meter.read();
        let mut watch = Self::of(meter, vec![first], every.max(Duration::from_millis(1)));
        let watched = Arc::clone(&watch.shared);
        watch.thread = thread::Builder::new()
            .name("resources".to_owned())
            .spawn(move || poll(&watched))
            .ok();
        watch
    }

    /// Reads the counters only when it is asked to: a reading costs the servers time.
    #[must_use]
    pub fn on_request(meter: Meter) -> Self {
        Self::of(meter, Vec::new(), Duration::MAX)
    }

    fn of(meter: Meter, readings: Vec<Reading>, every: Duration) -> Self {
        let state = State {
            meter,
            readings,
            every,
            ended: false,
        };
        Self {
            shared: Arc::new(Shared {
                state: Mutex::new(state),
                wake: Condvar::new(),
            }),
            thread: None,
        }
    }

    /// Also reads the counters of these processes, from now on.
    pub fn add(&self, processes: Vec<NamedProcess>) {
        let mut state = open(&self.shared);
        state.meter.add(processes);
        // Nothing is known of them before their first reading.
        let reading = state.meter.read();
        state.keep(reading);
    }

    /// Reads all counters now.
    #[must_use]
    pub fn read(&self) -> Reading {
        let mut state = open(&self.shared);
        let reading = state.meter.read();
        state.keep(reading.clone());
        reading
    }

    /// Returns each server's usage between two readings.
    #[must_use]
    pub fn between(&self, from: &Reading, to: &Reading) -> Vec<ServerUse> {
        open(&self.shared).meter.between(from, to)
    }

    /// Returns each server's usage between two times in the past. Between readings counters are
    /// interpolated; before the first and after the last the usage is unknown.
    #[must_use]
    pub fn over(&self, from: Nanos, to: Nanos) -> Vec<ServerUse> {
        let state = open(&self.shared);
        let (from, to) = (at(&state.readings, from), at(&state.readings, to));
        state.meter.between(&from, &to)
    }

    /// Returns the usage in each of `parts` equal parts of a time span in the past.
    #[must_use]
    pub fn series(&self, from: Nanos, to: Nanos, parts: u32) -> Vec<Vec<ServerUse>> {
        let point =
            |part: u32| Nanos(from.0 + (to.0 - from.0) * i64::from(part) / i64::from(parts.max(1)));
        (0..parts)
            .map(|part| self.over(point(part), point(part + 1)))
            .collect()
    }

    /// Returns the usage during a load, and in each of its whole seconds, for the first ten hours.
    #[must_use]
    pub fn of_load(&self, began: Nanos, counted: Nanos) -> (Vec<ServerUse>, Vec<Vec<ServerUse>>) {
        // Nothing is known after the last reading.
        let _ = self.read();
        let seconds = (counted.0 / SECOND).clamp(0, MAX_SECONDS);
        let whole = began + Nanos(seconds * SECOND);
        let parts = u32::try_from(seconds).unwrap_or(0);
        (
            self.over(began, began + counted),
            self.series(began, whole, parts),
        )
    }

    /// Ends the thread.
    pub fn finish(mut self) {
        self.end();
    }

    fn end(&mut self) {
        open(&self.shared).ended = true;
        self.shared.wake.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for ResourceWatch {
    fn drop(&mut self) {
        self.end();
    }
}

impl State {
    /// Stores a reading. Counters only increase, so dropping some loses no usage.
    fn keep(&mut self, reading: Reading) {
        self.readings.push(reading);
        if self.readings.len() > MAX_READINGS {
            let mut index = 0;
            self.readings.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.every = self.every.saturating_mul(2);
        }
    }
}

fn poll(shared: &Shared) {
    let mut asked = Instant::now();
    let mut next = Instant::now();
    let mut state = open(shared);
    loop {
        next = (next + state.every).max(Instant::now() + PAUSE);
        while !state.ended && Instant::now() < next {
            let rest = next.saturating_duration_since(Instant::now());
            state = shared
                .wake
                .wait_timeout(state, rest)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        if state.ended {
            return;
        }
        let reading = if asked.elapsed() >= ASK {
            let reading = state.meter.read();
            asked = Instant::now();
            reading
        } else {
            state.meter.read_basic()
        };
        state.keep(reading);
    }
}

/// Returns the counters at a time, interpolated from the readings around it.
fn at(readings: &[Reading], moment: Nanos) -> Reading {
    let servers = readings.last().map_or(0, |reading| reading.servers.len());
    let after = readings.partition_point(|reading| reading.at <= moment);
    let of = |server: usize| {
        let known = |reading: &&Reading| reading.servers.get(server).is_some();
        let (before, behind) = (&readings[..after], &readings[after..]);
        // Not every reading has both kinds of counters.
        let process = between(
            moment,
            before
                .iter()
                .rev()
                .filter(known)
                .find_map(|reading| Some((reading.at, reading.servers[server].process?))),
            behind
                .iter()
                .filter(known)
                .find_map(|reading| Some((reading.at, reading.servers[server].process?))),
            ProcessCounters::towards,
        );
        let status = between(
            moment,
            before
                .iter()
                .rev()
                .filter(known)
                .find_map(|reading| Some((reading.at, reading.servers[server].status?))),
            behind
                .iter()
                .filter(known)
                .find_map(|reading| Some((reading.at, reading.servers[server].status?))),
            towards,
        );
        ServerCounters { process, status }
    };
    Reading {
        at: moment,
        servers: (0..servers).map(of).collect(),
    }
}

/// Returns the value at a time between two, if both exist.
fn between<T: Copy>(
    moment: Nanos,
    before: Option<(Nanos, T)>,
    behind: Option<(Nanos, T)>,
    towards: impl Fn(T, T, f64) -> T,
) -> Option<T> {
    let (from, before) = before?;
    if from == moment {
        return Some(before);
    }
    let (to, behind) = behind?;
    Some(towards(
        before,
        behind,
        (moment - from).0 as f64 / (to - from).0.max(1) as f64,
    ))
}

/// Interpolates a counter; one that was reset keeps its value.
fn step(from: u64, to: u64, share: f64) -> u64 {
    from + (to.saturating_sub(from) as f64 * share).round() as u64
}

fn step_known(from: Option<u64>, to: Option<u64>, share: f64) -> Option<u64> {
    Some(step(from?, to?, share))
}

impl ProcessCounters {
    fn towards(self, to: Self, share: f64) -> Self {
        Self {
            cpu_ns: step(self.cpu_ns, to.cpu_ns, share),
            user_ticks: step(self.user_ticks, to.user_ticks, share),
            system_ticks: step(self.system_ticks, to.system_ticks, share),
            switches: step(self.switches, to.switches, share),
            involuntary: step(self.involuntary, to.involuntary, share),
            read_bytes: step_known(self.read_bytes, to.read_bytes, share),
            write_bytes: step_known(self.write_bytes, to.write_bytes, share),
        }
    }
}

fn towards(from: Counters, to: Counters, share: f64) -> Counters {
    let step = |pick: fn(&Counters) -> Option<u64>| step_known(pick(&from), pick(&to), share);
    Counters {
        received_bytes: step(|counters| counters.received_bytes),
        sent_bytes: step(|counters| counters.sent_bytes),
        cluster_bytes: step(|counters| counters.cluster_bytes),
        reads: step(|counters| counters.reads),
        writes: step(|counters| counters.writes),
        fsyncs: step(|counters| counters.fsyncs),
        read_bytes: step(|counters| counters.read_bytes),
        write_bytes: step(|counters| counters.write_bytes),
        log_groups: step(|counters| counters.log_groups),
        rows_read: step(|counters| counters.rows_read),
        rows_written: step(|counters| counters.rows_written),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(at: i64, cpu_ns: u64, fsyncs: Option<u64>) -> Reading {
        let process = Some(ProcessCounters {
            cpu_ns,
            ..ProcessCounters::default()
        });
        let status = fsyncs.map(|fsyncs| Counters {
            fsyncs: Some(fsyncs),
            ..Counters::default()
        });
        Reading {
            at: Nanos(at),
            servers: vec![ServerCounters { process, status }],
        }
    }

    #[test]
    fn counters_are_interpolated_between_readings() {
        let readings = [
            reading(0, 0, Some(0)),
            reading(10, 100, None),
            reading(20, 300, Some(40)),
        ];
        let of = |moment| at(&readings, Nanos(moment)).servers[0];
        assert_eq!(of(5).process.unwrap().cpu_ns, 50);
        assert_eq!(of(15).process.unwrap().cpu_ns, 200);
        assert_eq!(of(15).status.unwrap().fsyncs, Some(30));
        assert_eq!(of(20).process.unwrap().cpu_ns, 300);
        assert_eq!(
            of(21).process,
            None,
            "usage after the last reading is unknown"
        );
        assert_eq!(of(-1).process, None);
    }

    #[test]
    fn ended_server_is_unknown_after_its_last_reading() {
        let mut gone = reading(20, 0, None);
        gone.servers[0].process = None;
        let readings = [reading(0, 0, None), reading(10, 100, None), gone];
        assert_eq!(
            at(&readings, Nanos(10)).servers[0].process.unwrap().cpu_ns,
            100
        );
        assert_eq!(at(&readings, Nanos(15)).servers[0].process, None);
    }

    #[test]
    fn memory_stays_bounded() {
        let clock = crate::clock::Clock::start();
        let meter = Meter::open(&[], &clock).unwrap();
        let mut state = State {
            meter,
            readings: Vec::new(),
            every: Duration::from_millis(1),
            ended: false,
        };
        for at in 0..20_000 {
            state.keep(reading(at, at.unsigned_abs(), None));
        }
        assert!(state.readings.len() <= MAX_READINGS && state.every > Duration::from_millis(1));
        assert_eq!(state.readings[0].at, Nanos(0));
    }
}
