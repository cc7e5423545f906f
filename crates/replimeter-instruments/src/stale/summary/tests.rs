use super::*;
use replimeter_model::random::Random;

mod starts;

pub(super) fn verdict(stale: bool) -> Verdict {
    if stale {
        Verdict::Stale
    } else {
        Verdict::Fresh
    }
}

/// Returns a round with one read, right after the acknowledgement.
pub(super) fn one_read(number: u64, send: Nanos, ack: Nanos, read: StaleRead) -> StaleRound {
    StaleRound {
        phase: StalePhase::AtOnce,
        round: number,
        row: 1,
        offset: Nanos(0),
        send,
        ack,
        conflicts: 0,
        reset: None,
        reads: vec![read],
    }
}

fn round(number: u64, offset: i64, visible: i64) -> StaleRound {
    let send = Nanos(number as i64 * 1_000_000);
    let ack = send + Nanos(100_000);
    // Reads take 20 µs and follow one another.
    let mut at = offset;
    let mut last_stale = None;
    let mut reads = 1;
    while at < visible {
        last_stale = Some(ack + Nanos(at));
        at += 20_000;
        reads += 1;
    }
    let stale = last_stale.is_some();
    let read = StaleRead {
        behind: u32::from(stale),
        last_stale,
        fresh_begin: Some(ack + Nanos(at)),
        fresh_end: Some(ack + Nanos(at + 20_000)),
        reads,
        ..StaleRead::new(
            0,
            ack + Nanos(offset),
            ack + Nanos(offset + 20_000),
            verdict(stale),
        )
    };
    let phase = if offset == 0 {
        StalePhase::AtOnce
    } else {
        StalePhase::Curve
    };
    StaleRound {
        phase,
        offset: Nanos(offset),
        ..one_read(number, send, ack, read)
    }
}

#[test]
fn summary_has_share_delay_curve_and_wait() {
    let mut summary = StaleSummary::default();
    // A tenth becomes visible 0 to 1 ms after the acknowledgement, the rest before it.
    let visible = |number: u64| {
        if number % 10 == 3 {
            (number / 10 % 100) as i64 * 10_000 + 5_000
        } else {
            -5
        }
    };
    for number in 0..20_000 {
        let round = round(number, 0, visible(number));
        summary.record(&round, &round.reads[0], true);
    }
    for number in 20_000..30_000 {
        let round = round(number, 500_000, visible(number));
        summary.record(&round, &round.reads[0], true);
    }
    let row = summary.row();
    assert_eq!((row.rounds, row.stale), (20_000, 2_000));
    assert!(
        row.stale_percent_ci95
            .is_some_and(|[low, high]| low < 10.0 && high > 10.0),
        "{row:?}"
    );
    assert_eq!(row.staleness.count, 2_000);
    assert_eq!(row.curve.len(), 2);
    let half = row.curve[1];
    assert_eq!((half.asked_us, half.reads), (500.0, 10_000));
    assert!((half.probability - 0.05).abs() < 0.002, "{half:?}");
    // 99 % are visible after 900 µs, 99.9 % after 990.
    let fresh = row.fresh_after_us;
    assert!(
        (fresh.p99.unwrap() - 905.0).abs() < 25.0 && (fresh.p999.unwrap() - 995.0).abs() < 25.0,
        "{fresh:?}"
    );
    let [low, high] = fresh.p999_ci95.unwrap();
    assert!(
        low <= fresh.p999.unwrap() && fresh.p999.unwrap() <= high && high < 1_100.0,
        "{fresh:?}"
    );
}

#[test]
fn always_fresh_needs_no_wait() {
    let mut summary = StaleSummary::default();
    for number in 0..20_000 {
        let round = round(number, 0, -5);
        summary.record(&round, &round.reads[0], true);
    }
    let row = summary.row();
    assert_eq!((row.stale, row.stale_percent), (0, Some(0.0)));
    assert!(
        row.stale_percent_ci95.unwrap()[1] > 0.0
            && row.violations.read_your_writes_percent_upper_bound > 0.0
    );
    assert_eq!(
        (row.fresh_after_us.p99, row.fresh_after_us.p999),
        (Some(0.0), Some(0.0))
    );
    assert_eq!(row.staleness.count, 0);
}

/// Returns a run of rounds with immediate reads whose writes become visible at these times, and
/// half as many rounds that read at 200 µs.
fn run(rounds: u64, mut visible: impl FnMut() -> i64) -> StaleRow {
    let mut summary = StaleSummary::default();
    for number in 0..rounds + rounds / 2 {
        let round = round(number, if number < rounds { 0 } else { 200_000 }, visible());
        summary.record(&round, &round.reads[0], true);
    }
    summary.row()
}

#[test]
fn wait_interval_covers_the_truth() {
    let mut random = Random::new(11);
    let (mut covered, mut stated) = (0, 0);
    for _ in 0..200 {
        // 27 % are visible too late for an immediate read, by 300 µs on average: 99 % after 300 µs × ln
        // 27.
        let row = run(2_000, || {
            if random.uniform() < 0.27 {
                (-300e3 * random.uniform().ln()) as i64
            } else {
                -5
            }
        });
        let Some([low, high]) = row.fresh_after_us.p99_ci95 else {
            continue;
        };
        let truth = 300.0 * 27f64.ln();
        stated += 1;
        covered += u32::from(low <= truth && truth <= high);
        assert!(
            low > 100.0,
            "stale immediate reads: {:?}",
            row.fresh_after_us
        );
    }
    assert!(
        stated >= 190 && f64::from(covered) >= 0.93 * f64::from(stated),
        "{covered} of {stated}"
    );
}

#[test]
fn wait_interval_excludes_what_reads_exclude() {
    let mut random = Random::new(12);
    // Visibility times come in clusters of twenty rounds.
    let mut left = 0;
    let mut slow = false;
    let row = run(30_000, || {
        if left == 0 {
            (left, slow) = (20, random.uniform() < 0.4);
        }
        left -= 1;
        if slow && random.uniform() < 0.7 {
            (-700e3 * random.uniform().ln()) as i64
        } else {
            -5
        }
    });
    let fresh = row.fresh_after_us;
    assert!(row.inflation.unwrap() > 5.0, "{row:?}");
    let [low, high] = fresh.p99_ci95.unwrap();
    assert!(
        0.0 < low && low < fresh.p99.unwrap() && fresh.p99.unwrap() < high,
        "{fresh:?}"
    );
    // The outer end of 99.9 % lies beyond all observed times, unless the clusters are few enough.
    assert!(
        fresh.p999_ci95.is_none_or(
            |[low, high]| low >= fresh.p99.unwrap() / 2.0 && high >= fresh.p999.unwrap()
        ),
        "{fresh:?}"
    );
}

#[test]
fn delays_of_the_curve_are_no_clusters() {
    let mut random = Random::new(13);
    let mut summary = StaleSummary::default();
    let mut number = 0;
    let mut record = |offset: i64| {
        // Half is visible late, by 200 µs on average; 99 % after 200 µs × ln 50.
        let late = random.uniform() < 0.5;
        let visible = if late {
            (-200e3 * random.uniform().ln()) as i64
        } else {
            -5
        };
        let round = round(number, offset, visible);
        number += 1;
        summary.record(&round, &round.reads[0], true);
    };
    (0..6_000).for_each(|_| record(0));
    (0..3_000).for_each(|at| record([100_000, 300_000, 1_000_000][at % 3]));
    let row = summary.row();
    let all = summary.first_reads();
    // Half of the immediate reads are stale and few of the others: taken as one share, these are two long clusters.
    let mixed = inflation_of_mixture(&summary);
    assert!(mixed > 100.0, "{mixed}");
    assert!(all.inflation.unwrap() < 3.0, "{all:?}");
    let [low, high] = row.fresh_after_us.p99_ci95.unwrap();
    let truth = 200.0 * 50f64.ln();
    assert!(
        low <= truth && truth <= high && high - low < 300.0,
        "{row:?}"
    );
}

/// Returns the factor that all first reads have as one share.
fn inflation_of_mixture(summary: &StaleSummary) -> f64 {
    let mut windows: Vec<(u64, u64)> = Vec::new();
    for (offset, point) in &summary.points {
        let (trials, events) = point.share.counts();
        let parts = if offset.0 == 0 { 20 } else { 4 };
        windows.extend((0..parts).map(|_| (trials / parts, events / parts)));
    }
    dependence::inflation(&[dependence::Residuals::of(&windows)]).unwrap()
}

#[test]
fn clusters_widen_the_bound_of_monotonic_reads() {
    let bound = |clusters: bool| {
        let mut summary = StaleSummary::default();
        for number in 0..10_000 {
            let mut round = round(number, 0, -5);
            round.reads[0].went_back = match clusters {
                true => number / 50 % 50 == 7,
                false => number % 50 == 7,
            };
            summary.record(&round, &round.reads[0], true);
        }
        let violations = summary.row().violations;
        assert_eq!(violations.monotonic_reads, 200);
        assert_eq!(violations.monotonic_reads_of, 10_000);
        violations.monotonic_reads_percent_upper_bound
    };
    let (single, clustered) = (bound(false), bound(true));
    // 2 % of 10,000 independent rounds: at most 2.29 %.
    assert!(single < 2.35 && clustered > 3.0, "{single} {clustered}");
}

#[test]
fn round_counts_as_one_violation_of_monotonic_reads() {
    let mut summary = StaleSummary::default();
    for number in 0..4 {
        let mut round = round(number, 0, 10_000);
        let read = &mut round.reads[0];
        read.went_back = number == 0;
        read.went_back_across = number == 1;
        if number == 2 {
            read.verdict = Verdict::Refused;
        }
        summary.record(&round, &round.reads[0], true);
        // Every round also had another reader that had shown the write before.
        summary.went_back_across(&round, &round.reads[0]);
    }
    let violations = summary.row().violations;
    assert_eq!(
        (violations.monotonic_reads, violations.monotonic_reads_of),
        (3, 3)
    );
}

#[test]
fn too_few_rounds_give_no_tail() {
    let mut summary = StaleSummary::default();
    for number in 0..2_000 {
        let round = round(number, 0, if number % 2 == 0 { 1_000 } else { -1 });
        summary.record(&round, &round.reads[0], true);
    }
    let fresh = summary.row().fresh_after_us;
    assert!(fresh.p99.is_some() && fresh.p999.is_none(), "{fresh:?}");
}

#[test]
fn offsets_reach_one_step_beyond_the_longest_delay() {
    let us = |longest: Option<i64>| -> Vec<i64> {
        offsets(longest.map(Nanos), Nanos(10_000_000_000))
            .into_iter()
            .map(|offset| offset.0 / 1000)
            .collect()
    };
    assert_eq!(us(Some(900_000)), [0, 10, 20, 50, 100, 200, 500, 1000]);
    assert_eq!(us(None), [0, 10, 20, 50, 100]);
    assert_eq!(us(Some(3)), [0, 10, 20, 50]);
    assert_eq!(
        *us(Some(500_000_000_000)).last().unwrap(),
        10_000_000,
        "no longer than the most"
    );
}
