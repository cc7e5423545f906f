//! Calls into the driver that a broken or hostile peer can neither crash, nor block for long.
//!
//! The driver panics on packets that are shorter than the protocol allows, and a socket's timeout begins again with every byte.

use std::{
    cell::Cell,
    os::fd::RawFd,
    panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook},
    sync::{
        Arc, Mutex, Once,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use crate::node::{Node, connections::WatchedSocket};

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

/// Watches the answers of a session. Must be dropped before the session's connection.
#[derive(Debug)]
pub(crate) struct AnswerWatch {
    socket: Arc<WatchedSocket>,
    limit: Duration,
}

impl AnswerWatch {
    /// Watches a socket to a server, each answer of which may take three times the timeout of a read.
    pub(crate) fn new(socket: RawFd, node: &Node) -> Self {
        let socket = Arc::new(WatchedSocket {
            node: node.clone(),
            current: Mutex::new((Some(socket), None)),
            expired: AtomicBool::new(false),
        });
        node.connections.watch(&socket);
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
