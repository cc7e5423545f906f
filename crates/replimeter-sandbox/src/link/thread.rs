//! System settings of a link's threads.

use std::{
    io,
    num::NonZeroU64,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use rustix::{
    event::{EventfdFlags, PollFd, Timespec, eventfd, poll},
    io::Errno,
};

/// Above the lowest level, which measuring threads have: a busy one must not delay the link's
/// deliveries.
const PRIORITY: i32 = 2;

/// Sets precise sleeps, and real-time priority where permitted: on busy cores an ordinary thread
/// waits behind the servers.
pub(super) fn set_timer_slack() {
    // If either is refused, deliveries are later, which the counters show.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    let priority = libc::sched_param {
        sched_priority: PRIORITY,
    };
    #[allow(unsafe_code, reason = "no safe crate in use wraps sched_setscheduler")]
    // SAFETY: the call reads the one struct, which outlives it; 0 means this thread.
    let _ = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority) };
}

/// Ends another thread's wait.
#[derive(Debug)]
pub(super) struct Wakeup(OwnedFd);

impl Wakeup {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(
            0,
            EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK,
        )?))
    }

    pub(super) fn wake(&self) {
        // Fails only when it is already set.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Resets it until the next wakeup.
    pub(super) fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Wakeup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Waits until one of `files` is ready or `most` has passed; without limit if `None`.
pub(super) fn wait(files: &mut [PollFd<'_>], most: Option<Duration>) -> io::Result<()> {
    // A wait too long for the system is shortened; every caller checks the clock.
    let most = most.map(|most| {
        Timespec::try_from(most).unwrap_or(Timespec {
            tv_sec: 3600,
            tv_nsec: 0,
        })
    });
    match poll(files, most.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
