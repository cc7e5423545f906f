//! Waits in a replica for each transaction, and verifies that it can be read.

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
    facts::Facts,
    flavour::{sync_reads::conflict, waits::Wait},
};
use replimeter_model::{
    sample::{Beside, Sighting},
    time::Nanos,
};

use super::{
    board::Board,
    seen::{Seen, SeenRows},
    writer::WrittenRow,
};
use crate::{clock::Clock, sync::lock, table::POINT_SELECT};

/// How long the server is asked to wait before the board is looked at again.
const SECONDS: u32 = 1;
/// How long an idle waiter sleeps before it looks at the board again.
const NAP: Duration = Duration::from_millis(20);
/// A wait that took less than so many round trips may not have had to wait.
const AT_ONCE: i64 = 2;

const DOING: &str = "cannot read the replica";

/// One waiting connection to a replica.
pub(super) struct Waiter {
    session: Session,
    wait: Wait,
    point_select: Statement,
    slot: usize,
    /// The server does not wait for what it wrote itself: the wait is one for
    /// nothing, which costs all but the wake-up.
    for_nothing: bool,
}

impl Waiter {
    /// Connects and prepares.
    pub(super) fn open(
        node: &Node,
        facts: &Facts,
        slot: usize,
        for_nothing: bool,
    ) -> Result<Self, ServerError> {
        let mut session = Session::open(node)?;
        let wait = Wait::prepare(&mut session, facts)?;
        let prepared = session.conn().prep(POINT_SELECT);
        let point_select = prepared.map_err(|error| session.error(DOING, &error))?;
        Ok(Self {
            session,
            wait,
            point_select,
            slot,
            for_nothing,
        })
    }

    /// Waits for every row that is handed to it until the board says that it is over.
    pub(super) fn run(
        mut self,
        clock: &Clock,
        board: &Board,
        real_time: bool,
        rows: &Receiver<WrittenRow>,
        seen: &Mutex<SeenRows>,
        sighted: &Sender<Seen>,
    ) -> Result<(), ServerError> {
        board.measuring(real_time, || self.watch(clock, board, rows, seen, sighted))
    }

    fn watch(
        &mut self,
        clock: &Clock,
        board: &Board,
        rows: &Receiver<WrittenRow>,
        seen: &Mutex<SeenRows>,
        sighted: &Sender<Seen>,
    ) -> Result<(), ServerError> {
        while !board.halted() {
            let row = match rows.recv_timeout(NAP) {
                Ok(row) => row,
                Err(RecvTimeoutError::Timeout) => continue,
                // Nothing more to wait for; the others may still be looking.
                Err(RecvTimeoutError::Disconnected) => {
                    thread::sleep(NAP);
                    continue;
                }
            };
            let gtid = if self.for_nothing { "" } else { &*row.gtid };
            let began = clock.now();
            let applied = loop {
                if self.wait.wait(&mut self.session, gtid, SECONDS)? {
                    break clock.now();
                }
                if board.halted() {
                    return Ok(());
                }
            };
            let Some((trip, at, reads)) = self.verify(clock, board, row.seq)? else {
                return Ok(());
            };
            let waited = (applied - began).0 > AT_ONCE * trip.0;
            // A wait that returned at once says that the transaction was there, and not since when.
            let after = if waited {
                began.max(applied - trip)
            } else {
                Nanos(i64::MIN)
            };
            let beside = Beside::Readable { at, reads };
            let sighting = Sighting {
                seq: row.seq,
                after,
                hit_began: began,
                until: applied,
                beside,
            };
            let _ = sighted.send(Seen::Row {
                slot: self.slot,
                sighting,
            });
            let low = {
                let mut seen = lock(seen);
                seen.insert(row.seq);
                seen.low()
            };
            board.saw_up_to(self.slot, low);
        }
        Ok(())
    }

    /// Reads until the row is there: the first read's round trip, the end of the read
    /// that showed it, and how many it took. `None` when the part was ended.
    fn verify(
        &mut self,
        clock: &Clock,
        board: &Board,
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
            let row = match row.map_err(|error| self.session.error(DOING, &error)) {
                Ok(row) => row,
                // A member of a cluster broke the read off in favour of what it applies.
                Err(error) if conflict(&error) && !board.halted() => continue,
                Err(error) => return Err(error),
            };
            let trip = *trip.get_or_insert(ended - began);
            if row.is_some() {
                return Ok(Some((trip, ended, reads)));
            }
            if board.halted() {
                break;
            }
        }
        Ok(None)
    }
}
