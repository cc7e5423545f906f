//! Queries a replica for the progress of single transactions, for the waterfall.

use std::{sync::mpsc::Sender, thread, time::Duration};

use replimeter_engine::{Node, ServerError, Session, facts::Facts, flavour::stages::StageSource};
use replimeter_model::time::Nanos;

use super::{
    board::Board,
    seen::{Clocks, Seen, Told},
    stages::ServerClock,
};
use crate::{clock::Clock, offset};

/// Interval between measurements of both clocks.
const LOOK: Nanos = Nanos(1_000_000_000);
/// How long queries continue after a row was seen: the replica reports its commit slightly later.
const AFTER: Nanos = Nanos(2_000_000);
/// How long it sleeps while no row is under way.
const NAP: Duration = Duration::from_micros(500);

/// Queries one replica.
pub(super) struct Watcher {
    primary: Session,
    replica: Session,
    source: StageSource,
    clocks: [offset::ServerClock; 2],
    numbers: [u8; 2],
    index: usize,
    /// The slot of the method that shows when a row was seen.
    slot: usize,
}

fn measured(session: &mut Session, clock: &Clock) -> Result<offset::ServerClock, ServerError> {
    offset::ServerClock::measure(session, clock)?.ok_or_else(|| {
        session.unfit(
            "cannot observe stages",
            "its clock cannot be read",
            "remove --stages",
        )
    })
}

impl Watcher {
    /// Connects to both servers and measures their clocks.
    pub(super) fn open(
        nodes: [&Node; 2],
        facts: [&Facts; 2],
        index: usize,
        slot: usize,
        clock: &Clock,
    ) -> Result<Self, ServerError> {
        let (mut primary, mut replica) = (Session::open(nodes[0])?, Session::open(nodes[1])?);
        let source = StageSource::prepare(facts[1], &mut replica)?;
        let clocks = [
            measured(&mut primary, clock)?,
            measured(&mut replica, clock)?,
        ];
        // Servers on one host share a clock, so there is no offset between them.
        let one_host = facts[0].get("hostname") == facts[1].get("hostname");
        let other = if one_host {
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

    /// Returns the state of both clocks.
    pub(super) fn clocks(&self) -> Clocks {
        let of = |index: usize| {
            let last = self.clocks[index].last();
            ServerClock {
                number: self.numbers[index],
                offset: last.offset,
                bound: last.bound,
            }
        };
        [of(0), of(1)]
    }

    /// Queries while a row is under way, until the part ends.
    pub(super) fn run(
        mut self,
        clock: &Clock,
        board: &Board,
        real_time: bool,
        sighted: &Sender<Seen>,
    ) -> Result<(), ServerError> {
        board.measuring(real_time, || self.watch(clock, board, sighted))
    }

    fn watch(
        &mut self,
        clock: &Clock,
        board: &Board,
        sighted: &Sender<Seen>,
    ) -> Result<(), ServerError> {
        let mut next_look = clock.now() + LOOK;
        // Until when to query although every row was seen.
        let mut until = clock.now();
        while !board.halted() {
            let now = clock.now();
            if board.seen(self.slot) < board.sent()
                || now >= board.watched_from() && !board.finished()
            {
                until = now + AFTER;
            }
            if now >= until {
                if now >= next_look {
                    next_look = now + LOOK;
                    self.clocks[0].again(&mut self.primary, clock)?;
                    self.clocks[1].again(&mut self.replica, clock)?;
                }
                thread::sleep(NAP);
                continue;
            }
            let began = clock.now();
            let answer = self.source.ask(&mut self.replica)?;
            let ended = clock.now();
            let told = Told {
                replica: self.index,
                began,
                ended,
                answer,
                clocks: self.clocks(),
            };
            let _ = sighted.send(Seen::Told(Box::new(told)));
        }
        Ok(())
    }
}
