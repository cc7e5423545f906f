//! One connection to a reference server: the login, and the statements that it answers.

use std::{
    io::{BufReader, Error, ErrorKind, Result, Write},
    net::TcpStream,
    sync::{Arc, LazyLock, atomic::Ordering},
};

use replimeter_engine::{
    dialect::reference::{CHANNEL, VERSION, WAIT, channel, commit_id, row_of},
    wire::server_side::{Answer, MAX_PACKET, Parameter, parameters, read_packet},
};
use replimeter_model::time::Nanos;

use super::{ReferenceServer, Role};
use crate::{
    pacing::wait_until,
    priority::prepare_measuring_thread,
    table::{INSERT, POINT_SELECT, UNSEEN},
};

const COM_QUIT: u8 = 0x01;
const COM_QUERY: u8 = 0x03;
const COM_PING: u8 = 0x0e;
const COM_STMT_PREPARE: u8 = 0x16;
const COM_STMT_EXECUTE: u8 = 0x17;
const COM_STMT_CLOSE: u8 = 0x19;

/// The statements that can be prepared, in the order of their ids, with the number of their parameters.
static PREPARED: LazyLock<[(&str, u16); 5]> = LazyLock::new(|| {
    [
        (INSERT.as_str(), 4),
        (&UNSEEN, 1),
        (&POINT_SELECT, 1),
        (WAIT, 2),
        ("SELECT 1", 0),
    ]
});
/// The statement that reads no row.
const ONE: usize = 4;

/// Serves one connection until the client or the server ends it.
///
/// # Errors
/// When the connection breaks, or its bytes are not of the protocol.
pub(super) fn serve(server: &ReferenceServer, stream: &Arc<TcpStream>, number: u32) -> Result<()> {
    // A wait must end on time; its thread has ordinary priority, as those of a real server.
    prepare_measuring_thread(false);
    stream.set_nodelay(true)?;
    let mut commands = Commands {
        input: BufReader::with_capacity(16 << 10, stream),
        bytes: Vec::new(),
    };
    let mut out: &TcpStream = stream;
    let mut answer = Answer::default();
    answer.begin(0);
    answer.greeting(VERSION, number);
    out.write_all(answer.bytes())?;
    let sequence = commands.read()?;
    answer.begin(sequence.wrapping_add(1));
    answer.ok(0, None);
    out.write_all(answer.bytes())?;
    loop {
        let sequence = commands.read()?;
        let Some((command, rest)) = commands.bytes.split_first() else {
            return Err(ErrorKind::InvalidData.into());
        };
        answer.begin(sequence.wrapping_add(1));
        match *command {
            COM_QUIT => return Ok(()),
            COM_STMT_CLOSE => continue,
            COM_PING => answer.ok(0, None),
            COM_QUERY => query(server, &String::from_utf8_lossy(rest), &mut answer),
            COM_STMT_PREPARE => prepare(rest, &mut answer),
            COM_STMT_EXECUTE => execute(server, rest, &mut answer)?,
            _ => answer.unknown(),
        }
        out.write_all(answer.bytes())?;
    }
}

/// Reads a client's commands.
struct Commands<'a> {
    input: BufReader<&'a TcpStream>,
    /// The current command.
    bytes: Vec<u8>,
}

impl Commands<'_> {
    /// Reads the next command and returns its sequence number.
    fn read(&mut self) -> Result<u8> {
        read_packet(&mut self.input, &mut self.bytes)
    }
}

fn prepare(sql: &[u8], answer: &mut Answer) {
    match (0..)
        .zip(*PREPARED)
        .find(|(_, (known, _))| known.as_bytes() == sql)
    {
        Some((id, (_, parameters))) => {
            answer.prepared(id, u16::from(id > 0), parameters);
        }
        None => answer.unknown(),
    }
}

fn execute(server: &ReferenceServer, command: &[u8], answer: &mut Answer) -> Result<()> {
    let invalid = || Error::from(ErrorKind::InvalidData);
    let id = command.first().copied().map(usize::from);
    if id == Some(ONE) {
        answer.numbers([1]);
        return Ok(());
    }
    let (_, count) = id.and_then(|id| PREPARED.get(id)).ok_or_else(invalid)?;
    let wanted = if *count == 2 { 2 } else { 1 };
    let found = parameters(command, usize::from(*count), wanted).ok_or_else(invalid)?;
    match (id, found.as_slice(), &server.role) {
        (Some(0), [Parameter::Number(row)], Role::Primary(replicas)) => {
            for replica in replicas {
                replica.add(*row);
            }
            answer.ok(1, Some(&commit_id(*row)));
        }
        (Some(1), [Parameter::Number(above)], Role::Replica(rows)) => {
            answer.numbers(rows.visible_above(*above).into_iter().map(u64::cast_signed));
        }
        (Some(2), [Parameter::Number(row)], Role::Replica(rows)) => {
            answer.numbers(rows.is_visible(*row).then_some(row.cast_signed()));
        }
        (Some(3), [Parameter::Text(id), Parameter::Real(seconds)], Role::Replica(_)) => {
            answer.numbers([await_commit(server, id, *seconds)]);
        }
        _ => answer.unknown(),
    }
    Ok(())
}

/// Waits until the transaction is applied; returns 0, or -1 when it is not within the seconds.
fn await_commit(server: &ReferenceServer, commit_id: &[u8], seconds: f64) -> i64 {
    let Role::Replica(rows) = &server.role else {
        return -1;
    };
    let row = row_of(commit_id).and_then(|id| Some((id, rows.row(id)?.visible)));
    let limit = server.clock.now() + Nanos((seconds * 1e9) as i64);
    let (id, visible) = row.unwrap_or((0, Nanos(i64::MAX)));
    let until = if visible < limit { visible } else { limit };
    let ended = || server.ended.load(Ordering::Relaxed);
    if !wait_until(&server.clock, until, ended) || visible >= limit {
        return -1;
    }
    rows.release(id);
    0
}

/// Answers a statement outside of the measuring path. What no answer is known for has no rows: the server has no such
/// feature.
fn query(server: &ReferenceServer, sql: &str, answer: &mut Answer) {
    let texts = |row: &[(&str, String)]| -> (Vec<String>, Vec<String>) {
        let columns = row.iter().map(|(name, _)| (*name).to_owned());
        (
            columns.collect(),
            row.iter().map(|(_, value)| value.clone()).collect(),
        )
    };
    if sql == "SHOW GLOBAL VARIABLES" {
        let rows: Vec<_> = variables(server)
            .map(|(name, value)| vec![name.to_owned(), value])
            .into();
        return answer.texts(&["Variable_name", "Value"], &rows);
    }
    let one = |value: &str| Some(vec![("value", value.to_owned())]);
    let row = match (&server.role, sql) {
        (_, sql) if sql.contains("@@GLOBAL.server_id") => {
            let (id, port) = (server.server_id, server.port);
            one(&format!("\n{id}\n\nreference\n{port}\nnone"))
        }
        (Role::Replica(_), CHANNEL) => Some(channel(server.primary_port).into()),
        (_, "SHOW GRANTS") => one("GRANT ALL PRIVILEGES ON *.* TO `reference`@`localhost`"),
        // The run's lock is held, since no other run knows this server.
        (_, sql) if sql.contains("GET_LOCK") || sql.contains("= CONNECTION_ID()") => one("1"),
        (Role::Replica(rows), sql) if sql.starts_with("SELECT COUNT(*)") => {
            let id = sql.rsplit(' ').next().and_then(|id| id.parse().ok());
            one(if id.is_some_and(|id| rows.is_visible(id)) {
                "1"
            } else {
                "0"
            })
        }
        _ => None,
    };
    match row {
        Some(row) => {
            let (columns, values) = texts(&row);
            let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
            answer.texts(&columns, &[values]);
        }
        None if sql.starts_with("SELECT") || sql.starts_with("SHOW") => {
            answer.texts(&["value"], &[]);
        }
        None => answer.ok(0, None),
    }
}

/// Returns the global variables that the checks read.
fn variables(server: &ReferenceServer) -> [(&'static str, String); 8] {
    let on_replica = if matches!(server.role, Role::Replica(_)) {
        "ON"
    } else {
        "OFF"
    };
    [
        ("version", VERSION.to_owned()),
        ("server_id", server.server_id.to_string()),
        ("hostname", "reference".to_owned()),
        ("port", server.port.to_string()),
        ("datadir", "none".to_owned()),
        ("log_bin", "ON".to_owned()),
        ("read_only", on_replica.to_owned()),
        ("max_allowed_packet", MAX_PACKET.to_string()),
    ]
}
