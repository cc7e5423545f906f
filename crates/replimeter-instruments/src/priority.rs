//! Scheduling of Replimeter's threads.

use std::num::NonZeroU64;

/// The kernel's scheduling classes in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SchedulingClass {
    /// Runs only when no other thread needs the core.
    Idle,
    /// Preempts ordinary threads at once; the lowest of the real-time levels.
    RealTime,
}

/// Puts the calling thread into a class.
///
/// # Errors
/// When the system does not permit it.
pub(crate) fn enter(class: SchedulingClass) -> Result<(), String> {
    let (policy, sched_priority) = match class {
        SchedulingClass::Idle => (libc::SCHED_IDLE, 0),
        SchedulingClass::RealTime => (libc::SCHED_FIFO, 1),
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

/// Prepares a measuring thread: sleeps that end on time, and, if requested and permitted, real-time
/// priority. Without it a measuring thread waits behind the servers on a busy core, and every bracket
/// becomes wider (on two cores the floor's brackets were 100 µs wide without it, 27 µs with it).
pub(crate) fn prepare_measuring_thread(real_time: bool) {
    // By default the kernel may extend sleeps by 50 µs. Refusals are ignored: the lateness remains,
    // and is reported.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    if real_time {
        let _ = enter(SchedulingClass::RealTime);
    }
}

/// Tries on a separate thread whether real-time priority is permitted.
///
/// # Errors
/// The system's reason when it is not permitted.
pub fn real_time_permitted() -> Result<(), String> {
    std::thread::spawn(|| enter(SchedulingClass::RealTime))
        .join()
        .unwrap_or_else(|_| Err("the trial thread ended unexpectedly".to_owned()))
}
