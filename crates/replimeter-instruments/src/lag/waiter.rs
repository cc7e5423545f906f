//! Waits on a replica for each transaction, and verifies that it can be read.

use std::{
    sync::{
        Mutex,
        mpsc::{Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::Duration,
};

use mysql::{Statement, prelude::Queryable};
use replimeter_engine::{
    Node, ServerError, Session,
    dialect::{sync_reads::conflict, waits::PreparedWait},
    facts::ServerFacts,
};
use replimeter_model::{
    sample::{Sighting, SightingDetail},
    time::Nanos,
};

use super::{
    observer_event::{ObserverEvent, SeenRows},
    shared_state::SharedState,
    writer::WrittenRow,
};
use crate::{clock::Clock, sync::lock, table::POINT_SELECT};

/// How long one wait on the server takes before the shared state is checked again, in seconds.
const SECONDS: u32 = 1;
/// How long an idle waiter sleeps before it checks the shared state again.
const IDLE_INTERVAL: Duration = Duration::from_millis(20);
/// A wait of less than this number of round trips may have returned immediately.
const AT_ONCE: i64 = 2;

const OPERATION: &str = "cannot read the replica";

/// One waiting connection to a replica.
pub(super) struct Waiter {
    session: Session,
    wait: PreparedWait,
    point_select: Statement,
    slot: usize,
    /// Whether the server does not wait for its own writes: then the wait returns immediately and
    /// takes the time of any wait except the wake-up.
    for_nothing: bool,
}

impl Waiter {
    /// Connects and prepares.
    pub(super) fn open(
        node: &Node,
        facts: &ServerFacts,
        slot: usize,
        for_nothing: bool,
    ) -> Result<Self, ServerError> {
        let mut session = Session::open(node)?;
        let wait = PreparedWait::prepare(&mut session, facts)?;
        let prepared = session.conn().prep(POINT_SELECT);
        let point_select = prepared.map_err(|error| session.error(OPERATION, &error))?;
        Ok(Self {
            session,
            wait,
            point_select,
            slot,
            for_nothing,
        })
    }

    /// Waits for every row that it receives until the part ends.
    pub(super) fn run(
        mut self,
        clock: &Clock,
        shared_state: &SharedState,
        real_time: bool,
        rows: &Receiver<WrittenRow>,
        seen: &Mutex<SeenRows>,
        sighted: &Sender<ObserverEvent>,
    ) -> Result<(), ServerError> {
        shared_state.measuring(real_time, || {
            self.watch(clock, shared_state, rows, seen, sighted)
        })
    }

    fn watch(
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
            let gtid = if self.for_nothing { "" } else { &*row.gtid };
            let began = clock.now();
            let applied = loop {
                if self.wait.wait(&mut self.session, gtid, SECONDS)? {
                    break clock.now();
                }
                if shared_state.halted() {
                    return Ok(());
                }
            };
            let Some((trip, at, reads)) = self.verify(clock, shared_state, row.seq)? else {
                return Ok(());
            };
            let waited = (applied - began).0 > AT_ONCE * trip.0;
            // A wait that returned immediately shows that the transaction was there, but not since
            // when.
            let after = if waited {
                began.max(applied - trip)
            } else {
                Nanos(i64::MIN)
            };
            let beside = SightingDetail::Readable { at, reads };
            let sighting = Sighting {
                seq: row.seq,
                after,
                hit_began: began,
                until: applied,
                beside,
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

    /// Reads until the row is visible. Returns the first read's round trip, the end of the read that
    /// showed the row, and the number of reads; `None` when the part was ended.
    fn verify(
        &mut self,
        clock: &Clock,
        shared_state: &SharedState,
        seq: u64,
    ) -> Result<Option<(Nanos, Nanos, u32)>, ServerError> {
        let mut trip = None;
        for reads in 1.. {
            let began = clock.now();
            let row = self
                .session
                .conn()
                .exec_first::<u64, _, _>(&self.point_select, (seq,));
            let ended = clock.now();
            let row = match row.map_err(|error| self.session.error(OPERATION, &error)) {
                Ok(row) => row,
                // A cluster member aborted the read in favor of a transaction that it applies.
                Err(error) if conflict(&error) && !shared_state.halted() => continue,
                Err(error) => return Err(error),
            };
            let trip = *trip.get_or_insert(ended - began);
            if row.is_some() {
                return Ok(Some((trip, ended, reads)));
            }
            if shared_state.halted() {
                break;
            }
        }
        Ok(None)
    }
}
