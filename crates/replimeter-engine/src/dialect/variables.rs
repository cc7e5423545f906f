//! Variables of servers in documents: which affect the cost of replication, and which differ between any two starts.

use replimeter_model::replication::Mode;

/// Variables that affect the cost of replication.
const NOTABLE: [&str; 36] = [
    "binlog_format",
    "sync_binlog",
    "innodb_flush_log_at_trx_commit",
    "innodb_flush_method",
    "innodb_buffer_pool_size",
    "innodb_doublewrite",
    "log_slave_updates",
    "log_replica_updates",
    "slave_parallel_mode",
    "slave_parallel_threads",
    "slave_domain_parallel_threads",
    "replica_parallel_type",
    "replica_parallel_workers",
    "replica_preserve_commit_order",
    "rpl_semi_sync_master_enabled",
    "rpl_semi_sync_source_enabled",
    "rpl_semi_sync_slave_enabled",
    "rpl_semi_sync_replica_enabled",
    "rpl_semi_sync_master_wait_point",
    "rpl_semi_sync_source_wait_point",
    "rpl_semi_sync_master_timeout",
    "rpl_semi_sync_source_timeout",
    "gtid_mode",
    "gtid_strict_mode",
    "wsrep_on",
    "wsrep_sync_wait",
    "wsrep_slave_threads",
    "wsrep_applier_threads",
    "wsrep_retry_autocommit",
    "wsrep_certify_nonPK",
    "group_replication_consistency",
    "group_replication_single_primary_mode",
    "group_replication_flow_control_mode",
    "group_replication_transaction_size_limit",
    "max_allowed_packet",
    "performance_schema",
];

/// Variables that affect a comparison of runs, besides the notable ones.
const DECIDING: [&str; 2] = ["binlog_row_image", "log_bin"];

/// Variables specific to one start or location of a server: they always differ, and do not matter.
const OF_ONE_START: [&str; 36] = [
    "admin_port",
    "aria_log_dir_path",
    "bind_address",
    "error_count",
    "general_log_file",
    "group_replication_group_name",
    "group_replication_group_seeds",
    "group_replication_local_address",
    "hostname",
    "identity",
    "in_transaction",
    "insert_id",
    "last_insert_id",
    "log_error",
    "mysqlx_port",
    "pid_file",
    "port",
    "proxy_user",
    "pseudo_thread_id",
    "rand_seed1",
    "rand_seed2",
    "report_host",
    "report_port",
    "server_id",
    "server_uid",
    "server_uuid",
    "slow_query_log_file",
    "socket",
    "timestamp",
    "warning_count",
    "wsrep_cluster_address",
    "wsrep_cluster_name",
    "wsrep_node_address",
    "wsrep_node_incoming_address",
    "wsrep_provider_options",
    "wsrep_sst_receive_address",
];

/// Returns the variables that affect the cost of replication in a mode. Every server of an engine has those of a cluster; they
/// matter only in one.
pub(crate) fn notable(mode: Option<Mode>) -> impl Iterator<Item = &'static str> {
    NOTABLE.into_iter().filter(move |name| match () {
        () if name.starts_with("wsrep_") => mode == Some(Mode::Galera),
        () if name.starts_with("group_replication_") => mode == Some(Mode::Group),
        () => true,
    })
}

/// Returns whether a difference of this variable affects the figures of two runs.
#[must_use]
pub fn is_deciding(name: &str) -> bool {
    NOTABLE.contains(&name) || DECIDING.contains(&name)
}

/// Returns whether a variable is specific to one start of a server, such as a port or a position in its log.
#[must_use]
pub fn is_of_one_start(name: &str) -> bool {
    let position = name.starts_with("gtid_")
        && !matches!(name, "gtid_mode" | "gtid_strict_mode" | "gtid_domain_id");
    position || OF_ONE_START.contains(&name)
}
