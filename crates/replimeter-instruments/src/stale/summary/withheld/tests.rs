//! Simulated rounds on a virtual clock.

use replimeter_model::random::Random;

use super::*;
use crate::stale::{
    results::StaleRow,
    summary::{
        StaleSummary,
        tests::{one_read, verdict},
    },
};

/// A second, in nanoseconds.
const S: f64 = 1e9;

/// Returns exponentially distributed times with this mean.
fn exponential(random: &mut Random, mean: f64) -> f64 {
    -mean * (1.0 - random.uniform()).ln()
}

/// Returns stalls of the replica's applier as `(begin, end)`: of `mean` seconds every `every` seconds on average.
fn stalls(random: &mut Random, length: f64, every: f64, mean: f64) -> Vec<(f64, f64)> {
    let mut stalls = Vec::new();
    let mut at = exponential(random, every * S);
    while at < length * S {
        let end = at + exponential(random, mean * S);
        stalls.push((at, end));
        at = end + exponential(random, every * S);
    }
    stalls
}

/// Returns the figures of rounds one after another on a replica that shows a write 1 ms before the primary
/// acknowledges it, except in stalls: then at their end. A write takes 2 ms, a read 0.5 ms. `waits` says whether a round
/// waits until its write is shown; `at_most` is the time of the last round's write in nanoseconds.
fn rounds(stalls: &[(f64, f64)], at_most: f64, waits: bool) -> StaleRow {
    let mut summary = StaleSummary::default();
    add_rounds(&mut summary, stalls, [0.0, at_most], waits);
    summary.row()
}

/// Adds such rounds from a time on.
fn add_rounds(
    summary: &mut StaleSummary,
    stalls: &[(f64, f64)],
    [from, at_most]: [f64; 2],
    waits: bool,
) {
    let mut now = from;
    for number in 0.. {
        let send = now;
        let ack = send + 2e6;
        if ack > at_most {
            break;
        }
        let applied = send + 1e6;
        let stall = stalls
            .iter()
            .find(|(begin, end)| (*begin..*end).contains(&applied));
        let visible = stall.map_or(applied, |(_, end)| *end);
        let nanos = |at: f64| Nanos(at as i64);
        let (mut begin, mut last_stale, mut reads) = (ack, None, 1);
        while begin < visible && waits {
            last_stale = Some(nanos(begin));
            // Only the last of many reads is of interest.
            let skip = ((visible - begin) / 0.5e6).floor().max(1.0);
            last_stale = last_stale.max(Some(nanos(begin + (skip - 1.0) * 0.5e6)));
            begin += skip * 0.5e6;
            reads += 1;
        }
        let stale = ack < visible;
        if stale && !waits {
            last_stale = Some(nanos(ack));
        }
        let verdict = verdict(stale);
        let shown = waits || !stale;
        let read = StaleRead {
            last_stale,
            fresh_begin: shown.then_some(nanos(begin)),
            fresh_end: shown.then_some(nanos(begin + 0.5e6)),
            reads,
            ..StaleRead::new(0, nanos(ack), nanos(ack + 0.5e6), verdict)
        };
        let round = one_read(number, nanos(send), nanos(ack), read);
        summary.record(&round, &round.reads[0], waits);
        now = if waits { begin + 0.5e6 } else { ack + 0.5e6 };
    }
}

#[test]
fn stall_counts_with_its_time_and_not_as_one_round() {
    let row = rounds(&[(30.0 * S, 36.0 * S)], 60.0 * S, true);
    assert!(row.stale_percent.unwrap() < 0.02, "{row:#?}");
    let percent = row.stale_percent_over_time.unwrap();
    assert!((percent - 10.0).abs() < 0.1, "{percent}");
    let [low, high] = row.stale_percent_over_time_ci95.unwrap();
    assert!(low < 10.0 && 10.0 < high && low > 0.5, "{low} {high}");
    assert!((row.longest_round_us.unwrap() - 6e6).abs() < 0.01e6);
    // A tenth of the writes waited up to 6 s, all for one stall.
    let fresh = row.fresh_after_us;
    assert_eq!(fresh.p99, None);
    assert!((fresh.decided_by_us.unwrap() - 6e6).abs() < 0.01e6);
}

#[test]
fn slow_writes_are_not_counted_as_fresh() {
    let mut withheld = Withheld::default();
    let mut visible = Visible::default();
    let mut ack = Nanos(0);
    for number in 0..1_000 {
        // Every other round is stale; every tenth write is slow.
        let stale = number % 2 == 0;
        let slow = number % 10 == 0;
        ack = ack + Nanos(if slow { 50_000_000 } else { 1_000_000 });
        let verdict = verdict(stale);
        let read = StaleRead {
            last_stale: stale.then_some(ack),
            fresh_begin: Some(ack + Nanos(100_000)),
            ..StaleRead::new(0, ack, ack + Nanos(50_000), verdict)
        };
        let round = one_read(number, ack, ack, read);
        withheld.record(&round, &read, &mut visible);
    }
    assert_eq!((withheld.count(), withheld.percent()), (0, Some(50.0)));
}

#[test]
fn stall_that_outlives_the_run_counts_with_its_time() {
    let stall = [(50.0 * S, 60.0 * S)];
    let row = rounds(&stall, 55.0 * S, true);
    let percent = row.stale_percent_over_time.unwrap();
    assert!((percent - 16.7).abs() < 0.1, "{percent}");
    assert!((row.longest_round_us.unwrap() - 10e6).abs() < 0.01e6);
    let fresh = row.fresh_after_us;
    assert_eq!(fresh.p99, None);
    assert!((fresh.decided_by_us.unwrap() - 10e6).abs() < 0.01e6);
}

#[test]
fn stall_that_outlives_a_start_counts_with_its_time() {
    let mut summary = StaleSummary::default();
    let stall = [(50.0 * S, 60.0 * S)];
    for start in 0..2 {
        summary.begin_start();
        let from = f64::from(start) * 100.0 * S;
        add_rounds(&mut summary, &stall, [from, from + 55.0 * S], true);
    }
    // 10 s of 60 s and then 55 s.
    let row = summary.row();
    let percent = row.stale_percent_over_time.unwrap();
    assert!((percent - 8.7).abs() < 0.1, "{percent}");
    assert!((row.longest_round_us.unwrap() - 10e6).abs() < 0.01e6);
    assert_eq!(row.fresh_after_us.p99, None);
}

#[test]
fn row_during_the_run_leaves_later_rounds_alone() {
    let mut summary = StaleSummary::default();
    let stall = [(30.0 * S, 36.0 * S)];
    add_rounds(&mut summary, &stall, [0.0, 33.0 * S], true);
    let _ = summary.row();
    add_rounds(&mut summary, &[], [36.0 * S, 60.0 * S], true);
    let percent = summary.row().stale_percent_over_time.unwrap();
    assert!((percent - 10.0).abs() < 0.1, "{percent}");
}

/// Returns the figures of rounds 1 ms apart, of which every tenth is stale for 100 µs; after the round `long`, the next one
/// is 5 s later.
fn pause_after(long: u64) -> StaleRow {
    let mut summary = StaleSummary::default();
    let mut ack = Nanos(0);
    for number in 0..10_000 {
        ack = ack
            + Nanos(if number == long + 1 {
                5_000_000_000
            } else {
                1_000_000
            });
        let stale = number % 10 == 0;
        let verdict = verdict(stale);
        let begin = if stale { ack + Nanos(100_000) } else { ack };
        let read = StaleRead {
            last_stale: stale.then_some(ack),
            fresh_begin: Some(begin),
            fresh_end: Some(begin + Nanos(50_000)),
            ..StaleRead::new(0, ack, ack + Nanos(50_000), verdict)
        };
        let round = one_read(number, ack, ack, read);
        summary.record(&round, &read, true);
    }
    summary.row()
}

#[test]
fn waits_of_others_do_not_decide_the_time_to_wait() {
    // The pause is a slow write after a fresh read, or another reader's wait after a read that was stale for 100 µs.
    for long in [5_001, 5_000] {
        let row = pause_after(long);
        assert_eq!(row.longest_round_us, Some(5e6));
        let fresh = row.fresh_after_us;
        assert!(
            fresh.p99.is_some() && fresh.decided_by_us.is_none(),
            "{fresh:?}"
        );
    }
}

#[test]
fn run_without_waits_has_no_withheld_rounds() {
    let row = rounds(&[], 5.0 * S, true);
    assert_eq!((row.withheld_rounds, row.stale), (0, 0));
    assert_eq!(row.stale_percent_over_time, Some(0.0));
    assert!(row.stale_percent_over_time_ci95.unwrap()[1] > 0.0);
    assert_eq!(row.fresh_after_us.p99, Some(0.0));
}

#[test]
fn stall_is_found_without_waiting_for_writes() {
    let row = rounds(&[(30.0 * S, 36.0 * S)], 60.0 * S, false);
    let percent = row.stale_percent_over_time.unwrap();
    assert!((percent - 10.0).abs() < 0.1, "{percent}");
    // A tenth was stale and not read again: when it was fresh is unknown, and not at once.
    assert_eq!(
        (row.fresh_after_us.p99, row.fresh_after_us.p999),
        (None, None)
    );
}

#[test]
fn interval_covers_the_time_of_stalls() {
    let mut random = Random::new(19);
    let (mut share, mut wait, mut given) = (0, 0, 0);
    let runs = 60;
    for _ in 0..runs {
        // 100 stalls on average; a twentieth of the time.
        let stalls = stalls(&mut random, 20.0, 0.19, 0.01);
        let row = rounds(&stalls, 20.0 * S, true);
        // A write is applied before it is acknowledged: by as much is a stall shorter for the first read.
        let truth = 0.05 * (-1e6 / 0.01e9f64).exp() * 100.0;
        let [low, high] = row.stale_percent_over_time_ci95.unwrap();
        share += u32::from(low <= truth && truth <= high);
        // The time left of an exponential stall is exponential too: 1 % wait longer than this.
        let truth = 10_000.0 * (truth / 1.0).ln();
        if let Some([low, high]) = row.fresh_after_us.p99_ci95 {
            given += 1;
            wait += u32::from(low <= truth && truth <= high);
        }
    }
    assert!(share * 10 >= runs * 9, "{share} of {runs}");
    // Two standard errors below 90 %, since few runs have ten effective rounds beyond the quantile.
    let least = 0.9 * f64::from(given) - 2.0 * (0.09 * f64::from(given)).sqrt();
    assert!(
        given * 5 >= runs && f64::from(wait) >= least,
        "{wait} of {given}"
    );
}
