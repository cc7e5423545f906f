//! The document of `replimeter sandbox list --json`.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{target::Role, warning::Warning};

/// The schema's name and version.
pub const SANDBOXES_SCHEMA: &str = "replimeter.sandboxes/1";

/// One server of a kept sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListedNode {
    /// `primary`, `replica1` …, `node1` ….
    pub name: String,
    /// Role of the server.
    pub role: Role,
    /// Source that it replicates from; null for a primary and for members.
    pub source: Option<String>,
    /// Its TCP port on 127.0.0.1.
    pub port: u16,
    /// Its Unix socket.
    pub socket: PathBuf,
    /// Its error log.
    pub log: PathBuf,
    /// Product and version.
    pub version: String,
    /// `running` (for a member followed by its own state: `running, ONLINE, PRIMARY`), how it ended, or `unknown` when the supervisor does not answer.
    pub state: String,
    /// Its URL, without the password.
    pub url: String,
}

/// One replication link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListedLink {
    /// Its name: the two servers that it lies between.
    pub name: String,
    /// `open` or `cut`.
    pub state: String,
    /// One-way delay.
    pub delay_us: u64,
    /// Jitter.
    pub jitter_us: u64,
    /// Bits per second, when limited.
    pub bandwidth_bits_per_s: Option<u64>,
    /// Bytes that went through it, towards the source and from it.
    pub bytes: [u64; 2],
}

/// One kept sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListedSandbox {
    /// Name of the sandbox.
    pub name: String,
    /// Begins with `running`, `starting or ending`, `dead` or `frozen`.
    pub state: String,
    /// Its shape; null when it is not running.
    pub shape: Option<String>,
    /// Time when it was ready (RFC 3339, UTC).
    pub since: Option<String>,
    /// The file that names its servers for `--topology`.
    pub topology: Option<PathBuf>,
    /// Its servers; the one that is written to first.
    pub nodes: Vec<ListedNode>,
    /// Its replication links, when they are Replimeter's.
    pub links: Vec<ListedLink>,
}

/// The document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SandboxesDocument {
    /// [`SANDBOXES_SCHEMA`].
    pub schema: String,
    /// One entry for each sandbox.
    pub results: Vec<ListedSandbox>,
    /// Warnings.
    pub warnings: Vec<Warning>,
}
