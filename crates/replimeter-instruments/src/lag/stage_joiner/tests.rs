use proptest::prelude::*;

use super::*;

const UUID: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";

fn us(micros: i64) -> Nanos {
    Nanos(micros * 1_000)
}

/// The primary's clock is 1 s ahead of the run's, the replica's 2 s, each known to ± 10 µs.
fn joiner() -> StageJoiner {
    let clock = |number, seconds: i64| ServerClock {
        number,
        offset: Nanos(seconds * 1_000_000_000),
        bound: us(10),
    };
    StageJoiner::new(clock(1, 1), clock(2, 2))
}

fn transaction(seq: u64, commit_id: &str, at: i64) -> Transaction {
    Transaction {
        seq,
        commit_id: commit_id.to_owned(),
        send: us(at),
        ack: us(at + 100),
        logged: None,
        visible_after: Some(us(at + 150)),
        visible_until: us(at + 190),
    }
}

fn last(number: u64, committed: i64, began: i64, ended: i64) -> LastTransaction {
    LastTransaction {
        channel: String::new(),
        commit_id: format!("{UUID}:{number}"),
        original_commit_us: Some(1_000_000 + committed),
        immediate_commit_us: Some(1_000_000 + committed),
        began_us: Some(2_000_000 + began),
        ended_us: Some(2_000_000 + ended),
    }
}

fn remembered(queued: Option<LastTransaction>, applied: &[LastTransaction]) -> StageAnswer {
    StageAnswer::Remembered(ThreadHistory {
        queued: queued.into_iter().collect(),
        scheduled: Vec::new(),
        applied: applied.to_vec(),
    })
}

#[test]
fn stamps_are_converted_to_the_run_clock() {
    let mut joiner = joiner();
    // The replica reports the transaction before the reader does.
    joiner.answer(
        us(100),
        us(150),
        &remembered(Some(last(5, 40, 60, 80)), &[]),
    );
    joiner.transaction(transaction(1, &format!("{}:5", UUID.to_uppercase()), 0));
    assert!(joiner.take().is_empty(), "not applied yet");
    joiner.answer(us(200), us(250), &remembered(None, &[last(5, 40, 90, 140)]));
    let joined = joiner.take();
    let points = joined[0].1;
    let at = |point: Option<Point>| point.map(|point| (point.at, point.error));
    assert_eq!(joined[0].0, 1);
    assert_eq!(at(points.logged), Some((us(40), us(11))));
    assert_eq!(at(points.received), Some((us(80), us(11))));
    assert_eq!(
        (at(points.apply_began), at(points.applied)),
        (Some((us(90), us(11))), Some((us(140), us(11))))
    );
    assert_eq!(at(points.visible), Some((us(170), us(20))));
    assert_eq!(
        points.received.unwrap().stamp.unwrap(),
        Stamp {
            clock: 2,
            at: us(2_000_080)
        }
    );
    assert!(!points.overwritten && joiner.take().is_empty());
}

#[test]
fn overwritten_transaction_is_abandoned() {
    let mut joiner = joiner();
    joiner.transaction(transaction(1, &format!("{UUID}:5"), 0));
    joiner.answer(
        us(200),
        us(250),
        &remembered(Some(last(6, 200, 210, 220)), &[last(5, 40, 90, 140)]),
    );
    assert!(
        joiner.take().is_empty(),
        "the next answer may still report it"
    );
    joiner.answer(
        us(21_000),
        us(21_050),
        &remembered(Some(last(6, 200, 210, 220)), &[last(6, 200, 230, 240)]),
    );
    let points = joiner.take()[0].1;
    assert!(points.overwritten && points.received.is_none() && points.applied.is_some());
}

#[test]
fn positions_are_bracketed_by_their_polls() {
    let position = |text: &str| domain_commits(text).unwrap();
    let answer = |received: &str, applied: &str| {
        StageAnswer::Positions(AppliedPositions {
            received: position(received),
            applied: position(applied),
        })
    };
    let mut joiner = joiner();
    joiner.transaction(transaction(1, "0-1-7", 100));
    joiner.answer(us(90), us(95), &answer("0-1-6,3-1-2", "0-1-6"));
    joiner.answer(us(110), us(130), &answer("0-1-6,3-1-2", "0-1-6"));
    joiner.answer(us(140), us(160), &answer("0-1-8,3-1-2", "0-1-6"));
    assert!(joiner.take().is_empty());
    joiner.answer(us(170), us(190), &answer("0-1-8,3-1-2", "0-1-7"));
    let points = joiner.take()[0].1;
    assert_eq!(
        points.received,
        Some(Point::within(us(110), us(160))),
        "from the last query that missed it"
    );
    assert_eq!(points.applied, Some(Point::within(us(140), us(190))));
    assert_eq!((points.logged, points.apply_began), (None, None));
    // A transaction that is already in the first answer is bounded by its send.
    joiner.transaction(transaction(2, "3-1-2", 50));
    joiner.transaction(transaction(3, "9-1-1", 50));
    let rest = joiner.finish();
    assert_eq!(rest[0].1.received, Some(Point::within(us(50), us(95))));
    assert_eq!((rest[0].1.applied, rest[1].1.received), (None, None));
}

#[test]
fn dropped_steps_are_not_mistaken_for_the_first_kept() {
    let mut steps = DomainSteps::default();
    for number in 1..=MAX_STEPS as u64 + 10 {
        steps.advance(number * 2, Some(us(number as i64)), us(number as i64 + 1));
    }
    assert_eq!(steps.steps.len(), MAX_STEPS);
    assert!(matches!(steps.passed(3), PositionPassage::Forgotten));
    assert!(matches!(steps.passed(101), PositionPassage::In(..)));
    assert!(matches!(steps.passed(u64::MAX), PositionPassage::NotYet));
    steps.advance(4, None, us(9));
    assert!(
        matches!(steps.passed(3), PositionPassage::In(None, _)),
        "the position was set back"
    );
}

proptest! {
    #[test]
    fn no_transaction_is_lost_and_nothing_panics(
        steps in proptest::collection::vec((0u8..4, any::<i64>(), 0u64..30, proptest::option::of(any::<i64>())), 1..80)
    ) {
        let mut joiner = joiner();
        let (mut given, mut joined) = (0, 0);
        let mut now = 0i64;
        for (kind, far, number, stamp) in steps {
            now += far.rem_euclid(30_000_000);
            match kind {
                0 => {
                    given += 1;
                    let commit_id = if far % 2 == 0 { format!("{UUID}:{number}") } else { format!("0-1-{number}") };
                    joiner.transaction(Transaction { send: Nanos(now), ..transaction(number, &commit_id, now / 1_000) });
                }
                1 => {
                    let last = LastTransaction { original_commit_us: stamp, began_us: stamp, ended_us: stamp, ..last(number, 0, 0, 0) };
                    joiner.answer(Nanos(now), Nanos(now + 5), &remembered(Some(last.clone()), &[last]));
                }
                _ => {
                    let at = DomainCommit { domain: 0, server: 1, sequence: number };
                    let positions = AppliedPositions { received: vec![at], applied: vec![DomainCommit { sequence: number / 2, ..at }] };
                    joiner.answer(Nanos(now), Nanos(now + 5), &StageAnswer::Positions(positions));
                }
            }
            joined += joiner.take().len();
        }
        joined += joiner.finish().len();
        prop_assert_eq!(given, joined);
    }
}
