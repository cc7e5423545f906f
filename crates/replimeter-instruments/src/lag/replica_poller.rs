//! Reads a replica in a tight loop and brackets the time at which each row appears.

use std::{
    sync::{atomic::AtomicBool, mpsc::Sender},
    thread,
    time::{Duration, Instant},
};

use replimeter_engine::{
    Node, ServerError, Session,
    dialect::sync_reads::conflict,
    session::{Bound, Prepared},
};
use replimeter_model::{engine::Engine, time::Nanos};

use super::{
    observer_event::{ObserverEvent, SeenRows},
    shared_state::SharedState,
};
use crate::{
    MeasureError, SCHEMA, TABLE,
    clock::Clock,
    lag::sample::{Sighting, SightingDetail},
    table::{self, POINT_SELECT, UNSEEN},
};

/// How long an idle observer sleeps before it checks the shared state again.
const IDLE_INTERVAL: Duration = Duration::from_micros(500);

const OPERATION: &str = "cannot read the replica";

/// The connection to one replica.
pub(super) struct ReplicaPoller {
    session: Session,
    statement: Prepared,
    point_select: Prepared,
    slot: usize,
}

/// Connects and waits until the table, and every row up to `last`, has arrived.
///
/// # Errors
/// Those of [`table::arrival`].
pub(super) fn arrival(
    node: &Node,
    engine: Engine,
    last: u64,
    patience: Duration,
    stop: &AtomicBool,
    began: Instant,
) -> Result<(Session, Option<Duration>), MeasureError> {
    let what = if last == 0 {
        "the table created on the primary".to_owned()
    } else {
        format!("row {last}, written on the primary,")
    };
    let sql = format!(
        "SELECT COUNT(*) FROM `{SCHEMA}`.`{}` WHERE id = {last}",
        *TABLE
    );
    let hint =
        "check whether the replica is far behind and its address is correct, or raise --timeout";
    table::arrival(
        node,
        engine,
        patience,
        stop,
        [&what, hint],
        began,
        |session| {
            let found = session.value(OPERATION, &sql)?;
            Ok(last == 0 || found.as_deref() == Some("1"))
        },
    )
}

impl ReplicaPoller {
    /// Prepares the reads on a connection that shows all earlier rows.
    pub(super) fn new(mut session: Session, slot: usize) -> Result<Self, ServerError> {
        let statement = session.prepare(OPERATION, &UNSEEN)?;
        let point_select = session.prepare(OPERATION, &POINT_SELECT)?;
        Ok(Self {
            session,
            statement,
            point_select,
            slot,
        })
    }

    /// Reads until the part ends.
    pub(super) fn watch(
        &mut self,
        clock: &Clock,
        shared_state: &SharedState,
        sighted: &Sender<ObserverEvent>,
    ) -> Result<(), ServerError> {
        let first = shared_state.seen_everywhere();
        let mut tracker = BracketTracker::new(first);
        let mut selects = 0;
        while !shared_state.halted() {
            let reference_select = shared_state.reference_select();
            let unseen = tracker.low() < shared_state.sent() && !reference_select;
            if !unseen && (clock.now() < shared_state.watched_from() || shared_state.finished()) {
                thread::sleep(IDLE_INTERVAL);
                continue;
            }
            if reference_select {
                selects += 1;
                let id =
                    super::reference_select_row(selects, first..shared_state.sent().max(first + 1));
                let began = clock.now();
                let row = [Bound::Number(id)];
                let read = self.session.number(OPERATION, &self.point_select, row);
                let ended = clock.now();
                match read {
                    Ok(_) => _ = sighted.send(ObserverEvent::PointSelect { began, ended }),
                    Err(error) if conflict(&error) => {}
                    Err(error) => return Err(error),
                }
                continue;
            }
            let began = clock.now();
            let above = [Bound::Number(tracker.low())];
            let read = self.session.numbers(OPERATION, &self.statement, above);
            let ended = clock.now();
            let rows = match read {
                Ok(rows) => rows,
                // A cluster member aborts reads in favor of transactions that it applies. The aborted
                // read showed nothing, so the bracket still begins at the read before.
                Err(error) if conflict(&error) => continue,
                Err(error) => return Err(error),
            };
            let before = tracker.low();
            for sighting in tracker.read(began, ended, &rows) {
                let _ = sighted.send(ObserverEvent::Row {
                    slot: self.slot,
                    sighting,
                });
            }
            if tracker.low() != before {
                shared_state.record_seen_up_to(self.slot, tracker.low());
            }
        }
        Ok(())
    }
}

/// Converts reads into brackets.
///
/// A read asks for every row above the highest one up to which all were seen, so it also finds rows
/// that become visible out of order.
#[derive(Debug)]
struct BracketTracker {
    seen: SeenRows,
    last_began: Nanos,
}

impl BracketTracker {
    fn new(low: u64) -> Self {
        Self {
            seen: SeenRows::new(low),
            last_began: Nanos(i64::MIN),
        }
    }

    /// Returns the highest row up to which every row was seen.
    fn low(&self) -> u64 {
        self.seen.low()
    }

    /// Returns the rows that a read shows for the first time. The read began and ended at these times
    /// and returned these rows.
    fn read(&mut self, began: Nanos, ended: Nanos, rows: &[u64]) -> Vec<Sighting> {
        let mut sightings = Vec::new();
        for &seq in rows {
            if self.seen.insert(seq) {
                // The previous read did not show the row, however long ago it was.
                let after = self.last_began;
                sightings.push(Sighting {
                    seq,
                    after,
                    hit_began: began,
                    until: ended,
                    detail: SightingDetail::Nothing,
                });
            }
        }
        self.last_began = began;
        sightings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(sightings: &[Sighting]) -> Vec<(u64, i64, i64)> {
        sightings
            .iter()
            .map(|sighting| (sighting.seq, sighting.after.0, sighting.until.0))
            .collect()
    }

    #[test]
    fn bracket_runs_from_last_miss_to_first_hit() {
        let mut tracker = BracketTracker::new(0);
        assert!(tracker.read(Nanos(10), Nanos(15), &[]).is_empty());
        assert!(tracker.read(Nanos(20), Nanos(25), &[]).is_empty());
        assert_eq!(
            seen(&tracker.read(Nanos(30), Nanos(35), &[1])),
            [(1, 20, 35)]
        );
        assert_eq!(tracker.low(), 1);
    }

    #[test]
    fn rows_out_of_order_are_seen_once() {
        let mut tracker = BracketTracker::new(0);
        tracker.read(Nanos(0), Nanos(1), &[]);
        assert_eq!(
            seen(&tracker.read(Nanos(10), Nanos(11), &[2, 3])),
            [(2, 0, 11), (3, 0, 11)]
        );
        assert_eq!(tracker.low(), 0, "row 1 is still awaited");
        assert_eq!(
            seen(&tracker.read(Nanos(20), Nanos(21), &[2, 3, 4])),
            [(4, 10, 21)]
        );
        assert_eq!(
            seen(&tracker.read(Nanos(30), Nanos(31), &[1, 2, 3, 4])),
            [(1, 20, 31)]
        );
        assert_eq!(tracker.low(), 4);
    }

    #[test]
    fn row_in_first_read_has_no_lower_end() {
        let mut tracker = BracketTracker::new(7);
        let sightings = tracker.read(Nanos(10), Nanos(15), &[8]);
        assert_eq!(
            sightings[0].after,
            Nanos(i64::MIN),
            "the send bounds it then"
        );
    }
}
