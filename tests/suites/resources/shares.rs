//! Servers with a fixed share of the machine.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
    sync::atomic::AtomicBool,
    thread,
    time::{Duration, Instant},
};

use replimeter_instruments::{clock::Clock, resources::Meter};
use replimeter_model::sandbox::SandboxSpec;
use replimeter_sandbox::{Sandbox, SandboxError};
use replimeter_suites::{
    CommandOutput, LIMIT, TestEnvironment, harness::skip, run_unprivileged, servers_of, session,
    start_spec, wait, wait_until,
};
use rustix::{
    process::{Pid, Signal, kill_process},
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};

use super::metered;

const NO_GROUPS: &str = "no control group with a quota of processor time can be created here";

/// Returns the processor time of a server that two clients keep busy, as a share of one core, of an upper bound of the time in
/// which it was used.
fn busy_share(sandbox: &Sandbox) -> f64 {
    let clock = Clock::start();
    let mut meter = Meter::open(&metered(sandbox, true), &clock).unwrap();
    let node = &sandbox.nodes()[0];
    let running =
        "SELECT id FROM information_schema.processlist WHERE info LIKE 'SELECT BENCHMARK%'";
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| session(node).value("test", "SELECT BENCHMARK(3000000000, 1 + 1)"));
        }
        let mut killer = session(node);
        wait_until("both clients keep it busy", LIMIT, || {
            killer.rows("test", running).unwrap().len() == 2
        });
        let began = Instant::now();
        let before = meter.read();
        thread::sleep(Duration::from_secs(2));
        let after = meter.read();
        let took = began.elapsed().as_secs_f64();
        let used = meter.between(&before, &after)[0].cpu_us.unwrap() / 1e6;
        for id in killer.rows("test", running).unwrap() {
            let _ = killer.run("test", &format!("KILL {}", id["id"]));
        }
        used / took
    })
}

fn with_cpus(shape: &str, cpus: &str) -> Result<Sandbox, SandboxError> {
    start_spec(SandboxSpec {
        cpus: Some(cpus.parse().unwrap()),
        ..SandboxSpec::of(shape.parse().unwrap())
    })
}

pub(super) fn server_is_limited_to_its_cpu_share() {
    let cores = thread::available_parallelism().unwrap().get();
    let error = with_cpus("mariadb/async:1", &cores.to_string()).unwrap_err();
    assert!(
        error.to_string().contains("exceed the cores")
            && error.hint().contains("--cpus-per-server"),
        "{error}"
    );
    let sandbox = match with_cpus("mariadb/none", "0.3") {
        Ok(sandbox) => sandbox,
        Err(error) if error.to_string().contains("control group") => return skip(NO_GROUPS),
        Err(error) => panic!("{error}"),
    };
    let share = busy_share(&sandbox);
    assert!(0.0 < share && share < 0.36, "a third of a core: {share}");
}

pub(super) fn server_has_cores_of_its_own_after_a_restart() {
    // Whole cores need no privilege.
    let mut sandbox = with_cpus("mariadb/none", "1").unwrap();
    let share = busy_share(&sandbox);
    assert!(0.0 < share && share < 1.05, "one core of its own: {share}");
    assert!(
        sandbox
            .record()
            .cpus_per_server
            .as_deref()
            .unwrap()
            .contains("dedicated cores")
    );
    // The same after the server was killed and restarted.
    let cores = |sandbox: &Sandbox| {
        let status = fs::read_to_string(format!("/proc/{}/status", sandbox.pids()[0])).unwrap();
        status
            .lines()
            .find(|line| line.starts_with("Cpus_allowed_list"))
            .unwrap()
            .to_owned()
    };
    let (before, pid) = (cores(&sandbox), sandbox.pids()[0]);
    sandbox.restart("primary", &AtomicBool::new(false)).unwrap();
    assert_ne!(sandbox.pids()[0], pid);
    assert_eq!(cores(&sandbox), before);
}

/// Returns the control groups of sandboxes on this machine.
fn control_groups() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            if entry
                .file_name()
                .to_string_lossy()
                .starts_with("replimeter-")
            {
                found.push(entry.path());
            }
            folders.push(entry.path());
        }
    }
    found
}

/// Returns the control groups that have one of these processes.
fn groups_with(processes: &[i32]) -> Vec<PathBuf> {
    let mut groups = control_groups();
    groups.retain(|group| {
        let members = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
        let mut members = members.lines().filter_map(|line| line.parse().ok());
        members.any(|member: i32| processes.contains(&member))
    });
    groups
}

pub(super) fn control_groups_end_with_their_servers_and_tools() {
    let tool = TestEnvironment::new();
    let words = "load --sandbox mariadb/none --cpus-per-server 0.2 --flush-delay 1ms --client-link-delay 100us --workload point-select \
                 --threads 8 --duration 30m";
    let words: Vec<&str> = words.split_whitespace().collect();
    // Kills the server that is paused by its quota, or the tool.
    for server in [true, false] {
        let mut child = tool.command(&words).spawn().unwrap();
        let is_throttled = |group: &PathBuf| {
            let stat = fs::read_to_string(group.join("cpu.stat")).unwrap_or_default();
            let mut lines = stat.lines();
            lines.any(|line| line.strip_prefix("nr_throttled ").is_some_and(|n| n != "0"))
        };
        let began = Instant::now();
        let groups = loop {
            let groups = groups_with(&servers_of(&child));
            if groups.iter().any(is_throttled) {
                break groups;
            }
            if let Some(status) = child.try_wait().unwrap() {
                assert_eq!(status.code(), Some(3));
                let error = wait(child, LIMIT).stderr;
                assert!(error.contains("control group"), "{error}");
                return skip(NO_GROUPS);
            }
            assert!(began.elapsed() < LIMIT, "no server was paused");
            thread::sleep(Duration::from_millis(20));
        };
        if server {
            for pid in servers_of(&child) {
                let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
            }
            let _ = wait(child, LIMIT).with_code(3).stderr_contains("primary");
        } else {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        wait_until("no control group is left", LIMIT, || {
            groups.iter().all(|group| !group.exists())
        });
    }
}

const ON_HOSTS: [&str; 11] = [
    "lag",
    "--sandbox",
    "mariadb/async:1",
    "--hosts",
    "--rounds",
    "20",
    "--starts",
    "1",
    "--timeout",
    "2m",
    "--json",
];

pub(super) fn hosts_share_the_machine_with_the_client() {
    let tool = TestEnvironment::new();
    let ended = wait(tool.command(&ON_HOSTS).spawn().unwrap(), LIMIT).with_code(0);
    let manifest = fs::read_to_string(tool.only_run().join("manifest.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    let sandbox = &manifest["sandboxes"][0];
    match sandbox["cpus_per_server"].as_str() {
        Some(share) => assert!(share.contains("; the client on core "), "{share}"),
        None => {
            assert_hosts_refused(&ended);
            skip(NO_GROUPS);
        }
    }
}

/// Checks that the run reports why its hosts share the machine.
fn assert_hosts_refused(ended: &CommandOutput) {
    let warnings = ended.json()["warnings"].to_string();
    assert!(
        warnings.contains("hosts-shared") && warnings.contains("control group"),
        "{warnings}"
    );
}

/// Runs something on the first core only, where several hosts need a quota; so do the processes that it starts.
fn on_one_core<R>(run: impl FnOnce() -> R) -> R {
    let allowed = sched_getaffinity(None).unwrap();
    let mut one = CpuSet::new();
    one.set(
        (0..CpuSet::MAX_CPU)
            .find(|core| allowed.is_set(*core))
            .unwrap(),
    );
    sched_setaffinity(None, &one).unwrap();
    let result = run();
    sched_setaffinity(None, &allowed).unwrap();
    result
}

pub(super) fn unprivileged_hosts_share_the_machine() {
    if !rustix::process::geteuid().is_root() {
        return skip("only root changes to another user");
    }
    let ended = on_one_core(|| run_unprivileged(&ON_HOSTS));
    assert_hosts_refused(&ended.with_code(0));
}

/// Hides the control groups from a command, in a mount namespace of its own; `None` if the system does not allow that.
fn without_control_groups(tool: &TestEnvironment, args: &[&str]) -> Option<CommandOutput> {
    const HIDE: &str = "mount -t tmpfs none /sys/fs/cgroup";
    let unshare = ["--mount", "sh", "-c"];
    let tried = Command::new("unshare").args(unshare).arg(HIDE).output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        return None;
    }
    let command = tool.command(args);
    let mut hidden = Command::new("unshare");
    hidden
        .args(unshare)
        .arg(format!("{HIDE} && exec \"$@\""))
        .arg("sh")
        .arg(command.get_program())
        .args(args)
        .current_dir(tool.folder())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // The environment of the tool: its private folder, and no password.
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => hidden.env(name, value),
            None => hidden.env_remove(name),
        };
    }
    Some(wait(hidden.spawn().unwrap(), LIMIT))
}

pub(super) fn missing_control_groups_are_reported() {
    let tool = TestEnvironment::new();
    let limited = ["lag", "--sandbox", "mariadb/none", "--cpus-per-server"];
    let limited = [&limited[..], &["0.3"]].concat();
    let Some(ended) = without_control_groups(&tool, &limited) else {
        return skip("only root hides control groups, with unshare and mount");
    };
    let _ = ended
        .with_code(3)
        .stderr_contains("control group")
        .stderr_contains("whole cores");
    assert!(tool.servers().is_empty());
    let tool = TestEnvironment::new();
    let ended = on_one_core(|| without_control_groups(&tool, &ON_HOSTS).unwrap());
    assert_hosts_refused(&ended.with_code(0));
    let manifest = fs::read_to_string(tool.only_run().join("manifest.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    let refused = manifest["sandboxes"][0]["hosts_refused"].as_str();
    assert!(
        refused.is_some_and(|reason| reason.contains("control group")),
        "{refused:?}"
    );
}
