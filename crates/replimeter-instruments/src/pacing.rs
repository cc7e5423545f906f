//! Waits for a point in time without the delay of a core that wakes up.

use std::{
    sync::atomic::AtomicBool,
    thread,
    time::{Duration, Instant},
};

use replimeter_model::time::Nanos;

use crate::{MeasureError, check_interrupted, clock::Clock};

/// How long before the point sleeping ends and spinning begins. A longer time would take a core from
/// the servers just before the measured write.
const SPIN: Nanos = Nanos(60_000);
/// The longest sleep, so that `stopped` is noticed.
const MAX_SLEEP: Duration = Duration::from_millis(20);

/// Waits until `point`; returns early, with false, when `stopped` returns true.
pub fn wait_until(clock: &Clock, point: Nanos, stopped: impl Fn() -> bool) -> bool {
    loop {
        if stopped() {
            return false;
        }
        let left = point - clock.now();
        if left <= Nanos(0) {
            return true;
        }
        if left > SPIN {
            let sleep = Duration::from_nanos((left - SPIN).0.unsigned_abs());
            thread::sleep(sleep.min(MAX_SLEEP));
        } else {
            while clock.now() < point {
                std::hint::spin_loop();
            }
        }
    }
}

/// Returns the pause between two readings of servers that catch up, after waiting for this time: a tenth of it, so that
/// the end is known within a tenth and the readings, which count among the servers' resources, are few.
fn sparse(waited: Duration) -> Duration {
    (waited / 10).clamp(Duration::from_millis(2), Duration::from_millis(500))
}

/// Waits while servers lack writes, and returns how long they did from now: the middle between the last reading that found
/// writes lacking and the first that did not, 0 if the first reading did not, `None` if it took longer than `limit`. `lacks`
/// reads the servers and returns whether any lacks a write.
///
/// # Errors
/// Those of `lacks`.
pub(crate) fn catch_up(
    limit: Duration,
    mut lacks: impl FnMut() -> Result<bool, MeasureError>,
) -> Result<Option<Duration>, MeasureError> {
    let began = Instant::now();
    if !lacks()? {
        return Ok(Some(Duration::ZERO));
    }
    loop {
        let lacked = began.elapsed();
        thread::sleep(sparse(lacked));
        if !lacks()? {
            return Ok(Some((lacked + began.elapsed()) / 2));
        }
        if began.elapsed() > limit {
            return Ok(None);
        }
    }
}

/// Calls `ask` until it returns a value, with pauses; returns `None` after `patience`.
///
/// # Errors
/// Those of `ask`, and when the user stops the run.
pub fn poll<T>(
    patience: Duration,
    pause: Duration,
    stop: &AtomicBool,
    mut ask: impl FnMut() -> Result<Option<T>, MeasureError>,
) -> Result<Option<T>, MeasureError> {
    let deadline = Instant::now() + patience;
    loop {
        let answer = ask()?;
        if answer.is_some() {
            return Ok(answer);
        }
        check_interrupted(stop)?;
        if Instant::now() >= deadline {
            return Ok(None);
        }
        thread::sleep(pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn catching_up_lasts_until_nothing_is_lacking() {
        let limit = Duration::from_secs(60);
        assert_eq!(
            catch_up(limit, || Ok(false)).ok(),
            Some(Some(Duration::ZERO))
        );
        let mut readings = 0;
        let began = Instant::now();
        let took = catch_up(limit, || {
            readings += 1;
            Ok(readings < 4)
        });
        let took = took.ok().flatten().unwrap();
        assert!(readings == 4 && Duration::ZERO < took && took <= began.elapsed());
        assert_eq!(catch_up(Duration::ZERO, || Ok(true)).ok(), Some(None));
        let stopped = catch_up(limit, || Err(MeasureError::Interrupted));
        assert!(matches!(stopped, Err(MeasureError::Interrupted)));
    }

    #[test]
    fn wait_lasts_until_the_point_or_the_stop() {
        let clock = Clock::start();
        let point = clock.now() + Nanos(3_000_000);
        assert!(wait_until(&clock, point, || false));
        assert!(clock.now() >= point);
        assert!(!wait_until(
            &clock,
            clock.now() + Nanos(60_000_000_000),
            || true
        ));
    }
}
