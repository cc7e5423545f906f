//! What the servers of Replimeter in `calibrate --reference` answer, as far as they differ by engine: as MariaDB.

use super::{mariadb, waits};

/// The version that they report.
pub const VERSION: &str = "10.11.0-MariaDB-replimeter-reference";
/// The statement that waits for a transaction.
pub const WAIT: &str = waits::OF_MARIADB;
/// The statement that reads the state of a replica's channel.
pub const CHANNEL: &str = mariadb::CHANNELS[0];

/// Returns the id of the transaction that wrote this row.
#[must_use]
pub fn commit_id(row: u64) -> String {
    format!("0-1-{row}")
}

/// Returns the row that the transaction with this id wrote.
#[must_use]
pub fn row_of(commit_id: &[u8]) -> Option<u64> {
    let number = commit_id.rsplit(|byte| *byte == b'-').next()?;
    str::from_utf8(number).ok()?.parse().ok()
}

/// Returns the state of the channel of a replica whose primary has this port.
#[must_use]
pub fn channel(primary_port: u16) -> [(&'static str, String); 8] {
    let port = primary_port.to_string();
    [
        ("Connection_name", ""),
        ("Master_Host", "127.0.0.1"),
        ("Master_Port", &port),
        ("Master_Server_Id", "1"),
        ("Slave_IO_Running", "Yes"),
        ("Slave_SQL_Running", "Yes"),
        ("Using_Gtid", "Slave_Pos"),
        ("SQL_Delay", "0"),
    ]
    .map(|(name, value)| (name, value.to_owned()))
}
