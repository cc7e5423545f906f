//! When writes became visible, from their acknowledgement.

use replimeter_model::{record::StartSpread, time::Nanos};
use replimeter_stats::{
    by_start::ByStart,
    censored::{Brackets, NEVER},
};

/// Times from here on are not observed ones, with any rounding and shift.
const UNSEEN: Nanos = Nanos(NEVER.0 / 2);

/// Returns whether both ends of an interval, in µs, are observed times.
pub(super) fn seen(ends: &[f64; 2]) -> bool {
    ends.iter().all(|end| *end < UNSEEN.as_micros())
}

/// Brackets of all rounds, and the ends of those of immediate reads by start of the servers.
#[derive(Clone, Debug, Default)]
pub(super) struct Visible {
    pub(super) brackets: Brackets,
    /// Upper ends of the brackets of rounds with an immediate read, 0 where that read showed the write. Rounds of the curve
    /// are not among them: their first reads are late, so the ends of their brackets are as well.
    pub(super) waits: ByStart,
}

impl Visible {
    /// Adds a round with an immediate read: the start of the last read that did not show the write and of the first that
    /// did, if any did.
    pub(super) fn record_immediate(&mut self, last_stale: Option<Nanos>, fresh: Option<Nanos>) {
        let wait = match (last_stale, fresh) {
            (None, Some(_)) => Nanos(0),
            (Some(_), Some(fresh)) => fresh,
            (Some(_), None) => NEVER,
            (None, None) => return,
        };
        self.waits.record(wait);
        self.record(last_stale, fresh);
    }

    /// Returns the spread of the starts' waits for the share `p` in µs; `None` if one was not observed.
    pub(super) fn waits_of_starts(&self, p: f64) -> Option<StartSpread> {
        let spread = self.waits.spread(p)?;
        seen(&[spread.min, spread.max]).then_some(spread)
    }

    /// Returns whether a start of the servers was not observed until its quantile `p`, and there are several.
    pub(super) fn some_start_unseen(&self, p: f64) -> bool {
        let quantiles = self.waits.quantiles(p);
        quantiles.len() > 1 && quantiles.iter().any(|quantile| *quantile >= UNSEEN)
    }

    /// Adds a round of any kind.
    pub(super) fn record(&mut self, last_stale: Option<Nanos>, fresh: Option<Nanos>) {
        match (last_stale, fresh) {
            (last, Some(fresh)) => self.brackets.record(last, fresh),
            (Some(last), None) => self.brackets.record_later_than(last),
            (None, None) => {}
        }
    }
}
