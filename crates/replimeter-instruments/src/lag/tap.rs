//! Follows a server's binary log while rows are written.

use std::sync::mpsc::Sender;

use replimeter_engine::{
    Node, ServerError, Session,
    facts::ServerFacts,
    follow::{
        Follower, StartPosition,
        requirements::{self, FollowPurpose},
    },
};

use super::{observer_event::ObserverEvent, shared_state::SharedState};
use crate::{clock::Clock, preflight::Cluster};

/// The stream of one server's binary log.
pub(super) struct LogTap {
    follower: Follower,
    /// 0 for the primary, then the observed servers.
    stream: usize,
}

impl LogTap {
    /// Connects with an unused `server_id` and requests all transactions that are committed from now
    /// on.
    pub(super) fn open(
        node: &Node,
        facts: &ServerFacts,
        stream: usize,
    ) -> Result<Self, ServerError> {
        let taken = requirements::server_ids(&mut Session::open(node)?, facts)?.unwrap_or_default();
        let follower = Follower::open(
            node,
            facts,
            requirements::unused_server_id(&taken),
            &StartPosition::Now,
        )?;
        Ok(Self { follower, stream })
    }

    /// Sends every transaction to the collector until the part ends.
    pub(super) fn watch(
        &mut self,
        clock: &Clock,
        shared_state: &SharedState,
        sighted: &Sender<ObserverEvent>,
    ) -> Result<(), ServerError> {
        let stream = self.stream;
        while !shared_state.halted() {
            self.follower.read(|| clock.now(), &mut |arrived| {
                if let Some(commit_id) = arrived.commit_id {
                    let _ = sighted.send(ObserverEvent::Arrived {
                        stream,
                        commit_id,
                        at: arrived.arrived,
                    });
                }
            })?;
        }
        Ok(())
    }
}

/// Checks that the binary logs of all servers can be followed and matched.
pub(super) fn check(cluster: &mut Cluster) -> Result<(), ServerError> {
    cluster.check_comparable()?;
    let primary = &mut cluster.primary;
    requirements::check(&primary.session, &primary.facts, FollowPurpose::Source)?;
    // A missing privilege shows only when the stream is requested.
    drop(LogTap::open(&primary.node, &primary.facts, 0)?);
    for replica in &mut cluster.replicas {
        let server = &replica.server;
        requirements::check(&server.session, &server.facts, FollowPurpose::Applier)?;
        requirements::check_domains(&server.session, &server.facts, &cluster.primary.facts)?;
        drop(LogTap::open(&server.node, &server.facts, 1)?);
    }
    Ok(())
}
