//! Conflicts and errors of statements; servers that fail under a load.

use std::{fs, process::Child};

use replimeter_engine::Node;
use replimeter_sandbox::Sandbox;
use replimeter_suites::{
    LIMIT, TestEnvironment, password, session, shared, sql, start, url, value, wait, wait_until,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{
    ADMIN, assert_clean, assert_retried, codes, count, counting, number, passed, run_file, until,
};

/// Returns whether a load retried an operation for this reason.
fn retried(row: &Value, kind: &str) -> bool {
    let retried = row["retried"].as_array().unwrap();
    retried
        .iter()
        .any(|retried| retried["kind"] == kind && count(retried, "count") > 0)
}

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
    let document = until(
        |duration| run_file(nodes, text, &["--threads", "8", "--duration", duration]),
        |document| passed(document) && retried(&document["results"]["rows"][0], "deadlock"),
    );
    let row = &document["results"]["rows"][0];
    assert_retried(row);
    let mut errors = row["errors"].as_array().unwrap().iter();
    assert!(errors.any(|error| error["code"] == 1213), "{row:#}");
}

fn kill_server(sandbox: &Sandbox, index: usize) {
    let pid = Pid::from_raw(i32::try_from(sandbox.pids()[index]).unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
}

pub(super) fn server_killed_under_load_leaves_partial_result() {
    let sandbox = start("mariadb/none", &[]);
    let tool = TestEnvironment::new();
    let long = ["--rate", "50", "--duration", "600s"];
    let child = counting(&tool, sandbox.nodes(), 4, &long);
    kill_server(&sandbox, 0);
    let ended = wait(child, LIMIT).with_code(3).stderr_contains("primary (");
    let document = ended.json();
    assert_eq!(document["status"], "failed");
    let row = &document["results"]["rows"][0];
    assert!(count(row, "passes") > 0, "{row:#}");
    let counted = number(&row["counted_us"]);
    assert!(counted > 0.0 && counted < 6e8, "{row:#}");
    assert!(tool.only_run().join("report.html").exists());
}

/// Half of the operations insert a key, which soon all exist, the others read, so that no disk limits the rate. A client continues
/// after such an error: if it paused for 10 ms after each, no run would have the number that one of these has.
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
    let document = until(
        |duration| run_file(nodes, text, &["--threads", "2", "--duration", duration]),
        |document| {
            let row = &document["results"]["rows"][0];
            let thread_time_us = 2.0 * number(&row["counted_us"]);
            count(row, "failed") as f64 * 10_000.0 > thread_time_us
        },
    );
    let row = &document["results"]["rows"][0];
    assert_eq!(row["errors"][0]["code"], 1062);
    assert!(codes(&document).contains(&"load-errors"), "{document:#}");
}

/// Returns the number of replicas that a semi-synchronous primary waits for; 0 if it has fallen back.
fn awaited(primary: &Node) -> u64 {
    let sql = "SHOW GLOBAL STATUS LIKE 'Rpl_semi_sync_master_%'";
    let status = session(primary).pairs("test", sql).unwrap();
    match status["Rpl_semi_sync_master_status"].as_str() {
        "ON" => status["Rpl_semi_sync_master_clients"].parse().unwrap(),
        _ => 0,
    }
}

/// A replica that stops replicating changes the topology that the run measures.
pub(super) fn replica_stopped_under_load_is_a_failure() {
    let sandbox = start("mariadb/semi-sync:1", &["rpl_semi_sync_master_timeout=500"]);
    let nodes = sandbox.nodes();
    let begun = |tool: &TestEnvironment| -> Child {
        wait_until("the primary waits for its replica", LIMIT, || {
            awaited(&nodes[0]) == 1
        });
        counting(tool, nodes, 4, &["--rate", "50", "--duration", "8s"])
    };
    // The primary did not wait for some time: the figures mix two modes.
    let tool = TestEnvironment::new();
    let child = begun(&tool);
    sql(&nodes[1], "STOP SLAVE IO_THREAD");
    // It waits for its timeout first.
    wait_until("the primary no longer waits", LIMIT, || {
        let status = "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'Rpl_semi_sync_master_status'";
        value(&nodes[0], status).as_deref() == Some("OFF")
    });
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
        count(&document["results"]["rows"][0], "passes") > 0,
        "what was measured is kept: {document:#}"
    );
}

/// Two members that write the same rows: what the other one had first is counted by its
/// own name, and begun again.
pub(super) fn certification_failures_are_counted() {
    let sandbox = shared("mariadb/galera:2", &[]);
    let nodes = sandbox.nodes();
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
    let [first, second] = [0, 1].map(|index| url(&nodes[index], ADMIN));
    let run = |duration: &str| {
        let args = [
            "lag",
            "--node",
            &first,
            "--node",
            &second,
            "--duration",
            duration,
            "--timeout",
            "60s",
            "--floor-rounds",
            "10",
            "--json",
            "--load",
            "hot.toml:3@node1",
            "--load",
            "hot.toml:3@node2",
        ];
        let mut command = tool.command(&args);
        let child = command.env("REPLIMETER_PASSWORD", password(&nodes[0]));
        wait(child.spawn().unwrap(), LIMIT)
    };
    let _ = until(run, |document| {
        let loads = document["results"]["load"].as_array().unwrap();
        loads.iter().any(|load| retried(load, "certification"))
    });
    assert_clean(nodes);
}
