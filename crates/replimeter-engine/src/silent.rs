//! Servers that stopped answering: what is sent to one fails at once, so that the end of a run is bounded, however many statements
//! its clean-up has.

use std::time::Duration;

use crate::{
    error::{ErrorKind, NO_ANSWER, ServerError},
    node::Node,
    sync::lock,
};

/// How long a server has to answer: a login may take longer elsewhere, but the end of a run would take twice as long then.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

impl Node {
    /// Adds it to the silent servers, with the error of its last connection if that came before the end of [`PATIENCE`].
    pub(crate) fn set_silent(&self, error: Option<ServerError>) {
        let error = error.filter(|error| error.cause != NO_ANSWER);
        lock(&self.connections.0.silent).push((self.endpoint.address(), error));
    }

    /// Returns whether it is silent.
    pub(crate) fn is_silent(&self) -> bool {
        let address = self.endpoint.address();
        let silent = lock(&self.connections.0.silent);
        silent.iter().any(|(known, _)| *known == address)
    }

    /// Returns the true cause of an error, if it is silent.
    pub(crate) fn explained(&self, error: ServerError) -> ServerError {
        if !error.unanswered() {
            return error;
        }
        let address = self.endpoint.address();
        let silent = lock(&self.connections.0.silent);
        match silent.iter().find(|(known, _)| *known == address) {
            None => error,
            Some((_, Some(known))) => ServerError {
                cause: known.cause.clone(),
                hint: known.hint.clone(),
                kind: known.kind,
                ..error
            },
            Some((_, None)) => ServerError {
                cause: format!("no answer within {} s", PATIENCE.as_secs()),
                hint: "check whether the server is stalled or the network is down".to_owned(),
                kind: ErrorKind::Timeout,
                ..error
            },
        }
    }
}
