//! Shares without servers: fake hierarchies of control groups.

use super::*;

#[test]
fn cgroup_hierarchies_are_found_by_mounts() {
    let v2 = "41 31 0:38 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw";
    assert_eq!(hierarchy(v2), Some((2, PathBuf::from("/sys/fs/cgroup"))));
    let v1 =
        "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct";
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
fn hosts_fit_into_the_machine() {
    for (cores, hosts, milli) in [
        (2, 4, 500),
        (2, 3, 500),
        (2, 5, 330),
        (8, 3, 2000),
        (1, 2000, 1),
    ] {
        assert_eq!(host_share(cores, hosts), Cpus { milli });
    }
    let cores = |milli, hosts| cores_of(&[4, 6], Cpus { milli }, hosts);
    assert_eq!(cores(500, 4), [4, 6, 4, 6]);
    assert_eq!(cores(660, 2), [4, 6]);
    assert_eq!(cores(660, 3), [0; 0], "two do not fit on one core");
    // The quota is at least a millisecond.
    for (milli, period) in [(500, 10_000), (50, 20_000), (20, 50_000)] {
        assert_eq!(period_us(Cpus { milli }), period);
    }
}

/// Creates a process whose control group is this one below a hierarchy of version 2; returns the process's folder.
fn process_in(hierarchy: &Path, group: &str, elsewhere: &Path) -> PathBuf {
    let mount = format!(
        "41 31 0:38 / {} rw - cgroup2 cgroup2 rw\n",
        hierarchy.display()
    );
    fs::write(elsewhere.join("mountinfo"), mount).unwrap();
    fs::write(elsewhere.join("cgroup"), format!("0::{group}\n")).unwrap();
    fs::create_dir_all(hierarchy.join(group.trim_start_matches('/'))).unwrap();
    elsewhere.to_owned()
}

#[test]
fn second_version_needs_a_parent_that_delegates() {
    let (hierarchy, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (root, below) = (hierarchy.path(), hierarchy.path().join("user.slice"));
    let process = process_in(root, "/user.slice/session.scope", elsewhere.path());
    assert!(places(&process).is_empty(), "no group has the controller");
    let delegate = |folder: &Path, controllers: &str| {
        fs::write(folder.join("cgroup.subtree_control"), controllers).unwrap();
    };
    delegate(&below.join("session.scope"), "memory pids\n");
    delegate(&below, "cpu memory\n");
    delegate(root, "cpuset cpu io memory pids\n");
    // The nearest first; that of the session delegates other controllers only.
    assert_eq!(places(&process), [(2, below.clone()), (2, root.to_owned())]);
    let names = [format!("{PREFIX}a-node1"), format!("{PREFIX}a-node2")];
    let made = make_groups(2, &below, &names, Cpus { milli: 450 }).unwrap();
    for (group, name) in made.iter().zip(&names) {
        assert_eq!(group.path, below.join(name));
        let limit = fs::read_to_string(group.path.join("cpu.max")).unwrap();
        assert_eq!(limit, "4500 10000", "microseconds in each period");
    }
    // A group that exists is not taken over.
    let again = make_groups(2, &below, &names, Cpus { milli: 450 });
    assert_eq!(again.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
}

#[test]
fn first_version_has_its_quota_in_two_files() {
    let parent = tempfile::tempdir().unwrap();
    let names = [format!("{PREFIX}a-primary")];
    let made = make_groups(1, parent.path(), &names, Cpus { milli: 50 }).unwrap();
    let read = |file: &str| fs::read_to_string(made[0].path.join(file)).unwrap();
    let files = ["cpu.cfs_quota_us", "cpu.cfs_period_us"];
    assert_eq!(files.map(read), ["1000", "20000"]);
    // A file system that is not one of control groups, or a read-only one.
    let missing = make_groups(1, &parent.path().join("none"), &names, Cpus { milli: 50 });
    assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[test]
fn cpu_share_above_the_machine_is_refused() {
    let make = |milli, shape: &str| {
        let (shape, groups) = (shape.parse().unwrap(), Mutex::default());
        ServerShares::make(Cpus { milli }, shape, "0123456789abcdef", &groups)
    };
    let made = make(allowed_cores().len() as u32 * 1000, "async:1");
    let Err(error) = made else {
        panic!("two servers cannot each have all cores")
    };
    assert!(error.to_string().contains("2 servers"), "{error}");
    let whole = make(1000, "none").ok().unwrap();
    assert!(
        matches!(&whole, ServerShares::Cores { sets, .. } if sets.len() == 1),
        "one server, one core"
    );
}
