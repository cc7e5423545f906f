//! Whether commits of a primary end, and reach replicas.

use replimeter_model::warning::{Warning, WarningCode};

use crate::{ServerError, Session, facts::ServerFacts, membership::Membership};

const OPERATION: &str = "cannot be the primary";
const ACKNOWLEDGE: &str = "check that the replica's side is enabled and that its receiving thread was started afterwards (`replimeter doctor` shows both)";

/// Refuses a primary whose writes would wait for acknowledgements that do not come, or would reach no replica. Returns a warning if they
/// do not wait for any although they are meant to.
///
/// # Errors
/// When it is such a primary.
pub fn check_primary(
    session: &Session,
    facts: &ServerFacts,
    membership: &Membership,
) -> Result<Option<Warning>, ServerError> {
    let waits = membership.waits.as_ref().filter(|state| state.enabled);
    if let Some(state) = waits.filter(|state| state.active && state.clients < state.wait_for) {
        return Err(session.precondition(
            OPERATION,
            format!(
                "semi-synchronous replication waits for {} acknowledgements, but {} replicas acknowledge: the next write would take {:.1} s",
                state.wait_for,
                state.clients,
                state.timeout_ms as f64 / 1e3
            ),
            ACKNOWLEDGE,
        ));
    }
    // A Galera cluster replicates without a binary log.
    if membership.galera().is_none() && !facts.on("log_bin") {
        return Err(session.precondition(
            OPERATION,
            "its binary log is off (log_bin=OFF)",
            "enable the binary log: no server can replicate without it",
        ));
    }
    Ok(waits.filter(|state| !state.active).map(|state| {
        Warning::new(
            WarningCode::AcknowledgementNotInEffect,
            format!(
                "{session}: semi-synchronous replication is configured, but replication is asynchronous: {} replicas acknowledge, it waits for {}",
                state.clients, state.wait_for
            ),
            ACKNOWLEDGE,
        )
    }))
}
