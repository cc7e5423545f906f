//! Servers that apply what the servers of a run write to their binary logs, or to their cluster.

use std::collections::BTreeSet;

use replimeter_engine::{
    ServerError, Session,
    dialect::{ConnectedReplica, connected_replicas, replicas_privilege},
    facts::ServerFacts,
    membership::ClusterState,
};

/// The servers that were asked about the schema, and those that apply what they log.
#[derive(Debug, Default)]
pub(super) struct Readers {
    /// Every `server_id` of the servers that were asked.
    asked: BTreeSet<u64>,
    /// Number of members of a cluster among them, and of all members that these see.
    members: [usize; 2],
    /// The replicas that are connected to each.
    connected: Vec<(String, ConnectedReplica)>,
}

impl Readers {
    /// Adds a server that was asked, and the servers that apply what it writes.
    ///
    /// # Errors
    /// When the user may not see them, or the connection breaks.
    pub(super) fn add(&mut self, session: &mut Session) -> Result<(), ServerError> {
        let facts = ServerFacts::read(session)?;
        self.asked.insert(facts.identity().server_id);
        if let Some(state) = ClusterState::current(session)? {
            self.members = [self.members[0] + 1, self.members[1].max(state.size())];
        }
        if !facts.on("log_bin") {
            return Ok(());
        }
        let connected = connected_replicas(facts.engine, session).map_err(|mut error| {
            if error.is_refusal() {
                error.hint = format!(
                    "GRANT {} ON *.* to the user",
                    replicas_privilege(facts.engine)
                );
            }
            error
        })?;
        let server = session.to_string();
        self.connected.extend(
            connected
                .into_iter()
                .map(|replica| (server.clone(), replica)),
        );
        Ok(())
    }

    /// Returns a server that was not asked.
    pub(super) fn unasked(&self) -> Option<String> {
        let [asked, all] = self.members;
        if asked < all {
            return Some(format!(
                "{asked} of the {all} members of the cluster were asked"
            ));
        }
        let mut connected = self.connected.iter();
        connected
            .find(|(_, replica)| !self.asked.contains(&replica.server_id))
            .map(|(server, replica)| {
                format!("{replica} replicates from {server} and was not asked")
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replica_or_member_that_was_not_asked_is_named() {
        let replica = |server_id| ConnectedReplica {
            server_id,
            address: None,
            is_program: false,
        };
        let mut readers = Readers {
            asked: BTreeSet::from([1, 2]),
            members: [0, 0],
            connected: vec![("primary".to_owned(), replica(2))],
        };
        assert_eq!(readers.unasked(), None);
        readers.connected.push(("replica1".to_owned(), replica(9)));
        assert_eq!(
            readers.unasked().as_deref(),
            Some("server_id 9 replicates from replica1 and was not asked")
        );
        readers.members = [2, 3];
        let cluster = "2 of the 3 members of the cluster were asked";
        assert_eq!(readers.unasked().as_deref(), Some(cluster));
        readers.members = [3, 3];
        readers.asked.insert(9);
        assert_eq!(readers.unasked(), None);
    }
}
