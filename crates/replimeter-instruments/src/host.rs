//! What else used this machine during a run, or limited it: processor time that other virtual machines had
//! (steal), time in which threads waited (pressure), pauses by quotas, and the latency of flushes.
//!
//! All of it is read from counters of the kernel, whose differences are figures. A counter that is missing
//! leaves the figure blank, with a reason, and is never zero.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use procfs::process::Process;
use replimeter_engine::{control_group::cpu_stats, source::Member};
use replimeter_model::{
    host::{FlushLatency, HostRecord, HostWindow, Throttled},
    time::Nanos,
    warning::{Warning, WarningCode},
};

use crate::clock::Clock;

/// The shortest and the relative length of a window that ends before its part.
const WINDOW: Nanos = Nanos(10_000_000_000);
const WINDOWS_PER_TIME: i64 = 60;
/// Maximum number of windows.
const MAX_WINDOWS: usize = 1000;
/// Number and bytes of the flushes, and the time after which no other begins.
const FLUSHES: usize = 32;
const FLUSHED: [u8; 512] = [b'-'; 512];
const FLUSH_TIME: Duration = Duration::from_millis(500);
/// The file that is flushed, in the folder of sandboxes.
const FLUSH_FILE: &str = ".flush";

/// Times of all cores since boot, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreTime {
    idle: u64,
    steal: u64,
    total: u64,
}

impl CoreTime {
    /// Reads the current values; `None` if the system does not show them.
    #[must_use]
    pub fn read() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// Parses `/proc/stat` (proc(5)).
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.lines().next()?.split_whitespace();
        if words.next()? != "cpu" {
            return None;
        }
        // User, nice, system, idle, I/O wait, interrupts, soft interrupts, steal; the rest is in the first two.
        let numbers = words.take(8).map(|word| word.parse().ok());
        let numbers: [u64; 8] = numbers.collect::<Option<Vec<u64>>>()?.try_into().ok()?;
        let add = |sum: u64, number: &u64| sum.checked_add(*number);
        Some(Self {
            idle: numbers[3].checked_add(numbers[4])?,
            steal: numbers[7],
            total: numbers.iter().try_fold(0, add)?,
        })
    }

    /// Returns the shares of the time since `before` in which cores were idle, and other virtual machines had them.
    fn shares(self, before: Self) -> Option<(f64, f64)> {
        let since = |of: fn(&Self) -> u64| of(&self).checked_sub(of(&before));
        let total = since(|time| time.total).filter(|total| *total > 0)? as f64;
        // The kernel's idle time can step back by a tick.
        let idle = since(|time| time.idle).unwrap_or(0) as f64;
        let steal = since(|time| time.steal).unwrap_or(0) as f64;
        Some((idle / total, steal / total))
    }

    /// Returns the share of the cores' time since `before` that other virtual machines had.
    #[must_use]
    pub fn steal_share(self, before: Self) -> Option<f64> {
        self.shares(before).map(|(_, steal)| steal)
    }

    /// Returns the share of time since `before` in which cores were idle.
    #[must_use]
    pub fn idle_share(self, before: Self) -> Option<f64> {
        self.shares(before).map(|(idle, _)| idle)
    }
}

/// Returns the time in µs for which a thread has waited for a resource (`cpu`, `io`, `memory`); `None` where the kernel
/// does not count it.
fn pressure(proc: &Path, resource: &str) -> Option<u64> {
    waited(&fs::read_to_string(proc.join("pressure").join(resource)).ok()?)
}

/// Returns that time from the text of such a file.
fn waited(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("some "))?;
    let mut words = line.split_whitespace();
    words.find_map(|word| word.strip_prefix("total=")?.parse().ok())
}

/// Returns the time since boot in which a thread of this machine waited for a disk; `None` where the kernel does not count it.
#[must_use]
pub fn disk_wait() -> Option<Duration> {
    pressure(Path::new("/proc"), "io").map(Duration::from_micros)
}

/// Pauses since a control group exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Pauses {
    periods: u64,
    throttled: u64,
    /// In nanoseconds.
    time: u64,
}

/// Parses `cpu.stat` of either version; `None` without a quota.
fn pauses(text: &str) -> Option<Pauses> {
    let value = |name: &str| {
        text.lines().find_map(|line| {
            let (key, value) = line.split_once(' ')?;
            (key == name).then(|| value.trim().parse::<u64>().ok())?
        })
    };
    let periods = value("nr_periods").filter(|periods| *periods > 0)?;
    let time = match value("throttled_usec") {
        Some(us) => us.checked_mul(1000)?,
        None => value("throttled_time")?,
    };
    let throttled = value("nr_throttled")?;
    Some(Pauses {
        periods,
        throttled,
        time,
    })
}

/// The files of `/proc/pressure`.
const PRESSURE: [&str; 3] = ["cpu", "io", "memory"];

/// The counters of the machine at one time.
#[derive(Clone, Debug)]
struct HostCounters {
    at: Nanos,
    cores: Option<CoreTime>,
    waited: [Option<u64>; 3],
    pauses: Vec<(String, Pauses)>,
    client: BTreeMap<i32, ThreadTime>,
}

/// Times of a thread since it started, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ThreadTime {
    /// It ran.
    ran: u64,
    /// It could run, and had no core.
    waited: u64,
}

/// Returns the times of this process's threads by their numbers; none where the system does not count them.
fn client_threads() -> BTreeMap<i32, ThreadTime> {
    let tasks = Process::myself().and_then(|process| process.tasks());
    let threads = tasks.into_iter().flatten().flatten().filter_map(|task| {
        // The threads that keep cores awake measure nothing.
        let measures = task.stat().ok()?.policy != Some(libc::SCHED_IDLE as u32);
        let times = task.schedstat().ok().filter(|_| measures)?;
        let time = ThreadTime {
            ran: times.sum_exec_runtime,
            waited: times.run_delay,
        };
        Some((task.tid, time))
    });
    threads.collect()
}

/// Returns the share of the threads' runnable time between two readings in which they waited; `None` if they never ran.
fn delayed(begin: &BTreeMap<i32, ThreadTime>, end: &BTreeMap<i32, ThreadTime>) -> Option<f64> {
    // A thread that has ended since is missing; one that began since has waited since.
    let since = |of: fn(&ThreadTime) -> u64| -> u64 {
        let each = end.iter().map(|(number, end)| {
            let before = begin.get(number).map_or(0, of);
            of(end).saturating_sub(before)
        });
        each.sum()
    };
    let (ran, waited) = (since(|time| time.ran), since(|time| time.waited));
    (ran > 0).then(|| waited as f64 / (ran + waited) as f64)
}

/// Observes the machine while a run measures.
pub struct HostWatch {
    clock: Clock,
    /// The folder of `stat` and `pressure`.
    proc: PathBuf,
    /// Names, and their files with pauses.
    limited: Vec<(String, Vec<PathBuf>)>,
    /// The current window: its part, and its first counters.
    open: Option<(String, HostCounters)>,
    record: HostRecord,
    absent: BTreeSet<String>,
}

impl HostWatch {
    /// Observes this machine, and the client's own quota.
    #[must_use]
    pub fn new(clock: &Clock) -> Self {
        Self {
            clock: *clock,
            proc: PathBuf::from("/proc"),
            limited: vec![("client".to_owned(), cpu_stats(Path::new("/proc/self")))],
            open: None,
            record: HostRecord::default(),
            absent: BTreeSet::new(),
        }
    }

    /// Also observes the quotas of servers, in place of earlier ones.
    pub fn servers(&mut self, members: &[Member]) {
        self.limited.truncate(1);
        let local = members
            .iter()
            .filter_map(|member| Some((member, member.pid?)));
        self.limited.extend(local.map(|(member, pid)| {
            let files = cpu_stats(Path::new(&format!("/proc/{pid}")));
            (member.node.name.clone(), files)
        }));
    }

    /// Takes the part that is measured now, or that none is.
    pub fn measuring(&mut self, part: Option<&str>) {
        let now = self.clock.now();
        match (&self.open, part) {
            (None, None) => return,
            (Some((open, begin)), Some(part)) if *open == part && now < begin.at + longest(now) => {
                return;
            }
            _ => {}
        }
        let counters = self.read();
        if let Some((_, begin)) = self.open.take() {
            self.record.windows.extend(window(&begin, &counters));
        }
        if self.record.windows.len() < MAX_WINDOWS {
            self.open = part.map(|part| (part.to_owned(), counters));
        } else if part.is_some() {
            let reason = format!("only the first {MAX_WINDOWS} windows are recorded");
            self.absent.insert(reason);
        }
    }

    /// Flushes small writes to the file system of a folder, while nothing is measured.
    pub fn flush(&mut self, folder: &Path) -> Option<FlushLatency> {
        let measured = flush(folder);
        measured
            .map_err(|error| {
                let reason = format!("flushes in {}: {error}", folder.display());
                self.absent.insert(reason);
            })
            .ok()
    }

    /// Sets the latency of flushes before and after the run.
    pub fn flushes(&mut self, before: Option<FlushLatency>, after: Option<FlushLatency>) {
        (self.record.flush_before, self.record.flush_after) = (before, after);
    }

    /// Returns the record so far.
    #[must_use]
    pub fn record(&self) -> HostRecord {
        let mut record = self.record.clone();
        if let Some((_, begin)) = &self.open {
            record.windows.extend(window(begin, &self.read()));
        }
        let mut absent = self.absent.clone();
        let missing = |share: fn(&HostWindow) -> Option<f64>| {
            record.windows.iter().any(|window| share(window).is_none())
        };
        if record.windows.is_empty() {
            absent.insert("the measurement was too short for a window".to_owned());
        }
        if missing(|window| window.steal_percent) {
            let file = self.proc.join("stat");
            absent.insert(format!("{} shows no times of cores", file.display()));
        }
        for (name, share) in PRESSURE.iter().zip(SHARES) {
            if missing(share) {
                let file = self.proc.join("pressure").join(name);
                let reason = "the kernel does not count pressure (CONFIG_PSI, psi=1)";
                absent.insert(format!("{}: {reason}", file.display()));
            }
        }
        record.absent = absent.into_iter().collect();
        record
    }

    fn read(&self) -> HostCounters {
        let text = |path: &Path| fs::read_to_string(path).ok();
        let limited = self.limited.iter().filter_map(|(name, files)| {
            let mut found = files.iter().filter_map(|file| pauses(&text(file)?));
            Some((name.clone(), found.next()?))
        });
        HostCounters {
            at: self.clock.now(),
            cores: text(&self.proc.join("stat")).and_then(|text| CoreTime::parse(&text)),
            waited: PRESSURE.map(|name| pressure(&self.proc, name)),
            pauses: limited.collect(),
            client: client_threads(),
        }
    }
}

/// The shares of a window that are pressure, in the order of the files.
const SHARES: [fn(&HostWindow) -> Option<f64>; 3] = [
    |window| window.cpu_pressure_percent,
    |window| window.io_pressure_percent,
    |window| window.memory_pressure_percent,
];

/// Returns the length of a window that ends now, so that their number grows with the logarithm of the time.
fn longest(now: Nanos) -> Nanos {
    WINDOW.max(Nanos(now.0 / WINDOWS_PER_TIME))
}

/// Returns the figures between two readings; `None` if no time passed.
fn window(begin: &HostCounters, end: &HostCounters) -> Option<HostWindow> {
    let took_us = (end.at - begin.at).as_micros();
    if took_us <= 0.0 {
        return None;
    }
    let cores = end.cores.zip(begin.cores);
    let shares = cores.and_then(|(end, begin)| end.shares(begin));
    let waited = |index: usize| {
        let us = end.waited[index]?.checked_sub(begin.waited[index]?)?;
        Some(us as f64 / took_us * 100.0)
    };
    let paused = end.pauses.iter().filter_map(|(name, end)| {
        let before = begin.pauses.iter().find(|(other, _)| other == name);
        // A group without any period had none at the begin.
        let before = before.map_or_else(Pauses::default, |(_, pauses)| *pauses);
        Some(Throttled {
            name: name.clone(),
            periods: end.periods.checked_sub(before.periods)?,
            throttled_periods: end.throttled.checked_sub(before.throttled)?,
            throttled_us: end.time.checked_sub(before.time)? as f64 / 1000.0,
        })
    });
    Some(HostWindow {
        begin_us: begin.at.as_micros(),
        end_us: end.at.as_micros(),
        cpu_percent: shares.map(|(idle, steal)| (1.0 - idle - steal).max(0.0) * 100.0),
        steal_percent: shares.map(|(_, steal)| steal * 100.0),
        cpu_pressure_percent: waited(0),
        io_pressure_percent: waited(1),
        memory_pressure_percent: waited(2),
        client_delay_percent: delayed(&begin.client, &end.client).map(|share| share * 100.0),
        throttled: paused.collect(),
    })
}

/// Appends to a new file and flushes it, again and again; the file is removed. It has its name until then: Btrfs flushes a file
/// without one in less time.
fn flush(folder: &Path) -> io::Result<FlushLatency> {
    let path = folder.join(FLUSH_FILE);
    // A killed run leaves it; to a run that flushes at the same time, its open file remains.
    let _ = fs::remove_file(&path);
    let open = fs::File::options()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(&path);
    let mut file = open?;
    let (mut took, began) = (Vec::new(), Instant::now());
    let mut flushed = || -> io::Result<()> {
        while took.len() < FLUSHES && began.elapsed() < FLUSH_TIME {
            file.write_all(&FLUSHED)?;
            let start = Instant::now();
            file.sync_all()?;
            took.push(start.elapsed().as_secs_f64() * 1e6);
        }
        Ok(())
    };
    let result = flushed();
    let _ = fs::remove_file(&path);
    result?;
    took.sort_by(f64::total_cmp);
    let Some(max_us) = took.last().copied() else {
        return Err(io::Error::other("none began in time"));
    };
    Ok(FlushLatency {
        count: took.len() as u64,
        p50_us: took[took.len() / 2],
        max_us,
    })
}

/// Steal that can explain a p99: twice the share of the rows beyond it.
const STEAL_PERCENT: f64 = 2.0;
/// Pressure on a client that only waits for servers of other machines or of its own; idle, it is under 5 %.
const CPU_PRESSURE_PERCENT: f64 = 20.0;
/// Pressure on memory: the servers' pages are read from the disk again.
const MEMORY_PRESSURE_PERCENT: f64 = 5.0;
/// How much slower flushes are after the run; the medians of 32 differ by less on an idle disk.
const SLOWER_FLUSHES: f64 = 3.0;

/// Returns what explains figures of a run. `client_only` is whether only the client's waiting counts as pressure:
/// neither servers nor a load that it started itself, nor the threads that keep cores awake, wait for its cores.
#[must_use]
pub fn warnings(record: &HostRecord, client_only: bool) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut warn = |message: String, hint: &str| {
        warnings.push(Warning::new(WarningCode::MachineDisturbed, message, hint));
    };
    let above = |least: f64, share: fn(&HostWindow) -> Option<f64>| {
        let mean = record.mean(share).filter(|mean| *mean >= least)?;
        Some((mean, record.most(share).unwrap_or(mean).max(mean)))
    };
    if let Some((mean, most)) = above(STEAL_PERCENT, |window| window.steal_percent) {
        warn(
            format!(
                "other virtual machines had {mean:.1} % of this machine's processor time while it measured (up to {most:.1} % in a window): tails of latencies include it"
            ),
            "measure again at another time, or on a machine with dedicated cores",
        );
    }
    let pressed = above(CPU_PRESSURE_PERCENT, |window| window.cpu_pressure_percent);
    if let Some((mean, most)) = pressed.filter(|_| client_only) {
        warn(
            format!(
                "threads waited for this machine's cores {mean:.0} % of the time (up to {most:.0} % in a window): every latency can include such a wait"
            ),
            "end other programs on this machine, or measure from another one",
        );
    }
    if let Some((mean, most)) = above(MEMORY_PRESSURE_PERCENT, |window| {
        window.memory_pressure_percent
    }) {
        warn(
            format!(
                "threads waited for this machine's memory {mean:.0} % of the time (up to {most:.0} % in a window): every latency can include such a wait"
            ),
            "end other programs on this machine, or use smaller data",
        );
    }
    for paused in record.pauses() {
        let (name, periods) = (paused.name, paused.periods);
        let (throttled, us) = (paused.throttled_periods, paused.throttled_us);
        if throttled > 0 {
            warn(
                format!(
                    "{name} was paused in {throttled} of {periods} periods of its quota of processor time, for {:.0} ms in total: latencies include the pauses",
                    us / 1000.0
                ),
                "give it a larger quota, or whole cores (--cpus-per-server 1)",
            );
        }
    }
    if let (Some(before), Some(after)) = (record.flush_before, record.flush_after)
        && after.p50_us > SLOWER_FLUSHES * before.p50_us
    {
        warn(
            format!(
                "a flush took {:.0} µs before the run and {:.0} µs after it (medians of {}): commits that flush became slower during the run",
                before.p50_us, after.p50_us, after.count
            ),
            "end other programs that write to this disk, then measure again",
        );
    }
    warnings
}

#[cfg(test)]
#[path = "host/tests.rs"]
mod tests;

#[cfg(test)]
mod killed_run_tests {
    use super::*;

    #[test]
    fn flush_replaces_the_file_of_a_killed_run() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(FLUSH_FILE), "left").unwrap();
        flush(folder.path()).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
