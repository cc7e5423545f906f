//! The JSON list of servers that were found.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::warning::Warning;

/// The schema of [`ServersDocument`].
pub const SERVERS_SCHEMA: &str = "replimeter.servers/1";

/// `replimeter servers --json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServersDocument {
    /// [`SERVERS_SCHEMA`].
    pub schema: String,
    /// The servers, the best first.
    pub results: Vec<ServerRow>,
    /// Installations that look like a server but cannot be used.
    pub warnings: Vec<Warning>,
}

/// One server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServerRow {
    /// `mariadb` or `mysql`.
    pub engine: String,
    /// Its version number, such as `10.11.19`.
    pub version: String,
    /// Its binary, links resolved.
    pub program: String,
    /// How it was found: `named`, `system` or `private`.
    pub origin: String,
    /// Names of its capabilities.
    pub abilities: Vec<String>,
    /// Capabilities of a complete installation that are missing here.
    pub missing: Vec<MissingCapability>,
}

/// A missing capability.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MissingCapability {
    /// Its name.
    pub ability: String,
    /// What is missing, and what to install.
    pub hint: String,
}
