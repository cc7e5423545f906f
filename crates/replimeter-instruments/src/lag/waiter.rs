//! Waits on a replica for each transaction, and verifies that it can be read.

use std::{
    sync::{
        Mutex,
        mpsc::{Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::Duration,
};

use replimeter_engine::{
    Node, ServerError, Session,
    dialect::{sync_reads::conflict, waits::PreparedWait},
    facts::ServerFacts,
    session::{Bound, Prepared},
    sync::lock,
};
use replimeter_model::time::Nanos;

use super::{
    observer_event::{ObserverEvent, SeenRows},
    shared_state::SharedState,
    writer::WrittenRow,
};
use crate::{
    clock::Clock,
    lag::sample::{Sighting, SightingDetail},
    table::POINT_SELECT,
};

/// Longest wait on the server before the row is read again.
const MAX_WAIT: Duration = Duration::from_secs(1);
/// A wait is at least as long as this number of reads, so that the reads between waits take a tenth of the time.
const MIN_WAIT_READS: i64 = 10;
/// A wait ends after this part of the time since the row was looked for: so wide is its bracket.
const WAIT_PART: i64 = 10;
/// How long an idle waiter sleeps before it checks the shared state again.
const IDLE_INTERVAL: Duration = Duration::from_millis(20);

const OPERATION: &str = "cannot read the replica";

/// One waiting connection to a replica.
pub(super) struct Waiter {
    session: Session,
    wait: PreparedWait,
    point_select: Prepared,
    slot: usize,
}

/// Returns for how long to wait, after looking for a row for the time `waited`, with reads that take `read`.
fn length_of_wait(waited: Nanos, read: Nanos) -> Duration {
    let nanos = (waited.0 / WAIT_PART).max(read.0.saturating_mul(MIN_WAIT_READS));
    Duration::from_nanos(nanos.unsigned_abs()).min(MAX_WAIT)
}

impl Waiter {
    /// Connects and prepares.
    pub(super) fn open(node: &Node, facts: &ServerFacts, slot: usize) -> Result<Self, ServerError> {
        let mut session = Session::open(node)?;
        let wait = PreparedWait::prepare(&mut session, facts)?;
        let point_select = session.prepare(OPERATION, &POINT_SELECT)?;
        Ok(Self {
            session,
            wait,
            point_select,
            slot,
        })
    }

    /// Waits for every row that it receives until the part ends.
    pub(super) fn watch(
        &mut self,
        clock: &Clock,
        shared_state: &SharedState,
        rows: &Receiver<WrittenRow>,
        seen: &Mutex<SeenRows>,
        sighted: &Sender<ObserverEvent>,
    ) -> Result<(), ServerError> {
        while !shared_state.halted() {
            let row = match rows.recv_timeout(IDLE_INTERVAL) {
                Ok(row) => row,
                Err(RecvTimeoutError::Timeout) => continue,
                // Nothing more to wait for; other threads may still observe.
                Err(RecvTimeoutError::Disconnected) => {
                    thread::sleep(IDLE_INTERVAL);
                    continue;
                }
            };
            let Some(sighting) = self.find(clock, shared_state, &row)? else {
                return Ok(());
            };
            let _ = sighted.send(ObserverEvent::Row {
                slot: self.slot,
                sighting,
            });
            let low = {
                let mut seen = lock(seen);
                seen.insert(row.seq);
                seen.low()
            };
            shared_state.record_seen_up_to(self.slot, low);
        }
        Ok(())
    }

    /// Reads the row, and waits while no read shows it; `None` when the part was ended.
    ///
    /// Only a read that missed the row shows that it was not visible: what bounds the delay of a wait's answer is unknown.
    /// A long wait is cut into several with a read between them, so that the last of these is recent.
    fn find(
        &mut self,
        clock: &Clock,
        shared_state: &SharedState,
        row: &WrittenRow,
    ) -> Result<Option<Sighting>, ServerError> {
        let first = clock.now();
        let mut after = Nanos(i64::MIN);
        // Begin and end of the wait that found the transaction applied, and the reads since then.
        let mut applied: Option<(Nanos, Nanos)> = None;
        let mut reads = 0;
        while !shared_state.halted() {
            let began = clock.now();
            let shown = match self.read(row.seq) {
                Ok(shown) => shown,
                // A cluster member aborted the read in favor of a transaction that it applies.
                Err(error) if conflict(&error) => continue,
                Err(error) => return Err(error),
            };
            let ended = clock.now();
            reads += u32::from(applied.is_some());
            if shown {
                let (hit_began, until, detail) = match applied {
                    None => (began, ended, SightingDetail::Nothing),
                    Some((wait_began, returned)) => {
                        let at_once = reads == 1;
                        let detail = SightingDetail::Readable {
                            at: ended,
                            reads,
                            returned: (!at_once).then_some(returned),
                        };
                        (wait_began, if at_once { returned } else { ended }, detail)
                    }
                };
                return Ok(Some(Sighting {
                    seq: row.seq,
                    after,
                    hit_began,
                    until,
                    detail,
                }));
            }
            after = began;
            if applied.is_none() {
                let length = length_of_wait(ended - first, ended - began);
                if self.wait.wait(&mut self.session, &row.commit_id, length)? {
                    applied = Some((ended, clock.now()));
                }
            }
        }
        Ok(None)
    }

    /// Returns whether a read shows the row.
    fn read(&mut self, seq: u64) -> Result<bool, ServerError> {
        let row = [Bound::Number(seq)];
        let found = self.session.number(OPERATION, &self.point_select, row)?;
        Ok(found.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_with_the_time_and_exceed_reads() {
        let us = |us: i64| Nanos(us * 1_000);
        for (waited, read, wanted_us) in [
            (0, 60, 600),
            (5_000, 60, 600),
            (100_000, 60, 10_000),
            (100_000, 50_000, 500_000),
            (60_000_000, 60, 1_000_000),
            (0, 0, 0),
        ] {
            let length = length_of_wait(us(waited), us(read));
            assert_eq!(length, Duration::from_micros(wanted_us), "{waited} {read}");
        }
    }
}
