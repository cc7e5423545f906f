//! A TCP link between two servers, with a known delay.
//!
//! The link listens; each connection made to it is forwarded to a target. Data that arrives at one
//! end leaves the other a fixed time after its arrival, however much is in transit: deadlines are
//! absolute. The link ends connections as TCP would, and can be cut and healed like a cable. It
//! does not imitate the handshake: the system completes that with the connecting side at once, even
//! while the link is cut, and the target is connected without delay.

mod connection;
mod direction;
mod schedule;
mod thread;

#[cfg(test)]
mod accuracy;
#[cfg(test)]
mod tests;

use std::{
    fmt, io,
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{Builder, JoinHandle},
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags};

pub use schedule::LinkSettings;

use connection::{reset, serve};
use direction::TrafficCounters;
use thread::{Wakeup, wait};

/// Connects to a link's target. Called on a separate thread for each connection, so it may enter
/// another network namespace.
pub type Connector = Box<dyn Fn() -> io::Result<TcpStream> + Send + Sync>;

/// A running link. Dropping it closes it.
pub struct Link {
    name: String,
    address: SocketAddr,
    shared: Arc<LinkShared>,
    /// Ends the wait of the thread that accepts.
    wakeup: Arc<Wakeup>,
    acceptor: Mutex<Option<JoinHandle<()>>>,
}

/// Counters of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct LinkCounters {
    /// Connections accepted.
    pub accepted: u64,
    /// Of these, still being connected or served.
    pub open: u64,
    /// Of these, closed because the target could not be connected.
    pub refused: u64,
    /// From the side that connected to the target.
    pub to_target: DirectionCounters,
    /// From the target to the side that connected.
    pub to_client: DirectionCounters,
}

/// Counters of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct DirectionCounters {
    /// Bytes delivered.
    pub bytes: u64,
    /// Chunks delivered at a time that the receiver did not influence.
    pub chunks: u64,
    /// Total lateness of these.
    pub late_total: Duration,
    /// Maximum lateness of these.
    pub late_most: Duration,
}

/// State shared by the threads of a link.
#[derive(Debug)]
struct LinkShared {
    state: RwLock<LinkThreads>,
    connections: Mutex<Vec<ConnectionThread>>,
    accepted: AtomicU64,
    open: AtomicU64,
    refused: AtomicU64,
    to_target: TrafficCounters,
    to_client: TrafficCounters,
}

#[derive(Debug)]
struct LinkThreads {
    settings: LinkSettings,
    cut: bool,
    /// Number of cuts: a thread notices even a cut that was healed before its check.
    cuts: u64,
    closed: bool,
}

/// The thread that serves one connection.
#[derive(Debug)]
struct ConnectionThread {
    thread: JoinHandle<()>,
    wakeup: Arc<Wakeup>,
    /// The thread's own reference must be the last, so that the socket closes with it.
    client: Weak<TcpStream>,
    /// Whether the caller's connector runs, for which there is no limit.
    connecting: Arc<AtomicBool>,
}

impl LinkShared {
    // A panic elsewhere leaves every one of these values consistent.
    fn state(&self) -> RwLockReadGuard<'_, LinkThreads> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self) -> RwLockWriteGuard<'_, LinkThreads> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn connections(&self) -> MutexGuard<'_, Vec<ConnectionThread>> {
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Link {
    /// Starts a link from `listener` to the target of `connect`. The name is for diagnostics; the
    /// link's threads have it, too.
    ///
    /// # Errors
    /// When the listener or a thread cannot be set up.
    pub fn start(
        name: impl Into<String>,
        listener: TcpListener,
        connect: Connector,
        settings: LinkSettings,
    ) -> io::Result<Self> {
        let name = name.into();
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let shared = Arc::new(LinkShared {
            state: RwLock::new(LinkThreads {
                settings,
                cut: false,
                cuts: 0,
                closed: false,
            }),
            connections: Mutex::default(),
            accepted: AtomicU64::new(0),
            open: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            to_target: TrafficCounters::default(),
            to_client: TrafficCounters::default(),
        });
        let wakeup = Arc::new(Wakeup::new()?);
        let acceptor = Acceptor {
            // A name with a null byte would cause a panic.
            thread_name: name.replace('\0', ""),
            listener,
            port: address.port(),
            connect: Arc::new(connect),
            shared: Arc::clone(&shared),
            wakeup: Arc::clone(&wakeup),
        };
        let thread = Builder::new()
            .name(acceptor.thread_name.clone())
            .spawn(move || acceptor.run())?;
        Ok(Self {
            name,
            address,
            shared,
            wakeup,
            acceptor: Mutex::new(Some(thread)),
        })
    }

    /// Starts a link from `listener` to `target`.
    ///
    /// # Errors
    /// Like [`Link::start`].
    pub fn to(
        name: impl Into<String>,
        listener: TcpListener,
        target: SocketAddr,
        settings: LinkSettings,
    ) -> io::Result<Self> {
        Self::start(
            name,
            listener,
            Box::new(move || TcpStream::connect(target)),
            settings,
        )
    }

    /// Returns the name given at the start.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the address on which the link listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes the settings for data that arrives from now on. Data in transit keeps its due time,
    /// and order is kept: after a shorter delay nothing overtakes.
    pub fn set(&self, settings: LinkSettings) {
        self.shared.change().settings = settings;
    }

    /// Returns the current settings.
    #[must_use]
    pub fn settings(&self) -> LinkSettings {
        self.shared.state().settings
    }

    /// Cuts the link without notifying either side: once this returns nothing is delivered in
    /// either direction, no connection ends and none is accepted. Data in transit is held, as is
    /// data that either side still sends.
    pub fn cut(&self) {
        let mut state = self.shared.change();
        if !state.cut {
            state.cut = true;
            state.cuts += 1;
        }
    }

    /// Ends a cut. Everything held is sent again: it arrives after a delay from now, in order.
    /// Connections that were tried and given up during the cut are not made.
    pub fn heal(&self) {
        self.shared.change().cut = false;
        self.wake_all();
    }

    /// Returns whether the link is cut.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.shared.state().cut
    }

    /// Returns the counters. Bytes are counted just after their delivery.
    #[must_use]
    pub fn counters(&self) -> LinkCounters {
        let direction = |tally: &TrafficCounters| DirectionCounters {
            bytes: tally.bytes.load(Ordering::Relaxed),
            chunks: tally.chunks.load(Ordering::Relaxed),
            late_total: Duration::from_nanos(tally.late_nanos.load(Ordering::Relaxed)),
            late_most: Duration::from_nanos(tally.latest_nanos.load(Ordering::Relaxed)),
        };
        LinkCounters {
            accepted: self.shared.accepted.load(Ordering::Relaxed),
            open: self.shared.open.load(Ordering::Relaxed),
            refused: self.shared.refused.load(Ordering::Relaxed),
            to_target: direction(&self.shared.to_target),
            to_client: direction(&self.shared.to_client),
        }
    }

    /// Closes the listener and every connection, cut or not, and ends the threads. Data in transit
    /// is lost. Running connectors are not waited for: their threads end when they return. Closing
    /// again does nothing.
    pub fn close(&self) {
        self.shared.change().closed = true;
        self.wakeup.wake();
        let acceptor = self
            .acceptor
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        // From here on no connection is added.
        if let Some(acceptor) = acceptor {
            let _ = acceptor.join();
        }
        self.wake_all();
        let connections = std::mem::take(&mut *self.shared.connections());
        let deadline = Instant::now() + CONNECTING;
        for served in connections {
            while served.connecting.load(Ordering::Acquire) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(1));
            }
            if served.connecting.load(Ordering::Acquire) {
                if let Some(client) = served.client.upgrade() {
                    let _ = client.shutdown(Shutdown::Both);
                }
            } else {
                let _ = served.thread.join();
            }
        }
    }

    fn wake_all(&self) {
        self.wakeup.wake();
        for served in &*self.shared.connections() {
            served.wakeup.wake();
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Link")
            .field("name", &self.name)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// How long closing waits for running connectors.
const CONNECTING: Duration = Duration::from_millis(20);

/// How long to wait when accepting fails, as with too many open files: it would fail again
/// immediately.
const RESPITE: Duration = Duration::from_millis(20);

/// The thread that accepts connections.
struct Acceptor {
    thread_name: String,
    listener: TcpListener,
    port: u16,
    connect: Arc<Connector>,
    shared: Arc<LinkShared>,
    wakeup: Arc<Wakeup>,
}

/// The event to wait for before accepting again.
enum AcceptPause {
    Until(PollFlags),
    Respite,
}

impl Acceptor {
    fn run(self) {
        // Whether connections may have been waiting since a cut.
        let mut stale = false;
        loop {
            let pause = {
                let state = self.shared.state();
                if state.closed {
                    return;
                }
                if state.cut {
                    stale = true;
                    AcceptPause::Until(PollFlags::empty())
                } else {
                    self.accept_all(stale)
                }
            };
            // Omitted while cut, or it would report waiting connections again and again.
            let waited = match pause {
                AcceptPause::Until(flags) if !flags.is_empty() => {
                    stale = false;
                    wait(
                        &mut [
                            PollFd::new(&*self.wakeup, PollFlags::IN),
                            PollFd::new(&self.listener, flags),
                        ],
                        None,
                    )
                }
                AcceptPause::Until(_) => {
                    wait(&mut [PollFd::new(&*self.wakeup, PollFlags::IN)], None)
                }
                AcceptPause::Respite => wait(
                    &mut [PollFd::new(&*self.wakeup, PollFlags::IN)],
                    Some(RESPITE),
                ),
            };
            self.wakeup.clear();
            if waited.is_err() {
                std::thread::sleep(RESPITE);
            }
        }
    }

    fn accept_all(&self, stale: bool) -> AcceptPause {
        loop {
            match self.listener.accept() {
                // Given up during the cut.
                Ok((client, _)) if stale && given_up(&client) => {}
                Ok((client, _)) => {
                    if let Err(client) = self.adopt(client) {
                        reset(&client);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return AcceptPause::Until(PollFlags::IN);
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(_) => return AcceptPause::Respite,
            }
        }
    }

    /// Gives a connection a thread, or returns it to the caller.
    fn adopt(&self, client: TcpStream) -> Result<(), Arc<TcpStream>> {
        let number = self.shared.accepted.fetch_add(1, Ordering::Relaxed);
        // Includes the port, so that the links of a chain have different jitter.
        let seed = number << 16 | u64::from(self.port);
        let client = Arc::new(client);
        let Ok(wakeup) = Wakeup::new().map(Arc::new) else {
            return Err(client);
        };
        let connecting = Arc::new(AtomicBool::new(true));
        let work = {
            let (connect, shared) = (Arc::clone(&self.connect), Arc::clone(&self.shared));
            let (client, wakeup, connecting) = (
                Arc::clone(&client),
                Arc::clone(&wakeup),
                Arc::clone(&connecting),
            );
            move || {
                let target = connect().and_then(|target| {
                    ready(&client)
                        .and_then(|()| ready(&target))
                        .map(|()| target)
                });
                connecting.store(false, Ordering::Release);
                match target {
                    Ok(target) => serve(&shared, &wakeup, &client, &target, seed),
                    Err(_) => {
                        shared.refused.fetch_add(1, Ordering::Relaxed);
                        reset(&client);
                    }
                }
                shared.open.fetch_sub(1, Ordering::Relaxed);
            }
        };
        let mut connections = self.shared.connections();
        connections.retain(|served| !served.thread.is_finished());
        self.shared.open.fetch_add(1, Ordering::Relaxed);
        match Builder::new().name(self.thread_name.clone()).spawn(work) {
            Ok(thread) => {
                connections.push(ConnectionThread {
                    thread,
                    wakeup,
                    client: Arc::downgrade(&client),
                    connecting,
                });
                Ok(())
            }
            Err(_) => {
                self.shared.open.fetch_sub(1, Ordering::Relaxed);
                Err(client)
            }
        }
    }
}

/// Prepares one side of a connection.
fn ready(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)
}

/// Returns whether the peer closed without having sent anything.
fn given_up(client: &TcpStream) -> bool {
    if client.set_nonblocking(true).is_err() {
        return true;
    }
    match client.peek(&mut [0]) {
        Ok(length) => length == 0,
        Err(error) => error.kind() != io::ErrorKind::WouldBlock,
    }
}
