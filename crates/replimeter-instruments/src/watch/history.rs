//! When the primary's positions were first seen, and what that says about a replica's lag.

use std::collections::VecDeque;

use replimeter_engine::position::Position;
use replimeter_model::time::Nanos;

/// Positions that are kept; more are thinned out, which widens the bounds of lag that is as old.
const MAX_POSITIONS: usize = 2048;

/// The ends of a replica's lag: the age of the oldest transaction of the primary that it had not applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LagBound {
    /// It is at least this; 0 if it may have applied everything.
    pub(super) low: Nanos,
    /// It is at most this; `None` if that is not known: the replica was behind when the watch began.
    pub(super) high: Option<Nanos>,
}

/// When an answer was requested, and when it arrived: it was true at an instant between both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AnswerTime {
    /// When it was requested.
    pub(super) asked: Nanos,
    /// When it arrived.
    pub(super) answered: Nanos,
}

/// What a new answer of the primary was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Noted {
    /// The primary has written since the last one.
    Advanced,
    /// It has not.
    Silent,
    /// It lacks transactions that it had, so the times of all earlier positions are void.
    Reset,
}

/// A position of the primary.
#[derive(Debug)]
struct SeenPosition {
    position: Position,
    /// When an earlier position was requested last: what is new in this one was committed later. `None` if it is the first.
    not_before: Option<Nanos>,
    /// When it arrived first: what is new in it was committed sooner.
    seen: Nanos,
    /// When it was requested last.
    asked: Nanos,
}

/// The primary's positions, oldest first, each with all transactions of those before it.
#[derive(Debug, Default)]
pub(super) struct PositionHistory {
    seen: VecDeque<SeenPosition>,
}

impl PositionHistory {
    /// Adds an answer of the primary.
    pub(super) fn add(&mut self, position: Position, at: AnswerTime) -> Noted {
        let Some(last) = self.seen.back_mut() else {
            self.push(position, None, at);
            return Noted::Advanced;
        };
        if !position.covers(&last.position) {
            self.seen.clear();
            self.push(position, None, at);
            return Noted::Reset;
        }
        if last.position.covers(&position) {
            last.asked = at.asked;
            return Noted::Silent;
        }
        let not_before = Some(last.asked);
        self.push(position, not_before, at);
        if self.seen.len() > MAX_POSITIONS {
            self.thin_out();
        }
        Noted::Advanced
    }

    fn push(&mut self, position: Position, not_before: Option<Nanos>, at: AnswerTime) {
        self.seen.push_back(SeenPosition {
            position,
            not_before,
            seen: at.answered,
            asked: at.asked,
        });
    }

    /// Removes every other position of the older half, whose transactions pass to the next one.
    fn thin_out(&mut self) {
        let half = self.seen.len() / 2;
        let mut kept = VecDeque::with_capacity(self.seen.len());
        let mut earliest = None;
        for (index, mut one) in self.seen.drain(..).enumerate() {
            // The first one stays: it has what was there when the watch began.
            if index < half && index % 2 == 1 {
                earliest = Some(one.not_before);
                continue;
            }
            if let Some(not_before) = earliest.take() {
                one.not_before = not_before;
            }
            kept.push_back(one);
        }
        self.seen = kept;
    }

    /// Forgets the positions that every replica has, given the one with the fewest transactions.
    pub(super) fn forget_applied(&mut self, applied_by_all: &Position) {
        while self.seen.len() > 1 && applied_by_all.covers(&self.seen[1].position) {
            self.seen.pop_front();
        }
    }

    /// Returns the newest position.
    #[must_use]
    pub(super) fn newest(&self) -> Option<&Position> {
        Some(&self.seen.back()?.position)
    }

    /// Returns when the newest position arrived first.
    #[must_use]
    pub(super) fn advanced_at(&self) -> Option<Nanos> {
        Some(self.seen.back()?.seen)
    }

    /// Returns whether a replica with this position has everything that was seen.
    #[must_use]
    pub(super) fn is_applied(&self, applied: &Position) -> bool {
        self.newest().is_some_and(|newest| applied.covers(newest))
    }

    /// Returns the bound of the lag of a replica that had applied this at an instant between the two times; `None` before the first
    /// position.
    ///
    /// The oldest transaction that it lacks is new in the first position that it does not have. It was committed after an earlier
    /// position was requested, and before this one arrived.
    #[must_use]
    pub(super) fn lag(&self, applied: &Position, at: AnswerTime) -> Option<LagBound> {
        let newest = self.seen.back()?;
        let nothing = Nanos(0);
        let has = self
            .seen
            .partition_point(|one| applied.covers(&one.position));
        Some(match self.seen.get(has) {
            // What it lacks was committed after the newest position was requested.
            None => LagBound {
                low: nothing,
                high: Some((at.answered - newest.asked).max(nothing)),
            },
            Some(lacked) => LagBound {
                // It may have been committed after the replica answered.
                low: (at.asked - lacked.seen).max(nothing),
                high: lacked
                    .not_before
                    .map(|since| (at.answered - since).max(nothing)),
            },
        })
    }

    /// Returns the number of positions.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.seen.len()
    }
}

#[cfg(test)]
mod tests {
    use replimeter_model::random::Random;

    use super::*;

    const MS: i64 = 1_000_000;

    fn at(ms: i64) -> Position {
        format!("0-1-{ms}").parse().unwrap()
    }

    /// A question at this time in ms, answered 2 ms later.
    fn asked(ms: i64) -> AnswerTime {
        AnswerTime {
            asked: Nanos(ms * MS),
            answered: Nanos((ms + 2) * MS),
        }
    }

    fn bound(low: i64, high: Option<i64>) -> Option<LagBound> {
        Some(LagBound {
            low: Nanos(low * MS),
            high: high.map(|high| Nanos(high * MS)),
        })
    }

    #[test]
    fn lag_lies_between_first_seen_and_last_not_seen() {
        let mut history = PositionHistory::default();
        assert_eq!(history.lag(&at(1), asked(0)), None);
        assert_eq!(history.add(at(10), asked(0)), Noted::Advanced);
        assert_eq!(history.add(at(10), asked(1000)), Noted::Silent);
        assert_eq!(history.add(at(11), asked(2000)), Noted::Advanced);
        assert_eq!(history.add(at(15), asked(3000)), Noted::Advanced);
        // It lacks 11, committed between 1,000 and 2,002 ms.
        assert_eq!(
            history.lag(&at(10), asked(3000)),
            bound(998, Some(2002)),
            "behind"
        );
        assert_eq!(history.lag(&at(12), asked(3500)), bound(498, Some(1502)));
        assert_eq!(history.lag(&at(15), asked(3500)), bound(0, Some(502)));
        assert_eq!(
            history.lag(&at(15), asked(2000)),
            bound(0, Some(0)),
            "answered before the primary was asked"
        );
        assert_eq!(
            history.lag(&at(9), asked(3000)),
            bound(2998, None),
            "behind when the watch began"
        );
        assert!(history.is_applied(&at(15)) && !history.is_applied(&at(14)));
    }

    #[test]
    fn silent_primary_leaves_no_lag() {
        let mut history = PositionHistory::default();
        for second in 0..600 {
            history.add(at(10), asked(second * 1000));
            assert_eq!(
                history.lag(&at(10), asked(second * 1000)),
                bound(0, Some(2))
            );
        }
        assert_eq!(history.len(), 1);
    }

    #[test]
    fn position_that_lacks_transactions_voids_the_times() {
        let mut history = PositionHistory::default();
        history.add(at(10), asked(0));
        history.add(at(20), asked(1000));
        assert_eq!(history.add(at(5), asked(2000)), Noted::Reset);
        assert_eq!(history.lag(&at(4), asked(3000)), bound(998, None));
        assert_eq!(history.len(), 1);
    }

    /// Commits at random times, a replica with a random delay that stops for a long time, and a question a second: every true lag lies
    /// within its bound, however often positions are thinned out.
    #[test]
    fn true_lag_lies_within_the_bound_also_when_thinned_out() {
        let mut random = Random::new(7);
        let mut history = PositionHistory::default();
        let mut below = |most: usize| random.below(most) as i64;
        // Transaction n is committed at commits[n - 1], in ms.
        let (mut commits, mut now) = (Vec::new(), 0);
        let (mut widest, mut widest_recent) = (0, 0);
        for second in 0..20_000i64 {
            while now < second * 1000 + 999 {
                commits.push(now);
                now += 1 + below(400);
            }
            let written = |until: i64| commits.partition_point(|commit| *commit <= until) as i64;
            let (asked, snapshot) = (second * 1000, second * 1000 + below(3));
            let time = |asked: i64| AnswerTime {
                asked: Nanos(asked * MS),
                answered: Nanos((asked + 2) * MS),
            };
            history.add(at(written(snapshot)), time(asked));
            // The applier is stopped from 5,000 to 15,000 s.
            let applied_until = match second {
                5_000..15_000 => 5_000_000,
                _ => snapshot - below(1500),
            };
            let applied = written(applied_until);
            let instant = asked + below(3);
            let oldest = commits.get(applied as usize);
            let truth = oldest.map_or(0, |commit| (instant - commit).max(0));
            let found = history.lag(&at(applied), time(asked)).unwrap();
            assert!(found.low.0 <= truth * MS, "{second}: {found:?}, {truth}");
            let Some(high) = found.high else {
                assert!(second < 5, "the position is known: {second}");
                continue;
            };
            assert!(high.0 >= truth * MS, "{second}: {found:?}, {truth}");
            let width = (high - found.low).0 / MS;
            widest = width.max(widest);
            if !(5_000..15_000).contains(&second) {
                widest_recent = width.max(widest_recent);
            }
        }
        assert!(history.len() <= MAX_POSITIONS, "{}", history.len());
        assert!(widest_recent <= 1004, "{widest_recent} ms");
        assert!(widest > 1004, "the bound of old lag widens: {widest} ms");
    }
}
