//! The largest values of the last seconds and minutes, in bounded memory.

use replimeter_model::time::Nanos;

use super::history::LagBound;

/// The parts of a time whose largest values are kept.
const PARTS: usize = 10;

/// The largest lag of a time that ends now. The time is cut into ten parts, and the oldest leaves as a whole: it is up to a tenth
/// longer than stated, never shorter.
#[derive(Clone, Debug)]
pub(super) struct RecentMax {
    part: Nanos,
    /// The largest lag of each part, with the number of the part since the clock's zero.
    largest: [(i64, Option<LagBound>); PARTS + 1],
}

impl RecentMax {
    /// Creates one of this time.
    pub(super) fn new(time: Nanos) -> Self {
        Self {
            part: Nanos((time.0 / PARTS as i64).max(1)),
            largest: [(-1, None); PARTS + 1],
        }
    }

    /// Adds a lag.
    pub(super) fn add(&mut self, at: Nanos, lag: LagBound) {
        let number = at.0 / self.part.0;
        let slots = self.largest.len() as i64;
        let slot = &mut self.largest[(number.max(0) % slots) as usize];
        if slot.0 != number {
            *slot = (number, None);
        }
        slot.1 = Some(larger(slot.1, lag));
    }

    /// Returns the largest lower end and the largest upper end; `None` if no lag was known.
    pub(super) fn get(&self, now: Nanos) -> Option<LagBound> {
        let number = now.0 / self.part.0;
        let within = self.largest.iter();
        let within = within.filter(|(of, _)| *of >= 0 && number - of <= PARTS as i64);
        within
            .filter_map(|(_, lag)| *lag)
            .fold(None, |largest, lag| Some(larger(largest, lag)))
    }
}

/// Returns the larger of both ends.
fn larger(largest: Option<LagBound>, lag: LagBound) -> LagBound {
    let Some(largest) = largest else { return lag };
    LagBound {
        low: largest.low.max(lag.low),
        high: largest
            .high
            .zip(lag.high)
            .map(|(one, other)| one.max(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_lag_leaves_after_its_time() {
        let mut recent = RecentMax::new(Nanos(10_000));
        let lag = |low, high| LagBound {
            low: Nanos(low),
            high,
        };
        assert_eq!(recent.get(Nanos(0)), None);
        recent.add(Nanos(500), lag(7, Some(Nanos(9))));
        recent.add(Nanos(900), lag(3, Some(Nanos(12))));
        for now in [900, 10_500, 10_999] {
            assert_eq!(
                recent.get(Nanos(now)),
                Some(lag(7, Some(Nanos(12)))),
                "{now}"
            );
        }
        assert_eq!(recent.get(Nanos(11_000)), None);
        recent.add(Nanos(11_500), lag(1, None));
        assert_eq!(
            recent.get(Nanos(12_000)),
            Some(lag(1, None)),
            "a part is used again"
        );
    }
}
