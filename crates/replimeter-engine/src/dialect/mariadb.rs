//! MariaDB's statements. It kept the older ones when MySQL renamed them.

/// The privilege to read a replica's status.
pub(super) const MONITOR_PRIVILEGE: &str = "REPLICA MONITOR";
/// The privilege to read the list of a server's replicas.
pub(super) const REPLICAS_PRIVILEGE: &str = "REPLICATION MASTER ADMIN";

/// Every connection of a multi-source replica, or the only one.
pub(super) const CHANNELS: &[&str] = &["SHOW ALL REPLICAS STATUS", "SHOW ALL SLAVES STATUS"];

/// The binary log's name, position and filters.
pub(super) const BINLOG_STATUS: &[&str] = &["SHOW BINLOG STATUS", "SHOW MASTER STATUS"];

/// One row for each connected replica.
pub(super) const REPLICAS: &[&str] = &["SHOW REPLICA HOSTS", "SHOW SLAVE HOSTS"];
