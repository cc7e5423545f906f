//! The target of a measurement: a sandbox, or the user's servers.

mod endpoint;
mod tls;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::{
    endpoint::{Endpoint, EndpointError, Secret},
    tls::{SslMode, TlsError, TlsOptions, switch},
};
use crate::{
    sandbox::{SandboxName, SandboxSpec},
    shape::{Shape, node_name},
};

words! {
    /// Role of a server among the user's servers.
    #[derive(Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum Role {
        /// Takes the writes.
        Primary = "primary",
        /// Replicates from the primary or from another replica.
        Replica = "replica",
        /// A member of a Galera cluster or a group.
        Node = "node",
    }
}

/// One of the user's servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct NodeSpec {
    /// Its name in reports and in environment variables.
    pub name: String,
    /// Its role; determined from the servers when `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// Name of the server that it must replicate from; not checked when `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Its address.
    pub url: Endpoint,
}

/// Target of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Servers that Replimeter starts and removes.
    Sandbox(SandboxSpec),
    /// Servers that `sandbox up` keeps running.
    Running(SandboxName),
    /// The user's servers.
    Nodes(Vec<NodeSpec>),
}

impl Target {
    /// Returns its name in reports.
    #[must_use]
    pub fn label(&self) -> String {
        match self {
            Self::Sandbox(spec) => spec.shape.to_string(),
            Self::Running(name) => name.to_string(),
            Self::Nodes(nodes) => {
                // Members are equal; otherwise the first server is the primary.
                let members = nodes.iter().all(|node| node.role == Some(Role::Node));
                let counted = nodes.len() - usize::from(!members);
                format!("endpoints:{counted}")
            }
        }
    }
}

impl Shape {
    /// Returns the names of its servers: `primary`, `replica1` …, or `node1` ….
    #[must_use]
    pub fn nodes(self) -> Vec<String> {
        let names = 0..self.servers() as usize;
        if self.mode().has_members() {
            return names.map(node_name).collect();
        }
        names
            .map(|index| {
                index
                    .checked_sub(1)
                    .map_or_else(|| PRIMARY.to_owned(), replica_name)
            })
            .collect()
    }
}

/// Returns a replica's name in reports, counted from 0.
#[must_use]
pub fn replica_name(index: usize) -> String {
    format!("replica{}", index + 1)
}

/// Name of the primary in reports.
pub const PRIMARY: &str = "primary";

/// Name of the primary in reports when it is observed as if it were a replica.
pub const NULL_REPLICA: &str = "primary (null replica)";

/// Passwords from URLs, by node name; never part of a record.
pub type Passwords = BTreeMap<String, Secret>;
