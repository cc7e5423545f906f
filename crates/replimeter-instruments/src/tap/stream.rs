//! A thread that follows one server, and reconnects when needed.

use std::{
    collections::HashMap,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use replimeter_engine::{
    ErrorClass, ErrorKind, ServerError,
    follow::{
        CommitTimes, CompleteTransaction, Follower, Position, StartPosition, StreamCounts, TableId,
    },
    sync::lock,
};

use super::matcher::Arrival;
use crate::{
    clock::{self, Clock},
    priority::prepare_measuring_thread,
};

/// Initial pause before reconnecting; it doubles each time.
const PAUSE: Duration = Duration::from_millis(100);
/// Maximum pause.
const MAX_RECONNECT_PAUSE: Duration = Duration::from_secs(2);
/// Maximum time that a server may be unreachable.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum arrivals waiting to be matched; beyond it the stream is not read further.
const MAX_WAITING: usize = 1 << 16;
/// Maximum number of distinct sets of tables.
const MAX_TABLE_SETS: usize = 1 << 16;

/// A transaction for the matching thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamedTransaction {
    pub(crate) arrival: Arrival,
    pub(crate) bytes: u64,
    pub(crate) commit: Option<CommitTimes>,
}

/// A change of the connection.
#[derive(Debug)]
pub(crate) enum ConnectionEvent {
    /// It was lost, with the cause.
    Lost(ServerError),
    /// It is restored. With a hole, part of the stream is lost permanently.
    Back { hole: bool, after: Duration },
    /// It is lost permanently.
    Failed(ServerError),
}

/// Data for the matching thread.
#[derive(Debug, Default)]
pub(crate) struct StreamInbox {
    pub(crate) arrivals: Vec<StreamedTransaction>,
    pub(crate) notes: Vec<ConnectionEvent>,
    /// Schema and table by [`TableId`], not yet passed on.
    pub(crate) names: Vec<(String, String)>,
    /// Sets of tables, numbered from 1, not yet passed on.
    pub(crate) sets: Vec<Vec<TableId>>,
    /// Transactions without a GTID.
    pub(crate) anonymous: u64,
    pub(crate) counts: StreamCounts,
    pub(crate) cpu: Duration,
    pub(crate) reconnects: u64,
}

/// A stream, shared between its thread and the matching one.
#[derive(Debug, Default)]
pub(crate) struct SharedStream {
    inbox: Mutex<StreamInbox>,
    /// Ends the thread.
    pub(crate) halt: AtomicBool,
}

impl SharedStream {
    pub(crate) fn inbox(&self) -> MutexGuard<'_, StreamInbox> {
        // The data is consistent whenever the lock is free.
        lock(&self.inbox)
    }

    fn halted(&self) -> bool {
        self.halt.load(Ordering::Relaxed)
    }

    /// Follows until halted; pauses after each read.
    pub(crate) fn follow(
        &self,
        mut follower: Follower,
        clock: &Clock,
        real_time: bool,
        rest: Duration,
    ) {
        prepare_measuring_thread(real_time);
        let mut batch: Vec<StreamedTransaction> = Vec::new();
        let mut sets: HashMap<Vec<TableId>, u32> = HashMap::new();
        let mut named = 0;
        // After a lost connection: the end of the log at the time of reconnecting.
        let mut late: Option<Option<Position>> = None;
        while !self.halted() {
            let unheard = late.is_some();
            let (mut anonymous, mut new_sets) = (0, Vec::new());
            let read = follower.read(|| clock.now(), &mut |arrived: CompleteTransaction<'_>| {
                let Some(commit_id) = arrived.commit_id else {
                    anonymous += 1;
                    return;
                };
                let set = if arrived.tables.is_empty() {
                    0
                } else {
                    number(&mut sets, arrived.tables, &mut new_sets)
                };
                let at = (!unheard).then_some(arrived.arrived);
                batch.push(StreamedTransaction {
                    arrival: Arrival { commit_id, at, set },
                    bytes: arrived.bytes,
                    commit: arrived.commit,
                });
            });
            if let Some(end) = &late {
                let reached = match (end, &read) {
                    (Some(end), _) => follower.position() >= end,
                    (None, Ok(heard)) => !heard.anything || heard.heartbeats > 0,
                    (None, Err(_)) => false,
                };
                if reached {
                    late = None;
                }
            }
            let waiting = {
                let mut inbox = self.inbox();
                inbox.arrivals.append(&mut batch);
                inbox.anonymous += anonymous;
                inbox.sets.append(&mut new_sets);
                if let Some(tables) = follower.tables().filter(|tables| tables.len() > named) {
                    let new = (named..tables.len())
                        .filter_map(|id| tables.name(TableId(u32::try_from(id).ok()?)));
                    inbox
                        .names
                        .extend(new.map(|(schema, table)| (schema.to_owned(), table.to_owned())));
                    named = tables.len();
                }
                inbox.counts = follower.counts();
                inbox.arrivals.len()
            };
            if waiting > MAX_WAITING {
                thread::sleep(Duration::from_millis(1));
            } else if !rest.is_zero() && read.as_ref().is_ok_and(|heard| heard.transactions > 0) {
                thread::sleep(rest);
            }
            if let Err(error) = read {
                match self.again(&mut follower, error) {
                    Some(()) => {
                        let end = follower.end_of_log().ok().flatten();
                        late = Some(end.filter(|_| follower.position_is_known()));
                    }
                    None => break,
                }
            }
        }
        let mut inbox = self.inbox();
        inbox.counts = follower.counts();
        inbox.cpu = clock::thread_cpu();
    }

    /// Reconnects; returns `None` when that is not possible.
    fn again(&self, follower: &mut Follower, error: ServerError) -> Option<()> {
        let began = Instant::now();
        let note = |note| self.inbox().notes.push(note);
        if !may_come_back(&error) {
            note(ConnectionEvent::Failed(error));
            return None;
        }
        let mut gone = error.class() == Some(ErrorClass::LogRefused);
        note(ConnectionEvent::Lost(error));
        let mut pause = PAUSE;
        loop {
            let until = Instant::now() + pause;
            while Instant::now() < until {
                if self.halted() {
                    return None;
                }
                thread::sleep(Duration::from_millis(20));
            }
            match follower.reconnect(gone.then_some(&StartPosition::Now)) {
                Ok(()) => {
                    let mut inbox = self.inbox();
                    inbox.reconnects += 1;
                    inbox.notes.push(ConnectionEvent::Back {
                        hole: gone,
                        after: began.elapsed(),
                    });
                    return Some(());
                }
                // That part of the log was purged: continue with new transactions.
                Err(error) if error.class() == Some(ErrorClass::LogRefused) && !gone => gone = true,
                Err(error) if !may_come_back(&error) || began.elapsed() > RECONNECT_TIMEOUT => {
                    note(ConnectionEvent::Failed(error));
                    return None;
                }
                Err(_) => pause = (pause * 2).min(MAX_RECONNECT_PAUSE),
            }
        }
    }
}

/// Returns whether a failure may be temporary.
fn may_come_back(error: &ServerError) -> bool {
    !matches!(
        error.kind,
        ErrorKind::Unfit
            | ErrorKind::AccessDenied
            | ErrorKind::Privilege
            | ErrorKind::Tls
            | ErrorKind::File
    )
}

/// Returns the index of a set of tables; 0 when there are too many.
fn number(
    sets: &mut HashMap<Vec<TableId>, u32>,
    tables: &[TableId],
    new: &mut Vec<Vec<TableId>>,
) -> u32 {
    if let Some(number) = sets.get(tables) {
        return *number;
    }
    if sets.len() == MAX_TABLE_SETS {
        return 0;
    }
    let number = u32::try_from(sets.len() + 1).unwrap_or(0);
    sets.insert(tables.to_vec(), number);
    new.push(tables.to_vec());
    number
}
