//! Queries a replica for the progress of single transactions, for the waterfall.

use std::{sync::mpsc::Sender, thread, time::Duration};

use replimeter_engine::{
    Node, ServerError, Session, dialect::stages::StageSource, facts::ServerFacts,
};
use replimeter_model::time::Nanos;

use super::{
    observer_event::{Clocks, ObserverEvent, StageObservation},
    shared_state::SharedState,
    stage_joiner::ServerClock,
};
use crate::{clock::Clock, clock_offset};

/// Interval between measurements of both clocks.
const CLOCK_INTERVAL: Nanos = Nanos(1_000_000_000);
/// What is added to it while rows are in flight.
const MORE_IN_FLIGHT: Nanos = Nanos(9_000_000_000);
/// How long queries continue after a row was seen: the replica reports its commit slightly later.
const WATCH_DURATION: Nanos = Nanos(2_000_000);
/// How long it sleeps while no row is in flight.
const IDLE_INTERVAL: Duration = Duration::from_micros(500);

/// Queries one replica.
pub(super) struct StageWatcher {
    primary: Session,
    replica: Session,
    source: StageSource,
    clocks: [clock_offset::ServerClock; 2],
    numbers: [u8; 2],
    index: usize,
    /// The slot of the method that shows when a row was seen.
    slot: usize,
}

fn measured(
    session: &mut Session,
    node: &Node,
    clock: &Clock,
) -> Result<clock_offset::ServerClock, ServerError> {
    clock_offset::ServerClock::measure(session, node, clock)?.ok_or_else(|| {
        session.precondition(
            "cannot observe stages",
            "its clock cannot be read",
            "remove --stages",
        )
    })
}

impl StageWatcher {
    /// Connects to both servers and measures their clocks.
    pub(super) fn open(
        nodes: [&Node; 2],
        facts: [&ServerFacts; 2],
        index: usize,
        slot: usize,
        clock: &Clock,
    ) -> Result<Self, ServerError> {
        let (mut primary, mut replica) = (Session::open(nodes[0])?, Session::open(nodes[1])?);
        let source = StageSource::prepare(facts[1], &mut replica)?;
        let clocks = [
            measured(&mut primary, nodes[0], clock)?,
            measured(&mut replica, nodes[1], clock)?,
        ];
        // Servers on one machine share a clock, so there is no offset between them.
        let one_clock = clock_offset::is_one_clock(
            clocks.each_ref().map(clock_offset::ServerClock::last),
            nodes.map(|node| &node.endpoint),
            facts.map(|facts| facts.get("hostname")),
        );
        let other = if one_clock {
            0
        } else {
            u8::try_from(index + 1).unwrap_or(u8::MAX)
        };
        Ok(Self {
            primary,
            replica,
            source,
            clocks,
            numbers: [0, other],
            index,
            slot,
        })
    }

    /// Returns the state of both clocks at this time.
    pub(super) fn clocks(&self, now: Nanos) -> Clocks {
        let of = |index: usize| {
            let known = &self.clocks[index];
            let at = known.at(now).unwrap_or_else(|| known.last());
            ServerClock {
                number: self.numbers[index],
                offset: at.offset,
                bound: at.bound,
            }
        };
        [of(0), of(1)]
    }

    /// Queries while a row is in flight, until the part ends.
    pub(super) fn watch(
        &mut self,
        clock: &Clock,
        shared_state: &SharedState,
        sighted: &Sender<ObserverEvent>,
    ) -> Result<(), ServerError> {
        let mut next_check = clock.now() + CLOCK_INTERVAL;
        // Until when to query although every row was seen.
        let mut until = clock.now();
        while !shared_state.halted() {
            let now = clock.now();
            if shared_state.seen(self.slot) < shared_state.sent()
                || now >= shared_state.watched_from() && !shared_state.finished()
            {
                until = now + WATCH_DURATION;
            }
            let idle = now >= until;
            // While rows are in flight nothing else is observed during a measurement, so seldom, and never of clocks that do not move apart.
            let moves = self.clocks.iter().any(clock_offset::ServerClock::moves);
            if now >= next_check && idle || now >= next_check + MORE_IN_FLIGHT && moves {
                next_check = now + CLOCK_INTERVAL;
                self.clocks[0].remeasure(&mut self.primary, clock)?;
                self.clocks[1].remeasure(&mut self.replica, clock)?;
            }
            if idle {
                thread::sleep(IDLE_INTERVAL);
                continue;
            }
            let began = clock.now();
            let answer = self.source.ask(&mut self.replica)?;
            let ended = clock.now();
            let observation = StageObservation {
                replica: self.index,
                began,
                ended,
                answer,
                clocks: self.clocks(ended),
            };
            let _ = sighted.send(ObserverEvent::Stages(Box::new(observation)));
        }
        Ok(())
    }
}
