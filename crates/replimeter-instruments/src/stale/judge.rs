//! Checks the reads of the load engine's connections against the versions that were acknowledged
//! when each read was sent. No connection waits for another, and no additional row is read or
//! written.

use std::{sync::mpsc::Sender, thread, time::Duration};

use replimeter_model::time::Nanos;

use super::shared::Shared;
use crate::{
    load::{VersionEvent, VersionRead, VersionWrite, Versions},
    stale::results::{StalePhase, StaleRead, StaleRound, Verdict},
};

/// Ages up to here are distinguished; older ones are counted together.
const OLDEST: i64 = 100_000_000_000;
/// Interval between collections of the load's events.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Returns the lower end of the class that an age belongs to: 1, 2 and 5 times the powers of ten from
/// 10 µs on.
pub(super) fn age_from(age: Nanos) -> Nanos {
    let mut from = 0;
    let mut decade = 10_000i64;
    while decade <= OLDEST {
        for step in [decade, 2 * decade, 5 * decade] {
            if step > age.0 {
                return Nanos(from);
            }
            from = step;
        }
        decade *= 10;
    }
    Nanos(from)
}

/// Collects until the time is over; the load's writes and reads become rounds.
pub(super) fn judge_load(
    versions: &Versions,
    shared: &Shared<'_>,
    readers: usize,
    end: Nanos,
    out: &Sender<StaleRound>,
) {
    let hear = || {
        versions.drain(|event| {
            let round = match event {
                VersionEvent::Wrote(write) => Some(wrote(&write)),
                VersionEvent::Read(read) => (read.place < readers).then(|| judged(&read)),
            };
            if let Some(round) = round {
                let _ = out.send(round);
            }
        });
    };
    versions.set_listening(true);
    while !shared.halted() && shared.clock.now() < end {
        thread::sleep(POLL_INTERVAL);
        hear();
    }
    versions.set_listening(false);
    hear();
}

fn wrote(write: &VersionWrite) -> StaleRound {
    StaleRound {
        phase: StalePhase::Judged,
        round: write.version,
        row: write.row,
        offset: Nanos(0),
        send: write.sent,
        ack: write.acknowledged,
        conflicts: 0,
        reset: None,
        reads: Vec::new(),
    }
}

fn judged(read: &VersionRead) -> StaleRound {
    let known = &read.known;
    let (verdict, seen) = match read.seen {
        _ if read.refused => (Verdict::Refused, 0),
        None => (Verdict::Foreign, 0),
        Some(seen) if seen >= known.version => (Verdict::Fresh, seen),
        Some(seen) => (Verdict::Stale, seen),
    };
    let judged = StaleRead {
        seen,
        behind: u32::try_from(known.version.saturating_sub(seen)).unwrap_or(u32::MAX),
        reads: 1,
        went_back: read.went_back,
        went_back_across: read.went_back_across,
        newer: read.newer,
        ..StaleRead::new(read.place, read.begin, read.end, verdict)
    };
    StaleRound {
        offset: age_from(read.begin - known.acknowledged),
        reads: vec![judged],
        ..wrote(known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_is_judged_by_versions_acknowledged_before() {
        let known = VersionWrite {
            row: 3,
            version: 5,
            sent: Nanos(0),
            acknowledged: Nanos(1_000),
        };
        let of = |seen: Option<u64>, refused: bool| {
            let (begin, end) = (Nanos(16_000), Nanos(99_000));
            let round = judged(&VersionRead {
                place: 1,
                known,
                begin,
                end,
                seen,
                refused,
                went_back: false,
                went_back_across: false,
                newer: 0,
            });
            assert_eq!(
                (round.offset, round.round, round.row),
                (Nanos(10_000), 5, 3)
            );
            (round.reads[0].verdict, round.reads[0].behind)
        };
        assert_eq!(of(Some(5), false), (Verdict::Fresh, 0));
        assert_eq!(
            of(Some(9), false),
            (Verdict::Fresh, 0),
            "a later version is fresh too"
        );
        assert_eq!(of(Some(2), false), (Verdict::Stale, 3));
        assert_eq!(
            (of(None, false).0, of(None, true).0),
            (Verdict::Foreign, Verdict::Refused)
        );
    }

    #[test]
    fn ages_are_binned_in_one_two_five_steps() {
        let from = |age: i64| age_from(Nanos(age)).0;
        assert_eq!(
            [
                from(-5),
                from(0),
                from(9_999),
                from(10_000),
                from(19_999),
                from(49_000),
                from(50_000)
            ],
            [0, 0, 0, 10_000, 10_000, 20_000, 50_000]
        );
        assert_eq!(from(999_999_999_999), 500_000_000_000);
        assert_eq!(from(1_500_000_000), 1_000_000_000);
    }
}
