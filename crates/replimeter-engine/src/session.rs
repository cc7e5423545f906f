//! An open connection to one server.

mod prepared;

use std::{
    collections::BTreeMap,
    fmt, io,
    mem::ManuallyDrop,
    net::SocketAddr,
    os::fd::{AsRawFd, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

use mysql::{
    Conn, DriverError, Error, Opts, QueryResult, Row, Value,
    prelude::{Protocol, Queryable},
};
use replimeter_model::target::SslMode;
use rustix::{
    io::Errno,
    net::{
        RecvFlags,
        sockopt::{Timeout, set_socket_timeout},
    },
};

pub use self::prepared::{Bound, Fields, Prepared, Reset, Values};
use crate::{
    ErrorClass,
    attempt::attempt,
    dialect::session_settings::SessionSettings,
    driver::{self, AnswerWatch, Interrupter},
    error::{ErrorKind, ServerError, explain},
    identity::{self, Unconfirmed},
    login_error::{login_error, sent_in_clear},
    node::{CONNECT, Node},
    opened::OpenedConnection,
};

/// The largest answer that is kept, in bytes: status tables and lists of names are far smaller.
const MAX_ANSWER: usize = 64 << 20;

/// A row of a status statement, by column name.
pub type StatusRow = BTreeMap<String, String>;

/// A blocking connection that carries the server's name and address for its errors.
pub struct Session {
    /// Before the connection, since fields are dropped in their order.
    watch: AnswerWatch,
    conn: Conn,
    opened: Instant,
    tls: bool,
}

/// The server's name and its address: the beginning of messages.
impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.watch.node().fmt(f)
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({self})")
    }
}

impl Session {
    /// Connects. A server [that stopped answering](crate::Connections::give_up_on_silent_servers) is not asked again.
    ///
    /// # Errors
    /// When the server cannot be reached or verified, or refuses the user.
    pub fn open(node: &Node) -> Result<Self, ServerError> {
        Self::open_unless(node, || node.is_silent())
    }

    /// Connects, even to a server that stopped answering: it may answer again.
    ///
    /// # Errors
    /// Like [`open`](Self::open).
    pub fn open_again(node: &Node) -> Result<Self, ServerError> {
        Self::open_unless(node, || false)
    }

    fn open_unless(node: &Node, given_up: impl Fn() -> bool) -> Result<Self, ServerError> {
        let connect = |tls| connect(node, tls, &given_up);
        let wants_tls = node.endpoint.tls.mode() != SslMode::Disabled;
        let (conn, tls) = match connect(wants_tls) {
            Err(Error::DriverError(DriverError::TlsNotSupported))
                if node.endpoint.tls.mode() == SslMode::Preferred =>
            {
                (connect(false), false)
            }
            first => (first, wants_tls),
        };
        let conn = conn.and_then(|conn| set_timeouts(&conn, node).map(|()| conn));
        let conn = conn.map_err(|cause| login_error(node, &cause))?;
        let mut session = Self {
            watch: AnswerWatch::new(conn.as_raw_fd(), node),
            conn,
            opened: Instant::now(),
            tls,
        };
        session.confirm()?;
        Ok(session)
    }

    /// Refuses a peer that sent answers in clear before TLS began, which the driver takes for those of the server: only the server can
    /// return a random number. Refuses another server than that of earlier connections.
    fn confirm(&mut self) -> Result<(), ServerError> {
        let operation = "cannot read which server it is";
        let proof = match self.tls {
            true => self.random()?,
            false => String::new(),
        };
        let answer = self.value(operation, &identity::question(&proof))?;
        let node = self.watch.node();
        let error = |operation: &str, cause, hint: &str| self.precondition(operation, cause, hint);
        let answer = answer.unwrap_or_default();
        node.identity
            .confirm(&answer, &proof, error)
            .map_err(|why| match why {
                Unconfirmed::Other(error) => error,
                Unconfirmed::NoAnswer if self.tls => sent_in_clear(node),
                Unconfirmed::NoAnswer => self.precondition(
                    operation,
                    "the answer is not one of a server",
                    "check that the address is that of a MariaDB or MySQL server",
                ),
            })
    }

    fn random(&self) -> Result<String, ServerError> {
        let mut number = [0; 8];
        let random = rustls::crypto::ring::default_provider().secure_random;
        random.fill(&mut number).map_err(|_| {
            self.precondition(
                "cannot confirm the encryption",
                "this machine has no random numbers",
                "check /dev/urandom",
            )
        })?;
        Ok(u64::from_le_bytes(number).to_string())
    }

    /// Returns the server's name in the report.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.watch.node().name
    }

    /// Returns host and port, or the path of its Unix socket.
    #[must_use]
    pub fn address(&self) -> String {
        self.watch.node().endpoint.address()
    }

    /// Returns whether the connection is encrypted.
    #[must_use]
    pub fn tls(&self) -> bool {
        self.tls
    }

    /// Returns whether the texts of replication errors are shown.
    pub(crate) fn show_errors(&self) -> bool {
        self.watch.node().show_errors
    }

    /// Returns the server's id for this connection.
    #[must_use]
    pub fn connection_id(&self) -> u32 {
        self.conn.connection_id()
    }

    /// Returns what other sessions recognize the connection by.
    #[must_use]
    pub fn opened(&self) -> OpenedConnection {
        OpenedConnection {
            number: self.conn.connection_id().into(),
            at: self.opened,
        }
    }

    /// Returns what closes the connection from another thread.
    #[must_use]
    pub fn interrupter(&self) -> Interrupter {
        self.watch.interrupter()
    }

    /// Returns the connection's socket, for code that reads and writes it directly between two
    /// statements of the driver.
    ///
    /// # Errors
    /// When the system refuses another file descriptor.
    pub(crate) fn socket(&self) -> Result<OwnedFd, ServerError> {
        rustix::io::fcntl_dupfd_cloexec(socket_of(&self.conn), 0).map_err(|error| {
            self.precondition(
                "cannot duplicate the connection's socket",
                error.to_string(),
                "raise the limit of open files (ulimit -n)",
            )
        })
    }

    /// Returns the address of the server that it is connected to.
    ///
    /// # Errors
    /// When the connection has ended.
    pub(crate) fn peer(&self) -> Result<SocketAddr, ServerError> {
        let address = rustix::net::getpeername(socket_of(&self.conn))
            .ok()
            .flatten()
            .and_then(|address| SocketAddr::try_from(address).ok());
        address.ok_or_else(|| {
            let lost = io::Error::from(io::ErrorKind::NotConnected);
            self.error("cannot connect", &Error::IoError(lost))
        })
    }

    /// Returns whether the peer has closed the connection, on which nothing is under way.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let read = rustix::net::recv(socket_of(&self.conn), &mut [0; 1], flags);
        // An error that the server sends before it closes the connection is such an end, too.
        !matches!(read, Err(Errno::AGAIN | Errno::INTR))
    }

    /// Consumes the session and returns the driver's connection, for a stream that takes it over.
    pub(crate) fn into_conn(self) -> Conn {
        self.conn
    }

    /// Restores the settings of Replimeter's sessions, after a reset or [`use_server_defaults`](Self::use_server_defaults).
    ///
    /// # Errors
    /// When the connection breaks.
    pub fn restore_settings(&mut self, operation: &str) -> Result<(), ServerError> {
        self.set(operation, SessionSettings::own(self.watch.node().answer))
    }

    /// Lets the following statements, which are the user's, have the server's defaults.
    ///
    /// # Errors
    /// When the connection breaks.
    pub fn use_server_defaults(&mut self, operation: &str) -> Result<(), ServerError> {
        self.set(operation, SessionSettings::user(self.watch.node().answer))
    }

    fn set(&mut self, operation: &str, mut settings: SessionSettings) -> Result<(), ServerError> {
        loop {
            match self.run(operation, &settings.sql()) {
                Err(error) if settings.leave_out(&error.cause) => {}
                done => return done,
            }
        }
    }

    /// Wraps a driver error with this server's name.
    #[must_use]
    pub(crate) fn error(&self, operation: &str, error: &Error) -> ServerError {
        let error = self.watch.node().driver_error(operation, error);
        if error.kind == ErrorKind::Timeout {
            self.watch.node().set_owing();
        }
        self.watch.node().explained(error)
    }

    /// Returns an error about this server that Replimeter detected, not the server.
    #[must_use]
    pub fn precondition(
        &self,
        operation: &str,
        cause: impl Into<String>,
        hint: impl Into<String>,
    ) -> ServerError {
        self.watch.node().precondition(operation, cause, hint)
    }

    /// Runs a statement and keeps what `keep` takes of each row, up to [`MAX_ANSWER`] bytes in all.
    pub(crate) fn answer<T>(
        &mut self,
        operation: &str,
        sql: &str,
        keep: impl FnMut(Row) -> T,
    ) -> Result<Vec<T>, ServerError> {
        self.answer_to(operation, |conn| conn.query_iter(sql), keep)
    }

    /// Sends a statement by `ask` and keeps what `keep` takes of each row, up to [`MAX_ANSWER`] bytes in all.
    fn answer_to<T, P: Protocol>(
        &mut self,
        operation: &str,
        ask: impl FnOnce(&mut Conn) -> mysql::Result<QueryResult<'_, '_, '_, P>>,
        mut keep: impl FnMut(Row) -> T,
    ) -> Result<Vec<T>, ServerError> {
        let (mut kept, mut bytes) = (Vec::new(), 0);
        self.each(operation, ask, |row| {
            bytes += size(&row);
            if bytes > MAX_ANSWER {
                return Err(format!(
                    "the answer is longer than {} MiB",
                    MAX_ANSWER >> 20
                ));
            }
            kept.push(keep(row));
            Ok(())
        })?;
        Ok(kept)
    }

    /// Sends a statement by `ask` and passes each row to `each`, which can refuse it with a cause.
    fn each<P: Protocol>(
        &mut self,
        operation: &str,
        ask: impl FnOnce(&mut Conn) -> mysql::Result<QueryResult<'_, '_, '_, P>>,
        mut each: impl FnMut(Row) -> Result<(), String>,
    ) -> Result<(), ServerError> {
        self.ask(operation, |conn, watch| {
            // Dropping the result reads the rest of it, which must not happen after a panic.
            let mut result = ManuallyDrop::new(ask(conn)?);
            let mut refused = Ok(());
            for row in result.by_ref() {
                refused = each(row?);
                if refused.is_err() {
                    watch.shut_down();
                    break;
                }
            }
            drop(ManuallyDrop::into_inner(result));
            Ok(refused)
        })
    }

    /// Calls the driver for one answer, which takes a bounded time. Neither a panic nor an answer that `work` refuses with a cause
    /// leaves the connection open.
    fn ask<T>(
        &mut self,
        operation: &str,
        work: impl FnOnce(&mut Conn, &AnswerWatch) -> mysql::Result<Result<T, String>>,
    ) -> Result<T, ServerError> {
        self.watch.begin();
        let (conn, watch) = (&mut self.conn, &self.watch);
        let read = driver::call(|| work(conn, watch));
        let late = self.watch.end();
        let failed = |kind, cause: String, hint: &str| {
            self.watch.shut_down();
            ServerError {
                kind,
                ..self.precondition(operation, cause, hint)
            }
        };
        const SERVER: &str = "check that the address is that of a MariaDB or MySQL server, and that the network is sound";
        match read {
            Ok(Ok(Ok(done))) => Ok(done),
            Ok(Ok(Err(refused))) => Err(failed(ErrorKind::Lost, refused, SERVER)),
            Ok(Err(_)) if let Some(limit) = late => Err(failed(
                ErrorKind::Timeout,
                format!(
                    "the answer was not complete within {} s",
                    limit.as_secs_f64()
                ),
                SERVER,
            )),
            Ok(Err(error)) => Err(self.error(operation, &error)),
            Err(_) => Err(failed(
                ErrorKind::Lost,
                "the answer is not one of the protocol".to_owned(),
                SERVER,
            )),
        }
    }

    /// Runs a statement that returns no rows of interest.
    ///
    /// # Errors
    /// When the server refuses it or the connection breaks.
    pub fn run(&mut self, operation: &str, sql: &str) -> Result<(), ServerError> {
        self.answer(operation, sql, drop).map(drop)
    }

    /// Runs the first of several statements that this server can parse.
    ///
    /// # Errors
    /// When the server can parse none of them, refuses it, or the connection breaks.
    pub fn run_first_accepted(
        &mut self,
        operation: &str,
        alternatives: &[String],
    ) -> Result<(), ServerError> {
        let mut last = Ok(());
        for sql in alternatives {
            last = self.run(operation, sql);
            if !matches!(&last, Err(error) if error.class() == Some(ErrorClass::Syntax)) {
                break;
            }
        }
        last
    }

    /// Runs a statement and returns its rows by column name; NULL becomes "".
    ///
    /// # Errors
    /// When the server refuses it or the connection breaks.
    pub fn rows(&mut self, operation: &str, sql: &str) -> Result<Vec<StatusRow>, ServerError> {
        self.answer(operation, sql, |row| {
            let names: Vec<String> = row
                .columns_ref()
                .iter()
                .map(|column| column.name_str().into_owned())
                .collect();
            names
                .into_iter()
                .zip(row.unwrap().into_iter().map(text))
                .collect()
        })
    }

    /// Runs a statement of two columns, such as `SHOW STATUS`, and returns its rows keyed by the
    /// first.
    ///
    /// # Errors
    /// When the server refuses it or the connection breaks.
    pub fn pairs(
        &mut self,
        operation: &str,
        sql: &str,
    ) -> Result<BTreeMap<String, String>, ServerError> {
        let rows = self.answer(operation, sql, |row| {
            let mut values = row.unwrap().into_iter().map(text);
            Some((values.next()?, values.next()?))
        })?;
        Ok(rows.into_iter().flatten().collect())
    }

    /// Runs a statement and returns the first column of its first row; `None`
    /// for no row and for NULL.
    ///
    /// # Errors
    /// When the server refuses it or the connection breaks.
    pub fn value(&mut self, operation: &str, sql: &str) -> Result<Option<String>, ServerError> {
        let rows = self.answer(operation, sql, |row| row.unwrap().into_iter().next())?;
        Ok(rows
            .into_iter()
            .next()
            .flatten()
            .filter(|value| *value != Value::NULL)
            .map(text))
    }

    /// Runs a statement with values for its `?`, prepared once per connection, and returns the columns of its rows; NULL becomes "".
    ///
    /// # Errors
    /// When the server refuses it or the connection breaks.
    pub fn bound(
        &mut self,
        operation: &str,
        sql: &str,
        values: &[Bound<'_>],
    ) -> Result<Vec<Vec<String>>, ServerError> {
        let values: Vec<Value> = values.iter().map(Value::from).collect();
        self.answer_to(
            operation,
            |conn| conn.exec_iter(sql, values),
            |row| row.unwrap().into_iter().map(text).collect(),
        )
    }

    /// Runs an insert with values for its `?`, and returns the number that the row got.
    ///
    /// # Errors
    /// Like [`bound`](Self::bound).
    pub fn insert(
        &mut self,
        operation: &str,
        sql: &str,
        values: &[Bound<'_>],
    ) -> Result<u64, ServerError> {
        self.bound(operation, sql, values)?;
        Ok(self.conn.last_insert_id())
    }
}

/// Connects on a thread of its own, which is abandoned when the peer does not complete the login in time: its bytes can come one by
/// one. It is abandoned too when `given_up` returns true.
fn connect(node: &Node, tls: bool, given_up: &dyn Fn() -> bool) -> mysql::Result<Conn> {
    let (opts, namespace) = (node.opts(tls), node.namespace.clone());
    let answer = node.answer;
    if !node.greets(node.login_timeout(), given_up)? {
        return Err(Error::DriverError(DriverError::ConnectTimeout));
    }
    let limit = CONNECT + driver::limit(node.login_timeout());
    let conn = attempt("connect", limit, given_up, move || {
        namespace.map_or(Ok(()), |namespace| namespace.enter())?;
        driver::call(|| begin(opts, answer)).unwrap_or_else(|panic| Err(login_panic(&panic)))
    })?;
    let conn = conn.unwrap_or(Err(Error::DriverError(DriverError::ConnectTimeout)));
    match &conn {
        Ok(_) => node.clear_owing(),
        Err(error) if explain(error).0 == ErrorKind::Timeout => node.set_owing(),
        Err(_) => {}
    }
    conn
}

/// Returns the error for a panic of the driver during a login.
fn login_panic(panic: &str) -> Error {
    const PARSEC: &str = "parsec";
    // It knows this method and is built without it: the first text is that with a password, the second without.
    if panic.contains(PARSEC) || panic.contains("Option::unwrap()") {
        return Error::DriverError(DriverError::UnknownAuthPlugin(PARSEC.to_owned()));
    }
    Error::IoError(io::Error::other("the answer is not one of the protocol"))
}

/// Connects, and sets what every session begins with.
fn begin(opts: Opts, answer: Duration) -> mysql::Result<Conn> {
    let mut conn = Conn::new(opts)?;
    let mut settings = SessionSettings::own(answer);
    loop {
        match conn.query_drop(settings.sql()) {
            Err(Error::MySqlError(refusal)) if settings.leave_out(&refusal.message) => {}
            done => return done.map(|()| conn),
        }
    }
}

/// Returns the connection's socket.
fn socket_of(conn: &Conn) -> BorrowedFd<'_> {
    #[allow(unsafe_code, reason = "the driver gives its socket as a number only")]
    // SAFETY: the connection owns the socket, and is borrowed for as long.
    unsafe {
        BorrowedFd::borrow_raw(conn.as_raw_fd())
    }
}

/// Replaces the timeouts of the login by those of statements.
fn set_timeouts(conn: &Conn, node: &Node) -> mysql::Result<()> {
    if node.answer == node.login_timeout() {
        return Ok(());
    }
    for direction in [Timeout::Recv, Timeout::Send] {
        set_socket_timeout(socket_of(conn), direction, Some(node.answer))
            .map_err(|error| Error::IoError(error.into()))?;
    }
    Ok(())
}

/// Returns about how many bytes a row's values take.
fn size(row: &Row) -> usize {
    let values = (0..row.len()).map(|index| match row.as_ref(index) {
        Some(Value::Bytes(bytes)) => bytes.len(),
        _ => 0,
    });
    values.sum::<usize>() + row.len() * size_of::<Value>()
}

fn text(value: Value) -> String {
    match value {
        Value::NULL => String::new(),
        Value::Bytes(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Value::Int(number) => number.to_string(),
        Value::UInt(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Double(number) => number.to_string(),
        other => other.as_sql(true).trim_matches('\'').to_owned(),
    }
}

#[cfg(test)]
pub(crate) mod tests;
