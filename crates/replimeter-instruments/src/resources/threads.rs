//! Threads of this process, by the beginning of their names.

use procfs::process::{Process, Task};

use super::process::ProcessCounters;

/// Threads that live as long as they are read: one that ends takes its counters with it.
#[derive(Debug)]
pub(super) struct ThreadGroup {
    prefix: String,
}

impl ThreadGroup {
    pub(super) fn new(prefix: String) -> Self {
        Self { prefix }
    }

    /// Returns the sum of their counters; `None` if there is no such thread.
    pub(super) fn read(&self) -> Option<ProcessCounters> {
        let tasks = Process::myself().ok()?.tasks().ok()?;
        let counters = tasks.flatten().filter_map(|task| self.counters(&task));
        counters.reduce(|sum, one| ProcessCounters {
            cpu_ns: sum.cpu_ns + one.cpu_ns,
            user_ticks: sum.user_ticks + one.user_ticks,
            system_ticks: sum.system_ticks + one.system_ticks,
            switches: sum.switches + one.switches,
            involuntary: sum.involuntary + one.involuntary,
            read_bytes: sum
                .read_bytes
                .zip(one.read_bytes)
                .map(|(sum, one)| sum + one),
            write_bytes: sum
                .write_bytes
                .zip(one.write_bytes)
                .map(|(sum, one)| sum + one),
        })
    }

    fn counters(&self, task: &Task) -> Option<ProcessCounters> {
        let stat = task.stat().ok()?;
        if !stat.comm.starts_with(&self.prefix) {
            return None;
        }
        let status = task.status().ok()?;
        let voluntary = status.voluntary_ctxt_switches.unwrap_or(0);
        let involuntary = status.nonvoluntary_ctxt_switches.unwrap_or(0);
        let io = task.io().ok();
        Some(ProcessCounters {
            cpu_ns: task.schedstat().ok()?.sum_exec_runtime,
            user_ticks: stat.utime,
            system_ticks: stat.stime,
            switches: voluntary + involuntary,
            involuntary,
            read_bytes: io.as_ref().map(|io| io.read_bytes),
            write_bytes: io.as_ref().map(|io| io.write_bytes),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use super::*;
    use crate::clock::thread_cpu;

    #[test]
    fn threads_are_counted_by_the_beginning_of_their_names() {
        let (done, ended) = mpsc::channel::<()>();
        let (tell, heard) = mpsc::channel();
        let spinner = thread::Builder::new().name("spun-1".to_owned());
        let thread = spinner.spawn(move || {
            let began = thread_cpu();
            while (thread_cpu() - began).as_millis() < 20 {
                std::hint::spin_loop();
            }
            let _ = tell.send(());
            let _ = ended.recv();
        });
        heard.recv().unwrap();
        let read = ThreadGroup::new("spun-".to_owned()).read().unwrap();
        assert!(read.cpu_ns >= 20_000_000 && read.switches > 0, "{read:?}");
        assert!(ThreadGroup::new("no-such".to_owned()).read().is_none());
        drop(done);
        thread.unwrap().join().unwrap();
    }
}
