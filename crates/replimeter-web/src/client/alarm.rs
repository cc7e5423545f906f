//! Waits until a time; the runtime's own timers are late by up to a millisecond.

use std::io;

use replimeter_instruments::clock::Clock;
use replimeter_model::time::Nanos;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::net::unix::pipe::Receiver;

const SECOND: i64 = 1_000_000_000;

/// A timer of the system. The runtime reads its file descriptor as it reads a pipe.
pub(crate) struct Alarm(Receiver);

impl Alarm {
    /// Creates one; within a runtime.
    ///
    /// # Errors
    /// When the system refuses a file descriptor.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Self(Receiver::from_owned_fd_unchecked(timer)?))
    }

    /// Waits until a time of the clock.
    ///
    /// # Errors
    /// When the system refuses to set the timer.
    pub(crate) async fn wait_until(&self, clock: &Clock, due: Nanos) -> io::Result<()> {
        let left = due - clock.now();
        if left <= Nanos(0) {
            return Ok(());
        }
        let none = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let it_value = Timespec {
            tv_sec: left.0 / SECOND,
            tv_nsec: left.0 % SECOND,
        };
        let once = Itimerspec {
            it_interval: none,
            it_value,
        };
        // This also clears an expiry that was not read.
        timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once)?;
        loop {
            self.0.readable().await?;
            match self.0.try_read(&mut [0; 8]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read.map(drop),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Builder;

    use super::*;

    #[test]
    fn alarm_ends_at_its_time_and_not_before() {
        let runtime = Builder::new_current_thread().enable_io().build().unwrap();
        let clock = Clock::start();
        runtime.block_on(async {
            let alarm = Alarm::new().unwrap();
            for wait in [2_000_000, 0, -5, 300_000] {
                let due = clock.now() + Nanos(wait);
                alarm.wait_until(&clock, due).await.unwrap();
                assert!(clock.now() >= due);
            }
        });
    }
}
