//! When what enters a link leaves it.

use std::time::{Duration, Instant};

/// What a link does to everything that passes it, in each direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct LinkSettings {
    /// One-way delay, to the microsecond.
    pub delay: Duration,
    /// Each chunk's delay is drawn evenly from `delay - jitter` to `delay +
    /// jitter`, and is never below zero. The order of bytes is kept, so chunks
    /// that come closer together than the jitter wait for those before them and
    /// are later than `delay` on average.
    pub jitter: Duration,
    /// Bytes per second in each direction; `None` for no limit. Zero counts as one.
    pub bandwidth: Option<u64>,
}

/// A delay this long never ends; longer ones could leave the range of the clock.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// The timetable of one direction. It reads no clock: the due time of a chunk
/// follows from when the chunk arrived and from the chunks before it alone, so
/// late deliveries do not add up.
#[derive(Debug)]
pub(super) struct Schedule {
    random: u64,
    /// Until when the line is busy with what has arrived so far.
    busy_until: Option<Instant>,
    last_due: Option<Instant>,
}

impl Schedule {
    /// `seed` decides the jitter.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            random: seed,
            busy_until: None,
            last_due: None,
        }
    }

    /// When a chunk of `bytes` that arrived at `arrival` is due at the other end.
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

    /// Forgets the chunks so far: they are put on a new timetable, or were delivered.
    pub(super) fn restart(&mut self) {
        self.busy_until = None;
        self.last_due = None;
    }

    fn one_way(&mut self, settings: &LinkSettings) -> Duration {
        if settings.jitter.is_zero() {
            return settings.delay;
        }
        let jitter = settings.jitter.min(FOREVER);
        let width = 2 * jitter.as_nanos() + 1;
        // The high half of the product is an even draw from 0..width.
        let draw = (u128::from(self.next_random()) * width) >> 64;
        let drawn = Duration::from_nanos(u64::try_from(draw).unwrap_or(u64::MAX));
        settings.delay.saturating_add(drawn).saturating_sub(jitter)
    }

    /// SplitMix64.
    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// How long `bytes` keep the line busy.
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn settings() -> impl Strategy<Value = LinkSettings> {
        let bandwidth = prop_oneof![Just(None), (0_u64..10_000_000_000).prop_map(Some)];
        (0_u64..50_000, 0_u64..50_000, bandwidth).prop_map(|(delay, jitter, bandwidth)| {
            LinkSettings {
                delay: Duration::from_micros(delay),
                jitter: Duration::from_micros(jitter),
                bandwidth,
            }
        })
    }

    /// Chunks as (nanoseconds since the one before, bytes).
    fn chunks() -> impl Strategy<Value = Vec<(u64, usize)>> {
        prop::collection::vec((0_u64..10_000_000, 0_usize..100_000), 1..200)
    }

    proptest! {
        #[test]
        fn dues_keep_order_delay_and_bandwidth(seed: u64, settings in settings(), chunks in chunks()) {
            let mut schedule = Schedule::new(seed);
            let mut arrival = Instant::now();
            let mut last = None;
            // The line as it is by definition: one chunk after the other.
            let mut free = arrival;
            for (gap, bytes) in chunks {
                arrival += Duration::from_nanos(gap);
                let due = schedule.due(arrival, bytes, &settings);
                free = free.max(arrival);
                if let Some(bandwidth) = settings.bandwidth {
                    let exact = bytes as f64 / bandwidth.max(1) as f64;
                    free += Duration::from_secs_f64(exact * (1.0 - 1e-9));
                }
                let least = settings.delay.saturating_sub(settings.jitter);
                prop_assert!(due >= free + least);
                prop_assert!(last.is_none_or(|last| due >= last), "out of order");
                // Not later either than the rules make it, save for rounding.
                let most = free + settings.delay + settings.jitter + Duration::from_micros(200);
                prop_assert!(due <= most.max(last.unwrap_or(most)) || settings.bandwidth.is_some_and(|b| b < 1000));
                last = Some(due);
            }
        }

        #[test]
        fn without_jitter_or_limit_only_the_arrival_counts(seed: u64, delay in 0_u64..1_000_000, chunks in chunks()) {
            let settings = LinkSettings { delay: Duration::from_micros(delay), ..LinkSettings::default() };
            let mut schedule = Schedule::new(seed);
            let mut arrival = Instant::now();
            for (gap, bytes) in chunks {
                arrival += Duration::from_nanos(gap);
                prop_assert_eq!(schedule.due(arrival, bytes, &settings), arrival + settings.delay);
            }
        }

        #[test]
        fn extreme_settings_do_not_overflow(seed: u64, bytes: usize, delay: u64, jitter: u64, bandwidth: Option<u64>) {
            let settings = LinkSettings { delay: Duration::from_secs(delay), jitter: Duration::from_secs(jitter), bandwidth };
            let mut schedule = Schedule::new(seed);
            let arrival = Instant::now();
            for _ in 0..3 {
                prop_assert!(schedule.due(arrival, bytes, &settings) >= arrival);
            }
        }
    }

    #[test]
    fn jitter_is_even_around_the_delay() {
        const DRAWS: usize = 20_000;
        let settings = LinkSettings {
            delay: Duration::from_millis(5),
            jitter: Duration::from_millis(2),
            bandwidth: None,
        };
        let mut schedule = Schedule::new(1);
        let mut arrival = Instant::now();
        let mut total = Duration::ZERO;
        let mut quarters = [0_usize; 4];
        for _ in 0..DRAWS {
            // Far enough apart that none waits for the one before it.
            arrival += Duration::from_millis(10);
            let delay = schedule.due(arrival, 1, &settings) - arrival;
            assert!((Duration::from_millis(3)..=Duration::from_millis(7)).contains(&delay));
            total += delay;
            quarters[((delay.as_micros() - 3000) / 1000).min(3) as usize] += 1;
        }
        let mean = total / DRAWS as u32;
        assert!(
            mean.abs_diff(settings.delay) < Duration::from_micros(40),
            "{mean:?}"
        );
        assert!(
            quarters.iter().all(|count| count.abs_diff(DRAWS / 4) < 300),
            "{quarters:?}"
        );
    }
}
