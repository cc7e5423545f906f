//! The lock that says that somebody is measuring a server.

use replimeter_engine::{ServerError, Session};

use crate::{preflight::Cluster, survey::Surveyed};

/// A lock by this name says that somebody is measuring.
pub(crate) const LOCK: &str = "replimeter.run";

/// Keeps the primary's session beside the measuring path from being closed as
/// idle, and makes sure that the run still holds its lock.
///
/// # Errors
/// When another run has taken the lock meanwhile. A server that does not answer
/// is none: the measuring path will say so.
pub fn keep_alive(cluster: &mut Cluster) -> Result<(), ServerError> {
    let doing = "cannot keep the session alive";
    let Surveyed { node, session, .. } = &mut cluster.primary;
    match session.value(
        doing,
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
    let doing = "cannot begin";
    if session
        .value(doing, &format!("SELECT GET_LOCK('{LOCK}', 0)"))?
        .as_deref()
        == Some("1")
    {
        return Ok(());
    }
    let holder = session
        .value(doing, &format!("SELECT IS_USED_LOCK('{LOCK}')"))?
        .unwrap_or_default();
    Err(busy(session, &holder))
}

pub(super) fn busy(session: &Session, holder: &str) -> ServerError {
    session.unfit(
        "cannot begin",
        format!("another Replimeter run is measuring this server (its connection {holder})"),
        "wait until it ends, or end it",
    )
}
