//! A connection of its own that receives a server's binary log.

use std::panic::{AssertUnwindSafe, catch_unwind};

use replimeter_model::{engine::Engine, time::Nanos};
use rustix::io::Errno;

use crate::{
    ErrorKind, Node, ServerError, Session,
    binlog::{
        connect::{DOING, HEARTBEAT, Link, NAP, Start, connect, explain},
        decoder::{Arrived, Counts, Decoder, Position, StreamError},
        event::{self, HEADER},
        tables::Tables,
    },
    facts::{Facts, Identity},
    flavour,
};

/// A server that missed this many heartbeats is gone.
const MISSED: u32 = 20;

/// What one read brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// Whether anything came at all.
    pub anything: bool,
    /// Transactions that it completed.
    pub transactions: u64,
    /// Bytes.
    pub bytes: u64,
    /// Heartbeats in it.
    pub heartbeats: u64,
    /// Changes to another file.
    pub rotations: u64,
}

/// Follows one server's binary log.
pub struct Follower {
    node: Node,
    engine: Engine,
    identity: Identity,
    server_id: u32,
    link: Link,
    decoder: Decoder,
    /// Naps since the last byte.
    silent: u32,
    begun: String,
}

impl Follower {
    /// Connects and asks for the stream. The server counts as a replica with this
    /// `server_id`; no other server or replica may use it.
    ///
    /// # Errors
    /// When the server cannot be reached, refuses the stream (no privilege, no binary
    /// log, a purged position), or says so within the time for an answer.
    pub fn open(
        node: &Node,
        facts: &Facts,
        server_id: u32,
        from: &Start,
    ) -> Result<Self, ServerError> {
        Self::open_with(node, facts, server_id, from, false)
    }

    /// As [`open`](Self::open); with `tables`, transactions name the tables they touch.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(
        node: &Node,
        facts: &Facts,
        server_id: u32,
        from: &Start,
        tables: bool,
    ) -> Result<Self, ServerError> {
        let (link, from, begun) = connect(node, facts.engine, server_id, from)?;
        Ok(Self {
            node: node.clone(),
            engine: facts.engine,
            identity: facts.identity(),
            server_id,
            link,
            decoder: Decoder::new(from, tables),
            silent: 0,
            begun,
        })
    }

    /// Connects again and goes on after the last whole transaction, or somewhere else.
    /// Counts and names of tables stay.
    ///
    /// # Errors
    /// As [`open`](Self::open); and when another server answers at the address.
    pub fn reconnect(&mut self, from: Option<&Start>) -> Result<(), ServerError> {
        let mut session = Session::open(&self.node)?;
        let identity = Facts::read(&mut session)?.identity();
        if (identity.server_id, &identity.uuid) != (self.identity.server_id, &self.identity.uuid) {
            let cause = format!(
                "another server now answers at its address ({} instead of {})",
                identity.place, self.identity.place
            );
            return Err(session.unfit(
                DOING,
                cause,
                "start the run again with the current servers",
            ));
        }
        drop(session);
        let own = Start::File(self.decoder.position().clone());
        let (link, from, _) = connect(
            &self.node,
            self.engine,
            self.server_id,
            from.unwrap_or(&own),
        )?;
        self.link = link;
        self.silent = 0;
        self.decoder.restart(from);
        Ok(())
    }

    /// Waits for the next bytes, at most about a tenth of a second, and hands on every
    /// transaction that they complete, stamped by `now` once, right after they came.
    ///
    /// # Errors
    /// When the connection is lost or silent, the server ends the stream, or its bytes
    /// make no sense.
    pub fn read<C, S>(&mut self, now: C, sink: &mut S) -> Result<Heard, ServerError>
    where
        C: Fn() -> Nanos,
        S: FnMut(Arrived<'_>),
    {
        let before = self.decoder.counts();
        let anything = match &mut self.link {
            Link::Plain { socket, .. } => match rustix::io::read(socket, self.decoder.space()) {
                Ok(0) => return Err(self.lost("the server closed the connection")),
                Ok(count) => {
                    let at = now();
                    let decoded = self.decoder.filled(count, at, sink);
                    decoded.map_err(|error| self.failed(&error))?;
                    true
                }
                Err(Errno::AGAIN | Errno::INTR) => false,
                Err(error) => return Err(self.lost(&error.to_string())),
            },
            Link::Tls(stream) => {
                // The driver panics on events shorter than they say; so must not we.
                let next = catch_unwind(AssertUnwindSafe(|| stream.next()));
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
                        return Err(ServerError::from_driver(
                            &self.node.name,
                            &self.address(),
                            DOING,
                            &error,
                        ));
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
        if NAP * self.silent > HEARTBEAT * MISSED {
            let seconds = (HEARTBEAT * MISSED).as_secs();
            return Err(ServerError {
                kind: ErrorKind::Timeout,
                ..self.lost(&format!("no heartbeat for {seconds} s"))
            });
        }
        let after = self.decoder.counts();
        Ok(Heard {
            anything,
            transactions: after.transactions - before.transactions,
            bytes: after.bytes - before.bytes,
            heartbeats: after.heartbeats - before.heartbeats,
            rotations: after.rotations - before.rotations,
        })
    }

    /// The end of the last whole transaction.
    #[must_use]
    pub fn position(&self) -> &Position {
        self.decoder.position()
    }

    /// Where the server's log ends now, asked over another connection; `None` when the
    /// user may not see it.
    ///
    /// # Errors
    /// When the server cannot be reached.
    pub fn end_of_log(&self) -> Result<Option<Position>, ServerError> {
        let mut session = Session::open(&self.node)?;
        match flavour::binlog_end(self.engine, &mut session) {
            Ok(end) => Ok(end.map(|(file, offset)| Position { file, offset })),
            Err(error) if error.kind == ErrorKind::Privilege => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What has come so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.decoder.counts()
    }

    /// Names of tables, when they were asked for.
    #[must_use]
    pub fn tables(&self) -> Option<&Tables> {
        self.decoder.tables()
    }

    /// What the server had executed just after the stream's beginning was fixed, in its
    /// own words (`gtid_executed`, `gtid_binlog_state`): all that precedes the beginning,
    /// and perhaps a little of what follows it.
    #[must_use]
    pub fn executed_at_start(&self) -> &str {
        &self.begun
    }

    /// The server that is followed.
    #[must_use]
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// The `server_id` under which it follows.
    #[must_use]
    pub fn server_id(&self) -> u32 {
        self.server_id
    }

    /// Whether the connection is encrypted, and so slower to read.
    #[must_use]
    pub fn tls(&self) -> bool {
        matches!(self.link, Link::Tls(_))
    }

    fn address(&self) -> String {
        self.node.endpoint.address()
    }

    fn lost(&self, cause: &str) -> ServerError {
        ServerError {
            kind: ErrorKind::Lost,
            ..ServerError::unfit(
                &self.node.name,
                &self.address(),
                DOING,
                cause,
                "check whether the server stopped; see its error log",
            )
        }
    }

    fn failed(&self, error: &StreamError) -> ServerError {
        explain(&self.node, self.engine, self.server_id, error)
    }
}

/// An event as it came: the driver has taken it apart.
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
