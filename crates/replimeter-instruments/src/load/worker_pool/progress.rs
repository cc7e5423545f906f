//! Progress reports, once a second.

use replimeter_model::time::Nanos;

use super::{
    load_group::{GroupProgress, LoadProgress},
    worker_group::WorkerGroup,
};

const SECOND: Nanos = Nanos(1_000_000_000);

/// Time of the next report, and the counts of the last one.
pub(super) struct ProgressTicker {
    began: Nanos,
    from: Nanos,
    pub(super) next: Nanos,
    last: Vec<GroupProgress>,
    pub(super) waiting: Vec<Vec<u64>>,
}

impl ProgressTicker {
    pub(super) fn new(began: Nanos, from: Nanos, load_groups: usize) -> Self {
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
            last: vec![GroupProgress::default(); load_groups],
            waiting: vec![Vec::new(); load_groups],
        }
    }

    pub(super) fn send_progress(
        &mut self,
        now: Nanos,
        worker_groups: &[WorkerGroup],
        second: &mut dyn FnMut(&LoadProgress),
    ) {
        let counted = self.next > self.from;
        let mut load_groups = Vec::new();
        for ((worker_group, last), waiting) in worker_groups
            .iter()
            .zip(&mut self.last)
            .zip(&mut self.waiting)
        {
            let total = worker_group.totals();
            let due = worker_group.shared.waiting(now);
            if counted && let Some(due) = due {
                waiting.push(due);
            }
            load_groups.push(GroupProgress {
                operations: total.operations - last.operations,
                failed: total.failed - last.failed,
                retries: total.retries - last.retries,
                waiting: due,
            });
            *last = total;
        }
        second(&LoadProgress {
            at: now - self.began,
            counted,
            load_groups,
        });
        // A report is due at the end of the warm-up, so that counted seconds are whole.
        let next = self.next + SECOND;
        self.next = if self.next < self.from {
            Nanos(next.0.min(self.from.0))
        } else {
            next
        };
    }
}
