//! `manifest.json`: machine, servers and settings of a run, without its figures.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{engine::product, replication::Mode};

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
    /// What its settings mean, by its engine; not in the document.
    #[serde(skip)]
    pub meaning: ServerMeaning,
}

/// What the settings of a server mean.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerMeaning {
    /// When it waits for a replica, as a semi-synchronous primary: `after-sync` or `after-commit`; `None` when it does not wait.
    pub wait_point: Option<&'static str>,
    /// Whether its group takes writes at one member only.
    pub single_primary: bool,
    /// Its variables that affect the cost of replication, in the order in which they are shown.
    pub notable: Vec<&'static str>,
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
        format!("{} {number}", product(&self.dialect))
    }
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
    pub servers: Vec<ServerRecord>,
    /// The sandboxes, one for each shape; empty for the user's servers.
    pub sandboxes: Vec<SandboxRecord>,
}

#[cfg(test)]
mod tests {
    use super::*;

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
