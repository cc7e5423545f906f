//! A second session that reads from the primary: rows that it saw, a user could have seen.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use replimeter_engine::{
    Node, ServerError, Session,
    session::{Bound, Prepared},
};

use super::id_set::IdSet;

const NEWEST: &str = "SELECT id FROM `replimeter`.`loss_probe` WHERE id > ?";
const OPERATION: &str = "cannot read the rows";
/// Pause between two reads.
const PAUSE: Duration = Duration::from_micros(200);
/// Maximum number of rows after the first one not yet seen; more would make every read slow.
const MAX_UNSEEN: u64 = 20_000;

/// The connection that reads.
pub(crate) struct Watcher {
    session: Session,
    statement: Prepared,
}

impl Watcher {
    pub(crate) fn open(node: &Node) -> Result<Self, ServerError> {
        let mut session = Session::open(node)?;
        let statement = session.prepare(OPERATION, NEWEST)?;
        Ok(Self { session, statement })
    }

    /// Reads until it is stopped or the server is gone.
    pub(crate) fn watch(mut self, stop: &AtomicBool) -> IdSet {
        let mut seen = IdSet::default();
        // All ids up to here were seen.
        let mut all_until = 0u64;
        while !stop.load(Ordering::Relaxed) {
            let above = [Bound::Number(all_until)];
            let Ok(rows) = self.session.numbers(OPERATION, &self.statement, above) else {
                break;
            };
            let mut largest = all_until;
            for id in rows {
                seen.insert(id);
                largest = largest.max(id);
            }
            while seen.contains(all_until + 1) {
                all_until += 1;
            }
            if largest - all_until > MAX_UNSEEN {
                // Rows that have not appeared by now were refused.
                all_until = largest - MAX_UNSEEN / 2;
            }
            thread::sleep(PAUSE);
        }
        seen
    }
}
