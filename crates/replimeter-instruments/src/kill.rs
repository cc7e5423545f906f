//! Ends connections of Replimeter whose statements it has given up.

use std::{
    collections::BTreeMap,
    mem,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use replimeter_engine::{
    Node, ServerError, Session,
    dialect::connections::{OpenedConnection, still_open},
    sync::lock,
};

/// Interval between checks whether a connection has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Timeout of an attempt to end given-up connections, and the pause before the next.
const ATTEMPT: Duration = Duration::from_secs(1);

/// Kills these connections, and waits up to `patience` for each answer and for their end. Returns those that may still be open. A
/// number that another client has by now is not killed.
pub fn kill(
    node: &Node,
    connections: impl IntoIterator<Item = OpenedConnection>,
    patience: Duration,
) -> Vec<OpenedConnection> {
    let connections: Vec<OpenedConnection> = connections.into_iter().collect();
    try_kill(node, &connections, patience).unwrap_or(connections)
}

fn try_kill(
    node: &Node,
    connections: &[OpenedConnection],
    patience: Duration,
) -> Result<Vec<OpenedConnection>, ServerError> {
    if connections.is_empty() {
        return Ok(Vec::new());
    }
    let mut session = Session::open(&Node {
        answer: patience,
        ..node.clone()
    })?;
    let mut open = send_kill(&mut session, connections)?;
    let deadline = Instant::now() + patience;
    while !open.is_empty() && Instant::now() < deadline {
        thread::sleep(POLL_INTERVAL);
        open = still_open(&mut session, &open)?;
    }
    Ok(open)
}

/// Kills those of these connections that are still open, without waiting for their end, and returns them.
///
/// # Errors
/// When the server does not answer.
pub(crate) fn send_kill(
    session: &mut Session,
    connections: &[OpenedConnection],
) -> Result<Vec<OpenedConnection>, ServerError> {
    let open = still_open(session, connections)?;
    for OpenedConnection { number, .. } in &open {
        // It may have ended by now.
        let _ = session.run("cannot end a connection", &format!("KILL {number}"));
    }
    Ok(open)
}

/// Kills connections of several servers; see [`kill`].
pub(crate) fn kill_all<'n>(
    connections: impl IntoIterator<Item = (&'n Node, OpenedConnection)>,
    patience: Duration,
) -> Vec<OpenedConnection> {
    let mut by_server: BTreeMap<&str, (&Node, Vec<OpenedConnection>)> = BTreeMap::new();
    for (node, opened) in connections {
        let (_, of_server) = by_server.entry(&node.name).or_insert((node, Vec::new()));
        of_server.push(opened);
    }
    let servers = by_server.into_values();
    servers
        .flat_map(|(node, connections)| kill(node, connections, patience))
        .collect()
}

/// Connections whose statements were given up, until their servers have ended them. None is replaced before, so that a server that
/// stalls has no more connections than stated; all are ended over one more connection.
#[derive(Debug, Default)]
pub struct GivenUp(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    open: Vec<(Node, OpenedConnection)>,
    /// Whether a thread ends them.
    ending: bool,
    stopped: bool,
}

impl GivenUp {
    /// Begins to end a connection on its server.
    pub fn add(self: &Arc<Self>, node: &Node, opened: OpenedConnection) {
        node.set_owing();
        let mut state = lock(&self.0);
        state.open.push((node.clone(), opened));
        if !mem::replace(&mut state.ending, true) {
            let given_up = Arc::clone(self);
            let thread = thread::Builder::new().name("kill".to_owned());
            if thread.spawn(move || given_up.end_all()).is_err() {
                // The next one tries again.
                state.ending = false;
            }
        }
    }

    /// Returns whether a connection may still be open on its server.
    #[must_use]
    pub fn contains(&self, opened: OpenedConnection) -> bool {
        lock(&self.0).open.iter().any(|(_, open)| *open == opened)
    }

    /// Waits up to this time for the end of all; returns how many may still be open.
    pub fn await_end(&self, patience: Duration) -> usize {
        let deadline = Instant::now() + patience;
        loop {
            let left = lock(&self.0).open.len();
            if left == 0 || Instant::now() >= deadline {
                return left;
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Tries no longer.
    pub fn stop(&self) {
        lock(&self.0).stopped = true;
    }

    fn end_all(&self) {
        loop {
            let tried = {
                let mut state = lock(&self.0);
                if state.open.is_empty() || state.stopped {
                    state.ending = false;
                    return;
                }
                state.open.clone()
            };
            let connections = tried.iter().map(|(node, opened)| (node, *opened));
            let left = kill_all(connections, ATTEMPT);
            lock(&self.0)
                .open
                .retain(|open| left.contains(&open.1) || !tried.iter().any(|one| one.1 == open.1));
            if !left.is_empty() {
                thread::sleep(ATTEMPT);
            }
        }
    }
}
