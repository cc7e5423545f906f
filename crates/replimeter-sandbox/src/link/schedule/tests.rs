use proptest::prelude::*;

use super::*;

fn settings() -> impl Strategy<Value = LinkSettings> {
    let bandwidth = prop_oneof![Just(None), (0_u64..10_000_000_000).prop_map(Some)];
    (0_u64..50_000, 0_u64..50_000, bandwidth).prop_map(|(delay, jitter, bandwidth)| LinkSettings {
        delay: Duration::from_micros(delay),
        jitter: Duration::from_micros(jitter),
        bandwidth,
    })
}

/// Chunks as (nanoseconds since the previous one, bytes).
fn chunks() -> impl Strategy<Value = Vec<(u64, usize)>> {
    prop::collection::vec((0_u64..10_000_000, 0_usize..100_000), 1..200)
}

proptest! {
    #[test]
    fn due_times_keep_order_delay_and_bandwidth(seed: u64, settings in settings(), chunks in chunks()) {
        let mut schedule = Schedule::new(seed);
        let mut arrival = Instant::now();
        let mut last = None;
        // The reference: one chunk after the other.
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
            // Not later either than the rules require, except for rounding.
            let most = free + settings.delay + settings.jitter + Duration::from_micros(200);
            prop_assert!(due <= most.max(last.unwrap_or(most)) || settings.bandwidth.is_some_and(|b| b < 1000));
            last = Some(due);
        }
    }

    #[test]
    fn due_time_without_jitter_depends_on_arrival_only(seed: u64, delay in 0_u64..1_000_000, chunks in chunks()) {
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
fn jitter_is_uniform_around_the_delay() {
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
        // Far enough apart that none waits for the previous one.
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
