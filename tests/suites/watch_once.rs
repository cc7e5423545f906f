//! `replimeter watch`, on real servers.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::TcpListener,
};

use replimeter_engine::Node;
use replimeter_suites::{
    CommandOutput, LIMIT, Shared, TestEnvironment, assert_valid, harness::Test, password, shared,
    sql, test, url, wait, wait_until,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

pub(crate) const TESTS: &[Test] = &[
    test!(once_tells_in_time_from_late_and_unknown),
    test!(rotation_leaves_complete_runs_that_compare),
    test!(hang_up_reads_servers_and_passwords_again),
];

/// The user of the sandboxes.
const ADMIN: &str = "replimeter";

/// Runs `watch` on a sandbox of a primary and a replica, and servers that are added.
fn watch(tool: &TestEnvironment, servers: &Shared, more: &[&str]) -> CommandOutput {
    let [primary, replica] = servers.nodes() else {
        panic!("the sandbox has two servers");
    };
    let (primary_url, replica_url) = (url(primary, ADMIN), url(replica, ADMIN));
    let target = [
        "watch",
        "--primary",
        &primary_url,
        "--replica",
        &replica_url,
    ];
    let mut command = tool.command(&[&target, more].concat());
    command.env("REPLIMETER_PASSWORD", password(primary));
    wait(command.spawn().unwrap(), LIMIT)
}

fn once_tells_in_time_from_late_and_unknown() {
    for shape in ["mariadb/async:1", "mysql/async:1"] {
        let servers = shared(shape, &[]);
        let [primary, replica] = servers.nodes() else {
            panic!("the sandbox has two servers");
        };
        let tool = TestEnvironment::new();
        let once = |more: &[&str]| watch(&tool, &servers, &[&["--once"], more].concat());
        sql(primary, "CREATE DATABASE once");
        let document = once(&["--max-lag", "60s", "--json"]).with_code(0).json();
        assert_valid("watch-once", &document);
        assert_eq!(document["primary"], "primary");
        assert_eq!(document["results"][0]["state"], "ok", "{document}");

        let word = if shape.starts_with("mysql") {
            "REPLICA"
        } else {
            "SLAVE"
        };
        sql(replica, &format!("STOP {word} SQL_THREAD"));
        sql(primary, "DROP DATABASE once");
        let line = "replica1  late     1 transaction behind; replication is stopped: ";
        // On a busy machine an answer can be missing.
        wait_until("the replica is late", LIMIT, || {
            let late = once(&["--max-lag", "200ms"]);
            late.code == Some(1) && late.stdout.starts_with(line)
        });
        sql(replica, &format!("START {word} SQL_THREAD"));

        // It accepts connections and sends nothing.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let silent = format!("mysql://u@{}/", silent.local_addr().unwrap());
        wait_until("one replica is in time, and one not known", LIMIT, || {
            let unknown = once(&["--max-lag", "1s", "--replica", &silent, "--json"]);
            let results = unknown.json()["results"].clone();
            unknown.code == Some(3)
                && results[0]["state"] == "ok"
                && results[1]["state"] == "unknown"
        });
        // It keeps no run.
        assert!(tool.runs().is_empty());
    }
    let _ = TestEnvironment::new()
        .run(&["watch", "--once"])
        .with_code(2)
        .stderr_contains("--once is for servers that run already");
}

fn rotation_leaves_complete_runs_that_compare() {
    let servers = shared("async:1", &[]);
    let tool = TestEnvironment::new();
    let options = ["--poll-interval", "50ms", "--rotate", "1s", "--keep", "2"];
    let _ = watch(
        &tool,
        &servers,
        &[&options[..], &["--run-dir", "x"]].concat(),
    )
    .with_code(2)
    .stderr_contains("leave --run-dir out");
    let _ = watch(
        &tool,
        &servers,
        &[&options[..], &["--duration", "5s"]].concat(),
    )
    .with_code(0);
    let mut runs = tool.runs();
    runs.sort();
    assert_eq!(runs.len(), 3, "{runs:?}");
    let runs: Vec<&str> = runs.iter().map(|run| run.to_str().unwrap()).collect();
    for run in &runs {
        let document = tool.run(&["report", run, "--json"]).with_code(0).json();
        assert_eq!(document["status"], "complete");
        let row = &document["results"]["rows"][1];
        assert!(row["samples"].as_u64().unwrap() > 0, "{row}");
        // The history of positions continues.
        assert!(!row["lag_max_high_us"].is_null(), "{row}");
    }
    let compared = tool
        .run(&["compare", runs[0], runs[1], "--json"])
        .with_code(0)
        .json();
    let figures = compared["results"].as_array().unwrap();
    let is_late = |row: &&Value| row["figure"] == "watch.late_percent";
    let late = figures.iter().find(is_late).unwrap();
    assert!(late["p_value"].is_null(), "it has no interval: {late}");
}

fn hang_up_reads_servers_and_passwords_again() {
    let servers = shared("async:1", &[]);
    let tool = TestEnvironment::new();
    let declare = |servers: &[&Node], password: &str| {
        let options = format!("[client]\nuser={ADMIN}\npassword={password}\n");
        fs::write(tool.folder().join("options.cnf"), options).unwrap();
        let node = |(index, node)| {
            let url = url(node, ADMIN);
            format!("[[node]]\nname = \"db{index}\"\nurl = \"{url}\"\n")
        };
        let nodes: String = servers.iter().copied().enumerate().map(node).collect();
        let topology = format!("defaults-file = \"options.cnf\"\n{nodes}");
        fs::write(tool.folder().join("topology.toml"), topology).unwrap();
    };
    let [primary, replica] = servers.nodes() else {
        panic!("the sandbox has two servers");
    };
    declare(&[primary], "wrong");
    let options = [
        "watch",
        "--topology",
        "topology.toml",
        "--stream",
        "samples",
    ];
    let mut child = tool
        .command(&options)
        .args(["--poll-interval", "100ms"])
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut await_sample = |server: &str, is_wanted: fn(&str) -> bool| {
        let found = lines.find(|line| {
            let sample: Value = serde_json::from_str(line.as_ref().unwrap()).unwrap();
            sample["server"] == server && sample["state"].as_str().is_some_and(is_wanted)
        });
        assert!(found.is_some(), "{server}");
    };
    await_sample("db0", |state| state == "unreachable");
    declare(&[primary, replica], password(primary));
    kill_process(Pid::from_child(&child), Signal::HUP).unwrap();
    await_sample("db1", |state| {
        ["idle", "in-step", "unknown"].contains(&state)
    });
    await_sample("db0", |state| state == "primary");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    while lines.next().is_some() {}
    let _ = wait(child, LIMIT).with_code(0);
    // A run has the same servers from its beginning to its end.
    let mut runs = tool.runs();
    runs.sort();
    let servers = runs.iter().map(|run| {
        let report = tool.run(&["report", run.to_str().unwrap(), "--json"]);
        report.json()["results"]["rows"].as_array().unwrap().len()
    });
    assert_eq!(servers.collect::<Vec<_>>(), [1, 2]);
}
