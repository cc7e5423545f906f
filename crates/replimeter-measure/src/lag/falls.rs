//! Gathers the waterfall of every replica while the run goes on.

use replimeter_model::{
    engine::Engine,
    sample::{Sighting, Write},
    stages::Stages,
    time::Nanos,
};
use replimeter_stats::waterfall::{Point, Points, Waterfall};

use super::{
    stages::{GALERA_CHAIN, Joiner, Transaction, chain},
    watcher::{Clocks, Told},
};

/// One replica's.
pub(super) struct Fall {
    /// `None` on Galera, whose nodes tell nothing.
    joiner: Option<Joiner>,
    waterfall: Waterfall,
}

impl Fall {
    /// Of a replica that replicates through a channel or is a member of a group.
    pub(super) fn new(engine: Engine, replica: &str, tap: bool, clocks: Clocks) -> Self {
        let [primary, own] = clocks;
        Self {
            joiner: Some(Joiner::new(primary, own)),
            waterfall: Waterfall::new(&chain(engine, replica, tap)),
        }
    }

    /// Of a Galera node.
    pub(super) fn galera() -> Self {
        Self {
            joiner: None,
            waterfall: Waterfall::new(&GALERA_CHAIN),
        }
    }

    /// Takes what the replica said.
    pub(super) fn told(&mut self, told: &Told) {
        let Some(joiner) = &mut self.joiner else {
            return;
        };
        let [primary, own] = told.clocks;
        joiner.set_clocks(primary, own);
        joiner.answer(told.began, told.ended, &told.answer);
        for (_, points) in joiner.take() {
            self.waterfall.record(&points);
        }
    }

    /// Takes a row that was seen by a read, and when it was in the primary's binary log
    /// by a tap.
    pub(super) fn seen(
        &mut self,
        write: &Write,
        gtid: Option<&str>,
        in_binlog: Option<Nanos>,
        sighting: &Sighting,
    ) {
        // It was there after the send, before the tap heard of it and before the primary answered.
        let in_binlog =
            in_binlog.map(|at| Point::within(write.send, at.min(write.ack).max(write.send)));
        let after = Some(sighting.after).filter(|after| *after > write.send);
        match (&mut self.joiner, gtid) {
            (Some(joiner), Some(gtid)) => joiner.transaction(Transaction {
                seq: write.seq,
                gtid: gtid.to_owned(),
                send: write.send,
                ack: write.ack,
                in_binlog,
                visible_after: after,
                visible_until: sighting.until,
            }),
            (None, _) => {
                let exact = |at| Some(Point::new(at, Nanos(0)));
                let visible = Some(Point::within(after.unwrap_or(write.send), sighting.until));
                let points = Points {
                    send: exact(write.send),
                    ack: exact(write.ack),
                    visible,
                    ..Points::default()
                };
                self.waterfall.record(&points);
            }
            (Some(_), None) => {}
        }
    }

    /// Sums up.
    pub(super) fn finish(mut self) -> Option<Stages> {
        if let Some(joiner) = self.joiner.take() {
            for (_, points) in joiner.finish() {
                self.waterfall.record(&points);
            }
        }
        self.waterfall.stages()
    }
}
