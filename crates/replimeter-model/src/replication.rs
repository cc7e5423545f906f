//! How servers replicate.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::engine::Engine;

one_of! {
    /// How servers replicate.
    #[derive(Default)]
    pub enum Mode {
        /// A standalone server.
        #[default]
        None = "none",
        /// Asynchronous replicas of one primary.
        Async = "async",
        /// Replicas of one primary that waits for an acknowledgement of receipt.
        SemiSync = "semi-sync",
        /// Each replica replicates from the one before it, asynchronously.
        Chain = "chain",
        /// A Galera cluster.
        Galera = "galera",
        /// A Group Replication group.
        Group = "group",
    }
}

impl Mode {
    /// Returns what it is called in prose.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Galera => "Galera",
            _ => self.name(),
        }
    }

    /// Returns whether its servers are equal members (`node1`, …) and no primary with replicas.
    #[must_use]
    pub fn has_members(self) -> bool {
        matches!(self, Self::Galera | Self::Group)
    }

    /// Returns whether its primary waits for an acknowledgement of receipt.
    #[must_use]
    pub fn waits_for_receipt(self) -> bool {
        self == Self::SemiSync
    }

    /// Returns the only engine that has it; `None` when both do.
    #[must_use]
    pub fn only_engine(self) -> Option<Engine> {
        match self {
            Self::Galera => Some(Engine::MariaDb),
            Self::Group => Some(Engine::MySql),
            Self::None | Self::Async | Self::SemiSync | Self::Chain => None,
        }
    }
}

/// Way in which a server receives writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Relation {
    /// Rows are written to it.
    Writer,
    /// By a replication channel from another of the servers.
    Channel,
    /// As a node of the writer's Galera cluster.
    Galera,
    /// As a member of the writer's group.
    Group,
    /// Not at all from any of these servers.
    None,
    /// The server could not be queried.
    Unknown,
}

impl Relation {
    /// Returns the mode of the writer's cluster, if the server receives writes as a member of it.
    #[must_use]
    pub fn cluster(self) -> Option<Mode> {
        match self {
            Self::Galera => Some(Mode::Galera),
            Self::Group => Some(Mode::Group),
            Self::Writer | Self::Channel | Self::None | Self::Unknown => None,
        }
    }

    /// Returns whether the server receives writes as a member of the writer's cluster.
    #[must_use]
    pub fn in_cluster(self) -> bool {
        self.cluster().is_some()
    }
}
