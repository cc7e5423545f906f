//! Plans and reports, interrupted runs, and loads during a measurement.

use std::{
    cell::{Cell, RefCell},
    fs,
};

use replimeter_engine::Node;
use replimeter_suites::{CommandOutput, LIMIT, TestEnvironment, password, sql, url, value, wait};

use super::{
    ADMIN, count, counting, failures_before_the_end, interrupted, load_with, number, passed, until,
};

pub(super) fn load_plans_and_reports_round_trip(nodes: &[Node]) {
    let tool = RefCell::new(TestEnvironment::new());
    let args = "--workload insert --workload select --data-size 1000 --duration";
    let args: Vec<&str> = args.split(' ').collect();
    let run = |duration: &str| {
        tool.replace(TestEnvironment::new());
        load_with(&tool.borrow(), nodes, &[&args[..], &[duration]].concat())
    };
    let document = until(run, passed);
    let tool = tool.into_inner();
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
    let child = counting(&tool, nodes, 8, &["--rate", "50", "--duration", "600s"]);
    let document = interrupted(child);
    assert!(passed(&document), "{document:#}");
    let summary = fs::read_to_string(tool.only_run().join("summary.json")).unwrap();
    assert!(summary.contains("\"interrupted\""), "{summary}");
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
            .all(|load| count(load, "passes") > 0 && failures_before_the_end(load) == 0),
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

/// Runs a statement on the primary without a warm-up.
fn without_warm_up(node: &Node, statement: &str, more: &[&str]) -> CommandOutput {
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
    let mut args = vec!["load", "--json", "--warm-up", "0s"];
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
    wait(child.unwrap(), LIMIT)
}

/// Each of three threads starts an operation of 0.7 s at 0 s and at 0.7 s; the last one of a thread always ends after the counted
/// time. Counted by their ends, these would be missing.
pub(super) fn operation_across_the_end_is_counted(nodes: &[Node]) {
    let written = Cell::new(0);
    let run = |duration: &str| {
        let statement = "sql = 'INSERT INTO slept (n) SELECT SLEEP(0.7)'";
        let more = ["--threads", "3", "--keep-data", "--duration", duration];
        let ended = without_warm_up(&nodes[0], statement, &more);
        let rows = value(&nodes[0], "SELECT COUNT(*) - 1 FROM replimeter.slept");
        written.set(rows.unwrap().parse().unwrap());
        sql(&nodes[0], "DROP SCHEMA replimeter");
        ended
    };
    let document = until(run, |document| {
        count(&document["results"]["rows"][0], "passes") >= 6
    });
    let row = &document["results"]["rows"][0];
    assert_eq!(
        count(row, "passes"),
        written.get(),
        "every row has its operation: {row:#}"
    );
    assert_eq!(failures_before_the_end(row), 0, "{row:#}");
    assert_eq!(row["latency"]["count"], row["passes"]);
    assert!(number(&row["latency"]["mean_us"]) >= 7e5, "{row:#}");
}

/// The fourth operation of each thread ends long after the run.
pub(super) fn endless_operation_counts_as_failed(nodes: &[Node]) {
    let statement = "sql = 'SELECT SLEEP(IF(:pass > 3, 600, 0.05))'\npass = {pass = true}";
    let run = |duration: &str| {
        let more = ["--threads", "2", "--duration", duration];
        without_warm_up(&nodes[0], statement, &more)
    };
    let document = until(run, |document| {
        count(&document["results"]["rows"][0], "failed") == 2
    });
    let row = &document["results"]["rows"][0];
    assert_eq!(count(row, "passes"), 6, "{row:#}");
    let error = row["errors"][0]["message"].as_str().unwrap_or_default();
    assert!(
        error.contains("had not ended 10 s after the end"),
        "{row:#}"
    );
}
