//! Transactions and locks of others that definitions would have to wait for.

use replimeter_engine::{ServerError, dialect::locks};
use replimeter_model::warning::{Warning, WarningCode};

use crate::discovery::DiscoveredServer;

/// What it means for a run.
pub(crate) const EFFECT: &str =
    "what a run creates and drops may wait for it, and a replica's applier with everything behind";
pub(crate) const HINT: &str = "end it, or wait for its end";

/// Returns warnings about long transactions and locks of backups, on every server.
///
/// # Errors
/// When a server does not answer.
pub(crate) fn warn_of_obstacles(
    servers: &mut [DiscoveredServer],
) -> Result<Vec<Warning>, ServerError> {
    let mut warnings = Vec::new();
    for DiscoveredServer { session, facts, .. } in servers {
        let obstacles = locks::obstacles(facts.engine, session)?;
        warnings.extend(obstacles.found.iter().map(|found| {
            let message = format!("{session}: {found}: {EFFECT}");
            Warning::new(WarningCode::DefinitionsMayWait, message, HINT)
        }));
    }
    Ok(warnings)
}
