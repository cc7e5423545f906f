//! Keeps idle cores from halting.
//!
//! On a virtual machine a halted core takes tens of microseconds to wake, and a single client pays
//! that on every round trip; adding load can then make everything *faster*. A spinner on every
//! core, at idle priority, is preempted at once by any other thread and keeps the core awake
//! otherwise.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::priority::{SchedulingClass, enter};

/// One spinner per core that this process may use; ended when dropped.
#[derive(Debug)]
pub struct KeepAwake {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl KeepAwake {
    /// Starts the spinners.
    ///
    /// # Errors
    /// When the system refuses idle priority or the binding to a core; all spinners end then, because a
    /// spinner at ordinary priority would take time from the servers.
    pub fn start() -> Result<Self, String> {
        let allowed = sched_getaffinity(None)
            .map_err(|error| format!("cannot read the allowed cores: {error}"))?;
        let mut awake = Self {
            stop: Arc::default(),
            threads: Vec::new(),
        };
        for core in (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)) {
            let stop = Arc::clone(&awake.stop);
            let (ready, reported) = std::sync::mpsc::channel();
            awake.threads.push(thread::spawn(move || {
                let prepared = prepare(core);
                let go = prepared.is_ok();
                let _ = ready.send(prepared);
                while go && !stop.load(Ordering::Relaxed) {
                    for _ in 0..1000 {
                        std::hint::spin_loop();
                    }
                }
            }));
            reported
                .recv()
                .unwrap_or_else(|_| Err("a spinner ended unexpectedly".to_owned()))?;
        }
        Ok(awake)
    }

    /// Returns the number of cores kept awake.
    #[must_use]
    pub fn cores(&self) -> usize {
        self.threads.len()
    }
}

impl Drop for KeepAwake {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Gives this thread idle priority and binds it to a core.
fn prepare(core: usize) -> Result<(), String> {
    enter(SchedulingClass::Idle).map_err(|error| format!("cannot set idle priority: {error}"))?;
    let mut only = CpuSet::new();
    only.set(core);
    sched_setaffinity(None, &only).map_err(|error| format!("cannot bind to core {core}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_spinner_per_core_ends_on_drop() {
        let awake = KeepAwake::start().unwrap();
        assert_eq!(
            awake.cores(),
            thread::available_parallelism().unwrap().get()
        );
        drop(awake);
    }
}
