//! An open connection to one server.

use std::{
    collections::BTreeMap,
    fmt, io,
    os::fd::{AsRawFd, BorrowedFd, OwnedFd},
};

use mysql::{Conn, DriverError, Error, Value, prelude::Queryable};
use replimeter_model::target::SslMode;

use crate::{
    error::{ErrorKind, ServerError, code},
    node::Node,
};

/// A row of a status statement, by column name.
pub type StatusRow = BTreeMap<String, String>;

/// A blocking connection that carries the server's name and address for its errors.
pub struct Session {
    conn: Conn,
    name: String,
    address: String,
    tls: bool,
}

/// The server's name and its address: the beginning of messages.
impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.address)
    }
}

impl Session {
    /// Connects.
    ///
    /// # Errors
    /// When the server cannot be reached or verified, or refuses the user.
    pub fn open(node: &Node) -> Result<Self, ServerError> {
        let connect = |tls: bool| match &node.namespace {
            None => Conn::new(node.opts(tls)),
            Some(namespace) => namespace
                .run(|| Conn::new(node.opts(tls)))
                .map_err(Error::IoError)?,
        };
        let wants_tls = node.endpoint.tls.mode() != SslMode::Disabled;
        let (conn, tls) = match connect(wants_tls) {
            Err(Error::DriverError(DriverError::TlsNotSupported))
                if node.endpoint.tls.mode() == SslMode::Preferred =>
            {
                (connect(false), false)
            }
            first => (first, wants_tls),
        };
        let (name, address) = (node.name.clone(), node.endpoint.address());
        match conn {
            Ok(conn) => Ok(Self {
                conn,
                name,
                address,
                tls,
            }),
            Err(Error::IoError(cause))
                if !node.takes_public_key() && cause.kind() == io::ErrorKind::NotADirectory =>
            {
                Err(ServerError {
                    kind: ErrorKind::Tls,
                    ..ServerError::precondition(
                        &name,
                        &address,
                        "cannot connect",
                        "the server asks for the password without TLS, encrypted with a key that anyone could have sent",
                        "use TLS (ssl-ca=FILE), or add get-server-public-key=true to the URL if only you use the network",
                    )
                })
            }
            Err(cause) => {
                let mut error = ServerError::from_driver(&name, &address, "cannot connect", &cause);
                if let (ErrorKind::AccessDenied, Some(login)) = (error.kind, &node.login) {
                    error.cause = format!("{}; {}", error.cause, login.origin);
                    if matches!(&cause, Error::MySqlError(cause) if cause.code == code::ACCESS_DENIED)
                    {
                        error.hint.clone_from(&login.hint);
                    }
                }
                // Before login is complete, a broken connection counts as not made.
                if matches!(error.kind, ErrorKind::Lost | ErrorKind::Timeout) {
                    error.kind = ErrorKind::Unreachable;
                    error.hint = "check that the address is that of a MariaDB or MySQL server, and that the port is right".to_owned();
                }
                Err(error)
            }
        }
    }

    /// Returns the server's name in the report.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns host and port.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns whether the connection is encrypted.
    #[must_use]
    pub fn tls(&self) -> bool {
        self.tls
    }

    /// Returns the server's id for this connection.
    #[must_use]
    pub fn connection_id(&self) -> u32 {
        self.conn.connection_id()
    }

    /// Returns the driver's connection, for the measuring path.
    pub fn conn(&mut self) -> &mut Conn {
        &mut self.conn
    }

    /// Returns the connection's socket, for code that reads and writes it directly between two
    /// statements of the driver.
    ///
    /// # Errors
    /// When the system refuses another file descriptor.
    pub(crate) fn socket(&self) -> Result<OwnedFd, ServerError> {
        let raw = self.conn.as_raw_fd();
        #[allow(unsafe_code, reason = "the driver gives its socket as a number only")]
        // SAFETY: the session owns the socket and lives until the end of this function.
        let borrowed = unsafe { BorrowedFd::borrow_raw(raw) };
        rustix::io::fcntl_dupfd_cloexec(borrowed, 0).map_err(|error| {
            self.precondition(
                "cannot duplicate the connection's socket",
                error.to_string(),
                "raise the limit of open files (ulimit -n)",
            )
        })
    }

    /// Consumes the session and returns the driver's connection, for a stream that takes it over.
    pub(crate) fn into_conn(self) -> Conn {
        self.conn
    }

    /// Wraps a driver error with this server's name.
    #[must_use]
    pub fn error(&self, operation: &str, error: &Error) -> ServerError {
        ServerError::from_driver(&self.name, &self.address, operation, error)
    }

    /// Returns an error about this server that Replimeter detected, not the server.
    #[must_use]
    pub fn precondition(
        &self,
        operation: &str,
        cause: impl Into<String>,
        hint: impl Into<String>,
    ) -> ServerError {
        ServerError::precondition(&self.name, &self.address, operation, cause, hint)
    }

    /// Runs a statement that returns no rows of interest.
    ///
    /// # Errors
    /// When the server refuses it or the connection breaks.
    pub fn run(&mut self, operation: &str, sql: &str) -> Result<(), ServerError> {
        let done = self.conn.query_drop(sql);
        done.map_err(|error| self.error(operation, &error))
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
            if !matches!(&last, Err(error) if error.kind == ErrorKind::Statement(crate::error::code::SYNTAX))
            {
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
        let found = self.conn.query(sql);
        let rows: Vec<mysql::Row> = found.map_err(|error| self.error(operation, &error))?;
        let texts = rows.into_iter().map(|row| {
            let names: Vec<String> = row
                .columns_ref()
                .iter()
                .map(|column| column.name_str().into_owned())
                .collect();
            names
                .into_iter()
                .zip(row.unwrap().into_iter().map(text))
                .collect()
        });
        Ok(texts.collect())
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
        let found = self.conn.query(sql);
        let rows: Vec<(String, Option<String>)> =
            found.map_err(|error| self.error(operation, &error))?;
        Ok(rows
            .into_iter()
            .map(|(name, value)| (name, value.unwrap_or_default()))
            .collect())
    }

    /// Runs a statement and returns the first column of its first row; `None`
    /// for no row and for NULL.
    ///
    /// # Errors
    /// When the server refuses it or the connection breaks.
    pub fn value(&mut self, operation: &str, sql: &str) -> Result<Option<String>, ServerError> {
        let found = self.conn.query_first(sql);
        let row: Option<mysql::Row> = found.map_err(|error| self.error(operation, &error))?;
        Ok(row
            .and_then(|row| row.unwrap().into_iter().next())
            .filter(|value| *value != Value::NULL)
            .map(text))
    }
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
