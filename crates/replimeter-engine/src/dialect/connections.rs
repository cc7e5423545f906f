//! Connections of clients: how many a server takes, and which of this client are still open there.

use std::time::{Duration, Instant};

pub use crate::opened::OpenedConnection;
use crate::{ServerError, Session, session::StatusRow};

/// A server states its age in whole seconds, and counts a connection from its login on.
const ROUNDING: Duration = Duration::from_secs(2);

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

/// Returns those of these connections that the server still has: they have the user and host of this session, and are no older than
/// the server.
///
/// # Errors
/// When the server does not answer.
pub fn still_open(
    session: &mut Session,
    opened: &[OpenedConnection],
) -> Result<Vec<OpenedConnection>, ServerError> {
    const OPERATION: &str = "cannot read the list of connections";
    if opened.is_empty() {
        return Ok(Vec::new());
    }
    let own = u64::from(session.connection_id());
    let numbers = opened.iter().map(|opened| format!(", {}", opened.number));
    let sql = format!(
        "SELECT ID AS id, USER AS user, HOST AS host FROM information_schema.PROCESSLIST WHERE ID IN ({own}{})",
        numbers.collect::<String>()
    );
    let rows = session.rows(OPERATION, &sql)?;
    let status = session.pairs(OPERATION, "SHOW GLOBAL STATUS LIKE 'Uptime'")?;
    let uptime = status.values().next().and_then(|text| text.parse().ok());
    let now = Instant::now();
    let is_open = |opened: &OpenedConnection| {
        let age = now.saturating_duration_since(opened.at);
        uptime.is_none_or(|uptime| age <= Duration::from_secs(uptime) + ROUNDING)
            && is_of_client(&rows, opened.number, own)
    };
    Ok(opened.iter().copied().filter(is_open).collect())
}

/// Returns whether two connections of the list are of the same user on the same host.
fn is_of_client(rows: &[StatusRow], number: u64, own: u64) -> bool {
    let client = |number: u64| {
        let mut rows = rows.iter();
        let row = rows.find(|row| row.get("id") == Some(&number.to_string()))?;
        let host = row.get("host")?;
        // Through a Unix socket there is no port.
        let host = host.rsplit_once(':').map_or(&**host, |(host, _)| host);
        Some((row.get("user")?, host))
    };
    client(number).is_some_and(|found| client(own) == Some(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_connections_of_the_same_client_are_its_own() {
        let row = |id: &str, user: &str, host: &str| {
            let pairs = [("id", id), ("user", user), ("host", host)];
            pairs
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into()
        };
        let rows = [
            row("9", "probe", "10.0.0.1:4000"),
            row("5", "probe", "10.0.0.1:3999"),
            row("6", "app", "10.0.0.1:3998"),
            row("7", "probe", "10.0.0.2:3997"),
        ];
        let own: Vec<u64> = (4..8).filter(|id| is_of_client(&rows, *id, 9)).collect();
        assert_eq!(own, [5]);
        let rows = [
            row("9", "probe", "localhost"),
            row("5", "probe", "localhost"),
        ];
        assert!(is_of_client(&rows, 5, 9));
        assert!(!is_of_client(&rows[1..], 5, 9), "its own row is missing");
    }
}
