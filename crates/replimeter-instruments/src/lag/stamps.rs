//! Reads the stamps of a row on the primary and on a replica, and converts them to the run's clock.

use std::{sync::mpsc::Sender, thread, time::Duration};

use replimeter_engine::{Node, ServerError, Session};
use replimeter_model::{
    time::Nanos,
    warning::{Warning, WarningCode},
};

use super::{
    observer_event::{ObserverEvent, SeenRows},
    shared_state::SharedState,
};
use crate::{
    clock::Clock,
    clock_offset::ServerClock,
    discovery::DiscoveredServer,
    lag::{
        sample::{Sighting, SightingDetail},
        settings::Method,
    },
    stamp::{self, Federated, Stamped},
};

/// Interval between readings, and between measurements of the clocks: long, because both are work for both servers.
const EVERY: Nanos = Nanos(1_000_000_000);
/// Interval between readings if the next row waits for the last one's stamps.
const PACED: Nanos = Nanos(50_000_000);
/// How long it sleeps before it checks the shared state again.
const IDLE_INTERVAL: Duration = Duration::from_millis(5);

const OPERATION: &str = "cannot measure by `stamp`";

/// Reads the stamps of one replica and of the primary.
pub(super) struct StampReader {
    primary: Session,
    replica: Session,
    /// The clocks of the primary and of the replica.
    clocks: [ServerClock; 2],
    federated: Option<Federated>,
    /// The slots of the stamping methods.
    slots: Vec<(usize, Method)>,
    seen: SeenRows,
    /// Rows that were read since the clocks were last measured, on the primary and on the replica. Between two measurements the
    /// error of a clock does not grow, after the last one it does.
    unconverted: Vec<[Stamped; 2]>,
    every: Nanos,
}

fn required_clock(
    clock: Option<ServerClock>,
    session: &Session,
) -> Result<ServerClock, ServerError> {
    clock.ok_or_else(|| {
        session.precondition(
            OPERATION,
            "its clock cannot be read",
            "use --method poll, wait or tap",
        )
    })
}

impl StampReader {
    /// Connects and measures both clocks. If `paced`, the next row waits for the stamps of the last
    /// one.
    #[expect(clippy::too_many_arguments, reason = "each is of another kind")]
    pub(super) fn open(
        primary: &Node,
        replica: &Node,
        discovered: &DiscoveredServer,
        clock: &Clock,
        slots: Vec<(usize, Method)>,
        last: u64,
        federated: bool,
        paced: bool,
    ) -> Result<Self, ServerError> {
        let (mut ours, mut theirs) = (Session::open(primary)?, Session::open(replica)?);
        let clocks = [
            required_clock(ServerClock::measure(&mut ours, primary, clock)?, &ours)?,
            required_clock(ServerClock::measure(&mut theirs, replica, clock)?, &theirs)?,
        ];
        let federated = if federated {
            Some(Federated::create(discovered, primary)?)
        } else {
            None
        };
        Ok(Self {
            primary: ours,
            replica: theirs,
            clocks,
            federated,
            slots,
            seen: SeenRows::new(last),
            unconverted: Vec::new(),
            every: if paced { PACED } else { EVERY },
        })
    }

    /// Reads until the part ends.
    pub(super) fn run(
        mut self,
        clock: &Clock,
        shared_state: &SharedState,
        sighted: &Sender<ObserverEvent>,
    ) -> Result<(), ServerError> {
        let result = self.watch(clock, shared_state, sighted);
        if result.is_err() {
            shared_state.halt();
        }
        let removed = self.federated.take().map_or(Ok(()), Federated::remove);
        result.and(removed)
    }

    fn watch(
        &mut self,
        clock: &Clock,
        shared_state: &SharedState,
        sighted: &Sender<ObserverEvent>,
    ) -> Result<(), ServerError> {
        let (mut next_read, mut next_check) = (clock.now(), clock.now() + EVERY);
        while !shared_state.halted() {
            let now = clock.now();
            let sent = shared_state.sent();
            let stopped = shared_state.writer_halted();
            let ending = stopped || shared_state.finished();
            if self.seen.low() < sent && (ending || now >= next_read) {
                next_read = now + self.every;
                for page in stamp::pages(self.seen.low() + 1..=sent) {
                    self.page(page, now, shared_state)?;
                }
            }
            let last = ending && self.seen.low() >= sent;
            if !self.unconverted.is_empty() && (last || clock.now() >= next_check) {
                // After the user's stop there may be no time for it.
                if !stopped {
                    self.remeasure_clocks(clock, sighted)?;
                }
                self.convert(clock.now(), sighted);
                next_check = clock.now() + EVERY;
            }
            thread::sleep(IDLE_INTERVAL);
        }
        Ok(())
    }

    /// Measures both clocks again and warns when one was set.
    fn remeasure_clocks(
        &mut self,
        clock: &Clock,
        sighted: &Sender<ObserverEvent>,
    ) -> Result<(), ServerError> {
        for (own, session) in self
            .clocks
            .iter_mut()
            .zip([&mut self.primary, &mut self.replica])
        {
            if let Some(step) = own.remeasure(session, clock)? {
                let _ = sighted.send(ObserverEvent::Warning(Warning::new(
                    WarningCode::ClockStepped,
                    format!(
                        "{session}: its clock was set by {:.6} s (± {:.0} µs) during the run; the figures exclude stamps around that time",
                        step.by.as_micros() / 1e6,
                        step.bound.as_micros()
                    ),
                    "find out what sets the clock (a time service should slew it), or use --method poll, wait or tap, which read no server clock",
                )));
            }
        }
        Ok(())
    }

    /// Reads rows of both servers, and keeps those that both have.
    fn page(
        &mut self,
        ids: std::ops::RangeInclusive<u64>,
        now: Nanos,
        shared_state: &SharedState,
    ) -> Result<(), ServerError> {
        let [ours, theirs] = match &mut self.federated {
            Some(federated) => federated.join(ids)?,
            None => {
                let theirs = stamp::read(&mut self.replica, ids.clone())?;
                [stamp::read(&mut self.primary, ids)?, theirs]
            }
        };
        let clocks = self.clocks.each_ref();
        stamp::join(&ours, &theirs, clocks, |_| now).refuse_shipped(&self.replica)?;
        for there in theirs {
            let Ok(index) = ours.binary_search_by_key(&there.id, |here| here.id) else {
                continue;
            };
            if self.seen.insert(there.id) {
                self.unconverted.push([ours[index], there]);
            }
        }
        for (slot, _) in &self.slots {
            shared_state.record_seen_up_to(*slot, self.seen.low());
        }
        Ok(())
    }

    /// Passes on the rows that were read.
    fn convert(&mut self, near: Nanos, sighted: &Sender<ObserverEvent>) {
        for rows in std::mem::take(&mut self.unconverted) {
            for (slot, method) in &self.slots {
                let event = match self.sighting(&rows, *method, near) {
                    Some(sighting) => ObserverEvent::Row {
                        slot: *slot,
                        sighting,
                    },
                    None => ObserverEvent::Unplaced {
                        slot: *slot,
                        seq: rows[1].id,
                    },
                };
                let _ = sighted.send(event);
            }
        }
    }

    /// Returns both stamps on the run's clock; `None` when a clock was set around that time, or the row
    /// has no such stamp.
    fn sighting(
        &self,
        [here, there]: &[Stamped; 2],
        method: Method,
        near: Nanos,
    ) -> Option<Sighting> {
        let of = |row: &Stamped| {
            if method == Method::Stamp {
                row.sysdate
            } else {
                row.udf
            }
        };
        let place =
            |clock: &ServerClock, us: i64| clock.to_run_clock(Nanos(us.checked_mul(1_000)?), near);
        let (on_primary, bound) = place(&self.clocks[0], of(here)?)?;
        let (at, own) = place(&self.clocks[1], of(there)?)?;
        let within = bound + own;
        let detail = SightingDetail::Primary(on_primary);
        Some(Sighting {
            seq: there.id,
            after: at - within,
            hit_began: at,
            until: at + within,
            detail,
        })
    }
}
