//! Plans and reports, interrupted runs, and loads during a measurement.

use std::{fs, thread, time::Duration};

use replimeter_engine::Node;
use replimeter_suites::{LIMIT, TestEnvironment, password, session, url, wait, wait_until};
use rustix::process::{Pid, Signal, kill_process};

use super::{ADMIN, load_with, spawn};

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
