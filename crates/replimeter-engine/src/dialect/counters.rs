//! Counters of a server's work, under common names for both engines.

use std::collections::BTreeMap;

use crate::{ServerError, Session};

/// Counters since the server started; `None` for a counter that the server does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes received from clients and replicas.
    pub received_bytes: Option<u64>,
    /// Bytes sent to clients and replicas.
    pub sent_bytes: Option<u64>,
    /// Bytes exchanged with the other nodes of a Galera cluster.
    pub cluster_bytes: Option<u64>,
    /// Reads by InnoDB.
    pub reads: Option<u64>,
    /// Writes by InnoDB.
    pub writes: Option<u64>,
    /// Flushes by InnoDB, including its redo log, not the binary log.
    pub fsyncs: Option<u64>,
    /// Bytes read by InnoDB.
    pub read_bytes: Option<u64>,
    /// Bytes written by InnoDB.
    pub write_bytes: Option<u64>,
    /// Groups of transactions that were committed to the binary log (MariaDB).
    pub log_groups: Option<u64>,
    /// Rows read.
    pub rows_read: Option<u64>,
    /// Rows inserted, updated and deleted. MariaDB counts all calls to its storage engines, including
    /// the bookkeeping of a replica's positions.
    pub rows_written: Option<u64>,
}

/// All variables that are read; handler counters stand in for rows on servers whose engine does not
/// count rows.
const ASKED: [&str; 22] = [
    "Bytes_received",
    "Bytes_sent",
    "wsrep_received_bytes",
    "wsrep_replicated_bytes",
    "Innodb_data_reads",
    "Innodb_data_writes",
    "Innodb_data_fsyncs",
    "Innodb_data_read",
    "Innodb_data_written",
    "Innodb_os_log_written",
    "Innodb_log_writes",
    "Binlog_group_commits",
    "Innodb_rows_read",
    "Innodb_rows_inserted",
    "Innodb_rows_updated",
    "Innodb_rows_deleted",
    "Rows_read",
    "Handler_write",
    "Handler_update",
    "Handler_delete",
    "wsrep_cluster_size",
    "wsrep_provider_name",
];

/// Reads the counters.
///
/// # Errors
/// When the connection breaks.
pub fn counters(session: &mut Session) -> Result<Counters, ServerError> {
    let names: Vec<String> = ASKED.iter().map(|name| format!("'{name}'")).collect();
    let statement = format!(
        "SHOW GLOBAL STATUS WHERE Variable_name IN ({})",
        names.join(",")
    );
    Ok(from_status(
        &session.pairs("cannot read the server's counters", &statement)?,
    ))
}

/// Returns the counters from the rows of `SHOW GLOBAL STATUS`.
fn from_status(status: &BTreeMap<String, String>) -> Counters {
    let get = |name: &str| status.get(name).and_then(|value| value.parse::<u64>().ok());
    let sum = |names: &[&str]| names.iter().map(|name| get(name)).sum::<Option<u64>>();
    // Since 10.8 MariaDB counts writes to its redo log separately; MySQL includes them in the
    // others.
    let mariadb = get("Binlog_group_commits").is_some();
    let with_log = |data: &str, log: &str| {
        if mariadb {
            sum(&[data, log]).or_else(|| get(data))
        } else {
            get(data)
        }
    };
    // A server that is not a node may have these counters, too.
    let clustered = get("wsrep_cluster_size").is_some_and(|size| size > 0)
        && status
            .get("wsrep_provider_name")
            .is_some_and(|name| !name.is_empty());
    Counters {
        received_bytes: get("Bytes_received"),
        sent_bytes: get("Bytes_sent"),
        cluster_bytes: sum(&["wsrep_received_bytes", "wsrep_replicated_bytes"])
            .filter(|_| clustered),
        reads: get("Innodb_data_reads"),
        writes: with_log("Innodb_data_writes", "Innodb_log_writes"),
        fsyncs: get("Innodb_data_fsyncs"),
        read_bytes: get("Innodb_data_read"),
        write_bytes: with_log("Innodb_data_written", "Innodb_os_log_written"),
        log_groups: get("Binlog_group_commits"),
        rows_read: get("Innodb_rows_read").or_else(|| get("Rows_read")),
        rows_written: sum(&[
            "Innodb_rows_inserted",
            "Innodb_rows_updated",
            "Innodb_rows_deleted",
        ])
        .or_else(|| sum(&["Handler_write", "Handler_update", "Handler_delete"])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_counter_is_blank() {
        let status = |pairs: &[(&str, &str)]| {
            from_status(
                &pairs
                    .iter()
                    .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                    .collect(),
            )
        };
        let one = status(&[
            ("Bytes_sent", "5"),
            ("Innodb_rows_inserted", "1"),
            ("Innodb_rows_updated", "2"),
            ("Innodb_rows_deleted", "3"),
        ]);
        assert_eq!(
            (
                one.sent_bytes,
                one.received_bytes,
                one.rows_written,
                one.cluster_bytes
            ),
            (Some(5), None, Some(6), None)
        );
        let other = status(&[
            ("Handler_write", "1"),
            ("Handler_update", "1"),
            ("Handler_delete", "1"),
            ("Bytes_sent", "many"),
        ]);
        assert_eq!((other.rows_written, other.sent_bytes), (Some(3), None));
        let writes = [
            ("Innodb_data_written", "100"),
            ("Innodb_os_log_written", "7"),
        ];
        assert_eq!(status(&writes).write_bytes, Some(100));
        let mariadb: Vec<(&str, &str)> = writes
            .into_iter()
            .chain([("Binlog_group_commits", "1")])
            .collect();
        assert_eq!(status(&mariadb).write_bytes, Some(107));
    }
}
