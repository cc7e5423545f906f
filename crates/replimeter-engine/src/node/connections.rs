//! The connections of a run to its servers, and the servers that do not answer on them. Two runs in one process do not see each other's.

use std::{
    collections::BTreeMap,
    os::fd::{BorrowedFd, OwnedFd, RawFd},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, Weak,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::net::Shutdown;

use super::Node;
use crate::{error::ServerError, sync::lock};

/// How often deadlines are checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// The connections of a run, shared by all its [`Node`]s.
#[derive(Clone, Debug, Default)]
pub struct Connections(pub(crate) Arc<ConnectionState>);

/// The state of the connections of a run.
#[derive(Debug, Default)]
pub(crate) struct ConnectionState {
    sockets: Mutex<Vec<Weak<WatchedSocket>>>,
    /// Whether the thread that closes late sockets was started.
    closes_late: OnceLock<()>,
    /// Addresses of the servers that did not answer, each with what came instead.
    pub(crate) silent: Mutex<Vec<(String, Option<ServerError>)>>,
    /// Addresses of the servers that owe an answer, each with the connection on which its greeting is awaited.
    pub(crate) owing: Mutex<BTreeMap<String, Option<Arc<OwnedFd>>>>,
}

impl ConnectionState {
    /// Closes sockets whose answer takes too long.
    fn close_late(&self) {
        let now = Instant::now();
        let mut all = lock(&self.sockets);
        all.retain(|socket| socket.strong_count() > 0);
        for socket in all.iter().filter_map(Weak::upgrade) {
            let late = socket.current().1.is_some_and(|deadline| deadline <= now);
            if late && !socket.expired.swap(true, Ordering::Relaxed) {
                socket.shut_down();
            }
        }
    }
}

impl Connections {
    /// Watches a socket, until it is dropped.
    pub(crate) fn watch(&self, socket: &Arc<WatchedSocket>) {
        self.0.closes_late.get_or_init(|| {
            let run = Arc::downgrade(&self.0);
            let watch = move || {
                loop {
                    thread::sleep(CHECK_INTERVAL);
                    // Until the last node of the run is dropped.
                    let Some(run) = run.upgrade() else { break };
                    run.close_late();
                }
            };
            // Without the thread, answers have the timeout of each read only.
            let _ = thread::Builder::new()
                .name("deadlines".to_owned())
                .spawn(watch);
        });
        lock(&self.0.sockets).push(Arc::downgrade(socket));
    }

    fn open_sockets(&self) -> Vec<Arc<WatchedSocket>> {
        let all = lock(&self.0.sockets);
        all.iter().filter_map(Weak::upgrade).collect()
    }

    /// Returns the servers to which sessions are open, each once.
    pub(crate) fn watched_nodes(&self) -> Vec<Node> {
        let mut nodes: Vec<Node> = Vec::new();
        for socket in self.open_sockets() {
            let address = socket.node.endpoint.address();
            if !nodes.iter().any(|node| node.endpoint.address() == address) {
                nodes.push(socket.node.clone());
            }
        }
        nodes
    }

    /// Closes the connections of all sessions to the server at this address.
    pub(crate) fn shut_down_all(&self, address: &str) {
        for socket in self.open_sockets() {
            if socket.node.endpoint.address() == address {
                socket.shut_down();
            }
        }
    }
}

/// The socket of a session, and until when its current answer may take.
#[derive(Debug)]
pub(crate) struct WatchedSocket {
    pub(crate) node: Node,
    /// The socket while the session owns it, and the deadline of the current answer.
    pub(crate) current: Mutex<(Option<RawFd>, Option<Instant>)>,
    pub(crate) expired: AtomicBool,
}

impl WatchedSocket {
    pub(crate) fn current(&self) -> MutexGuard<'_, (Option<RawFd>, Option<Instant>)> {
        lock(&self.current)
    }

    /// Closes both directions, so that every read and write on it ends.
    pub(crate) fn shut_down(&self) {
        let current = self.current();
        if let Some(socket) = current.0 {
            #[allow(unsafe_code, reason = "the driver gives its socket as a number only")]
            // SAFETY: the session removes the number, under the same lock, before it closes the socket.
            let socket = unsafe { BorrowedFd::borrow_raw(socket) };
            // A socket that is not connected is as good as closed.
            let _ = rustix::net::shutdown(socket, Shutdown::Both);
        }
    }
}

/// The connections of all runs that are under way, for a signal.
#[derive(Clone, Debug, Default)]
pub struct AllConnections(Arc<Mutex<Vec<Weak<ConnectionState>>>>);

impl AllConnections {
    /// Returns those of a new run.
    #[must_use]
    pub fn begin(&self) -> Connections {
        let connections = Connections::default();
        let mut all = lock(&self.0);
        all.retain(|run| run.strong_count() > 0);
        all.push(Arc::downgrade(&connections.0));
        connections
    }

    /// Returns those of every run that has not ended.
    pub(crate) fn current(&self) -> Vec<Connections> {
        let all = lock(&self.0);
        let current = all.iter().filter_map(Weak::upgrade);
        current.map(Connections).collect()
    }
}
