//! Connects to a server as a replica does, and requests its binary log.

use std::{
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use mysql::{BinlogRequest, BinlogStream, Conn};
use replimeter_model::{bug::REPORT_BUG, engine::Engine};
use rustix::{
    io::Errno,
    net::{
        RecvFlags, Shutdown, recv, shutdown,
        sockopt::{Timeout, set_socket_timeout},
    },
};

use crate::{
    ErrorClass, ErrorKind, Node, ServerError, Session, dialect,
    error::{ACCESS_DENIED, SPECIAL_DENIED},
    follow::{
        decoder::{Position, StreamError, refused},
        requirements::OPERATION,
    },
    position::{GtidSet, Uuid, domain_commits},
};

/// The hint when a connection broke.
const STOPPED: &str = "check whether the server stopped or its dump thread was killed";
/// Timeout of a read, after which control returns to the caller.
pub(super) const READ_TIMEOUT: Duration = Duration::from_millis(100);
/// The interval between heartbeats of an idle server.
pub(super) const HEARTBEAT: Duration = Duration::from_millis(500);
/// The interval over TLS, where only a heartbeat returns control to the caller.
const HEARTBEAT_TLS: Duration = Duration::from_millis(100);

const COM_BINLOG_DUMP: u8 = 0x12;
const COM_REGISTER: u8 = 0x15;
const COM_BINLOG_DUMP_GTID: u8 = 0x1e;
const BY_GTID: u16 = 4;
/// The server cannot send its binary log from the requested position.
const DUMP_REFUSED: u16 = 1236;

/// Where the stream begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartPosition {
    /// At the next commit.
    Now,
    /// After these transactions: a set (MySQL) or a list (MariaDB), in the server's notation.
    Gtids(String),
    /// At a position in a file.
    File(Position),
}

/// A connection that transfers the log.
pub(super) enum LogConnection {
    /// Replimeter reads the socket directly; the session keeps the connection open.
    Plain { socket: OwnedFd, _session: Session },
    /// The driver decrypts; slower, and events arrive one by one.
    Tls(Box<BinlogStream>),
}

impl Drop for LogConnection {
    fn drop(&mut self) {
        if let Self::Plain { socket, .. } = self {
            // Makes the server end its dump immediately, not at its next event.
            let _ = shutdown(socket, Shutdown::Both);
        }
    }
}

/// A stream that was requested.
pub(super) struct RequestedStream {
    pub(super) link: LogConnection,
    /// Where it begins; no file where that was given by GTIDs.
    pub(super) position: Position,
    /// What the server had executed just after the position was determined.
    pub(super) executed: String,
    /// The transactions before the position, to resume by GTID.
    pub(super) before: String,
}

/// Connects, determines the start position, and requests the stream.
pub(super) fn connect(
    node: &Node,
    engine: Engine,
    server_id: u32,
    from: &StartPosition,
) -> Result<RequestedStream, ServerError> {
    let mut session = Session::open(node)?;
    let from = match from {
        StartPosition::Now => now(&mut session, engine)?,
        other => other.clone(),
    };
    // After the start position is determined: it includes every transaction before that position.
    let state = match engine {
        Engine::MariaDb => "SELECT @@GLOBAL.gtid_binlog_state",
        Engine::MySql => "SELECT @@GLOBAL.gtid_executed",
    };
    let operation = "cannot read which transactions the server has executed";
    let executed = session.value(operation, state)?.unwrap_or_default();
    let before = match (&from, engine) {
        (StartPosition::Gtids(gtids), _) => gtids.clone(),
        (_, Engine::MySql) => executed.clone(),
        (_, Engine::MariaDb) => session
            .value(operation, "SELECT @@GLOBAL.gtid_binlog_pos")?
            .unwrap_or_default(),
    };
    let tls = session.tls();
    let heartbeat = if tls { HEARTBEAT_TLS } else { HEARTBEAT }.as_nanos();
    // User variables: each engine reads those that it supports.
    let mut settings = format!(
        "SET @mariadb_slave_capability=4, @master_binlog_checksum='NONE', @source_binlog_checksum='NONE', \
         @master_heartbeat_period={heartbeat}, @source_heartbeat_period={heartbeat}"
    );
    let beginning = Position {
        file: String::new(),
        offset: 4,
    };
    let (position, gtids) = match from {
        StartPosition::File(position) if !fits(&position) => {
            return Err(session.precondition(
                OPERATION,
                format!(
                    "the position {} of {} is beyond 4 GiB, and a request by position has 32 bits",
                    position.offset, position.file
                ),
                "start by GTIDs, or from now",
            ));
        }
        StartPosition::File(position) => (position, None),
        StartPosition::Gtids(gtids) => (beginning, Some(gtids)),
        StartPosition::Now => (beginning, None),
    };
    let hint = "give GTIDs as the server prints them";
    let mut set = None;
    match (engine, &gtids) {
        (Engine::MariaDb, Some(gtids)) => {
            // The accepted notation consists of digits, dashes and commas only.
            domain_commits(gtids)
                .map_err(|error| session.precondition(OPERATION, error.to_string(), hint))?;
            settings
                .push_str(&format!(", @slave_connect_state='{gtids}', @slave_gtid_strict_mode=0, @slave_gtid_ignore_duplicates=0"));
        }
        (Engine::MySql, Some(gtids)) => {
            let parsed = GtidSet::parse(gtids)
                .map_err(|error| session.precondition(OPERATION, error.to_string(), hint))?;
            set = Some(parsed);
        }
        (_, None) => {}
    }
    session.run(OPERATION, &settings)?;
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
    Ok(RequestedStream {
        link,
        position,
        executed,
        before,
    })
}

/// Returns whether a request by position can have this offset: it has 32 bits.
pub(super) fn fits(position: &Position) -> bool {
    u32::try_from(position.offset).is_ok()
}

/// Returns the end of the server's log; by GTID when the user may not read the position.
fn now(session: &mut Session, engine: Engine) -> Result<StartPosition, ServerError> {
    match dialect::binlog_end(engine, session) {
        Ok(Some((file, offset))) => {
            let end = Position { file, offset };
            if fits(&end) {
                return Ok(StartPosition::File(end));
            }
        }
        Ok(None) => {}
        Err(error) if error.kind == ErrorKind::Privilege => {}
        Err(error) => return Err(error),
    }
    let own = match engine {
        Engine::MariaDb => "SELECT @@GLOBAL.gtid_binlog_pos",
        Engine::MySql => "SELECT @@GLOBAL.gtid_executed",
    };
    Ok(StartPosition::Gtids(
        session.value(OPERATION, own)?.unwrap_or_default(),
    ))
}

fn encrypted(
    node: &Node,
    engine: Engine,
    conn: Conn,
    server_id: u32,
    position: &Position,
    set: Option<&GtidSet>,
) -> Result<LogConnection, ServerError> {
    let mut request = BinlogRequest::new(server_id)
        .with_filename(position.file.as_bytes())
        .with_pos(position.offset);
    if let Some(set) = set {
        // The driver's type for it is not public.
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
            other => node.driver_error(OPERATION, &other),
        })?;
    Ok(LogConnection::Tls(Box::new(stream)))
}

fn plain(
    node: &Node,
    engine: Engine,
    session: Session,
    server_id: u32,
    position: &Position,
    set: Option<&GtidSet>,
) -> Result<LogConnection, ServerError> {
    let lost = |error: Errno| ServerError {
        kind: ErrorKind::Lost,
        ..node.precondition(
            OPERATION,
            error.to_string(),
            "check whether the server stopped; see its error log",
        )
    };
    let socket = session.socket()?;
    // Statements and answers alternate, so no byte of the stream is in the driver's buffers.
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
    set_socket_timeout(&socket, Timeout::Recv, Some(READ_TIMEOUT)).map_err(lost)?;
    exchange(&dump_request(server_id, position, set))?;
    Ok(LogConnection::Plain {
        socket,
        _session: session,
    })
}

fn dump_request(server_id: u32, position: &Position, set: Option<&GtidSet>) -> Vec<u8> {
    let Some(set) = set else {
        let mut request = vec![COM_BINLOG_DUMP];
        // Larger offsets were refused before.
        request.extend_from_slice(&(position.offset as u32).to_le_bytes());
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

/// Encodes a set as MySQL does: with tags only when it has any, since older servers do not support
/// them (`Gtid_set::encode`).
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

/// Waits for the first packet of an answer and consumes it only when it is an error.
fn first_answer(
    node: &Node,
    engine: Engine,
    server_id: u32,
    socket: &OwnedFd,
) -> Result<(), ServerError> {
    let error = |kind, cause: &str| ServerError {
        kind,
        ..node.precondition(
            OPERATION,
            cause,
            "check whether the server stopped; see its error log",
        )
    };
    let deadline = Instant::now() + node.answer;
    let mut bytes = [0; 1024];
    // The header and the first byte; then, of an error, as much as is kept.
    let mut wanted = 5;
    loop {
        // Waits for all of it, at most for the socket's timeout.
        match recv(
            socket,
            &mut bytes[..wanted],
            RecvFlags::PEEK | RecvFlags::WAITALL,
        ) {
            Ok((_, 0)) => return Err(error(ErrorKind::Lost, "the server closed the connection")),
            Ok((_, count)) if count == wanted => {
                let length = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], 0]) as usize;
                let whole = (4 + length).min(bytes.len());
                if bytes[4] != 0xff || length == 0 {
                    return Ok(());
                }
                if wanted == whole {
                    return Err(explain(node, engine, server_id, &refused(&bytes[4..whole])));
                }
                wanted = whole;
            }
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => return Err(error(ErrorKind::Lost, &errno.to_string())),
        }
        if Instant::now() >= deadline {
            return Err(error(ErrorKind::Timeout, "no answer in time"));
        }
    }
}

/// Returns the error and hint for a failure of the stream.
pub(super) fn explain(
    node: &Node,
    engine: Engine,
    server_id: u32,
    error: &StreamError,
) -> ServerError {
    let (kind, hint) = match error {
        StreamError::Corrupt { .. } => (
            ErrorKind::Unfit,
            format!(
                "check the server's log from that position with mysqlbinlog or mariadb-binlog; if it is intact, {REPORT_BUG}"
            ),
        ),
        StreamError::Ended => (ErrorKind::Lost, STOPPED.to_owned()),
        StreamError::Refused { code, message, .. } => {
            explain_refusal(node, engine, server_id, *code, message)
        }
    };
    ServerError {
        kind,
        ..node.precondition(OPERATION, error.to_string(), hint)
    }
}

/// Returns the kind and hint for a server's error.
fn explain_refusal(
    node: &Node,
    engine: Engine,
    server_id: u32,
    number: u16,
    message: &str,
) -> (ErrorKind, String) {
    let message = message.to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| message.contains(word));
    let (kind, hint) = match number {
        SPECIAL_DENIED | ACCESS_DENIED => {
            let privilege = match engine {
                Engine::MariaDb => "REPLICATION SLAVE (also called REPLICATION REPLICA)",
                Engine::MySql => "REPLICATION SLAVE",
            };
            let hint = format!(
                "grant {privilege}: GRANT REPLICATION SLAVE ON *.* TO the user `{}`",
                node.user
            );
            return (ErrorKind::Privilege, hint);
        }
        DUMP_REFUSED
            if says(&[
                "same server_id",
                "same server_uuid",
                "server_uuid/server_id",
            ]) =>
        {
            let hint = format!(
                "choose another --server-id, or leave it out: another replica is connected with server_id {server_id}"
            );
            return (ErrorKind::Unfit, hint);
        }
        DUMP_REFUSED if says(&["not open", "binary log is not"]) => (
            ErrorKind::Unfit,
            "enable the server's binary log (log_bin=binlog) and restart it",
        ),
        DUMP_REFUSED
            if says(&[
                "purged",
                "could not find",
                "not in the master",
                "not in the source",
                "impossible position",
                "> file size",
            ]) =>
        {
            (
                ErrorKind::Statement(ErrorClass::LogRefused),
                "start from now, and make the server keep its binary log longer (binlog_expire_logs_seconds, expire_logs_days): that part was purged",
            )
        }
        1317 | 1053 | 1927 => (ErrorKind::Lost, STOPPED),
        other => (
            ErrorKind::Statement(ErrorClass::of(other, &message)),
            "see the server's error log",
        ),
    };
    (kind, hint.to_owned())
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
