//! `replimeter sandbox`: servers kept for the user's own work, and their end.

use std::{
    fs,
    io::Write,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use replimeter_model::engine::Engine;
use replimeter_suites::{
    CommandOutput, LIMIT, NO_FAKETIME, TestEnvironment, folder,
    harness::{Test, skip},
    home, servers_below, servers_with_a_clock_to_set, test, wait, wait_until,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

pub(crate) const TESTS: &[Test] = &[
    test!(two_sandboxes_run_at_once),
    test!(links_are_cut_and_healed),
    test!(run_with_semi_sync_fall_back_is_invalid),
    test!(killing_the_supervisor_ends_everything),
    test!(sandbox_up_closes_inherited_files),
    test!(frozen_supervisor_can_be_ended),
    test!(interrupting_sandbox_up_removes_the_sandbox),
    test!(programs_started_by_servers_are_ended),
    test!(node_without_data_gets_state_transfer).long(),
    test!(private_folder_longer_than_a_socket_address_works),
    test!(sandbox_processes_inherit_no_environment),
    test!(programs_of_one_version_have_separate_templates),
];

/// Somebody with a private folder of their own; everything ends with them.
struct TestUser {
    tool: TestEnvironment,
    folder: tempfile::TempDir,
}

impl Drop for TestUser {
    fn drop(&mut self) {
        let _ = self.run(&["sandbox", "down", "--all"]);
    }
}

impl TestUser {
    fn new() -> Self {
        Self::in_folder("home")
    }

    /// With a private folder of this path.
    fn in_folder(path: &str) -> Self {
        let folder = folder();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let own = folder.path().join(path);
        fs::create_dir_all(&own).unwrap();
        for part in own.ancestors().take_while(|part| *part != folder.path()) {
            fs::set_permissions(part, fs::Permissions::from_mode(0o755)).unwrap();
        }
        std::os::unix::fs::symlink(home().join("servers"), own.join("servers")).unwrap();
        std::os::unix::fs::symlink(&own, folder.path().join("here")).unwrap();
        Self {
            tool: TestEnvironment::new(),
            folder,
        }
    }

    fn home(&self) -> PathBuf {
        self.folder.path().join("here").canonicalize().unwrap()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.tool.command(args);
        command.env("REPLIMETER_HOME", self.home());
        command
    }

    fn run(&self, args: &[&str]) -> CommandOutput {
        wait(self.command(args).spawn().unwrap(), LIMIT)
    }

    fn list(&self) -> Vec<Value> {
        self.run(&["sandbox", "list", "--json"]).with_code(0).json()["results"]
            .as_array()
            .unwrap()
            .clone()
    }

    fn sandboxes(&self) -> PathBuf {
        self.home().join("sandboxes")
    }

    fn servers(&self) -> usize {
        servers_below(&self.home()).len()
    }

    /// The keeper's process, found by what it keeps open: its lock.
    fn supervisor(&self, name: &str) -> Pid {
        let number = fs::read_to_string(self.sandboxes().join(name).join("lock")).unwrap();
        Pid::from_raw(number.trim().parse().unwrap()).unwrap()
    }

    fn assert_nothing_runs(&self, when: &str) {
        wait_until(
            &format!("nothing runs ({when})"),
            Duration::from_secs(15),
            || self.servers() == 0 && self.marked().is_empty(),
        );
    }

    /// Processes that carry the mark of a sandbox in this home.
    fn marked(&self) -> Vec<i32> {
        let mark = format!("REPLIMETER_SANDBOX_FOLDER={}", self.sandboxes().display());
        let numbers = fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
        numbers
            .filter(|number: &i32| {
                let environment = fs::read(format!("/proc/{number}/environ")).unwrap_or_default();
                String::from_utf8_lossy(&environment).contains(&mark)
            })
            .collect()
    }
}

/// A program called from `exec`; `mysql` is the sandbox's own client.
fn query(user: &TestUser, name: &str, node: &str, sql: &str) -> String {
    user.run(&[
        "sandbox", "exec", name, node, "--", "mysql", "-N", "-e", sql,
    ])
    .with_code(0)
    .stdout
    .trim()
    .to_owned()
}

fn two_sandboxes_run_at_once() {
    let user = TestUser::new();
    let first = user
        .command(&["sandbox", "up", "async:1", "--json"])
        .spawn()
        .unwrap();
    let second = user
        .command(&[
            "sandbox",
            "up",
            "mysql/async:1",
            "--name",
            "work",
            "--link-delay",
            "3ms",
        ])
        .spawn()
        .unwrap();
    let first = wait(first, LIMIT).with_code(0).json();
    let second = wait(second, LIMIT).with_code(0).stdout;
    assert_eq!(first["results"][0]["name"], "async-1");
    assert!(second.contains("replimeter sandbox down work"), "{second}");

    let list = user.list();
    assert_eq!(
        list.iter()
            .map(|found| found["name"].as_str().unwrap())
            .collect::<Vec<_>>(),
        ["async-1", "work"]
    );
    for sandbox in &list {
        assert_eq!(sandbox["state"], "running");
        let nodes = sandbox["nodes"].as_array().unwrap();
        assert_eq!(nodes.len(), 2);
        assert_eq!(
            (nodes[1]["role"].as_str(), nodes[1]["source"].as_str()),
            (Some("replica"), Some("primary"))
        );
        for node in nodes {
            assert_eq!(node["state"], "running");
            assert!(
                Path::new(node["socket"].as_str().unwrap()).exists()
                    && node["port"].as_u64().unwrap() > 1023
            );
        }
    }
    assert_eq!(list[1]["links"][0]["name"], "primary-replica1");
    assert_eq!(list[1]["links"][0]["delay_us"].as_u64(), Some(3000));
    let text = user.run(&["sandbox", "list"]).with_code(0).stdout;
    assert!(
        text.contains("MySQL") && text.contains("MariaDB") && text.contains("3,000 µs"),
        "{text}"
    );

    // A name is given once; the next default name is another.
    let _ = user
        .run(&["sandbox", "up", "async:1", "--name", "work"])
        .with_code(3)
        .stderr_contains("is running")
        .stderr_contains("--name");

    // Clients log in by themselves, to the server asked for; exit codes come through.
    for (name, node) in [("async-1", 1), ("work", 1)] {
        let port = query(&user, name, "replica1", "SELECT @@port");
        let found = list.iter().find(|found| found["name"] == name).unwrap();
        assert_eq!(port, found["nodes"][node]["port"].to_string());
        let _ = query(&user, name, "primary", "CREATE DATABASE mine");
        wait_until("it replicates", LIMIT, || {
            query(&user, name, "replica1", "SHOW DATABASES LIKE 'mine'") == "mine"
        });
    }
    let _ = user
        .run(&[
            "sandbox", "exec", "work", "primary", "--", "sh", "-c", "exit 7",
        ])
        .with_code(7);
    let variables = user.run(&[
        "sandbox",
        "exec",
        "work",
        "primary",
        "--",
        "sh",
        "-c",
        "echo $MYSQL_HOST $MYSQL_TCP_PORT $REPLIMETER_URL",
    ]);
    let port = list[1]["nodes"][0]["port"].to_string();
    assert_eq!(
        variables.stdout.trim(),
        format!("127.0.0.1 {port} mysql://replimeter@127.0.0.1:{port}/?ssl-mode=disabled")
    );
    let _ = user
        .run(&["sandbox", "exec", "work", "node1", "--", "true"])
        .with_code(3)
        .stderr_contains("name one of primary, replica1");
    let _ = user
        .run(&[
            "sandbox",
            "exec",
            "work",
            "primary",
            "--",
            "no-such-program",
        ])
        .with_code(3)
        .stderr_contains("not on PATH");

    // What `env` prints a shell takes, and `lag` takes what it names.
    let environment = user.run(&["sandbox", "env", "work"]).with_code(0).stdout;
    fs::write(user.tool.folder().join("env.sh"), &environment).unwrap();
    let output = Command::new("sh")
        .args([
            "-c",
            ". ./env.sh; echo $REPLICA1_URL; cat $REPLIMETER_TOPOLOGY",
        ])
        .current_dir(user.tool.folder())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("mysql://replimeter@127.0.0.1:") && text.contains("source = \"primary\""),
        "{text}"
    );
    let document = user
        .run(&[
            "lag",
            "--sandbox",
            "work",
            "--rounds",
            "40",
            "--floor-rounds",
            "0",
            "--json",
        ])
        .with_code(0)
        .json();
    assert_eq!(
        document["results"]["rows"][0]["shape"],
        "mysql/async:1 (work)"
    );
    assert!(
        document["results"]["rows"][0]["from_send"]["min_us"]
            .as_f64()
            .unwrap()
            >= 3000.0,
        "through the link"
    );
    assert_eq!(
        query(&user, "work", "primary", "SHOW DATABASES LIKE 'replimeter'"),
        "",
        "our schema is gone again"
    );
    assert_eq!(
        query(&user, "work", "primary", "SHOW DATABASES LIKE 'mine'"),
        "mine"
    );

    // Down while a client is connected.
    let mut client = user
        .command(&[
            "sandbox",
            "exec",
            "work",
            "primary",
            "--",
            "mysql",
            "-e",
            "SELECT SLEEP(60)",
        ])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("the client is connected", LIMIT, || {
        query(
            &user,
            "work",
            "primary",
            "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'SELECT SLEEP%'",
        ) == "1"
    });
    let _ = user.run(&["sandbox", "down", "work"]).with_code(0);
    assert!(!client.wait().unwrap().success(), "its server is gone");
    assert_eq!(user.list().len(), 1);
    assert_eq!(user.servers(), 2, "the other one runs on");
    let _ = user
        .run(&["sandbox", "down", "work"])
        .with_code(3)
        .stderr_contains("there is no such sandbox")
        .stderr_contains("async-1");
    let _ = user.run(&["sandbox", "down", "--all"]).with_code(0);
    assert!(user.list().is_empty());
    user.assert_nothing_runs("all down");
    assert_eq!(
        fs::read_dir(user.sandboxes())
            .unwrap()
            .filter(|entry| entry.as_ref().unwrap().path().is_dir())
            .count(),
        0
    );
}

fn links_are_cut_and_healed() {
    let user = TestUser::new();
    let _ = user
        .run(&[
            "sandbox",
            "up",
            "async:1",
            "--name",
            "cut",
            "--link-delay",
            "0",
        ])
        .with_code(0);
    let _ = query(&user, "cut", "primary", "CREATE DATABASE before_the_cut");
    wait_until("it replicates", LIMIT, || {
        query(&user, "cut", "replica1", "SHOW DATABASES LIKE 'before%'").contains("before")
    });
    let _ = user.run(&["sandbox", "link", "cut", "--cut"]).with_code(0);
    let _ = query(&user, "cut", "primary", "CREATE DATABASE during_the_cut");
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!(
        query(&user, "cut", "replica1", "SHOW DATABASES LIKE 'during%'"),
        "",
        "nothing passes"
    );
    let _ = user
        .run(&[
            "sandbox",
            "link",
            "cut",
            "primary-replica1",
            "--heal",
            "--delay",
            "200ms",
        ])
        .with_code(0);
    wait_until("what was held arrives", LIMIT, || {
        query(&user, "cut", "replica1", "SHOW DATABASES LIKE 'during%'").contains("during")
    });
    let shown = user
        .run(&["sandbox", "link", "cut", "--json"])
        .with_code(0)
        .json();
    let link = &shown["results"][0]["links"][0];
    assert_eq!(
        (link["state"].as_str(), link["delay_us"].as_u64()),
        (Some("open"), Some(200_000))
    );
    let _ = user
        .run(&["sandbox", "link", "cut", "nowhere", "--cut"])
        .with_code(3)
        .stderr_contains("the links are primary-replica1");
    let _ = user
        .run(&["sandbox", "link", "cut", "--jitter", "1s"])
        .with_code(3)
        .stderr_contains("larger than its delay");
}

fn run_with_semi_sync_fall_back_is_invalid() {
    let user = TestUser::new();
    // A primary that gives up waiting soon.
    let args = [
        "sandbox",
        "up",
        "semi-sync:1",
        "--name",
        "semi",
        "--link-delay",
        "0",
        "--server-option",
        "rpl_semi_sync_master_timeout=300",
    ];
    let _ = user.run(&args).with_code(0);
    let doctor = || {
        user.run(&["doctor", "--sandbox", "semi", "--json"])
            .with_code(0)
            .json()
    };
    let healthy = doctor();
    assert_eq!(healthy["target"]["mode"], "semi-sync");
    assert_eq!(healthy["results"][1]["source"], "primary");
    let child = user
        .command(&[
            "lag",
            "--sandbox",
            "semi",
            "--duration",
            "6s",
            "--floor-rounds",
            "0",
            "--json",
        ])
        .spawn()
        .unwrap();
    wait_until("rows are written", LIMIT, || {
        let ended = user.run(&[
            "sandbox",
            "exec",
            "semi",
            "replica1",
            "--",
            "mysql",
            "-N",
            "-e",
            "SELECT COUNT(*) FROM replimeter.lag_probe",
        ]);
        ended.stdout.trim().parse::<u64>().unwrap_or(0) > 60
    });
    let _ = user.run(&["sandbox", "link", "semi", "--cut"]).with_code(0);
    std::thread::sleep(Duration::from_millis(900));
    let _ = user
        .run(&["sandbox", "link", "semi", "--heal"])
        .with_code(0);
    let ended = wait(child, LIMIT)
        .with_code(1)
        .stderr_contains("fell back from semi-synchronous to asynchronous");
    assert_eq!(ended.json()["status"], "invalid");
    // Cut for good: the classic that `doctor` is there for.
    let _ = user.run(&["sandbox", "link", "semi", "--cut"]).with_code(0);
    let _ = query(&user, "semi", "primary", "CREATE DATABASE unacknowledged");
    let found = doctor();
    let codes: Vec<&str> = found["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| finding["code"].as_str().unwrap())
        .collect();
    assert!(codes.contains(&"semi-sync-fallen-back"), "{codes:?}");
    assert_eq!(found["status"], "warnings");
}

fn killing_the_supervisor_ends_everything() {
    let user = TestUser::new();
    for (name, shape) in [("one", "async:1"), ("two", "galera:2")] {
        let _ = user
            .run(&["sandbox", "up", shape, "--name", name])
            .with_code(0);
        kill_process(user.supervisor(name), Signal::KILL).unwrap();
        user.assert_nothing_runs(&format!("the keeper of {shape} was killed"));
        // The record is still there and deceives nobody.
        wait_until("its death is known", LIMIT, || {
            user.list()[0]["state"]
                .as_str()
                .unwrap()
                .starts_with("dead")
        });
        let _ = user
            .run(&["lag", "--sandbox", name])
            .with_code(3)
            .stderr_contains("its supervisor was killed");
        let _ = user
            .run(&["sandbox", "exec", name, "primary", "--", "true"])
            .with_code(3)
            .stderr_contains("its supervisor was killed");
        let _ = user.run(&["sandbox", "down", name]).with_code(0);
        assert!(user.list().is_empty());
    }
    // A reused number in the lock file harms nobody: here it is an innocent process's.
    let mut innocent = Command::new("sleep").arg("600").spawn().unwrap();
    let folder = user.sandboxes().join("stale");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("lock"), format!("{}\n", innocent.id())).unwrap();
    let _ = user.run(&["sandbox", "down", "stale"]).with_code(0);
    assert!(!folder.exists());
    assert!(innocent.try_wait().unwrap().is_none(), "it lives on");
    innocent.kill().unwrap();
    innocent.wait().unwrap();
}

fn sandbox_up_closes_inherited_files() {
    let user = TestUser::new();
    let lock = user.folder.path().join("lock");
    // As `flock` does: the file stays open in whatever is started.
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "exec 9>\"$1\"; shift; exec \"$@\"", "sh"])
        .arg(&lock);
    let up = user.command(&["sandbox", "up", "none", "--name", "open"]);
    shell
        .arg(up.get_program())
        .args(up.get_args())
        .env("REPLIMETER_HOME", user.home());
    shell.stdout(Stdio::piped()).stderr(Stdio::piped());
    let _ = wait(shell.spawn().unwrap(), LIMIT).with_code(0);
    let holders: Vec<PathBuf> = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|process| fs::read_dir(process.path().join("fd")).ok())
        .flat_map(|descriptors| descriptors.flatten().map(|descriptor| descriptor.path()))
        .filter(|descriptor| fs::read_link(descriptor).is_ok_and(|target| target == lock))
        .collect();
    assert_eq!(holders, Vec::<PathBuf>::new());
}

fn frozen_supervisor_can_be_ended() {
    let user = TestUser::new();
    let _ = user
        .run(&["sandbox", "up", "async:0", "--name", "frozen"])
        .with_code(0);
    kill_process(user.supervisor("frozen"), Signal::STOP).unwrap();
    let _ = user.run(&["sandbox", "down", "frozen"]).with_code(0);
    user.assert_nothing_runs("a frozen keeper");
    assert!(user.list().is_empty());
}

fn interrupting_sandbox_up_removes_the_sandbox() {
    for signal in [Signal::INT, Signal::KILL] {
        let user = TestUser::new();
        for moment in [60, 250, 700, 1300] {
            let child: Child = user
                .command(&["sandbox", "up", "galera:2", "--name", "early"])
                .spawn()
                .unwrap();
            std::thread::sleep(Duration::from_millis(moment));
            let already = user
                .list()
                .first()
                .is_some_and(|found| found["state"] == "running");
            kill_process(Pid::from_child(&child), signal).unwrap();
            let _ = wait(child, LIMIT);
            if already {
                let _ = user.run(&["sandbox", "down", "early"]);
            }
            wait_until(
                "it is gone or, having been ready just then, runs",
                LIMIT,
                || {
                    let list = user.list();
                    list.is_empty()
                        || list[0]["state"] == "running"
                        || list[0]["state"].as_str().unwrap().starts_with("dead")
                },
            );
            let _ = user.run(&["sandbox", "down", "--all"]).with_code(0);
            user.assert_nothing_runs(&format!("{signal:?} after {moment} ms"));
        }
    }
}

/// What a Galera node starts must go with it: its notification command stands for
/// the programs of a state transfer, which are started in the same way and whose
/// moments nobody can time.
fn programs_started_by_servers_are_ended() {
    let user = TestUser::new();
    let script = user.folder.path().join("notify");
    let mut file = fs::File::create(&script).unwrap();
    file.write_all(b"#!/bin/sh\nsetsid sleep 31337 >/dev/null 2>&1 </dev/null &\n")
        .unwrap();
    drop(file);
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let option = format!("wsrep_notify_cmd={}", script.display());
    let sleepers = || {
        user.marked()
            .into_iter()
            .filter(|number| {
                fs::read_to_string(format!("/proc/{number}/cmdline"))
                    .is_ok_and(|line| line.contains("31337"))
            })
            .count()
    };
    // The tool itself, killed.
    let mut child = user
        .command(&[
            "lag",
            "--sandbox",
            "galera:2",
            "--duration",
            "60s",
            "--server-option",
            &option,
        ])
        .spawn()
        .unwrap();
    wait_until("the nodes have started something", LIMIT, || {
        sleepers() > 1 && user.servers() == 2
    });
    child.kill().unwrap();
    child.wait().unwrap();
    user.assert_nothing_runs("the tool was killed");
    // A keeper, killed.
    let _ = user
        .run(&[
            "sandbox",
            "up",
            "galera:2",
            "--name",
            "kept",
            "--server-option",
            &option,
        ])
        .with_code(0);
    assert!(sleepers() > 1);
    kill_process(user.supervisor("kept"), Signal::KILL).unwrap();
    user.assert_nothing_runs("the keeper was killed");
    // And an orderly end.
    let _ = user
        .run(&[
            "sandbox",
            "up",
            "galera:2",
            "--name",
            "again",
            "--server-option",
            &option,
        ])
        .with_code(0);
    assert!(sleepers() > 1);
    let _ = user.run(&["sandbox", "down", "again"]).with_code(0);
    user.assert_nothing_runs("down");
}

fn node_without_data_gets_state_transfer() {
    let user = TestUser::new();
    // Three, so that two keep the quorum.
    let _ = user
        .run(&["sandbox", "up", "galera:3", "--name", "transfer"])
        .with_code(0);
    let _ = query(&user, "transfer", "node1", "CREATE DATABASE kept_by_node1");
    let list = user.list();
    assert_eq!(list[0]["nodes"][2]["state"], "running, Synced, Primary");
    let data = user.sandboxes().join("transfer/node2/data");
    let server = servers_below(&data).into_iter().next().unwrap();
    let words = |name: &str| -> Vec<String> {
        let bytes = fs::read(format!("/proc/{server}/{name}")).unwrap();
        bytes
            .split(|byte| *byte == 0)
            .filter(|word| !word.is_empty())
            .map(|word| String::from_utf8(word.to_vec()).unwrap())
            .collect()
    };
    let (command_line, environment) = (words("cmdline"), words("environ"));
    let owner = fs::metadata(&data).unwrap();
    kill_process(Pid::from_raw(server).unwrap(), Signal::KILL).unwrap();
    wait_until("its end is known", LIMIT, || {
        user.list()[0]["nodes"][1]["state"]
            .as_str()
            .unwrap()
            .starts_with("ended")
    });
    // An empty data directory: a node that knows nothing of the cluster.
    let seed = fs::read_dir(user.home().join("seeds"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let seed = seed
        .into_iter()
        .find(|seed| !seed.join("grastate.dat").exists())
        .unwrap();
    fs::remove_dir_all(&data).unwrap();
    assert!(
        Command::new("cp")
            .arg("-a")
            .arg(&seed)
            .arg(&data)
            .status()
            .unwrap()
            .success()
    );
    let (uid, gid) = (
        std::os::unix::fs::MetadataExt::uid(&owner),
        std::os::unix::fs::MetadataExt::gid(&owner),
    );
    if rustix::process::geteuid().is_root() {
        assert!(
            Command::new("chown")
                .args(["-R", &format!("{uid}:{gid}")])
                .arg(&data)
                .status()
                .unwrap()
                .success()
        );
    }
    let mut command = if rustix::process::geteuid().is_root() {
        let mut command = Command::new("setpriv");
        command.args([
            format!("--reuid={uid}"),
            format!("--regid={gid}"),
            "--clear-groups".to_owned(),
        ]);
        command.args(&command_line);
        command
    } else {
        let mut command = Command::new(&command_line[0]);
        command.args(&command_line[1..]);
        command
    };
    command
        .env_clear()
        .envs(environment.iter().filter_map(|pair| pair.split_once('=')));
    // The init file with the users is gone, as it should be; the transfer brings them.
    let init_file = command_line
        .iter()
        .find_map(|word| word.strip_prefix("--init-file="))
        .unwrap();
    fs::write(init_file, "").unwrap();
    let mut node = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("it has what the other one kept", LIMIT, || {
        let args = [
            "sandbox",
            "exec",
            "transfer",
            "node2",
            "--",
            "mysql",
            "-N",
            "-e",
            "SHOW DATABASES LIKE 'kept%'",
        ];
        user.run(&args).stdout.trim() == "kept_by_node1"
    });
    assert_eq!(list.len(), 1);
    let _ = user.run(&["sandbox", "down", "transfer"]).with_code(0);
    let _ = node.wait();
    user.assert_nothing_runs("down, with a node of somebody else's making");
}

fn private_folder_longer_than_a_socket_address_works() {
    let deep = (0..12)
        .map(|number| format!("a-rather-long-name-{number:02}"))
        .collect::<Vec<_>>()
        .join("/");
    let user = TestUser::in_folder(&deep);
    assert!(user.home().as_os_str().len() > 200);
    let _ = user
        .run(&["sandbox", "up", "async:0", "--name", "deep"])
        .with_code(0);
    assert_eq!(user.list()[0]["state"], "running");
    let _ = user.run(&["sandbox", "down", "deep"]).with_code(0);
    assert!(user.list().is_empty());
}

fn sandbox_processes_inherit_no_environment() {
    // Another run of these tests has another number.
    let canary = format!("canary-of-{}", std::process::id());
    // Command line and environment of every process.
    let processes = || -> Vec<(String, bool)> {
        let read = |process: &Path, name: &str| {
            String::from_utf8_lossy(&fs::read(process.join(name)).unwrap_or_default()).into_owned()
        };
        let entries = fs::read_dir("/proc")
            .unwrap()
            .map(|entry| entry.unwrap().path());
        entries
            .map(|process| {
                (
                    read(&process, "cmdline"),
                    read(&process, "environ").contains(&canary),
                )
            })
            .collect()
    };
    // A private folder without data directories: their bootstrap is seen too.
    let user = TestUser::new();
    let command = |args: &[&str]| {
        let mut command = user.command(args);
        command.envs(
            ["MYSQL_PWD", "REPLIMETER_PASSWORD", "REPLIMETER_TEST_CANARY"]
                .map(|name| (name, &canary)),
        );
        command
    };
    for (shape, bootstrap, helper) in [
        ("mariadb/async:1", "--bootstrap", "--server-id"),
        ("mysql/async:1", "--initialize-insecure", "--server-id"),
        ("galera:2", "--wsrep-new-cluster", "\0guard\0"),
    ] {
        let words = ["lag", "--sandbox", shape, "--rounds", "100"];
        let mut tool = command(&words).spawn().unwrap();
        let (mut with_canary, mut seen) = (Vec::new(), [0; 2]);
        while tool.try_wait().unwrap().is_none() {
            for (line, canary) in processes() {
                // Between fork and exec a child still is the tool, and one that ends has no command line.
                if canary && !line.is_empty() && !line.contains("\0lag\0") {
                    with_canary.push(line.clone());
                }
                for (word, seen) in [bootstrap, helper].into_iter().zip(&mut seen) {
                    *seen += usize::from(line.contains(word));
                }
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = wait(tool, LIMIT).with_code(0);
        assert!(with_canary.is_empty(), "{shape}: {with_canary:?}");
        assert!(seen.iter().all(|seen| *seen > 0), "{shape}: {seen:?}");
    }
    let _ = wait(
        command(&["sandbox", "up", "galera:2", "--name", "canary"])
            .spawn()
            .unwrap(),
        LIMIT,
    )
    .with_code(0);
    let running = processes();
    let kept = running
        .iter()
        .filter(|(line, _)| {
            ["\0keep\0", "\0guard\0"]
                .into_iter()
                .any(|word| line.contains(word))
        })
        .count();
    assert!(
        kept >= 2 && user.servers() == 2,
        "{kept} keepers and guards"
    );
    let with_canary: Vec<_> = running.into_iter().filter(|(_, canary)| *canary).collect();
    assert!(with_canary.is_empty(), "{with_canary:?}");
    // A program of the user's own has what the user gave it.
    let mut own = command(&[
        "sandbox",
        "exec",
        "canary",
        "node1",
        "--",
        "printenv",
        "REPLIMETER_TEST_CANARY",
    ]);
    assert_eq!(
        wait(own.spawn().unwrap(), LIMIT).with_code(0).stdout.trim(),
        canary
    );
    let _ = user.run(&["sandbox", "down", "canary"]).with_code(0);
}

fn programs_of_one_version_have_separate_templates() {
    let Some(other) = servers_with_a_clock_to_set(Engine::MariaDb) else {
        return skip(NO_FAKETIME);
    };
    // A private folder has no data directories yet.
    let user = TestUser::new();
    let other = other.display().to_string();
    let words = ["up", "mariadb/async:1", "--name", "two", "--replica-server"];
    let _ = user
        .run(&[&["sandbox"][..], &words, &[&other]].concat())
        .with_code(0);
    assert_eq!(user.servers(), 2);
}
