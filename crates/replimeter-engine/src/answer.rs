//! Checks whether servers answer: each is waited for once, and all at the same time.

use std::{
    sync::mpsc::{self, Sender},
    thread,
    time::{Duration, Instant},
};

use crate::{
    error::ServerError,
    node::{
        Node,
        connections::{AllConnections, Connections},
    },
    session::Session,
    silent::PATIENCE,
};

impl Connections {
    /// Asks every server to which a session is open for an answer, all at the same time, within 5 s. Closes all sessions to those that
    /// give none; until the run ends, what is sent to them fails at once. A failure of this machine says nothing about a server.
    pub fn give_up_on_silent_servers(&self) {
        give_up_on(self.watched_nodes());
    }
}

impl AllConnections {
    /// Does so for the servers of all runs ([`Connections::give_up_on_silent_servers`]).
    pub fn give_up_on_silent_servers(&self) {
        let runs = self.current();
        give_up_on(runs.iter().flat_map(Connections::watched_nodes).collect());
    }
}

/// Does so for these servers.
fn give_up_on(mut waiting: Vec<Node>) {
    let deadline = Instant::now() + PATIENCE;
    let (send, receive) = mpsc::channel();
    waiting.retain(|node| !node.is_silent() && ask(node, &send));
    drop(send);
    while !waiting.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        let Ok((address, answer)) = receive.recv_timeout(left) else {
            break;
        };
        waiting.retain(|node| {
            let answered = node.endpoint.address() == address;
            if answered && let Err(error) = &answer {
                give_up(node, Some(error.clone()));
            }
            !answered
        });
    }
    waiting.iter().for_each(|node| give_up(node, None));
}

/// Asks a server on a thread of its own; returns whether that could be started.
fn ask(node: &Node, send: &Sender<(String, Result<(), ServerError>)>) -> bool {
    let (node, send) = (node.clone(), send.clone());
    thread::Builder::new()
        .name("answer".to_owned())
        .spawn(move || {
            let _ = send.send((node.endpoint.address(), check_answer(&node, PATIENCE)));
        })
        .is_ok()
}

fn give_up(node: &Node, error: Option<ServerError>) {
    node.set_silent(error);
    node.connections.shut_down_all(&node.endpoint.address());
}

/// Checks that a server answers a new connection. A refused login is an answer; a failure of this machine counts as one.
///
/// # Errors
/// When it does not; `patience` is the timeout of each answer.
pub fn check_answer(node: &Node, patience: Duration) -> Result<(), ServerError> {
    match Session::open(&Node {
        answer: patience,
        ..node.clone()
    }) {
        Err(error) if error.unanswered() => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::session::tests::node_at;

    #[test]
    fn refused_connection_is_named_as_the_cause() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let node = node_at(listener.local_addr().unwrap().port());
        drop(listener);
        give_up_on(vec![node.clone()]);
        assert!(node.is_silent());
        let error = Session::open(&node).unwrap_err();
        assert!(error.cause.contains("refused"), "{error:?}");
        assert!(error.hint.contains("its port"), "{error:?}");
    }

    #[test]
    fn timeout_is_named_with_its_length() {
        // No connection is made to it.
        let node = node_at(1);
        let error = mysql::Error::DriverError(mysql::DriverError::ConnectTimeout);
        let error = node.driver_error("cannot connect", &error);
        give_up(&node, Some(error));
        let error = Session::open(&node).unwrap_err();
        assert_eq!(error.cause, "no answer within 5 s");
    }

    #[test]
    fn servers_of_one_run_are_not_given_up_by_another() {
        let runs = AllConnections::default();
        let [ended, next] = [runs.begin(), runs.begin()].map(|connections| Node {
            connections,
            ..node_at(1)
        });
        give_up(&ended, None);
        ended.set_owing();
        assert!(ended.is_silent() && !next.is_silent());
        assert!(next.greets(Duration::ZERO, &|| true).unwrap());
        assert_eq!(runs.current().len(), 2);
        drop(ended);
        assert_eq!(runs.current().len(), 1);
    }
}
