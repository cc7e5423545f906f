//! Positions from the values of a heartbeat table, for servers whose transactions have no numbers.

use std::collections::VecDeque;

use replimeter_engine::{
    heartbeat_table::TableValue,
    position::{DomainCommit, Position},
};
use replimeter_model::time::Nanos;

use super::history::{AnswerTime, LagBound, Noted, PositionHistory};

/// Values that are kept.
const MAX_VALUES: usize = 2048;
/// How long a replica may show changing values of which the primary was seen to show none, before nothing is known of it.
const MAX_UNMATCHED: Nanos = Nanos(30_000_000_000);

/// The values that the primary showed, numbered from 1, and when.
#[derive(Debug, Default)]
pub(super) struct ValueHistory {
    values: VecDeque<(TableValue, u64)>,
    history: PositionHistory,
}

/// What a replica shows.
#[derive(Debug, Default)]
pub(super) struct ShownValue {
    value: Option<TableValue>,
    /// When it was seen first.
    since: Nanos,
    /// The number of the last value that the primary was seen to show, too, and when the replica showed it last.
    matched: Option<(u64, Nanos)>,
    /// For another value, which the primary showed between two answers: the number of a later one.
    before: Option<u64>,
}

impl ShownValue {
    /// Takes a replica's answer, and returns whether it is another one than before.
    pub(super) fn show(&mut self, value: TableValue, at: AnswerTime) -> bool {
        if self.value == Some(value) {
            return false;
        }
        (self.since, self.before) = (at.answered, None);
        self.value.replace(value).is_some()
    }
}

impl ValueHistory {
    /// Adds an answer of the primary, with what the replicas show.
    pub(super) fn add<'a>(
        &mut self,
        value: TableValue,
        at: AnswerTime,
        shown: impl Iterator<Item = &'a mut ShownValue>,
    ) {
        let last = self.values.back().map_or(0, |(_, number)| *number);
        let number = self.number(value).unwrap_or(last + 1);
        if number > last {
            self.values.push_back((value, number));
        }
        // Another primary has not received what this one showed later.
        self.values.retain(|(_, of)| *of <= number);
        if self.values.len() > MAX_VALUES {
            self.values.pop_front();
        }
        let noted = self.history.add(position(number), at);
        for one in shown {
            if noted == Noted::Reset {
                (one.matched, one.before) = (None, None);
            } else if at.asked >= one.since {
                one.before = one.before.or(Some(number));
            }
        }
    }

    fn number(&self, value: TableValue) -> Option<u64> {
        let mut newest_first = self.values.iter().rev();
        newest_first
            .find(|(of, _)| *of == value)
            .map(|(_, number)| *number)
    }

    /// Returns for how long the primary has shown the same value.
    pub(super) fn silent(&self, now: Nanos) -> Nanos {
        self.history.advanced_at().map_or(Nanos(0), |at| now - at)
    }

    /// Returns the bound of the lag of a replica that answered at this time, and whether it has everything, if that is known; or why
    /// nothing is.
    pub(super) fn lag(
        &self,
        shown: &mut ShownValue,
        at: AnswerTime,
    ) -> Result<(LagBound, Option<bool>), &'static str> {
        const UNKNOWN: &str = "the primary has not shown the value of its heartbeat table";
        let value = shown.value.ok_or("it has shown no heartbeat table")?;
        let of = |number| self.history.lag(&position(number), at).ok_or(UNKNOWN);
        if let Some(number) = self.number(value) {
            shown.matched = Some((number, at.answered));
            return Ok((
                of(number)?,
                Some(self.history.is_applied(&position(number))),
            ));
        }
        // The primary showed it between two answers.
        let (last, matched_at) = shown.matched.ok_or(UNKNOWN)?;
        if shown.since - matched_at > MAX_UNMATCHED {
            return Err(UNKNOWN);
        }
        let low = match shown.before {
            Some(later) => of(later - 1)?.low,
            None => Nanos(0),
        };
        let bound = LagBound { low, ..of(last)? };
        Ok((bound, shown.before.map(|_| false)))
    }
}

/// Returns the position of a server with the values up to this number.
fn position(number: u64) -> Position {
    Position::Domains(vec![DomainCommit {
        domain: 0,
        server: 0,
        sequence: number,
    }])
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000_000;

    fn asked(ms: i64) -> AnswerTime {
        AnswerTime {
            asked: Nanos(ms * S / 1000),
            answered: Nanos((ms + 2) * S / 1000),
        }
    }

    fn value(number: i64) -> TableValue {
        TableValue::of([number])
    }

    /// A primary and a replica.
    #[derive(Default)]
    struct Both {
        values: ValueHistory,
        shown: ShownValue,
    }

    impl Both {
        fn write(&mut self, number: i64, ms: i64) {
            let shown = std::iter::once(&mut self.shown);
            self.values.add(value(number), asked(ms), shown);
        }

        /// Returns the bound of the replica's lag in ms, and whether it has everything.
        fn lag(
            &mut self,
            number: i64,
            ms: i64,
        ) -> Result<(i64, Option<i64>, Option<bool>), &'static str> {
            self.shown.show(value(number), asked(ms));
            let (bound, has_all) = self.values.lag(&mut self.shown, asked(ms))?;
            let ms = |time: Nanos| time.0 / (S / 1000);
            Ok((ms(bound.low), bound.high.map(ms), has_all))
        }
    }

    #[test]
    fn values_are_positions_in_the_order_of_the_primary() {
        let mut both = Both::default();
        assert!(both.lag(7, 0).is_err());
        for (second, number) in [50, 7, 90, 3].into_iter().enumerate() {
            both.write(number, second as i64 * 1000);
        }
        assert_eq!(both.lag(3, 3000), Ok((0, Some(2), Some(true))));
        assert_eq!(both.lag(7, 3000), Ok((998, Some(2002), Some(false))));
        assert_eq!(both.lag(50, 3000), Ok((1998, Some(3002), Some(false))));
        assert_eq!(both.values.silent(Nanos(10 * S)).0 / S, 6);
        // A writer that pauses.
        both.write(3, 600_000);
        assert_eq!(both.lag(3, 600_000), Ok((0, Some(2), Some(true))));
    }

    #[test]
    fn value_that_was_never_shown_is_unknown_until_one_matches() {
        let mut both = Both::default();
        both.write(10, 0);
        both.write(11, 1000);
        assert!(both.lag(9, 1000).is_err());
        assert!(both.lag(10, 1500).is_ok());
    }

    #[test]
    fn value_between_two_answers_lies_between_their_numbers() {
        let mut both = Both::default();
        both.write(10, 0);
        assert_eq!(both.lag(10, 0), Ok((0, Some(2), Some(true))));
        both.write(20, 1000);
        // Not before 10, and maybe after 20.
        assert_eq!(both.lag(15, 1000), Ok((0, Some(1002), None)));
        both.write(30, 2000);
        // It lacks 30, which the primary showed after the replica showed 15.
        assert_eq!(both.lag(15, 2000), Ok((0, Some(2002), Some(false))));
        assert_eq!(
            both.lag(15, 60_000),
            Ok((57_998, Some(60_002), Some(false)))
        );
    }

    #[test]
    fn values_of_another_writer_become_unknown() {
        let mut both = Both::default();
        both.write(10, 0);
        assert!(both.lag(10, 0).is_ok());
        for second in 1..60 {
            both.write(10 + second, second * 1000);
            let is_known = both.lag(-second, second * 1000).is_ok();
            assert_eq!(is_known, second <= 30, "{second}");
        }
        assert!(both.lag(69, 60_000).is_ok(), "it matches again");
    }

    #[test]
    fn new_primary_begins_at_the_value_that_it_received() {
        let mut both = Both::default();
        for number in [1, 2, 3] {
            both.write(number, number * 1000);
        }
        assert!(both.lag(3, 3000).is_ok());
        // It lacks 3.
        both.write(2, 4000);
        assert!(both.lag(3, 4000).is_err());
        assert_eq!(both.lag(2, 4000), Ok((0, Some(2), Some(true))));
        both.write(7, 5000);
        assert_eq!(both.lag(2, 5000).unwrap().2, Some(false));
    }

    #[test]
    fn memory_is_bounded() {
        let mut both = Both::default();
        for number in 0..10_000 {
            both.write(number, number * 1000);
        }
        assert!(both.values.values.len() <= MAX_VALUES);
        assert!(both.lag(5, 10_000_000).is_err(), "it is too old");
        assert!(both.lag(9000, 10_000_000).is_ok());
    }
}
