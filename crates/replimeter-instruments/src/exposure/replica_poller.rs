//! Reads the received transactions of one replica at every poll.

use std::{
    sync::mpsc::{Receiver, Sender},
    time::{Duration, Instant},
};

use replimeter_engine::{
    Node, ServerError, Session, dialect,
    facts::ServerFacts,
    position::{Position, executed},
};
use replimeter_model::{bug::REPORT_BUG, time::Nanos};

use crate::{clock::Clock, priority::prepare_measuring_thread};

const OPERATION: &str = "cannot read its received transactions";
/// Interval between queries of a replica for its executed transactions, where received ones are forgotten.
const EXECUTED: Duration = Duration::from_secs(1);
/// Pause between attempts to reconnect to a replica.
const PAUSE: Duration = Duration::from_secs(1);

/// The answer of one replica.
pub(super) struct ReplicaAnswer {
    pub(super) replica: usize,
    /// The poll that it belongs to.
    pub(super) poll: u64,
    /// When it arrived.
    pub(super) at: Nanos,
    pub(super) received: Result<Position, ServerError>,
}

/// The connection to one replica.
pub(super) struct ReplicaPoller {
    pub(super) replica: usize,
    pub(super) node: Node,
    pub(super) facts: ServerFacts,
}

impl ReplicaPoller {
    /// Answers every poll until the sender is dropped.
    pub(super) fn answer(
        self,
        polls: &Receiver<u64>,
        answers: &Sender<ReplicaAnswer>,
        clock: &Clock,
        real_time: bool,
    ) {
        prepare_measuring_thread(real_time);
        let mut session: Option<Session> = None;
        let mut before: Option<Position> = None;
        let mut asked: Option<Instant> = None;
        let mut failed: Option<(Instant, ServerError)> = None;
        for poll in polls {
            if let Some((at, error)) = &failed
                && at.elapsed() < PAUSE
            {
                let received = Err(error.clone());
                let _ = answers.send(ReplicaAnswer {
                    replica: self.replica,
                    poll,
                    at: clock.now(),
                    received,
                });
                continue;
            }
            let mut ask = || -> Result<Position, ServerError> {
                let session = match &mut session {
                    Some(session) => session,
                    none => none.insert(Session::open(&self.node)?),
                };
                if Position::forgets_received(self.facts.engine)
                    && asked.is_none_or(|asked| asked.elapsed() >= EXECUTED)
                {
                    before = executed(&self.facts, session)?.applied().or(before.take());
                    asked = Some(Instant::now());
                }
                self.received(session, before.as_ref())
            };
            let received = ask();
            let at = clock.now();
            failed = received
                .as_ref()
                .err()
                .map(|error| (Instant::now(), error.clone()));
            if failed.is_some() {
                session = None;
            }
            if answers
                .send(ReplicaAnswer {
                    replica: self.replica,
                    poll,
                    at,
                    received,
                })
                .is_err()
            {
                return;
            }
        }
    }

    fn received(
        &self,
        session: &mut Session,
        before: Option<&Position>,
    ) -> Result<Position, ServerError> {
        let channels = dialect::channels(self.facts.engine, session)?;
        let received = Position::received(self.facts.engine, &channels)
            .map_err(|error| session.precondition(OPERATION, error.to_string(), REPORT_BUG))?;
        Ok(match before {
            Some(before) => received.joined(before),
            None => received,
        })
    }
}
