//! Servers that stopped answering: what is sent to one fails at once, so that the end of a run is bounded, however many statements
//! its clean-up has.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::{
    error::{ErrorKind, ServerError},
    node::Node,
};

/// How long a server has to answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// Addresses of the servers that did not answer.
static SILENT: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn all() -> MutexGuard<'static, Vec<String>> {
    SILENT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds servers.
pub(crate) fn add(nodes: &[Node]) {
    all().extend(nodes.iter().map(|node| node.endpoint.address()));
}

pub(crate) fn is_silent(node: &Node) -> bool {
    let silent = all();
    !silent.is_empty() && silent.contains(&node.endpoint.address())
}

/// Returns the true cause of an error, if its server is silent.
pub(crate) fn explained(node: &Node, error: ServerError) -> ServerError {
    if !error.unanswered() || !is_silent(node) {
        return error;
    }
    ServerError {
        cause: format!("no answer within {} s", PATIENCE.as_secs()),
        hint: "check whether the server is stalled or the network is down".to_owned(),
        kind: ErrorKind::Timeout,
        ..error
    }
}
