//! The command `load` on real servers: workloads, data sets, schedules, and what goes
//! wrong.

use std::{fs, process::Child, thread, time::Duration};

use replimeter_engine::Node;
use replimeter_sandbox::Sandbox;
use replimeter_suites::{
    CommandOutput, LIMIT, TestEnvironment, clean, harness::Test, password, session, shared, sql,
    start, test, url, value, wait, wait_until,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

pub(crate) const TESTS: &[Test] = &[
    test!(every_built_in_workload_runs on mariadb),
    test!(oltp_mix_matches_sysbench on mariadb),
    test!(existing_data_is_reused on mariadb),
    test!(foreign_tables_are_kept on mariadb),
    test!(open_loop_schedules_are_kept on mariadb).alone(),
    test!(invalid_load_files_are_refused on mariadb),
    test!(deadlocks_are_retried on mariadb),
    test!(too_many_connections_are_refused on mariadb),
    test!(load_plans_and_reports_round_trip on mariadb),
    test!(interrupted_run_is_saved on mariadb),
    test!(load_runs_during_a_measurement on mariadb),
    test!(errors_do_not_slow_a_load on mariadb),
    test!(refused_script_ends_before_measuring on mariadb),
    test!(interrupted_fill_leaves_nothing on mariadb),
    test!(invalid_shares_and_sizes_are_refused on mariadb),
    test!(reads_are_spread_on_mysql),
    test!(every_built_in_workload_runs_on_mysql).long(),
    test!(server_killed_under_load_leaves_partial_result),
    test!(replica_stopped_under_load_is_a_failure),
    test!(full_disk_ends_the_fill),
    test!(certification_failures_are_counted),
];

const ADMIN: &str = "replimeter";
/// Servers that flush seldom, so that no disk decides how long a suite takes.
const RELAXED: [&str; 2] = ["sync_binlog=0", "innodb_flush_log_at_trx_commit=0"];
const BUILT_IN: [&str; 8] = [
    "insert",
    "select",
    "post-insert",
    "point-select",
    "oltp-mix",
    "update-key",
    "big-update",
    "mix",
];

fn spawn(tool: &TestEnvironment, nodes: &[Node], more: &[&str]) -> Child {
    let urls: Vec<String> = nodes.iter().map(|node| url(node, ADMIN)).collect();
    let mut args = vec![
        "load",
        "--primary",
        &urls[0],
        "--json",
        "--warm-up",
        "200ms",
    ];
    for replica in &urls[1..] {
        args.extend(["--replica", replica]);
    }
    args.extend(more);
    tool.command(&args)
        .env("REPLIMETER_PASSWORD", password(&nodes[0]))
        .spawn()
        .unwrap()
}

fn load_with(tool: &TestEnvironment, nodes: &[Node], more: &[&str]) -> CommandOutput {
    wait(spawn(tool, nodes, more), LIMIT)
}

fn load(nodes: &[Node], more: &[&str]) -> CommandOutput {
    load_with(&TestEnvironment::new(), nodes, more)
}

/// A run of statements of the caller's own.
fn run_file(nodes: &[Node], text: &str, more: &[&str]) -> CommandOutput {
    let tool = TestEnvironment::new();
    fs::write(tool.folder().join("own.toml"), text).unwrap();
    load_with(&tool, nodes, &[&["--workload", "own.toml"], more].concat())
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id() as i32).unwrap()
}

fn assert_clean(nodes: &[Node]) {
    wait_until("nothing of ours is left", LIMIT, || nodes.iter().all(clean));
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}

fn codes(document: &Value) -> Vec<&str> {
    document["warnings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|warning| warning["code"].as_str().unwrap())
        .collect()
}

/// Tries something on the shared servers, on which nothing of ours is left.
fn mariadb(case: fn(&[Node])) {
    let servers = shared("mariadb/async:1", &RELAXED);
    case(servers.nodes());
    assert_clean(servers.nodes());
}

fn every_built_in_workload_runs(nodes: &[Node]) {
    for workload in BUILT_IN {
        let mut args = vec![
            "--workload",
            workload,
            "--threads",
            "1,3",
            "--duration",
            "1s",
        ];
        if !matches!(workload, "insert" | "mix") {
            args.extend(["--data-size", "2000"]);
        }
        let document = load(nodes, &args).with_code(0).json();
        let rows = document["results"]["rows"].as_array().unwrap();
        assert_eq!(
            rows.iter()
                .map(|row| row["threads"].as_u64().unwrap())
                .collect::<Vec<_>>(),
            [1, 3]
        );
        for row in rows {
            assert!(
                row["passes"].as_u64() > Some(0) && row["failed"] == 0,
                "{row:#}"
            );
            assert_eq!(row["latency"]["count"], row["passes"]);
            assert!(row["per_second"][0].as_u64() > Some(0), "{row:#}");
            assert!(
                number(&row["client"]["cpu_us_per_op"]) > 0.0
                    && number(&row["client"]["limit_per_s"]) > 0.0,
                "{row:#}"
            );
            // What only reads goes to the replica.
            let reads = matches!(workload, "select" | "point-select");
            assert_eq!(row["node"], if reads { "replica1" } else { "primary" });
        }
        assert_clean(nodes);
    }
}

/// The kinds of statements that the primary was asked for.
fn asked(node: &Node) -> [f64; 6] {
    ["select", "update", "delete", "insert", "begin", "commit"].map(|kind| {
        let rows = session(node)
            .pairs("test", &format!("SHOW GLOBAL STATUS LIKE 'Com_{kind}'"))
            .unwrap();
        rows.values().next().unwrap().parse().unwrap()
    })
}

fn oltp_mix_matches_sysbench(nodes: &[Node]) {
    let before = asked(&nodes[0]);
    let args = [
        "--workload",
        "oltp-mix",
        "--threads",
        "2",
        "--duration",
        "3s",
        "--data-size",
        "1000",
    ];
    let document = load(nodes, &args).with_code(0).json();
    assert_eq!(document["results"]["rows"][0]["statements"], 20);
    let after = asked(&nodes[0]);
    let delta: Vec<f64> = before
        .iter()
        .zip(after)
        .map(|(before, after)| after - before)
        .collect();
    // Ten by key and four ranges, two updates, a delete and an insert in each transaction.
    for (kind, wanted) in delta.iter().zip([14.0, 2.0, 1.0, 1.0, 1.0, 1.0]) {
        let per_operation = kind / delta[2];
        assert!((per_operation / wanted - 1.0).abs() < 0.1, "{delta:?}");
    }
}

fn existing_data_is_reused(nodes: &[Node]) {
    let rows = || value(&nodes[0], "SELECT COUNT(*) FROM replimeter.post").unwrap();
    let run = |size: &str, workload: &str| {
        let args = [
            "--workload",
            workload,
            "--data-size",
            size,
            "--keep-data",
            "--duration",
            "1s",
            "--threads",
            "2",
            "--reads",
            "primary",
        ];
        load(nodes, &args).with_code(0).json()
    };
    let document = run("5000", "post-insert");
    assert_eq!(
        (
            document["results"]["data"][0]["reused"].as_bool(),
            document["results"]["data"][0]["rows"].as_u64()
        ),
        (Some(false), Some(5000))
    );
    sql(
        &nodes[0],
        "INSERT INTO replimeter.post (title) VALUES ('one more')",
    );
    // Another workload on the same data, which is as it was made.
    let document = run("5000", "select");
    assert_eq!(
        document["results"]["data"][0]["reused"].as_bool(),
        Some(true),
        "{document:#}"
    );
    assert_eq!(rows(), "5000", "what loads added is gone");
    assert!(!codes(&document).contains(&"data-replaced"));
    // Another size is made anew, and that is said.
    let document = run("3000", "select");
    assert!(
        codes(&document).contains(&"data-replaced")
            && document.to_string().contains("5000 rows in post"),
        "{document:#}"
    );
    assert_eq!(rows(), "3000");
    // A set with a hole is no set.
    sql(&nodes[0], "DELETE FROM replimeter.post WHERE idpost = 7");
    let document = run("3000", "select");
    assert!(codes(&document).contains(&"data-replaced"), "{document:#}");
    assert_eq!(rows(), "3000");
    // A size in bytes is about that size.
    let document = run("5MB", "select");
    let bytes = number(&document["results"]["data"][0]["bytes"]);
    assert!((3.5e6..8e6).contains(&bytes), "{bytes}");
    // What a run found it leaves; it goes with another size and without keeping.
    let _ = load(
        nodes,
        &[
            "--workload",
            "select",
            "--data-size",
            "100",
            "--duration",
            "1s",
        ],
    )
    .with_code(0);
}

fn foreign_tables_are_kept(nodes: &[Node]) {
    sql(&nodes[0], "CREATE DATABASE replimeter");
    sql(
        &nodes[0],
        "CREATE TABLE replimeter.sbtest1 (id INT PRIMARY KEY)",
    );
    let ended = load(nodes, &["--workload", "point-select", "--duration", "1s"]).with_code(3);
    let _ = ended.stderr_contains("`sbtest1` was not created by Replimeter");
    assert!(value(&nodes[0], "SELECT COUNT(*) FROM replimeter.sbtest1").is_some());
    sql(&nodes[0], "DROP DATABASE replimeter");
}

fn open_loop_schedules_are_kept(nodes: &[Node]) {
    let args = [
        "--workload",
        "insert",
        "--threads",
        "4",
        "--duration",
        "4s",
        "--rate",
        "200",
        "--arrivals",
        "poisson",
    ];
    let document = load(nodes, &args).with_code(0).json();
    let row = &document["results"]["rows"][0];
    assert_eq!(row["arrivals"], "poisson");
    // Of 800 arrivals five standard deviations are 18 %.
    assert!(
        (160.0..240.0).contains(&number(&row["throughput"]["mean"])),
        "{row:#}"
    );
    assert!(
        number(&row["latency"]["mean_us"]) >= number(&row["service"]["mean_us"]),
        "{row:#}"
    );
    // A rate that nobody can hold: what waits grows from second to second, and nothing hides it.
    let args = [
        "--workload",
        "insert",
        "--threads",
        "2",
        "--duration",
        "4s",
        "--rate",
        "3000000",
    ];
    let document = load(nodes, &args).with_code(0).json();
    let row = &document["results"]["rows"][0];
    let waiting: Vec<u64> = row["waiting_per_second"]
        .as_array()
        .unwrap()
        .iter()
        .map(|count| count.as_u64().unwrap())
        .collect();
    assert!(
        waiting.len() >= 3 && waiting.is_sorted() && waiting[0] > 1_000_000,
        "{waiting:?}"
    );
    assert!(row["waiting"].as_u64().unwrap() >= waiting[0]);
    assert!(codes(&document).contains(&"load-not-held"), "{document:#}");
    assert!(
        number(&row["latency"]["p99_us"]) > 10.0 * number(&row["service"]["p99_us"]),
        "{row:#}"
    );
}

fn invalid_load_files_are_refused(nodes: &[Node]) {
    let more = ["--duration", "1s", "--threads", "1"];
    let ended = run_file(nodes, "[[statement]]\nsql = 'SELEC 1'", &more).with_code(3);
    let _ = ended
        .stderr_contains("line 2")
        .stderr_contains("You have an error in your SQL syntax")
        .stderr_contains("SELEC 1");
    let ended = run_file(nodes, "[[statement]]\nsql = 'SELECT * FROM missing'", &more).with_code(3);
    let _ = ended
        .stderr_contains("missing' doesn't exist")
        .stderr_contains("line 2");
    let ended = run_file(nodes, "[[statement]]\nsql = 'SELECT :id'", &more).with_code(2);
    let _ = ended
        .stderr_contains("line 2")
        .stderr_contains("`:id` does not exist");
    let _ = run_file(
        nodes,
        "[[statement]]\nsql = 'SELECT 1'",
        &["--threads", "0"],
    )
    .with_code(2)
    .stderr_contains("1 to 1024 threads");
    let _ = run_file(
        nodes,
        "[[statement]]\nsql = 'SELECT 1'",
        &["--data-size", "5"],
    )
    .with_code(2)
    .stderr_contains("no workload has data");
    // A statement that always fails where it is run, and not where it is prepared.
    let table = "[[table]]\nname = 'one'\ncreate = 'CREATE TABLE one (id INT PRIMARY KEY)'\n[table.columns]\nid = {row = true}\n";
    let text =
        format!("size = 1\n{table}[[statement]]\nsql = 'INSERT INTO one VALUES (:id)'\nid = 1");
    let _ = run_file(nodes, &text, &more)
        .with_code(3)
        .stderr_contains("Duplicate entry")
        .stderr_contains("line 8");
    assert_clean(nodes);
    let _ = load(nodes, &["--workload", "no-such.toml"])
        .with_code(2)
        .stderr_contains("cannot read the workload");
}

fn deadlocks_are_retried(nodes: &[Node]) {
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

fn too_many_connections_are_refused(nodes: &[Node]) {
    let was = value(&nodes[0], "SELECT @@max_connections").unwrap();
    sql(&nodes[0], "SET GLOBAL max_connections = 20");
    let ended = load(
        nodes,
        &[
            "--workload",
            "insert",
            "--threads",
            "60",
            "--duration",
            "1s",
        ],
    )
    .with_code(3);
    let _ = ended
        .stderr_contains("of 60 of the load")
        .stderr_contains("Too many connections")
        .stderr_contains("max_connections");
    // The administrator's own place is free for this.
    wait_until("there is room again", LIMIT, || {
        replimeter_engine::Session::open(&nodes[0])
            .and_then(|mut session| {
                session.run("test", &format!("SET GLOBAL max_connections = {was}"))
            })
            .is_ok()
    });
}

fn load_plans_and_reports_round_trip(nodes: &[Node]) {
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

fn interrupted_run_is_saved(nodes: &[Node]) {
    let tool = TestEnvironment::new();
    let child = spawn(&tool, nodes, &["--workload", "insert", "--duration", "60s"]);
    wait_until("it runs", LIMIT, || {
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

fn load_runs_during_a_measurement(nodes: &[Node]) {
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

fn every_built_in_workload_runs_on_mysql() {
    let sandbox = start("mysql/async:2", &RELAXED);
    let nodes = sandbox.nodes();
    for workload in BUILT_IN {
        let mut args = vec!["--workload", workload, "--threads", "4", "--duration", "1s"];
        if !matches!(workload, "insert" | "mix") {
            args.extend(["--data-size", "2000"]);
        }
        let document = load(nodes, &args).with_code(0).json();
        let row = &document["results"]["rows"][0];
        assert!(
            row["passes"].as_u64() > Some(0) && row["failed"] == 0,
            "{row:#}"
        );
        assert_clean(nodes);
    }
}

/// Over the replicas, or over all.
fn reads_are_spread_on_mysql() {
    let sandbox = start("mysql/async:2", &RELAXED);
    let nodes = sandbox.nodes();
    let spread = |reads: &str| {
        let args = [
            "--workload",
            "point-select",
            "--threads",
            "6",
            "--duration",
            "1s",
            "--data-size",
            "1000",
            "--reads",
            reads,
        ];
        let document = load(nodes, &args).with_code(0).json();
        let row = &document["results"]["rows"][0];
        let parts = row["by_node"].as_array().unwrap();
        assert!(
            parts
                .iter()
                .all(|part| part["operations"].as_u64() > Some(0)),
            "{row:#}"
        );
        let sum: u64 = parts
            .iter()
            .map(|part| part["operations"].as_u64().unwrap())
            .sum();
        if !parts.is_empty() {
            assert_eq!(Some(sum), row["passes"].as_u64());
        }
        row["node"].as_str().unwrap().to_owned()
    };
    assert_eq!(spread("replicas"), "replica1, replica2");
    assert_eq!(spread("all"), "primary, replica1, replica2");
    assert_eq!(spread("primary"), "primary");
    // Encrypted, the driver runs the statements.
    let tool = TestEnvironment::new();
    let address = format!("{}?ssl-mode=required", url(&nodes[0], ADMIN));
    let args = [
        "load",
        "--primary",
        &address,
        "--workload",
        "oltp-mix",
        "--data-size",
        "1000",
        "--duration",
        "1s",
        "--json",
    ];
    let child = tool
        .command(&args)
        .env("REPLIMETER_PASSWORD", password(&nodes[0]))
        .spawn()
        .unwrap();
    let document = wait(child, LIMIT).with_code(0).json();
    let row = &document["results"]["rows"][0];
    assert!(
        row["passes"].as_u64() > Some(0) && row["failed"] == 0,
        "{row:#}"
    );
    assert_clean(nodes);
}

fn kill_server(sandbox: &Sandbox, index: usize) {
    let pid = Pid::from_raw(i32::try_from(sandbox.pids()[index]).unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
}

fn server_killed_under_load_leaves_partial_result() {
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
    wait_until("it runs", LIMIT, || {
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

/// A sixth of the operations meets a key that is there. A client goes on after such an error.
fn errors_do_not_slow_a_load(nodes: &[Node]) {
    let text = "size = 1000
        [[table]]
        name = 'taken'
        create = 'CREATE TABLE taken (id INT PRIMARY KEY) ENGINE=InnoDB'
        [table.columns]
        id = {row = true}
        [shared]
        id = {uniform = [901, 1500]}
        [[statement]]
        sql = 'INSERT INTO taken (id) VALUES (:id)'
        [[statement]]
        sql = 'DELETE FROM taken WHERE id = :id'";
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

fn refused_script_ends_before_measuring(nodes: &[Node]) {
    let tool = TestEnvironment::new();
    fs::write(tool.folder().join("own.sql"), "SELECT 1;\nSELEC 2;\n").unwrap();
    let ended = load_with(
        &tool,
        nodes,
        &["--workload", "own.sql", "--duration", "60s"],
    )
    .with_code(3);
    let _ = ended.stderr_contains("line 2").stderr_contains("SELEC 2");
    assert!(tool.runs().is_empty(), "nothing was measured");
}

fn interrupted_fill_leaves_nothing(nodes: &[Node]) {
    let tool = TestEnvironment::new();
    let child = spawn(
        &tool,
        nodes,
        &[
            "--workload",
            "point-select",
            "--data-size",
            "4GB",
            "--duration",
            "1s",
        ],
    );
    wait_until("it fills", LIMIT, || {
        let rows = session(&nodes[0]).value("test", "SELECT 1 FROM replimeter.sbtest1 LIMIT 1");
        rows.ok().flatten().is_some()
    });
    kill_process(pid(&child), Signal::INT).unwrap();
    let _ = wait(child, Duration::from_secs(60)).with_code(130);
    assert!(tool.runs().is_empty());
}

fn invalid_shares_and_sizes_are_refused(nodes: &[Node]) {
    let args = [
        "--workload",
        "point-select",
        "--data-size",
        "1000",
        "--reads",
        "all",
        "--threads",
        "3",
        "--duration",
        "500ms",
    ];
    let document = load(nodes, &args).with_code(0).json();
    assert!(codes(&document).contains(&"uneven-load"), "{document:#}");
    let _ = load(nodes, &["--workload", "point-select", "--data-size", "0"])
        .with_code(2)
        .stderr_contains("makes an empty data set");
    // Where a terabyte would fit it would be made.
    let disk = rustix::fs::statvfs(replimeter_suites::home()).unwrap();
    if disk.f_bavail * disk.f_frsize < 900_000_000_000 {
        let ended = load(
            nodes,
            &[
                "--workload",
                "point-select",
                "--data-size",
                "1TB",
                "--duration",
                "1s",
            ],
        )
        .with_code(3);
        let _ = ended
            .stderr_contains("MB free")
            .stderr_contains("--data-size");
    }
}

/// A replica that no longer follows makes it another topology than the one that was to be measured.
fn replica_stopped_under_load_is_a_failure() {
    let sandbox = start(
        "mariadb/semi-sync:1",
        &[RELAXED.as_slice(), &["rpl_semi_sync_master_timeout=500"]].concat(),
    );
    let nodes = sandbox.nodes();
    let insert = ["--workload", "insert", "--threads", "4", "--duration", "5s"];
    let begun = |tool: &TestEnvironment| {
        let child = spawn(tool, nodes, &insert);
        wait_until("it runs", LIMIT, || {
            let rows =
                session(&nodes[0]).value("test", "SELECT COUNT(*) FROM replimeter.load_insert");
            rows.ok().flatten().is_some_and(|rows| rows.len() > 2)
        });
        child
    };
    // For a while it did not wait: the figures are of a mixture.
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

/// A tablespace that may not grow stands for a disk that is full.
fn full_disk_ends_the_fill() {
    let options = [
        RELAXED.as_slice(),
        &[
            "innodb_file_per_table=0",
            "innodb_data_file_path=ibdata1:12M:autoextend:max:40M",
        ],
    ]
    .concat();
    let sandbox = start("mariadb/none", &options);
    let nodes = sandbox.nodes();
    let ended = load(
        nodes,
        &[
            "--workload",
            "point-select",
            "--data-size",
            "200MB",
            "--duration",
            "1s",
        ],
    )
    .with_code(3);
    let _ = ended
        .stderr_contains("is full")
        .stderr_contains("rows of `sbtest1`")
        .stderr_contains("disk space");
    assert_clean(nodes);
}

/// Two members that write the same rows: what the other one had first is counted by its
/// own name, and begun again.
fn certification_failures_are_counted() {
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
