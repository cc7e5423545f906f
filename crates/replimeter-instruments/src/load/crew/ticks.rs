//! Progress reports, once a second.

use replimeter_model::time::Nanos;

use super::{
    squad::{Second, SquadSecond},
    unit::Unit,
};

const SECOND: Nanos = Nanos(1_000_000_000);

/// Time of the next report, and the counts of the last one.
pub(super) struct Ticks {
    began: Nanos,
    from: Nanos,
    pub(super) next: Nanos,
    last: Vec<SquadSecond>,
    pub(super) waiting: Vec<Vec<u64>>,
}

impl Ticks {
    pub(super) fn new(began: Nanos, from: Nanos, squads: usize) -> Self {
        let ramp = from - began;
        let next = if ramp <= Nanos(0) {
            began + SECOND
        } else {
            Nanos((began + SECOND).0.min(from.0))
        };
        Self {
            began,
            from,
            next,
            last: vec![SquadSecond::default(); squads],
            waiting: vec![Vec::new(); squads],
        }
    }

    pub(super) fn tell(&mut self, now: Nanos, units: &[Unit], second: &mut dyn FnMut(&Second)) {
        let counted = self.next > self.from;
        let mut squads = Vec::new();
        for ((unit, last), waiting) in units.iter().zip(&mut self.last).zip(&mut self.waiting) {
            let total = unit.totals();
            let due = unit.shared.waiting(now);
            if counted && let Some(due) = due {
                waiting.push(due);
            }
            squads.push(SquadSecond {
                operations: total.operations - last.operations,
                failed: total.failed - last.failed,
                retries: total.retries - last.retries,
                waiting: due,
            });
            *last = total;
        }
        second(&Second {
            at: now - self.began,
            counted,
            squads,
        });
        // The end of the ramp is a tick, so that counted seconds are whole.
        let next = self.next + SECOND;
        self.next = if self.next < self.from {
            Nanos(next.0.min(self.from.0))
        } else {
            next
        };
    }
}
