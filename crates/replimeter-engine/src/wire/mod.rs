//! Repeated prepared statements on a dedicated connection, at the cost of the system calls:
//! Replimeter builds the packets and only scans the answers.
//!
//! The driver connects, logs in and prepares; then Replimeter writes to and reads from the socket
//! directly. With TLS the driver does all of it, which costs more.

mod packet;
mod scan;

use std::{
    io::{ErrorKind as Io, Read, Write},
    net::TcpStream,
};

use mysql::{Value, prelude::Queryable};

pub use self::{
    packet::{Binder, ParameterValue},
    scan::{ResponseScanner, ServerRefusal, StatementResult, WireError},
};
use crate::{ErrorKind, Node, ServerError, Session};

const OPERATION: &str = "cannot run the load";
/// Maximum bytes of one read.
const BUFFER: usize = 16 << 10;

const COM_QUERY: u8 = 0x03;
const COM_PING: u8 = 0x0e;
const COM_STMT_EXECUTE: u8 = 0x17;

/// A prepared statement of a [`WireConnection`].
#[derive(Debug)]
pub struct PreparedStatement {
    id: u32,
    parameters: usize,
    /// Whether the server has the parameters' types.
    bound: bool,
    /// For a connection whose statements the driver runs.
    statement: mysql::Statement,
}

impl PreparedStatement {
    /// Returns the server's id for it.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Returns the number of its parameters.
    #[must_use]
    pub fn parameters(&self) -> usize {
        self.parameters
    }
}

/// Why a statement has no result.
#[derive(Debug)]
pub enum StatementError {
    /// The server refused it; the connection is still usable.
    Refused(ServerRefusal),
    /// The connection is no longer usable.
    Broken(ServerError),
}

/// The result of a statement whose values are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatementStatus {
    /// The result.
    pub answer: StatementResult,
    /// The value of its `LAST_INSERT_ID(…)`; 0 for none.
    pub last_id: u64,
    /// The first value of the first row, if it is an integer.
    pub first: Option<u64>,
}

/// A connection for statements that are run repeatedly.
pub struct WireConnection {
    session: Session,
    /// The connection's socket, unless the driver must encrypt.
    socket: Option<TcpStream>,
    scanner: ResponseScanner,
    out: Vec<u8>,
    buffer: Vec<u8>,
}

impl WireConnection {
    /// Connects and logs in.
    ///
    /// # Errors
    /// Like [`Session::open`].
    pub fn open(node: &Node) -> Result<Self, ServerError> {
        let session = Session::open(node)?;
        let socket = if session.tls() {
            None
        } else {
            Some(TcpStream::from(session.socket()?))
        };
        Ok(Self {
            session,
            socket,
            scanner: ResponseScanner::default(),
            out: Vec::with_capacity(512),
            buffer: vec![0; BUFFER],
        })
    }

    /// Returns the session, for statements that are run once. Must not be used while an answer is
    /// outstanding, which is never the case between two calls.
    pub fn session(&mut self) -> &mut Session {
        &mut self.session
    }

    /// Returns another handle of its socket, to close the connection from another thread; `None`
    /// when the system refuses it.
    pub fn socket(&self) -> Option<TcpStream> {
        match &self.socket {
            Some(socket) => socket.try_clone().ok(),
            None => self.session.socket().ok().map(TcpStream::from),
        }
    }

    /// Returns whether the driver runs the statements, because the connection is encrypted.
    #[must_use]
    pub fn encrypted(&self) -> bool {
        self.socket.is_none()
    }

    /// Prepares a statement, its parameters as `?`.
    ///
    /// # Errors
    /// When the server refuses it, or the connection breaks.
    pub fn prepare(&mut self, sql: &str) -> Result<PreparedStatement, ServerError> {
        let prepared = self.session.conn().prep(sql);
        let statement = prepared.map_err(|error| self.session.error(OPERATION, &error))?;
        Ok(PreparedStatement {
            id: statement.id(),
            parameters: usize::from(statement.num_params()),
            bound: false,
            statement,
        })
    }

    /// Runs a prepared statement; `bind` supplies its parameters, in order.
    ///
    /// # Errors
    /// When the server refuses it or the connection breaks.
    #[inline]
    pub fn execute(
        &mut self,
        prepared: &mut PreparedStatement,
        bind: impl FnOnce(&mut Binder<'_>),
    ) -> Result<StatementResult, StatementError> {
        if self.socket.is_none() {
            return self.execute_encrypted(prepared, bind);
        }
        packet::begin(&mut self.out, COM_STMT_EXECUTE);
        self.out.extend_from_slice(&prepared.id.to_le_bytes());
        // No cursor; one iteration.
        self.out.extend_from_slice(&[0, 1, 0, 0, 0]);
        if prepared.parameters > 0 {
            let mut binder = Binder::new(&mut self.out, prepared.parameters, !prepared.bound);
            bind(&mut binder);
            binder.finish();
        }
        let answer = self.exchange()?;
        prepared.bound = true;
        Ok(answer)
    }

    /// Runs a prepared statement and reads the values of its answer. The driver does this, so it
    /// costs more than [`execute`](Self::execute).
    ///
    /// # Errors
    /// When the server refuses it or the connection breaks.
    pub fn execute_with_status(
        &mut self,
        prepared: &PreparedStatement,
        bind: impl FnOnce(&mut Binder<'_>),
    ) -> Result<StatementStatus, StatementError> {
        let mut values: Vec<Value> = Vec::with_capacity(prepared.parameters);
        bind(&mut Binder::values(&mut values));
        let values = if values.is_empty() {
            mysql::Params::Empty
        } else {
            mysql::Params::Positional(values)
        };
        let result = self
            .session
            .conn()
            .exec_iter(&prepared.statement, values)
            .map(examined);
        self.of_driver(result)
    }

    /// Runs a statement given as text.
    ///
    /// # Errors
    /// When the server refuses it or the connection breaks.
    pub fn query(&mut self, sql: &str) -> Result<StatementResult, StatementError> {
        if self.socket.is_none() {
            let result = self.session.conn().query_iter(sql).map(count);
            return self.of_driver(result);
        }
        packet::begin(&mut self.out, COM_QUERY);
        self.out.extend_from_slice(sql.as_bytes());
        self.exchange()
    }

    /// Sends the cheapest command that a server answers, and waits for the answer.
    ///
    /// # Errors
    /// When the connection breaks.
    pub fn ping(&mut self) -> Result<StatementResult, StatementError> {
        if self.socket.is_none() {
            let result = self
                .session
                .conn()
                .ping()
                .map(|()| Ok(StatementResult::default()));
            return self.of_driver(result);
        }
        packet::begin(&mut self.out, COM_PING);
        self.exchange()
    }

    /// Sends the contents of `out`, and waits for the whole answer.
    #[inline]
    fn exchange(&mut self) -> Result<StatementResult, StatementError> {
        packet::finish(&mut self.out);
        let Some(socket) = &mut self.socket else {
            return Err(self.broken(&Io::NotConnected.into()));
        };
        if let Err(error) = socket.write_all(&self.out) {
            return Err(self.broken(&error));
        }
        self.scanner.begin();
        loop {
            let Some(socket) = &mut self.socket else {
                return Err(self.broken(&Io::NotConnected.into()));
            };
            let count = match socket.read(&mut self.buffer) {
                Ok(0) => return Err(self.broken(&Io::UnexpectedEof.into())),
                Ok(count) => count,
                Err(error) if error.kind() == Io::Interrupted => continue,
                Err(error) => return Err(self.broken(&error)),
            };
            match self.scanner.push(&self.buffer[..count]) {
                Ok(None) => {}
                Ok(Some(Ok(answer))) => return Ok(answer),
                Ok(Some(Err(refusal))) => return Err(StatementError::Refused(refusal)),
                Err(WireError::WantsFile { sequence }) => {
                    // An empty packet: the client sends no file.
                    let empty = [0, 0, 0, sequence];
                    if let Some(socket) = &mut self.socket
                        && let Err(error) = socket.write_all(&empty)
                    {
                        return Err(self.broken(&error));
                    }
                }
                Err(error) => {
                    let cause = format!("invalid answer: {error}");
                    let hint = "check that the address is that of a MariaDB or MySQL server; if it is, report a bug";
                    let mut error = self.session.precondition(OPERATION, cause, hint);
                    error.kind = ErrorKind::Lost;
                    return Err(StatementError::Broken(error));
                }
            }
        }
    }

    fn broken(&self, error: &std::io::Error) -> StatementError {
        let mut words = self.session.error(
            OPERATION,
            &mysql::Error::IoError(std::io::Error::new(error.kind(), error.to_string())),
        );
        if error.kind() == Io::UnexpectedEof {
            words.cause = "the server closed the connection".to_owned();
        }
        StatementError::Broken(words)
    }

    fn execute_encrypted(
        &mut self,
        prepared: &PreparedStatement,
        bind: impl FnOnce(&mut Binder<'_>),
    ) -> Result<StatementResult, StatementError> {
        let mut values: Vec<Value> = Vec::with_capacity(prepared.parameters);
        let mut binder = Binder::values(&mut values);
        bind(&mut binder);
        let conn = self.session.conn();
        let result = if values.is_empty() {
            conn.exec_iter(&prepared.statement, ()).map(count)
        } else {
            conn.exec_iter(&prepared.statement, values).map(count)
        };
        self.of_driver(result)
    }

    fn of_driver<T>(&self, result: mysql::Result<mysql::Result<T>>) -> Result<T, StatementError> {
        match result.and_then(|inner| inner) {
            Ok(answer) => Ok(answer),
            Err(mysql::Error::MySqlError(error)) => Err(StatementError::Refused(ServerRefusal {
                code: error.code,
                state: error.state,
                message: error.message,
            })),
            Err(error) => Err(StatementError::Broken(
                self.session.error(OPERATION, &error),
            )),
        }
    }

    /// Returns a refusal as this server's error.
    #[must_use]
    pub fn refused(&self, refusal: &ServerRefusal) -> ServerError {
        let error = mysql::MySqlError {
            state: refusal.state.clone(),
            message: refusal.message.clone(),
            code: refusal.code,
        };
        self.session
            .error(OPERATION, &mysql::Error::MySqlError(error))
    }
}

/// Reads an answer to its end and keeps the values of [`StatementStatus`].
fn examined<T: mysql::prelude::Protocol>(
    mut result: mysql::QueryResult<'_, '_, '_, T>,
) -> mysql::Result<StatementStatus> {
    let mut examined = StatementStatus {
        last_id: result.last_insert_id().unwrap_or(0),
        ..StatementStatus::default()
    };
    examined.answer.affected = result.affected_rows();
    while let Some(set) = result.iter() {
        for row in set {
            let row = row?;
            if examined.answer.rows == 0 {
                examined.first = match row.as_ref(0) {
                    Some(Value::UInt(number)) => Some(*number),
                    Some(Value::Int(number)) => u64::try_from(*number).ok(),
                    Some(Value::Bytes(text)) => std::str::from_utf8(text)
                        .ok()
                        .and_then(|text| text.parse().ok()),
                    _ => None,
                };
            }
            examined.answer.rows += 1;
        }
    }
    Ok(examined)
}

/// Reads an answer to its end and counts its rows.
fn count<T: mysql::prelude::Protocol>(
    mut result: mysql::QueryResult<'_, '_, '_, T>,
) -> mysql::Result<StatementResult> {
    let mut answer = StatementResult {
        affected: result.affected_rows(),
        ..StatementResult::default()
    };
    while let Some(set) = result.iter() {
        for row in set {
            row?;
            answer.rows += 1;
        }
    }
    Ok(answer)
}
