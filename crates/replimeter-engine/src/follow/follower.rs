//! A dedicated connection that receives a server's binary log.

use replimeter_model::{bug::REPORT_BUG, engine::Engine, time::Nanos};
use rustix::io::Errno;

use crate::{
    ErrorKind, Node, ServerError, Session, dialect, driver,
    facts::ServerFacts,
    follow::{
        connect::{HEARTBEAT, LogConnection, READ_TIMEOUT, StartPosition, connect, explain, fits},
        decoder::{CompleteTransaction, Decoder, Position, StreamCounts, StreamError},
        event::{self, HEADER},
        requirements::OPERATION,
        resume::Resume,
        tables::Tables,
    },
};

/// A connection that missed this many heartbeats is lost.
const MISSED: u32 = 20;

/// The result of one read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadProgress {
    /// Whether anything arrived.
    pub anything: bool,
    /// Transactions that it completed.
    pub transactions: u64,
    /// Bytes.
    pub bytes: u64,
    /// Heartbeats in it.
    pub heartbeats: u64,
    /// Switches to another file.
    pub rotations: u64,
}

/// Follows one server's binary log.
pub struct Follower {
    node: Node,
    engine: Engine,
    server_id: u32,
    link: LogConnection,
    decoder: Decoder,
    /// Reads that timed out since the last byte.
    silent: u32,
    begun: String,
    resume: Resume,
    /// Whether the upper half of the position's offset is known: not where the stream began by GTIDs, since events have
    /// the lower one only.
    placed: bool,
}

impl Follower {
    /// Connects and requests the stream. The server counts it as a replica with this `server_id`,
    /// which no other server or replica may use.
    ///
    /// # Errors
    /// When the server cannot be reached, or refuses the stream before the timeout (no privilege,
    /// no binary log, a purged position).
    pub fn open(
        node: &Node,
        facts: &ServerFacts,
        server_id: u32,
        from: &StartPosition,
    ) -> Result<Self, ServerError> {
        Self::open_with(node, facts, server_id, from, false)
    }

    /// Like [`open`](Self::open); with `tables`, transactions list the tables that they change.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(
        node: &Node,
        facts: &ServerFacts,
        server_id: u32,
        from: &StartPosition,
        tables: bool,
    ) -> Result<Self, ServerError> {
        let stream = connect(node, facts.engine, server_id, from)?;
        Ok(Self {
            node: node.clone(),
            engine: facts.engine,
            server_id,
            link: stream.link,
            placed: !stream.position.file.is_empty(),
            decoder: Decoder::new(stream.position, tables),
            silent: 0,
            begun: stream.executed,
            resume: Resume::after(stream.before),
        })
    }

    /// Reconnects and resumes after the last complete transaction, or at `from`. Counts and names
    /// of tables are kept. It resumes by position where a request can have it, otherwise by GTID.
    ///
    /// # Errors
    /// As [`open`](Self::open); and when another server answers at the address.
    pub fn reconnect(&mut self, from: Option<&StartPosition>) -> Result<(), ServerError> {
        let own = if self.placed && fits(self.decoder.position()) {
            StartPosition::File(self.decoder.position().clone())
        } else {
            let commit_ids = self.resume.commit_ids(self.engine).map_err(|error| {
                self.node
                    .precondition(OPERATION, error.to_string(), REPORT_BUG)
            })?;
            StartPosition::Gtids(commit_ids)
        };
        let stream = connect(
            &self.node,
            self.engine,
            self.server_id,
            from.unwrap_or(&own),
        )?;
        if from.is_some() {
            self.resume = Resume::after(stream.before);
        }
        self.link = stream.link;
        self.silent = 0;
        self.placed = !stream.position.file.is_empty();
        self.decoder.restart(stream.position);
        Ok(())
    }

    /// Waits for the next bytes, at most about 0.1 s, and passes on every transaction that they
    /// complete, stamped by `now` once, immediately after they arrived.
    ///
    /// # Errors
    /// When the connection is lost or silent, the server ends the stream, or its bytes are invalid.
    pub fn read<C, S>(&mut self, now: C, sink: &mut S) -> Result<ReadProgress, ServerError>
    where
        C: Fn() -> Nanos,
        S: FnMut(CompleteTransaction<'_>),
    {
        let before = self.decoder.counts();
        let resume = &mut self.resume;
        let sink = &mut |arrived: CompleteTransaction<'_>| {
            if let Some(commit_id) = arrived.commit_id {
                resume.add(commit_id);
            }
            sink(arrived);
        };
        let anything = match &mut self.link {
            LogConnection::Plain { socket, .. } => {
                match rustix::io::read(socket, self.decoder.space()) {
                    Ok(0) => return Err(self.lost("the server closed the connection")),
                    Ok(count) => {
                        let at = now();
                        let decoded = self.decoder.filled(count, at, sink);
                        decoded.map_err(|error| self.failed(&error))?;
                        true
                    }
                    Err(Errno::AGAIN | Errno::INTR) => false,
                    Err(error) => return Err(self.lost(&error.to_string())),
                }
            }
            LogConnection::Tls(stream) => {
                // The driver panics on events that are shorter than they state; this function must
                // not.
                let next = driver::call(|| stream.next());
                let at = now();
                match next {
                    Ok(Some(Ok(event))) => {
                        let bytes = raw(&event);
                        let length = u64::from(event.header().event_size());
                        self.decoder.assembler().count_bytes(length);
                        let taken = self.decoder.assembler().event(&bytes, length, at, sink);
                        taken.map_err(|error| self.failed(&error))?;
                        true
                    }
                    Ok(None) => return Err(self.failed(&StreamError::Ended)),
                    Ok(Some(Err(mysql::Error::MySqlError(error)))) => {
                        let refused = StreamError::Refused {
                            code: error.code,
                            state: error.state,
                            message: error.message,
                        };
                        return Err(self.failed(&refused));
                    }
                    Ok(Some(Err(error))) => {
                        return Err(self.node.driver_error(OPERATION, &error));
                    }
                    Err(_) => {
                        let position = self.decoder.position().clone();
                        let what = "the driver cannot decode an event".to_owned();
                        return Err(self.failed(&StreamError::Corrupt { what, position }));
                    }
                }
            }
        };
        self.silent = if anything { 0 } else { self.silent + 1 };
        if READ_TIMEOUT * self.silent > HEARTBEAT * MISSED {
            let seconds = (HEARTBEAT * MISSED).as_secs();
            self.node.set_owing();
            return Err(ServerError {
                kind: ErrorKind::Timeout,
                ..self.lost(&format!("no heartbeat for {seconds} s"))
            });
        }
        let after = self.decoder.counts();
        // Another file begins at its head.
        self.placed |= after.rotations > before.rotations;
        Ok(ReadProgress {
            anything,
            transactions: after.transactions - before.transactions,
            bytes: after.bytes - before.bytes,
            heartbeats: after.heartbeats - before.heartbeats,
            rotations: after.rotations - before.rotations,
        })
    }

    /// Returns the end of the last complete transaction; where the stream began by GTIDs, its offset is known up to a
    /// multiple of 4 GiB until the next file.
    #[must_use]
    pub fn position(&self) -> &Position {
        self.decoder.position()
    }

    /// Returns whether the offset of [`position`](Self::position) is known.
    #[must_use]
    pub fn position_is_known(&self) -> bool {
        self.placed
    }

    /// Returns the current end of the server's log, read over another connection; `None` when the
    /// user may not read it.
    ///
    /// # Errors
    /// When the server cannot be reached.
    pub fn end_of_log(&self) -> Result<Option<Position>, ServerError> {
        let mut session = Session::open(&self.node)?;
        match dialect::binlog_end(self.engine, &mut session) {
            Ok(end) => Ok(end.map(|(file, offset)| Position { file, offset })),
            Err(error) if error.kind == ErrorKind::Privilege => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the counts so far.
    #[must_use]
    pub fn counts(&self) -> StreamCounts {
        self.decoder.counts()
    }

    /// Returns the names of tables, when they were requested.
    #[must_use]
    pub fn tables(&self) -> Option<&Tables> {
        self.decoder.tables()
    }

    /// Returns what the server had executed just after the start position was determined, in its
    /// own notation (`gtid_executed`, `gtid_binlog_state`): everything before the position, and
    /// possibly some transactions after it.
    #[must_use]
    pub fn executed_at_start(&self) -> &str {
        &self.begun
    }

    /// Returns the server that is followed.
    #[must_use]
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Returns the `server_id` of this connection.
    #[must_use]
    pub fn server_id(&self) -> u32 {
        self.server_id
    }

    /// Returns whether the connection is encrypted, and therefore slower to read.
    #[must_use]
    pub fn tls(&self) -> bool {
        matches!(self.link, LogConnection::Tls(_))
    }

    fn lost(&self, cause: &str) -> ServerError {
        ServerError {
            kind: ErrorKind::Lost,
            ..self.node.precondition(
                OPERATION,
                cause,
                "check whether the server stopped; see its error log",
            )
        }
    }

    fn failed(&self, error: &StreamError) -> ServerError {
        explain(&self.node, self.engine, self.server_id, error)
    }
}

/// Returns the bytes of an event that the driver has parsed.
fn raw(event: &mysql::binlog::events::Event) -> Vec<u8> {
    let header = event.header();
    let mut bytes = Vec::with_capacity(HEADER + event.data().len() + 5);
    bytes.extend_from_slice(&header.timestamp().to_le_bytes());
    bytes.push(header.event_type_raw());
    bytes.extend_from_slice(&header.server_id().to_le_bytes());
    bytes.extend_from_slice(&header.event_size().to_le_bytes());
    bytes.extend_from_slice(&header.log_pos().to_le_bytes());
    bytes.extend_from_slice(&header.flags_raw().to_le_bytes());
    bytes.extend_from_slice(event.data());
    if header.event_type_raw() == event::kind::FORMAT_DESCRIPTION {
        bytes.push(
            event
                .footer()
                .get_checksum_alg()
                .ok()
                .flatten()
                .map_or(0, |algorithm| algorithm as u8),
        );
    }
    if let Some(checksum) = event.checksum() {
        bytes.extend_from_slice(&checksum);
    }
    bytes
}
