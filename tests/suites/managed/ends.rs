//! The end of a sandbox: all its processes end with it.

use std::{
    fs,
    io::Write,
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    process::{Child, Command},
    thread,
    time::Duration,
};

use replimeter_suites::{LIMIT, servers_below, wait, wait_until};
use rustix::process::{Pid, Signal, kill_process};

use super::{TestUser, query};

pub(super) fn killing_the_supervisor_ends_everything() {
    let user = TestUser::new();
    for (name, shape) in [("one", "async:1"), ("two", "galera:2")] {
        let _ = user
            .run(&["sandbox", "up", shape, "--name", name])
            .with_code(0);
        kill_process(user.supervisor(name), Signal::KILL).unwrap();
        user.assert_nothing_runs(&format!("the keeper of {shape} was killed"));
        // The record still exists, and no command takes it for a running sandbox.
        wait_until("its end is detected", LIMIT, || {
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
    // A reused process id in the lock file has no effect: here it is that of an unrelated process.
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

pub(super) fn killing_the_supervisor_ends_a_cut_link() {
    let user = TestUser::new();
    for (name, shape) in [("one", "async:1"), ("two", "galera:2")] {
        let up = ["sandbox", "up", shape, "--name", name, "--link-delay", "0"];
        let _ = user.run(&up).with_code(0);
        let _ = user.run(&["sandbox", "link", name, "--cut"]).with_code(0);
        // A channel of async:1 connects to the link, whose port is in the namespace of the machine.
        let status = [
            "sandbox",
            "exec",
            name,
            "replica1",
            "--",
            "mysql",
            "-Ee",
            "SHOW SLAVE STATUS",
        ];
        let port = (shape == "async:1").then(|| {
            let status = user.run(&status).with_code(0).stdout;
            let line = |line: &str| Some(line.trim().strip_prefix("Master_Port: ")?.to_owned());
            let port = status.lines().find_map(line);
            port.unwrap_or_else(|| panic!("{status}"))
                .parse::<u16>()
                .unwrap()
        });
        let open = |port| TcpStream::connect(("127.0.0.1", port)).is_ok();
        assert!(port.is_none_or(open), "the link listens");
        kill_process(user.supervisor(name), Signal::KILL).unwrap();
        user.assert_nothing_runs(&format!(
            "the supervisor of {shape} with a cut link was killed"
        ));
        // The system closes a process's sockets after its memory, by which the process was found.
        wait_until("the link is closed", LIMIT, || !port.is_some_and(open));
        let _ = user.run(&["sandbox", "down", name]).with_code(0);
        assert!(user.list().is_empty());
    }
}

/// Starts a sandbox and a backlog on it, and cuts its link while the applier is stopped.
fn backlog_with_a_cut_link(user: &TestUser, build_up: &str) -> Child {
    let up = [
        "sandbox",
        "up",
        "async:1",
        "--name",
        "one",
        "--link-delay",
        "0",
    ];
    let _ = user.run(&up).with_code(0);
    let line = [
        "backlog",
        "--sandbox",
        "one",
        "--workers",
        "5",
        "--rate",
        "50",
        "--timeout",
        "60s",
        "--json",
    ];
    let child = user
        .command(&[&line[..], &["--build-up", build_up]].concat())
        .spawn()
        .unwrap();
    wait_until("the applier is stopped", LIMIT, || {
        applier(user) == ("5".to_owned(), false)
    });
    let _ = user.run(&["sandbox", "link", "one", "--cut"]).with_code(0);
    child
}

/// Returns the replica's workers, and whether it applies.
fn applier(user: &TestUser) -> (String, bool) {
    let workers = query(user, "one", "replica1", "SELECT @@slave_parallel_threads");
    let threads = "SELECT COUNT(*) FROM information_schema.processlist WHERE command = 'Slave_SQL'";
    (workers, query(user, "one", "replica1", threads) == "1")
}

pub(super) fn killed_backlog_with_a_cut_link_starts_the_applier() {
    let user = TestUser::new();
    let mut child = backlog_with_a_cut_link(&user, "60s");
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until("the applier runs again", LIMIT, || {
        applier(&user) == ("0".to_owned(), true)
    });
}

pub(super) fn backlog_outlives_a_link_cut_for_a_minute() {
    let user = TestUser::new();
    // Of the minute at least 45 s are after the build-up, during which the link is cut.
    let child = backlog_with_a_cut_link(&user, "15s");
    thread::sleep(Duration::from_secs(60));
    let _ = user.run(&["sandbox", "link", "one", "--heal"]).with_code(0);
    let document = wait(child, LIMIT).with_code(0).json();
    let row = &document["results"]["rows"][0];
    let behind = row["caught_up_after_us"].as_f64().unwrap();
    assert!(row["complete"] == true && behind > 40e6, "{row:#}");
    assert_eq!(applier(&user), ("0".to_owned(), true));
}

fn kill_replica(user: &TestUser) {
    let replica = servers_below(user.home())
        .into_iter()
        .find(|number| {
            let line = fs::read_to_string(format!("/proc/{number}/cmdline")).unwrap_or_default();
            line.contains("/replica1/")
        })
        .unwrap();
    kill_process(Pid::from_raw(replica).unwrap(), Signal::KILL).unwrap();
}

pub(super) fn ended_server_is_named_with_its_sandbox() {
    let user = TestUser::new();
    let _ = user
        .run(&["sandbox", "up", "async:1", "--name", "one"])
        .with_code(0);
    kill_replica(&user);
    wait_until("its end is detected", LIMIT, || {
        let state = user.list()[0]["nodes"][1]["state"].clone();
        state.as_str().unwrap().starts_with("exited")
    });
    for args in [
        &["lag", "--sandbox", "one"][..],
        &["load", "--sandbox", "one"],
        &["stale", "--sandbox", "one"],
        &["tap", "--sandbox", "one"],
        &["exposure", "--sandbox", "one"],
        &["front", "--sandbox", "one", "--listen", "127.0.0.1:0"],
        &["doctor", "--sandbox", "one"],
        &[
            "sandbox", "exec", "one", "replica1", "--", "sh", "-c", "exit 3",
        ],
    ] {
        let _ = user
            .run(args)
            .with_code(3)
            .stderr_contains("replica1 (signal: 9 (SIGKILL)) of the sandbox one ended")
            .stderr_contains("replimeter sandbox down one")
            .stderr_contains("replimeter sandbox up async:1 --name one");
    }
}

pub(super) fn server_that_ends_during_a_run_is_named() {
    let user = TestUser::new();
    let _ = user
        .run(&["sandbox", "up", "async:1", "--name", "one"])
        .with_code(0);
    let begin = |args: &[&str]| {
        let more = [
            "--sandbox",
            "one",
            "--duration",
            "15s",
            "--run-dir",
            args[0],
            "--json",
        ];
        user.command(&[args, &more].concat()).spawn().unwrap()
    };
    let children = [&["tap", "--floor-duration", "0"][..], &["exposure"]].map(begin);
    // Both follow the primary, as its replica does, and one of them the replica.
    wait_until("both runs follow their servers", LIMIT, || {
        let followers = |node: &str| -> u64 {
            let sql = "SELECT COUNT(*) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'";
            query(&user, "one", node, sql).parse().unwrap()
        };
        followers("primary") >= 3 && followers("replica1") >= 1
    });
    kill_replica(&user);
    for child in children {
        let document = wait(child, LIMIT).with_code(0).json();
        let warnings = document["warnings"].as_array().unwrap();
        let named = |warning: &serde_json::Value| {
            let hint = warning["hint"].as_str().unwrap();
            warning["code"] == "server-lost"
                && hint.contains("replica1 (signal: 9 (SIGKILL)) of the sandbox one ended")
                && hint.contains("replimeter sandbox up async:1 --name one")
        };
        assert!(warnings.iter().any(named), "{document:#}");
    }
}

pub(super) fn frozen_supervisor_can_be_ended() {
    let user = TestUser::new();
    let _ = user
        .run(&["sandbox", "up", "none", "--name", "frozen"])
        .with_code(0);
    kill_process(user.supervisor("frozen"), Signal::STOP).unwrap();
    let _ = user.run(&["sandbox", "down", "frozen"]).with_code(0);
    user.assert_nothing_runs("a frozen keeper");
    assert!(user.list().is_empty());
}

pub(super) fn interrupting_sandbox_up_removes_the_sandbox() {
    for signal in [Signal::INT, Signal::KILL] {
        let user = TestUser::new();
        up_interrupted(&user, signal, &format!("{signal:?}"), || {
            wait_until("a server of it runs", LIMIT, || user.servers() > 0);
        });
    }
}

pub(super) fn interrupting_sandbox_up_at_any_time_removes_it() {
    for signal in [Signal::INT, Signal::KILL] {
        let user = TestUser::new();
        for moment in [60, 250, 700, 1300] {
            let when = format!("{signal:?} after {moment} ms");
            up_interrupted(&user, signal, &when, || {
                thread::sleep(Duration::from_millis(moment));
            });
        }
    }
}

/// Interrupts the start of a sandbox, when a function has returned.
fn up_interrupted(user: &TestUser, signal: Signal, when: &str, until: impl FnOnce()) {
    let child: Child = user
        .command(&["sandbox", "up", "galera:2", "--name", "early"])
        .spawn()
        .unwrap();
    until();
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
    user.assert_nothing_runs(when);
}

/// Programs that a Galera node starts must end with it. Its notification command simulates
/// the programs of a state transfer, which are started in the same way, at moments that a
/// test cannot determine.
pub(super) fn programs_started_by_servers_are_ended() {
    let user = TestUser::new();
    let script = user.tool.folder().join("notify");
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
    // Kill the tool.
    let mut child = user
        .command(&[
            "lag",
            "--sandbox",
            "galera:2",
            "--starts",
            "1",
            "--timeout",
            "60s",
            "--duration",
            "60s",
            "--server-option",
            &option,
        ])
        .spawn()
        .unwrap();
    wait_until("the nodes have started programs", LIMIT, || {
        sleepers() > 0 && user.servers() == 2
    });
    child.kill().unwrap();
    child.wait().unwrap();
    user.assert_nothing_runs("the tool was killed");
    // Kill a supervisor.
    let _ = user
        .run(&[
            "sandbox",
            "up",
            "galera:1",
            "--name",
            "kept",
            "--server-option",
            &option,
        ])
        .with_code(0);
    wait_until("the node has started a program", LIMIT, || sleepers() > 0);
    kill_process(user.supervisor("kept"), Signal::KILL).unwrap();
    user.assert_nothing_runs("the keeper was killed");
    // End normally.
    let _ = user
        .run(&[
            "sandbox",
            "up",
            "galera:1",
            "--name",
            "again",
            "--server-option",
            &option,
        ])
        .with_code(0);
    wait_until("the node has started a program", LIMIT, || sleepers() > 0);
    let _ = user.run(&["sandbox", "down", "again"]).with_code(0);
    user.assert_nothing_runs("down");
}
