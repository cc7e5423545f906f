//! `manifest.json`: everything that produced a run and is not a figure of it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::engine::Engine;

/// The schema's name and version.
pub const MANIFEST_SCHEMA: &str = "replimeter.manifest/1";

/// The machine that ran the client (and, for a sandbox, the servers).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Machine {
    /// Operating system and kernel release.
    pub kernel: String,
    /// The distribution's name.
    pub distribution: String,
    /// Processor model.
    pub cpu: String,
    /// Cores the client may use.
    pub cores: usize,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Source of the kernel's clock (`tsc`, `kvm-clock`, …).
    pub clock_source: String,
}

/// One server and its settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServerRecord {
    /// The shape it belongs to.
    pub shape: String,
    /// `primary`, `replica1`, …
    pub name: String,
    /// Host and port.
    pub address: String,
    /// `mariadb` or `mysql`.
    pub flavour: String,
    /// The server's full version text.
    pub version: String,
    /// Whether and how the connection is encrypted.
    pub tls: String,
    /// Every global variable in effect; values that hold secrets are blanked.
    pub variables: BTreeMap<String, String>,
    /// The replica's channel as it was before the run; empty for a primary.
    pub replication: BTreeMap<String, String>,
}

impl ServerRecord {
    /// Product and number for people: `MariaDB 10.11.6`.
    #[must_use]
    pub fn title(&self) -> String {
        let product = [Engine::MariaDb, Engine::MySql].into_iter().find(|engine| engine.name() == self.flavour);
        let number = self.version.split(['-', ' ']).next().unwrap_or(&self.version);
        format!("{} {number}", product.map_or(self.flavour.as_str(), |engine| engine.product()))
    }
}

/// How a sandbox came to be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SandboxRecord {
    /// Its shape.
    pub shape: String,
    /// The server's binary.
    pub binaries: String,
    /// The replicas' binary, when it is another one.
    pub replica_binaries: Option<String>,
    /// What its replication links do, when they go through links of ours.
    pub link: Option<String>,
    /// The library of our functions, when they were loaded.
    #[serde(default)]
    pub udf: Option<String>,
    /// Whether the engine FEDERATED was turned on.
    #[serde(default)]
    pub federated: bool,
    /// Whether its servers were started without a binary log.
    #[serde(default)]
    pub without_binary_log: bool,
    /// The share of the machine that each server had, and how it was held to it; null
    /// when they shared it freely.
    #[serde(default)]
    pub cpus_per_server: Option<String>,
    /// File system under the data directories.
    pub file_system: String,
    /// System user the servers ran as.
    pub system_user: String,
    /// Whether the initialised data directory came from the cache.
    pub seed_from_cache: bool,
    /// From the start to the sentinel row visible on every replica.
    pub start_us: f64,
    /// The command line of each server, by name.
    pub command_lines: BTreeMap<String, Vec<String>>,
}

/// Variables that decide what replication costs; they come before all the others.
pub const NOTABLE: [&str; 22] = [
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
    "rpl_semi_sync_master_wait_point",
    "rpl_semi_sync_source_wait_point",
    "gtid_mode",
    "gtid_strict_mode",
    "max_allowed_packet",
    "performance_schema",
];

/// What produced a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Manifest {
    /// [`MANIFEST_SCHEMA`].
    pub schema: String,
    /// Replimeter's version.
    pub replimeter: String,
    /// When the run began (RFC 3339, UTC).
    pub started_at: String,
    /// The client's calendar clock at the zero of the run's monotonic clock, in
    /// microseconds since 1970.
    pub origin_unix_us: i64,
    /// The machine.
    pub machine: Machine,
    /// The servers; the primary first.
    pub servers: Vec<ServerRecord>,
    /// The sandboxes, one for each shape; empty for servers of the user's.
    pub sandboxes: Vec<SandboxRecord>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_are_short() {
        let version = "10.11.6-MariaDB-0+deb12u1 Debian 12".to_owned();
        let server = ServerRecord { flavour: "mariadb".to_owned(), version, ..ServerRecord::default() };
        assert_eq!(server.title(), "MariaDB 10.11.6");
    }
}
