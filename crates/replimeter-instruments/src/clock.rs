//! The one clock for measuring; figures use no other time.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use replimeter_model::time::Nanos;

/// A run's monotonic clock. Its zero is its creation; the calendar time of that moment is kept only to
/// print dates, never to measure.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
    origin_unix_us: i64,
}

impl Clock {
    /// Starts a run's clock.
    #[must_use]
    pub fn start() -> Self {
        let origin = Instant::now();
        let since_epoch = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Self {
            origin,
            origin_unix_us: i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX),
        }
    }

    /// Returns the nanoseconds since the clock was started.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Nanos {
        Nanos::from(self.origin.elapsed())
    }

    /// Returns the calendar time at the clock's zero, in microseconds since 1970.
    #[must_use]
    pub fn origin_unix_us(&self) -> i64 {
        self.origin_unix_us
    }

    /// Returns the smallest difference between successive readings, out of many.
    #[must_use]
    pub fn step(&self) -> Duration {
        let mut smallest = Duration::MAX;
        let mut last = Instant::now();
        for _ in 0..10_000 {
            let now = Instant::now();
            if now > last {
                smallest = smallest.min(now - last);
            }
            last = now;
        }
        smallest
    }
}

/// Returns the processor time of the calling thread.
#[must_use]
pub fn thread_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

/// Readings of both clocks that tie one to the other; the closest pair counts.
const TIES: usize = 100;

/// This machine's calendar clock, tied once to the monotonic one, so that it cannot step between two
/// readings. For comparisons with servers' clocks, never for a lag.
#[derive(Clone, Copy, Debug)]
pub struct Calendar {
    origin: Instant,
    /// Nanoseconds since 1970 at the origin.
    unix: Nanos,
    bound: Nanos,
}

impl Calendar {
    /// Ties the two clocks.
    #[must_use]
    pub fn calibrate() -> Self {
        let mut best: Option<Self> = None;
        for _ in 0..TIES {
            let before = Instant::now();
            let unix = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default();
            let width = before.elapsed();
            let bound = Nanos::from(width / 2);
            if best.is_none_or(|best| bound < best.bound) {
                best = Some(Self {
                    origin: before + width / 2,
                    unix: Nanos::from(unix),
                    bound,
                });
            }
        }
        best.unwrap_or_else(|| Self {
            origin: Instant::now(),
            unix: Nanos(0),
            bound: Nanos(i64::MAX / 4),
        })
    }

    /// Returns the nanoseconds since 1970.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.unix + Nanos::from(self.origin.elapsed())
    }

    /// Returns the maximum error of the tie between the two clocks.
    #[must_use]
    pub fn bound(&self) -> Nanos {
        self.bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_is_monotonic_with_fine_resolution() {
        let clock = Clock::start();
        let (a, b) = (clock.now(), clock.now());
        assert!(b >= a && a.0 >= 0);
        assert!(clock.step() < Duration::from_millis(1));
    }

    #[test]
    fn calendar_agrees_with_system_time() {
        let calendar = Calendar::calibrate();
        let system = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let apart = Nanos::from(system) - calendar.now();
        assert!(apart.0.abs() < 1_000_000_000, "{apart:?}");
        assert!(calendar.bound() < Nanos(1_000_000_000));
    }
}
