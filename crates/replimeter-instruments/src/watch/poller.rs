//! Asks one server at every poll, over one connection that it opens again when it was lost.

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError, Sender},
    time::{Duration, Instant},
};

use replimeter_engine::{
    Node, ServerError, Session,
    dialect::{self, ConnectedReplica},
    heartbeat_table::HeartbeatTable,
    identity::RecordedIdentity,
    reading::{Reader, Reading},
    unless_disconnected,
};
use replimeter_model::{manifest::ServerRecord, random::Random, table_name::TableName};

use super::{Ticks, history::AnswerTime, monitor::Answer};
use crate::clock::Clock;

/// Longest time for one answer.
const MAX_ANSWER: Duration = Duration::from_secs(5);
/// Interval between questions for the replicas that are connected to a server.
const REPLICAS: Duration = Duration::from_secs(30);
/// Time after which a connection that may not see the replication is opened again: privileges can be those of its beginning.
const REFUSED: Duration = Duration::from_secs(10);
/// Longest pause between attempts to connect.
const MAX_PAUSE: Duration = Duration::from_secs(15);

/// The connection to one server.
pub(super) struct Poller {
    server: usize,
    node: Node,
    ticks: Ticks,
    /// The heartbeat table that it has.
    pub(super) heartbeat: Option<TableName>,
    /// What is recorded of the server; `None` once it was.
    recorded: Option<RecordedFacts>,
}

/// What is recorded of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordedFacts {
    All,
    /// Those of many servers would take too much memory.
    WithoutVariables,
}

/// An answer, or why it is missing.
pub(super) struct News {
    pub(super) server: usize,
    pub(super) at: AnswerTime,
    pub(super) answer: Result<Box<Answer>, ServerError>,
    /// The server as it is recorded, if this is the first answer.
    pub(super) record: Option<Box<ServerRecord>>,
}

/// What is known about a server while it is connected.
struct Connection {
    session: Session,
    reader: Reader,
    heartbeat: Option<HeartbeatTable>,
    is_new: bool,
    since: Instant,
    /// When its connected replicas are asked for.
    replicas_due: Instant,
}

impl Poller {
    /// Creates one of the server with this number.
    pub(super) fn new(
        server: usize,
        node: &Node,
        ticks: Ticks,
        recorded: RecordedFacts,
        heartbeat: Option<TableName>,
    ) -> Self {
        let answer = MAX_ANSWER.min(node.answer);
        let node = Node {
            answer,
            ..node.clone()
        };
        Self {
            server,
            node,
            ticks,
            recorded: Some(recorded),
            heartbeat,
        }
    }

    /// Asks until the sender of `end` is dropped.
    pub(super) fn run(mut self, end: &Receiver<()>, news: &Sender<News>, clock: &Clock) {
        let mut random = Random::numbered(self.server as u64);
        let mut connection: Option<Connection> = None;
        let mut pause = self.ticks.interval;
        let mut due = self.ticks.began;
        loop {
            let wait = due.saturating_duration_since(Instant::now());
            if end.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            let answer = self.ask(&mut connection, clock);
            let now = Instant::now();
            if answer.answer.is_ok() {
                pause = self.ticks.interval;
                due = self.ticks.after(now);
            } else {
                connection = None;
                // Many clients must not come back at the same time.
                due = now + pause.mul_f64(0.5 + random.fraction());
                pause = (pause * 2).min(MAX_PAUSE.max(self.ticks.interval));
            }
            if news.send(answer).is_err() {
                return;
            }
        }
    }

    fn ask(&mut self, connection: &mut Option<Connection>, clock: &Clock) -> News {
        let mut asked = clock.now();
        let mut record = None;
        let opened = connection.take();
        let answer = match opened.map_or_else(|| self.open(&mut record), Ok) {
            Err(error) => Err(error),
            Ok(opened) => {
                asked = clock.now();
                let opened = connection.insert(opened);
                let answer = opened.ask(&self.node);
                let refused = |answer: &Answer| answer.reading.channels.is_err();
                if opened.since.elapsed() >= REFUSED && answer.as_ref().is_ok_and(refused) {
                    *connection = None;
                }
                answer
            }
        };
        News {
            server: self.server,
            at: AnswerTime {
                asked,
                answered: clock.now(),
            },
            answer: answer.map(Box::new),
            record,
        }
    }

    /// Connects, also to another server than before: an address may lead to another one after a failover.
    fn open(&mut self, record: &mut Option<Box<ServerRecord>>) -> Result<Connection, ServerError> {
        self.node.identity = RecordedIdentity::default();
        let mut session = Session::open_again(&self.node)?;
        let reader = Reader::new(&mut session, |session, facts| {
            if let Some(of) = self.recorded.take() {
                let mut all = facts.record(session);
                if of == RecordedFacts::WithoutVariables {
                    all.variables.clear();
                }
                *record = Some(Box::new(all));
            }
        })?;
        Ok(Connection {
            reader,
            heartbeat: self.heartbeat.clone().map(HeartbeatTable::new),
            session,
            is_new: true,
            since: Instant::now(),
            replicas_due: Instant::now(),
        })
    }
}

impl Connection {
    fn ask(&mut self, node: &Node) -> Result<Answer, ServerError> {
        let reading = self.reader.read(&mut self.session)?;
        let heartbeat = match &mut self.heartbeat {
            Some(table) => Some(table.read(&mut self.session)?),
            None => None,
        };
        let replicas = self.replicas(&reading)?;
        let is_new = std::mem::take(&mut self.is_new);
        Ok(Answer {
            engine: self.reader.facts.engine,
            identity: node.identity.first().cloned(),
            reading,
            heartbeat,
            uptime: self
                .reader
                .uptime_s
                .filter(|_| is_new)
                .map(Duration::from_secs),
            replicas,
        })
    }

    /// Returns the replicas that are connected to a server, if they are to be asked for now and the user may see them.
    fn replicas(
        &mut self,
        reading: &Reading,
    ) -> Result<Option<Vec<ConnectedReplica>>, ServerError> {
        let may_be_primary = reading.channels.as_ref().is_ok_and(Vec::is_empty);
        if !may_be_primary || Instant::now() < self.replicas_due {
            return Ok(None);
        }
        self.replicas_due = Instant::now() + REPLICAS;
        let engine = self.reader.facts.engine;
        let replicas = dialect::connected_replicas(engine, &mut self.session);
        Ok(unless_disconnected(replicas)?.ok())
    }
}

#[cfg(test)]
mod tests;
