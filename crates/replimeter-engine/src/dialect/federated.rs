//! FEDERATED tables of MariaDB and MySQL: a table whose rows another server has.

use replimeter_model::engine::Engine;

use super::statements::{read_only_privilege, restricted_variables_privilege};
use crate::{
    ErrorClass, ErrorKind, Node, ServerError, Session, facts::ServerFacts, membership::Membership,
};

/// Operation of its errors.
pub const OPERATION: &str = "cannot join through a FEDERATED table";

/// Makes a session's definitions stay on its server.
///
/// # Errors
/// When the server refuses or the connection breaks.
pub fn stop_logging(
    session: &mut Session,
    facts: &ServerFacts,
    membership: &Membership,
    operation: &str,
) -> Result<(), ServerError> {
    session
        .run(operation, "SET SESSION sql_log_bin = 0")
        .map_err(|error| match error.kind {
            ErrorKind::Privilege => ServerError {
                hint: format!(
                    "GRANT {} ON *.* to the user: the table must not be replicated",
                    restricted_variables_privilege(facts.engine, &facts.version)
                ),
                ..error
            },
            _ => error,
        })?;
    if membership.galera().is_some() {
        // A cluster replicates definitions nevertheless.
        session.run(operation, "SET SESSION wsrep_on = OFF")?;
    }
    Ok(())
}

/// Checks that the server has the storage engine.
///
/// # Errors
/// When it is not enabled, or the connection breaks.
pub fn require(session: &mut Session, engine: Engine) -> Result<(), ServerError> {
    let support = session.value(
        OPERATION,
        "SELECT SUPPORT FROM information_schema.ENGINES WHERE ENGINE = 'FEDERATED'",
    )?;
    if matches!(support.as_deref(), Some("YES" | "DEFAULT")) {
        return Ok(());
    }
    Err(session.precondition(
        OPERATION,
        "its FEDERATED engine is not enabled",
        match engine {
            Engine::MariaDb => "run INSTALL SONAME 'ha_federatedx'; there (a sandbox: --federated), or omit --join federated",
            Engine::MySql => "start it with --federated (a sandbox too), or omit --join federated",
        },
    ))
}

/// Returns the connection string for FEDERATED, in which nothing can be escaped.
///
/// # Errors
/// When a part of it has a character that such a string cannot express, or the primary is named by a socket.
pub fn connection(
    session: &Session,
    primary: &Node,
    schema: &str,
    table: &str,
) -> Result<String, ServerError> {
    let password = primary
        .password
        .as_ref()
        .map_or("", |password| password.reveal());
    if primary.endpoint.socket.is_some() {
        return Err(session.precondition(
            OPERATION,
            "a FEDERATED connection is made over TCP, and the primary was named by its Unix socket",
            "name the primary by host and port, or omit --join federated",
        ));
    }
    let special = |text: &str| {
        text.contains(['@', ':', '/', '\'', '\\', '"']) || text.chars().any(char::is_control)
    };
    for (what, text) in [
        ("the user's name", primary.user.as_str()),
        ("the password", password),
        ("the host", &primary.endpoint.host),
    ] {
        if special(text) {
            return Err(session.precondition(
                OPERATION,
                format!("{what} contains a character that a FEDERATED connection cannot express (one of @ : / \\ and quotes)"),
                "use another user, or omit --join federated",
            ));
        }
    }
    let password = if password.is_empty() {
        String::new()
    } else {
        format!(":{password}")
    };
    Ok(format!(
        "mysql://{}{password}@{}/{schema}/{table}",
        primary.user,
        primary.endpoint.address()
    ))
}

/// Removes the password from an error, in which the server may quote the definition.
#[must_use]
pub fn without_password(mut error: ServerError, primary: &Node, engine: Engine) -> ServerError {
    if let Some(password) = primary
        .password
        .as_ref()
        .map(|password| password.reveal())
        .filter(|password| !password.is_empty())
    {
        error.cause = error.cause.replace(password, "(password)");
        // Quotations may be truncated within it.
        if error.cause.contains("mysql://") {
            error.cause = "it rejects the definition of the FEDERATED table".to_owned();
        }
    }
    match error.kind {
        ErrorKind::Statement(ErrorClass::ReadOnly) => {
            error.hint = format!(
                "GRANT {} ON *.* to the user there (super_read_only must be off)",
                read_only_privilege(engine)
            );
        }
        ErrorKind::Privilege => {
            error.hint = "GRANT CREATE, DROP, SELECT ON replimeter.* to the user there".to_owned()
        }
        _ => {
            error.hint =
                "make the primary reachable from the replica at the given address, with the same user and password; or omit --join federated"
                    .to_owned();
        }
    }
    error
}
