//! A connection of a load.

use std::{
    cell::RefCell,
    fmt,
    future::poll_fn,
    io::{self, ErrorKind as Io},
    mem,
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use replimeter_model::{bug::REPORT_BUG, target::SslMode};

use super::{
    login::{Greeting, LoginError, Reaction},
    login_exchange::{LoginFailure, Packets, unblocked},
    packet::{self, Binder},
    scan::{Answer, ResponseScanner, ServerRefusal, StatementResult, WireError},
    stream::Stream,
    tls::TlsTarget,
};
use crate::{
    ErrorKind, Node, ServerError, Session,
    dialect::session_settings::SessionSettings,
    identity::{self, Unconfirmed},
    login_error::{login_error, sent_in_clear, unverified_key},
    opened::OpenedConnection,
    socket::Address,
};

const OPERATION: &str = "cannot run the load";
/// Bytes of the buffer into which all connections of a thread read.
const BUFFER: usize = 16 << 10;
/// Number of reads after which a long answer lets other connections of its thread continue.
const READS: usize = 16;

const COM_QUIT: u8 = 0x01;
const COM_QUERY: u8 = 0x03;
const COM_PING: u8 = 0x0e;
const COM_STMT_PREPARE: u8 = 0x16;
const COM_STMT_EXECUTE: u8 = 0x17;

thread_local! {
    static READ: RefCell<Box<[u8]>> = RefCell::new(vec![0; BUFFER].into());
}

/// A server to which connections are opened: its name is resolved, and the files of its TLS are read, once.
#[derive(Clone, Debug)]
pub struct WireTarget(Arc<Target>);

#[derive(Debug)]
struct Target {
    node: Node,
    address: Address,
    tls: Option<TlsTarget>,
}

impl WireTarget {
    /// Resolves the server's name, and reads the files of its TLS. Of several addresses it takes the one to which a
    /// [`Session`] connects.
    ///
    /// # Errors
    /// When the name has no address, a file cannot be used, or none of several addresses answers.
    pub fn new(node: &Node) -> Result<Self, ServerError> {
        let failed = |error: io::Error| login_error(node, &mysql::Error::IoError(error));
        let endpoint = &node.endpoint;
        let resolved = || match node.addresses().map_err(failed)?.as_slice() {
            [] => Err(failed(Io::NotFound.into())),
            [only] => Ok(*only),
            _ => Session::open(node)?.peer(),
        };
        let address = match &endpoint.socket {
            Some(path) => Address::Unix(path.clone()),
            None => Address::Tcp(resolved()?),
        };
        let tls = match endpoint.tls.mode() {
            SslMode::Disabled => None,
            _ => Some(TlsTarget::new(node).map_err(failed)?),
        };
        Ok(Self(Arc::new(Target {
            node: node.clone(),
            address,
            tls,
        })))
    }

    /// Returns the server.
    #[must_use]
    pub fn node(&self) -> &Node {
        &self.0.node
    }
}

/// A prepared statement of a [`WireConnection`].
#[derive(Debug)]
pub struct PreparedStatement {
    id: u32,
    parameters: usize,
    /// Whether the server has the parameters' types.
    bound: bool,
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

/// A connection for statements that are run repeatedly. Its socket does not block: a future of its methods is pending until
/// the socket can be read from or written to, and must then be polled again. A future that is dropped before it is complete
/// leaves the connection unusable. Such a future wakes itself during a long answer, so that others are polled in between.
pub struct WireConnection {
    target: WireTarget,
    stream: Stream,
    began: Instant,
    id: u32,
    scanner: ResponseScanner,
    /// The command, and how much of it is sent.
    out: Vec<u8>,
    sent: usize,
    written: bool,
    /// The rows of a `LOAD DATA LOCAL` that is under way; the only bytes that a server gets when it requests a file.
    rows: String,
    /// Whether it is logged in and no answer is outstanding.
    idle: bool,
}

impl fmt::Debug for WireConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WireConnection({})", self.target.node())
    }
}

impl AsFd for WireConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl WireConnection {
    /// Begins to connect; [`log_in`](Self::log_in) completes it. A server
    /// [that stopped answering](crate::Connections::give_up_on_silent_servers) is not asked again.
    ///
    /// # Errors
    /// When the system refuses a socket, or the address cannot be reached.
    pub fn start(target: &WireTarget) -> Result<Self, ServerError> {
        let Target { node, address, .. } = &*target.0;
        let failed = |error| login_error(node, &mysql::Error::IoError(error));
        if node.is_silent() {
            return Err(failed(Io::TimedOut.into()));
        }
        Ok(Self {
            target: target.clone(),
            stream: Stream::start(node, address).map_err(failed)?,
            began: Instant::now(),
            id: 0,
            scanner: ResponseScanner::default(),
            out: Vec::new(),
            sent: 0,
            written: false,
            rows: String::new(),
            idle: false,
        })
    }

    /// Connects, and logs in.
    ///
    /// # Errors
    /// When the server cannot be reached or verified, or refuses the user.
    pub async fn log_in(&mut self) -> Result<(), ServerError> {
        let done = self.try_log_in().await;
        done.map_err(|failure| {
            let node = self.target.node();
            let driver = |error| login_error(node, &error);
            match failure {
                LoginFailure::Io(error) => driver(mysql::Error::IoError(error)),
                LoginFailure::Login(LoginError::UnverifiedKey) => unverified_key(node),
                LoginFailure::Login(LoginError::SentInClear) => sent_in_clear(node),
                LoginFailure::Login(LoginError::Refused(refusal)) => driver(driver_error(&refusal)),
                LoginFailure::Login(LoginError::NoTls) => driver(mysql::Error::DriverError(
                    mysql::DriverError::TlsNotSupported,
                )),
                LoginFailure::Login(LoginError::Method(name)) => driver(mysql::Error::DriverError(
                    mysql::DriverError::UnknownAuthPlugin(name),
                )),
                LoginFailure::Login(LoginError::Malformed(what)) => {
                    driver(mysql::Error::IoError(io::Error::new(Io::InvalidData, what)))
                }
            }
        })?;
        self.idle = true;
        self.set(SessionSettings::load(self.target.node().answer))
            .await?;
        self.confirm().await
    }

    /// Refuses another server than that of earlier connections.
    async fn confirm(&mut self) -> Result<(), ServerError> {
        packet::begin(&mut self.out, COM_QUERY);
        let question = identity::question("");
        self.out.extend_from_slice(question.as_bytes());
        let asked = self.exchange(Answer::Text).await;
        asked.map_err(|error| self.explained(error))?;
        let answer = self.scanner.take_value().unwrap_or_default();
        let node = self.target.node();
        let error = |operation: &str, cause, hint: &str| node.precondition(operation, cause, hint);
        let confirmed = node.identity.confirm(&answer, "", error);
        confirmed.map_err(|why| match why {
            Unconfirmed::Other(error) => error,
            Unconfirmed::NoAnswer => self.explained(
                self.invalid(&WireError::Malformed("it does not tell which server it is")),
            ),
        })
    }

    /// Lets the following statements, which are the user's, have the server's defaults.
    ///
    /// # Errors
    /// When the connection breaks.
    pub async fn use_server_defaults(&mut self) -> Result<(), ServerError> {
        self.set(SessionSettings::user(self.target.node().answer))
            .await
    }

    async fn set(&mut self, mut settings: SessionSettings) -> Result<(), ServerError> {
        loop {
            match self.run(&settings.sql()).await {
                Err(error) if settings.leave_out(&error.cause) => {}
                done => return done,
            }
        }
    }

    async fn try_log_in(&mut self) -> Result<(), LoginFailure> {
        unblocked(|| self.stream.connected()).await?;
        let mut packets = Packets::default();
        let greeting = Greeting::parse(&packets.receive(&mut self.stream).await?)?;
        self.id = greeting.connection;
        let target = Arc::clone(&self.target.0);
        let required = target.node.endpoint.tls.mode() != SslMode::Preferred;
        if let Some(tls) = &target.tls {
            if greeting.offers_tls() {
                packets
                    .send(&mut self.stream, &greeting.tls_request())
                    .await?;
                // They would count as answers inside TLS.
                if !packets.received.is_empty() {
                    return Err(LoginError::SentInClear.into());
                }
                self.stream.encrypt(tls.connection()?);
                unblocked(|| self.stream.handshake()).await?;
            } else if required {
                return Err(LoginError::NoTls.into());
            }
        }
        let encrypted = self.stream.encrypted();
        let (response, mut authentication) = greeting.response(&target.node, encrypted)?;
        packets.send(&mut self.stream, &response).await?;
        loop {
            let packet = packets.receive(&mut self.stream).await?;
            match authentication.answer(&packet)? {
                Reaction::Send(payload) => packets.send(&mut self.stream, &payload).await?,
                Reaction::Wait => {}
                Reaction::Done => return Ok(()),
            }
        }
    }

    /// Returns what other sessions recognize the connection by.
    #[must_use]
    pub fn opened(&self) -> OpenedConnection {
        OpenedConnection {
            number: self.id.into(),
            at: self.began,
        }
    }

    /// Returns whether it is logged in and no answer is outstanding.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.idle
    }

    /// Returns whether the connection is encrypted.
    #[must_use]
    pub fn encrypted(&self) -> bool {
        self.stream.encrypted()
    }

    /// Prepares a statement, its parameters as `?`.
    ///
    /// # Errors
    /// When the server refuses it, or the connection breaks.
    pub async fn prepare(&mut self, sql: &str) -> Result<PreparedStatement, ServerError> {
        packet::begin(&mut self.out, COM_STMT_PREPARE);
        self.out.extend_from_slice(sql.as_bytes());
        match self.exchange(Answer::Prepared).await {
            Ok(_) => {
                let prepared = self.scanner.prepared();
                Ok(PreparedStatement {
                    id: prepared.id,
                    parameters: usize::from(prepared.parameters),
                    bound: false,
                })
            }
            Err(error) => Err(self.explained(error)),
        }
    }

    /// Runs a prepared statement; `bind` supplies its parameters, in order.
    ///
    /// # Errors
    /// When the server refuses it or the connection breaks.
    #[inline]
    pub async fn execute(
        &mut self,
        prepared: &mut PreparedStatement,
        of: Answer,
        bind: impl FnOnce(&mut Binder<'_>),
    ) -> Result<StatementResult, StatementError> {
        packet::begin(&mut self.out, COM_STMT_EXECUTE);
        self.out.extend_from_slice(&prepared.id.to_le_bytes());
        // No cursor; one iteration.
        self.out.extend_from_slice(&[0, 1, 0, 0, 0]);
        if prepared.parameters > 0 {
            let mut binder = Binder::new(&mut self.out, prepared.parameters, !prepared.bound);
            bind(&mut binder);
            binder.finish();
        }
        let answer = self.exchange(of).await?;
        prepared.bound = true;
        Ok(answer)
    }

    /// Runs a statement given as text.
    ///
    /// # Errors
    /// When the server refuses it or the connection breaks.
    pub async fn query(&mut self, sql: &str) -> Result<StatementResult, StatementError> {
        packet::begin(&mut self.out, COM_QUERY);
        self.out.extend_from_slice(sql.as_bytes());
        self.exchange(Answer::Counted).await
    }

    /// Runs a `LOAD DATA LOCAL`, whose file has these contents: no file is read, whichever the server names.
    ///
    /// # Errors
    /// When the server refuses it or the connection breaks.
    pub async fn load(
        &mut self,
        sql: &str,
        rows: &mut String,
    ) -> Result<StatementResult, StatementError> {
        mem::swap(&mut self.rows, rows);
        let answer = self.query(sql).await;
        mem::swap(&mut self.rows, rows);
        answer
    }

    /// Runs a statement given as text, a refusal of which is this server's error.
    ///
    /// # Errors
    /// When the server refuses it or the connection breaks.
    pub async fn run(&mut self, sql: &str) -> Result<(), ServerError> {
        let done = self.query(sql).await;
        done.map(drop).map_err(|error| self.explained(error))
    }

    /// Sends the cheapest command that a server answers, and waits for the answer.
    ///
    /// # Errors
    /// When the connection breaks.
    pub async fn ping(&mut self) -> Result<StatementResult, StatementError> {
        packet::begin(&mut self.out, COM_PING);
        self.exchange(Answer::Counted).await
    }

    /// Sends the contents of `out`, and waits for the whole answer.
    #[inline]
    async fn exchange(&mut self, of: Answer) -> Result<StatementResult, StatementError> {
        packet::finish(&mut self.out);
        self.scanner.begin(of);
        (self.sent, self.written, self.idle) = (0, false, false);
        let answer = poll_fn(|context| self.poll_exchange(context)).await;
        self.idle = !matches!(answer, Err(StatementError::Broken(_)));
        answer
    }

    #[inline]
    fn poll_exchange(
        &mut self,
        context: &Context<'_>,
    ) -> Poll<Result<StatementResult, StatementError>> {
        if !self.written {
            match self.stream.write(&self.out, &mut self.sent) {
                // No answer can be there yet; its arrival is an event.
                Ok(()) => self.written = true,
                Err(error) if error.kind() == Io::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(self.broken(&error))),
            }
            return Poll::Pending;
        }
        READ.with_borrow_mut(|buffer| {
            for _ in 0..READS {
                let count = match self.stream.read(buffer) {
                    Ok(0) => return Poll::Ready(Err(self.broken(&Io::UnexpectedEof.into()))),
                    Ok(count) => count,
                    Err(error) if error.kind() == Io::WouldBlock => return Poll::Pending,
                    Err(error) => return Poll::Ready(Err(self.broken(&error))),
                };
                match self.scanner.push(&buffer[..count]) {
                    Ok(None) => {}
                    Ok(Some(Ok(answer))) => return Poll::Ready(Ok(answer)),
                    Ok(Some(Err(refusal))) => {
                        return Poll::Ready(Err(StatementError::Refused(refusal)));
                    }
                    Err(WireError::WantsFile { sequence }) => {
                        let answer = packet::file(&mut self.out, self.rows.as_bytes(), sequence);
                        self.scanner.continue_at(answer);
                        self.sent = 0;
                        match self.stream.write(&self.out, &mut self.sent) {
                            Ok(()) => {}
                            Err(error) if error.kind() == Io::WouldBlock => {
                                self.written = false;
                                return Poll::Pending;
                            }
                            Err(error) => return Poll::Ready(Err(self.broken(&error))),
                        }
                    }
                    Err(WireError::Closing(refusal)) => {
                        let error = ServerError {
                            kind: ErrorKind::Lost,
                            ..self.refused(&refusal)
                        };
                        return Poll::Ready(Err(StatementError::Broken(error)));
                    }
                    Err(error) => return Poll::Ready(Err(self.invalid(&error))),
                }
            }
            // No event announces the rest, which may have arrived.
            context.waker().wake_by_ref();
            Poll::Pending
        })
    }

    fn invalid(&self, error: &WireError) -> StatementError {
        let cause = format!("invalid answer: {error}");
        let hint = format!(
            "check that the address is that of a MariaDB or MySQL server; if it is, {REPORT_BUG}"
        );
        StatementError::Broken(ServerError {
            kind: ErrorKind::Lost,
            ..self.target.node().precondition(OPERATION, cause, hint)
        })
    }

    fn broken(&self, error: &io::Error) -> StatementError {
        let copy = io::Error::new(error.kind(), error.to_string());
        let mut words = self.error(&mysql::Error::IoError(copy));
        if error.kind() == Io::UnexpectedEof {
            words.cause = "the server closed the connection".to_owned();
        }
        StatementError::Broken(words)
    }

    fn error(&self, error: &mysql::Error) -> ServerError {
        let node = self.target.node();
        let error = node.driver_error(OPERATION, error);
        node.explained(error)
    }

    /// Returns the error of a statement that was not answered within this time. The connection is not usable any more.
    #[must_use]
    pub fn unanswered(&self, limit: Duration) -> ServerError {
        let mut error = self.error(&mysql::Error::IoError(Io::TimedOut.into()));
        error.cause = format!("no answer within {} s", limit.as_secs());
        error
    }

    /// Returns a refusal as this server's error.
    #[must_use]
    pub fn refused(&self, refusal: &ServerRefusal) -> ServerError {
        self.error(&driver_error(refusal))
    }

    /// Returns a statement's error as this server's.
    #[must_use]
    pub fn explained(&self, error: StatementError) -> ServerError {
        match error {
            StatementError::Refused(refusal) => self.refused(&refusal),
            StatementError::Broken(error) => error,
        }
    }
}

impl Drop for WireConnection {
    fn drop(&mut self) {
        if self.idle {
            // Otherwise the server would count an aborted connection.
            let _ = self.stream.write(&[1, 0, 0, 0, COM_QUIT], &mut 0);
        }
    }
}

fn driver_error(refusal: &ServerRefusal) -> mysql::Error {
    mysql::Error::MySqlError(mysql::MySqlError {
        state: refusal.state.clone(),
        message: refusal.message.clone(),
        code: refusal.code,
    })
}

#[cfg(test)]
mod tests;
