//! Long statements that end soon when the user stops the run, or the server no longer answers.

use std::{
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use replimeter_engine::{
    Interrupter, Node, Session, check_answer, dialect::connections::OpenedConnection,
};

use crate::{MeasureError, kill::kill};

/// Interval between checks whether the user stopped the run.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// Interval between checks whether the server answers.
const PING_INTERVAL: Duration = Duration::from_secs(15);
/// Timeout of the answer to such a check.
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// Unanswered checks after which the server counts as gone.
const MAX_UNANSWERED: u32 = 4;
/// Timeout of ending the statement on the server.
const KILL_TIMEOUT: Duration = Duration::from_secs(1);

/// Calls `work` with a session whose statements may take long. When the user stops the run, the session's connection is
/// ended on the server and closed, so that its statements fail; so it is when the server answers no other connection
/// for a minute.
///
/// # Errors
/// Those of `work`; when the connection was closed, the reason instead.
pub(crate) fn attended<T>(
    node: &Node,
    session: &mut Session,
    stop: &AtomicBool,
    work: impl FnOnce(&mut Session) -> Result<T, MeasureError>,
) -> Result<T, MeasureError> {
    let (opened, socket) = (session.opened(), session.interrupter());
    thread::scope(|scope| {
        // Dropped after the work, also when it panics.
        let (working, done) = mpsc::channel::<()>();
        let watcher = scope.spawn(move || watch(node, opened, &socket, stop, &done));
        let worked = {
            let _working = working;
            work(session)
        };
        let reason = watcher.join().ok().flatten();
        worked.map_err(|error| reason.unwrap_or(error))
    })
}

/// Waits for the end of the work; returns why the connection was closed, if it was.
fn watch(
    node: &Node,
    opened: OpenedConnection,
    socket: &Interrupter,
    stop: &AtomicBool,
    done: &Receiver<()>,
) -> Option<MeasureError> {
    let mut pinged = Instant::now();
    let mut unanswered = 0;
    while done.recv_timeout(CHECK_INTERVAL) == Err(RecvTimeoutError::Timeout) {
        if stop.load(Ordering::Relaxed) {
            // First on the server, which otherwise completes the statement.
            kill(node, [opened], KILL_TIMEOUT);
            socket.shut_down();
            return Some(MeasureError::Interrupted);
        }
        if pinged.elapsed() < PING_INTERVAL {
            continue;
        }
        unanswered = match check_answer(node, PING_TIMEOUT) {
            Ok(()) => 0,
            Err(error) if unanswered + 1 == MAX_UNANSWERED => {
                socket.shut_down();
                return Some(error.into());
            }
            Err(_) => unanswered + 1,
        };
        pinged = Instant::now();
    }
    None
}
