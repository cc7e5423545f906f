//! Starts a sandbox: servers in parallel, then replication, then the proof that it works. One file
//! per replication mode.

mod channels;
mod clients;
mod extras;
mod galera;
mod group;
mod identity;
mod networks;
mod server;
mod verify;

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicBool},
    thread,
};

use replimeter_engine::sync::lock;
use replimeter_model::{
    replication::Mode,
    sandbox::{Bandwidth, LinkSpec},
    server_option::ServerOption,
};

use self::identity::Identity;
pub(crate) use self::server::ServerPlacement;
use crate::{
    access,
    binaries::Install,
    cpus::CpuShares,
    error::SandboxError,
    flush::FlushDelay,
    home::{self, SandboxFolder},
    link::{Link, LinkSettings},
    member::Member,
    network::ServerLinks,
    ports,
    registry::Entry,
    settings::{SandboxInstalls, Settings},
    template::{self, Template},
};

/// Maximum attempts with other ports when one was taken.
const PORT_TRIES: u32 = 5;
/// Merged with Replimeter's options by the Galera starter, not passed on.
const PROVIDER_OPTIONS: &str = "wsrep_provider_options";

/// A server that answers, with its settings.
pub(crate) struct Started {
    pub(crate) member: Member,
    pub(crate) command_line: Vec<String>,
}

/// The result of a start.
pub(crate) struct Running {
    /// The servers.
    pub(crate) started: Vec<Started>,
    /// The replication links.
    pub(crate) links: Vec<ServerLinks>,
    /// Links that lead clients to the servers.
    pub(crate) client_links: Vec<Link>,
}

/// The reserved ports of one server; 0 for those that its mode does not need.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports {
    /// For clients and replicas.
    pub(crate) sql: u16,
    /// For the other members of its cluster.
    pub(crate) group: u16,
    /// For Galera's incremental state transfer.
    pub(crate) incremental: u16,
    /// For Galera's full state transfer.
    pub(crate) transfer: u16,
}
/// Everything that starting the servers needs.
pub(crate) struct Starter<'a> {
    settings: &'a Settings,
    installs: &'a SandboxInstalls,
    password: &'a str,
    /// The primary's data directory to copy, and the replicas'.
    templates: [Template; 2],
    entry: &'a Arc<Entry>,
    stop: &'a AtomicBool,
    identity: Identity,
    /// The replication links made so far.
    links: Mutex<Vec<ServerLinks>>,
    /// Links that lead clients to the servers.
    client_links: Mutex<Vec<Link>>,
    /// The first server that died while it was waited for.
    died: Mutex<Option<SandboxError>>,
    /// Each server's share of the machine.
    shares: Arc<CpuShares>,
    /// Slows flushes, if requested.
    flush: Option<FlushDelay>,
}

impl<'a> Starter<'a> {
    /// Creates the templates, unless they exist.
    pub(crate) fn prepare(
        settings: &'a Settings,
        installs: &'a SandboxInstalls,
        password: &'a str,
        place: &SandboxFolder,
        entry: &'a Arc<Entry>,
        stop: &'a AtomicBool,
    ) -> Result<Self, SandboxError> {
        if settings.spec.client_link.is_some() {
            clients::raise_file_limit();
        }
        let identity = Identity {
            digits: access::random_token()?,
        };
        // Options for all servers affect the template; options for one server apply when it starts.
        let shaping: Vec<ServerOption> = settings
            .spec
            .server_options
            .iter()
            .filter(|option| option.node.is_none())
            .map(|option| option.option.clone())
            .collect();
        let maker = template::TemplateBuilder {
            home: &settings.home,
            place,
            servers: &entry.servers,
            options: &shaping,
            stop,
        };
        let make = |install: &Install| match settings.spec.shape.mode() {
            Mode::Galera => maker.galera(install),
            _ => maker.plain(install),
        };
        let primary = make(&installs.primary)?;
        let replica = if installs.replica == installs.primary {
            primary.clone()
        } else {
            make(&installs.replica)?
        };
        let flush = settings.spec.flush_delay;
        let flush = flush.map(|least| FlushDelay::install(&entry.folder, least));
        Ok(Self {
            flush: flush.transpose()?,
            settings,
            installs,
            password,
            templates: [primary, replica],
            entry,
            stop,
            identity,
            links: Mutex::default(),
            client_links: Mutex::default(),
            died: Mutex::default(),
            shares: Arc::new(CpuShares::make(
                &settings.spec,
                &entry.token,
                &entry.groups,
            )?),
        })
    }

    /// Returns each server's share of the machine.
    pub(crate) fn shares(&self) -> Arc<CpuShares> {
        Arc::clone(&self.shares)
    }

    /// Returns what slows the flushes of servers.
    pub(crate) fn flush(&self) -> Option<FlushDelay> {
        self.flush.clone()
    }

    /// Returns whether earlier runs created the templates.
    pub(crate) fn templates_from_cache(&self) -> bool {
        self.templates.iter().all(|template| template.from_cache)
    }

    fn open_links(&self) -> MutexGuard<'_, Vec<ServerLinks>> {
        lock(&self.links)
    }

    /// Returns the links that lead clients to the servers.
    fn open_client_links(&self) -> MutexGuard<'_, Vec<Link>> {
        lock(&self.client_links)
    }

    /// Returns the error of the first server that died while it was waited for.
    fn first_death(&self) -> Result<(), SandboxError> {
        lock(&self.died).take().map_or(Ok(()), Err)
    }

    fn mode(&self) -> Mode {
        self.settings.spec.shape.mode()
    }

    /// Starts everything; again with other ports when one was taken.
    pub(crate) fn start(self) -> Result<Running, SandboxError> {
        let names = self.settings.spec.shape.nodes();
        for attempt in 1.. {
            match self.attempt(&names) {
                Err(error) if attempt < PORT_TRIES && of_a_port(&error) => {
                    self.entry.servers.kill_started();
                    self.open_links().clear();
                    self.open_client_links().clear();
                    for name in &names {
                        let folder = self.entry.folder.join(name);
                        home::remove_folder(&folder)?;
                    }
                }
                other => {
                    let mut started = other?;
                    self.put_client_links(&mut started)?;
                    let links = self
                        .links
                        .into_inner()
                        .unwrap_or_else(PoisonError::into_inner);
                    let client_links = self
                        .client_links
                        .into_inner()
                        .unwrap_or_else(PoisonError::into_inner);
                    return Ok(Running {
                        started,
                        links,
                        client_links,
                    });
                }
            }
        }
        unreachable!("the loop ends by returning")
    }

    fn attempt(&self, names: &[String]) -> Result<Vec<Started>, SandboxError> {
        let reserve = || {
            ports::reserve().map_err(SandboxError::disk("reserve a port for", &self.entry.folder))
        };
        let ports = names
            .iter()
            .map(|_| {
                let sql = reserve()?;
                let group = if self.mode().has_members() {
                    reserve()?
                } else {
                    0
                };
                let (incremental, transfer) = if self.mode() == Mode::Galera {
                    (reserve()?, reserve()?)
                } else {
                    (0, 0)
                };
                Ok(Ports {
                    sql,
                    group,
                    incremental,
                    transfer,
                })
            })
            .collect::<Result<Vec<Ports>, SandboxError>>()?;
        let networks = if self.mode().has_members() {
            self.networks(names, &ports)?
        } else {
            Vec::new()
        };
        let started: Vec<Result<Started, SandboxError>> = thread::scope(|scope| {
            let (ports, networks) = (&ports, &networks);
            let threads: Vec<_> = (0..names.len())
                .map(|index| {
                    scope.spawn(move || self.start_one(index, names, ports, networks.get(index)))
                })
                .collect();
            threads.into_iter().map(join).collect()
        });
        // Others may have failed because the first one died, or may have waited for it.
        self.first_death()?;
        let mut started = started.into_iter().collect::<Result<Vec<_>, _>>()?;
        let connected = match self.mode() {
            Mode::None | Mode::Async | Mode::SemiSync | Mode::Chain => {
                self.connect_channels(&mut started)
            }
            Mode::Galera => self.await_galera(&started),
            Mode::Group => self.form_group(&started),
        };
        let proven = connected
            .and_then(|()| self.prove_extras(&started))
            .and_then(|()| self.prove(&started));
        self.first_death()?;
        proven.map(|()| started)
    }

    /// Runs `work` on several servers at once.
    fn on_all<'s>(
        &self,
        servers: impl IntoIterator<Item = &'s Started>,
        work: impl Fn(&Started) -> Result<(), SandboxError> + Sync,
    ) -> Result<(), SandboxError> {
        thread::scope(|scope| {
            let work = &work;
            let threads: Vec<_> = servers
                .into_iter()
                .map(|server| scope.spawn(move || work(server)))
                .collect();
            // Every thread is joined, or the scope would wait for it without its error.
            threads.into_iter().map(join).fold(Ok(()), Result::and)
        })
    }
}

/// Returns a link's settings as the link takes them.
pub(crate) fn link_settings(spec: &LinkSpec) -> LinkSettings {
    LinkSettings {
        delay: spec.delay.0,
        jitter: spec.jitter.0,
        bandwidth: spec.bandwidth.map(Bandwidth::bytes),
    }
}

/// Returns whether it failed because another process had taken a port.
fn of_a_port(error: &SandboxError) -> bool {
    match error {
        SandboxError::Died { log, .. } | SandboxError::NotReady { log, .. } => port_taken(log),
        SandboxError::Link { source, .. } => source.kind() == io::ErrorKind::AddrInUse,
        _ => false,
    }
}

fn port_taken(log: &str) -> bool {
    let log = log.to_ascii_lowercase();
    log.contains("address already in use")
        || log.contains("bind on tcp/ip port")
        || log.contains("unable to bind to")
}

/// Returns a thread's result; a panic is propagated, so that the sandbox is dropped.
fn join<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Returns the value of an option; of several the last.
pub(crate) fn option_value<'o>(options: &'o [ServerOption], name: &str) -> Option<&'o str> {
    options
        .iter()
        .rev()
        .find(|option| option.name == name)
        .and_then(|option| option.value.as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taken_port_is_recognized_for_every_server() {
        for line in [
            "[ERROR] Can't start server: Bind on TCP/IP port. Got error: 98: Address already in use",
            "WSREP: failed to open gcomm backend connection: 98: error while trying to listen (Address already in use)",
            "[GCS] Unable to bind to INADDR_ANY:33061 (socket=43, errno=98)!",
        ] {
            assert!(port_taken(line), "{line}");
        }
        assert!(!port_taken("ready for connections"));
    }
}
