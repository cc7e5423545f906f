//! MySQL's statements, newest first.

/// The privilege to read a replica's status.
pub(super) const MONITOR_PRIVILEGE: &str = "REPLICATION CLIENT";
/// The privilege to read the list of a server's replicas.
pub(super) const REPLICAS_PRIVILEGE: &str = "REPLICATION SLAVE";

/// One row for each channel.
pub(super) const CHANNELS: &[&str] = &["SHOW REPLICA STATUS", "SHOW SLAVE STATUS"];

/// The binary log's name, position and filters.
pub(super) const BINLOG_STATUS: &[&str] = &["SHOW BINARY LOG STATUS", "SHOW MASTER STATUS"];

/// One row for each connected replica.
pub(super) const REPLICAS: &[&str] = &["SHOW REPLICAS", "SHOW SLAVE HOSTS"];
