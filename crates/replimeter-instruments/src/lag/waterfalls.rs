//! Collects the waterfall of every replica during the run.

use replimeter_engine::dialect::stages::{CHAIN_OF_A_NODE, chain};
use replimeter_model::{engine::Engine, stages::Stages, time::Nanos};
use replimeter_stats::waterfall::{Point, Points, Waterfall};

use super::{
    observer_event::{Clocks, StageObservation},
    stage_joiner::{StageJoiner, Transaction},
};
use crate::lag::sample::{Sighting, Write};

/// The waterfall of one replica.
pub(super) struct ReplicaWaterfall {
    /// `None` on Galera, whose nodes report no stages.
    joiner: Option<StageJoiner>,
    waterfall: Waterfall,
}

impl ReplicaWaterfall {
    /// Creates the waterfall of a replica that has a channel or is a member of a group.
    pub(super) fn new(engine: Engine, replica: &str, tap: bool, clocks: Clocks) -> Self {
        let [primary, own] = clocks;
        let waterfall = Waterfall::new(&chain(engine, replica, tap));
        Self {
            joiner: Some(StageJoiner::new(primary, own)),
            waterfall,
        }
    }

    /// Creates the waterfall of a node that reports no stages.
    pub(super) fn of_a_node() -> Self {
        Self {
            joiner: None,
            waterfall: Waterfall::new(&CHAIN_OF_A_NODE),
        }
    }

    /// Adds an observation of the replica.
    pub(super) fn record_observation(&mut self, observation: &StageObservation) {
        let Some(joiner) = &mut self.joiner else {
            return;
        };
        let [primary, own] = observation.clocks;
        joiner.set_clocks(primary, own);
        joiner.answer(observation.began, observation.ended, &observation.answer);
        for (_, points) in joiner.take() {
            self.waterfall.record(&points);
        }
    }

    /// Adds a row that a read has shown. `logged` is the time at which a tap received it from the
    /// primary's binary log.
    pub(super) fn seen(
        &mut self,
        write: &Write,
        commit_id: Option<&str>,
        logged: Option<Nanos>,
        sighting: &Sighting,
    ) {
        // It was there after the send, before the tap received it and before the primary acknowledged
        // it.
        let logged = logged.map(|at| Point::within(write.send, at.min(write.ack).max(write.send)));
        let after = Some(sighting.after).filter(|after| *after > write.send);
        match (&mut self.joiner, commit_id) {
            (Some(joiner), Some(commit_id)) => joiner.transaction(Transaction {
                seq: write.seq,
                commit_id: commit_id.to_owned(),
                send: write.send,
                ack: write.ack,
                logged,
                visible_after: after,
                visible_until: sighting.until,
            }),
            (None, _) => {
                let exact = |at| Some(Point::new(at, Nanos(0)));
                let visible = Some(Point::within(after.unwrap_or(write.send), sighting.until));
                self.waterfall.record(&Points {
                    send: exact(write.send),
                    ack: exact(write.ack),
                    visible,
                    ..Points::default()
                });
            }
            (Some(_), None) => {}
        }
    }

    /// Returns the stages of all recorded transactions.
    pub(super) fn finish(mut self) -> Option<Stages> {
        if let Some(joiner) = self.joiner.take() {
            for (_, points) in joiner.finish() {
                self.waterfall.record(&points);
            }
        }
        self.waterfall.stages()
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::known::known;

    /// Input of the waterfalls.
    #[derive(Deserialize)]
    #[serde(rename_all = "snake_case")]
    #[allow(clippy::large_enum_variant, reason = "one at a time is read")]
    enum Input {
        /// A replica's waterfall begins; for a Galera node the engine is `None`.
        Waterfall {
            replica: String,
            engine: Option<Engine>,
            tap: bool,
        },
        /// The points of one transaction.
        Transaction { replica: String, points: Points },
    }

    #[test]
    fn recorded_points_reproduce_the_same_stages() {
        for case in known::<Input>("lag") {
            let mut waterfalls: Vec<(String, Waterfall)> = Vec::new();
            for input in case.input {
                match input {
                    Input::Waterfall {
                        replica,
                        engine,
                        tap,
                    } => {
                        let chain = engine.map_or_else(
                            || CHAIN_OF_A_NODE.to_vec(),
                            |engine| chain(engine, &replica, tap),
                        );
                        let waterfall = Waterfall::new(&chain);
                        waterfalls.push((replica, waterfall));
                    }
                    Input::Transaction { replica, points } => {
                        waterfalls
                            .iter_mut()
                            .find(|(name, _)| *name == replica)
                            .unwrap()
                            .1
                            .record(&points);
                    }
                }
            }
            let stages: Vec<Option<Stages>> = waterfalls
                .iter()
                .map(|(_, waterfall)| waterfall.stages())
                .collect();
            assert_eq!(
                serde_json::to_value(stages).unwrap(),
                case.result,
                "{}",
                case.name
            );
        }
    }
}
