//! `manifest.json`: machine, servers and settings of a run, without its figures.

use std::{collections::BTreeMap, ptr};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::{engine::Engine, replication::Mode};

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
    /// Shape that the server belongs to.
    pub shape: String,
    /// `primary`, `replica1`, …
    pub name: String,
    /// Host and port.
    pub address: String,
    /// `mariadb` or `mysql`.
    pub dialect: String,
    /// The server's full version text.
    pub version: String,
    /// How it received writes when the run began: `async` or `semi-sync` by a channel, `galera` or `group` through its
    /// cluster; `none` if it receives from no server.
    #[serde(default)]
    pub mode: Option<Mode>,
    /// Name of the server that it receives from by a channel; null for a writer and for members of its cluster.
    #[serde(default)]
    pub receives_from: Option<String>,
    /// Whether and how the connection is encrypted.
    pub tls: String,
    /// Every global variable in effect; values that hold secrets are blanked.
    pub variables: BTreeMap<String, String>,
    /// The replica's channel as it was before the run; empty for a primary.
    pub replication: BTreeMap<String, String>,
}

impl ServerRecord {
    /// Returns product and version for reports: `MariaDB 10.11.6`.
    #[must_use]
    pub fn title(&self) -> String {
        let number = self
            .version
            .split(['-', ' '])
            .next()
            .unwrap_or(&self.version);
        format!(
            "{} {number}",
            Engine::named(&self.dialect).map_or(self.dialect.as_str(), |engine| engine.product())
        )
    }

    /// Returns the value of the first of these variables that exists; names differ by engine and version.
    #[must_use]
    pub fn variable(&self, spellings: &[&str]) -> Option<&str> {
        spellings
            .iter()
            .find_map(|name| self.variables.get(*name))
            .map(String::as_str)
    }

    /// Returns whether one of these variables is on.
    fn is_on(&self, spellings: &[&str]) -> bool {
        self.variable(spellings)
            .is_some_and(|value| matches!(value, "ON" | "1"))
    }

    /// Returns the cluster that it is a member of, by its settings: its mode, and the cluster's name.
    /// `None` for a server that replicates by a channel.
    fn cluster(&self) -> Option<(Mode, &str)> {
        let named = |name: &str| {
            self.variables
                .get(name)
                .map(String::as_str)
                .filter(|value| !value.is_empty())
        };
        if !self.replication.is_empty() {
            None
        } else if self.is_on(&["wsrep_on"])
            && named("wsrep_provider").is_some_and(|provider| provider != "none")
        {
            Some((
                Mode::Galera,
                named("wsrep_cluster_name").unwrap_or_default(),
            ))
        } else {
            named("group_replication_group_name").map(|name| (Mode::Group, name))
        }
    }

    /// Returns how it receives writes, and the name of its source, by its settings and channel status. The first of the
    /// servers is written to; without a recorded channel status, all receive from it.
    fn topology<'a>(&'a self, servers: &ShapeServers<'a>) -> (Mode, Option<String>) {
        let Some(first) = servers.first.filter(|first| !ptr::eq(*first, self)) else {
            let cluster = self.cluster();
            return (cluster.map_or(Mode::None, |(mode, _)| mode), None);
        };
        if let Some(cluster) = self.cluster().filter(|own| first.cluster() == Some(*own)) {
            return (cluster.0, None);
        }
        let source = servers
            .source_of(self)
            .filter(|source| !ptr::eq(*source, self));
        let source = source.unwrap_or(first);
        let waits = ptr::eq(source, first) && first.wait_point().is_some();
        let mode = if waits && self.acknowledges() {
            Mode::SemiSync
        } else {
            Mode::Async
        };
        (mode, Some(source.name.clone()))
    }

    /// Returns whether its group takes writes at one member only.
    #[must_use]
    pub fn single_primary(&self) -> bool {
        self.is_on(&["group_replication_single_primary_mode"])
    }

    /// Returns whether it acknowledges receipt, as a replica.
    fn acknowledges(&self) -> bool {
        self.is_on(&[
            "rpl_semi_sync_slave_enabled",
            "rpl_semi_sync_replica_enabled",
        ])
    }

    /// Returns when it waits for a replica, as a semi-synchronous primary: `after-sync` or `after-commit`; `None`
    /// when it does not wait.
    #[must_use]
    pub fn wait_point(&self) -> Option<&'static str> {
        if !self.is_on(&[
            "rpl_semi_sync_master_enabled",
            "rpl_semi_sync_source_enabled",
        ]) {
            return None;
        }
        let stated = self.variable(&[
            "rpl_semi_sync_master_wait_point",
            "rpl_semi_sync_source_wait_point",
        ]);
        Some(match stated {
            Some("AFTER_SYNC") => "after-sync",
            Some("AFTER_COMMIT") => "after-commit",
            // The defaults of each engine.
            _ if self.dialect == Engine::MySql.name() => "after-sync",
            _ => "after-commit",
        })
    }
}

/// The servers of a shape.
#[derive(Default)]
struct ShapeServers<'a> {
    first: Option<&'a ServerRecord>,
    by_id: BTreeMap<&'a str, &'a ServerRecord>,
    by_address: BTreeMap<&'a str, &'a ServerRecord>,
}

impl<'a> ShapeServers<'a> {
    fn add(&mut self, server: &'a ServerRecord) {
        self.first.get_or_insert(server);
        if let Some(id) = server.variables.get("server_id") {
            self.by_id.entry(id).or_insert(server);
        }
        self.by_address.entry(&server.address).or_insert(server);
    }

    /// Returns the server that another one receives from by its channel status: by the source's server id, which also
    /// holds behind a link, or by the address.
    fn source_of(&self, server: &ServerRecord) -> Option<&'a ServerRecord> {
        let stated = |names: [&str; 2]| {
            let mut names = names.iter();
            names.find_map(|name| server.replication.get(*name))
        };
        let id = stated(["Source_Server_Id", "Master_Server_Id"]).filter(|id| *id != "0");
        let by_address = || {
            let host = stated(["Source_Host", "Master_Host"])?;
            let port = stated(["Source_Port", "Master_Port"])?;
            self.by_address.get(format!("{host}:{port}").as_str())
        };
        let by_id = id.and_then(|id| self.by_id.get(id.as_str()));
        by_id.or_else(by_address).copied()
    }
}

/// Adds how servers receive writes, and from whom, to records without it: of runs before it was recorded, and of servers
/// that were started in a known mode.
pub fn complete(servers: &mut [ServerRecord]) {
    let mut shapes: BTreeMap<&str, ShapeServers<'_>> = BTreeMap::new();
    for server in servers.iter() {
        shapes.entry(&server.shape).or_default().add(server);
    }
    let topology = |server: &ServerRecord| match server.mode {
        Some(_) => None,
        None => Some(server.topology(&shapes[server.shape.as_str()])),
    };
    let found: Vec<_> = servers.iter().map(topology).collect();
    for (server, found) in servers.iter_mut().zip(found) {
        if let Some((mode, receives_from)) = found {
            (server.mode, server.receives_from) = (Some(mode), receives_from);
        }
    }
}

fn completed<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<ServerRecord>, D::Error> {
    let mut servers = Vec::deserialize(deserializer)?;
    complete(&mut servers);
    Ok(servers)
}

/// Setup of a sandbox.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SandboxRecord {
    /// Shape of the sandbox.
    pub shape: String,
    /// The server's binary.
    pub binaries: String,
    /// The replicas' binary, when it is another one.
    pub replica_binaries: Option<String>,
    /// Delay, jitter and bandwidth of replication links, when they go through Replimeter's links.
    pub link: Option<String>,
    /// Delay of the links between Replimeter and the servers, when there are such links.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_link: Option<String>,
    /// Least time of a flush to the disk, when it was slowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flush_delay: Option<String>,
    /// The library of Replimeter's functions, when they were loaded.
    #[serde(default)]
    pub udf: Option<String>,
    /// Whether the engine FEDERATED was turned on.
    #[serde(default)]
    pub federated: bool,
    /// Whether its servers were started without a binary log.
    #[serde(default)]
    pub without_binary_log: bool,
    /// The share of the machine that each server had, and how it was limited; null
    /// without a limit.
    #[serde(default)]
    pub cpus_per_server: Option<String>,
    /// Whether the client had cores that no server used.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub client_has_own_cores: bool,
    /// Why the servers shared this machine although each was to be a host of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts_refused: Option<String>,
    /// File system under the data directories.
    pub file_system: String,
    /// System user the servers ran as.
    pub system_user: String,
    /// Whether the initialized data directory came from the cache.
    pub seed_from_cache: bool,
    /// From the start to the sentinel row visible on every replica.
    pub start_us: f64,
    /// The command line of each server, by name.
    pub command_lines: BTreeMap<String, Vec<String>>,
}

impl SandboxRecord {
    /// Returns whether the data lay in memory, where a flush costs nothing.
    #[must_use]
    pub fn in_memory(&self) -> bool {
        self.file_system == "tmpfs"
    }
}

/// Variables that affect the cost of replication; they come first.
pub const NOTABLE: [&str; 36] = [
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

/// What produced a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Manifest {
    /// [`MANIFEST_SCHEMA`].
    pub schema: String,
    /// Replimeter's version.
    pub replimeter: String,
    /// Start of the run (RFC 3339, UTC).
    pub started_at: String,
    /// The client's calendar clock at the zero of the run's monotonic clock, in
    /// microseconds since 1970.
    pub origin_unix_us: i64,
    /// The machine.
    pub machine: Machine,
    /// The servers; the primary first.
    #[serde(deserialize_with = "completed")]
    pub servers: Vec<ServerRecord>,
    /// The sandboxes, one for each shape; empty for the user's servers.
    pub sandboxes: Vec<SandboxRecord>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_and_wait_point_are_read_from_settings() {
        let with = |dialect: &str, pairs: &[(&str, &str)]| ServerRecord {
            dialect: dialect.to_owned(),
            variables: pairs
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            ..ServerRecord::default()
        };
        let node = with(
            "mariadb",
            &[
                ("wsrep_on", "ON"),
                ("wsrep_provider", "/galera.so"),
                ("wsrep_cluster_name", "c"),
            ],
        );
        assert_eq!(node.cluster(), Some((Mode::Galera, "c")));
        let lone = with(
            "mariadb",
            &[
                ("wsrep_on", "OFF"),
                ("wsrep_provider", "none"),
                ("wsrep_cluster_name", "my_wsrep_cluster"),
            ],
        );
        assert_eq!((lone.cluster(), lone.wait_point()), (None, None));
        let member = with(
            "mysql",
            &[
                ("group_replication_group_name", "g"),
                ("group_replication_single_primary_mode", "ON"),
            ],
        );
        assert!(member.cluster() == Some((Mode::Group, "g")) && member.single_primary());
        assert_eq!(
            with("mysql", &[("group_replication_group_name", "")]).cluster(),
            None
        );
        assert_eq!(
            with("mysql", &[("rpl_semi_sync_source_enabled", "ON")]).wait_point(),
            Some("after-sync")
        );
        assert_eq!(
            with("mariadb", &[("rpl_semi_sync_master_enabled", "ON")]).wait_point(),
            Some("after-commit")
        );
        let said = [
            ("rpl_semi_sync_master_enabled", "ON"),
            ("rpl_semi_sync_master_wait_point", "AFTER_SYNC"),
        ];
        assert_eq!(with("mariadb", &said).wait_point(), Some("after-sync"));
    }

    #[test]
    fn recorded_relations_are_kept_and_missing_ones_derived() {
        let server = |name: &str, source: &str| {
            let mut server = ServerRecord {
                name: name.to_owned(),
                address: format!("{name}:1"),
                ..ServerRecord::default()
            };
            let mut add = |key: &str, value: &str| {
                server.replication.insert(key.to_owned(), value.to_owned());
            };
            if !source.is_empty() {
                add("Master_Host", source);
                add("Master_Port", "1");
            }
            server
        };
        let mut servers = [
            server("a", ""),
            server("b", "a"),
            server("c", "b"),
            server("d", ""),
        ];
        servers[3].mode = Some(Mode::Group);
        complete(&mut servers);
        let found = servers.map(|server| (server.mode.unwrap(), server.receives_from));
        let from = |name: &str| (Mode::Async, Some(name.to_owned()));
        assert_eq!(
            found,
            [
                (Mode::None, None),
                from("a"),
                from("b"),
                (Mode::Group, None)
            ]
        );
    }

    #[test]
    fn titles_are_short() {
        let version = "10.11.6-MariaDB-0+deb12u1 Debian 12".to_owned();
        let server = ServerRecord {
            dialect: "mariadb".to_owned(),
            version,
            ..ServerRecord::default()
        };
        assert_eq!(server.title(), "MariaDB 10.11.6");
    }
}
