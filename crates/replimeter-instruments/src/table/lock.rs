//! The locks that keep runs apart: one marks a server as being measured, one guards the schema.

use std::{
    thread,
    time::{Duration, Instant},
};

use replimeter_engine::{Node, ServerError, Session, dialect::connections::OpenedConnection};

use super::{POLL_INTERVAL, SETTLE};
use crate::{
    discovery::DiscoveredServer,
    kill::send_kill,
    preflight::{CheckedReplica, Cluster},
};

const KEEPING: &str = "cannot keep the session alive";

/// The name of the lock.
pub(crate) const LOCK: &str = "replimeter.run";

/// The name of the lock of a watch that probes, during which another run can measure.
const PROBE_LOCK: &str = "replimeter.probe";

/// The name of the lock that a session holds from the creation of the schema to that of its first table, and from the
/// check of its contents to its removal.
const SCHEMA_LOCK: &str = "replimeter.schema";

/// Prevents the server from closing the primary's session, which is outside the measuring path, as
/// idle, and checks that the run still holds its lock on every server. A lock that was lost with its connection is taken again.
///
/// # Errors
/// When another run has taken the lock. A server that does not answer is no error: the measuring
/// path reports it.
pub fn keep_alive(cluster: &mut Cluster) -> Result<(), ServerError> {
    let DiscoveredServer { node, session, .. } = &mut cluster.primary;
    match session.value(
        KEEPING,
        &format!("SELECT IS_USED_LOCK('{LOCK}') = CONNECTION_ID()"),
    ) {
        Ok(Some(held)) if held == "1" => {}
        Ok(_) => take_lock(session, Duration::ZERO)?,
        Err(_) => _ = retake(session, node)?,
    }
    for CheckedReplica { server, .. } in &mut cluster.replicas {
        // A server holds a lock as long as the connection, and is not asked for more.
        if server.session.has_ended() && retake(&mut server.session, &server.node)? {
            keep_open(&mut server.session)?;
        }
    }
    Ok(())
}

/// Opens a session again that was lost, and takes its lock; returns false if the server does not answer.
fn retake(session: &mut Session, node: &Node) -> Result<bool, ServerError> {
    let Ok(opened) = Session::open(node) else {
        return Ok(false);
    };
    let former = session.opened();
    // The server releases the lock of the former connection when it sees its end.
    *session = opened;
    await_end_of(session, former)?;
    take_lock(session, Duration::ZERO).map(|()| true)
}

/// Lets a session, which nothing else needs during the run, be idle for as long as a run takes.
pub(super) fn keep_open(session: &mut Session) -> Result<(), ServerError> {
    session.run(KEEPING, "SET SESSION wait_timeout = 31536000")
}

/// Waits until a former connection of this run no longer holds the lock; after a while ends it on the server.
fn await_end_of(session: &mut Session, former: OpenedConnection) -> Result<(), ServerError> {
    let holds = format!("SELECT IS_USED_LOCK('{LOCK}') = {}", former.number);
    for patience in [SETTLE, SETTLE] {
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            if session.value(KEEPING, &holds)?.as_deref() != Some("1") {
                return Ok(());
            }
            thread::sleep(POLL_INTERVAL);
        }
        send_kill(session, &[former])?;
    }
    Ok(())
}

/// Takes the lock of a server. It may still hold that of an earlier run for as long as it takes to see the run's end.
///
/// # Errors
/// When another run holds it for `patience`, or the server does not answer.
pub(super) fn take_lock(session: &mut Session, patience: Duration) -> Result<(), ServerError> {
    match acquire(session, LOCK, "cannot begin", patience)? {
        None => Ok(()),
        Some(holder) => Err(busy(session, &holder)),
    }
}

/// Takes a lock, or returns the connection that still holds it after `patience`; empty if it no longer does.
fn acquire(
    session: &mut Session,
    lock: &str,
    operation: &str,
    patience: Duration,
) -> Result<Option<String>, ServerError> {
    let deadline = Instant::now() + patience;
    loop {
        let taken = session.value(operation, &format!("SELECT GET_LOCK('{lock}', 0)"))?;
        if taken.as_deref() == Some("1") {
            return Ok(None);
        }
        if Instant::now() >= deadline {
            break;
        }
        thread::sleep(POLL_INTERVAL);
    }
    let holder = session.value(operation, &format!("SELECT IS_USED_LOCK('{lock}')"))?;
    Ok(Some(holder.unwrap_or_default()))
}

/// Checks that no other run holds the lock of a server that is not named.
///
/// # Errors
/// When one does, or the server does not answer.
pub(super) fn refuse_other_run(session: &mut Session) -> Result<(), ServerError> {
    let holder = session.value("cannot begin", &format!("SELECT IS_USED_LOCK('{LOCK}')"))?;
    holder.map_or(Ok(()), |holder| Err(busy(session, &holder)))
}

/// Returns the statement that asks whether the session holds the lock of a watch that probes, then whether the server is read-only.
pub(crate) fn probe_question() -> String {
    format!(
        "SELECT CONCAT_WS(' ', COALESCE(IS_USED_LOCK('{PROBE_LOCK}') = CONNECTION_ID(), 0), @@GLOBAL.read_only)"
    )
}

/// Takes the lock of a watch that probes; returns the connection that holds it, if another one does.
pub(crate) fn take_probe_lock(session: &mut Session) -> Result<Option<String>, ServerError> {
    acquire(session, PROBE_LOCK, "cannot probe", Duration::ZERO)
}

/// Releases the lock of a watch that probes. Best effort: the server releases it with the session.
pub(super) fn release_probe_lock(session: &mut Session) {
    let _ = session.value(
        "cannot release the lock",
        &format!("SELECT RELEASE_LOCK('{PROBE_LOCK}')"),
    );
}

fn busy(session: &Session, holder: &str) -> ServerError {
    session.precondition(
        "cannot begin",
        format!("another Replimeter run is measuring this server (its connection {holder})"),
        "wait until it ends, or end it",
    )
}

/// Calls `work` while the session holds the lock of the schema, so that no run drops the schema that another has just
/// created or is about to use.
///
/// # Errors
/// When another run holds the lock for `patience`, and those of `work`.
pub(crate) fn with_schema_lock<T>(
    session: &mut Session,
    patience: Duration,
    work: impl FnOnce(&mut Session) -> Result<T, ServerError>,
) -> Result<T, ServerError> {
    lock_schema(session, patience)?;
    let done = work(session);
    unlock_schema(session);
    done
}

/// Takes the lock of the schema; see [`with_schema_lock`].
pub(crate) fn lock_schema(session: &mut Session, patience: Duration) -> Result<(), ServerError> {
    let operation = "cannot use the schema `replimeter`";
    let Some(holder) = acquire(session, SCHEMA_LOCK, operation, patience)? else {
        return Ok(());
    };
    Err(session.precondition(
        operation,
        format!(
            "another Replimeter run is creating or removing its tables (its connection {holder})"
        ),
        "wait until it ends, or end it",
    ))
}

/// Releases the lock of the schema. Best effort: the server releases it with the session.
pub(crate) fn unlock_schema(session: &mut Session) {
    let _ = session.value(
        "cannot release the lock",
        &format!("SELECT RELEASE_LOCK('{SCHEMA_LOCK}')"),
    );
}
