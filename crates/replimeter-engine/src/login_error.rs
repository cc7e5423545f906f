//! Errors of a login.

use std::io;

use mysql::Error;

use crate::{
    Node,
    error::{ACCESS_DENIED, ErrorKind, ServerError},
};

/// Returns the error of a login that failed, with where its password came from if that may be the cause.
pub(crate) fn login_error(node: &Node, cause: &Error) -> ServerError {
    if let Error::IoError(cause) = cause
        && !node.takes_public_key()
        && cause.kind() == io::ErrorKind::NotADirectory
    {
        return unverified_key(node);
    }
    let mut error = node.driver_error("cannot connect", cause);
    if let (ErrorKind::AccessDenied, Some(login)) = (error.kind, &node.login) {
        error.cause = format!("{}; {}", error.cause, login.origin);
        if matches!(cause, Error::MySqlError(cause) if cause.code == ACCESS_DENIED) {
            error.hint.clone_from(&login.hint);
        }
    }
    // Before login is complete, a broken connection counts as not made.
    if matches!(error.kind, ErrorKind::Lost | ErrorKind::Timeout) {
        error.kind = ErrorKind::Unreachable;
        error.hint = "check that the address is that of a MariaDB or MySQL server, and that the port or socket is right".to_owned();
    }
    node.explained(error)
}

/// Returns the error about a server that asks for the password, encrypted with a key of unknown origin.
pub(crate) fn unverified_key(node: &Node) -> ServerError {
    ServerError {
        kind: ErrorKind::Tls,
        ..node.precondition(
            "cannot connect",
            "the server asks for the password without TLS, encrypted with a key that anyone could have sent",
            "use TLS (ssl-ca=FILE), or add get-server-public-key=true to the URL if only you use the network",
        )
    }
}

/// Returns the error about a peer that sent more than its greeting before TLS began.
pub(crate) fn sent_in_clear(node: &Node) -> ServerError {
    ServerError {
        kind: ErrorKind::Tls,
        ..node.precondition(
            "cannot connect",
            "answers were sent in clear before TLS began: something on the way to the server adds them",
            "find what changes the connection, such as a proxy, or use another network",
        )
    }
}
