//! The state of a Galera node and its cluster.

use crate::{ServerError, Session, filter::list};

/// A node's state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeState {
    /// Identifies the cluster; the same on all of its nodes.
    pub cluster: String,
    /// Identifies this node within the cluster's current view.
    pub member: String,
    /// `Synced`, `Donor/Desynced`, `Joining` …
    pub state: String,
    /// `Primary` when the node belongs to the part that holds the quorum.
    pub component: String,
    /// Client addresses of the nodes that it sees.
    pub incoming: Vec<String>,
    /// The number of nodes that it sees.
    pub size: u64,
    /// Whether it accepts statements.
    pub ready: bool,
    /// `wsrep_sync_wait`: which statements wait for replication; 0 for none.
    pub sync_wait: u64,
}

impl NodeState {
    /// Returns whether it is a full member of its cluster.
    #[must_use]
    pub fn synced(&self) -> bool {
        self.ready && self.component == "Primary" && self.state == "Synced"
    }

    /// Returns whether it belongs to the same cluster as another node. Clusters created from clones
    /// of one data directory share their UUID; two views without a common node are two clusters.
    #[must_use]
    pub fn same_cluster(&self, other: &Self) -> bool {
        let strangers = || {
            !self.incoming.is_empty()
                && !other.incoming.is_empty()
                && !self
                    .incoming
                    .iter()
                    .any(|address| other.incoming.contains(address))
        };
        self.cluster == other.cluster && !self.cluster.is_empty() && !strangers()
    }

    /// Returns a one-line description.
    #[must_use]
    pub fn description(&self) -> String {
        let ready = if self.ready { "ready" } else { "not ready" };
        format!(
            "{}, component {}, cluster size {}, {ready}",
            self.state, self.component, self.size
        )
    }
}

/// Returns whether the server is currently a node of a cluster: a conflict with another node's write shows as a deadlock, and DDL
/// stalls all nodes.
///
/// # Errors
/// When the server refuses or the connection breaks.
pub fn certifies(session: &mut Session, operation: &str) -> Result<bool, ServerError> {
    let size = session.pairs(operation, "SHOW GLOBAL STATUS LIKE 'wsrep_cluster_size'")?;
    Ok(size
        .values()
        .any(|size| size.parse::<u64>().is_ok_and(|size| size > 0)))
}

/// Returns the node's state; `None` when the server is not a Galera node.
///
/// # Errors
/// When the connection breaks.
pub fn node_state(session: &mut Session) -> Result<Option<NodeState>, ServerError> {
    let operation = "cannot read the Galera node's state";
    let variables = session.pairs(operation, "SHOW GLOBAL VARIABLES LIKE 'wsrep_%'")?;
    let variable = |name: &str| variables.get(name).map_or("", String::as_str);
    // A server without the Galera library answers the same statements.
    if variable("wsrep_on") != "ON" || matches!(variable("wsrep_provider"), "" | "none") {
        return Ok(None);
    }
    let status = session.pairs(operation, "SHOW GLOBAL STATUS LIKE 'wsrep_%'")?;
    let of = |name: &str| status.get(name).cloned().unwrap_or_default();
    Ok(Some(NodeState {
        cluster: of("wsrep_cluster_state_uuid"),
        member: of("wsrep_gcomm_uuid"),
        state: of("wsrep_local_state_comment"),
        component: of("wsrep_cluster_status"),
        incoming: list(&of("wsrep_incoming_addresses")),
        size: of("wsrep_cluster_size").parse().unwrap_or(0),
        ready: of("wsrep_ready") == "ON",
        sync_wait: variable("wsrep_sync_wait").parse().unwrap_or(0),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_that_see_other_nodes_are_separate_clusters() {
        let node = |cluster: &str, incoming: &str| NodeState {
            cluster: cluster.to_owned(),
            incoming: list(incoming),
            ..NodeState::default()
        };
        let one = node("u", "a:1,b:1");
        assert!(
            one.same_cluster(&node("u", "b:1")),
            "one of them sees only itself"
        );
        assert!(
            one.same_cluster(&node("u", "")),
            "addresses are not always known"
        );
        assert!(!one.same_cluster(&node("u", "c:1,d:1")));
        assert!(!one.same_cluster(&node("v", "a:1,b:1")));
        assert!(
            !node("", "a:1").same_cluster(&node("", "a:1")),
            "no cluster"
        );
    }
}
