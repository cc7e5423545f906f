//! Threads that take processor time from servers and instruments.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

/// Threads of ordinary priority that compute without a pause; ended when dropped.
#[derive(Debug)]
pub struct BusyNeighbors {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl BusyNeighbors {
    /// Starts this number of threads.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn start(count: u32) -> io::Result<Self> {
        let mut neighbors = Self {
            stop: Arc::default(),
            threads: Vec::new(),
        };
        for _ in 0..count {
            let stop = Arc::clone(&neighbors.stop);
            let thread = thread::Builder::new().name("neighbor".to_owned());
            neighbors.threads.push(thread.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })?);
        }
        Ok(neighbors)
    }
}

impl Drop for BusyNeighbors {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A thread that panicked has ended, too.
            let _ = thread.join();
        }
    }
}
