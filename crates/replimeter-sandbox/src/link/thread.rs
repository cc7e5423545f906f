//! What a link's threads need of the system.

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

/// Above the lowest level, which measuring threads have: one that spins must not
/// hold up what the link delivers.
const PRIORITY: i32 = 2;

/// Sleeps that end on time, and real-time priority where it is permitted: on
/// busy cores an ordinary thread waits behind the servers.
pub(super) fn be_punctual() {
    // A refusal of either leaves deliveries later, and the counters show it.
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
pub(super) struct Bell(OwnedFd);

impl Bell {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(
            0,
            EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK,
        )?))
    }

    pub(super) fn ring(&self) {
        // Fails only when it is ringing already.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Silences the bell until it is rung again.
    pub(super) fn silence(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Waits until one of `files` is ready or `most` has passed, forever without it.
pub(super) fn wait(files: &mut [PollFd<'_>], most: Option<Duration>) -> io::Result<()> {
    // A wait too long for the system is cut short; every caller looks at the clock itself.
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
