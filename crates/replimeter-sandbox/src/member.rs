//! A server of a running sandbox.

use std::path::PathBuf;

use replimeter_engine::Node;
use replimeter_model::{replication::Mode, target::Role};

/// A server of a running sandbox.
#[derive(Clone, Debug)]
pub struct Member {
    /// How to reach it without a link.
    pub node: Node,
    /// How clients reach it: through their link, if there is one.
    pub client_node: Node,
    /// Its role.
    pub role: Role,
    /// The name of the server it replicates from; `None` for a primary and for members of a cluster.
    pub source: Option<String>,
    /// Its process id.
    pub pid: u32,
    /// Its folder: log, data directory, socket.
    pub folder: PathBuf,
    /// Its index in the registry of processes.
    pub(crate) number: usize,
    /// Product and version.
    pub version: String,
}

impl Member {
    /// Returns its Unix socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.folder.join("data").join("server.sock")
    }

    /// Returns its error log.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.folder.join("server.log")
    }
}

/// Returns the role of a server, by mode and index.
pub(crate) fn role_of(mode: Mode, index: usize) -> Role {
    match (mode.has_members(), index) {
        (true, _) => Role::Node,
        (false, 0) => Role::Primary,
        (false, _) => Role::Replica,
    }
}
