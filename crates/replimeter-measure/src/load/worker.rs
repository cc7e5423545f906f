//! One thread of a load: its script over and over, on a connection of its own.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use mysql::prelude::Queryable;
use replimeter_model::time::Nanos;
use replimeter_server::{ErrorKind, ServerError, Session};

use super::{
    Place,
    script::{Script, Values},
    tally::{Pass, Tally},
};
use crate::clock::Clock;

/// How often a pass is begun again after a deadlock or a lock's time-out.
const RETRIES: u32 = 10;
/// Pause after a pass that was given up, so that a broken load does not spin.
const AFTER_FAILURE: Duration = Duration::from_millis(10);
/// Pause before a lost connection is made again.
const BEFORE_RECONNECT: Duration = Duration::from_millis(100);
/// The longest sleep, so that the end is noticed.
const NAP: Duration = Duration::from_millis(20);
/// A deadlock, a lock's time-out, and MariaDB's row that changed since it was read.
const RETRIED: [u16; 3] = [1213, 1205, 1020];

pub(super) const DOING: &str = "cannot run the load";

/// What the threads of one load share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    stop: AtomicBool,
    /// When the open loop's first pass was due.
    began: AtomicI64,
    /// Passes of the open loop that were begun.
    tickets: AtomicU64,
    tally: Mutex<Tally>,
}

impl Shared {
    pub(super) fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Prepares for threads that begin now.
    pub(super) fn start(&self, now: Nanos) {
        self.stop.store(false, Ordering::Release);
        self.began.store(now.0, Ordering::Release);
        self.tickets.store(0, Ordering::Release);
    }

    /// Tells the threads to end.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Passes of the open loop that are due at `now` and that nobody has begun.
    pub(super) fn waiting(&self, rate: u64, now: Nanos) -> u64 {
        let since = (now.0 - self.began.load(Ordering::Acquire)).max(0);
        let due = u128::from(rate) * since.unsigned_abs() as u128 / 1_000_000_000;
        u64::try_from(due).unwrap_or(u64::MAX).saturating_sub(self.tickets.load(Ordering::Acquire))
    }

    /// The next pass's turn in an open loop: whichever thread is free takes it.
    fn turn(&self, rate: u64) -> Nanos {
        let ticket = self.tickets.fetch_add(1, Ordering::AcqRel);
        let after = u128::from(ticket) * 1_000_000_000 / u128::from(rate);
        Nanos(self.began.load(Ordering::Acquire)) + Nanos(i64::try_from(after).unwrap_or(i64::MAX / 2))
    }
}

/// Runs every statement of a pass.
///
/// # Errors
/// Of the first that fails, with its number in the script's order; the
/// transaction under way is rolled back.
pub(super) fn pass(
    session: &mut Session,
    script: &Script,
    values: &mut Values,
    buffer: &mut String,
) -> Result<(), (usize, ServerError)> {
    for (index, statement) in script.run.iter().enumerate() {
        statement.fill(values, buffer);
        if let Err(error) = session.conn().query_drop(buffer.as_str()) {
            let error = session.error(DOING, &error);
            if matches!(error.kind, ErrorKind::Statement(_) | ErrorKind::Privilege) {
                // After a lock's time-out the server keeps what went before.
                let _ = session.conn().query_drop("ROLLBACK");
            }
            return Err((index, error));
        }
    }
    Ok(())
}

/// The server's number of an error.
pub(super) fn number(error: &ServerError) -> Option<u16> {
    match error.kind {
        ErrorKind::Statement(code) => Some(code),
        _ => None,
    }
}

/// What outlives a thread: the next one in its place goes on from here.
#[derive(Debug, Default)]
pub(super) struct Seat {
    /// The server's number of its connection, for whoever must end it.
    pub(super) connection: AtomicU32,
    /// Passes begun, so that numbers made of them stay unique.
    passes: AtomicU64,
}

/// A thread's own.
pub(super) struct Worker {
    pub(super) session: Session,
    pub(super) place: Place,
    pub(super) script: Arc<Script>,
    pub(super) rate: Option<u64>,
    pub(super) shared: Arc<Shared>,
    pub(super) seat: Arc<Seat>,
    pub(super) values: Values,
}

impl Worker {
    /// Runs passes until it is told to end.
    pub(super) fn run(mut self, clock: &Clock) {
        // Ordinary priority: a load must not push the servers aside. Only its sleeps end on time.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        let mut buffer = String::new();
        let mut last = clock.now();
        while !self.shared.stopped() {
            let intended = match self.rate {
                None => last,
                Some(rate) => {
                    let turn = self.shared.turn(rate);
                    if !self.sleep_until(clock, turn) {
                        return;
                    }
                    turn
                }
            };
            let began = clock.now();
            let done = self.one(&mut buffer);
            let ended = clock.now();
            last = ended;
            if done {
                self.shared.tally().pass(&Pass { intended, began, ended });
            } else if !self.shared.stopped() {
                self.shared.tally().failure();
                thread::sleep(AFTER_FAILURE);
            }
        }
    }

    /// Sleeps; false when it is over meanwhile.
    fn sleep_until(&self, clock: &Clock, point: Nanos) -> bool {
        loop {
            if self.shared.stopped() {
                return false;
            }
            let left = point - clock.now();
            if left <= Nanos(0) {
                return true;
            }
            thread::sleep(Duration::from_nanos(left.0.unsigned_abs()).min(NAP));
        }
    }

    /// One pass, begun again when locks were in its way; whether it came to its end.
    fn one(&mut self, buffer: &mut String) -> bool {
        self.values.pass = self.seat.passes.fetch_add(1, Ordering::Relaxed) + 1;
        for attempt in 0..=RETRIES {
            let Err((_, error)) = pass(&mut self.session, &self.script, &mut self.values, buffer) else { return true };
            if self.shared.stopped() {
                return false;
            }
            let code = number(&error);
            self.shared.tally().error(code, &error.cause);
            match error.kind {
                ErrorKind::Statement(code) if RETRIED.contains(&code) && attempt < RETRIES => self.shared.tally().retry(),
                ErrorKind::Statement(_) | ErrorKind::Privilege => return false,
                _ => {
                    thread::sleep(BEFORE_RECONNECT);
                    if let Ok(session) = self.place.open() {
                        self.seat.connection.store(session.connection_id(), Ordering::Release);
                        self.session = session;
                    }
                    return false;
                }
            }
        }
        false
    }
}
