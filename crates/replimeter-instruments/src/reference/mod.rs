//! The reference: servers of Replimeter that show each row at an instant that they chose on the clock of the run.
//!
//! They are a primary and replicas as far as discovery, the checks and the measuring of `lag` need them, over real
//! sockets, so that the instruments measure them by the code that measures real servers. A row is visible to a read
//! exactly if the read is executed at or after the row's instant: both are readings of one clock, taken under one lock.
//! So the difference between what the instruments report and the chosen instants is the error of the instruments alone.

mod connection;
pub mod delay_shape;
mod neighbors;
mod rows;
#[cfg(test)]
mod tests;

use std::{
    io,
    net::{Ipv4Addr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use replimeter_engine::{
    Connections, Node,
    source::{Member, Servers},
    sync::lock,
};
use replimeter_model::{
    target::{self, Endpoint, SslMode, TlsOptions},
    time::Nanos,
};
use rustix::net::{Shutdown, shutdown};

use self::{delay_shape::DelayShape, rows::ReplicaRows};
pub use self::{neighbors::BusyNeighbors, rows::TrueRow};
use crate::clock::Clock;

/// Timeout of an answer outside the measuring path.
const ANSWER: Duration = Duration::from_secs(5);

/// What a reference server does.
#[derive(Debug)]
enum Role {
    /// Takes the rows and passes them to its replicas.
    Primary(Vec<Arc<ReplicaRows>>),
    /// Shows the rows.
    Replica(Arc<ReplicaRows>),
}

/// One server.
#[derive(Debug)]
struct ReferenceServer {
    role: Role,
    clock: Clock,
    server_id: usize,
    port: u16,
    primary_port: u16,
    /// Whether it was ended.
    ended: AtomicBool,
    connections: AtomicU32,
    /// The streams of all connections.
    open: Mutex<Vec<Arc<TcpStream>>>,
}

/// A server and the thread that accepts its connections.
#[derive(Debug)]
struct RunningServer {
    server: Arc<ReferenceServer>,
    listener: Arc<TcpListener>,
    accepting: Option<JoinHandle<()>>,
}

impl RunningServer {
    fn start(server: ReferenceServer, listener: TcpListener) -> io::Result<Self> {
        let (server, listener) = (Arc::new(server), Arc::new(listener));
        let (own, accepted) = (Arc::clone(&server), Arc::clone(&listener));
        let accepting = thread::Builder::new()
            .name("reference".to_owned())
            .spawn(move || accept(&own, &accepted))?;
        Ok(Self {
            server,
            listener,
            accepting: Some(accepting),
        })
    }

    /// Ends the server: its connections break, and it accepts no more.
    fn end(&self) {
        self.server.ended.store(true, Ordering::Release);
        // A socket that is not connected any more is as good as shut down.
        let _ = shutdown(&*self.listener, Shutdown::Both);
        for stream in lock(&self.server.open).drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.end();
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

/// Accepts connections, and serves each on a thread of its own, until the server is ended.
fn accept(server: &Arc<ReferenceServer>, listener: &TcpListener) {
    for stream in listener.incoming() {
        if server.ended.load(Ordering::Acquire) {
            return;
        }
        // A connection that broke at once, or for which there is no thread, is closed; the client reports it.
        let Ok(stream) = stream.map(Arc::new) else {
            continue;
        };
        let number = server.connections.fetch_add(1, Ordering::Relaxed);
        lock(&server.open).push(Arc::clone(&stream));
        let own = Arc::clone(server);
        let _ = thread::Builder::new()
            .name("reference".to_owned())
            .spawn(move || {
                // Either side may end the connection at any time.
                let _ = connection::serve(&own, &stream, number);
                lock(&own.open).retain(|open| !Arc::ptr_eq(open, &stream));
                let _ = stream.shutdown(std::net::Shutdown::Both);
            });
        // It was ended while this connection was added.
        if server.ended.load(Ordering::Acquire) {
            lock(&server.open).iter().for_each(|stream| {
                let _ = stream.shutdown(std::net::Shutdown::Both);
            });
            return;
        }
    }
}

/// Returns the `server_id` of the replica of this index, from 0; the primary has 1.
fn replica_server_id(index: usize) -> usize {
    index + 2
}

/// A primary and its replicas; ended when dropped.
#[derive(Debug)]
pub struct Reference {
    // The primary first.
    servers: Vec<RunningServer>,
    replicas: Vec<Arc<ReplicaRows>>,
    members: Vec<Member>,
    label: String,
}

impl Reference {
    /// Starts a primary and replicas on free ports of the loopback interface. Rows are visible at once, until
    /// [`delay_by`](Self::delay_by).
    ///
    /// # Errors
    /// When the system refuses a port or a thread.
    pub fn start(clock: Clock, replicas: u32) -> io::Result<Self> {
        let rows = (0..replicas).map(|_| Arc::new(ReplicaRows::new(clock)));
        let rows: Vec<Arc<ReplicaRows>> = rows.collect();
        let listen = || -> io::Result<(TcpListener, u16)> {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            let port = listener.local_addr()?.port();
            Ok((listener, port))
        };
        let (listener, primary_port) = listen()?;
        let server = |role, server_id, port| ReferenceServer {
            role,
            clock,
            server_id,
            port,
            primary_port,
            ended: AtomicBool::new(false),
            connections: AtomicU32::new(1),
            open: Mutex::default(),
        };
        let primary = server(Role::Primary(rows.clone()), 1, primary_port);
        let own = Connections::default();
        let member = |name: &str, port| member(name, port, own.clone());
        let mut reference = Self {
            servers: vec![RunningServer::start(primary, listener)?],
            replicas: rows,
            members: vec![member(target::PRIMARY, primary_port)],
            label: format!("reference:{replicas}"),
        };
        for (index, rows) in reference.replicas.iter().enumerate() {
            let (listener, port) = listen()?;
            let role = Role::Replica(Arc::clone(rows));
            let replica = server(role, replica_server_id(index), port);
            reference
                .servers
                .push(RunningServer::start(replica, listener)?);
            reference
                .members
                .push(member(&target::replica_name(index), port));
        }
        Ok(reference)
    }

    /// Delays rows that are written from now on by random times of this shape, which differ between replicas; the same
    /// `seed` gives the same delays.
    pub fn delay_by(&self, shape: DelayShape, seed: u64) {
        for (index, rows) in (0..).zip(&self.replicas) {
            rows.delay_by(shape, (seed << 16) + index);
        }
    }

    /// Returns the row as the replica of this index (from 0) shows it; `None` when the
    /// primary did not get it, or it has been visible for a minute.
    #[must_use]
    pub fn row(&self, replica: usize, id: u64) -> Option<TrueRow> {
        self.replicas.get(replica)?.row(id)
    }

    /// Shows no row that is written from now on before `until`, on the replica of this index.
    pub fn hold(&self, replica: usize, until: Nanos) {
        if let Some(rows) = self.replicas.get(replica) {
            rows.hold(until);
        }
    }

    /// Ends a server: 0 is the primary.
    pub fn end(&self, server: usize) {
        if let Some(server) = self.servers.get(server) {
            server.end();
        }
    }
}

impl Servers for Reference {
    fn label(&self) -> &str {
        &self.label
    }

    fn members(&self) -> &[Member] {
        &self.members
    }

    fn is_temporary(&self) -> bool {
        true
    }
}

fn member(name: &str, port: u16, connections: Connections) -> Member {
    let endpoint = Endpoint {
        user: None,
        host: Ipv4Addr::LOCALHOST.to_string(),
        port,
        socket: None,
        tls: TlsOptions {
            mode: Some(SslMode::Disabled),
            ..TlsOptions::default()
        },
    };
    Member::from(&Node {
        connections,
        ..Node::new(name, endpoint, "reference", ANSWER)
    })
}
