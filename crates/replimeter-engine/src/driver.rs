//! Calls into the driver that a broken or hostile peer can neither crash, nor block for long.
//!
//! The driver panics on packets that are shorter than the protocol allows, and a socket's timeout begins again with every byte.

use std::{
    cell::Cell,
    os::fd::{BorrowedFd, RawFd},
    panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook},
    sync::{
        Arc, Mutex, MutexGuard, Once, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::net::Shutdown;

use crate::Node;

/// How often deadlines are checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// A whole answer may take this many times the timeout of a read.
const READS: u32 = 3;

/// Returns the time that a whole answer may take, given the timeout of one read.
pub(crate) fn limit(read_timeout: Duration) -> Duration {
    read_timeout.saturating_mul(READS)
}

thread_local! {
    static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// Calls code that may panic on bytes of others, such as the driver on what the peer sent.
///
/// # Errors
/// The text of its panic, which prints nothing.
pub fn call<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = take_hook();
        set_hook(Box::new(move |panic| {
            if !IS_CAUGHT.get() {
                print(panic);
            }
        }));
    });
    let outer = IS_CAUGHT.replace(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    IS_CAUGHT.set(outer);
    done.map_err(|panic| match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic
            .downcast_ref::<&str>()
            .map_or_else(String::new, ToString::to_string),
    })
}

/// The socket of a session, and until when its current answer may take.
#[derive(Debug)]
struct WatchedSocket {
    node: Node,
    /// The socket while the session owns it, and the deadline of the current answer.
    current: Mutex<(Option<RawFd>, Option<Instant>)>,
    expired: AtomicBool,
}

impl WatchedSocket {
    fn current(&self) -> MutexGuard<'_, (Option<RawFd>, Option<Instant>)> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes both directions, so that every read and write on it ends.
    fn shut_down(&self) {
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

/// All watched sockets of the process.
static WATCHED: Mutex<Vec<Weak<WatchedSocket>>> = Mutex::new(Vec::new());

fn watched() -> MutexGuard<'static, Vec<Weak<WatchedSocket>>> {
    WATCHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the servers to which sessions are open, each once.
pub(crate) fn watched_nodes() -> Vec<Node> {
    let mut nodes: Vec<Node> = Vec::new();
    for socket in watched().iter().filter_map(Weak::upgrade) {
        let address = socket.node.endpoint.address();
        if !nodes.iter().any(|node| node.endpoint.address() == address) {
            nodes.push(socket.node.clone());
        }
    }
    nodes
}

/// Closes the connections of all sessions to a server.
pub(crate) fn shut_down_all(node: &Node) {
    let address = node.endpoint.address();
    for socket in watched().iter().filter_map(Weak::upgrade) {
        if socket.node.endpoint.address() == address {
            socket.shut_down();
        }
    }
}

/// Closes sockets whose answer takes too long, until the process ends.
fn watch_all() {
    loop {
        thread::sleep(CHECK_INTERVAL);
        let now = Instant::now();
        let mut all = watched();
        all.retain(|socket| socket.strong_count() > 0);
        for socket in all.iter().filter_map(Weak::upgrade) {
            let late = socket.current().1.is_some_and(|deadline| deadline <= now);
            if late && !socket.expired.swap(true, Ordering::Relaxed) {
                socket.shut_down();
            }
        }
    }
}

/// Watches the answers of a session. Must be dropped before the session's connection.
#[derive(Debug)]
pub(crate) struct AnswerWatch {
    socket: Arc<WatchedSocket>,
    limit: Duration,
}

impl AnswerWatch {
    /// Watches a socket to a server, each answer of which may take three times the timeout of a read.
    pub(crate) fn new(socket: RawFd, node: &Node) -> Self {
        static THREAD: Once = Once::new();
        THREAD.call_once(|| {
            // Without the thread, answers have the timeout of each read only.
            let _ = thread::Builder::new()
                .name("deadlines".to_owned())
                .spawn(watch_all);
        });
        let socket = Arc::new(WatchedSocket {
            node: node.clone(),
            current: Mutex::new((Some(socket), None)),
            expired: AtomicBool::new(false),
        });
        watched().push(Arc::downgrade(&socket));
        Self {
            socket,
            limit: limit(node.answer),
        }
    }

    /// Returns the server.
    pub(crate) fn node(&self) -> &Node {
        &self.socket.node
    }

    /// Begins an answer, which ends with [`end`](Self::end).
    pub(crate) fn begin(&self) {
        self.socket.current().1 = Instant::now().checked_add(self.limit);
    }

    /// Ends the answer; returns the limit if it took longer.
    pub(crate) fn end(&self) -> Option<Duration> {
        self.socket.current().1 = None;
        self.socket
            .expired
            .load(Ordering::Relaxed)
            .then_some(self.limit)
    }

    /// Closes the connection at once.
    pub(crate) fn shut_down(&self) {
        self.socket.shut_down();
    }

    /// Returns what closes the connection from another thread.
    pub(crate) fn interrupter(&self) -> Interrupter {
        Interrupter(Arc::clone(&self.socket))
    }
}

/// Closes a session's connection from another thread; afterwards its statements fail at once.
#[derive(Clone, Debug)]
pub struct Interrupter(Arc<WatchedSocket>);

impl Interrupter {
    /// Closes the connection, unless the session has ended.
    pub fn shut_down(&self) {
        self.0.shut_down();
    }
}

impl Drop for AnswerWatch {
    fn drop(&mut self) {
        self.socket.current().0 = None;
    }
}
