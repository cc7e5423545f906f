use proptest::prelude::*;

use super::*;

const CHAIN: [(Mark, &str); 6] = [
    (Mark::Send, "client"),
    (Mark::Logged, "primary"),
    (Mark::Received, "replica1"),
    (Mark::ApplyBegan, "replica1"),
    (Mark::Applied, "replica1"),
    (Mark::Visible, "client"),
];

fn us(micros: i64) -> Nanos {
    Nanos(micros * 1_000)
}

/// Returns a transaction with these times in microseconds, each known to ± 5 µs.
fn points(times: [i64; 6]) -> Points {
    let [send, logged, received, apply_began, applied, visible] =
        times.map(|at| Some(Point::new(us(at), us(5))));
    Points {
        send,
        logged,
        received,
        apply_began,
        applied,
        visible,
        ack: None,
        overwritten: false,
    }
}

#[test]
fn stages_of_equal_transactions_are_exact() {
    let mut waterfall = Waterfall::new(&CHAIN);
    for round in 0..30 {
        let at = round * 1_000;
        let mut one = points([at, at + 40, at + 100, at + 110, at + 160, at + 170]);
        one.ack = Some(Point::new(us(at + 90), us(0)));
        waterfall.record(&one);
    }
    let stages = waterfall.stages().unwrap();
    assert_eq!(
        (stages.transactions, stages.covered, stages.overwritten),
        (30, 30, 0)
    );
    let means: Vec<(&str, f64)> = stages
        .stages
        .iter()
        .map(|stage| (stage.name.as_str(), stage.duration.mean_us.unwrap().round()))
        .collect();
    assert_eq!(
        means,
        [
            ("commit", 40.0),
            ("transfer", 60.0),
            ("queue", 10.0),
            ("apply", 50.0),
            ("show", 10.0)
        ]
    );
    assert_eq!(stages.parallel_stages[0].duration.max_us, Some(50.0));
    assert_eq!(stages.parallel_stages[0].name, "acknowledge");
    assert_eq!(
        (
            stages.residue.min_us,
            stages.residue.max_us,
            stages.residue_beyond
        ),
        (Some(0.0), Some(0.0), 0)
    );
    assert!(
        stages
            .stages
            .iter()
            .all(|stage| (stage.error_mean_us - 10.0).abs() < 1e-9 && stage.inversions == 0)
    );
    assert_eq!(
        stages.tail_breakdown.len(),
        1,
        "only the median has ten beyond"
    );
    assert_eq!(
        stages.tail_breakdown[0]
            .stages_us
            .iter()
            .map(|us| us.round())
            .collect::<Vec<_>>(),
        [40.0, 60.0, 10.0, 50.0, 10.0]
    );
}

#[test]
fn slow_transactions_are_slow_in_one_stage() {
    // A fast commit with a slow transfer, and the other way round in every tenth.
    let mut waterfall = Waterfall::new(&CHAIN);
    for round in 0..2_000 {
        let [commit, transfer] = if round % 10 == 9 {
            [10, 5_000]
        } else {
            [100, 50]
        };
        let (a, b) = (commit, commit + transfer);
        waterfall.record(&points([0, a, b, b + 10, b + 20, b + 30 + round % 7]));
    }
    let stages = waterfall.stages().unwrap();
    let near: Vec<(&str, f64, f64)> = stages
        .tail_breakdown
        .iter()
        .map(|near| {
            (
                near.quantile.as_str(),
                near.stages_us[0].round(),
                near.stages_us[1].round(),
            )
        })
        .collect();
    assert_eq!(near[0], ("p50", 100.0, 50.0));
    assert_eq!(near[2], ("p99", 10.0, 5_000.0));
    assert!(stages.tail_breakdown.iter().all(|near| near.count >= 10));
}

#[test]
fn uncovered_transactions_are_counted_not_averaged() {
    let mut waterfall = Waterfall::new(&CHAIN);
    waterfall.record(&points([0, 10, 20, 30, 40, 50]));
    waterfall.record(&Points {
        received: None,
        overwritten: true,
        ..points([0, 10, 20, 30, 40, 5_000])
    });
    waterfall.record(&Points {
        visible: None,
        ..points([0, 10, 20, 30, 40, 50])
    });
    let stages = waterfall.stages().unwrap();
    assert_eq!(
        (stages.transactions, stages.covered, stages.overwritten),
        (3, 1, 1)
    );
    assert_eq!(stages.end_to_end.max_us, Some(50.0));
    assert!(Waterfall::new(&CHAIN).stages().is_none());
}

#[test]
fn inversions_beyond_the_error_are_counted_and_kept() {
    let mut waterfall = Waterfall::new(&CHAIN);
    for late in [5, 12, 40] {
        waterfall.record(&points([0, 50, 50 - late, 60, 70, 80]));
    }
    let stages = waterfall.stages().unwrap();
    assert_eq!(
        (
            stages.stages[1].inversions,
            stages.stages[1].worst_inversion_us
        ),
        (2, Some(-40.0))
    );
    assert_eq!(
        stages.stages[1].duration.max_us,
        Some(-5.0),
        "never clamped"
    );
}

#[test]
fn stages_on_one_clock_do_not_depend_on_its_offset() {
    // The servers share a clock, whose two offsets were measured 30 µs apart.
    let mut waterfall = Waterfall::new(&CHAIN);
    let mut one = points([0, 40, 130, 140, 190, 170]);
    for (point, at) in [
        (&mut one.logged, 40),
        (&mut one.received, 100),
        (&mut one.apply_began, 110),
        (&mut one.applied, 160),
    ] {
        point.as_mut().unwrap().stamp = Some(Stamp {
            clock: 1,
            at: us(at),
        });
    }
    waterfall.record(&one);
    let stages = waterfall.stages().unwrap();
    let mean = |at: usize| stages.stages[at].duration.mean_us.unwrap();
    assert_eq!([0, 1, 2, 3, 4].map(mean), [40.0, 60.0, 10.0, 50.0, -20.0]);
    assert_eq!(
        stages.residue.max_us,
        Some(30.0),
        "which is how far the offsets contradict each other"
    );
    assert_eq!(stages.residue_beyond, 1, "more than the error bars allow");
}

#[test]
fn galera_chain_contains_the_acknowledgment() {
    let mut waterfall = Waterfall::new(&[
        (Mark::Send, "client"),
        (Mark::Ack, "client"),
        (Mark::Visible, "client"),
    ]);
    waterfall.record(&Points {
        ack: Some(Point::new(us(30), us(0))),
        ..points([0, 1, 2, 3, 4, 50])
    });
    let stages = waterfall.stages().unwrap();
    let names: Vec<&str> = stages
        .stages
        .iter()
        .map(|stage| stage.name.as_str())
        .collect();
    assert_eq!(
        (names, stages.parallel_stages.len()),
        (vec!["replicate and certify", "apply"], 0)
    );
}

proptest! {
    #[test]
    fn stages_and_residue_sum_to_the_total(
        times in proptest::collection::vec((any::<[i16; 6]>(), any::<[Option<i16>; 6]>()), 1..200)
    ) {
        let mut waterfall = Waterfall::new(&CHAIN);
        for (at, stamps) in &times {
            let mut one = points(at.map(i64::from));
            let all = [&mut one.send, &mut one.logged, &mut one.received, &mut one.apply_began, &mut one.applied, &mut one.visible];
            for (point, stamp) in all.into_iter().zip(stamps) {
                if let (Some(point), Some(stamp)) = (point, stamp) {
                    point.stamp = Some(Stamp { clock: 1, at: us(i64::from(*stamp)) });
                }
            }
            waterfall.record(&one);
        }
        let stages = waterfall.stages().unwrap();
        let sum: f64 = stages.stages.iter().map(|stage| stage.duration.mean_us.unwrap()).sum();
        let whole = stages.end_to_end.mean_us.unwrap();
        prop_assert!((whole - sum - stages.residue.mean_us.unwrap()).abs() < 1e-6 * whole.abs().max(1e3));
        for near in &stages.tail_breakdown {
            let sum: f64 = near.stages_us.iter().sum();
            prop_assert!((near.end_to_end_us - sum - near.residue_us).abs() < 1e-6 * near.end_to_end_us.abs().max(1e3));
            prop_assert!(near.count >= 10);
        }
        prop_assert!(waterfall.cells.len() <= times.len());
    }
}
