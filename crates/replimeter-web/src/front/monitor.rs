//! Takes servers out of use that do not answer or do not replicate, and back when they do.

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use replimeter_engine::{Node, Session};
use replimeter_instruments::{preflight::CheckedReplica, sync::lock};

use super::{FrontServers, Site};

/// Interval between questions to a server.
const INTERVAL: Duration = Duration::from_millis(500);
/// Timeout of an answer.
const ANSWER: Duration = Duration::from_secs(2);
/// Interval between checks whether the front has ended.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Changes that are kept until they are taken.
const MAX_CHANGES: usize = 1000;

/// A thread per server, so that one that hangs delays the news of no other.
pub(super) struct Monitor {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    ended: AtomicBool,
    changes: Mutex<Vec<String>>,
}

impl Monitor {
    pub(super) fn start(sites: &Arc<[Arc<Site>]>, servers: FrontServers) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let primary: Box<dyn FnMut() -> Option<String> + Send> = {
            let node = Node {
                answer: ANSWER,
                ..servers.primary.0
            };
            Box::new(move || {
                let session = Session::open_again(&node);
                session.err().map(|error| error.to_string())
            })
        };
        let replicas = servers.replicas.into_iter().map(|replica| {
            let ask: Box<dyn FnMut() -> Option<String> + Send> =
                Box::new(move || absence(&replica));
            ask
        });
        for (index, mut ask) in std::iter::once(primary).chain(replicas).enumerate() {
            let (sites, shared) = (Arc::clone(sites), Arc::clone(&shared));
            // It is not joined: a server that hangs may hold it for some seconds.
            thread::Builder::new()
                .name("monitor".to_owned())
                .spawn(move || shared.watch(&sites, index, &mut *ask))?;
        }
        Ok(Self { shared })
    }

    pub(super) fn take_changes(&self) -> Vec<String> {
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
fn absence(replica: &CheckedReplica) -> Option<String> {
    match replica.state_now() {
        Ok(state) if state.running || (state.reconnecting && !state.failed) => None,
        Ok(state) => Some(format!("it does not replicate ({})", state.words)),
        Err(error) => Some(error.to_string()),
    }
}

impl Shared {
    /// Asks a server until the fronts end.
    fn watch(&self, sites: &[Arc<Site>], index: usize, ask: &mut dyn FnMut() -> Option<String>) {
        loop {
            for _ in 0..INTERVAL.as_millis() / CHECK_INTERVAL.as_millis() {
                thread::sleep(CHECK_INTERVAL);
                if self.ended.load(Ordering::Relaxed) {
                    return;
                }
            }
            let reason = ask();
            let pools = || sites.iter().map(|site| &site.pools[index]);
            // Held until the change is recorded: who sees its effect finds it there.
            let mut changes = lock(&self.changes);
            // Each of them, also after the first change.
            let changed = pools().filter(|pool| pool.set_out(reason.clone())).count();
            if changed > 0
                && let Some(pool) = pools().next()
            {
                let change = match &reason {
                    Some(reason) => format!("{} is out of use: {reason}", pool.name()),
                    None => format!("{} is in use again", pool.name()),
                };
                if changes.len() < MAX_CHANGES {
                    changes.push(change);
                }
            }
        }
    }
}
