//! Definitions (DDL), with bounded waits for metadata locks: a definition that waits blocks every later statement on its
//! table, and stays queued when its client gives up.

use std::{thread, time::Duration};

use replimeter_engine::{
    ErrorClass, ErrorKind, Node, ServerError, Session, dialect::locks, facts::ServerFacts,
};

use crate::kill::kill;

/// Waits for a lock, each of [`WAIT_S`] seconds; other statements get through between them.
const TRIES: u32 = 3;
const WAIT_S: u32 = 2;
const PAUSE: Duration = Duration::from_millis(200);
/// Timeout for ending a statement that does not return.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);

/// Bounds the session's waits for metadata locks.
///
/// # Errors
/// When the connection breaks.
pub(crate) fn bound_lock_waits(session: &mut Session, operation: &str) -> Result<(), ServerError> {
    session.run(
        operation,
        &format!("SET SESSION lock_wait_timeout = {WAIT_S}"),
    )
}

/// Runs a definition with a few bounded waits for its locks. If the server does not answer in time, the statement is
/// killed, from another connection to `node`.
///
/// # Errors
/// When the server refuses. If a lock was not free in time, the cause names the connections that hold it.
pub(crate) fn define(
    node: &Node,
    session: &mut Session,
    operation: &str,
    sql: &str,
) -> Result<(), ServerError> {
    bound_lock_waits(session, operation)?;
    for trial in 1.. {
        match session.run(operation, sql) {
            Err(error) if error.class() == Some(ErrorClass::LockTimeout) => {
                if trial == TRIES {
                    return Err(with_holders(session, error));
                }
                thread::sleep(PAUSE);
            }
            Err(error) if error.kind == ErrorKind::Timeout => {
                kill(node, [session.opened()], KILL_TIMEOUT);
                return Err(error);
            }
            done => return done,
        }
    }
    Ok(())
}

fn with_holders(session: &mut Session, error: ServerError) -> ServerError {
    let found = ServerFacts::read(session).and_then(|facts| locks::holders(facts.engine, session));
    match found {
        Ok(holders) => ServerError {
            cause: format!("{}; {holders}", error.cause),
            hint: HOLDER_HINT.to_owned(),
            ..error
        },
        Err(_) => error,
    }
}

const HOLDER_HINT: &str = "end that transaction or backup, or wait for its end, and run again";

/// Returns why a replica does not apply a definition, if its applier waits for a lock.
pub(crate) fn blocked_applier(session: &mut Session) -> Option<ServerError> {
    if !locks::applier_waits(session).ok()? {
        return None;
    }
    let facts = ServerFacts::read(session).ok()?;
    let holders = locks::holders(facts.engine, session).ok()?;
    Some(session.precondition(
        "does not apply a definition in the schema `replimeter`",
        format!("its applier waits for a lock, and so does replication: {holders}"),
        HOLDER_HINT,
    ))
}
