//! Servers that owe an answer. A frozen server accepts every connection in silence, and has all of them when it continues; so it
//! gets a single one, and no other is opened before it greets there.

use std::{
    collections::BTreeMap,
    io,
    os::fd::OwnedFd,
    sync::{Arc, MutexGuard},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::getpeername,
};

use crate::{
    node::Node,
    socket::{self, Address},
    sync::lock,
};

/// Interval between checks whether the server is given up.
const INTERVAL: Duration = Duration::from_millis(50);

impl Node {
    fn owing(&self) -> MutexGuard<'_, BTreeMap<String, Option<Arc<OwnedFd>>>> {
        lock(&self.connections.0.owing)
    }

    /// Notes that it gave no answer in time: no connection is opened to it before it greets on a single one.
    pub fn set_owing(&self) {
        self.owing().entry(self.endpoint.address()).or_default();
    }

    /// Notes that it answers.
    pub(crate) fn clear_owing(&self) {
        self.owing().remove(&self.endpoint.address());
    }

    /// Returns the connection on which its greeting is awaited; `None` if it owes no answer.
    fn awaited(&self) -> io::Result<Option<Arc<OwnedFd>>> {
        let address = self.endpoint.address();
        match self.owing().get(&address) {
            None => return Ok(None),
            Some(Some(known)) => return Ok(Some(Arc::clone(known))),
            Some(None) => {}
        }
        // A name is resolved without the lock.
        let place = match &self.endpoint.socket {
            Some(path) => Address::Unix(path.clone()),
            None => match self.addresses()?.first() {
                Some(first) => Address::Tcp(*first),
                None => return Err(io::ErrorKind::NotFound.into()),
            },
        };
        let mut all = self.owing();
        let Some(owing) = all.get_mut(&address) else {
            return Ok(None);
        };
        if owing.is_none() {
            *owing = Some(Arc::new(socket::start(self, &place)?));
        }
        Ok(owing.clone())
    }

    /// Returns whether this is still the connection on which its greeting is awaited.
    fn is_awaited(&self, connection: &Arc<OwnedFd>) -> bool {
        let all = self.owing();
        let known = all.get(&self.endpoint.address()).and_then(Option::as_ref);
        known.is_some_and(|known| Arc::ptr_eq(known, connection))
    }

    /// Waits until it greets, or refuses the connection, if it owes an answer. Returns whether a connection can be opened: if it owes
    /// none, always.
    ///
    /// # Errors
    /// When the system refuses a socket, or the address cannot be reached.
    pub(crate) fn greets(&self, limit: Duration, given_up: &dyn Fn() -> bool) -> io::Result<bool> {
        let Some(awaited) = self.awaited()? else {
            return Ok(true);
        };
        let deadline = Instant::now() + limit;
        let interval = Timespec::try_from(INTERVAL).map_err(io::Error::other)?;
        loop {
            let mut polled = [PollFd::new(&*awaited, PollFlags::IN)];
            if poll(&mut polled, Some(&interval))? > 0 {
                if self.is_awaited(&awaited) {
                    self.clear_owing();
                }
                return Ok(true);
            }
            if Instant::now() >= deadline || given_up() {
                // The server does not have a connection that was not made: another one may be made sooner than this.
                if getpeername(&*awaited).is_err() && self.is_awaited(&awaited) {
                    self.owing().insert(self.endpoint.address(), None);
                }
                return Ok(false);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write, net::TcpListener, thread};

    use super::*;
    use crate::session::{Session, tests::node_at};

    /// A frozen server's system accepts connections for it.
    #[test]
    fn server_that_owes_an_answer_gets_one_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let node = Node {
            answer: Duration::from_millis(200),
            ..node_at(listener.local_addr().unwrap().port())
        };
        node.set_owing();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| assert!(Session::open(&node).is_err()));
            }
        });
        assert!(Session::open(&node).is_err());
        listener.set_nonblocking(true).unwrap();
        let (mut awaited, _) = listener.accept().unwrap();
        assert!(listener.accept().is_err(), "a second connection");
        // It continues.
        awaited.write_all(b"a greeting").unwrap();
        assert!(Session::open(&node).is_err());
        assert!(listener.accept().is_ok());
    }
}
