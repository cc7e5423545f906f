//! Gives each server a fixed share of the machine: whole dedicated cores, by affinity, or a
//! fraction, by a control group.
//!
//! On a machine that all servers share, each added replica takes resources from the others that a
//! machine of its own would have provided.

use std::{
    fs::{self, File},
    io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use replimeter_engine::control_group::{group, hierarchy};
use replimeter_model::{sandbox::Cpus, shape::Shape};
use rustix::{
    fs::{FlockOperation, flock},
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};

use crate::error::SandboxError;

/// The length of a quota's periods, in microseconds. With the kernel's default of 100 ms a server
/// would run freely and then pause for a long time.
const PERIOD_US: u64 = 10_000;
/// The prefix of control groups' names.
const PREFIX: &str = "replimeter-";
/// How long a control group may not be locked yet.
const ABANDONED: Duration = Duration::from_secs(60);

/// The share of each server of a sandbox.
#[derive(Debug)]
pub(crate) enum CpuShares {
    /// No limit.
    Free,
    /// Cores that no other server of the sandbox uses.
    Cores { each: u32, sets: Vec<Vec<usize>> },
    /// A quota, by a control group for each server.
    Quota {
        cpus: Cpus,
        groups: Vec<PathBuf>,
        version: u8,
    },
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

impl CpuShares {
    /// Divides the machine among the servers of a shape. Control groups are named after the
    /// sandbox's token and added to `groups`.
    ///
    /// # Errors
    /// When the machine is too small, or control groups cannot be created.
    pub(crate) fn make(
        cpus: Option<Cpus>,
        shape: Shape,
        token: &str,
        groups: &Mutex<Vec<ControlGroup>>,
    ) -> Result<Self, SandboxError> {
        let Some(cpus) = cpus else {
            return Ok(Self::Free);
        };
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
            .map(|node| format!("{PREFIX}{}-{node}", &token[..token.len().min(12)]))
            .collect();
        let places = places(Path::new("/proc/self"));
        let mut refused = "no hierarchy with the controller `cpu` is mounted".to_owned();
        for (version, parent) in places {
            remove_abandoned(&parent, ABANDONED);
            match make_groups(version, &parent, &names, cpus) {
                Ok(made) => {
                    let paths = made.iter().map(|group| group.path.clone()).collect();
                    let mut groups = groups.lock().unwrap_or_else(PoisonError::into_inner);
                    groups.extend(made);
                    return Ok(Self::Quota {
                        cpus,
                        groups: paths,
                        version,
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

    /// Makes a server start on its cores.
    pub(crate) fn prepare(&self, command: &mut Command, index: usize) {
        let Self::Cores { sets, .. } = self else {
            return;
        };
        let Some(cores) = sets.get(index) else { return };
        let mut set = CpuSet::new();
        cores.iter().for_each(|core| set.set(*core));
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
        let Self::Quota { groups, .. } = self else {
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
        match self {
            Self::Free => None,
            Self::Cores { each, .. } => Some(format!("{each}, on dedicated cores")),
            Self::Quota { cpus, version, .. } => Some(format!(
                "{cpus}, by a quota in each {} ms (control groups, version {version})",
                PERIOD_US / 1000
            )),
        }
    }
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

/// Returns the cores that this process may use.
fn allowed_cores() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else {
        return vec![0];
    };
    (0..CpuSet::MAX_CPU)
        .filter(|core| set.is_set(*core))
        .collect()
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
    let quota = u64::from(cpus.milli) * PERIOD_US / 1000;
    let mut groups = Vec::new();
    for name in names {
        let group = ControlGroup::create(parent.join(name))?;
        let write = |file: &str, text: String| fs::write(group.path.join(file), text);
        if version == 2 {
            write("cpu.max", format!("{quota} {PERIOD_US}"))?;
        } else {
            write("cpu.cfs_period_us", PERIOD_US.to_string())?;
            write("cpu.cfs_quota_us", quota.to_string())?;
        }
        groups.push(group);
    }
    Ok(groups)
}

/// Removes control groups without processes, which killed tools left: those that are older and not locked.
fn remove_abandoned(parent: &Path, least_age: Duration) {
    let Ok(entries) = fs::read_dir(parent) else {
        return;
    };
    for entry in entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX))
    {
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
mod tests {
    use super::*;

    #[test]
    fn cgroup_hierarchies_are_found_by_mounts() {
        let v2 = "41 31 0:38 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw";
        assert_eq!(hierarchy(v2), Some((2, PathBuf::from("/sys/fs/cgroup"))));
        let v1 = "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct";
        assert_eq!(
            hierarchy(v1),
            Some((1, PathBuf::from("/sys/fs/cgroup/cpu,cpuacct")))
        );
        for other in [
            "33 31 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset",
            "23 1 8:1 / / rw - ext4 /dev/sda1 rw",
            "",
            "- ",
        ] {
            assert_eq!(hierarchy(other), None, "{other}");
        }
    }

    #[test]
    fn only_control_groups_of_dead_owners_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(format!("{PREFIX}{name}"));
        let live = ControlGroup::create(path("live")).unwrap();
        fs::create_dir(path("dead")).unwrap();
        fs::create_dir(folder.path().join("other")).unwrap();
        remove_abandoned(folder.path(), Duration::from_secs(60));
        assert!(path("dead").exists(), "it may be starting");
        remove_abandoned(folder.path(), Duration::ZERO);
        let left = [path("live"), path("dead"), folder.path().join("other")];
        assert_eq!(left.map(|path| path.exists()), [true, false, true]);
        drop(live);
        assert!(!path("live").exists());
    }

    #[test]
    fn own_cgroup_is_found() {
        let text = "8:pids:/\n4:cpu,cpuacct:/user.slice\n0::/user.slice/a:b.scope\n";
        assert_eq!(group(text, 2).as_deref(), Some("/user.slice/a:b.scope"));
        assert_eq!(group(text, 1).as_deref(), Some("/user.slice"));
        assert_eq!(group("nonsense", 1), None);
    }

    #[test]
    fn cpu_share_above_the_machine_is_refused() {
        let make = |milli, shape: &str| {
            let (shape, groups) = (shape.parse().unwrap(), Mutex::default());
            CpuShares::make(Some(Cpus { milli }), shape, "0123456789abcdef", &groups)
        };
        let made = make(allowed_cores().len() as u32 * 1000, "async:1");
        let Err(error) = made else {
            panic!("two servers cannot each have all cores")
        };
        assert!(error.to_string().contains("2 servers"), "{error}");
        let whole = make(1000, "none").ok().unwrap();
        assert!(
            matches!(&whole, CpuShares::Cores { sets, .. } if sets.len() == 1),
            "one server, one core"
        );
    }
}
