//! Servers that stopped answering: what is sent to one fails at once, so that the end of a run is bounded, however many statements
//! its clean-up has.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use replimeter_model::target::Endpoint;

use crate::error::{ErrorKind, NO_ANSWER, ServerError};

/// How long a server has to answer: a login may take longer elsewhere, but the end of a run would take twice as long then.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// Addresses of the servers that did not answer, each with what came instead.
static SILENT: Mutex<Vec<(String, Option<ServerError>)>> = Mutex::new(Vec::new());

fn all() -> MutexGuard<'static, Vec<(String, Option<ServerError>)>> {
    SILENT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds a server, with the error of its last connection if that came before the end of [`PATIENCE`].
pub(crate) fn add(server: &Endpoint, error: Option<ServerError>) {
    let error = error.filter(|error| error.cause != NO_ANSWER);
    all().push((server.address(), error));
}

pub(crate) fn is_silent(server: &Endpoint) -> bool {
    let address = server.address();
    all().iter().any(|(known, _)| *known == address)
}

/// Returns the true cause of an error, if its server is silent.
pub(crate) fn explained(server: &Endpoint, error: ServerError) -> ServerError {
    if !error.unanswered() {
        return error;
    }
    let address = server.address();
    let cause = match all().iter().find(|(known, _)| *known == address) {
        None => return error,
        Some((_, cause)) => cause.clone(),
    };
    match cause {
        Some(known) => ServerError {
            cause: known.cause,
            hint: known.hint,
            kind: known.kind,
            ..error
        },
        None => ServerError {
            cause: format!("no answer within {} s", PATIENCE.as_secs()),
            hint: "check whether the server is stalled or the network is down".to_owned(),
            kind: ErrorKind::Timeout,
            ..error
        },
    }
}
