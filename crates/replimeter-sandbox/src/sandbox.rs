//! A running sandbox: what it is made of, how it came to be, and its end.

use std::{
    fs,
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, Instant},
};

use replimeter_model::{
    engine::Engine,
    manifest::SandboxRecord,
    sandbox::{SandboxName, SandboxSpec},
    shape::{Mode, Shape},
    target::Role,
};
use replimeter_server::Node;

use crate::{
    abilities::Ability,
    binaries::{Install, Search},
    cpus::{self, Shares},
    engine,
    error::SandboxError,
    guard::GuardProgram,
    home::{Home, Place},
    kept::{LinkChange, LinkState},
    link::{Link, LinkSettings},
    network::Wire,
    process,
    registry::{Entry, Servers},
    start::{self, Starter},
    user::SystemUser,
};

/// What to start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The servers and how they hang together.
    pub spec: SandboxSpec,
    /// Where to look for binaries.
    pub search: Search,
    /// The private folder.
    pub home: Home,
    /// Who ends what servers have started when we are killed; nobody when `None`.
    pub guard: Option<GuardProgram>,
}

impl Settings {
    /// A sandbox of this shape and nothing special.
    #[must_use]
    pub fn of(shape: Shape, search: Search, home: Home) -> Self {
        Self {
            spec: SandboxSpec::of(shape),
            search,
            home,
            guard: None,
        }
    }
}

/// A server of a running sandbox.
#[derive(Clone, Debug)]
pub struct Member {
    /// How to reach it.
    pub node: Node,
    /// What it is.
    pub role: Role,
    /// The name of the server it replicates from; `None` for a primary and for members of a cluster.
    pub source: Option<String>,
    /// Its process id.
    pub pid: u32,
    /// Its folder: log, data directory, socket.
    pub folder: PathBuf,
    /// Its number in the registry of processes.
    pub(crate) number: usize,
    /// Product and version.
    pub version: String,
}

impl Member {
    /// Its Unix socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.folder.join("data").join("server.sock")
    }

    /// Its error log.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.folder.join("server.log")
    }
}

/// Running servers of ours; ended and removed when dropped.
#[derive(Debug)]
pub struct Sandbox {
    entry: Arc<Entry>,
    members: Vec<Member>,
    nodes: Vec<Node>,
    links: Vec<Wire>,
    /// Lead clients into the members' networks.
    _doors: Vec<Link>,
    install: Install,
    record: SandboxRecord,
    user: SystemUser,
    /// What of the machine each server has, also one that is started again.
    shares: Arc<Shares>,
    // Last: the folder's lock is let go after the folder is gone.
    _place: Place,
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // `close` reports failures; here the next start removes what stays.
        let _ = self.entry.destroy();
    }
}

/// The binaries of a sandbox.
pub(crate) struct Installs {
    /// Of the primary, or of every member.
    pub(crate) primary: Install,
    /// Of the replicas.
    pub(crate) replica: Install,
    /// The library of our functions, when they are to be loaded.
    pub(crate) udf: Option<PathBuf>,
}

/// What a mode needs of a server.
fn ability(mode: Mode) -> Ability {
    match mode {
        Mode::None | Mode::Async => Ability::Async,
        Mode::SemiSync => Ability::SemiSync,
        Mode::Chain => Ability::Chain,
        Mode::Galera => Ability::Galera,
        Mode::Group => Ability::Group,
    }
}

impl Installs {
    /// The best servers that can do what is asked for.
    fn find(settings: &Settings) -> Result<Self, SandboxError> {
        let spec = &settings.spec;
        let (engine, ability) = (spec.shape.engine(), ability(spec.shape.mode()));
        let primary = Install::pick(&settings.search, engine, None, ability)?;
        let replica = match &spec.replica_server {
            None => primary.clone(),
            // A folder, or what a version begins with.
            Some(wanted) if !is_number(wanted) && Path::new(wanted).is_dir() => {
                let search = Search {
                    servers: Some(PathBuf::from(wanted)),
                    ..settings.search.clone()
                };
                Install::pick(&search, Some(primary.engine), None, ability).or_else(|error| {
                    Install::pick(&search, None, None, ability).map_err(|_| error)
                })?
            }
            Some(wanted) => Install::pick(
                &settings.search,
                Some(primary.engine),
                Some(wanted),
                ability,
            )?,
        };
        if replica.engine != primary.engine {
            return Err(SandboxError::Impossible {
                what: format!(
                    "{} cannot replicate from {} by GTID",
                    replica.engine.product(),
                    primary.engine.product()
                ),
                hint: "choose a server of the same family for the replicas".to_owned(),
            });
        }
        if spec.wait_for_replicas.is_some_and(|wanted| wanted > 1)
            && primary.engine == Engine::MariaDb
        {
            return Err(SandboxError::Impossible {
                what: "MariaDB waits for the first replica only".to_owned(),
                hint: "a number of replicas to wait for is MySQL's: mysql/semi-sync:N".to_owned(),
            });
        }
        if spec.federated && primary.engine == Engine::MariaDb {
            for install in [&primary, &replica] {
                install
                    .abilities
                    .require(Ability::Federated)
                    .map_err(|missing| SandboxError::Impossible {
                        what: format!(
                            "{} {} has no engine FEDERATED",
                            install.engine.product(),
                            install.version
                        ),
                        hint: missing.hint,
                    })?;
            }
        }
        let udf = spec.udf.then(|| library(&settings.search)).transpose()?;
        Ok(Self {
            primary,
            replica,
            udf,
        })
    }
}

/// The library of our functions.
fn library(search: &Search) -> Result<PathBuf, SandboxError> {
    search.udf.iter().find(|path| path.is_file()).cloned().ok_or_else(|| {
        let searched: Vec<String> = search.udf.iter().map(|path| path.display().to_string()).collect();
        SandboxError::Impossible {
            what: format!("the library of NOW_USEC() was not found; looked for {}", searched.join(", ")),
            hint: "`cargo build --release` (make build) makes it beside the binary; name it with REPLIMETER_UDF when it lies elsewhere"
                .to_owned(),
        }
    })
}

/// Whether a text can only be a version.
fn is_number(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.')
}

impl Sandbox {
    /// Whether the servers for this are here and can do what is asked for; starts
    /// nothing.
    ///
    /// # Errors
    /// As [`start`](Self::start) has them.
    pub fn possible(settings: &Settings) -> Result<(), SandboxError> {
        settings
            .spec
            .cpus
            .map_or(Ok(()), |cpus| cpus::check(cpus, settings.spec.shape))?;
        Installs::find(settings).map(|_| ())
    }

    /// The server that the primary, or every member, would run on; starts nothing.
    ///
    /// # Errors
    /// As [`start`](Self::start) has them.
    pub fn install_for(settings: &Settings) -> Result<Install, SandboxError> {
        Installs::find(settings).map(|installs| installs.primary)
    }

    /// Starts the servers and waits until a row written on the primary was read
    /// on every other server, and the mode is in effect as they say themselves.
    ///
    /// `stop` is looked at all the while; when it becomes true everything is
    /// taken down again.
    ///
    /// # Errors
    /// When there is no binary, it cannot do what is asked for, a server does not
    /// start, or replication does not work; nothing is left behind then.
    pub fn start(settings: &Settings, stop: &AtomicBool) -> Result<Self, SandboxError> {
        Self::start_named(settings, None, stop)
    }

    /// As [`start`](Self::start), in a folder of this name.
    pub(crate) fn start_named(
        settings: &Settings,
        name: Option<&SandboxName>,
        stop: &AtomicBool,
    ) -> Result<Self, SandboxError> {
        let began = Instant::now();
        let installs = Installs::find(settings)?;
        let place = settings.home.claim(name)?;
        let random =
            || random_password().map_err(SandboxError::disk("read", Path::new("/dev/urandom")));
        let (password, token) = (random()?, random()?);
        let mut sandbox = Self {
            entry: Entry::register(place.path.clone(), token),
            members: Vec::new(),
            nodes: Vec::new(),
            links: Vec::new(),
            _doors: Vec::new(),
            install: installs.primary.clone(),
            record: SandboxRecord {
                shape: settings.spec.shape.to_string(),
                binaries: installs.primary.program.display().to_string(),
                replica_binaries: settings
                    .spec
                    .replica_server
                    .as_ref()
                    .map(|_| installs.replica.program.display().to_string()),
                link: settings.spec.link.map(|link| link.to_string()),
                udf: installs
                    .udf
                    .as_ref()
                    .map(|library| library.display().to_string()),
                federated: settings.spec.federated,
                without_binary_log: !settings.spec.binary_log,
                file_system: file_system(&place.path),
                system_user: settings.home.user().name.clone(),
                ..SandboxRecord::default()
            },
            user: settings.home.user().clone(),
            shares: Arc::new(Shares::Free),
            _place: place,
        };
        // From here on an early return drops the sandbox, and so ends and removes it.
        sandbox.write_credentials(&password)?;
        if let (Mode::Galera, Some(guard)) = (settings.spec.shape.mode(), &settings.guard) {
            let program = guard.program.display().to_string();
            let spawn = |source| SandboxError::Spawn { program, source };
            sandbox
                .entry
                .guard
                .start(guard, &sandbox.entry.token)
                .map_err(spawn)?;
        }
        let starter = Starter::prepare(
            settings,
            &installs,
            &password,
            &sandbox._place,
            &sandbox.entry,
            stop,
        )?;
        sandbox.record.seed_from_cache = starter.seeds_from_cache();
        sandbox.shares = starter.shares();
        sandbox.record.cpus_per_server = sandbox.shares.words();
        let start::Running {
            started,
            links,
            doors,
        } = starter.start()?;
        (sandbox.links, sandbox._doors) = (links, doors);
        sandbox.record.start_us = began.elapsed().as_secs_f64() * 1e6;
        settle(&sandbox.entry.folder);
        sandbox.nodes = started
            .iter()
            .map(|server| server.member.node.clone())
            .collect();
        for start::Started {
            member,
            command_line,
        } in started
        {
            sandbox
                .record
                .command_lines
                .insert(member.node.name.clone(), command_line);
            sandbox.members.push(member);
        }
        Ok(sandbox)
    }

    /// How to reach the servers; the one that is written to comes first.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The servers, in the same order.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The servers' process ids, in the same order.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        self.members.iter().map(|member| member.pid).collect()
    }

    /// How it came to be.
    #[must_use]
    pub fn record(&self) -> &SandboxRecord {
        &self.record
    }

    /// The server that the primary runs on.
    pub(crate) fn install(&self) -> &Install {
        &self.install
    }

    /// Its folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.entry.folder
    }

    /// Its processes.
    pub(crate) fn servers(&self) -> &Servers {
        &self.entry.servers
    }

    /// Spawns a server as a member of this name was, with the same share of the machine, and returns its number.
    pub(crate) fn adopt(
        &self,
        member: &Member,
        mut command: Command,
    ) -> Result<usize, SandboxError> {
        let index = self
            .members
            .iter()
            .position(|one| one.node.name == member.node.name)
            .unwrap_or_default();
        command
            .env(process::MARK, &self.entry.folder)
            .env(process::TOKEN, &self.entry.token);
        self.shares.prepare(&mut command, index);
        let log = member.log();
        process::log_to(&mut command, &log).map_err(SandboxError::disk("open the log", &log))?;
        let spawn = |source| SandboxError::Spawn {
            program: self.install.program.display().to_string(),
            source,
        };
        let child =
            process::spawn(command, &self.user, member.node.namespace.as_ref()).map_err(spawn)?;
        let number = self.entry.servers.adopt(child);
        if let Err(error) = self
            .shares
            .hold(self.entry.servers.pid(number).unwrap_or_default(), index)
        {
            self.entry.servers.kill(number);
            return Err(error);
        }
        Ok(number)
    }

    /// The member of this name is another process now.
    pub(crate) fn replace(&mut self, name: &str, number: usize) {
        let pid = self.entry.servers.pid(number).unwrap_or_default();
        if let Some(member) = self
            .members
            .iter_mut()
            .find(|member| member.node.name == name)
        {
            (member.number, member.pid) = (number, pid);
        }
    }

    /// How the server of this number ended, if it did.
    #[must_use]
    pub fn ended(&self, index: usize) -> Option<String> {
        let member = self.members.get(index)?;
        self.entry
            .servers
            .ended(member.number)
            .map(process::describe)
    }

    /// The replication links that are links of ours, as they are now.
    #[must_use]
    pub fn links(&self) -> Vec<LinkState> {
        let state = |wire: &Wire| {
            let settings = wire.settings();
            let counters: Vec<_> = wire.links.iter().map(Link::counters).collect();
            let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            LinkState {
                name: wire.name.clone(),
                cut: wire.links.iter().any(Link::is_cut),
                delay_ns: nanos(settings.delay),
                jitter_ns: nanos(settings.jitter),
                bandwidth_bits: settings.bandwidth.map(|bytes| bytes * 8),
                bytes: [
                    counters.iter().map(|link| link.to_target.bytes).sum(),
                    counters.iter().map(|link| link.to_client.bytes).sum(),
                ],
            }
        };
        self.links.iter().map(state).collect()
    }

    /// Changes a link, or all of them; what is not named stays.
    ///
    /// # Errors
    /// When there is none of this name, or the result would make no sense.
    pub fn change_link(&self, name: Option<&str>, change: &LinkChange) -> Result<(), String> {
        let chosen: Vec<&Wire> = self
            .links
            .iter()
            .filter(|wire| name.is_none_or(|name| wire.name == name))
            .collect();
        if chosen.is_empty() {
            let names: Vec<&str> = self.links.iter().map(|wire| wire.name.as_str()).collect();
            return Err(match (name, names.as_slice()) {
                (_, []) => {
                    "it has no links of ours; start it with --link-delay (0 for the link alone)"
                        .to_owned()
                }
                (Some(name), _) => {
                    format!("there is no link `{name}`; there are {}", names.join(", "))
                }
                (None, _) => "it has no links".to_owned(),
            });
        }
        let changed = |wire: &Wire| {
            let now = wire.settings();
            LinkSettings {
                delay: change.delay_ns.map_or(now.delay, Duration::from_nanos),
                jitter: change.jitter_ns.map_or(now.jitter, Duration::from_nanos),
                bandwidth: match change.bandwidth_bits {
                    None => now.bandwidth,
                    Some(0) => None,
                    Some(bits) => Some((bits / 8).max(1)),
                },
            }
        };
        // All or none.
        if let Some(wire) = chosen
            .iter()
            .find(|wire| changed(wire).jitter > changed(wire).delay)
        {
            return Err(format!(
                "the jitter of {} would be larger than its delay",
                wire.name
            ));
        }
        for wire in chosen {
            let settings = changed(wire);
            for link in &wire.links {
                link.set(settings);
                match change.cut {
                    Some(true) => link.cut(),
                    Some(false) => link.heal(),
                    None => {}
                }
            }
        }
        Ok(())
    }

    /// Whether the data lies in memory, where a flush costs nothing.
    #[must_use]
    pub fn in_memory(&self) -> bool {
        self.record.file_system == "tmpfs"
    }

    /// Ends the servers and removes everything.
    ///
    /// # Errors
    /// When the folder cannot be removed.
    pub fn close(self) -> Result<(), SandboxError> {
        self.entry.destroy()
    }

    /// The password, where the user who started the sandbox finds it.
    fn write_credentials(&self, password: &str) -> Result<(), SandboxError> {
        let path = self.entry.folder.join(CREDENTIALS);
        let text = format!(
            "[client]\nuser={}\npassword={password}\nhost=127.0.0.1\n",
            engine::ADMIN_USER
        );
        write_private(&path, &text).map_err(SandboxError::disk("write", &path))
    }
}

/// The option file with the sandbox's user and password.
pub const CREDENTIALS: &str = "credentials.cnf";

/// Whether servers of this mode are all equal.
pub(crate) fn role_of(mode: Mode, index: usize) -> Role {
    match (mode.has_members(), index) {
        (true, _) => Role::Node,
        (false, 0) => Role::Primary,
        (false, _) => Role::Replica,
    }
}

/// Has the kernel write what the copies of the data directories left in its
/// cache; otherwise the first flush of a measured transaction waits for all of it
/// (0.4 s was seen).
fn settle(folder: &Path) {
    if let Ok(folder) = fs::File::open(folder) {
        let _ = rustix::fs::syncfs(folder);
    }
}

pub(crate) fn write_private(path: &Path, text: &str) -> io::Result<()> {
    fs::OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(path)?
        .write_all(text.as_bytes())
}

/// 128 random bits in hexadecimal digits.
pub(crate) fn random_password() -> io::Result<String> {
    let mut bytes = [0u8; 16];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The name of the file system under a folder; its number when it has none here.
fn file_system(path: &Path) -> String {
    let Ok(stat) = rustix::fs::statfs(path) else {
        return "unknown".to_owned();
    };
    // Numbers from statfs(2).
    match stat.f_type as u64 {
        0xEF53 => "ext4".to_owned(),
        0x0102_1994 => "tmpfs".to_owned(),
        0x5846_5342 => "xfs".to_owned(),
        0x9123_683E => "btrfs".to_owned(),
        0x794C_7630 => "overlayfs".to_owned(),
        0x2FC1_2FC1 => "zfs".to_owned(),
        number => format!("{number:#x}"),
    }
}
