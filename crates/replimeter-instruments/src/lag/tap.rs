//! Follows a server's binary log while rows are written.

use std::sync::mpsc::Sender;

use replimeter_engine::{
    Node, ServerError, Session,
    binlog::{
        Follower, Start,
        fitness::{self, Role},
    },
    facts::Facts,
};

use super::{board::Board, seen::Seen};
use crate::{clock::Clock, preflight::Cluster};

/// The stream of one server's binary log.
pub(super) struct Tap {
    follower: Follower,
    /// 0 for the primary, then the observed servers.
    stream: usize,
}

impl Tap {
    /// Connects with an unused `server_id` and requests all transactions that are committed from now
    /// on.
    pub(super) fn open(node: &Node, facts: &Facts, stream: usize) -> Result<Self, ServerError> {
        let taken = fitness::server_ids(&mut Session::open(node)?, facts)?.unwrap_or_default();
        let follower = Follower::open(node, facts, fitness::unused_server_id(&taken), &Start::Now)?;
        Ok(Self { follower, stream })
    }

    /// Sends every transaction to the collector until the part ends.
    pub(super) fn run(
        mut self,
        clock: &Clock,
        board: &Board,
        real_time: bool,
        sighted: &Sender<Seen>,
    ) -> Result<(), ServerError> {
        let stream = self.stream;
        board.measuring(real_time, || {
            while !board.halted() {
                self.follower.read(|| clock.now(), &mut |arrived| {
                    if let Some(gtid) = arrived.gtid {
                        let _ = sighted.send(Seen::Arrived {
                            stream,
                            gtid,
                            at: arrived.arrived,
                        });
                    }
                })?;
            }
            Ok(())
        })
    }
}

/// Checks that the binary logs of all servers can be followed and matched.
pub(super) fn check(cluster: &mut Cluster) -> Result<(), ServerError> {
    let primary = &mut cluster.primary;
    fitness::check(&primary.session, &primary.facts, Role::Source)?;
    // A missing privilege shows only when the stream is requested.
    drop(Tap::open(&primary.node, &primary.facts, 0)?);
    for replica in &mut cluster.replicas {
        let server = &replica.server;
        fitness::check(&server.session, &server.facts, Role::Applier)?;
        fitness::check_domains(&server.session, &server.facts, &cluster.primary.facts)?;
        drop(Tap::open(&server.node, &server.facts, 1)?);
    }
    Ok(())
}
