//! Joins writes with sightings, and watches for rows that never become visible.

mod overdue;
mod take;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, mpsc::Receiver},
    thread,
    time::Duration,
};

use replimeter_model::{
    stages::Stages,
    time::Nanos,
    warning::{Warning, WarningCode},
};
use replimeter_stats::signed::SignedHistogram;

use super::{
    Event, MethodComparison, Slot,
    arrivals::Arrivals,
    observer_event::{ObserverEvent, SeenRows},
    script::Script,
    shared_state::SharedState,
    waterfalls::ReplicaWaterfall,
    writer::WriterEvent,
};
use crate::{
    Listener, MeasureError,
    clock::Clock,
    lag::{
        sample::{LagSample, Phase, Sighting, SightingDetail, Write},
        settings::{LagPlan, Method},
    },
    preflight::Cluster,
    table::{RowBudget, keep_alive},
};

/// Interval between collections. The thread sleeps in between and is never woken, so that handing it a
/// sample costs the measuring threads no system call.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// How long the run waits for rows in flight after the user's stop.
const GRACE: Nanos = Nanos(1_000_000_000);
/// Interval between progress reports.
const PROGRESS: Nanos = Nanos(100_000_000);
/// Interval at which idle sessions are used, so that no server closes them.
const KEEP_ALIVE: Nanos = Nanos(10_000_000_000);

/// Progress of a run.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// The part that runs.
    pub phase: Phase,
    /// Rows seen on every replica with every method.
    pub done: u64,
    /// Total number of rows; `None` when a time ends the part.
    pub total: Option<u64>,
    /// The newest sample's lag from the acknowledgement, in microseconds.
    pub last_us: Option<f64>,
    /// Rows written and not yet seen everywhere.
    pub outstanding: u64,
}

/// Result of a part.
#[derive(Default)]
pub(super) struct PartEnd {
    pub(super) counted: u64,
    pub(super) interrupted: bool,
    pub(super) failure: Option<MeasureError>,
    pub(super) lateness: SignedHistogram,
    /// Point selects that were in progress when a reference row was acknowledged.
    pub(super) at_ack: SignedHistogram,
    pub(super) measured: Nanos,
    /// The stages of each replica, if they were observed.
    pub(super) stages: Vec<Option<Stages>>,
    pub(super) warnings: Vec<Warning>,
}

/// A row that still waits for its write or a sighting.
#[derive(Default)]
struct PendingRow {
    write: Option<Write>,
    commit_id: Option<Arc<str>>,
    sightings: Vec<Option<Sighting>>,
    reported: Vec<bool>,
    /// Slots that cannot determine their time of this row.
    unplaced: Vec<usize>,
}

/// Joins writes and sightings of one part of a run.
pub(super) struct Collector<'a> {
    shared_state: &'a SharedState,
    clock: &'a Clock,
    plan: &'a LagPlan,
    slots: &'a [Slot],
    /// The waterfall of each replica, if stages are observed.
    waterfalls: Vec<ReplicaWaterfall>,
    /// Transactions seen by the taps, if the binary logs are followed.
    arrivals: Option<Arrivals>,
    /// Rows matched by the taps, per slot.
    tapped: Vec<SeenRows>,
    phase: Phase,
    total: Option<u64>,
    pending: BTreeMap<u64, PendingRow>,
    /// Rows that changed since the last collection.
    touched: Vec<u64>,
    done: u64,
    last: Option<Nanos>,
    first_send: Option<Nanos>,
    emptied: u64,
    /// Recent point selects, and acknowledgements not yet matched with one.
    point_selects: VecDeque<(Nanos, Nanos)>,
    acks: VecDeque<Nanos>,
    stopped_at: Option<Nanos>,
    next_progress: Nanos,
    next_check: Nanos,
    next_keep_alive: Nanos,
    ending: PartEnd,
}

impl<'a> Collector<'a> {
    pub(super) fn new(
        shared_state: &'a SharedState,
        clock: &'a Clock,
        plan: &'a LagPlan,
        slots: &'a [Slot],
        waterfalls: Vec<ReplicaWaterfall>,
        last: u64,
        script: &Script,
    ) -> Self {
        let taps = slots
            .iter()
            .filter(|slot| slot.method == Method::Tap)
            .count();
        Self {
            shared_state,
            clock,
            plan,
            slots,
            waterfalls,
            arrivals: (taps > 0).then(|| Arrivals::new(taps + 1)),
            tapped: slots.iter().map(|_| SeenRows::new(last)).collect(),
            phase: script.phase(),
            total: script.total(),
            pending: BTreeMap::new(),
            touched: Vec::new(),
            done: 0,
            last: None,
            first_send: None,
            emptied: 0,
            point_selects: VecDeque::new(),
            acks: VecDeque::new(),
            stopped_at: None,
            next_progress: Nanos(0),
            next_check: Nanos(0),
            next_keep_alive: clock.now() + KEEP_ALIVE,
            ending: PartEnd::default(),
        }
    }

    /// Collects until every row was seen, or an error or the user ends the run.
    pub(super) fn run(
        mut self,
        writes: &Receiver<WriterEvent>,
        sightings: &Receiver<ObserverEvent>,
        cluster: &mut Cluster,
        listener: &mut Listener<'_, Event>,
    ) -> PartEnd {
        loop {
            let writer_gone = self.take_writes(writes);
            let observers_gone = self.take_sightings(sightings);
            self.take_matches();
            self.match_point_selects();
            let handed_on = self.hand_on(listener);
            let now = self.clock.now();
            if let Err(error) = handed_on.and_then(|()| self.report(now, listener)) {
                self.ending.failure = Some(error);
                break;
            }
            if self.shared_state.finished() && writer_gone && self.pending.is_empty() {
                break;
            }
            // Nothing more is written, and the remaining rows are of another writer: they would be
            // awaited forever.
            if self.shared_state.finished()
                && writer_gone
                && self.pending.values().all(|pending| pending.write.is_none())
            {
                let cause = format!(
                    "{} rows appeared that this run did not write",
                    self.pending.len()
                );
                let hint = "wait until other runs on this cluster have ended";
                self.ending.failure = Some(
                    cluster
                        .primary
                        .session
                        .precondition("cannot measure", cause, hint)
                        .into(),
                );
                break;
            }
            // A thread that ended early has the cause; the caller joins it.
            if self.shared_state.halted() || observers_gone {
                break;
            }
            if self.is_stopped(now, listener) {
                break;
            }
            if now >= self.next_keep_alive {
                self.next_keep_alive = now + KEEP_ALIVE;
                if let Err(error) = keep_alive(cluster) {
                    self.ending.failure = Some(error.into());
                    break;
                }
            }
            if let Some(failure) = self.overdue(now, cluster) {
                self.ending.failure = Some(failure);
                break;
            }
            thread::sleep(POLL_INTERVAL);
        }
        self.finish(listener)
    }

    /// Passes complete samples to the listener and drops rows that every slot has seen.
    fn hand_on(&mut self, listener: &mut Listener<'_, Event>) -> Result<(), MeasureError> {
        for seq in std::mem::take(&mut self.touched) {
            let Some(pending) = self.pending.get_mut(&seq) else {
                continue;
            };
            let Some(write) = pending.write else { continue };
            for (index, (slot, sighting)) in self.slots.iter().zip(&pending.sightings).enumerate() {
                if (sighting.is_some() || pending.unplaced.contains(&index))
                    && !pending.reported[index]
                {
                    pending.reported[index] = true;
                    let unplaced = sighting.is_none();
                    let sample = LagSample {
                        replica: slot.replica,
                        method: slot.method,
                        write,
                        sighting: *sighting,
                        unplaced,
                    };
                    self.last = sample.from_ack();
                    listener.send(Event::Sample(sample))?;
                }
            }
            if pending.reported.iter().all(|reported| *reported) {
                compare(self.slots, &write, &pending.sightings, listener)?;
                if write.phase == Phase::Measure {
                    fall(&mut self.waterfalls, self.slots, &write, pending);
                }
                self.pending.remove(&seq);
                self.done += u64::from(write.phase != Phase::Settle);
            }
        }
        Ok(())
    }

    fn report(
        &mut self,
        now: Nanos,
        listener: &mut Listener<'_, Event>,
    ) -> Result<(), MeasureError> {
        if now < self.next_progress {
            return Ok(());
        }
        self.next_progress = now + PROGRESS;
        listener.send(Event::Progress(Progress {
            phase: self.phase,
            done: self.done,
            total: self.total,
            last_us: self.last.map(Nanos::as_micros),
            outstanding: self.pending.len() as u64,
        }))
    }

    /// Returns whether the user's stop ends the run: writes stop at once, and rows in flight get a
    /// short grace period.
    fn is_stopped(&mut self, now: Nanos, listener: &Listener<'_, Event>) -> bool {
        if !listener.is_stopped() {
            return false;
        }
        self.ending.interrupted = true;
        let since = *self.stopped_at.get_or_insert(now);
        if since == now {
            self.shared_state.halt_writer();
        }
        self.pending.is_empty() || now - since > GRACE
    }

    /// Passes on rows that never became visible, and returns the result.
    fn finish(mut self, listener: &mut Listener<'_, Event>) -> PartEnd {
        if self.ending.failure.is_some() || self.ending.interrupted {
            let now = self.clock.now();
            let timeout = Nanos::from(self.plan.timeout.0);
            for pending in self.pending.values() {
                let Some(write) = pending.write else { continue };
                // Rows that were in flight at the end have not timed out.
                if now - write.send < timeout {
                    continue;
                }
                for (slot, _) in self
                    .slots
                    .iter()
                    .zip(&pending.reported)
                    .filter(|(_, reported)| !**reported)
                {
                    let sample = LagSample {
                        replica: slot.replica,
                        method: slot.method,
                        write,
                        sighting: None,
                        unplaced: false,
                    };
                    let _ = listener.send(Event::Sample(sample));
                }
            }
        }
        self.ending.stages = std::mem::take(&mut self.waterfalls)
            .into_iter()
            .map(ReplicaWaterfall::finish)
            .collect();
        if self.emptied > 0 {
            self.ending.warnings.push(Warning::new(
                WarningCode::TableEmptied,
                format!(
                    "the write schedule paused {} times to empty the table (every {} MiB of payload or {} rows); the pauses do not count as lag",
                    self.emptied,
                    RowBudget::MAX_BYTES >> 20,
                    RowBudget::MAX_ROWS
                ),
                "no action needed",
            ));
        }
        self.ending
    }
}

/// Reports the differences between the methods for a row that all of them saw: each is compared with
/// the first method of its replica.
fn compare(
    slots: &[Slot],
    write: &Write,
    sightings: &[Option<Sighting>],
    listener: &mut Listener<'_, Event>,
) -> Result<(), MeasureError> {
    for (slot, sighting) in slots.iter().zip(sightings) {
        let first = slots
            .iter()
            .zip(sightings)
            .find(|(other, _)| other.replica == slot.replica);
        if let (Some(sighting), Some((reference, Some(theirs)))) = (sighting, first)
            && reference.method != slot.method
        {
            listener.send(Event::Compared(MethodComparison {
                replica: slot.replica,
                method: slot.method,
                reference: reference.method,
                write: *write,
                difference: sighting.until - theirs.until,
            }))?;
        }
    }
    Ok(())
}

/// Adds a row that every slot has seen to each replica's waterfall.
fn fall(waterfalls: &mut [ReplicaWaterfall], slots: &[Slot], write: &Write, pending: &PendingRow) {
    let of = |replica, method| {
        let slot = slots
            .iter()
            .position(|slot| *slot == Slot { replica, method })?;
        pending.sightings[slot].as_ref()
    };
    for (replica, fall) in waterfalls.iter_mut().enumerate() {
        let logged = of(replica, Method::Tap).and_then(|sighting| match sighting.detail {
            SightingDetail::Primary(at) => Some(at),
            _ => None,
        });
        if let Some(sighting) = of(replica, Method::Poll) {
            fall.seen(write, pending.commit_id.as_deref(), logged, sighting);
        }
    }
}
