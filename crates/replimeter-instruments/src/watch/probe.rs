//! Writes to a row of Replimeter's own on the primary, so that an idle link carries something.

use std::{
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender},
    },
    time::{Duration, Instant},
};

use replimeter_engine::{
    ErrorClass, ErrorKind, Node, ServerError, Session, dialect::source_channels,
    facts::ServerFacts, identity::RecordedIdentity,
};
use replimeter_model::{engine::Engine, warning::Warning};

use crate::table::{WatchTable, probe_question, take_probe_lock};

/// Timeout of an answer to the probe: longer than its definitions wait for a lock.
const ANSWER: Duration = Duration::from_secs(3);
/// Longest pause between attempts.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// The server that is written to, as the watch decides it.
#[derive(Debug)]
pub(super) struct Writer(AtomicUsize);

impl Writer {
    /// Creates one that is not known.
    pub(super) fn unknown() -> Self {
        Self(AtomicUsize::new(usize::MAX))
    }

    /// Sets the server; `None` if it is not known, or takes no writes.
    pub(super) fn set(&self, server: Option<usize>) {
        self.0
            .store(server.unwrap_or(usize::MAX), Ordering::Relaxed);
    }

    fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Whether the probe writes, or why it does not.
pub(super) type ProbeState = Result<(), String>;

/// Writes once per interval.
pub(super) struct Probe<'a> {
    nodes: Vec<Node>,
    interval: Duration,
    writer: &'a Writer,
    open: Option<Opened>,
    /// The last server on which there was a table.
    written: Option<usize>,
    /// The number in the row.
    number: u64,
}

/// A session on the server that is written to.
struct Opened {
    server: usize,
    session: Session,
    engine: Engine,
    table: Option<WatchTable>,
}

/// Why nothing is written.
enum Obstacle {
    /// The server is not to be written to: it is asked again.
    Waits(String),
    /// The server refused, or did not answer.
    Failed(ServerError),
}

impl From<ServerError> for Obstacle {
    fn from(error: ServerError) -> Self {
        Self::Failed(error)
    }
}

impl<'a> Probe<'a> {
    /// Creates one for these servers.
    pub(super) fn new(
        nodes: impl Iterator<Item = Node>,
        interval: Duration,
        writer: &'a Writer,
    ) -> Self {
        // An address may lead to another server after a failover.
        let alone = |node: Node| Node {
            answer: ANSWER.min(node.answer),
            identity: RecordedIdentity::default(),
            ..node
        };
        Self {
            nodes: nodes.map(alone).collect(),
            interval,
            writer,
            open: None,
            written: None,
            number: 0,
        }
    }

    /// Writes until the sender of `end` is dropped, then removes the table; returns the server that still has something, and why.
    pub(super) fn run(
        mut self,
        end: &Receiver<()>,
        states: &Sender<ProbeState>,
    ) -> Option<(usize, String)> {
        let mut last = None;
        let mut failures = 0;
        let mut due = Instant::now() + self.interval;
        loop {
            let wait = due.saturating_duration_since(Instant::now());
            if end.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
                return self.finish();
            }
            due = (due + self.interval).max(Instant::now());
            let server = self.writer.get();
            if self.open.as_ref().is_some_and(|one| one.server != server) {
                self.open = None;
                failures = 0;
            }
            if server >= self.nodes.len() {
                continue;
            }
            let state = match self.write(server) {
                Ok(()) => Ok(()),
                Err(Obstacle::Waits(reason)) => Err(reason),
                Err(Obstacle::Failed(error)) => {
                    // What was refused is not tried again at every interval.
                    due = Instant::now() + pause(self.interval, failures);
                    failures += 1;
                    self.take_failure(&error);
                    Err(format!("{error}; {}", error.hint))
                }
            };
            if state.is_ok() {
                failures = 0;
            }
            if last.as_ref() != Some(&state) {
                last = Some(state.clone());
                let _ = states.send(state);
            }
        }
    }

    /// Leaves a session that is of no use after an error.
    fn take_failure(&mut self, error: &ServerError) {
        // Privileges can be those of the session's beginning.
        if !error.is_refusal() || error.kind == ErrorKind::Privilege {
            self.open = None;
        } else if let Some(open) = &mut self.open {
            // Another one may have removed it, or the schema.
            let is_gone = matches!(
                error.class(),
                Some(ErrorClass::NoTable | ErrorClass::NoSchema)
            );
            open.table.take_if(|_| is_gone);
        }
    }

    fn others(&self, server: usize) -> Vec<Node> {
        let others = self.nodes.iter().enumerate();
        let others = others.filter(|(index, _)| *index != server);
        others.map(|(_, node)| node.clone()).collect()
    }

    fn write(&mut self, server: usize) -> Result<(), Obstacle> {
        let others = match &self.open {
            Some(Opened { table: Some(_), .. }) => Vec::new(),
            _ => self.others(server),
        };
        let node = &self.nodes[server];
        let open = match self.open.take() {
            Some(open) => open,
            None => Opened::new(server, node)?,
        };
        let open = self.open.insert(open);
        open.check()?;
        let table = match open.table.take() {
            Some(table) => table,
            None => WatchTable::create(node, &mut open.session, &others)?,
        };
        self.written = Some(server);
        self.number += 1;
        let table = open.table.insert(table);
        table.write(&mut open.session, self.number)?;
        Ok(())
    }

    /// Removes the table from the server that is written to; returns what is left, and why.
    fn finish(mut self) -> Option<(usize, String)> {
        let server = self.written?;
        let current = self.writer.get();
        let server = if current < self.nodes.len() {
            current
        } else {
            server
        };
        let left = |reason: String| {
            (
                server,
                format!("its row of --probe was not removed: {reason}"),
            )
        };
        match self.remove(server) {
            Ok(kept) => kept.map(|kept| (server, kept.message)),
            Err(Obstacle::Waits(reason)) => Some(left(reason)),
            Err(Obstacle::Failed(error)) => Some(left(error.to_string())),
        }
    }

    fn remove(&mut self, server: usize) -> Result<Option<Warning>, Obstacle> {
        let others = self.others(server);
        let node = &self.nodes[server];
        let open = self
            .open
            .take_if(|open| open.server == server && !open.session.has_ended());
        let mut open = match open {
            Some(open) => open,
            None => Opened::new(server, node)?,
        };
        open.check()?;
        if !WatchTable::is_on(&mut open.session)? {
            return Ok(None);
        }
        let table = match open.table {
            Some(table) => table,
            None => WatchTable::create(node, &mut open.session, &others)?,
        };
        Ok(table.remove(node, &mut open.session)?)
    }
}

/// Returns the pause after some failures before this one.
fn pause(interval: Duration, failures: u32) -> Duration {
    let longest = MAX_PAUSE.max(interval);
    (interval * 2u32.saturating_pow(failures.min(8))).min(longest)
}

impl Opened {
    fn new(server: usize, node: &Node) -> Result<Self, ServerError> {
        let mut session = Session::open_again(node)?;
        Ok(Self {
            server,
            engine: ServerFacts::read(&mut session)?.engine,
            session,
            table: None,
        })
    }

    /// Makes sure that the server takes writes and is no replica, and that this session holds the lock.
    fn check(&mut self) -> Result<(), Obstacle> {
        let waits = |reason: &str| Err(Obstacle::Waits(reason.to_owned()));
        let session = &mut self.session;
        let answer = session.value("cannot probe", &probe_question())?;
        let answer = answer.unwrap_or_default();
        let (holds, read_only) = answer.split_once(' ').unwrap_or_default();
        // MariaDB 12 has more values than ON and OFF.
        if !matches!(read_only, "0" | "OFF") {
            return waits("the server is read-only");
        }
        if !source_channels(self.engine, session)?.is_empty() {
            return waits("the server is a replica");
        }
        if holds != "1"
            && let Some(holder) = take_probe_lock(session)?
        {
            return Err(Obstacle::Waits(format!(
                "another watch probes this server, or a statement of this one hangs (connection {holder})"
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_between_failures_grow_up_to_a_limit() {
        let second = Duration::from_secs(1);
        let pauses: Vec<u64> = (0..8)
            .map(|failures| pause(second, failures).as_secs())
            .collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30, 30]);
        let minute = Duration::from_secs(60);
        assert_eq!(pause(minute, u32::MAX), minute);
    }
}
