//! Reads the positions of both servers over separate sessions.

use std::time::Duration;

use replimeter_engine::{
    Node, ServerError, Session,
    position::{EnginesDiffer, Position},
};
use replimeter_model::engine::Engine;

use super::readings::BacklogReading;
use crate::{clock::Clock, preflight::Cluster};

/// Sessions that only read positions.
pub(super) struct PositionProbe {
    engine: Engine,
    primary: Session,
    replica: Session,
}

impl PositionProbe {
    pub(super) fn open(
        cluster: &Cluster,
        index: usize,
        answer: Duration,
    ) -> Result<Self, ServerError> {
        let open = |node: &Node| {
            Session::open(&Node {
                answer,
                ..node.clone()
            })
        };
        let replica = open(&cluster.replicas[index].server.node)?;
        Ok(Self {
            engine: cluster.primary.facts.engine,
            primary: open(&cluster.primary.node)?,
            replica,
        })
    }

    /// Reads the replica first: every transaction that it has, the primary had before.
    pub(super) fn read(&mut self, clock: &Clock) -> Result<BacklogReading, ServerError> {
        let began = clock.now();
        let applied = Position::applied(self.engine, &mut self.replica)?;
        let between = clock.now();
        let written = Position::written(self.engine, &mut self.primary)?;
        let ended = clock.now();
        let differ = |error: EnginesDiffer| error.on(&self.replica);
        Ok(BacklogReading {
            at: began.midpoint(between),
            primary_at: between.midpoint(ended),
            written: written.count(&written).map_err(differ)?,
            applied: applied.count(&written).map_err(differ)?,
            behind: applied.behind(&written).map_err(differ)?,
        })
    }
}
