//! Waiting for a point in time without missing it by a sleeping core.

use std::{
    sync::atomic::AtomicBool,
    thread,
    time::{Duration, Instant},
};

use replimeter_model::time::Nanos;

use crate::{MeasureError, clock::Clock, heed};

/// How long before the point sleeping ends and spinning begins. Longer would
/// take a core from the servers just before the write that is measured.
const SPIN: Nanos = Nanos(60_000);
/// The longest sleep, so that `stop` is noticed.
const NAP: Duration = Duration::from_millis(20);

/// Waits until `point`; returns early, and false, when `stopped` says so.
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
            thread::sleep(sleep.min(NAP));
        } else {
            while clock.now() < point {
                std::hint::spin_loop();
            }
        }
    }
}

/// Asks until there is an answer, with pauses; `None` when there was none in time.
///
/// # Errors
/// Those of `ask`, and when the user ends the run.
pub(crate) fn poll<T>(
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
        heed(stop)?;
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
    fn waits_at_least_until_the_point_and_heeds_the_stop() {
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
