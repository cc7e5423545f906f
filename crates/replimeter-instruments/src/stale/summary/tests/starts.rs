//! Several starts of the servers: simulated coverage, and the time between them.

use replimeter_stats::coverage::Covered;

use super::*;

const RUNS: u32 = 200;
/// Share of stale reads, and mean time until their writes are visible in ns, of a start of level 1.
const STALE: f64 = 0.3;
const MEAN: f64 = 300e3;
/// Rounds between which servers are started again: 2 s.
const BETWEEN: u64 = 2_000;

/// A simulated sandbox: the logarithms of the levels of its starts scatter by `between`.
#[derive(Clone, Copy, Debug)]
struct World {
    between: f64,
    starts: u64,
    /// Immediate reads of each start; there is one of the curve for each.
    rounds: u64,
}

impl World {
    /// Returns the levels at the quantiles of 1,000 equal parts of all starts.
    fn levels(self) -> impl Iterator<Item = f64> {
        use statrs::distribution::{ContinuousCDF, Normal};
        let level = move |part: u32| {
            let at = (f64::from(part) + 0.5) / 1_000.0;
            (self.between * Normal::standard().inverse_cdf(at)).exp()
        };
        (0..1_000).map(level)
    }

    /// Returns the true share of stale reads, in percent.
    fn stale_percent(self) -> f64 {
        self.levels().map(|level| STALE * level).sum::<f64>() / 10.0
    }

    /// Returns the true time in µs after which the share `p` of reads is fresh.
    fn wait(self, p: f64) -> f64 {
        let beyond = |ns: f64| -> f64 {
            let of = |level: f64| STALE * level * (-ns / (MEAN * level)).exp();
            self.levels().map(of).sum::<f64>() / 1_000.0
        };
        let (mut low, mut high) = (0.0, 100.0 * MEAN);
        for _ in 0..100 {
            let middle = f64::midpoint(low, high);
            if beyond(middle) > 1.0 - p {
                low = middle;
            } else {
                high = middle;
            }
        }
        high / 1e3
    }

    /// Returns a run, whose starts are separated or not.
    fn run(self, random: &mut Random, separated: bool) -> StaleRow {
        let mut summary = StaleSummary::default();
        let mut number = 0;
        for _ in 0..self.starts {
            if separated {
                summary.begin_start();
            }
            let level = (self.between * random.normal()).exp();
            for index in 0..2 * self.rounds {
                let offset = if index < self.rounds {
                    0
                } else {
                    [100_000, 300_000, 1_000_000][(index % 3) as usize]
                };
                let visible = if random.fraction() < STALE * level {
                    (random.exponential() * MEAN * level) as i64
                } else {
                    -5
                };
                let round = round(number, offset, visible);
                summary.record(&round, &round.reads[0], true);
                number += 1;
            }
            number += BETWEEN;
        }
        summary.row()
    }

    /// Returns the coverage of the share of stale reads, of that over time, and of the wait for 99 %.
    fn coverage(self, separated: bool) -> [Covered; 3] {
        let mut random = Random::new(self.rounds + self.starts);
        let mut covered = [Covered::default(); 3];
        let (percent, wait) = (self.stale_percent(), self.wait(0.99));
        for _ in 0..RUNS {
            let row = self.run(&mut random, separated);
            covered[0].count(row.stale_percent_ci95, percent);
            covered[1].count(row.stale_percent_over_time_ci95, percent);
            covered[2].count(row.fresh_after_us.p99_ci95, wait);
        }
        println!("{self:?}, separated: {separated}: {covered:?}");
        covered
    }
}

#[test]
fn intervals_cover_starts_that_differ() {
    for between in [0.0, 0.1, 0.3] {
        for (starts, rounds) in [(5, 200), (10, 100), (5, 600)] {
            let world = World {
                between,
                starts,
                rounds,
            };
            let [share, over_time, wait] = world.coverage(true);
            assert_eq!((share.given, over_time.given), (RUNS, RUNS), "{world:?}");
            assert!(
                share.share() >= 0.9 && over_time.share() >= 0.9,
                "{world:?}"
            );
            // The wait is a tail, which needs more starts.
            assert_eq!(wait.given, 0, "{world:?}");
        }
    }
}

#[test]
fn wait_of_many_starts_is_covered() {
    let world = World {
        between: 0.0,
        starts: 24,
        rounds: 200,
    };
    let [_, _, wait] = world.coverage(true);
    assert!(wait.given >= RUNS / 5 && wait.share() >= 0.9, "{wait:?}");
}

/// Returns the coverage of two shares where one start in ten has ten times as many stale reads: that of all starts there may be,
/// and that of the starts of the run.
fn coverage_with_slow_starts(starts: u64) -> [Covered; 2] {
    const SHARE: f64 = 0.03;
    let mut random = Random::new(starts);
    let mut covered = [Covered::default(); 2];
    for _ in 0..RUNS {
        let mut summary = StaleSummary::default();
        let (mut number, mut shares) = (0, 0.0);
        for _ in 0..starts {
            summary.begin_start();
            let slow = random.fraction() < 0.1;
            let share = if slow { 10.0 * SHARE } else { SHARE };
            shares += share;
            for _ in 0..200 {
                let stale = random.fraction() < share;
                let round = round(number, 0, if stale { 50_000 } else { -5 });
                summary.record(&round, &round.reads[0], true);
                number += 1;
            }
            number += BETWEEN;
        }
        let row = summary.row();
        covered[0].count(row.stale_percent_ci95, 100.0 * 1.9 * SHARE);
        covered[1].count(row.stale_percent_ci95, 100.0 * shares / starts as f64);
    }
    println!("{starts} starts, one in ten slow: {covered:?}");
    covered
}

#[test]
fn shares_are_of_starts_like_those_seen() {
    for starts in [5, 10, 22, 40] {
        let [all, seen] = coverage_with_slow_starts(starts);
        assert!(
            seen.given == RUNS && seen.share() >= 0.9,
            "{starts}: {seen:?}"
        );
        // Five starts miss a slow one in six of ten runs, forty in one of seventy.
        assert!((all.share() >= 0.9) == (starts == 40), "{starts}: {all:?}");
    }
}

#[test]
fn figures_of_each_start_are_reported() {
    let mut summary = StaleSummary::default();
    for start in 0..3u64 {
        summary.begin_start();
        for number in 0..1_000 {
            let stale = number % 100 < 2 * (start + 1);
            let round = round(start * 10_000 + number, 0, if stale { 50_000 } else { -5 });
            summary.record(&round, &round.reads[0], true);
        }
    }
    let row = summary.row();
    let shares = row.stale_percent_starts.unwrap();
    assert_eq!((shares.min, shares.median, shares.max), (2.0, 4.0, 6.0));
    let waits = row.fresh_after_us.p99_starts.unwrap();
    assert!(waits.min > 0.0 && waits.max < 1_000.0, "{waits:?}");
    assert_eq!(row.fresh_after_us.p99_ci95, None);
    let tail = row.staleness.p90_us_starts;
    assert_eq!(tail, None, "two of twenty lie beyond");
}

#[test]
fn starts_taken_as_one_cover_too_little() {
    let world = World {
        between: 0.3,
        starts: 5,
        rounds: 600,
    };
    let [share, _, wait] = world.coverage(false);
    assert!(
        share.share() < 0.9 && wait.share() < 0.9,
        "{share:?} {wait:?}"
    );
}

#[test]
fn time_between_starts_is_no_stall() {
    let run = |separated: bool| {
        let mut random = Random::new(7);
        let world = World {
            between: 0.0,
            starts: 4,
            rounds: 1_000,
        };
        world.run(&mut random, separated)
    };
    let (apart, as_one) = (run(true), run(false));
    // Rounds are 1 ms apart.
    assert_eq!(apart.longest_round_us, Some(1_000.0));
    assert!(as_one.longest_round_us.unwrap() > 2e6);
    assert!(apart.fresh_after_us.p99.is_some());
    let per_s = apart.rounds_per_s.unwrap();
    assert!((990.0..1010.0).contains(&per_s), "{per_s}");
}

#[test]
fn wait_interval_does_not_end_at_an_unseen_time() {
    let mut random = Random::new(9);
    let mut summary = StaleSummary::default();
    for number in 0..10_000 {
        if number % 1_000 == 0 {
            summary.begin_start();
        }
        // 0.9 % are stale and not read again, so some starts have more than 1 %.
        let stale = random.fraction() < 0.009;
        let mut round = round(number, 0, if stale { 10_000 } else { -5 });
        let read = &mut round.reads[0];
        if stale {
            (read.fresh_begin, read.fresh_end) = (None, None);
        }
        summary.record(&round, &round.reads[0], false);
    }
    let fresh = summary.row().fresh_after_us;
    assert_eq!((fresh.p99, fresh.p99_ci95), (Some(0.0), None), "{fresh:?}");
}

#[test]
fn windows_leave_out_the_time_between_starts() {
    let mut summary = StaleSummary::default();
    for start in 0..4 {
        summary.begin_start();
        for number in 0..1_000 {
            let round = round(start * 100_000 + number, 0, 500_000);
            summary.record(&round, &round.reads[0], true);
        }
    }
    let windows = summary.row().windows;
    let last = windows.last().unwrap();
    // Four starts of 1 s, 99 s apart.
    assert!(last.end_us <= 4.2e6, "{last:?}");
    assert!(windows.iter().all(|window| window.count > 0) && windows.len() > 30);
}

#[test]
fn overhead_has_the_variation_between_starts() {
    let mut summary = StaleSummary::default();
    let mut random = Random::new(8);
    let mut number = 0;
    for _ in 0..6 {
        summary.begin_start();
        let level = (0.3 * random.normal()).exp();
        for _ in 0..100 {
            for phase in [StalePhase::Plain, StalePhase::Synced] {
                let mut round = round(number, 0, -5);
                round.phase = phase;
                round.reads[0].end = round.reads[0].begin + Nanos((100e3 * level) as i64);
                summary.record(&round, &round.reads[0], true);
                number += 1;
            }
        }
        number += BETWEEN;
    }
    let overhead = summary.row().overhead.unwrap();
    let [low, high] = overhead.read_with.p50_us_ci95.unwrap();
    assert!(low < 95.0 && high / low > 1.2, "{low} {high}");
}
