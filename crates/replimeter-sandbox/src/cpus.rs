//! Gives each server a fixed share of the machine: whole dedicated cores, by affinity, or a
//! fraction, by a control group.
//!
//! On a machine that all servers share, each added replica takes resources from the others that a
//! machine of its own would have provided.

use std::{
    fs::{self, DirEntry, File},
    io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, OnceLock},
    time::Duration,
};

use replimeter_engine::{
    control_group::{group, hierarchy},
    sync::lock,
};
use replimeter_model::{
    sandbox::{Cpus, SandboxSpec},
    shape::Shape,
};
use rustix::{
    fs::{FlockOperation, flock},
    process::Pid,
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};

use crate::error::SandboxError;

/// The length of a quota's periods, in microseconds. With the kernel's default of 100 ms a server
/// would run freely and then pause for a long time.
const PERIOD_US: u64 = 10_000;
/// The smallest quota that the kernel accepts, in microseconds.
const LEAST_QUOTA_US: u64 = 1000;
/// The prefix of control groups' names.
const PREFIX: &str = "replimeter-";
/// How long a control group may not be locked yet.
const ABANDONED: Duration = Duration::from_secs(60);

/// The share of each server of a sandbox, and the cores of the client if it is bound.
#[derive(Debug, Default)]
pub(crate) struct CpuShares {
    servers: ServerShares,
    client: Option<ClientCores>,
}

#[derive(Debug, Default)]
enum ServerShares {
    /// No limit.
    #[default]
    Free,
    /// No limit, although each server was to be a host of its own; the reason.
    Refused(String),
    /// Cores that no other server of the sandbox uses.
    Cores { each: u32, sets: Vec<Vec<usize>> },
    /// A quota, by a control group for each server.
    Quota {
        cpus: Cpus,
        groups: Vec<PathBuf>,
        version: u8,
        /// The core of each server; empty if they do not fit.
        cores: Vec<usize>,
    },
}

/// The cores to which this process is bound; when dropped, it may use all again. Threads that have cores of their own keep
/// them: those that keep cores awake.
#[derive(Debug)]
pub(crate) struct ClientCores(Vec<usize>);

impl ClientCores {
    /// Binds the process; `None` without a core.
    fn bind(cores: Vec<usize>) -> Option<Self> {
        if cores.is_empty() {
            return None;
        }
        bind_threads(&allowed_cores(), &cores);
        Some(Self(cores))
    }
}

impl Drop for ClientCores {
    fn drop(&mut self) {
        bind_threads(&self.0, &allowed_cores());
    }
}

/// Binds every thread of this process that may use the cores `from` to the cores `to`, and so those that they start.
fn bind_threads(from: &[usize], to: &[usize]) {
    let (from, to) = (set_of(from), set_of(to));
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten();
    for thread in threads.flatten() {
        let name = thread.file_name();
        let number = name.to_str().and_then(|number| number.parse().ok());
        let Some(thread) = number.and_then(Pid::from_raw) else {
            continue;
        };
        if sched_getaffinity(Some(thread)).is_ok_and(|set| set == from) {
            // It may have ended.
            let _ = sched_setaffinity(Some(thread), &to);
        }
    }
}

fn set_of(cores: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    cores.iter().for_each(|core| set.set(*core));
    set
}

/// A control group, locked; removed when dropped, once it has no processes.
#[derive(Debug)]
pub(crate) struct ControlGroup {
    path: PathBuf,
    _lock: File,
}

impl ControlGroup {
    fn create(path: PathBuf) -> io::Result<Self> {
        fs::create_dir(&path)?;
        let locked = File::open(&path).and_then(|lock| {
            flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
            Ok(lock)
        });
        match locked {
            Ok(lock) => Ok(Self { path, _lock: lock }),
            Err(error) => {
                let _ = fs::remove_dir(&path);
                Err(error)
            }
        }
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // If a process is still ending, the next start removes the group.
        let _ = fs::remove_dir(&self.path);
    }
}

impl ServerShares {
    /// Gives each server this share.
    fn make(
        cpus: Cpus,
        shape: Shape,
        token: &str,
        groups: &Mutex<Vec<ControlGroup>>,
    ) -> Result<Self, SandboxError> {
        check(cpus, shape)?;
        let (servers, allowed) = (shape.servers(), allowed_cores());
        if let Some(each) = cpus.whole() {
            let sets = allowed
                .chunks(each as usize)
                .take(servers as usize)
                .map(<[usize]>::to_vec)
                .collect();
            return Ok(Self::Cores { each, sets });
        }
        let names: Vec<String> = shape
            .nodes()
            .iter()
            .map(|node| format!("{}{node}", prefix_of(token)))
            .collect();
        let places = places(Path::new("/proc/self"));
        let mut refused = "no hierarchy with the controller `cpu` is mounted".to_owned();
        for (version, parent) in places {
            remove_abandoned(&parent, ABANDONED);
            match make_groups(version, &parent, &names, cpus) {
                Ok(made) => {
                    let paths = made.iter().map(|group| group.path.clone()).collect();
                    lock(groups).extend(made);
                    return Ok(Self::Quota {
                        cpus,
                        groups: paths,
                        version,
                        cores: cores_of(&allowed, cpus, servers as usize),
                    });
                }
                Err(error) => refused = format!("{}: {error}", parent.display()),
            }
        }
        Err(SandboxError::Impossible {
            what: format!("a share of {cpus} cores for each server needs a control group, which cannot be created ({refused})"),
            hint: "run as root where cgroups are mounted writable, or use whole cores (--cpus-per-server 1), which need no privilege"
                .to_owned(),
        })
    }
}

impl CpuShares {
    /// Divides the machine among the servers of a shape. Control groups are named after the
    /// sandbox's token and added to `groups`.
    ///
    /// # Errors
    /// When the machine is too small, or control groups cannot be created.
    pub(crate) fn make(
        spec: &SandboxSpec,
        token: &str,
        groups: &Mutex<Vec<ControlGroup>>,
    ) -> Result<Self, SandboxError> {
        let shape = spec.shape;
        match (spec.cpus, spec.hosts) {
            (Some(cpus), _) => Ok(Self {
                servers: ServerShares::make(cpus, shape, token, groups)?,
                client: None,
            }),
            (None, Some(hosts)) => Ok(Self::hosts(hosts, shape, token, groups)),
            (None, None) => Ok(Self::default()),
        }
    }

    /// Divides the machine among this number of hosts: the client is the last.
    fn hosts(hosts: u32, shape: Shape, token: &str, groups: &Mutex<Vec<ControlGroup>>) -> Self {
        let allowed = allowed_cores();
        let cpus = host_share(allowed.len(), hosts);
        let servers = ServerShares::make(cpus, shape, token, groups)
            .unwrap_or_else(|error| ServerShares::Refused(error.to_string()));
        let count = hosts.saturating_sub(1) as usize;
        let own = match &servers {
            ServerShares::Cores { each, .. } => {
                let taken = count * *each as usize;
                allowed.iter().copied().skip(taken).collect()
            }
            ServerShares::Quota { .. } => {
                let cores = cores_of(&allowed, cpus, count + 1);
                cores.into_iter().skip(count).collect()
            }
            ServerShares::Free | ServerShares::Refused(_) => Vec::new(),
        };
        let client = ClientCores::bind(own);
        Self { servers, client }
    }

    /// Makes a server start on its cores.
    pub(crate) fn prepare(&self, command: &mut Command, index: usize) {
        let cores = match &self.servers {
            ServerShares::Cores { sets, .. } => sets.get(index).map(Vec::as_slice),
            ServerShares::Quota { cores, .. } => cores.get(index).map(std::slice::from_ref),
            ServerShares::Free | ServerShares::Refused(_) => None,
        };
        let Some(cores) = cores else { return };
        let set = set_of(cores);
        #[allow(
            unsafe_code,
            reason = "a server's threads take over its affinity only if it is set before exec"
        )]
        // SAFETY: one system call; the set was created before the fork, nothing is allocated.
        unsafe {
            command.pre_exec(move || Ok(sched_setaffinity(None, &set)?));
        }
    }

    /// Puts a server that was just started into its control group.
    ///
    /// # Errors
    /// When the system refuses.
    pub(crate) fn add_process(&self, pid: u32, index: usize) -> Result<(), SandboxError> {
        let ServerShares::Quota { groups, .. } = &self.servers else {
            return Ok(());
        };
        let Some(group) = groups.get(index) else {
            return Ok(());
        };
        let file = group.join("cgroup.procs");
        fs::write(&file, pid.to_string()).map_err(SandboxError::disk("write", &file))
    }

    /// Returns a description.
    pub(crate) fn description(&self) -> Option<String> {
        let servers = match &self.servers {
            ServerShares::Free | ServerShares::Refused(_) => return None,
            ServerShares::Cores { each, .. } => format!("{each}, on dedicated cores"),
            ServerShares::Quota {
                cpus,
                version,
                cores,
                ..
            } => format!(
                "{cpus}, by a quota in each {} ms (control groups, version {version}){}",
                period_us(*cpus) / 1000,
                if cores.is_empty() {
                    ""
                } else {
                    ", each on one core"
                }
            ),
        };
        Some(match &self.client {
            None => servers,
            Some(ClientCores(cores)) => {
                let cores: Vec<String> = cores.iter().map(ToString::to_string).collect();
                format!("{servers}; the client on core {}", cores.join(", "))
            }
        })
    }

    /// Returns whether the client is bound to cores that no server uses.
    pub(crate) fn client_has_own_cores(&self) -> bool {
        self.client.is_some() && matches!(self.servers, ServerShares::Cores { .. })
    }

    /// Returns why servers that were to be hosts of their own have no share.
    pub(crate) fn refusal(&self) -> Option<String> {
        match &self.servers {
            ServerShares::Refused(reason) => Some(reason.clone()),
            _ => None,
        }
    }
}

/// Returns the share of each of this number of hosts: whole cores, or a part of one on which others have the rest.
fn host_share(cores: usize, hosts: u32) -> Cpus {
    let cores = u32::try_from(cores).unwrap_or(u32::MAX / 1000).max(1);
    let milli = match cores / hosts.max(1) {
        0 => 1000 / hosts.div_ceil(cores) / 10 * 10,
        whole => whole * 1000,
    };
    Cpus {
        milli: milli.max(1),
    }
}

/// Returns the core of each of this number of hosts with a share below one core, in turn; empty if not all fit.
fn cores_of(allowed: &[usize], cpus: Cpus, hosts: usize) -> Vec<usize> {
    let on_each = (1000 / cpus.milli.max(1)) as usize;
    if hosts > on_each * allowed.len() {
        return Vec::new();
    }
    allowed.iter().copied().cycle().take(hosts).collect()
}

/// Returns the length of the periods of a quota, in microseconds.
fn period_us(cpus: Cpus) -> u64 {
    let least = LEAST_QUOTA_US * 1000 / u64::from(cpus.milli.max(1));
    PERIOD_US.max(least)
}

/// Checks that the machine has this share for each server of a shape.
///
/// # Errors
/// When it has not.
pub(crate) fn check(cpus: Cpus, shape: Shape) -> Result<(), SandboxError> {
    let (servers, allowed) = (shape.servers(), allowed_cores().len());
    if u64::from(cpus.milli) * u64::from(servers) <= allowed as u64 * 1000 {
        return Ok(());
    }
    let shares = |servers: u32| (allowed as f64 / f64::from(servers) * 100.0).floor() / 100.0;
    Err(SandboxError::Impossible {
        what: format!(
            "{shape} has {servers} servers, and {cpus} of {allowed} cores for each exceed the cores of this machine"
        ),
        hint: format!(
            "give each at most {:.2}, and leave some for the load: --cpus-per-server {:.2}",
            shares(servers),
            shares(servers + 1)
        ),
    })
}

/// Returns the cores that this process could use at first.
fn allowed_cores() -> Vec<usize> {
    static ALLOWED: OnceLock<Vec<usize>> = OnceLock::new();
    let find = || match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU)
            .filter(|core| set.is_set(*core))
            .collect(),
        Err(_) => vec![0],
    };
    ALLOWED.get_or_init(find).clone()
}

/// Returns where control groups may be created: the hierarchy's version and the folder, the nearest
/// first.
fn places(process: &Path) -> Vec<(u8, PathBuf)> {
    let mounts = fs::read_to_string(process.join("mountinfo")).unwrap_or_default();
    let own = fs::read_to_string(process.join("cgroup")).unwrap_or_default();
    let mut places = Vec::new();
    for mount in mounts.lines() {
        let Some((version, root)) = hierarchy(mount) else {
            continue;
        };
        let inside = group(&own, version).unwrap_or_default();
        let mut folder = root.join(inside.trim_start_matches('/'));
        while folder.starts_with(&root) {
            // Children of a version 2 group have a controller only when the group delegates it.
            if version == 1 || hands_on(&folder) {
                places.push((version, folder.clone()));
            }
            if !folder.pop() {
                break;
            }
        }
    }
    places
}

fn hands_on(folder: &Path) -> bool {
    fs::read_to_string(folder.join("cgroup.subtree_control"))
        .is_ok_and(|text| text.split_whitespace().any(|name| name == "cpu"))
}

/// Creates a control group for each server, with its quota.
fn make_groups(
    version: u8,
    parent: &Path,
    names: &[String],
    cpus: Cpus,
) -> io::Result<Vec<ControlGroup>> {
    let period = period_us(cpus);
    let quota = (u64::from(cpus.milli) * period / 1000).max(LEAST_QUOTA_US);
    let mut groups = Vec::new();
    for name in names {
        let group = ControlGroup::create(parent.join(name))?;
        let write = |file: &str, text: String| fs::write(group.path.join(file), text);
        if version == 2 {
            write("cpu.max", format!("{quota} {period}"))?;
        } else {
            write("cpu.cfs_period_us", period.to_string())?;
            write("cpu.cfs_quota_us", quota.to_string())?;
        }
        groups.push(group);
    }
    Ok(groups)
}

/// Returns the beginning of the names of a sandbox's control groups.
fn prefix_of(token: &str) -> String {
    format!("{PREFIX}{}-", &token[..token.len().min(12)])
}

/// Returns the control groups below a parent whose names begin so.
fn groups_in(parent: &Path, prefix: &str) -> Vec<DirEntry> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let named = |entry: &DirEntry| entry.file_name().to_string_lossy().starts_with(prefix);
    entries.filter(named).collect()
}

/// Removes the control groups of a sandbox whose tool was killed; returns whether none is left. One that still has a process
/// stays.
pub(crate) fn remove_groups_of(token: &str) -> bool {
    let places = places(Path::new("/proc/self"));
    let groups = places
        .iter()
        .flat_map(|(_, parent)| groups_in(parent, &prefix_of(token)));
    let left = groups.filter(|entry| fs::remove_dir(entry.path()).is_err());
    left.count() == 0
}

/// Removes control groups without processes, which killed tools left: those that are older and not locked.
fn remove_abandoned(parent: &Path, least_age: Duration) {
    for entry in groups_in(parent, PREFIX) {
        let age = entry
            .metadata()
            .and_then(|meta| meta.modified())
            .ok()
            .and_then(|made| made.elapsed().ok());
        let free = || {
            let lock = File::open(entry.path());
            lock.is_ok_and(|lock| flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok())
        };
        if age.is_some_and(|age| age >= least_age) && free() {
            // The kernel refuses while the group has processes.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

#[cfg(test)]
mod tests;
