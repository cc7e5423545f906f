//! A load balancer in front of servers.

use std::{
    io,
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use replimeter_engine::Node;

use crate::harness::locked;

/// Passes TCP connections on to servers.
pub struct Balancer {
    port: u16,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// The ports that take turns.
    to: Mutex<Vec<u16>>,
    accepted: AtomicUsize,
    open: Mutex<Vec<TcpStream>>,
    ended: AtomicBool,
}

impl Balancer {
    /// Starts it in front of these servers, of which the first gets the first connection.
    ///
    /// # Panics
    /// If there is no free port.
    #[must_use]
    pub fn start(to: &[&Node]) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::<State>::default();
        let balancer = Self {
            port,
            state: Arc::clone(&state),
        };
        balancer.redirect_to(to);
        thread::spawn(move || {
            for client in listener.incoming() {
                if state.ended.load(Ordering::Relaxed) {
                    return;
                }
                // A client that has gone is of no interest, nor a server.
                let _ = client.and_then(|client| state.pass(client));
            }
        });
        balancer
    }

    /// Lets these servers take turns from now on.
    pub fn redirect_to(&self, to: &[&Node]) {
        *locked(&self.state.to) = to.iter().map(|node| node.endpoint.port).collect();
        self.state.accepted.store(0, Ordering::Relaxed);
    }

    /// Ends all connections.
    pub fn cut(&self) {
        for stream in locked(&self.state.open).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Returns its URL. A login without TLS takes one connection, also where the server has none.
    #[must_use]
    pub fn url(&self, user: &str) -> String {
        format!("mysql://{user}@127.0.0.1:{}/?ssl-mode=disabled", self.port)
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.state.ended.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        self.cut();
    }
}

impl State {
    fn pass(&self, client: TcpStream) -> io::Result<()> {
        let port = {
            let to = locked(&self.to);
            to[self.accepted.fetch_add(1, Ordering::Relaxed) % to.len()]
        };
        let server = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        let ends = [&client, &server].map(TcpStream::try_clone);
        for end in ends {
            locked(&self.open).push(end?);
        }
        for (mut from, mut to) in [(client.try_clone()?, server.try_clone()?), (server, client)] {
            thread::spawn(move || {
                let _ = io::copy(&mut from, &mut to);
                let _ = to.shutdown(Shutdown::Both);
                let _ = from.shutdown(Shutdown::Both);
            });
        }
        Ok(())
    }
}
