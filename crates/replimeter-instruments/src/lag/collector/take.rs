//! Receives the messages of writers and observers.

use std::sync::mpsc::{Receiver, TryRecvError};

use super::{
    super::{
        Slot,
        arrivals::{Arrivals, MatchedRow},
        observer_event::ObserverEvent,
        writer::WriterEvent,
    },
    Collector, PendingRow,
};
use crate::lag::{
    sample::{Phase, Sighting, SightingDetail},
    settings::Method,
};

impl Collector<'_> {
    /// Receives the writers' messages; returns true when no more can come.
    pub(super) fn take_writes(&mut self, writes: &Receiver<WriterEvent>) -> bool {
        loop {
            match writes.try_recv() {
                Ok(WriterEvent::Wrote(write, commit_id)) => {
                    if let (Some(arrivals), Some(commit_id)) = (&mut self.arrivals, &commit_id)
                        && let Ok(commit_id) = commit_id.parse()
                    {
                        arrivals.record_write(commit_id, write.seq);
                    }
                    if write.phase == Phase::ReferenceSelect {
                        self.acks.push_back(write.ack);
                    }
                    if write.phase == Phase::Measure {
                        self.ending.lateness.record(write.send - write.intended);
                        let first = *self.first_send.get_or_insert(write.send);
                        self.ending.measured = write.ack - first;
                        self.ending.counted += 1;
                    }
                    let entry = self.entry(write.seq);
                    (entry.write, entry.commit_id) = (Some(write), commit_id);
                }
                Ok(WriterEvent::Emptied) => self.emptied += 1,
                Err(TryRecvError::Empty) => return false,
                Err(TryRecvError::Disconnected) => return true,
            }
        }
    }

    /// Receives the observers' messages; returns true when no more can come.
    pub(super) fn take_sightings(&mut self, sightings: &Receiver<ObserverEvent>) -> bool {
        loop {
            match sightings.try_recv() {
                Ok(ObserverEvent::Row { slot, sighting }) => {
                    self.entry(sighting.seq).sightings[slot] = Some(sighting)
                }
                Ok(ObserverEvent::Unplaced { slot, seq }) => self.entry(seq).unplaced.push(slot),
                Ok(ObserverEvent::Stages(observation)) => {
                    if let Some(fall) = self.waterfalls.get_mut(observation.replica) {
                        fall.record_observation(&observation);
                    }
                }
                Ok(ObserverEvent::Warning(warning)) => self.ending.warnings.push(warning),
                Ok(ObserverEvent::Arrived {
                    stream,
                    commit_id,
                    at,
                }) => {
                    if let Some(arrivals) = &mut self.arrivals {
                        arrivals.arrived(stream, commit_id, at);
                    }
                }
                Ok(ObserverEvent::PointSelect { began, ended }) => {
                    self.point_selects.push_back((began, ended))
                }
                Err(TryRecvError::Empty) => return false,
                Err(TryRecvError::Disconnected) => return true,
            }
        }
    }

    /// Converts rows that arrived on the primary's and a replica's binary log into sightings.
    pub(super) fn take_matches(&mut self) {
        let matches = self
            .arrivals
            .as_mut()
            .map(Arrivals::take_matches)
            .unwrap_or_default();
        for MatchedRow {
            seq,
            replica,
            on_primary,
            on_replica,
        } in matches
        {
            let tap = |slot: &Slot| slot.replica == replica && slot.method == Method::Tap;
            let Some(slot) = self.slots.iter().position(tap) else {
                continue;
            };
            let detail = SightingDetail::Primary(on_primary);
            self.entry(seq).sightings[slot] = Some(Sighting {
                seq,
                after: on_replica,
                hit_began: on_replica,
                until: on_replica,
                detail,
            });
            self.tapped[slot].insert(seq);
            self.shared_state
                .record_seen_up_to(slot, self.tapped[slot].low());
        }
    }

    /// Finds the point select that was in progress at each acknowledgement, and drops those before
    /// it.
    pub(super) fn match_point_selects(&mut self) {
        while let (Some(ack), Some(newest)) =
            (self.acks.front().copied(), self.point_selects.back())
        {
            if newest.1 < ack {
                return;
            }
            self.acks.pop_front();
            while let Some((began, ended)) = self.point_selects.front().copied() {
                if ended >= ack {
                    if began <= ack {
                        self.ending.at_ack.record(ended - began);
                    }
                    break;
                }
                self.point_selects.pop_front();
            }
        }
    }

    fn entry(&mut self, seq: u64) -> &mut PendingRow {
        let slots = self.slots.len();
        self.touched.push(seq);
        self.pending.entry(seq).or_insert_with(|| PendingRow {
            write: None,
            commit_id: None,
            sightings: vec![None; slots],
            reported: vec![false; slots],
            unplaced: Vec::new(),
        })
    }
}
