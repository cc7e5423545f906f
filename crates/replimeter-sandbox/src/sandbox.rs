//! A running sandbox: its servers, its record, its end.

use std::{
    fs,
    path::Path,
    process::Command,
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, Instant},
};

use replimeter_engine::Node;
use replimeter_model::{manifest::SandboxRecord, replication::Mode, sandbox::SandboxName};

use crate::{
    access,
    binaries::Install,
    cpus::{self, CpuShares},
    error::SandboxError,
    flush::FlushDelay,
    home::SandboxFolder,
    link::{Link, LinkSettings},
    member::Member,
    network::{LinkChange, LinkState, ServerLinks},
    process,
    registry::{Entry, Servers},
    settings::{SandboxInstalls, Settings},
    start::{self, ServerPlacement, Starter},
    user::SystemUser,
};

/// Running servers; ended and removed when dropped.
#[derive(Debug)]
pub struct Sandbox {
    entry: Arc<Entry>,
    members: Vec<Member>,
    nodes: Vec<Node>,
    links: Vec<ServerLinks>,
    /// Lead clients to the servers.
    _client_links: Vec<Link>,
    install: Install,
    record: SandboxRecord,
    user: SystemUser,
    /// Each server's share of the machine, also for restarted ones.
    shares: Arc<CpuShares>,
    flush: Option<FlushDelay>,
    // Last: the folder's lock is released after the folder is removed.
    _place: SandboxFolder,
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // `close` reports failures; here the next start removes the remains.
        let _ = self.entry.destroy();
    }
}

impl Sandbox {
    /// Checks that the servers for this exist and support what is requested; starts nothing.
    ///
    /// # Errors
    /// Like [`start`](Self::start).
    pub fn check_available(settings: &Settings) -> Result<(), SandboxError> {
        settings
            .spec
            .cpus
            .map_or(Ok(()), |cpus| cpus::check(cpus, settings.spec.shape))?;
        SandboxInstalls::find(settings)?.check_options(settings)
    }

    /// Returns the server program of the primary, or of every member; starts nothing.
    ///
    /// # Errors
    /// Like [`start`](Self::start).
    pub fn install_for(settings: &Settings) -> Result<Install, SandboxError> {
        SandboxInstalls::find(settings).map(|installs| installs.primary)
    }

    /// Starts the servers and waits until a row written on the primary was read on every other
    /// server, and the servers report the mode as active.
    ///
    /// `stop` is checked throughout; when it becomes true everything is removed again.
    ///
    /// # Errors
    /// When there is no binary, it lacks a capability, a server does not start, or replication does
    /// not work; nothing is left behind then.
    pub fn start(settings: &Settings, stop: &AtomicBool) -> Result<Self, SandboxError> {
        Self::start_named(settings, None, stop)
    }

    /// Like [`start`](Self::start), in a folder of this name.
    pub(crate) fn start_named(
        settings: &Settings,
        name: Option<&SandboxName>,
        stop: &AtomicBool,
    ) -> Result<Self, SandboxError> {
        let began = Instant::now();
        let installs = SandboxInstalls::find(settings)?;
        installs.check_options(settings)?;
        let place = settings.home.create_folder(name)?;
        let (password, token) = (access::random_token()?, access::random_token()?);
        let mut sandbox = Self {
            entry: settings.running.register(place.path.clone(), token),
            members: Vec::new(),
            nodes: Vec::new(),
            links: Vec::new(),
            _client_links: Vec::new(),
            install: installs.primary.clone(),
            record: record(settings, &installs, &place.path),
            user: settings.home.user().clone(),
            shares: Arc::new(CpuShares::default()),
            flush: None,
            _place: place,
        };
        // From here on an early return drops the sandbox, and so ends and removes it.
        access::write(&sandbox.entry.folder, &password)?;
        let spec = &settings.spec;
        let leaves = spec.shape.mode() == Mode::Galera || spec.may_have_quota();
        if let Some(reaper) = settings.reaper.as_ref().filter(|_| leaves) {
            let program = reaper.program.display().to_string();
            let spawn = |source| SandboxError::Spawn { program, source };
            sandbox
                .entry
                .reaper
                .start(reaper, &sandbox.entry.token)
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
        sandbox.record.seed_from_cache = starter.templates_from_cache();
        sandbox.shares = starter.shares();
        sandbox.flush = starter.flush();
        sandbox.record.cpus_per_server = sandbox.shares.description();
        sandbox.record.hosts_refused = sandbox.shares.refusal();
        sandbox.record.client_has_own_cores = sandbox.shares.client_has_own_cores();
        let running = starter.start()?;
        (sandbox.links, sandbox._client_links) = (running.links, running.client_links);
        sandbox.record.start_us = began.elapsed().as_secs_f64() * 1e6;
        settle(&sandbox.entry.folder);
        for start::Started {
            member,
            command_line,
        } in running.started
        {
            sandbox.nodes.push(member.client_node.clone());
            let name = member.node.name.clone();
            sandbox.record.command_lines.insert(name, command_line);
            sandbox.members.push(member);
        }
        Ok(sandbox)
    }

    /// Returns how to reach the servers; the writer first.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns the servers, in the same order.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Returns the servers' process ids, in the same order.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        self.members.iter().map(|member| member.pid).collect()
    }

    /// Returns its versions, settings and command lines.
    #[must_use]
    pub fn record(&self) -> &SandboxRecord {
        &self.record
    }

    /// Returns the primary's server program.
    pub(crate) fn install(&self) -> &Install {
        &self.install
    }

    /// Returns its folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.entry.folder
    }

    /// Returns its processes.
    pub(crate) fn servers(&self) -> &Servers {
        &self.entry.servers
    }

    /// Spawns a server like the member of this name, with the same share of the machine, and returns its index.
    pub(crate) fn adopt(&self, member: &Member, command: Command) -> Result<usize, SandboxError> {
        let index = self
            .members
            .iter()
            .position(|one| one.node.name == member.node.name)
            .unwrap_or_default();
        let spot = ServerPlacement {
            entry: &self.entry,
            shares: &self.shares,
            flush: self.flush.as_ref(),
            index,
            user: &self.user,
            namespace: member.node.namespace.as_ref(),
            log: &member.log(),
        };
        Ok(spot.spawn(&self.install.program, command)?.0)
    }

    /// Records that the member of this name has a new process.
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

    /// Returns how the server of this index ended, if it did.
    #[must_use]
    pub fn ended(&self, index: usize) -> Option<String> {
        let member = self.members.get(index)?;
        self.entry
            .servers
            .ended(member.number)
            .map(process::describe)
    }

    /// Returns the current state of the replication links.
    #[must_use]
    pub fn links(&self) -> Vec<LinkState> {
        let state = |wire: &ServerLinks| {
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

    /// Changes a link, or all of them; settings that are not given stay.
    ///
    /// # Errors
    /// When none has this name, or the resulting settings are invalid.
    pub fn change_link(&self, name: Option<&str>, change: &LinkChange) -> Result<(), String> {
        let chosen: Vec<&ServerLinks> = self
            .links
            .iter()
            .filter(|wire| name.is_none_or(|name| wire.name == name))
            .collect();
        if chosen.is_empty() {
            let names: Vec<&str> = self.links.iter().map(|wire| wire.name.as_str()).collect();
            return Err(match (name, names.as_slice()) {
                (_, []) => {
                    "it has no links; start it with --link-delay (0 for links without a delay)"
                        .to_owned()
                }
                (Some(name), _) => {
                    format!(
                        "there is no link `{name}`; the links are {}",
                        names.join(", ")
                    )
                }
                (None, _) => "it has no links".to_owned(),
            });
        }
        let changed = |wire: &ServerLinks| {
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

    /// Ends the servers and removes everything.
    ///
    /// # Errors
    /// When the folder cannot be removed.
    pub fn close(self) -> Result<(), SandboxError> {
        self.entry.destroy()
    }
}

/// Returns the facts of a sandbox that are known before its servers start.
fn record(settings: &Settings, installs: &SandboxInstalls, folder: &Path) -> SandboxRecord {
    SandboxRecord {
        shape: settings.spec.shape.to_string(),
        binaries: installs.primary.program.display().to_string(),
        replica_binaries: settings
            .spec
            .replica_server
            .as_ref()
            .map(|_| installs.replica.program.display().to_string()),
        link: settings.spec.link.map(|link| link.to_string()),
        client_link: settings
            .spec
            .client_link
            .map(|delay| format!("{delay} one way")),
        flush_delay: settings
            .spec
            .flush_delay
            .map(|delay| format!("at least {delay} each")),
        udf: installs
            .udf
            .as_ref()
            .map(|library| library.display().to_string()),
        federated: settings.spec.federated,
        without_binary_log: !settings.spec.binary_log,
        file_system: file_system(folder),
        system_user: settings.home.user().name.clone(),
        ..SandboxRecord::default()
    }
}

/// Makes the kernel write back the copies of the data directories; otherwise the first flush of a
/// measured transaction waits for all of it (up to 0.4 s).
fn settle(folder: &Path) {
    if let Ok(folder) = fs::File::open(folder) {
        let _ = rustix::fs::syncfs(folder);
    }
}

/// Returns the name of the file system of a folder; its number when the name is unknown here.
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
