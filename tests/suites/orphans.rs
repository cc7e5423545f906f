//! However the tool ends, its servers end, and no files remain.

use std::{
    fs,
    io::ErrorKind,
    net::TcpListener,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use replimeter_suites::{
    CommandOutput, LIMIT, binary, folder,
    harness::{Test, skip},
    has_ended, private_home, servers, servers_below, test, wait, wait_until,
};
use rustix::process::{Pid, Signal, kill_process};

pub(crate) const TESTS: &[Test] = &[
    test!(kill_at_few_random_times_leaves_nothing).starts(4),
    test!(kill_at_fifty_random_times_leaves_nothing)
        .starts(4)
        .long(),
    test!(signal_at_start_or_run_leaves_nothing).starts(4),
    test!(signals_at_random_times_leave_nothing)
        .starts(4)
        .long(),
    // A run whose servers give no answer ends in order within seconds, at times before the second signal.
    test!(second_signal_ends_at_once_and_cleans_up)
        .starts(4)
        .long(),
    test!(second_signal_ends_at_once_in_every_shape)
        .starts(4)
        .long(),
    test!(panic_leaves_nothing).starts(4),
    test!(hostile_links_reach_nothing_outside).starts(4).long(),
    test!(server_killed_at_start_ends_the_others).starts(4),
    test!(unreachable_private_folder_is_named),
    test!(secrets_are_private_and_servers_are_not_root).starts(4),
    test!(kill_leaves_nothing_in_every_shape).starts(4).long(),
    test!(taken_port_is_replaced).starts(4),
    test!(taken_cluster_port_is_replaced).starts(4).long(),
    test!(taken_port_is_replaced_on_mysql).starts(4).long(),
];

/// The id of an unprivileged user that does not exist; the kernel needs only the id.
const ORDINARY: u32 = 31_245;

/// A user who runs the tool, with a separate private folder.
struct TestUser {
    folder: tempfile::TempDir,
    /// The user id to run as; `None` for the current user.
    uid: Option<u32>,
}

impl TestUser {
    fn new(uid: Option<u32>) -> Self {
        let folder = folder();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        // Other users may have no access to the build folder.
        fs::copy(binary(), folder.path().join("replimeter")).unwrap();
        let own = folder.path().join("own");
        fs::create_dir(&own).unwrap();
        fs::set_permissions(&own, fs::Permissions::from_mode(0o755)).unwrap();
        if let Some(uid) = uid {
            chown(&own, Some(uid), Some(uid)).unwrap();
        }
        Self { folder, uid }
    }

    /// Returns the current user, with the templates that tests share.
    fn with_templates() -> Self {
        let user = Self::new(None);
        let _ = private_home(&user.own());
        user
    }

    fn own(&self) -> PathBuf {
        self.folder.path().join("own")
    }

    fn start(&self, args: &[&str], fault: Option<&str>) -> Child {
        let program = self.folder.path().join("replimeter");
        let mut command = match self.uid {
            Some(uid) => {
                let mut command = Command::new("setpriv");
                command
                    .args([
                        format!("--reuid={uid}"),
                        format!("--regid={uid}"),
                        "--clear-groups".to_owned(),
                    ])
                    .arg(program);
                command
            }
            None => Command::new(program),
        };
        // A row that is late is no failure here, and a run has its servers until its end.
        command
            .args(["lag", "--timeout", "60s", "--starts", "1", "--servers"])
            .arg(servers())
            .args(args);
        command
            .current_dir(self.own())
            .env("HOME", self.own())
            .env("REPLIMETER_HOME", self.own().join("home"));
        if let Some(fault) = fault {
            command.env("REPLIMETER_FAULT", fault);
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        loop {
            match command.spawn() {
                // A child of another test can have the copy of the program open until it executes its own.
                Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => {
                    thread::sleep(Duration::from_millis(10));
                }
                spawned => return spawned.unwrap(),
            }
        }
    }

    fn sandboxes(&self) -> PathBuf {
        self.own().join("home/sandboxes")
    }

    fn runs(&self) -> PathBuf {
        self.own().join("replimeter-runs")
    }

    fn folders(&self) -> usize {
        let entries = fs::read_dir(self.sandboxes()).map(|entries| {
            entries
                .filter(|entry| entry.as_ref().unwrap().path().is_dir())
                .count()
        });
        entries.unwrap_or(0)
    }

    fn await_server(&self) {
        wait_until("a server runs", LIMIT, || {
            !servers_below(&self.own()).is_empty()
        });
    }

    fn assert_no_server(&self, when: &str) {
        wait_until(&format!("no server survives ({when})"), LIMIT, || {
            servers_below(&self.own()).is_empty()
        });
    }

    /// Checks that nothing remains after a normal end.
    fn assert_nothing(&self, when: &str) {
        self.assert_no_server(when);
        assert_eq!(self.folders(), 0, "a data folder stayed ({when})");
    }
}

/// Returns the users to test as, with no templates; root only if the tests run as root.
fn people() -> Vec<(&'static str, TestUser)> {
    people_with(|| TestUser::new(None))
}

/// Returns the users to test as; the current one has the templates that tests share.
fn people_with_templates() -> Vec<(&'static str, TestUser)> {
    people_with(TestUser::with_templates)
}

fn people_with(current: impl Fn() -> TestUser) -> Vec<(&'static str, TestUser)> {
    if rustix::process::geteuid().is_root() {
        vec![
            ("root", current()),
            ("an ordinary user", TestUser::new(Some(ORDINARY))),
        ]
    } else {
        vec![("an ordinary user", current())]
    }
}

fn runs_under(user: &TestUser) -> bool {
    servers_below(&user.own()).len() >= 2
}

fn pid(child: &Child) -> Pid {
    Pid::from_child(child)
}

/// Pseudo-random and repeatable.
fn moments(count: u64, longest_ms: u64) -> impl Iterator<Item = Duration> {
    (1..=count)
        .map(move |n| Duration::from_millis(n.wrapping_mul(0x9E37_79B9_7F4A_7C15) % longest_ms))
}

fn kill_at_few_random_times_leaves_nothing() {
    killed_at_random_moments(1, "none");
}

fn kill_at_fifty_random_times_leaves_nothing() {
    killed_at_random_moments(50, "async:1");
}

/// Kills the tool a number of times; every fifth kill, and the last, meets running servers.
fn killed_at_random_moments(kills: u64, shape: &str) {
    for (who, user) in people() {
        for (number, moment) in (0..).zip(moments(kills, 1800)) {
            if number % 5 == 0 {
                // Then kills also occur while the template is created.
                let _ = fs::remove_dir_all(user.own().join("home/seeds"));
            }
            let args = ["--sandbox", shape, "--duration", "60s"];
            let mut child = user.start(&[&args[..], &["--floor-rounds", "5"]].concat(), None);
            thread::sleep(moment);
            if number % 5 == 4 || number + 1 == kills {
                user.await_server();
            }
            child.kill().unwrap();
            child.wait().unwrap();
            user.assert_no_server(&format!("{who}, killed after {moment:?}"));
        }
        // The next start removes what the last one left.
        let child = user.start(
            &["--rounds", "1", "--floor-rounds", "0", "--sandbox", "none"],
            None,
        );
        let _ = wait(child, LIMIT).with_code(0);
        user.assert_nothing(&format!("{who}, after the next start"));
        let stray = fs::read_dir(user.own().join("home"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        let mut stray: Vec<_> = stray.map(|name| name.into_string().unwrap()).collect();
        stray.sort();
        assert_eq!(stray, ["sandboxes", "seeds"]);
    }
}

fn signal_at_start_or_run_leaves_nothing() {
    let mut signals = [Signal::INT, Signal::TERM, Signal::HUP].into_iter().cycle();
    for (who, user) in people_with_templates() {
        for run in [false, true] {
            let signal = signals.next().unwrap();
            let context = format!("{who}, {signal:?}, in a run: {run}");
            signal_ends(&user, "none", signal, &context, || {
                wait_until("the run begins", LIMIT, || !run || has_begun(&user));
            });
        }
    }
}

fn signals_at_random_times_leave_nothing() {
    for (who, user) in people() {
        for (signal, moment) in [Signal::INT, Signal::TERM, Signal::HUP]
            .into_iter()
            .cycle()
            .zip(moments(6, 1500))
        {
            let context = format!("{who}, {signal:?} after {moment:?}");
            signal_ends(&user, "async:1", signal, &context, || thread::sleep(moment));
        }
    }
}

/// Sends a signal to a run, when a function has returned.
fn signal_ends(user: &TestUser, shape: &str, signal: Signal, context: &str, until: impl FnOnce()) {
    let child = user.start(&["--sandbox", shape, "--duration", "60s"], None);
    // Before its handlers are installed a signal ends the tool, which has started nothing yet.
    wait_until("the signal is caught", LIMIT, || catches(&child, signal));
    until();
    kill_process(pid(&child), signal).unwrap();
    let _ = wait(child, LIMIT).with_code(130);
    user.assert_nothing(context);
}

/// Returns whether a run has servers and writes its results.
fn has_begun(user: &TestUser) -> bool {
    let runs = fs::read_dir(user.runs()).into_iter().flatten();
    runs.flatten()
        .any(|run| run.path().join("manifest.json").exists())
}

/// Returns whether a process has a handler for a signal.
fn catches(child: &Child, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.is_some_and(|mask| mask & (1 << (signal.as_raw() - 1)) != 0)
}

fn second_signal_ends_at_once_and_cleans_up() {
    for (who, user) in people_with_templates() {
        second_signal(who, &user, "async:1");
    }
}

fn second_signal_ends_at_once_in_every_shape() {
    for (who, user) in people_with_templates() {
        for shape in [
            "semi-sync:1",
            "chain:2",
            "galera:2",
            "mysql/async:1",
            "mysql/semi-sync:1",
            "group:2",
        ] {
            second_signal(who, &user, shape);
        }
    }
}

/// Interrupts a run twice in the middle of its rows; all its servers are frozen, so that its orderly end waits for answers
/// longer than the time after which a signal counts as the second one.
fn second_signal(who: &str, user: &TestUser, shape: &str) {
    let rows = ["--duration", "60s", "--interval", "2ms"];
    let child = user.start(&[&["--sandbox", shape], &rows[..]].concat(), None);
    wait_until("counted rows are on the disk", LIMIT, || {
        let runs = fs::read_dir(user.runs()).into_iter().flatten().flatten();
        let mut journals = runs.flat_map(|run| fs::metadata(run.path().join("run.journal")));
        journals.any(|file| file.len() > 20_000)
    });
    for server in servers_below(&user.own()) {
        kill_process(Pid::from_raw(server).unwrap(), Signal::STOP).unwrap();
    }
    // Only a signal that comes a second after the first one counts as another.
    wait_until("a repeated signal ends the tool", LIMIT, || {
        kill_process(pid(&child), Signal::INT).unwrap();
        has_ended(pid(&child))
    });
    let _ = wait(child, LIMIT)
        .with_code(130)
        .stderr_contains("stopped without cleaning up");
    user.assert_nothing(&format!("{who}, {shape}, two signals"));
    fs::remove_dir_all(user.runs()).unwrap();
}

/// Replaces files and folders below the folder given by links to the second one, and back, for ever.
const SWAP: &str = r#"
    my ($home, $victim) = @ARGV;
    while (1) {
        for my $path (glob("$home/seeds/*/* $home/sandboxes/*/*/data/* $home/sandboxes/*/*/data/*/*")) {
            rename($path, "$path.aside") or next;
            symlink(-d "$path.aside" ? $victim : "$victim/file", $path);
            select(undef, undef, undef, 0.002);
            unlink($path);
            rename("$path.aside", $path);
        }
    }
"#;

fn hostile_links_reach_nothing_outside() {
    if !rustix::process::geteuid().is_root() {
        return skip("only root changes to another user");
    }
    let user = TestUser::new(None);
    let short = ["--rounds", "1", "--floor-rounds", "0"];
    let _ = wait(user.start(&short, None), LIMIT).with_code(0);
    let templates = fs::read_dir(user.own().join("home/seeds")).unwrap();
    let template = templates.map(|entry| entry.unwrap().path()).next().unwrap();
    let uid = fs::metadata(template).unwrap().uid();
    assert_ne!(uid, 0);
    let victim = user.folder.path().join("victim");
    fs::create_dir(&victim).unwrap();
    fs::set_permissions(&victim, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(victim.join("file"), "of root").unwrap();
    fs::set_permissions(victim.join("file"), fs::Permissions::from_mode(0o600)).unwrap();
    let state = || -> Vec<_> {
        let entries = fs::read_dir(&victim).unwrap();
        let entries = entries.map(|entry| entry.unwrap().path());
        let all = entries.chain([victim.clone()]).map(|path| {
            let found = fs::symlink_metadata(&path).unwrap();
            let times = (found.mtime(), found.mtime_nsec(), found.ctime_nsec());
            (path, found.uid(), found.mode(), found.len(), times)
        });
        all.collect()
    };
    let before = state();
    let mut hostile = Command::new("setpriv")
        .args([format!("--reuid={uid}"), "--clear-groups".to_owned()])
        .args(["perl", "-e", SWAP])
        .args([user.own().join("home"), victim.clone()])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut codes = Vec::new();
    for moment in [100, 500, 2000] {
        // The servers may fail to start, or not.
        let child = user.start(&["--duration", "60s"], None);
        wait_until("the start begins", LIMIT, || user.folders() > 0);
        thread::sleep(Duration::from_millis(moment));
        kill_process(pid(&child), Signal::INT).unwrap();
        codes.push(wait(child, LIMIT).code);
    }
    assert!(hostile.try_wait().unwrap().is_none(), "it runs to the end");
    hostile.kill().unwrap();
    hostile.wait().unwrap();
    assert_eq!(state(), before, "{codes:?}");
    assert!(
        codes.iter().all(|code| matches!(code, Some(3 | 130))),
        "{codes:?}"
    );
    user.assert_no_server("a hostile user");
}

fn panic_leaves_nothing() {
    for (who, user) in people_with_templates() {
        let ended: CommandOutput = wait(
            user.start(&["--duration", "60s"], Some("panic-while-measuring")),
            LIMIT,
        );
        assert_eq!(ended.code, Some(101), "{ended:#?}");
        user.assert_nothing(&format!("{who}, a panic"));
    }
}

fn server_killed_at_start_ends_the_others() {
    for (who, user) in people_with_templates() {
        let child = user.start(
            &[
                "--sandbox",
                "async:1",
                "--server-option",
                "replica1:log_bin_index=/nonexistent/binlog",
            ],
            None,
        );
        let ended = wait(child, LIMIT)
            .with_code(3)
            .stderr_contains("ended while starting");
        assert!(
            ended.stderr.contains("/nonexistent/binlog.index"),
            "the log's last lines: {ended:#?}"
        );
        user.assert_nothing(&format!("{who}, a bad option"));
    }
}

fn unreachable_private_folder_is_named() {
    if !rustix::process::geteuid().is_root() {
        return skip("only root changes to another user");
    }
    let user = TestUser::new(None);
    fs::set_permissions(user.own(), fs::Permissions::from_mode(0o700)).unwrap();
    let _ = wait(user.start(&[], None), LIMIT)
        .with_code(2)
        .stderr_contains("is not accessible to the system user")
        .stderr_contains("REPLIMETER_HOME");
}

fn secrets_are_private_and_servers_are_not_root() {
    for (who, user) in people_with_templates() {
        let child = user.start(&["--duration", "60s"], None);
        wait_until("servers run and rows are written", LIMIT, || {
            runs_under(&user)
                && !find(&user.sandboxes(), "init.sql")
                && find(&user.sandboxes(), "credentials.cnf")
        });
        let sandbox = fs::read_dir(user.sandboxes())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .find(|path| path.is_dir())
            .unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&sandbox.join("credentials.cnf")), 0o600);
        assert_eq!(mode(&sandbox.join("primary/data")), 0o700);
        let secret = fs::read_to_string(sandbox.join("credentials.cnf")).unwrap();
        let secret = secret
            .lines()
            .find_map(|line| line.strip_prefix("password="))
            .unwrap()
            .to_owned();
        assert!(secret.len() >= 24);
        for server in servers_below(&user.own()) {
            let status = fs::read_to_string(format!("/proc/{server}/status")).unwrap();
            let uid = status
                .lines()
                .find_map(|line| line.strip_prefix("Uid:\t"))
                .unwrap();
            assert!(!uid.starts_with("0\t"), "{who}: {uid}");
            let command = fs::read_to_string(format!("/proc/{server}/cmdline")).unwrap();
            assert!(
                !command.contains(&secret),
                "the password is in the list of processes"
            );
            assert!(command.contains("--bind-address=127.0.0.1"));
        }
        kill_process(pid(&child), Signal::INT).unwrap();
        let ended = wait(child, LIMIT).with_code(130);
        assert!(!ended.stdout.contains(&secret) && !ended.stderr.contains(&secret));
    }
}

/// Returns whether a file of that name is in a sandbox or in a server's folder in it.
fn find(sandboxes: &Path, name: &str) -> bool {
    let below = |path: &Path| {
        fs::read_dir(path)
            .map(|entries| {
                entries
                    .flatten()
                    .map(|entry| entry.path())
                    .collect::<Vec<_>>()
            })
            .unwrap_or_default()
    };
    let sandboxes = below(sandboxes);
    sandboxes.iter().any(|sandbox| {
        sandbox.join(name).exists() || below(sandbox).iter().any(|node| node.join(name).exists())
    })
}

fn kill_leaves_nothing_in_every_shape() {
    for (who, user) in people() {
        // Early kills occur while the cluster forms, later ones after it formed or during the measurement.
        for shape in [
            "semi-sync:2",
            "chain:2",
            "galera:3",
            "mysql/async:1",
            "group:2",
        ] {
            for (moment, certain) in [(300, false), (1100, false), (2600, true), (6000, true)] {
                let args = ["--sandbox", shape, "--duration", "60s"];
                let mut child = user.start(&[&args[..], &["--floor-rounds", "5"]].concat(), None);
                thread::sleep(Duration::from_millis(moment));
                if certain {
                    user.await_server();
                }
                child.kill().unwrap();
                child.wait().unwrap();
                user.assert_no_server(&format!("{who}, {shape} killed after {moment} ms"));
            }
        }
        let child = user.start(
            &["--rounds", "1", "--floor-rounds", "0", "--sandbox", "none"],
            None,
        );
        let _ = wait(child, LIMIT).with_code(0);
        user.assert_nothing(&format!("{who}, after the next start"));
    }
}

/// Another process that observes the start of a server and takes its port first.
fn taken_port_is_replaced() {
    takes_another_port("none", "--port=");
}

fn taken_cluster_port_is_replaced() {
    takes_another_port("galera:2", "--wsrep-node-address=127.0.0.1:");
}

fn taken_port_is_replaced_on_mysql() {
    takes_another_port("mysql/async:1", "--port=");
}

fn takes_another_port(shape: &str, option: &str) {
    // With templates, so that only the start itself is observed.
    let user = TestUser::with_templates();
    let mut met = false;
    // Often enough for a test that gets no processor when it needs it.
    for _ in 0..25 {
        let args = ["--sandbox", shape, "--rounds", "5", "--json"];
        let child = user.start(&[&args[..], &["--floor-rounds", "0"]].concat(), None);
        let mut taken = None;
        // Without a pause: the server must be stopped before it has its port.
        let (began, mut seen) = (Instant::now(), false);
        while !seen && began.elapsed() < LIMIT {
            let found = servers_below(&user.own()).into_iter().find_map(|server| {
                let words = fs::read(format!("/proc/{server}/cmdline")).ok()?;
                let words = String::from_utf8_lossy(&words).into_owned();
                let mut words = words.split('\0');
                let port = words.find_map(|word| word.strip_prefix(option))?;
                Some((Pid::from_raw(server)?, port.parse::<u16>().ok()?))
            });
            let Some((server, port)) = found else {
                continue;
            };
            let _ = kill_process(server, Signal::STOP);
            // The server may have been quicker.
            taken = TcpListener::bind(("127.0.0.1", port)).ok();
            let _ = kill_process(server, Signal::CONT);
            seen = true;
        }
        assert!(seen, "{shape}: no port is seen");
        let document = wait(child, LIMIT).with_code(0).json();
        let Some(taken) = taken else { continue };
        met = true;
        let port = format!(":{}", taken.local_addr().unwrap().port());
        for node in document["target"]["nodes"].as_array().unwrap() {
            assert!(
                !node["address"].as_str().unwrap().ends_with(&port),
                "{shape}: {node} has the stranger's port {port}"
            );
        }
        break;
    }
    assert!(met, "{shape}: the stranger was never quick enough");
    user.assert_nothing(shape);
}
