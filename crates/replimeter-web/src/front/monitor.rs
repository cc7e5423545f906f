//! Takes servers out of use that do not answer or do not replicate, and back when they do.

use std::{
    fmt, io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use replimeter_engine::{ErrorKind, Node, ServerError, Session, sync::lock};
use replimeter_instruments::preflight::CheckedReplica;

use super::{FrontServers, Site};

/// Interval between questions to a server.
const INTERVAL: Duration = Duration::from_millis(500);
/// Timeout of an answer.
const ANSWER: Duration = Duration::from_secs(2);
/// Interval between checks whether the front has ended.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Changes that are kept until they are taken.
const MAX_CHANGES: usize = 1000;

/// A server that went out of use, or is in use again.
#[derive(Clone, Debug)]
pub struct UseChange {
    /// The server's name.
    pub server: String,
    /// Why it is out of use; `None` if it is in use again.
    pub reason: Option<String>,
    /// When the front changed its use.
    pub at: Instant,
}

/// A sentence.
impl fmt::Display for UseChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            Some(reason) => write!(f, "{} is out of use: {reason}", self.server),
            None => write!(f, "{} is in use again", self.server),
        }
    }
}

/// Asks a server why it is out of use; `None` if it is not.
type Ask = Box<dyn FnMut() -> Result<Option<String>, ServerError> + Send>;

/// A thread per server, so that one that hangs delays the news of no other.
pub(super) struct Monitor {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    ended: AtomicBool,
    changes: Mutex<Vec<UseChange>>,
}

impl Monitor {
    pub(super) fn start(sites: &Arc<[Arc<Site>]>, servers: FrontServers) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let primary: Ask = {
            let node = Node {
                answer: ANSWER,
                ..servers.primary.0
            };
            Box::new(move || Session::open_again(&node).map(|_| None))
        };
        let replicas = servers.replicas.into_iter().map(|replica| {
            let ask: Ask = Box::new(move || absence(&replica));
            ask
        });
        for (index, ask) in std::iter::once(primary).chain(replicas).enumerate() {
            let (sites, shared) = (Arc::clone(sites), Arc::clone(&shared));
            // It is not joined: a server that hangs may hold it for some seconds.
            thread::Builder::new()
                .name("monitor".to_owned())
                .spawn(move || shared.watch(&sites, index, ask))?;
        }
        Ok(Self { shared })
    }

    pub(super) fn take_changes(&self) -> Vec<UseChange> {
        std::mem::take(&mut *lock(&self.shared.changes))
    }

    pub(super) fn end(&self) {
        self.shared.ended.store(true, Ordering::Relaxed);
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.end();
    }
}

/// Returns why a replica is out of use. One that waits for its connection to the source has all that the source had sent, and
/// answers reads.
fn absence(replica: &CheckedReplica) -> Result<Option<String>, ServerError> {
    let state = replica.state_now()?;
    let is_in = state.running || (state.reconnecting && !state.failed);
    Ok((!is_in).then(|| format!("it does not replicate ({})", state.words)))
}

/// Returns why a server is out of use now, if it is; `None` if this process could not ask it, which says nothing about it.
fn news(asked: Result<Option<String>, ServerError>) -> Option<Option<String>> {
    match asked {
        Ok(reason) => Some(reason),
        Err(error) if error.kind == ErrorKind::Client => None,
        Err(error) => Some(Some(error.to_string())),
    }
}

impl Shared {
    /// Asks a server until the fronts end.
    fn watch(&self, sites: &[Arc<Site>], index: usize, mut ask: Ask) {
        loop {
            for _ in 0..INTERVAL.as_millis() / CHECK_INTERVAL.as_millis() {
                thread::sleep(CHECK_INTERVAL);
                if self.ended.load(Ordering::Relaxed) {
                    return;
                }
            }
            let Some(reason) = news(ask()) else {
                continue;
            };
            let pools = || sites.iter().map(|site| &site.pools[index]);
            // Held until the change is recorded: who sees its effect finds it there.
            let mut changes = lock(&self.changes);
            // Each of them, also after the first change.
            let changed = pools().filter(|pool| pool.set_out(reason.clone())).count();
            if changed > 0
                && let Some(pool) = pools().next()
                && changes.len() < MAX_CHANGES
            {
                changes.push(UseChange {
                    server: pool.name().to_owned(),
                    reason,
                    at: Instant::now(),
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_that_was_not_asked_stays_as_it_is() {
        let error = |kind| ServerError {
            kind,
            ..ServerError::precondition("primary", "db:3306", "cannot connect", "full", "wait")
        };
        assert_eq!(news(Err(error(ErrorKind::Client))), None);
        let gone = "primary (db:3306): cannot connect: full".to_owned();
        assert_eq!(news(Err(error(ErrorKind::Unreachable))), Some(Some(gone)));
        assert_eq!(news(Ok(None)), Some(None));
        let stopped = Some("it does not replicate".to_owned());
        assert_eq!(news(Ok(stopped.clone())), Some(stopped));
    }
}
