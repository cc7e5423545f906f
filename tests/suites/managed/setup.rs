//! Start of servers: data, folders, environment, open files.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use replimeter_model::engine::Engine;
use replimeter_suites::{
    LIMIT, NO_FAKETIME, harness::skip, servers_below, servers_with_a_clock_to_set, wait, wait_until,
};
use rustix::process::{Pid, Signal, kill_process};

use super::{TestUser, query};

pub(super) fn sandbox_up_closes_inherited_files() {
    let user = TestUser::new();
    let lock = user.tool.folder().join("lock");
    // Like `flock`: the file stays open in every process that is started.
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

pub(super) fn node_without_data_gets_state_transfer() {
    let user = TestUser::without_templates("own");
    // Three, so that the remaining two have a quorum.
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
    wait_until("its end is detected", LIMIT, || {
        user.list()[0]["nodes"][1]["state"]
            .as_str()
            .unwrap()
            .starts_with("exited")
    });
    // An empty data directory: a node without the cluster's state.
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
    // The init file with the users was removed, as intended; the state transfer copies the users.
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
    wait_until("it has the rows of the other node", LIMIT, || {
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

pub(super) fn private_folder_longer_than_a_socket_address_works() {
    let deep = (0..12)
        .map(|number| format!("a-rather-long-name-{number:02}"))
        .collect::<Vec<_>>()
        .join("/");
    let user = TestUser::without_templates(&deep);
    assert!(user.home().as_os_str().len() > 200);
    let _ = user
        .run(&["sandbox", "up", "none", "--name", "deep"])
        .with_code(0);
    assert_eq!(user.list()[0]["state"], "running");
    let _ = user.run(&["sandbox", "down", "deep"]).with_code(0);
    assert!(user.list().is_empty());
}

pub(super) fn sandbox_processes_inherit_no_environment() {
    // Another run of these tests has another mark.
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
    // Without templates, so that their initialization is observed, too.
    let user = TestUser::without_templates("own");
    let command = |args: &[&str]| {
        let mut command = user.command(args);
        command.envs(
            ["MYSQL_PWD", "REPLIMETER_PASSWORD", "REPLIMETER_TEST_CANARY"]
                .map(|name| (name, &canary)),
        );
        command
    };
    for (shape, wanted) in [
        ("mysql/none", &["--initialize-insecure", "--server-id"][..]),
        (
            "galera:2",
            &["--bootstrap", "--wsrep-new-cluster", "\0guard\0"],
        ),
    ] {
        let words = [
            "lag",
            "--sandbox",
            shape,
            "--rounds",
            "50",
            "--floor-rounds",
            "0",
            "--timeout",
            "60s",
        ];
        let mut tool = command(&words).spawn().unwrap();
        let mut with_canary = Vec::new();
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        while tool.try_wait().unwrap().is_none() {
            for (line, canary) in processes() {
                // Between fork and exec a child is still the tool, and an ending process has no command line.
                if canary && !line.is_empty() && !line.contains("\0lag\0") {
                    with_canary.push(line.clone());
                }
                seen.extend(wanted.iter().filter(|word| line.contains(*word)));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = wait(tool, LIMIT).with_code(0);
        assert!(with_canary.is_empty(), "{shape}: {with_canary:?}");
        assert_eq!(seen.len(), wanted.len(), "{shape}: {seen:?}");
    }
    let _ = wait(
        command(&["sandbox", "up", "galera:1", "--name", "canary"])
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
        kept >= 2 && user.servers() == 1,
        "{kept} keepers and guards"
    );
    let with_canary: Vec<_> = running.into_iter().filter(|(_, canary)| *canary).collect();
    assert!(with_canary.is_empty(), "{with_canary:?}");
    // A program of the user has the files that the user passed.
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

pub(super) fn programs_of_one_version_have_separate_templates() {
    let Some(other) = servers_with_a_clock_to_set(Engine::MariaDb) else {
        return skip(NO_FAKETIME);
    };
    let user = TestUser::without_templates("own");
    let other = other.display().to_string();
    let words = ["up", "mariadb/async:1", "--name", "two", "--replica-server"];
    let _ = user
        .run(&[&["sandbox"][..], &words, &[&other]].concat())
        .with_code(0);
    assert_eq!(user.servers(), 2);
}
