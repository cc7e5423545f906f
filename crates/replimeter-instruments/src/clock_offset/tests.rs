use proptest::prelude::*;

use super::*;

#[test]
fn server_time_is_read_exactly() {
    assert_eq!(
        unix("1763715923.000001"),
        Some(Nanos(1_763_715_923_000_001_000))
    );
    assert_eq!(unix("5"), Some(Nanos(5_000_000_000)));
    for text in [
        "",
        "x",
        "1.+5",
        "1.0000000001",
        "99999999999999999999",
        "9999999999999.0",
    ] {
        assert_eq!(unix(text), None, "{text}");
    }
}

/// Returns the readings of a server whose clock is ahead by `offset` at the local zero and drifts;
/// trips are (there, back) and follow one another.
fn answers(
    offset: i64,
    drift_ppm: i64,
    begun: i64,
    trips: &[(i64, i64)],
) -> Vec<TimedAnswer<Nanos>> {
    let mut now = begun;
    let mut answer = |(there, back): &(i64, i64)| {
        let (before, read) = (now, now + there);
        now = read + back;
        let server = read + offset + read * drift_ppm / 1_000_000;
        TimedAnswer {
            before: Nanos(before),
            after: Nanos(now),
            said: Nanos(server / 1_000 * 1_000),
        }
    };
    trips.iter().map(&mut answer).collect()
}

fn measured(offset: i64, drift_ppm: i64, begun: i64, trips: &[(i64, i64)]) -> Offset {
    estimate(&answers(offset, drift_ppm, begun, trips)).unwrap()
}

fn trips() -> impl Strategy<Value = Vec<(i64, i64)>> {
    prop::collection::vec((0i64..20_000_000, 0i64..20_000_000), 1..40)
}

const EPOCH: i64 = 1_763_715_923_000_000_000;

proptest! {
    #[test]
    fn true_offset_is_within_the_bound(
        offset in 0i64..3_600_000_000_000, drift in -400i64..400, begun in 0i64..1_000_000_000, trips in trips(),
    ) {
        let found = measured(EPOCH + offset, drift, begun, &trips);
        let truth = EPOCH + offset + found.at.0 * drift / 1_000_000;
        prop_assert!((found.offset.0 - truth).abs() <= found.bound.0 + 1, "{found:?}, true value {truth}");
        let fastest = trips.iter().map(|(there, back)| there + back).min().unwrap();
        prop_assert!(found.bound.0 <= fastest / 2 + fastest / 1_000 + 1_100, "{found:?}, the fastest trip {fastest}");
    }

    #[test]
    fn steady_drift_is_followed_without_a_step(
        offset in 0i64..3_600_000_000_000, drift in -400i64..400, near in 1_000_000_000i64..119_000_000_000,
        trips in prop::collection::vec(trips(), 3..6),
    ) {
        let mut clock: Option<ServerClock> = None;
        for (index, trips) in trips.iter().enumerate() {
            let found = measured(EPOCH + offset, drift, index as i64 * 30_000_000_000, trips);
            match &mut clock {
                None => clock = Some(ServerClock::from_first(found, RATE_PPM)),
                Some(clock) => prop_assert_eq!(clock.add(found), None),
            }
        }
        let clock = clock.unwrap();
        let found = clock.at(Nanos(near)).unwrap();
        let truth = EPOCH + offset + near * drift / 1_000_000;
        prop_assert!((found.offset.0 - truth).abs() <= found.bound.0, "{found:?}, true value {truth}");
        let (point, bound) = clock.to_run_clock(Nanos(near + truth), Nanos(near)).unwrap();
        prop_assert!((point.0 - near).abs() <= bound.0, "{point:?} ± {bound:?}, true value {near}");
    }

    #[test]
    fn slew_between_measurements_stays_within_the_bound(
        offset in 0i64..3_600_000_000_000, begun in 0i64..30_000_000_000, took in 1_000_000_000i64..20_000_000_000,
        rate in -900i64..900, near in 0i64..60_000_000_000, trips in prop::collection::vec(trips(), 3),
    ) {
        // The clock is slewed for a time, and slewed back for as long: a steady drift between the measurements would be none.
        let moved = |at: i64| {
            let (there, back) = ((at - begun).clamp(0, took), (at - begun - took).clamp(0, took));
            offset + (there - back) * rate / 1_000_000
        };
        let mut clock: Option<ServerClock> = None;
        for (index, trips) in trips.iter().enumerate() {
            let mut now = index as i64 * 30_000_000_000;
            let answers = trips.iter().map(|(there, back)| {
                let (before, read) = (now, now + there);
                now = read + back;
                TimedAnswer {
                    before: Nanos(before),
                    after: Nanos(now),
                    said: Nanos((EPOCH + read + moved(read)) / 1_000 * 1_000),
                }
            });
            let found = estimate(&answers.collect::<Vec<_>>()).unwrap();
            match &mut clock {
                None => clock = Some(ServerClock::from_first(found, RATE_PPM)),
                Some(clock) => prop_assert_eq!(clock.add(found), None),
            }
        }
        let clock = clock.unwrap();
        let found = clock.at(Nanos(near)).unwrap();
        let truth = EPOCH + moved(near);
        prop_assert!((found.offset.0 - truth).abs() <= found.bound.0, "{found:?}, true value {truth}");
        // A time that was converted before the next measurement was known.
        let early = clock.points.iter().rev().find(|point| point.offset.at.0 <= near);
        if let Some(early) = early {
            let error = (early.offset.offset.0 - truth).abs();
            prop_assert!(near > clock.last().at.0 || error <= clock.worst_bound().0 + 2, "{error} {:?}", clock.worst_bound());
        }
    }

    #[test]
    fn step_beyond_the_bounds_is_detected(
        by in prop_oneof![-3_600_000_000_000i64..-100_000_000, 100_000_000i64..3_600_000_000_000], trips in trips(),
    ) {
        let before = measured(EPOCH, 0, 0, &trips);
        let after = measured(EPOCH + by, 0, 10_000_000_000, &trips);
        let mut clock = ServerClock::from_first(before, RATE_PPM);
        let step = clock.add(after);
        prop_assert!(step.is_some_and(|step| (step.by.0 - by).abs() <= step.bound.0), "{step:?}");
        prop_assert_eq!(clock.at(Nanos(5_000_000_000)), None);
        prop_assert_eq!(clock.to_run_clock(Nanos(EPOCH + 5_000_000_000), Nanos(5_000_000_000)), None);
        prop_assert!(clock.to_run_clock(Nanos(EPOCH + by + 11_000_000_000), Nanos(11_000_000_000)).is_some());
        prop_assert_eq!(clock.steps().len(), 1);
    }
}

#[test]
fn contradictory_answers_give_no_offset() {
    let mut both = answers(EPOCH, 0, 0, &[(50_000, 50_000); 5]);
    both.extend(answers(
        EPOCH + 1_000_000_000,
        0,
        1_000_000,
        &[(50_000, 50_000); 5],
    ));
    assert_eq!(estimate(&both), None);
    assert_eq!(estimate(&[]), None);
}

#[test]
fn clock_of_this_machine_does_not_move() {
    let offset = |at: i64, offset: i64, bound: i64| Offset {
        at: Nanos(at),
        offset: Nanos(EPOCH + offset),
        bound: Nanos(bound),
        count: 1,
    };
    let mut clock = ServerClock::from_first(offset(0, 0, 1_000), 0);
    assert_eq!(clock.add(offset(60_000_000_000, 900, 500)), None);
    // Both hold everywhere between and after them.
    let found = clock.at(Nanos(90_000_000_000)).unwrap();
    assert_eq!(
        (found.offset, found.bound),
        (Nanos(EPOCH + 700), Nanos(301))
    );
    let step = clock.add(offset(120_000_000_000, 3_000, 500));
    assert!(step.is_some(), "any movement is a step");
}

#[test]
fn thinning_keeps_ends_and_steps() {
    let offset = |at: i64, offset: i64| Offset {
        at: Nanos(at),
        offset: Nanos(EPOCH + offset),
        bound: Nanos(1_000),
        count: 1,
    };
    let mut clock = ServerClock::from_first(offset(0, 0), RATE_PPM);
    for index in 1..3 * MAX_POINTS as i64 {
        let stepped = if index > 3_001 { 1_000_000_000 } else { 0 };
        let step = clock.add(offset(index * 1_000_000_000, stepped));
        assert_eq!(step.is_some(), index == 3_002);
    }
    assert!(
        clock.points.len() <= MAX_POINTS + 1,
        "{}",
        clock.points.len()
    );
    assert_eq!(
        (clock.first().at, clock.last().at),
        (Nanos(0), Nanos((3 * MAX_POINTS as i64 - 1) * 1_000_000_000))
    );
    assert_eq!(clock.points.iter().filter(|point| point.set).count(), 1);
    assert_eq!(clock.at(Nanos(3_001_500_000_000)), None);
    assert!(clock.at(Nanos(100_000_000_000)).is_some());
}

#[test]
fn clock_difference_adds_both_bounds() {
    let of = |offset: i64, bound: i64| Offset {
        at: Nanos(0),
        offset: Nanos(offset),
        bound: Nanos(bound),
        count: 1,
    };
    assert_eq!(
        of(EPOCH + 7, 3).difference_to(&of(EPOCH, 4)),
        (Nanos(7), Nanos(7))
    );
}

#[test]
fn one_clock_needs_one_name_one_place_and_agreeing_offsets() {
    let of = |offset: i64| Offset {
        at: Nanos(0),
        offset: Nanos(offset),
        bound: Nanos(50_000),
        count: 1,
    };
    let at = |host: &str| replimeter_model::target::Endpoint {
        user: None,
        host: host.to_owned(),
        port: 3306,
        socket: None,
        tls: replimeter_model::target::TlsOptions::default(),
    };
    let one = |offset: i64, hosts: [&str; 2], names: [&str; 2]| {
        let [first, second] = hosts.map(at);
        is_one_clock([of(0), of(offset)], [&first, &second], names)
    };
    let same = ["db", "db"];
    assert!(one(90_000, ["127.0.0.1", "localhost"], same));
    assert!(one(90_000, ["10.0.0.1", "10.0.0.1"], same));
    assert!(
        !one(0, ["10.0.0.1", "10.0.0.2"], same),
        "equal names at other addresses"
    );
    assert!(!one(0, ["127.0.0.1", "10.0.0.2"], same));
    assert!(
        !one(110_000, ["127.0.0.1", "127.0.0.1"], same),
        "offsets that disagree"
    );
    assert!(
        !one(0, ["127.0.0.1", "127.0.0.1"], ["db1", "db2"]),
        "a forwarded port"
    );
}
