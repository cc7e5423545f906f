//! However the tool ends, its servers end, and no files remain.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use replimeter_suites::{
    CommandOutput, LIMIT, binary, folder,
    harness::{Test, skip},
    servers, servers_below, test, wait, wait_until,
};
use rustix::process::{Pid, Signal, kill_process};

pub(crate) const TESTS: &[Test] = &[
    test!(kill_at_few_random_times_leaves_nothing),
    test!(kill_at_fifty_random_times_leaves_nothing).long(),
    test!(signal_at_start_or_run_leaves_nothing),
    test!(second_signal_ends_at_once_and_cleans_up),
    test!(panic_leaves_nothing),
    test!(server_killed_at_start_ends_the_others),
    test!(unreachable_private_folder_is_named),
    test!(secrets_are_private_and_servers_are_not_root),
    test!(kill_leaves_nothing_in_every_shape).long(),
    test!(taken_port_is_replaced),
    test!(taken_cluster_port_is_replaced).long(),
    test!(taken_port_is_replaced_on_mysql).long(),
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
        command.args(["lag", "--servers"]).arg(servers()).args(args);
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
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    fn sandboxes(&self) -> PathBuf {
        self.own().join("home/sandboxes")
    }

    fn folders(&self) -> usize {
        let entries = fs::read_dir(self.sandboxes()).map(|entries| {
            entries
                .filter(|entry| entry.as_ref().unwrap().path().is_dir())
                .count()
        });
        entries.unwrap_or(0)
    }

    fn assert_no_server(&self, when: &str) {
        wait_until(
            &format!("no server survives ({when})"),
            Duration::from_secs(10),
            || servers_below(&self.own()).is_empty(),
        );
    }

    /// Checks that nothing remains after a normal end.
    fn assert_nothing(&self, when: &str) {
        self.assert_no_server(when);
        assert_eq!(self.folders(), 0, "a data folder stayed ({when})");
    }
}

/// Returns the users to test as; root only if the tests run as root.
fn people() -> Vec<(&'static str, TestUser)> {
    if rustix::process::geteuid().is_root() {
        vec![
            ("root", TestUser::new(None)),
            ("an ordinary user", TestUser::new(Some(ORDINARY))),
        ]
    } else {
        vec![("an ordinary user", TestUser::new(None))]
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
    killed_at_random_moments(3, 1);
}

fn kill_at_fifty_random_times_leaves_nothing() {
    killed_at_random_moments(50, 20);
}

/// Kills the tool a number of times; a minimum number of the kills must occur while servers run.
fn killed_at_random_moments(kills: u64, least_with_servers: u32) {
    for (who, user) in people() {
        let mut with_servers = 0;
        for (number, moment) in moments(kills, 1800).enumerate() {
            if number % 5 == 0 {
                // Then kills also occur while the template is created.
                let _ = fs::remove_dir_all(user.own().join("home/seeds"));
            }
            let mut child = user.start(&["--duration", "60s", "--floor-rounds", "5"], None);
            if number + 1 == kills as usize {
                // However busy the machine is, one kill occurs while servers run.
                wait_until("servers run", LIMIT, || {
                    !servers_below(&user.own()).is_empty()
                });
            }
            thread::sleep(moment);
            with_servers += u32::from(!servers_below(&user.own()).is_empty());
            child.kill().unwrap();
            child.wait().unwrap();
            user.assert_no_server(&format!("{who}, killed after {moment:?}"));
        }
        assert!(
            with_servers >= least_with_servers,
            "only {with_servers} of {kills} kills met running servers: the moments are badly chosen"
        );
        // The next start removes what the last one left.
        let child = user.start(
            &[
                "--rounds",
                "1",
                "--floor-rounds",
                "0",
                "--sandbox",
                "async:0",
            ],
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
    for (who, user) in people() {
        for (signal, moment) in [Signal::INT, Signal::TERM, Signal::HUP]
            .into_iter()
            .cycle()
            .zip(moments(6, 1500))
        {
            let child = user.start(&["--duration", "60s"], None);
            // Before its handlers are installed a signal ends the tool, which has started nothing yet.
            thread::sleep(Duration::from_millis(50) + moment);
            kill_process(pid(&child), signal).unwrap();
            let _ = wait(child, Duration::from_secs(20)).with_code(130);
            user.assert_nothing(&format!("{who}, {signal:?} after {moment:?}"));
        }
    }
}

fn second_signal_ends_at_once_and_cleans_up() {
    for (who, user) in people() {
        let child = user.start(&["--duration", "60s"], None);
        wait_until("servers run", LIMIT, || runs_under(&user));
        kill_process(pid(&child), Signal::INT).unwrap();
        thread::sleep(Duration::from_millis(5));
        let _ = kill_process(pid(&child), Signal::INT);
        let _ = wait(child, Duration::from_secs(20)).with_code(130);
        user.assert_nothing(&format!("{who}, two signals"));
    }
}

fn panic_leaves_nothing() {
    for (who, user) in people() {
        let ended: CommandOutput = wait(
            user.start(&["--duration", "60s"], Some("panic-while-measuring")),
            LIMIT,
        );
        assert_eq!(ended.code, Some(101), "{ended:#?}");
        user.assert_nothing(&format!("{who}, a panic"));
    }
}

fn server_killed_at_start_ends_the_others() {
    for (who, user) in people() {
        let child = user.start(
            &[
                "--sandbox",
                "async:2",
                "--server-option",
                "log_bin_index=/nonexistent/binlog",
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
    for (who, user) in people() {
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
            let mut with_servers = 0;
            for moment in [300, 1100, 2600, 6000] {
                let mut child = user.start(
                    &[
                        "--sandbox",
                        shape,
                        "--duration",
                        "60s",
                        "--floor-rounds",
                        "5",
                    ],
                    None,
                );
                thread::sleep(Duration::from_millis(moment));
                with_servers += u32::from(!servers_below(&user.own()).is_empty());
                child.kill().unwrap();
                child.wait().unwrap();
                user.assert_no_server(&format!("{who}, {shape} killed after {moment} ms"));
            }
            assert!(
                with_servers >= 2,
                "{shape}: only {with_servers} of 4 kills met running servers"
            );
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
    takes_another_port("async:1", "--port=");
}

fn taken_cluster_port_is_replaced() {
    takes_another_port("galera:2", "--wsrep-node-address=127.0.0.1:");
}

fn taken_port_is_replaced_on_mysql() {
    takes_another_port("mysql/async:1", "--port=");
}

fn takes_another_port(shape: &str, option: &str) {
    let user = TestUser::new(None);
    // Create the templates first, so that only the start itself is observed.
    let _ = wait(
        user.start(
            &["--sandbox", shape, "--rounds", "5", "--floor-rounds", "0"],
            None,
        ),
        LIMIT,
    )
    .with_code(0);
    let mut met = false;
    for _ in 0..5 {
        let child = user.start(
            &[
                "--sandbox",
                shape,
                "--rounds",
                "5",
                "--floor-rounds",
                "0",
                "--json",
            ],
            None,
        );
        let mut taken = None;
        wait_until("a port is seen", LIMIT, || {
            let found = servers_below(&user.own()).into_iter().find_map(|server| {
                let words = fs::read(format!("/proc/{server}/cmdline")).ok()?;
                let words = String::from_utf8_lossy(&words).into_owned();
                words
                    .split('\0')
                    .find_map(|word| word.strip_prefix(option))
                    .and_then(|port| port.parse::<u16>().ok())
            });
            // The server may have been quicker.
            taken = found.and_then(|port| std::net::TcpListener::bind(("127.0.0.1", port)).ok());
            found.is_some()
        });
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
