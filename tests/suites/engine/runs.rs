//! Plans and reports, interrupted runs, and loads during a measurement.

use std::{fs, thread, time::Duration};

use replimeter_engine::Node;
use replimeter_suites::{LIMIT, TestEnvironment, password, session, sql, url, wait, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{ADMIN, load_with, number, spawn};

pub(super) fn load_plans_and_reports_round_trip(nodes: &[Node]) {
    let tool = TestEnvironment::new();
    let document = load_with(
        &tool,
        nodes,
        &[
            "--workload",
            "insert",
            "--workload",
            "select",
            "--data-size",
            "1000",
            "--duration",
            "2s",
        ],
    )
    .with_code(0)
    .json();
    assert_eq!(document["schema"], "replimeter.load/1");
    assert_eq!(document["results"]["rows"].as_array().unwrap().len(), 2);
    let run = tool.only_run();
    let page = fs::read_to_string(run.join("report.html")).unwrap();
    assert!(
        page.contains("Operations per second over time") && run.join("samples.parquet").exists()
    );
    let report = tool.run(&["report", run.to_str().unwrap()]).with_code(0);
    assert!(
        report.words().contains("insert:8@primary reached")
            && report.words().contains("select:8@replica1"),
        "{report:#?}"
    );
    let again = tool
        .run(&["run", "--dry-run", run.join("plan.toml").to_str().unwrap()])
        .with_code(0);
    assert_eq!(
        again.planned(),
        fs::read_to_string(run.join("plan.toml")).unwrap()
    );
}

pub(super) fn interrupted_run_is_saved(nodes: &[Node]) {
    let tool = TestEnvironment::new();
    let child = spawn(&tool, nodes, &["--workload", "insert", "--duration", "60s"]);
    wait_until("the load runs", LIMIT, || {
        let rows = session(&nodes[0]).value("test", "SELECT COUNT(*) FROM replimeter.load_insert");
        rows.ok().flatten().is_some_and(|rows| rows.len() > 2)
    });
    thread::sleep(Duration::from_secs(1));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let document = wait(child, LIMIT).with_code(130).json();
    assert_eq!(document["status"], "interrupted");
    assert!(
        document["results"]["rows"][0]["passes"].as_u64() > Some(0),
        "{document:#}"
    );
}

pub(super) fn load_runs_during_a_measurement(nodes: &[Node]) {
    let tool = TestEnvironment::new();
    fs::write(
        tool.folder().join("own.toml"),
        "[[statement]]\nsql = 'SELECT :a'\na = {uniform = [1, 9]}",
    )
    .unwrap();
    let (primary, replica) = (url(&nodes[0], ADMIN), url(&nodes[1], ADMIN));
    let mut args = vec![
        "lag",
        "--primary",
        &primary,
        "--replica",
        &replica,
        "--json",
        "--rounds",
        "100",
        "--timeout",
        "60s",
    ];
    args.extend([
        "--load",
        "oltp-mix:2@primary",
        "--load",
        "point-select:2@replica1",
        "--load",
        "own.toml:1@replica1",
    ]);
    args.extend([
        "--load-data-size",
        "1000",
        "--rate",
        "20",
        "--arrivals",
        "poisson",
    ]);
    let child = tool
        .command(&args)
        .env("REPLIMETER_PASSWORD", password(&nodes[0]))
        .spawn()
        .unwrap();
    let document = wait(child, LIMIT).with_code(0).json();
    let loads = document["results"]["load"].as_array().unwrap();
    assert!(
        loads
            .iter()
            .all(|load| load["passes"].as_u64() > Some(0) && load["failed"] == 0),
        "{loads:#?}"
    );
    assert_eq!(
        loads
            .iter()
            .map(|load| load["statements"].as_u64().unwrap())
            .collect::<Vec<_>>(),
        [20, 1, 1]
    );
}

/// Runs a statement on the primary for one second without a warm-up; returns the row of the results.
fn one_second(node: &Node, statement: &str, more: &[&str]) -> Value {
    let tool = TestEnvironment::new();
    let table = "size = 1
        [[table]]
        name = 'slept'
        create = 'CREATE TABLE slept (id INT AUTO_INCREMENT PRIMARY KEY, n INT)'
        columns = {n = 0}
        [[statement]]";
    fs::write(
        tool.folder().join("slow.toml"),
        format!("{table}\n{statement}"),
    )
    .unwrap();
    let primary = url(node, ADMIN);
    let mut args = vec!["load", "--json", "--warm-up", "0s", "--duration", "1s"];
    args.extend([
        "--reads",
        "primary",
        "--workload",
        "slow.toml",
        "--primary",
        &primary,
    ]);
    args.extend(more);
    let mut command = tool.command(&args);
    let child = command.env("REPLIMETER_PASSWORD", password(node)).spawn();
    let document = wait(child.unwrap(), LIMIT).with_code(0).json();
    document["results"]["rows"][0].clone()
}

/// Each thread starts an operation of 0.7 s at 0 s and at 0.7 s. Counted by their ends, half of them would
/// be missing.
pub(super) fn operation_across_the_end_is_counted(nodes: &[Node]) {
    let statement = "sql = 'INSERT INTO slept (n) SELECT SLEEP(0.7)'";
    let row = one_second(&nodes[0], statement, &["--threads", "3", "--keep-data"]);
    let count = "SELECT COUNT(*) - 1 FROM replimeter.slept";
    let written = session(&nodes[0]).value("test", count).unwrap();
    sql(&nodes[0], "DROP SCHEMA replimeter");
    assert_eq!(
        (&row["passes"], &row["failed"]),
        (&6.into(), &0.into()),
        "{row:#}"
    );
    assert_eq!(written.as_deref(), Some("6"), "every row has its operation");
    assert_eq!(row["latency"]["count"], 6);
    assert!(number(&row["latency"]["mean_us"]) >= 7e5, "{row:#}");
}

/// The fourth operation of each thread ends long after the run.
pub(super) fn endless_operation_counts_as_failed(nodes: &[Node]) {
    let statement = "sql = 'SELECT SLEEP(IF(:pass > 3, 50, 0.05))'\npass = {pass = true}";
    let row = one_second(&nodes[0], statement, &["--threads", "2"]);
    assert_eq!(
        (&row["passes"], &row["failed"]),
        (&6.into(), &2.into()),
        "{row:#}"
    );
    let error = row["errors"][0]["message"].as_str().unwrap_or_default();
    assert!(
        error.contains("had not ended 10 s after the end"),
        "{row:#}"
    );
}
