//! Errors of servers: the server, the operation, the cause, and a hint.

use std::io;

use mysql::{DriverError, Error};
use rustix::io::Errno;

use crate::error_class::ErrorClass;

/// The kind of a failure, for callers that react to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// No connection could be made.
    Unreachable,
    /// This machine, or a limit of this process, kept a connection from being made; the server was not asked.
    Client,
    /// The server refused the user or the password.
    AccessDenied,
    /// Encryption could not be negotiated, or the server could not be verified.
    Tls,
    /// A file that the user named for this server cannot be used; no connection was tried.
    File,
    /// The user lacks a privilege.
    Privilege,
    /// The server did not answer before the timeout.
    Timeout,
    /// The connection broke.
    Lost,
    /// The server refused a statement.
    Statement(ErrorClass),
    /// The server does not meet a precondition.
    Unfit,
}

/// Access denied for user.
pub(crate) const ACCESS_DENIED: u16 = 1045;
/// A special privilege is missing.
pub(crate) const SPECIAL_DENIED: u16 = 1227;

/// A failure of one server.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{node} ({address}): {operation}: {cause}")]
pub struct ServerError {
    /// The server's name in the report.
    pub node: String,
    /// Host and port.
    pub address: String,
    /// The operation that failed, as in "cannot connect".
    pub operation: String,
    /// Why it failed.
    pub cause: String,
    /// The suggested remedy.
    pub hint: String,
    /// Which kind of failure.
    pub kind: ErrorKind,
}

impl ServerError {
    /// Returns whether the server gave no answer: no connection could be made, it broke, or the timeout passed.
    #[must_use]
    pub fn unanswered(&self) -> bool {
        matches!(
            self.kind,
            ErrorKind::Unreachable | ErrorKind::Timeout | ErrorKind::Lost
        )
    }

    /// Returns an error that Replimeter detected, not the server.
    #[must_use]
    pub fn precondition(
        node: &str,
        address: &str,
        operation: &str,
        cause: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self {
            node: node.to_owned(),
            address: address.to_owned(),
            operation: operation.to_owned(),
            cause: cause.into(),
            hint: hint.into(),
            kind: ErrorKind::Unfit,
        }
    }

    /// Returns why the server refused, if it did.
    #[must_use]
    pub fn class(&self) -> Option<ErrorClass> {
        match self.kind {
            ErrorKind::Statement(class) => Some(class),
            _ => None,
        }
    }

    /// Returns whether it is the server's answer that it refuses: not a broken connection, nor a missing answer.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        matches!(self.kind, ErrorKind::Privilege | ErrorKind::Statement(_))
    }
}

/// Returns a server's message on one line, so that no part of it looks like an error or a hint of its own.
pub(crate) fn one_line(message: &str) -> String {
    message.replace(['\n', '\r'], " ")
}

/// The cause if a timeout passed.
pub(crate) const NO_ANSWER: &str = "no answer in time";

/// Separates a missing privilege from a lost connection.
///
/// # Errors
/// Those of the connection.
pub fn unless_disconnected<T>(
    result: Result<T, ServerError>,
) -> Result<Result<T, ServerError>, ServerError> {
    match result {
        Err(error) if !error.is_refusal() => Err(error),
        other => Ok(other),
    }
}

/// Returns kind, cause and hint of the driver's error.
pub(crate) fn explain(error: &Error) -> (ErrorKind, String, &'static str) {
    match error {
        Error::MySqlError(error) => {
            let class = ErrorClass::of(error.code, &error.message);
            let (kind, hint) = match error.code {
                ACCESS_DENIED => (
                    ErrorKind::AccessDenied,
                    "check whether the user or the password was changed on the server",
                ),
                1698 => (
                    ErrorKind::AccessDenied,
                    "this user logs in without a password, through the server's Unix socket only; on its machine name the socket, mysql://user@localhost/?socket=/run/mysqld/mysqld.sock, or create a user with a password, CREATE USER … IDENTIFIED BY '…'",
                ),
                1130 | 1129 => (
                    ErrorKind::AccessDenied,
                    "create the user for this client's host, or unblock the host on the server",
                ),
                1044 | 1142 | SPECIAL_DENIED | 1370 => (
                    ErrorKind::Privilege,
                    "grant the privilege that the message names; `replimeter doctor` finds what else is missing",
                ),
                3118 | 4151 => (
                    ErrorKind::AccessDenied,
                    "unlock the user: ALTER USER … ACCOUNT UNLOCK; or name another one in the URL",
                ),
                1820 | 1862 => (
                    ErrorKind::AccessDenied,
                    "the user's password has expired: set a new one with ALTER USER … IDENTIFIED BY …",
                ),
                _ if class.is_limit_of_connections() => (
                    ErrorKind::Statement(class),
                    "raise max_connections or the user's MAX_USER_CONNECTIONS, or close other clients; a run needs four connections on the primary and two on each replica",
                ),
                _ if class == ErrorClass::ReadOnly => (
                    ErrorKind::Statement(class),
                    "name the writable primary with --primary",
                ),
                _ if class == ErrorClass::DiskFull => (
                    ErrorKind::Statement(class),
                    "free disk space on the server, or raise its table-size limits",
                ),
                _ => (ErrorKind::Statement(class), "see the server's error log"),
            };
            (
                kind,
                format!(
                    "{} (error {}, SQLSTATE {})",
                    one_line(&error.message),
                    error.code,
                    error.state
                ),
                hint,
            )
        }
        Error::DriverError(DriverError::TlsNotSupported) => (
            ErrorKind::Tls,
            "the server does not offer TLS".to_owned(),
            "enable TLS on the server; if it is enabled, something on the way removes it; ssl-mode=preferred does without",
        ),
        Error::DriverError(DriverError::UnknownAuthPlugin(method)) => unsupported_method(method),
        Error::DriverError(DriverError::CleartextPluginDisabled) => {
            unsupported_method("mysql_clear_password")
        }
        Error::DriverError(DriverError::OldMysqlPasswordDisabled) => {
            unsupported_method("mysql_old_password")
        }
        Error::TlsError(error) => (ErrorKind::Tls, error.to_string(), CHECK_TLS),
        Error::DriverError(DriverError::CouldNotConnect(Some((_, cause, kind)))) => {
            unreachable_cause(cause, *kind)
        }
        Error::DriverError(DriverError::ConnectTimeout | DriverError::Timeout) => (
            ErrorKind::Unreachable,
            NO_ANSWER.to_owned(),
            "check host, port and firewall",
        ),
        Error::IoError(error) => io_cause(error),
        // A broken or silent connection shows itself in the middle of a packet too.
        Error::CodecError(error) => {
            match std::error::Error::source(error).and_then(|source| source.downcast_ref()) {
                Some(error) => io_cause(error),
                None => (
                    ErrorKind::Lost,
                    error.to_string(),
                    "check that the address is that of a MariaDB or MySQL server",
                ),
            }
        }
        other => (
            ErrorKind::Lost,
            other.to_string(),
            "check that the address is that of a MariaDB or MySQL server",
        ),
    }
}

fn unsupported_method(method: &str) -> (ErrorKind, String, &'static str) {
    (
        ErrorKind::Unfit,
        format!("Replimeter does not support the user's authentication method, {method}"),
        "name a user with a supported method: mysql_native_password, caching_sha2_password, ed25519, or through the server's Unix socket one of the system's users (unix_socket, auth_socket)",
    )
}

/// The hint for a server that could not be verified.
const CHECK_TLS: &str = "check that ssl-ca names the authority of the server's certificate, and that the certificate has the host as a subject alternative name; ssl-mode=verify-ca does not compare the name";

/// Returns whether no file was left. The driver passes on an error's text and kind only.
fn has_no_file(cause: &str) -> bool {
    let has = |errno: Errno| cause.contains(&format!("(os error {})", errno.raw_os_error()));
    has(Errno::MFILE) || has(Errno::NFILE)
}

/// Returns whether this machine or a limit of this process failed.
fn is_of_client(cause: &str, kind: io::ErrorKind) -> bool {
    kind == io::ErrorKind::OutOfMemory || has_no_file(cause)
}

fn of_client(cause: &str) -> (ErrorKind, String, &'static str) {
    let (cause, hint) = match has_no_file(cause) {
        true => (
            format!("this process could open no file for the connection: {cause}"),
            "raise the limit of open files of this machine's user (ulimit -n)",
        ),
        false => (
            cause.to_owned(),
            "raise the limit of threads of this machine's user (ulimit -u)",
        ),
    };
    (ErrorKind::Client, cause, hint)
}

fn unreachable_cause(cause: &str, kind: io::ErrorKind) -> (ErrorKind, String, &'static str) {
    if is_of_client(cause, kind) {
        return of_client(cause);
    }
    let hint = match kind {
        // The resolver's failures have no kind of their own.
        _ if cause.contains("lookup") => "check the host name",
        io::ErrorKind::ConnectionRefused => {
            "check that the server runs and that this is its port or socket"
        }
        io::ErrorKind::NotFound => "check that the server runs, and the path of its socket",
        io::ErrorKind::PermissionDenied => "run as a user who may open the socket",
        _ => "check host, port and firewall",
    };
    (ErrorKind::Unreachable, cause.to_owned(), hint)
}

fn io_cause(error: &io::Error) -> (ErrorKind, String, &'static str) {
    let text = error.to_string();
    match error.kind() {
        kind if is_of_client(&text, kind) => of_client(&text),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => (
            ErrorKind::Timeout,
            NO_ANSWER.to_owned(),
            "check whether the server is stalled or the network is down; --timeout sets the limit",
        ),
        kind if kind == io::ErrorKind::ConnectionRefused || text.contains("lookup") => {
            unreachable_cause(&text, kind)
        }
        io::ErrorKind::InvalidData => (ErrorKind::Tls, text, CHECK_TLS),
        _ => (
            ErrorKind::Lost,
            text,
            "check whether the server stopped; see its error log",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Node, session::tests::node_at};

    #[test]
    fn failure_of_the_client_is_no_missing_answer() {
        let system = |errno: Errno| io::Error::from_raw_os_error(errno.raw_os_error());
        let refused = |error: &io::Error| {
            let cause = ("db:3306".to_owned(), error.to_string(), error.kind());
            Error::DriverError(DriverError::CouldNotConnect(Some(cause)))
        };
        let no_thread = io::Error::new(io::ErrorKind::OutOfMemory, "cannot start a thread");
        let (full, silent) = (Errno::MFILE, Errno::TIMEDOUT);
        for (error, answered) in [
            (refused(&system(full)), true),
            (refused(&system(Errno::NFILE)), true),
            (Error::IoError(system(full)), true),
            (Error::IoError(no_thread), true),
            (refused(&system(Errno::CONNREFUSED)), false),
            (Error::IoError(system(silent)), false),
            (Error::IoError(system(Errno::AGAIN)), false),
        ] {
            let error = node_at(3306).driver_error("cannot connect", &error);
            assert_eq!(error.unanswered(), !answered, "{error:?}");
            let no_file = error.cause.starts_with("this process could open no file");
            assert_eq!(no_file, has_no_file(&error.cause), "{error:?}");
        }
    }

    #[test]
    fn hint_gives_the_path_of_a_known_error_log() {
        let hint = |log: Option<&str>, hint: &str| {
            let node = Node {
                log: log.map(Into::into),
                ..node_at(3306)
            };
            node.precondition("cannot read", "lost", hint).hint
        };
        let see = "see the server's error log, then measure again";
        assert_eq!(hint(None, see), see);
        let log = Some("/s/server.log");
        let with_path = "see the server's error log, /s/server.log, then measure again";
        assert_eq!(hint(log, see), with_path);
        assert_eq!(hint(log, with_path), with_path);
        assert_eq!(hint(log, "run again"), "run again");
    }
}
