use proptest::prelude::*;

use super::*;

fn gtid(number: u64) -> Gtid {
    format!("0-1-{number}").parse().unwrap()
}

fn arrival(number: u64, at: i64) -> Arrival {
    Arrival {
        gtid: gtid(number),
        at: Some(Nanos(at)),
        set: 1,
    }
}

struct Pair {
    matcher: Matcher,
    matches: Vec<Match>,
}

impl Pair {
    fn new(executed: &str) -> Self {
        Self {
            matcher: Matcher::new(1, executed, None).unwrap(),
            matches: Vec::new(),
        }
    }

    fn primary(&mut self, number: u64, at: i64) {
        let matches = &mut self.matches;
        self.matcher
            .primary(&arrival(number, at), &mut |one| matches.push(one))
            .unwrap();
    }

    fn replica(&mut self, number: u64, at: i64) {
        let matches = &mut self.matches;
        self.matcher
            .replica(0, &arrival(number, at), Nanos(at), &mut |one| {
                matches.push(one)
            })
            .unwrap();
    }

    fn lags(&self) -> Vec<i64> {
        self.matches.iter().map(|one| one.lag().0).collect()
    }
}

#[test]
fn inversions_keep_their_sign() {
    let mut pair = Pair::new("");
    pair.primary(5, 100);
    pair.replica(5, 130);
    pair.replica(6, 140);
    pair.primary(6, 150);
    assert_eq!(pair.lags(), [30, -10]);
    assert_eq!(pair.matcher.pending(0), 0);
}

#[test]
fn transactions_before_the_start_are_not_foreign() {
    let mut pair = Pair::new("0-1-9");
    for number in 3..=12 {
        pair.replica(number, number as i64);
    }
    for number in 9..=12 {
        pair.primary(number, 100);
    }
    pair.matcher.finish(Nanos(i64::MAX));
    // Number 9 is in both: the stream counts.
    assert_eq!(pair.matches.len(), 4);
    assert_eq!(pair.matcher.before_start(0), 6);
    assert_eq!(pair.matcher.unmatched(0), Unmatched::default());
    assert_eq!(pair.matcher.pending(0), 0);
}

#[test]
fn replica_only_transactions_are_foreign() {
    let mut pair = Pair::new("0-1-9");
    pair.replica(10, 1);
    pair.matcher.expire(Nanos(MATCH_TIMEOUT.0 + 2));
    assert_eq!(pair.matcher.unmatched(0).foreign, 1);
}

#[test]
fn what_a_replica_wrote_has_no_lag_there() {
    let mut pair = Pair::new("");
    let replica = Gtid::origin(&gtid(1));
    pair.matcher.set_origin(0, replica);
    // Numbers 1 to 3 of the replica, in either order, one of the primary, and one that never reaches it.
    let other = Arrival {
        gtid: "0-7-4".parse().unwrap(),
        ..arrival(4, 40)
    };
    pair.replica(1, 10);
    pair.primary(1, 20);
    pair.primary(2, 30);
    pair.replica(2, 35);
    let matches = &mut pair.matches;
    let mut out = |one| matches.push(one);
    pair.matcher.primary(&other, &mut out).unwrap();
    assert_eq!(pair.matcher.pending(0), 1);
    let later = Arrival {
        at: Some(Nanos(90)),
        ..other
    };
    pair.matcher
        .replica(0, &later, Nanos(90), &mut out)
        .unwrap();
    pair.primary(3, 100);
    pair.replica(3, 110);
    pair.replica(5, 120);
    pair.matcher.expire(Nanos(MATCH_TIMEOUT.0 + 200));
    assert_eq!((pair.lags(), pair.matcher.pending(0)), (vec![50], 0));
    let unmatched = pair.matcher.unmatched(0);
    assert_eq!(
        (unmatched.own, unmatched.foreign, unmatched.of_primary()),
        (3, 1, 3)
    );
}

#[test]
fn skipped_transactions_are_counted_after_many_others() {
    let mut pair = Pair::new("");
    for number in 1..=3000 {
        pair.primary(number, 10);
        if number % 3 != 0 {
            pair.replica(number, 20);
        }
    }
    pair.matcher.expire(Nanos(0));
    assert_eq!(pair.matches.len(), 2000);
    let unmatched = pair.matcher.unmatched(0);
    assert!(unmatched.left_out >= 400, "{unmatched:?}");
    assert_eq!(unmatched.left_out + pair.matcher.pending(0), 1000);
}

#[test]
fn arrivals_during_a_gap_are_counted_without_lag() {
    let mut pair = Pair::new("");
    let matches = &mut Vec::new();
    let unheard = Arrival {
        at: None,
        ..arrival(1, 0)
    };
    pair.matcher
        .primary(&unheard, &mut |one| matches.push(one))
        .unwrap();
    pair.replica(1, 10);
    pair.primary(2, 20);
    let unheard = Arrival {
        at: None,
        ..arrival(2, 0)
    };
    pair.matcher
        .replica(0, &unheard, Nanos(30), &mut |one| matches.push(one))
        .unwrap();
    assert!(matches.is_empty() && pair.matches.is_empty());
    assert_eq!(
        (pair.matcher.unmatched(0).unheard, pair.matcher.pending(0)),
        (2, 0)
    );
}

#[test]
fn hole_in_replica_stream_is_counted() {
    let mut pair = Pair::new("");
    for number in 1..=10 {
        pair.primary(number, 10);
    }
    pair.replica(1, 20);
    pair.matcher.restart(0);
    assert_eq!(
        (pair.matcher.unmatched(0).unheard, pair.matcher.pending(0)),
        (9, 0)
    );
    pair.primary(11, 30);
    pair.replica(11, 40);
    assert_eq!(pair.lags(), [10, 10]);
}

#[test]
fn oldest_pending_transaction_is_reported() {
    let mut pair = Pair::new("");
    assert_eq!(pair.matcher.oldest_pending(0).unwrap(), None);
    for number in 1..=3 {
        pair.primary(number, number as i64 * 10);
    }
    pair.replica(2, 50);
    assert_eq!(pair.matcher.oldest_pending(0).unwrap(), Some(Nanos(10)));
    pair.replica(1, 60);
    assert_eq!(pair.matcher.oldest_pending(0).unwrap(), Some(Nanos(30)));
    pair.replica(3, 60);
    assert_eq!(pair.matcher.oldest_pending(0).unwrap(), None);
}

proptest! {
    /// In any order on both sides (within the appliers' reach), everything is matched once with the
    /// right lag.
    #[test]
    fn every_interleaving_matches_all_transactions(
        keys in proptest::collection::vec((any::<u16>(), 0u64..50, 0u64..50), 1..300),
        domains in 1u32..4,
    ) {
        let mut events: Vec<(u64, bool, usize)> = Vec::new();
        for (index, (_, here, there)) in keys.iter().enumerate() {
            events.push((index as u64 * 3 + here, true, index));
            events.push((index as u64 * 3 + there, false, index));
        }
        events.sort_unstable();
        let mut matcher = Matcher::new(1, "", None).unwrap();
        let mut seen = vec![0u32; keys.len()];
        let mut check = |one: Match| seen[one.set as usize] += 1;
        for (at, primary, index) in events {
            let gtid = format!("{}-1-{}", keys[index].0 as u32 % domains, index + 1).parse().unwrap();
            let arrival = Arrival { gtid, at: Some(Nanos(at as i64)), set: index as u32 };
            if primary {
                matcher.primary(&arrival, &mut check).unwrap();
            } else {
                matcher.replica(0, &arrival, Nanos(at as i64), &mut check).unwrap();
            }
        }
        matcher.finish(Nanos(i64::MAX));
        prop_assert!(seen.iter().all(|count| *count == 1));
        prop_assert_eq!(matcher.pending(0), 0);
        prop_assert_eq!(matcher.unmatched(0), Unmatched::default());
    }
}
