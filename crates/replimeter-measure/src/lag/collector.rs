//! Joins writes with sightings, watches for rows that never come.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{Receiver, TryRecvError},
    },
    thread,
    time::Duration,
};

use replimeter_model::{
    plan::{LagPlan, Method},
    sample::{Beside, LagSample, Phase, Sighting, Write},
    stages::Stages,
    time::Nanos,
    warning::{Warning, WarningCode},
};
use replimeter_server::ErrorKind;
use replimeter_stats::signed::SignedHistogram;

use super::{
    Compared, Listener, Slot,
    arrivals::{Arrivals, Matched},
    board::Board,
    falls::Fall,
    observer::Seen,
    script::Script,
    seen::SeenRows,
    writer::Word,
};
use crate::{MeasureError, clock::Clock, preflight::Cluster, table::keep_alive};

/// How often the collector looks. It sleeps in between and is never woken, so
/// that handing it a sample costs the measuring threads no system call.
const NAP: Duration = Duration::from_millis(5);
/// How long after the user's stop rows under way are still awaited.
const GRACE: Nanos = Nanos(1_000_000_000);
/// How often the caller hears of progress.
const PROGRESS: Nanos = Nanos(100_000_000);
/// How often the sessions beside the measuring path are used, so that no server
/// closes them as idle.
const KEEP_ALIVE: Nanos = Nanos(10_000_000_000);
/// How old a row must be before the replica is asked whether it is broken.
const SUSPICIOUS: Nanos = Nanos(1_000_000_000);

/// How far a run is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Which part.
    pub phase: Phase,
    /// Rows seen by every replica, by every method.
    pub done: u64,
    /// Rows in all; `None` when the time decides.
    pub total: Option<u64>,
    /// The newest sample's lag from the acknowledgement, in microseconds.
    pub last_us: Option<f64>,
    /// Rows written and not yet seen everywhere.
    pub outstanding: u64,
}

/// How a part ended.
#[derive(Default)]
pub(super) struct Ending {
    pub(super) counted: u64,
    pub(super) interrupted: bool,
    pub(super) failure: Option<MeasureError>,
    pub(super) lateness: SignedHistogram,
    /// Point selects under way when a yardstick row was acknowledged.
    pub(super) at_ack: SignedHistogram,
    pub(super) measured: Nanos,
    /// The waterfall of each replica, when stages were observed.
    pub(super) stages: Vec<Option<Stages>>,
    pub(super) warnings: Vec<Warning>,
}

/// A row of which something is still awaited.
#[derive(Default)]
struct Pending {
    write: Option<Write>,
    gtid: Option<Arc<str>>,
    sightings: Vec<Option<Sighting>>,
    told: Vec<bool>,
    /// Slots whose time of this row cannot be told.
    untold: Vec<usize>,
}

/// Joins writes and sightings of one part of a run.
pub(super) struct Collector<'a> {
    board: &'a Board,
    clock: &'a Clock,
    plan: &'a LagPlan,
    slots: &'a [Slot],
    /// The waterfall of each replica, when stages are observed.
    falls: Vec<Fall>,
    /// What the taps saw, when somebody follows the binary logs.
    arrivals: Option<Arrivals>,
    /// Rows matched by the taps, per slot.
    tapped: Vec<SeenRows>,
    phase: Phase,
    total: Option<u64>,
    pending: BTreeMap<u64, Pending>,
    /// Rows that something new is known of.
    touched: Vec<u64>,
    done: u64,
    last: Option<Nanos>,
    first_send: Option<Nanos>,
    emptied: u64,
    /// Point selects of late, and acknowledgements not yet matched with one.
    point_selects: VecDeque<(Nanos, Nanos)>,
    acks: VecDeque<Nanos>,
    stopped_at: Option<Nanos>,
    next_progress: Nanos,
    next_check: Nanos,
    next_keep_alive: Nanos,
    ending: Ending,
}

impl<'a> Collector<'a> {
    pub(super) fn new(
        board: &'a Board,
        clock: &'a Clock,
        plan: &'a LagPlan,
        slots: &'a [Slot],
        falls: Vec<Fall>,
        last: u64,
        script: &Script,
    ) -> Self {
        let taps = slots
            .iter()
            .filter(|slot| slot.method == Method::Tap)
            .count();
        Self {
            board,
            clock,
            plan,
            slots,
            falls,
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
            ending: Ending::default(),
        }
    }

    /// Collects until everything was seen, or something ends the run.
    pub(super) fn run(
        mut self,
        writes: &Receiver<Word>,
        sightings: &Receiver<Seen>,
        cluster: &mut Cluster,
        listener: &mut Listener<'_>,
    ) -> Ending {
        loop {
            let writer_gone = self.take_writes(writes);
            let observers_gone = self.take_sightings(sightings);
            self.take_matches();
            self.match_point_selects();
            if let Err(error) = self.hand_on(listener) {
                self.ending.failure = Some(MeasureError::Sink(error));
                break;
            }
            let now = self.clock.now();
            self.report(now, listener);
            if self.board.finished() && writer_gone && self.pending.is_empty() {
                break;
            }
            // Nothing more is written, and what is left was never ours: it would be awaited for ever.
            if self.board.finished()
                && writer_gone
                && self.pending.values().all(|pending| pending.write.is_none())
            {
                let cause = format!(
                    "{} rows appeared that this run did not write",
                    self.pending.len()
                );
                let hint = "does another measurement write to another server of this cluster? let one end first";
                self.ending.failure = Some(
                    cluster
                        .primary
                        .session
                        .unfit("cannot measure", cause, hint)
                        .into(),
                );
                break;
            }
            // A thread that ended early has the reason; the caller joins it.
            if self.board.halted() || observers_gone {
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
            thread::sleep(NAP);
        }
        self.finish(listener)
    }

    /// Takes what the writer said; true when it will say nothing more.
    fn take_writes(&mut self, writes: &Receiver<Word>) -> bool {
        loop {
            match writes.try_recv() {
                Ok(Word::Wrote(write, gtid)) => {
                    if let (Some(arrivals), Some(gtid)) = (&mut self.arrivals, &gtid)
                        && let Ok(gtid) = gtid.parse()
                    {
                        arrivals.wrote(gtid, write.seq);
                    }
                    if write.phase == Phase::Yardstick {
                        self.acks.push_back(write.ack);
                    }
                    if write.phase == Phase::Measure {
                        self.ending.lateness.record(write.send - write.intended);
                        let first = *self.first_send.get_or_insert(write.send);
                        self.ending.measured = write.ack - first;
                        self.ending.counted += 1;
                    }
                    let entry = self.entry(write.seq);
                    (entry.write, entry.gtid) = (Some(write), gtid);
                }
                Ok(Word::Emptied) => self.emptied += 1,
                Err(TryRecvError::Empty) => return false,
                Err(TryRecvError::Disconnected) => return true,
            }
        }
    }

    /// Takes what the observers saw; true when none is left.
    fn take_sightings(&mut self, sightings: &Receiver<Seen>) -> bool {
        loop {
            match sightings.try_recv() {
                Ok(Seen::Row { slot, sighting }) => {
                    self.entry(sighting.seq).sightings[slot] = Some(sighting)
                }
                Ok(Seen::Untold { slot, seq }) => self.entry(seq).untold.push(slot),
                Ok(Seen::Told(told)) => {
                    if let Some(fall) = self.falls.get_mut(told.replica) {
                        fall.told(&told);
                    }
                }
                Ok(Seen::Odd(warning)) => self.ending.warnings.push(warning),
                Ok(Seen::Arrived { stream, gtid, at }) => {
                    if let Some(arrivals) = &mut self.arrivals {
                        arrivals.arrived(stream, gtid, at);
                    }
                }
                Ok(Seen::PointSelect { began, ended }) => {
                    self.point_selects.push_back((began, ended))
                }
                Err(TryRecvError::Empty) => return false,
                Err(TryRecvError::Disconnected) => return true,
            }
        }
    }

    /// Makes sightings of the rows that arrived on the primary's and a replica's binary log.
    fn take_matches(&mut self) {
        let matches = self
            .arrivals
            .as_mut()
            .map(Arrivals::take)
            .unwrap_or_default();
        for Matched {
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
            let beside = Beside::Primary(on_primary);
            self.entry(seq).sightings[slot] = Some(Sighting {
                seq,
                after: on_replica,
                hit_began: on_replica,
                until: on_replica,
                beside,
            });
            self.tapped[slot].insert(seq);
            self.board.saw_up_to(slot, self.tapped[slot].low());
        }
    }

    /// Finds the point select that was under way at each acknowledgement, and
    /// forgets those before it.
    fn match_point_selects(&mut self) {
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

    fn entry(&mut self, seq: u64) -> &mut Pending {
        let slots = self.slots.len();
        self.touched.push(seq);
        self.pending.entry(seq).or_insert_with(|| Pending {
            write: None,
            gtid: None,
            sightings: vec![None; slots],
            told: vec![false; slots],
            untold: Vec::new(),
        })
    }

    /// Hands complete samples on and forgets rows that everybody has seen.
    fn hand_on(&mut self, listener: &mut Listener<'_>) -> Result<(), String> {
        for seq in std::mem::take(&mut self.touched) {
            let Some(pending) = self.pending.get_mut(&seq) else {
                continue;
            };
            let Some(write) = pending.write else { continue };
            for (index, (slot, sighting)) in self.slots.iter().zip(&pending.sightings).enumerate() {
                if (sighting.is_some() || pending.untold.contains(&index)) && !pending.told[index] {
                    pending.told[index] = true;
                    let untold = sighting.is_none();
                    let sample = LagSample {
                        replica: slot.replica,
                        method: slot.method,
                        write,
                        sighting: *sighting,
                        untold,
                    };
                    self.last = sample.from_ack();
                    (listener.sample)(&sample)?;
                }
            }
            if pending.told.iter().all(|told| *told) {
                compare(self.slots, &write, &pending.sightings, listener);
                if write.phase == Phase::Measure {
                    fall(&mut self.falls, self.slots, &write, pending);
                }
                self.pending.remove(&seq);
                self.done += u64::from(write.phase != Phase::Settle);
            }
        }
        Ok(())
    }

    fn report(&mut self, now: Nanos, listener: &mut Listener<'_>) {
        if now < self.next_progress {
            return;
        }
        self.next_progress = now + PROGRESS;
        (listener.progress)(Progress {
            phase: self.phase,
            done: self.done,
            total: self.total,
            last_us: self.last.map(Nanos::as_micros),
            outstanding: self.pending.len() as u64,
        });
    }

    /// Heeds the user's stop: no more writes at once, a moment's grace for rows
    /// that are under way.
    fn is_stopped(&mut self, now: Nanos, listener: &Listener<'_>) -> bool {
        if !listener.stop.load(Ordering::Relaxed) {
            return false;
        }
        self.ending.interrupted = true;
        let since = *self.stopped_at.get_or_insert(now);
        if since == now {
            self.board.halt_writer();
        }
        self.pending.is_empty() || now - since > GRACE
    }

    /// What to say of rows that should have been seen long ago, of each replica
    /// its own oldest.
    fn overdue(&mut self, now: Nanos, cluster: &Cluster) -> Option<MeasureError> {
        let oldest = self.pending.values().find_map(|pending| pending.write)?;
        if now - oldest.send < SUSPICIOUS || now < self.next_check {
            return None;
        }
        self.next_check = now + SUSPICIOUS;
        self.slots.iter().enumerate().find_map(|(index, slot)| {
            let unseen = self.pending.values().filter(|pending| !pending.told[index]);
            let write = unseen.filter_map(|pending| pending.write).next()?;
            self.overdue_on(*slot, &write, now, cluster)
        })
    }

    fn overdue_on(
        &self,
        slot: Slot,
        write: &Write,
        now: Nanos,
        cluster: &Cluster,
    ) -> Option<MeasureError> {
        let timeout = Nanos::from(self.plan.timeout.0);
        let age = now - write.send;
        let checked = if self.phase == Phase::Floor {
            None
        } else {
            cluster.replicas.get(slot.replica)
        };
        let seen = match slot.method {
            Method::Poll => "visible",
            Method::Wait => "applied (method wait)",
            Method::Stamp | Method::StampUdf => "stamped (method stamp)",
            Method::Tap => "in the binary log that is followed (method tap)",
        };
        let Some(checked) = checked else {
            return (age > timeout).then(|| {
                let cause = format!(
                    "row {} was not {seen}, {:.1} s after it was written there",
                    write.seq,
                    age.as_micros() / 1e6
                );
                cluster
                    .primary
                    .session
                    .unfit(
                        "cannot measure",
                        cause,
                        "is the server overloaded? --timeout sets the limit",
                    )
                    .into()
            });
        };
        let age = age - Nanos::from(checked.delay());
        if age < SUSPICIOUS {
            return None;
        }
        let late = age > timeout;
        let (state, hint) = match checked.state_now() {
            Err(error)
                if matches!(
                    error.kind,
                    ErrorKind::Timeout | ErrorKind::Unreachable | ErrorKind::Lost
                ) =>
            {
                (
                    late.then(|| format!("its state cannot be read: {}", error.cause)),
                    "is the server frozen, or cut off? its error log and its host may say",
                )
            }
            Err(error) => return Some(error.into()),
            // An error of the applying thread does not go away by itself; a
            // stopped or reconnecting replica may come back within the time-out.
            Ok(now) => (
                (late || now.failed).then(|| now.words.clone()),
                if now.running {
                    "is it far behind, or does a filter swallow the schema `replimeter`? --timeout sets how long a row may take"
                } else {
                    "mend replication first; the server's error log says more"
                },
            ),
        };
        let cause = format!(
            "row {} was not {seen} after {:.1} s; {}",
            write.seq,
            age.as_micros() / 1e6,
            state?
        );
        Some(
            checked
                .server
                .session
                .unfit("does not show what the primary wrote", cause, hint)
                .into(),
        )
    }

    /// Hands on what never came, and sums up.
    fn finish(mut self, listener: &mut Listener<'_>) -> Ending {
        if self.ending.failure.is_some() || self.ending.interrupted {
            let now = self.clock.now();
            let timeout = Nanos::from(self.plan.timeout.0);
            for pending in self.pending.values() {
                let Some(write) = pending.write else { continue };
                // Rows that were merely under way at the end are not missing.
                if now - write.send < timeout {
                    continue;
                }
                for (slot, _) in self
                    .slots
                    .iter()
                    .zip(&pending.told)
                    .filter(|(_, told)| !**told)
                {
                    let sample = LagSample {
                        replica: slot.replica,
                        method: slot.method,
                        write,
                        sighting: None,
                        untold: false,
                    };
                    let _ = (listener.sample)(&sample);
                }
            }
        }
        self.ending.stages = std::mem::take(&mut self.falls)
            .into_iter()
            .map(Fall::finish)
            .collect();
        if self.emptied > 0 {
            self.ending.warnings.push(Warning::new(
                WarningCode::TableEmptied,
                format!(
                    "the schedule stood still {} times while the table was emptied (every {} MiB of payload), so as not to fill the servers",
                    self.emptied,
                    super::script::EMPTY_AFTER >> 20
                ),
                "nothing to do; the pauses are not counted as lag",
            ));
        }
        self.ending
    }
}

/// Says by how much the methods differ on a row that all of them saw: each against
/// the first of its replica.
fn compare(
    slots: &[Slot],
    write: &Write,
    sightings: &[Option<Sighting>],
    listener: &mut Listener<'_>,
) {
    for (slot, sighting) in slots.iter().zip(sightings) {
        let first = slots
            .iter()
            .zip(sightings)
            .find(|(other, _)| other.replica == slot.replica);
        if let (Some(sighting), Some((reference, Some(theirs)))) = (sighting, first)
            && reference.method != slot.method
        {
            (listener.compared)(&Compared {
                replica: slot.replica,
                method: slot.method,
                reference: reference.method,
                write: *write,
                difference: sighting.until - theirs.until,
            });
        }
    }
}

/// Hands a row that everybody has seen to each replica's waterfall.
fn fall(falls: &mut [Fall], slots: &[Slot], write: &Write, pending: &Pending) {
    let of = |replica, method| {
        let slot = slots
            .iter()
            .position(|slot| *slot == Slot { replica, method })?;
        pending.sightings[slot].as_ref()
    };
    for (replica, fall) in falls.iter_mut().enumerate() {
        let in_binlog = of(replica, Method::Tap).and_then(|sighting| match sighting.beside {
            Beside::Primary(at) => Some(at),
            _ => None,
        });
        if let Some(sighting) = of(replica, Method::Poll) {
            fall.seen(write, pending.gtid.as_deref(), in_binlog, sighting);
        }
    }
}
