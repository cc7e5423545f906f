use proptest::prelude::*;
use replimeter_engine::position::{Executed, domain_commits};

use super::*;

/// The origins of GTIDs of both engines.
const MARIADB: &str = "0-1-";
const MYSQL: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562:";

fn arrival(source: &str, number: u64, at: i64) -> Arrival {
    Arrival {
        commit_id: format!("{source}{number}").parse().unwrap(),
        at: Some(Nanos(at)),
        set: 1,
    }
}

fn primary_has(executed: &str) -> Executed {
    Executed::Domains {
        logged: domain_commits(executed).unwrap(),
        applied: Vec::new(),
    }
}

struct Pair {
    source: &'static str,
    matcher: Matcher,
    matches: Vec<Match>,
}

impl Pair {
    fn new(executed: &str) -> Self {
        Self {
            source: MARIADB,
            matcher: Matcher::new(1, executed, None).unwrap(),
            matches: Vec::new(),
        }
    }

    fn mysql() -> Self {
        Self {
            source: MYSQL,
            ..Self::new("")
        }
    }

    fn primary(&mut self, number: u64, at: i64) {
        self.on_primary(&arrival(self.source, number, at));
    }

    fn on_primary(&mut self, arrival: &Arrival) {
        let matches = &mut self.matches;
        self.matcher
            .primary(arrival, &mut |one| matches.push(one))
            .unwrap();
    }

    fn replica(&mut self, number: u64, at: i64) {
        self.on_replica(&arrival(self.source, number, at), at);
    }

    fn on_replica(&mut self, arrival: &Arrival, at: i64) {
        let matches = &mut self.matches;
        self.matcher
            .replica(0, arrival, Nanos(at), &mut |one| matches.push(one))
            .unwrap();
    }

    fn applied(&mut self, applied: &str, logged: &str) {
        let [applied, logged] = [applied, logged].map(|text| domain_commits(text).unwrap());
        self.matcher.applied(0, &applied, &logged);
    }

    /// Ends all waiting; the primary has executed this.
    fn finish(&mut self, executed: &str) {
        self.matcher
            .expire(Nanos(i64::MAX), Some(primary_has(executed)));
    }

    fn pending(&mut self) -> u64 {
        self.matcher.pending(0).unwrap().0
    }

    fn oldest(&mut self) -> Option<Nanos> {
        self.matcher.pending(0).unwrap().1
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
    assert_eq!(pair.pending(), 0);
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
    pair.finish("0-1-12");
    // Number 9 is in both: the stream counts.
    assert_eq!(pair.matches.len(), 4);
    assert_eq!(pair.matcher.before_start(0), 6);
    assert_eq!(pair.matcher.unmatched(0), Unmatched::default());
    assert_eq!(pair.pending(), 0);
}

#[test]
fn replica_only_transactions_are_foreign() {
    let mut pair = Pair::new("0-1-9");
    pair.replica(10, 1);
    pair.replica(11, 1);
    let later = Nanos(MATCH_TIMEOUT.0 + 2);
    assert!(pair.matcher.is_overdue(later) && !pair.matcher.is_overdue(Nanos(2)));
    // Not before the primary says so.
    pair.matcher.expire(later, None);
    assert_eq!(pair.matcher.unmatched(0).foreign, 0);
    // The primary had logged number 10 before its stream began, and had not yet counted it as executed.
    pair.matcher.expire(later, Some(primary_has("0-1-10")));
    assert_eq!(pair.matcher.unmatched(0).foreign, 1);
    assert_eq!(pair.matcher.before_start(0), 1);
    assert!(!pair.matcher.is_overdue(later));
}

#[test]
fn what_a_replica_wrote_has_no_lag_there() {
    let mut pair = Pair::new("");
    let replica = arrival(MARIADB, 1, 0).commit_id.origin();
    pair.matcher.set_replica(0, Some(replica), "");
    // Numbers 1 to 3 of the replica, in either order, one of the primary, and one that never reaches it.
    pair.replica(1, 10);
    pair.primary(1, 20);
    pair.primary(2, 30);
    pair.replica(2, 35);
    pair.on_primary(&arrival("0-7-", 4, 40));
    assert_eq!(pair.pending(), 1);
    pair.on_replica(&arrival("0-7-", 4, 90), 90);
    pair.primary(3, 100);
    pair.replica(3, 110);
    pair.replica(5, 120);
    pair.finish("0-1-3");
    assert_eq!((pair.lags(), pair.pending()), (vec![50], 0));
    let unmatched = pair.matcher.unmatched(0);
    assert_eq!(
        (unmatched.own, unmatched.foreign, unmatched.of_primary()),
        (3, 1, 3)
    );
}

#[test]
fn what_mariadb_passed_is_not_pending() {
    let mut pair = Pair::new("");
    for number in [1, 2, 4, 5] {
        pair.primary(number, number as i64 * 10);
    }
    // Another server of the domain, and another domain.
    pair.on_primary(&arrival("0-9-", 3, 30));
    pair.on_primary(&arrival("7-1-", 1, 60));
    assert_eq!((pair.pending(), pair.oldest()), (6, Some(Nanos(10))));
    pair.replica(4, 100);
    assert_eq!((pair.pending(), pair.oldest()), (2, Some(Nanos(50))));
    assert_eq!(pair.matcher.unmatched(0).left_out, 3);
    pair.replica(5, 110);
    pair.on_replica(&arrival("7-1-", 1, 120), 120);
    assert_eq!((pair.pending(), pair.oldest()), (0, None));
    assert_eq!(
        (pair.lags(), pair.matcher.unmatched(0).left_out),
        (vec![60, 60, 60], 3)
    );
}

#[test]
fn applied_position_passes_what_left_nothing_to_log() {
    let mut pair = Pair::new("0-1-9");
    pair.matcher.set_replica(0, None, "0-1-9");
    pair.primary(10, 10);
    pair.applied("0-1-9", "0-1-9");
    assert_eq!(pair.pending(), 1);
    pair.applied("0-1-10", "0-1-9");
    assert_eq!(pair.pending(), 0);
    pair.primary(11, 20);
    pair.primary(12, 30);
    // It has logged number 11, which is under way.
    pair.applied("0-1-12", "0-1-11");
    assert_eq!(pair.pending(), 2);
    pair.replica(11, 50);
    pair.applied("0-1-12", "0-1-11");
    assert_eq!((pair.pending(), pair.lags()), (0, vec![30]));
    assert_eq!(pair.matcher.unmatched(0).left_out, 2);
}

#[test]
fn skipped_transactions_are_counted_after_many_others() {
    let mut pair = Pair::mysql();
    for number in 1..=3000 {
        pair.primary(number, 10);
        if number % 3 != 0 {
            pair.replica(number, 20);
        }
    }
    pair.matcher.expire(Nanos(0), None);
    assert_eq!(pair.matches.len(), 2000);
    let unmatched = pair.matcher.unmatched(0);
    assert!(unmatched.left_out >= 400, "{unmatched:?}");
    assert_eq!(unmatched.left_out + pair.pending(), 1000);
}

#[test]
fn arrivals_during_a_gap_are_counted_without_lag() {
    let mut pair = Pair::new("");
    let unheard = |number| Arrival {
        at: None,
        ..arrival(MARIADB, number, 0)
    };
    pair.on_primary(&unheard(1));
    pair.replica(1, 10);
    pair.primary(2, 20);
    pair.on_replica(&unheard(2), 30);
    assert!(pair.matches.is_empty());
    assert_eq!((pair.matcher.unmatched(0).unheard, pair.pending()), (2, 0));
}

#[test]
fn hole_in_replica_stream_is_counted() {
    let mut pair = Pair::new("");
    for number in 1..=10 {
        pair.primary(number, 10);
    }
    pair.replica(1, 20);
    pair.matcher.restart(0);
    assert_eq!((pair.matcher.unmatched(0).unheard, pair.pending()), (9, 0));
    pair.primary(11, 30);
    pair.replica(11, 40);
    assert_eq!(pair.lags(), [10, 10]);
}

#[test]
fn oldest_pending_transaction_is_reported() {
    let mut pair = Pair::mysql();
    assert_eq!(pair.oldest(), None);
    for number in 1..=3 {
        pair.primary(number, number as i64 * 10);
    }
    pair.replica(2, 50);
    assert_eq!(pair.oldest(), Some(Nanos(10)));
    pair.replica(1, 60);
    assert_eq!(pair.oldest(), Some(Nanos(30)));
    pair.replica(3, 60);
    assert_eq!(pair.oldest(), None);
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
            let commit_id = format!("{}-1-{}", keys[index].0 as u32 % domains, index + 1).parse().unwrap();
            let arrival = Arrival { commit_id, at: Some(Nanos(at as i64)), set: index as u32 };
            if primary {
                matcher.primary(&arrival, &mut check).unwrap();
            } else {
                matcher.replica(0, &arrival, Nanos(at as i64), &mut check).unwrap();
            }
        }
        matcher.expire(Nanos(i64::MAX), Some(primary_has("")));
        prop_assert!(seen.iter().all(|count| *count == 1));
        prop_assert_eq!(matcher.pending(0).unwrap().0, 0);
        prop_assert_eq!(matcher.unmatched(0), Unmatched::default());
    }
}
