//! The web front: a small site in front of a primary and its replicas.

mod app;
mod monitor;
mod page;
mod pool;
mod posts;
mod remedy;
mod traffic;
mod visitor;

use std::{
    fs, io,
    net::{SocketAddr, TcpListener},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize},
    },
    time::Duration,
};

use replimeter_engine::{Node, ServerError, facts::ServerFacts};
use replimeter_instruments::{clock::Clock, preflight::CheckedReplica};
use replimeter_model::{load::ReadTarget, plan::Remedy, random::Random};

pub use self::traffic::{Answered, PageState, Traffic, add_error};
use self::{
    monitor::Monitor,
    page::Pages,
    pool::{Pool, PoolSpec},
    remedy::{PRIMARY, Rule},
    traffic::Acknowledged,
    visitor::CookieNames,
};
use crate::server::HttpServer;

/// The names of the front's threads begin with this.
const THREADS: &str = "front";

/// A front that is to be started.
#[derive(Clone, Debug)]
pub struct FrontSpec {
    /// Host names that are answered besides addresses and `localhost`.
    pub names: Vec<String>,
    /// Servers that reads use.
    pub reads: ReadTarget,
    /// The remedy.
    pub remedy: Remedy,
    /// The time after a post for which the remedy `primary-for` reads from the primary.
    pub primary_for: Duration,
    /// Connections to each server.
    pub connections: u32,
    /// Processor time added to each request.
    pub cost: Duration,
    /// Maximum number of added rows.
    pub max_rows: u64,
    /// Number of rows that exist.
    pub rows: u64,
    /// A random number of the run, for the names of its cookies.
    pub run: u64,
}

/// The servers of a front.
pub struct FrontServers {
    /// How to reach the primary, and its facts.
    pub primary: (Node, ServerFacts),
    /// The replicas.
    pub replicas: Vec<CheckedReplica>,
}

/// Why a front did not start.
#[derive(Debug)]
pub enum FrontError {
    /// A server refused, or cannot do what the remedy needs.
    Server(ServerError),
    /// The system refused a thread or a file descriptor.
    System(io::Error),
}

/// A running front; dropping it ends it, after the requests in progress.
pub struct Front {
    // Before the site, whose pools its requests use.
    http: HttpServer,
    monitor: Monitor,
    site: Arc<Site>,
}

/// What the requests of a front share.
struct Site {
    rule: Rule,
    cost: Duration,
    max_rows: u64,
    /// Whether names of servers and reasons of errors are shown.
    shows_servers: bool,
    /// The servers, the primary first.
    pools: Vec<Pool>,
    pages: Pages,
    clock: Clock,
    /// Counts reads.
    turn: AtomicUsize,
    /// Number of posts that the front began with.
    rows: u64,
    random: Mutex<Random>,
    cookies: CookieNames,
    /// Counts posts.
    added: AtomicU64,
    acknowledged: Mutex<Acknowledged>,
    traffic: Mutex<Traffic>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the positions of the servers that take reads; the primary is the first of `servers`.
fn readers(reads: ReadTarget, servers: usize) -> Vec<usize> {
    match reads {
        ReadTarget::Primary => vec![PRIMARY],
        ReadTarget::All => (0..servers).collect(),
        ReadTarget::Replicas if servers > 1 => (1..servers).collect(),
        ReadTarget::Replicas => vec![PRIMARY],
    }
}

impl Front {
    /// Opens connections to the servers, whose table of posts exists, and serves at a bound address.
    ///
    /// # Errors
    /// When a server refuses or cannot do what the remedy needs, or the system refuses threads.
    pub fn start(
        listener: TcpListener,
        servers: FrontServers,
        spec: &FrontSpec,
        clock: Clock,
    ) -> Result<Self, FrontError> {
        let address = listener.local_addr().map_err(FrontError::System)?;
        let waits = spec.remedy == Remedy::WaitForGtid;
        let replicas = servers.replicas.iter().map(|replica| &replica.server);
        let replicas = replicas.map(|server| (&server.node, &server.facts));
        let all = std::iter::once((&servers.primary.0, &servers.primary.1)).chain(replicas);
        let pool = |(index, (node, facts)): (usize, (&Node, &ServerFacts))| {
            let spec_of = PoolSpec {
                node: node.clone(),
                facts: facts.clone(),
                tells_gtid: waits && index == PRIMARY,
                can_wait: waits && index != PRIMARY,
            };
            let name = format!("{THREADS}-{}", node.name);
            Pool::start(&name, spec_of, spec.connections, clock).map_err(|mut error| {
                if waits {
                    "choose another --remedy, or turn on GTIDs and binary logs"
                        .clone_into(&mut error.hint);
                }
                FrontError::Server(error)
            })
        };
        let pools = all.enumerate().map(pool).collect::<Result<Vec<_>, _>>()?;
        let site = Arc::new(Site {
            rule: Rule {
                remedy: spec.remedy,
                primary_for: spec.primary_for,
                readers: readers(spec.reads, pools.len()),
            },
            cost: spec.cost,
            max_rows: spec.max_rows,
            shows_servers: address.ip().is_loopback(),
            pools,
            pages: Pages::new(),
            clock,
            turn: AtomicUsize::new(0),
            rows: spec.rows,
            random: Mutex::new(Random::new(spec.run)),
            cookies: CookieNames::of(spec.run),
            added: AtomicU64::new(0),
            acknowledged: Mutex::default(),
            traffic: Mutex::default(),
        });
        let handler = Arc::clone(&site);
        let http = HttpServer::start(THREADS, listener, spec.names.clone(), move |asked| {
            let site = Arc::clone(&handler);
            async move { site.answer(asked).await }
        })
        .map_err(FrontError::System)?;
        let monitor = Monitor::start(&site, servers).map_err(FrontError::System)?;
        Ok(Self {
            http,
            monitor,
            site,
        })
    }

    /// Returns the address that it listens at.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.http.address()
    }

    /// Returns whether it has ended by a defect.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.http.is_finished()
    }

    /// Returns the traffic since the last call.
    #[must_use]
    pub fn take_traffic(&self) -> Traffic {
        let mut traffic = std::mem::take(&mut *lock(&self.site.traffic));
        traffic.invalid += self.http.take_refused();
        traffic
    }

    /// Returns the changes of servers since the last call, each in a sentence.
    #[must_use]
    pub fn take_changes(&self) -> Vec<String> {
        self.monitor.take_changes()
    }

    /// Returns whether a server is out of use.
    #[must_use]
    pub fn misses_a_server(&self) -> bool {
        self.site.pools.iter().any(|pool| pool.out().is_some())
    }

    /// Stops answering, then ends the connections to the servers, with what runs on them.
    pub fn end(self) {
        drop(self.http);
        self.monitor.end();
        self.site.pools.iter().for_each(Pool::end);
    }

    /// Returns the processor time of all fronts of this process so far.
    #[must_use]
    pub fn processor_time() -> Duration {
        let tasks = fs::read_dir("/proc/self/task")
            .into_iter()
            .flatten()
            .flatten();
        tasks
            .filter_map(|task| {
                let path = task.path();
                let name = fs::read_to_string(path.join("comm")).ok()?;
                let times = fs::read_to_string(path.join("schedstat")).ok()?;
                let run = times.split(' ').next()?.parse().ok()?;
                name.starts_with(THREADS).then(|| Duration::from_nanos(run))
            })
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_use_the_named_servers_and_fall_to_a_lone_primary() {
        assert_eq!(readers(ReadTarget::Replicas, 3), [1, 2]);
        assert_eq!(readers(ReadTarget::Replicas, 1), [0]);
        assert_eq!(readers(ReadTarget::All, 3), [0, 1, 2]);
        assert_eq!(readers(ReadTarget::Primary, 3), [0]);
    }
}
