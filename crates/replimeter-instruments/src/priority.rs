//! How the kernel treats our threads.

use std::num::NonZeroU64;

/// The kernel's scheduling classes that we use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Runs only when nothing else wants the core.
    Idle,
    /// Preempts ordinary threads at once; the lowest of the real-time levels.
    RealTime,
}

/// Puts the calling thread into a class.
///
/// # Errors
/// When the system does not permit it.
pub(crate) fn enter(class: Class) -> Result<(), String> {
    let (policy, sched_priority) = match class {
        Class::Idle => (libc::SCHED_IDLE, 0),
        Class::RealTime => (libc::SCHED_FIFO, 1),
    };
    let priority = libc::sched_param { sched_priority };
    #[allow(unsafe_code, reason = "no safe crate in use wraps sched_setscheduler")]
    // SAFETY: the call reads the one struct, which outlives it; 0 means this thread.
    let answer = unsafe { libc::sched_setscheduler(0, policy, &raw const priority) };
    if answer == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error().to_string())
    }
}

/// Prepares a measuring thread: sleeps that end on time, and, if wanted and
/// permitted, real-time priority, without which a measuring thread waits behind
/// the servers on a busy core and every bracket is wider for it (on two cores the
/// floor's brackets were 100 µs wide without, 27 µs with).
pub(crate) fn prepare_measuring_thread(real_time: bool) {
    // By default the kernel may let sleeps run 50 µs over. A refusal of either
    // leaves the lateness as it is, and it is reported.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    if real_time {
        let _ = enter(Class::RealTime);
    }
}

/// Whether real-time priority is permitted, tried on a thread of its own.
///
/// # Errors
/// The system's reason when it is not.
pub fn real_time_permitted() -> Result<(), String> {
    std::thread::spawn(|| enter(Class::RealTime))
        .join()
        .unwrap_or_else(|_| Err("the trial thread ended unexpectedly".to_owned()))
}
