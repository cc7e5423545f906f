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
    io,
    net::{SocketAddr, TcpListener},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize},
    },
    time::Duration,
};

use replimeter_engine::{Node, ServerError, facts::ServerFacts, position::ENABLE_IDS, sync::lock};
use replimeter_instruments::{
    clock::Clock,
    front::settings::Remedy,
    kill::GivenUp,
    preflight::CheckedReplica,
    resources::{CountedProcess, NamedProcess, threads_time},
};
use replimeter_model::{load::ReadTarget, random::Random};

use self::{
    monitor::Monitor,
    page::Pages,
    pool::{Pool, PoolSpec},
    remedy::{PRIMARY, Rule},
    traffic::Acknowledged,
    visitor::CookieNames,
};
pub use self::{
    monitor::UseChange,
    traffic::{Answered, PageState, Traffic, add_error},
};
use crate::{
    open_files,
    server::{HttpServer, VisitorLimits},
};

/// The names of the front's threads begin with this.
const THREADS: &str = "front";
/// Time for servers to end what was given up, when the fronts end.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns how the names of the threads of one front begin.
fn threads_of(front: usize) -> String {
    format!("{THREADS}{front}-")
}

/// Reads a form and cookies as the site does, and returns the cookie of the last post as the site would set it; for fuzzing.
///
/// # Errors
/// The first result has the reason why the form is refused.
pub fn read_input(form: &[u8], cookies: &str) -> (Result<(), String>, Option<String>) {
    let names = CookieNames::of(0);
    let post = names.visitor(cookies).post;
    (
        posts::Form::parse(form).map(|_| ()),
        post.map(|post| format!("{}={post}", names.post)),
    )
}

/// Fronts that are to be started.
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
    /// Whether names of servers and reasons of errors are shown.
    pub shows_servers: bool,
    /// Connections of visitors that this process opens itself, at most.
    pub own_visitors: u32,
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

/// Running fronts of the same servers; dropping them ends them, after the requests in progress.
pub struct Fronts {
    // Before the sites, whose pools their requests use.
    https: Vec<HttpServer>,
    monitor: Monitor,
    sites: Arc<[Arc<Site>]>,
    given_up: Arc<GivenUp>,
    /// Connections that each may have with visitors.
    visitors: usize,
}

/// What all fronts share.
#[derive(Default)]
struct Posted {
    /// Counts posts.
    added: AtomicU64,
    acknowledged: Mutex<Acknowledged>,
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
    read_number: AtomicUsize,
    /// Number of posts that the front began with.
    rows: u64,
    random: Mutex<Random>,
    cookies: CookieNames,
    posted: Arc<Posted>,
    traffic: Mutex<Traffic>,
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

impl Fronts {
    /// Opens connections to the servers, whose table of posts exists, and serves at each bound address. Every front has
    /// connections of its own.
    ///
    /// # Errors
    /// When a server refuses or cannot do what the remedy needs, or the system refuses threads.
    pub fn start(
        listeners: Vec<TcpListener>,
        servers: FrontServers,
        spec: &FrontSpec,
        clock: Clock,
    ) -> Result<Self, FrontError> {
        let posted = Arc::<Posted>::default();
        let given_up = Arc::<GivenUp>::default();
        let site = |number: usize| {
            // Fronts must not read the same rows, nor servers in the same order.
            let seed = Random::numbered(spec.run ^ number as u64).bits();
            let name = threads_of(number);
            Site::new(&name, &servers, spec, clock, seed, &posted, &given_up).map(Arc::new)
        };
        let sites = (1..=listeners.len()).map(site);
        let sites: Arc<[Arc<Site>]> = sites.collect::<Result<_, _>>()?;
        // After the connections to the servers, which come first.
        let visitors = open_files::visitors(listeners.len(), spec.own_visitors);
        let visitors = visitors.map_err(FrontError::System)?;
        let http = |(number, (listener, site)): (usize, (TcpListener, &Arc<Site>))| {
            let handler = Arc::clone(site);
            HttpServer::start(
                &format!("{}http", threads_of(number)),
                listener,
                spec.names.clone(),
                VisitorLimits::of(visitors),
                move |asked| {
                    let site = Arc::clone(&handler);
                    async move { site.answer(asked).await }
                },
            )
        };
        let https = (1..).zip(listeners.into_iter().zip(&*sites)).map(http);
        let https = https.collect::<io::Result<_>>();
        let https = https.map_err(FrontError::System)?;
        let monitor = Monitor::start(&sites, servers).map_err(FrontError::System)?;
        Ok(Self {
            https,
            monitor,
            sites,
            given_up,
            visitors,
        })
    }

    /// Returns how many connections they may have with visitors, and whether the limit of open files allows no more.
    #[must_use]
    pub fn visitors(&self) -> (usize, bool) {
        let is_low = self.visitors < open_files::MAX_VISITORS;
        (self.visitors * self.https.len(), is_low)
    }

    /// Returns the addresses that they listen at.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.https.iter().map(HttpServer::address).collect()
    }

    /// Returns whether one has ended by a defect.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.https.iter().any(HttpServer::is_finished)
    }

    /// Returns the traffic of all since the last call.
    #[must_use]
    pub fn take_traffic(&self) -> Traffic {
        let mut all = Traffic::default();
        for (http, site) in self.https.iter().zip(self.sites.iter()) {
            let mut traffic = std::mem::take(&mut *lock(&site.traffic));
            traffic.invalid += http.take_refused();
            all.append(traffic);
        }
        all
    }

    /// Returns the changes of servers since the last call.
    #[must_use]
    pub fn take_changes(&self) -> Vec<UseChange> {
        self.monitor.take_changes()
    }

    /// Stops answering, then ends the connections to the servers, with what runs on them. Returns the number of connections that may
    /// still be open there.
    pub fn end(self) -> usize {
        let mut pools = self.sites.iter().flat_map(|site| &site.pools);
        if let Some(pool) = pools.find(|pool| pool.out().is_some()) {
            // So that the end of the run is bounded.
            pool.connections().give_up_on_silent_servers();
        }
        drop(self.https);
        self.monitor.end();
        for site in self.sites.iter() {
            site.pools.iter().for_each(Pool::end);
        }
        let left = self.given_up.await_end(END_TIMEOUT);
        self.given_up.stop();
        left
    }

    /// Returns the processor time of all fronts of this process so far.
    #[must_use]
    pub fn processor_time() -> Duration {
        threads_time(THREADS)
    }

    /// Returns each front, to meter its resources.
    #[must_use]
    pub fn processes(&self) -> Vec<NamedProcess> {
        let process = |number| NamedProcess {
            name: format!("front{number}"),
            role: "front",
            counted: CountedProcess::Threads(threads_of(number)),
        };
        (1..=self.https.len()).map(process).collect()
    }
}

impl Site {
    /// Opens the connections of a front.
    fn new(
        name: &str,
        servers: &FrontServers,
        spec: &FrontSpec,
        clock: Clock,
        seed: u64,
        posted: &Arc<Posted>,
        given_up: &Arc<GivenUp>,
    ) -> Result<Self, FrontError> {
        let waits = spec.remedy == Remedy::WaitForCommit;
        let replicas = servers.replicas.iter().map(|replica| &replica.server);
        let replicas = replicas.map(|server| (&server.node, &server.facts));
        let all = std::iter::once((&servers.primary.0, &servers.primary.1)).chain(replicas);
        let pool = |(index, (node, facts)): (usize, (&Node, &ServerFacts))| {
            let spec_of = PoolSpec {
                node: node.clone(),
                facts: facts.clone(),
                returns_commit_id: waits && index == PRIMARY,
                can_wait: waits && index != PRIMARY,
            };
            let name = format!("{name}{}", node.name);
            let started = Pool::start(&name, spec_of, spec.connections, clock, given_up);
            started.map_err(|mut error| {
                if waits {
                    error.hint = format!("choose another --remedy, or {ENABLE_IDS}");
                }
                FrontError::Server(error)
            })
        };
        let pools = all.enumerate().map(pool).collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            rule: Rule {
                remedy: spec.remedy,
                primary_for: spec.primary_for,
                readers: readers(spec.reads, pools.len()),
                seed,
            },
            cost: spec.cost,
            max_rows: spec.max_rows,
            shows_servers: spec.shows_servers,
            pools,
            pages: Pages::new(),
            clock,
            read_number: AtomicUsize::new(0),
            rows: spec.rows,
            random: Mutex::new(Random::new(seed)),
            cookies: CookieNames::of(spec.run),
            posted: Arc::clone(posted),
            traffic: Mutex::default(),
        })
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
