//! Conflicts and errors of statements; servers that fail under a load.

use std::{fs, thread, time::Duration};

use replimeter_engine::Node;
use replimeter_sandbox::Sandbox;
use replimeter_suites::{LIMIT, TestEnvironment, session, sql, start, wait, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{RELAXED, assert_clean, codes, number, run_file, spawn};

pub(super) fn deadlocks_are_retried(nodes: &[Node]) {
    let text = "transaction = true
        size = 3
        [[table]]
        name = 'pair'
        create = 'CREATE TABLE pair (id INT PRIMARY KEY, n INT NOT NULL) ENGINE=InnoDB'
        [table.columns]
        id = {row = true}
        n = 0
        [[statement]]
        sql = 'UPDATE pair SET n = n + 1 WHERE id = :id'
        id = {uniform = [1, 'rows']}
        repeat = 2";
    let document = run_file(nodes, text, &["--threads", "8", "--duration", "3s"])
        .with_code(0)
        .json();
    let row = &document["results"]["rows"][0];
    let deadlocks = row["retried"]
        .as_array()
        .unwrap()
        .iter()
        .find(|retried| retried["kind"] == "deadlock");
    assert!(deadlocks.unwrap_or_else(|| panic!("{row:#}"))["count"].as_u64() > Some(0));
    assert_eq!(row["errors"][0]["code"], 1213, "{row:#}");
    assert!(row["passes"].as_u64() > row["failed"].as_u64());
}

fn kill_server(sandbox: &Sandbox, index: usize) {
    let pid = Pid::from_raw(i32::try_from(sandbox.pids()[index]).unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
}

pub(super) fn server_killed_under_load_leaves_partial_result() {
    let sandbox = start("mariadb/none", &RELAXED);
    let tool = TestEnvironment::new();
    let child = spawn(
        &tool,
        sandbox.nodes(),
        &[
            "--workload",
            "insert",
            "--threads",
            "4",
            "--duration",
            "60s",
        ],
    );
    wait_until("the load runs", LIMIT, || {
        let rows = session(&sandbox.nodes()[0])
            .value("test", "SELECT COUNT(*) FROM replimeter.load_insert");
        rows.ok().flatten().is_some_and(|rows| rows.len() > 2)
    });
    thread::sleep(Duration::from_secs(2));
    kill_server(&sandbox, 0);
    let ended = wait(child, LIMIT).with_code(3).stderr_contains("primary (");
    let document = ended.json();
    assert_eq!(document["status"], "failed");
    let row = &document["results"]["rows"][0];
    assert!(
        row["passes"].as_u64() > Some(0) && number(&row["counted_us"]) > 5e5,
        "{row:#}"
    );
    assert!(tool.only_run().join("report.html").exists());
}

/// Half of the operations insert a key, which soon all exist, the others read, so that no disk limits the rate. A client continues
/// after such an error.
pub(super) fn errors_do_not_slow_a_load(nodes: &[Node]) {
    let text = "size = 100
        [[table]]
        name = 'taken'
        create = 'CREATE TABLE taken (id INT PRIMARY KEY) ENGINE=InnoDB'
        [table.columns]
        id = {row = true}
        [[operation]]
        name = 'fails'
        [operation.shared]
        id = {uniform = [96, 200]}
        [[operation.statement]]
        sql = 'INSERT INTO taken (id) VALUES (:id)'
        [[operation]]
        name = 'succeeds'
        [[operation.statement]]
        sql = 'SELECT COUNT(*) FROM taken'";
    let document = run_file(nodes, text, &["--threads", "2", "--duration", "2s"])
        .with_code(0)
        .json();
    let row = &document["results"]["rows"][0];
    let failed = number(&row["failed"]);
    let thread_time_us = 2.0 * number(&row["counted_us"]);
    assert!(
        failed > 50.0 && failed * 10_000.0 > thread_time_us,
        "a pause of 10 ms for each would not fit: {row:#}"
    );
    assert_eq!(row["errors"][0]["code"], 1062);
    assert!(codes(&document).contains(&"load-errors"), "{document:#}");
}

/// A replica that stops replicating changes the topology that the run measures.
pub(super) fn replica_stopped_under_load_is_a_failure() {
    let sandbox = start(
        "mariadb/semi-sync:1",
        &[RELAXED.as_slice(), &["rpl_semi_sync_master_timeout=500"]].concat(),
    );
    let nodes = sandbox.nodes();
    let insert = ["--workload", "insert", "--threads", "4", "--duration", "5s"];
    let begun = |tool: &TestEnvironment| {
        let child = spawn(tool, nodes, &insert);
        wait_until("the load runs", LIMIT, || {
            let rows =
                session(&nodes[0]).value("test", "SELECT COUNT(*) FROM replimeter.load_insert");
            rows.ok().flatten().is_some_and(|rows| rows.len() > 2)
        });
        child
    };
    // The primary did not wait for some time: the figures mix two modes.
    let tool = TestEnvironment::new();
    let child = begun(&tool);
    sql(&nodes[1], "STOP SLAVE IO_THREAD");
    thread::sleep(Duration::from_millis(1500));
    sql(&nodes[1], "START SLAVE IO_THREAD");
    let ended = wait(child, LIMIT)
        .with_code(1)
        .stderr_contains("fell back from semi-synchronous");
    assert_eq!(ended.json()["status"], "invalid");
    assert_clean(nodes);
    let tool = TestEnvironment::new();
    let child = begun(&tool);
    kill_server(&sandbox, 1);
    let ended = wait(child, LIMIT).with_code(3).stderr_contains("replica1");
    let document = ended.json();
    assert_eq!(document["status"], "failed");
    assert!(
        document["results"]["rows"][0]["passes"].as_u64() > Some(0),
        "what was measured is kept: {document:#}"
    );
}

/// Two members that write the same rows: what the other one had first is counted by its
/// own name, and begun again.
pub(super) fn certification_failures_are_counted() {
    let tool = TestEnvironment::new();
    let text = "size = 4
        [[table]]
        name = 'hot'
        create = 'CREATE TABLE hot (id INT PRIMARY KEY, n INT NOT NULL) ENGINE=InnoDB'
        [table.columns]
        id = {row = true}
        n = 0
        [[statement]]
        sql = 'UPDATE hot SET n = n + 1 WHERE id = :id'
        id = {uniform = [1, 'rows']}";
    fs::write(tool.folder().join("hot.toml"), text).unwrap();
    let mut args = vec![
        "lag",
        "--sandbox",
        "galera:2",
        "--duration",
        "4s",
        "--timeout",
        "60s",
        "--floor-rounds",
        "10",
        "--json",
    ];
    args.extend(["--load", "hot.toml:3@node1", "--load", "hot.toml:3@node2"]);
    let document = wait(tool.command(&args).spawn().unwrap(), LIMIT)
        .with_code(0)
        .json();
    let retried: Vec<&Value> = document["results"]["load"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|load| load["retried"].as_array().unwrap())
        .collect();
    assert!(
        retried
            .iter()
            .any(|retried| retried["kind"] == "certification"),
        "{:#}",
        document["results"]["load"]
    );
}
