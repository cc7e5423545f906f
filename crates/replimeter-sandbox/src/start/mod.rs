//! Starting a sandbox: servers in parallel, then what makes them replicate, then
//! the proof that it works. One file per way of replicating.

mod channels;
mod extras;
mod galera;
mod group;
mod networks;
mod prove;

use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use replimeter_model::{
    sandbox::{Bandwidth, LinkSpec},
    shape::Mode,
    target::{Secret, ServerOption},
};
use replimeter_server::{ErrorKind, Node, Session, namespace::Namespace};

use crate::{
    binaries::Install,
    copy,
    cpus::Shares,
    engine::{self, ServerSpec},
    error::SandboxError,
    home::{self, Place},
    kept,
    link::{Link, LinkSettings},
    network::Wire,
    ports, process,
    registry::Entry,
    sandbox::{Installs, Member, Settings, role_of, write_private},
    seed::{self, Seed},
};

/// How long a server may take to answer, and replication to work.
const READY: Duration = Duration::from_secs(60);
/// How long our user may be unknown to a server that answers already.
const LET_IN: Duration = Duration::from_secs(10);
/// How often everything is started with other ports when one was taken.
const PORT_TRIES: u32 = 5;
/// How long an answer may take while a sandbox starts.
const ANSWER: Duration = Duration::from_secs(20);

/// A server that answers, and what it was started with.
pub(crate) struct Started {
    pub(crate) member: Member,
    pub(crate) command_line: Vec<String>,
}

/// Everything that was started.
pub(crate) struct Running {
    /// The servers.
    pub(crate) started: Vec<Started>,
    /// The replication links.
    pub(crate) links: Vec<Wire>,
    /// Links that lead clients into the members' networks.
    pub(crate) doors: Vec<Link>,
}

/// The ports of one server, all reserved; 0 for what its mode does not need.
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

/// What tells this sandbox's cluster from every other.
pub(crate) struct Identity {
    /// 32 hexadecimal digits.
    digits: String,
}

impl Identity {
    /// Eight digits.
    pub(crate) fn short(&self) -> &str {
        &self.digits[..8]
    }

    /// A `server_id` that no other sandbox's servers have, as far as chance goes:
    /// MariaDB tells its servers apart by nothing else.
    pub(crate) fn server_id(&self, number: usize) -> u32 {
        let base = u32::from_str_radix(&self.digits[..6], 16)
            .unwrap_or(1)
            .max(1);
        base << 8 | (u32::try_from(number).unwrap_or(0) + 1)
    }

    /// A UUID; another for each number.
    pub(crate) fn uuid(&self, number: usize) -> String {
        let digits = &self.digits;
        // Version and variant of a random UUID (RFC 9562).
        format!(
            "{:08x}-{}-4{}-8{}-{}",
            number + 1,
            &digits[8..12],
            &digits[13..16],
            &digits[17..20],
            &digits[20..32]
        )
    }
}

/// Everything that starting the servers needs.
pub(crate) struct Starter<'a> {
    settings: &'a Settings,
    installs: &'a Installs,
    password: &'a str,
    /// The primary's data directory to copy, and the replicas'.
    seeds: [Seed; 2],
    entry: &'a Arc<Entry>,
    stop: &'a AtomicBool,
    identity: Identity,
    /// The replication links made so far.
    links: Mutex<Vec<Wire>>,
    /// Links that lead clients into the members' networks.
    doors: Mutex<Vec<Link>>,
    /// The first server that died while it was waited for.
    died: Mutex<Option<SandboxError>>,
    /// What of the machine each server has.
    shares: Arc<Shares>,
}

impl<'a> Starter<'a> {
    /// Makes sure that there are data directories to copy.
    pub(crate) fn prepare(
        settings: &'a Settings,
        installs: &'a Installs,
        password: &'a str,
        place: &Place,
        entry: &'a Arc<Entry>,
        stop: &'a AtomicBool,
    ) -> Result<Self, SandboxError> {
        let digits = crate::sandbox::random_password()
            .map_err(SandboxError::disk("read", Path::new("/dev/urandom")))?;
        let identity = Identity { digits };
        // A data directory is shaped by options for all; those for one server act when it starts.
        let shaping: Vec<ServerOption> = settings
            .spec
            .server_options
            .iter()
            .filter(|option| option.node.is_none())
            .map(|option| option.option.clone())
            .collect();
        let maker = seed::Maker {
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
        Ok(Self {
            settings,
            installs,
            password,
            seeds: [primary, replica],
            entry,
            stop,
            identity,
            links: Mutex::default(),
            doors: Mutex::default(),
            died: Mutex::default(),
            shares: Arc::new(Shares::make(
                settings.spec.cpus,
                settings.spec.shape,
                entry,
            )?),
        })
    }

    /// What of the machine each server has.
    pub(crate) fn shares(&self) -> Arc<Shares> {
        Arc::clone(&self.shares)
    }

    /// Whether earlier runs had made the data directories.
    pub(crate) fn seeds_from_cache(&self) -> bool {
        self.seeds.iter().all(|seed| seed.from_cache)
    }

    fn open_links(&self) -> MutexGuard<'_, Vec<Wire>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Links that lead clients into the members' networks.
    fn open_doors(&self) -> MutexGuard<'_, Vec<Link>> {
        self.doors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mode(&self) -> Mode {
        self.settings.spec.shape.mode()
    }

    fn interrupted(&self) -> Result<(), SandboxError> {
        if self.stop.load(Ordering::Relaxed) {
            Err(SandboxError::Interrupted)
        } else {
            Ok(())
        }
    }

    /// Starts everything; again with other ports when one was taken meanwhile.
    pub(crate) fn start(self) -> Result<Running, SandboxError> {
        let names = self.settings.spec.shape.nodes();
        for attempt in 1.. {
            match self.attempt(&names) {
                Err(error) if attempt < PORT_TRIES && of_a_port(&error) => {
                    self.entry.servers.kill_started();
                    self.open_links().clear();
                    self.open_doors().clear();
                    for name in &names {
                        let folder = self.entry.folder.join(name);
                        home::remove_folder(&folder)?;
                    }
                }
                other => {
                    let started = other?;
                    let links = self
                        .links
                        .into_inner()
                        .unwrap_or_else(PoisonError::into_inner);
                    let doors = self
                        .doors
                        .into_inner()
                        .unwrap_or_else(PoisonError::into_inner);
                    return Ok(Running {
                        started,
                        links,
                        doors,
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
        // Others may have died of the first one's death, or have been waiting for it.
        if let Some(died) = self
            .died
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
        {
            return Err(died);
        }
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
        if let Some(died) = self
            .died
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
        {
            return Err(died);
        }
        proven.map(|()| started)
    }

    fn start_one(
        &self,
        index: usize,
        names: &[String],
        ports: &[Ports],
        namespace: Option<&Namespace>,
    ) -> Result<Started, SandboxError> {
        let name = &names[index];
        let role = role_of(self.mode(), index);
        let is_replica = role == replimeter_model::target::Role::Replica;
        let install = if is_replica {
            &self.installs.replica
        } else {
            &self.installs.primary
        };
        let folder = self.entry.folder.join(name);
        let disk = SandboxError::disk;
        fs::create_dir(&folder).map_err(disk("create the folder", &folder))?;
        let data = folder.join("data");
        let user = self.settings.home.user();
        copy::folder(&self.seeds[usize::from(is_replica)].path, &data, user)?;
        fs::set_permissions(&data, fs::Permissions::from_mode(0o700))
            .map_err(disk("set the permissions of", &data))?;
        let init_file = folder.join("init.sql");
        write_private(
            &init_file,
            &engine::init_sql(
                install.engine,
                self.mode(),
                self.password,
                self.installs.udf.is_some(),
            ),
        )
        .map_err(disk("write", &init_file))?;
        // The folder stays ours: in it we write a log, which must not be led elsewhere by a link.
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o711))
            .map_err(disk("set the permissions of", &folder))?;
        user.own(&init_file)
            .map_err(disk("change the owner of", &init_file))?;
        let mut arguments = match self.mode() {
            Mode::Galera => {
                self.write_view(&data, index, names.len())?;
                self.galera_arguments(install, index, names, ports)?
            }
            Mode::Group => self.group_arguments(index, ports),
            Mode::SemiSync => engine::semi_sync_arguments(install),
            Mode::None | Mode::Async | Mode::Chain => Vec::new(),
        };
        if self.settings.spec.federated {
            arguments.extend(engine::federated_arguments(install));
        }
        let plugins = self.plugin_folder(install, &folder)?;
        let options: Vec<ServerOption> = self
            .settings
            .spec
            .server_options
            .iter()
            .filter(|option| option.is_for(name))
            .filter(|option| self.mode() != Mode::Galera || option.option.name != PROVIDER_OPTIONS)
            .map(|option| option.option.clone())
            .collect();
        let log = folder.join("server.log");
        self.interrupted()?;
        let spec = ServerSpec {
            install,
            data: &data,
            init_file: &init_file,
            port: ports[index].sql,
            server_id: self.identity.server_id(index),
            replica: is_replica,
            binary_log: self.settings.spec.binary_log,
            plugins: plugins.as_deref(),
            arguments: &arguments,
            options: &options,
        };
        let mut command = engine::serve(&spec);
        command
            .env(process::MARK, &self.entry.folder)
            .env(process::TOKEN, &self.entry.token);
        self.shares.prepare(&mut command, index);
        process::log_to(&mut command, &log).map_err(disk("open the log", &log))?;
        let command_line: Vec<String> = std::iter::once(command.get_program())
            .chain(command.get_args())
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        let spawn = |source| SandboxError::Spawn {
            program: install.program.display().to_string(),
            source,
        };
        let number = self
            .entry
            .servers
            .adopt(process::spawn(command, user, namespace).map_err(spawn)?);
        // Before it has done anything worth measuring; its threads come along.
        let pid = self.entry.servers.pid(number).unwrap_or_default();
        if let Err(error) = self.shares.hold(pid, index) {
            self.entry.servers.kill(number);
            return Err(error);
        }
        let node = self.node(name, ports[index].sql, namespace);
        if let Err(error) = self.wait_for_answer(&node, number, &log) {
            self.entry.servers.kill(number);
            return Err(error);
        }
        // The password in it is needed no longer.
        fs::remove_file(&init_file).map_err(disk("remove", &init_file))?;
        let version = format!("{} {}", install.engine.product(), install.version);
        Ok(Started {
            member: Member {
                node,
                role,
                source: None,
                pid,
                folder,
                number,
                version,
            },
            command_line,
        })
    }

    fn node(&self, name: &str, port: u16, namespace: Option<&Namespace>) -> Node {
        Node {
            name: name.to_owned(),
            endpoint: kept::endpoint(engine::ADMIN_USER, port),
            user: engine::ADMIN_USER.to_owned(),
            password: Some(Secret::new(self.password)),
            answer: ANSWER,
            namespace: namespace.cloned(),
        }
    }

    fn wait_for_answer(&self, node: &Node, number: usize, log: &Path) -> Result<(), SandboxError> {
        let began = Instant::now();
        loop {
            self.interrupted()?;
            self.still_runs(&node.name, number, log)?;
            match Session::open(node) {
                Ok(_) => return Ok(()),
                Err(error)
                    if began.elapsed() > READY
                        || (error.kind == ErrorKind::AccessDenied && began.elapsed() > LET_IN) =>
                {
                    return Err(not_ready(&node.name, error.to_string(), log));
                }
                Err(_) => thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    /// An error with the end of its log when the server has ended, or when another
    /// one has: nothing comes of waiting then.
    fn still_runs(&self, name: &str, number: usize, log: &Path) -> Result<(), SandboxError> {
        let mut first = self.died.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(status) = self.entry.servers.ended(number) {
            first.get_or_insert_with(|| SandboxError::Died {
                node: name.to_owned(),
                status: process::describe(status),
                log: process::log_tail(log),
            });
        }
        match &*first {
            None => Ok(()),
            Some(_) => Err(SandboxError::Interrupted),
        }
    }

    /// Asks `state` of one server until it says that it is ready, by `Ok(None)`;
    /// `Ok(Some(words))` is shown when it takes too long.
    fn await_state(
        &self,
        server: &Started,
        mut state: impl FnMut(&mut Session) -> Result<Option<String>, SandboxError>,
    ) -> Result<(), SandboxError> {
        let began = Instant::now();
        let (name, log) = (&server.member.node.name, server.member.log());
        let mut session = Session::open(&server.member.node)?;
        loop {
            self.interrupted()?;
            self.still_runs(name, server.member.number, &log)?;
            let words = match state(&mut session) {
                Ok(None) => return Ok(()),
                Ok(Some(words)) => words,
                // A node that joins a cluster may close its connections.
                Err(SandboxError::Server(error))
                    if matches!(error.kind, ErrorKind::Lost | ErrorKind::Timeout) =>
                {
                    if let Ok(again) = Session::open(&server.member.node) {
                        session = again;
                    }
                    error.to_string()
                }
                Err(error) => return Err(error),
            };
            if began.elapsed() > READY {
                return Err(not_ready(name, words, &log));
            }
            thread::sleep(Duration::from_millis(3));
        }
    }

    /// Does the same on several servers at once.
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
            // Every one is waited for, or the scope would wait for it without telling why.
            threads.into_iter().map(join).fold(Ok(()), Result::and)
        })
    }
}

/// Merged with our own by the Galera starter, not handed on.
const PROVIDER_OPTIONS: &str = "wsrep_provider_options";

/// A link's settings as the link takes them.
pub(crate) fn link_settings(spec: &LinkSpec) -> LinkSettings {
    LinkSettings {
        delay: spec.delay.0,
        jitter: spec.jitter.0,
        bandwidth: spec.bandwidth.map(Bandwidth::bytes),
    }
}

fn not_ready(node: &str, state: String, log: &Path) -> SandboxError {
    SandboxError::NotReady {
        node: node.to_owned(),
        seconds: READY.as_secs(),
        state,
        log: process::log_tail(log),
    }
}

/// Whether it failed because somebody had taken a port meanwhile.
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

/// A thread's result; its panic becomes ours, so that the sandbox is dropped.
fn join<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The value of an option; of several the last.
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
    fn uuids_differ_and_are_well_formed() {
        let identity = Identity {
            digits: "0123456789abcdef0123456789abcdef".to_owned(),
        };
        assert_eq!(identity.server_id(1), 0x0123_4502);
        let (one, two) = (identity.uuid(0), identity.uuid(1));
        assert_ne!(one, two);
        assert_eq!(
            one.split('-').map(str::len).collect::<Vec<_>>(),
            [8, 4, 4, 4, 12]
        );
        assert!(one.as_bytes()[14] == b'4' && one.as_bytes()[19] == b'8');
    }

    #[test]
    fn a_taken_port_is_recognised_by_every_server() {
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
