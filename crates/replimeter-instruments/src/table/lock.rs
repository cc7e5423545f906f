//! The lock that marks a server as being measured.

use replimeter_engine::{ServerError, Session};

use crate::{discovery::DiscoveredServer, preflight::Cluster};

/// The name of the lock.
pub(crate) const LOCK: &str = "replimeter.run";

/// Prevents the server from closing the primary's session, which is outside the measuring path, as
/// idle, and checks that the run still holds its lock.
///
/// # Errors
/// When another run has taken the lock. A server that does not answer is no error: the measuring
/// path reports it.
pub fn keep_alive(cluster: &mut Cluster) -> Result<(), ServerError> {
    let operation = "cannot keep the session alive";
    let DiscoveredServer { node, session, .. } = &mut cluster.primary;
    match session.value(
        operation,
        &format!("SELECT IS_USED_LOCK('{LOCK}') = CONNECTION_ID()"),
    ) {
        Ok(Some(held)) if held == "1" => {}
        Ok(_) => take_lock(session)?,
        Err(_) => {
            if let Ok(opened) = Session::open(node) {
                *session = opened;
                take_lock(session)?;
            }
        }
    }
    Ok(())
}

pub(crate) fn take_lock(session: &mut Session) -> Result<(), ServerError> {
    let operation = "cannot begin";
    if session
        .value(operation, &format!("SELECT GET_LOCK('{LOCK}', 0)"))?
        .as_deref()
        == Some("1")
    {
        return Ok(());
    }
    let holder = session
        .value(operation, &format!("SELECT IS_USED_LOCK('{LOCK}')"))?
        .unwrap_or_default();
    Err(busy(session, &holder))
}

pub(super) fn busy(session: &Session, holder: &str) -> ServerError {
    session.precondition(
        "cannot begin",
        format!("another Replimeter run is measuring this server (its connection {holder})"),
        "wait until it ends, or end it",
    )
}
