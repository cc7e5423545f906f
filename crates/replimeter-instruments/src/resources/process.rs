//! One server process as `/proc` and its clock show it.

use std::{collections::HashMap, fs, io::Read};

use procfs::process::Process as Seen;

/// Counters of a process since its first reading, or since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ProcessCounters {
    /// Processor time of all threads, including ended ones.
    pub(super) cpu_ns: u64,
    /// Time in user mode, from the kernel's coarser accounting.
    pub(super) user_ticks: u64,
    /// Time in the kernel.
    pub(super) system_ticks: u64,
    /// Context switches of all threads.
    pub(super) switches: u64,
    /// Involuntary ones.
    pub(super) involuntary: u64,
    /// Bytes read from storage; `None` when the system does not show them.
    pub(super) read_bytes: Option<u64>,
    /// Bytes written to storage.
    pub(super) write_bytes: Option<u64>,
}

/// A process, with the state of its threads.
#[derive(Debug)]
pub(super) struct Process {
    seen: Seen,
    /// Distinguishes it from a later process with the same id.
    started: u64,
    /// Each thread's switches at the last reading: voluntary, involuntary.
    tasks: HashMap<i32, [u64; 2]>,
    /// Switches of all threads since the first reading, including threads that ended since.
    switches: [u64; 2],
    tells_io: bool,
}

impl Process {
    /// Returns the process with this id, if it exists.
    pub(super) fn new(pid: u32) -> Option<Self> {
        let seen = Seen::new(i32::try_from(pid).ok()?).ok()?;
        let stat = seen.stat().ok().filter(|stat| stat.state != 'Z')?;
        let tells_io = seen.io().is_ok();
        Some(Self {
            started: stat.starttime,
            seen,
            tasks: HashMap::new(),
            switches: [0; 2],
            tells_io,
        })
    }

    /// Returns whether the system shows bytes read and written.
    pub(super) fn reports_io(&self) -> bool {
        self.tells_io
    }

    /// Returns its counters; `None` when it has ended.
    pub(super) fn read(&mut self) -> Option<ProcessCounters> {
        let pid = self.seen.pid;
        let cpu_ns = cpu_clock(pid)?;
        let stat = self
            .seen
            .stat()
            .ok()
            .filter(|stat| stat.state != 'Z' && stat.starttime == self.started)?;
        let io = if self.tells_io {
            self.seen.io().ok()
        } else {
            None
        };
        self.read_tasks(pid);
        Some(ProcessCounters {
            cpu_ns,
            user_ticks: stat.utime,
            system_ticks: stat.stime,
            switches: self.switches[0] + self.switches[1],
            involuntary: self.switches[1],
            read_bytes: io.as_ref().map(|io| io.read_bytes),
            write_bytes: io.as_ref().map(|io| io.write_bytes),
        })
    }

    /// Adds the switches of every thread since the last reading. Threads that began and ended in
    /// between are missed, as are the switches of a thread between the last reading and its end.
    fn read_tasks(&mut self, pid: i32) {
        let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else {
            return;
        };
        let first = self.tasks.is_empty();
        let mut text = Vec::new();
        let mut present = HashMap::with_capacity(self.tasks.len());
        for tid in entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        {
            text.clear();
            let read = fs::File::open(format!("/proc/{pid}/task/{tid}/status"))
                .and_then(|mut file| file.read_to_end(&mut text));
            let Some(now) = read.ok().and_then(|_| switches(&text)) else {
                continue;
            };
            // Below the last value: another thread with the same id.
            let before = self
                .tasks
                .get(&tid)
                .copied()
                .filter(|before| before[0] <= now[0] && before[1] <= now[1]);
            // At the first reading all switches are in the past.
            let before = if first {
                now
            } else {
                before.unwrap_or_default()
            };
            for kind in 0..2 {
                self.switches[kind] += now[kind] - before[kind];
            }
            present.insert(tid, now);
        }
        self.tasks = present;
    }
}

/// Returns the last two lines of a thread's status: its switches, voluntary and involuntary.
fn switches(status: &[u8]) -> Option<[u64; 2]> {
    let text = std::str::from_utf8(status).ok()?;
    let value = |name: &str| {
        text.lines()
            .rev()
            .take(8)
            .find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
    };
    Some([
        value("voluntary_ctxt_switches:")?,
        value("nonvoluntary_ctxt_switches:")?,
    ])
}

/// Returns the processor time of a process in nanoseconds, by the kernel's clock for it. The clock
/// id is computed like `MAKE_PROCESS_CPUCLOCK` (Linux, `posix-timers.h`), which
/// `clock_getcpuclockid` uses.
pub(super) fn cpu_clock(pid: i32) -> Option<u64> {
    const SCHED: i32 = 2;
    let clock = (!pid << 3) | SCHED;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    #[allow(
        unsafe_code,
        reason = "no safe crate in use reads another process's clock"
    )]
    // SAFETY: the call writes the one struct, which outlives it; an unknown clock is an error.
    let answer = unsafe { libc::clock_gettime(clock, &raw mut time) };
    (answer == 0).then(|| time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use std::{hint::black_box, process::Command, thread, time::Instant};

    use super::*;

    #[test]
    fn ended_threads_count_in_process_usage() {
        let mut process = Process::new(std::process::id()).unwrap();
        let before = process.read().unwrap();
        let began = Instant::now();
        let spun = thread::spawn(|| {
            let own = crate::clock::thread_cpu();
            let began = Instant::now();
            while began.elapsed().as_millis() < 40 {
                black_box(0);
            }
            // Waits repeatedly, so that it switches.
            for _ in 0..50 {
                thread::sleep(std::time::Duration::from_micros(100));
            }
            crate::clock::thread_cpu() - own
        });
        thread::sleep(std::time::Duration::from_millis(5));
        let _ = process.read();
        let spun = spun.join().unwrap();
        let after = process.read().unwrap();
        let used = after.cpu_ns - before.cpu_ns;
        assert!(
            u128::from(used) >= spun.as_nanos(),
            "{used} ns, the thread alone {spun:?}"
        );
        assert!(
            after.switches > before.switches
                && after.user_ticks + after.system_ticks >= before.user_ticks
        );
        assert!(began.elapsed().as_nanos() > 0);
        assert!(process.reports_io() && after.write_bytes.is_some());
    }

    #[test]
    fn ended_process_has_no_counters() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let mut process = Process::new(child.id()).unwrap();
        assert!(process.read().is_some());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(process.read().is_none());
        assert!(Process::new(u32::MAX).is_none());
    }

    #[test]
    fn process_status_lines_are_parsed() {
        let status = b"Name:\tx\nThreads:\t3\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n";
        assert_eq!(switches(status), Some([12, 3]));
        assert_eq!(switches(b"voluntary_ctxt_switches:\tx\n"), None);
        assert_eq!(switches(b"\xff"), None);
    }
}
