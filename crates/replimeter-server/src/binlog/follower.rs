//! A connection of its own that receives a server's binary log.

use std::{
    os::fd::OwnedFd,
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

use mysql::{BinlogRequest, BinlogStream, Conn};
use replimeter_model::{engine::Engine, time::Nanos};
use rustix::{
    io::Errno,
    net::{
        RecvFlags, Shutdown, recv, shutdown,
        sockopt::{Timeout, set_socket_timeout},
    },
};

use crate::{
    ErrorKind, Node, ServerError, Session,
    binlog::{
        decoder::{Arrived, Counts, Decoder, Position, StreamError, refused},
        event::{self, HEADER},
        gtid::Uuid,
        tables::Tables,
    },
    error::code,
    facts::{Facts, Identity},
    flavour::{self, gtid::GtidSet},
};

const DOING: &str = "cannot follow its binary log";
/// How long a read waits before it hands control back.
const NAP: Duration = Duration::from_millis(100);
/// How often a server that has nothing to say says so.
const HEARTBEAT: Duration = Duration::from_millis(500);
/// How often over TLS, where only a sign of life hands control back.
const HEARTBEAT_TLS: Duration = Duration::from_millis(100);
/// A server that missed this many heartbeats is gone.
const MISSED: u32 = 20;

const COM_BINLOG_DUMP: u8 = 0x12;
const COM_REGISTER: u8 = 0x15;
const COM_BINLOG_DUMP_GTID: u8 = 0x1e;
const BY_GTID: u16 = 4;

/// Where to begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// With what is committed from now on.
    Now,
    /// After these transactions: a set (MySQL) or a list (MariaDB) as the server
    /// prints it.
    Gtids(String),
    /// At a place in a file.
    File(Position),
}

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

enum Link {
    /// We read the socket ourselves; the session keeps the connection open.
    Plain { socket: OwnedFd, _session: Session },
    /// The driver decrypts; slower, and events come one by one.
    Tls(Box<BinlogStream>),
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Self::Plain { socket, .. } = self {
            // The server ends its dump at once, rather than at its next event.
            let _ = shutdown(socket, Shutdown::Both);
        }
    }
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
    /// `server_id`, which must be nobody else's
    /// ([`fitness::check_server_id`](crate::binlog::fitness::check_server_id)).
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
                "another server answers at its address now ({} instead of {})",
                identity.place, self.identity.place
            );
            return Err(session.unfit(
                DOING,
                cause,
                "start again with the servers as they are now",
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
                        let what = "the driver cannot read an event".to_owned();
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
                ..self.lost(&format!("no sign of life for {seconds} s"))
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
                "did the server stop? its error log says more",
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

/// Connects, fixes the beginning, and asks for the stream.
fn connect(
    node: &Node,
    engine: Engine,
    server_id: u32,
    from: &Start,
) -> Result<(Link, Position, String), ServerError> {
    let mut session = Session::open(node)?;
    let from = match from {
        Start::Now => now(&mut session, engine)?,
        other => other.clone(),
    };
    // After the beginning is fixed: whatever precedes it is among these.
    let executed = match engine {
        Engine::MariaDb => "SELECT @@GLOBAL.gtid_binlog_state",
        Engine::MySql => "SELECT @@GLOBAL.gtid_executed",
    };
    let executed = session
        .value(
            "cannot read which transactions the server has executed",
            executed,
        )?
        .unwrap_or_default();
    let tls = session.tls();
    let beat = if tls { HEARTBEAT_TLS } else { HEARTBEAT }.as_nanos();
    // Variables of the user: each engine reads those that it knows.
    let mut settings = format!(
        "SET @mariadb_slave_capability=4, @master_binlog_checksum='NONE', @source_binlog_checksum='NONE', \
         @master_heartbeat_period={beat}, @source_heartbeat_period={beat}"
    );
    let (position, gtids) = match &from {
        Start::File(position) => (position.clone(), None),
        Start::Gtids(gtids) => (
            Position {
                file: String::new(),
                offset: 4,
            },
            Some(gtids.as_str()),
        ),
        Start::Now => (
            Position {
                file: String::new(),
                offset: 4,
            },
            None,
        ),
    };
    if let (Engine::MariaDb, Some(gtids)) = (engine, gtids) {
        // The reading that is accepted is of digits, dashes and commas only.
        flavour::gtid::domain_gtids(gtids).map_err(|error| {
            session.unfit(
                DOING,
                error.to_string(),
                "give GTIDs as the server prints them",
            )
        })?;
        settings
            .push_str(&format!(", @slave_connect_state='{gtids}', @slave_gtid_strict_mode=0, @slave_gtid_ignore_duplicates=0"));
    }
    session.run(DOING, &settings)?;
    let set = match (engine, gtids) {
        (Engine::MySql, Some(gtids)) => Some(GtidSet::parse(gtids).map_err(|error| {
            session.unfit(
                DOING,
                error.to_string(),
                "give GTIDs as the server prints them",
            )
        })?),
        _ => None,
    };
    let link = if tls {
        encrypted(
            node,
            engine,
            session.into_conn(),
            server_id,
            &position,
            set.as_ref(),
        )?
    } else {
        plain(node, engine, session, server_id, &position, set.as_ref())?
    };
    Ok((link, position, executed))
}

/// The end of the server's log; by GTID when the user may not ask for the place.
fn now(session: &mut Session, engine: Engine) -> Result<Start, ServerError> {
    match flavour::binlog_end(engine, session) {
        // The request has 32 bits for it.
        Ok(Some((file, offset))) if u32::try_from(offset).is_ok() => {
            return Ok(Start::File(Position { file, offset }));
        }
        Ok(_) => {}
        Err(error) if error.kind == ErrorKind::Privilege => {}
        Err(error) => return Err(error),
    }
    let own = match engine {
        Engine::MariaDb => "SELECT @@GLOBAL.gtid_binlog_pos",
        Engine::MySql => "SELECT @@GLOBAL.gtid_executed",
    };
    Ok(Start::Gtids(session.value(DOING, own)?.unwrap_or_default()))
}

fn encrypted(
    node: &Node,
    engine: Engine,
    conn: Conn,
    server_id: u32,
    position: &Position,
    set: Option<&GtidSet>,
) -> Result<Link, ServerError> {
    let mut request = BinlogRequest::new(server_id)
        .with_filename(position.file.as_bytes())
        .with_pos(position.offset);
    if let Some(set) = set {
        // The driver's type for it has no name that could be written here.
        let sids = set.parts().filter_map(|(uuid, tag, intervals)| {
            let mut text = uuid.to_owned();
            if !tag.is_empty() {
                text.push_str(&format!(":{tag}"));
            }
            for (first, last) in intervals {
                text.push_str(&format!(":{first}-{last}"));
            }
            text.parse().ok()
        });
        request = request
            .with_use_gtid(true)
            .with_sids(sids.collect::<Vec<_>>());
    }
    let stream = conn
        .get_binlog_stream(request)
        .map_err(|error| match error {
            mysql::Error::MySqlError(error) => {
                let refused = StreamError::Refused {
                    code: error.code,
                    state: error.state,
                    message: error.message,
                };
                explain(node, engine, server_id, &refused)
            }
            other => ServerError::from_driver(&node.name, &node.endpoint.address(), DOING, &other),
        })?;
    Ok(Link::Tls(Box::new(stream)))
}

fn plain(
    node: &Node,
    engine: Engine,
    session: Session,
    server_id: u32,
    position: &Position,
    set: Option<&GtidSet>,
) -> Result<Link, ServerError> {
    let lost = |error: Errno| ServerError {
        kind: ErrorKind::Lost,
        ..ServerError::unfit(
            &node.name,
            &node.endpoint.address(),
            DOING,
            error.to_string(),
            "did the server stop? its error log says more",
        )
    };
    let socket = session.socket()?;
    // Statements and answers alternate, so the driver has no byte of the stream in its buffers.
    let exchange = |payload: &[u8]| -> Result<(), ServerError> {
        send(&socket, payload).map_err(lost)?;
        first_answer(node, engine, server_id, &socket)
    };
    let mut register = vec![COM_REGISTER];
    register.extend_from_slice(&server_id.to_le_bytes());
    // No host, user, password, port, rank, source.
    register.extend_from_slice(&[0; 3 + 2 + 4 + 4]);
    exchange(&register)?;
    let mut answer = [0; 512];
    // The OK of the registration: one small packet.
    rustix::io::read(&socket, &mut answer).map_err(lost)?;
    set_socket_timeout(&socket, Timeout::Recv, Some(NAP)).map_err(lost)?;
    exchange(&dump_request(server_id, position, set))?;
    Ok(Link::Plain {
        socket,
        _session: session,
    })
}

fn dump_request(server_id: u32, position: &Position, set: Option<&GtidSet>) -> Vec<u8> {
    let Some(set) = set else {
        let mut request = vec![COM_BINLOG_DUMP];
        request.extend_from_slice(&u32::try_from(position.offset).unwrap_or(4).to_le_bytes());
        request.extend_from_slice(&0u16.to_le_bytes());
        request.extend_from_slice(&server_id.to_le_bytes());
        request.extend_from_slice(position.file.as_bytes());
        return request;
    };
    let data = encoded(set);
    let mut request = vec![COM_BINLOG_DUMP_GTID];
    request.extend_from_slice(&BY_GTID.to_le_bytes());
    request.extend_from_slice(&server_id.to_le_bytes());
    request.extend_from_slice(&0u32.to_le_bytes());
    request.extend_from_slice(&4u64.to_le_bytes());
    request.extend_from_slice(&u32::try_from(data.len()).unwrap_or(u32::MAX).to_le_bytes());
    request.extend_from_slice(&data);
    request
}

/// A set as MySQL encodes it: with tags only when there is one, since older servers
/// do not know them (`Gtid_set::encode`).
fn encoded(set: &GtidSet) -> Vec<u8> {
    const TAGGED: u64 = 1;
    let tagged = set.parts().any(|(_, tag, _)| !tag.is_empty());
    let count = set.parts().count() as u64;
    let count = if tagged {
        TAGGED << 56 | count << 8 | TAGGED
    } else {
        count
    };
    let mut data = count.to_le_bytes().to_vec();
    for (uuid, tag, intervals) in set.parts() {
        data.extend_from_slice(&uuid.parse::<Uuid>().unwrap_or(Uuid([0; 16])).0);
        if tagged {
            data.push((tag.len() as u8) << 1);
            data.extend_from_slice(tag.as_bytes());
        }
        data.extend_from_slice(&(intervals.len() as u64).to_le_bytes());
        for (first, last) in intervals {
            data.extend_from_slice(&first.to_le_bytes());
            data.extend_from_slice(&last.saturating_add(1).to_le_bytes());
        }
    }
    data
}

/// Sends a command as one packet.
fn send(socket: &OwnedFd, payload: &[u8]) -> Result<(), Errno> {
    let mut packet = u32::try_from(payload.len()).unwrap_or(0).to_le_bytes()[..3].to_vec();
    packet.push(0);
    packet.extend_from_slice(payload);
    let mut rest = packet.as_slice();
    while !rest.is_empty() {
        match rustix::io::write(socket, rest) {
            Ok(count) => rest = &rest[count..],
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Waits for the first packet of an answer and takes it only when it is an error.
fn first_answer(
    node: &Node,
    engine: Engine,
    server_id: u32,
    socket: &OwnedFd,
) -> Result<(), ServerError> {
    let error = |kind, cause: &str| ServerError {
        kind,
        ..ServerError::unfit(
            &node.name,
            &node.endpoint.address(),
            DOING,
            cause,
            "did the server stop? its error log says more",
        )
    };
    let deadline = Instant::now() + node.answer;
    let mut bytes = [0; 1024];
    loop {
        match recv(socket, &mut bytes[..], RecvFlags::PEEK) {
            Ok((_, 0)) => return Err(error(ErrorKind::Lost, "the server closed the connection")),
            Ok((_, count)) if count >= 5 => {
                if bytes[4] != 0xff {
                    return Ok(());
                }
                let length = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], 0]) as usize;
                if count >= (4 + length).min(bytes.len()) {
                    let packet = &bytes[4..(4 + length).min(count)];
                    return Err(explain(node, engine, server_id, &refused(packet)));
                }
            }
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => return Err(error(ErrorKind::Lost, &errno.to_string())),
        }
        if Instant::now() >= deadline {
            return Err(error(ErrorKind::Timeout, "no answer in time"));
        }
    }
}

/// What a failure of the stream means and what to do.
fn explain(node: &Node, engine: Engine, server_id: u32, error: &StreamError) -> ServerError {
    let unfit = |kind: ErrorKind, hint: &str| ServerError {
        kind,
        ..ServerError::unfit(
            &node.name,
            &node.endpoint.address(),
            DOING,
            error.to_string(),
            hint,
        )
    };
    match error {
        StreamError::Corrupt { .. } => unfit(
            ErrorKind::Unfit,
            "check the server's log with mysqlbinlog or mariadb-binlog from that position on; if it is sound, report this as a defect",
        ),
        StreamError::Ended => unfit(
            ErrorKind::Lost,
            "did the server stop, or did somebody kill its dump thread?",
        ),
        StreamError::Refused {
            code: number,
            message,
            ..
        } => {
            let says = |words: &[&str]| {
                words
                    .iter()
                    .any(|word| message.to_ascii_lowercase().contains(word))
            };
            match *number {
                code::SPECIAL_DENIED | code::ACCESS_DENIED => {
                    let privilege = match engine {
                        Engine::MariaDb => "REPLICATION SLAVE (also called REPLICATION REPLICA)",
                        Engine::MySql => "REPLICATION SLAVE",
                    };
                    let hint = format!(
                        "grant {privilege}: GRANT REPLICATION SLAVE ON *.* TO the user `{}`",
                        node.user
                    );
                    unfit(ErrorKind::Privilege, &hint)
                }
                code::DUMP_REFUSED
                    if says(&[
                        "same server_id",
                        "same server_uuid",
                        "server_uuid/server_id",
                    ]) =>
                {
                    unfit(
                        ErrorKind::Unfit,
                        &format!(
                            "another replica connected with server_id {server_id}: choose another --server-id, or leave it to the tool"
                        ),
                    )
                }
                code::DUMP_REFUSED if says(&["not open", "binary log is not"]) => unfit(
                    ErrorKind::Unfit,
                    "turn the server's binary log on (log_bin=binlog) and restart it",
                ),
                code::DUMP_REFUSED
                    if says(&[
                        "purged",
                        "could not find",
                        "not in the master",
                        "not in the source",
                        "impossible position",
                        "> file size",
                    ]) =>
                {
                    unfit(
                        ErrorKind::Statement(code::DUMP_REFUSED),
                        "that part of the log is gone: begin from now, and let the server keep its log longer (binlog_expire_logs_seconds, expire_logs_days)",
                    )
                }
                1317 | 1053 | 1927 => unfit(
                    ErrorKind::Lost,
                    "did the server stop, or did somebody kill its dump thread?",
                ),
                other => unfit(
                    ErrorKind::Statement(other),
                    "the server's error log says more",
                ),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_encoded_with_tags_only_when_there_are_some() {
        let uuid = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
        let plain = encoded(&GtidSet::parse(&format!("{uuid}:1-5:9")).unwrap());
        assert_eq!(plain.len(), 8 + 16 + 8 + 2 * 16);
        assert_eq!(plain[..8], [1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(
            plain[32..48],
            [1, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0],
            "the end is not in it"
        );
        let tagged = encoded(&GtidSet::parse(&format!("{uuid}:1,{uuid}:ab:2")).unwrap());
        assert_eq!(tagged[..8], [1, 2, 0, 0, 0, 0, 0, 1]);
        assert_eq!(tagged[24], 0);
        assert_eq!(tagged[24 + 1 + 8 + 16 + 16..][..3], [4, b'a', b'b']);
    }
}
