//! Checks whether servers answer: each is waited for once, and all at the same time.

use std::{
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use crate::{
    driver,
    error::ServerError,
    node::Node,
    session::Session,
    silent::{self, PATIENCE},
};

/// Asks every server to which a session is open for an answer, all at the same time, within 5 s. Closes all sessions to those that
/// give none; until the process ends, what is sent to them fails at once.
pub fn give_up_on_silent_servers() {
    let deadline = Instant::now() + PATIENCE;
    let mut waiting: Vec<Node> = driver::watched_nodes();
    waiting.retain(|node| !silent::is_silent(node));
    let (send, receive) = mpsc::channel();
    for node in &waiting {
        let (node, send) = (node.clone(), send.clone());
        // Without the thread, the server counts as silent.
        let _ = thread::Builder::new()
            .name("answer".to_owned())
            .spawn(move || {
                if check_answer(&node, PATIENCE).is_ok() {
                    let _ = send.send(node.endpoint.address());
                }
            });
    }
    drop(send);
    while !waiting.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        let Ok(address) = receive.recv_timeout(left) else {
            break;
        };
        waiting.retain(|node| node.endpoint.address() != address);
    }
    silent::add(&waiting);
    waiting.iter().for_each(driver::shut_down_all);
}

/// Checks that a server answers a new connection. A refusal is an answer.
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
