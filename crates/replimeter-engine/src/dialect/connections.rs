//! How many connections a server takes.

use crate::{ServerError, Session};

/// Returns the number of connections that the server still takes, and its maximum; `None` where it does not state them.
///
/// # Errors
/// When the server does not answer.
pub fn free_connections(
    session: &mut Session,
    operation: &str,
) -> Result<Option<(u64, u64)>, ServerError> {
    let maximum = session.value(operation, "SELECT @@GLOBAL.max_connections")?;
    let connected = session.pairs(operation, "SHOW GLOBAL STATUS LIKE 'Threads_connected'")?;
    let number = |text: Option<&String>| text.and_then(|text| text.parse::<u64>().ok());
    let connected = number(connected.values().next());
    Ok(number(maximum.as_ref())
        .zip(connected)
        .map(|(maximum, connected)| (maximum.saturating_sub(connected), maximum)))
}
