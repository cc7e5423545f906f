//! Computes when data leaves a link.

use std::time::{Duration, Instant};

use replimeter_model::random::Random;

/// Settings of a link, for each direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct LinkSettings {
    /// One-way delay, to the microsecond.
    pub delay: Duration,
    /// Each chunk's delay is drawn uniformly from `delay - jitter` to `delay + jitter`, and is
    /// never below zero. The order of bytes is kept, so chunks that are closer together than the
    /// jitter wait for those before them and are later than `delay` on average.
    pub jitter: Duration,
    /// Bytes per second in each direction; `None` for no limit. Zero counts as one.
    pub bandwidth: Option<u64>,
}

/// A delay this long never ends; longer ones could leave the range of the clock.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// The schedule of one direction. It reads no clock: the due time of a chunk depends only on its
/// arrival and on the chunks before it, so late deliveries do not add up.
#[derive(Debug)]
pub(super) struct Schedule {
    random: Random,
    /// Until when the line is busy with the data so far.
    busy_until: Option<Instant>,
    last_due: Option<Instant>,
}

impl Schedule {
    /// Returns an empty schedule; `seed` determines the jitter.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            busy_until: None,
            last_due: None,
        }
    }

    /// Returns when a chunk of `bytes` that arrived at `arrival` is due at the other end.
    pub(super) fn due(
        &mut self,
        arrival: Instant,
        bytes: usize,
        settings: &LinkSettings,
    ) -> Instant {
        let start = self.busy_until.map_or(arrival, |busy| busy.max(arrival));
        let sent = later(start, occupation(bytes, settings.bandwidth));
        self.busy_until = Some(sent);
        let due = later(sent, self.one_way(settings));
        let due = self.last_due.map_or(due, |last| last.max(due));
        self.last_due = Some(due);
        due
    }

    /// Forgets the chunks so far: they get a new schedule, or were delivered.
    pub(super) fn restart(&mut self) {
        self.busy_until = None;
        self.last_due = None;
    }

    fn one_way(&mut self, settings: &LinkSettings) -> Duration {
        if settings.jitter.is_zero() {
            return settings.delay;
        }
        let jitter = settings.jitter.min(FOREVER);
        let widest = u64::try_from(2 * jitter.as_nanos()).unwrap_or(u64::MAX);
        let drawn = Duration::from_nanos(self.random.between(0, widest));
        settings.delay.saturating_add(drawn).saturating_sub(jitter)
    }
}

/// Returns how long `bytes` keep the line busy.
fn occupation(bytes: usize, bandwidth: Option<u64>) -> Duration {
    bandwidth.map_or(Duration::ZERO, |bandwidth| {
        let nanos = (bytes as u128 * 1_000_000_000).div_ceil(u128::from(bandwidth.max(1)));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    })
}

fn later(time: Instant, by: Duration) -> Instant {
    time.checked_add(by.min(FOREVER)).unwrap_or(time)
}

#[cfg(test)]
mod tests;
