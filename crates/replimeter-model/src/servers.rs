//! The list of servers that were found, as programs read it.

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
    /// What looked like a server and cannot be used.
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
    /// In which way it was found: `named`, `system` or `private`.
    pub origin: String,
    /// The names of what it can do.
    pub abilities: Vec<String>,
    /// What a complete installation could do and this one cannot.
    pub missing: Vec<MissingCapability>,
}

/// Something that a server cannot do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MissingCapability {
    /// Its name.
    pub ability: String,
    /// What was not found, and what to install.
    pub hint: String,
}
