//! Every shape of sandbox: found, started, measured, checked and removed.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use replimeter_measurements::lag::samples;
use replimeter_model::sandbox::SandboxSpec;
use replimeter_suites::{
    CommandOutput, LIMIT, TestEnvironment, binary, children_named, folder, harness::Test, net,
    server_folder, session, shared, sql, start_spec, test, value, wait, wait_until,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

pub(crate) const TESTS: &[Test] = &[
    test!(two_shapes_are_measured_in_one_run).starts(4),
    test!(mariadb_shapes_are_measured_in_one_run)
        .starts(4)
        .long(),
    test!(mysql_semi_sync_waits_for_two_replicas).starts(3),
    test!(mysql_shapes_are_measured_in_one_run).starts(4).long(),
    test!(multi_primary_group_is_measured).starts(2),
    test!(galera_gtids_are_equal_for_every_writer),
    test!(failed_shape_keeps_results_of_the_others).starts(4),
    test!(starts_are_spread_over_a_time).starts(5).long(),
    test!(impossible_shape_is_refused_before_start),
    test!(missing_capability_names_what_to_install),
    test!(replicas_may_use_another_version).starts(2),
];

/// A short run over these shapes.
fn lag(tool: &TestEnvironment, shapes: &[&str], more: &[&str]) -> CommandOutput {
    let mut args = vec![
        "lag",
        "--rounds",
        "60",
        "--interval",
        "4ms",
        "--floor-rounds",
        "10",
        "--timeout",
        "60s",
        "--json",
    ];
    for shape in shapes {
        args.extend(["--sandbox", shape]);
    }
    args.extend(more);
    tool.run(&args)
}

fn starts_are_spread_over_a_time() {
    let tool = TestEnvironment::new();
    let (args, began) = (["--starts", "2", "--over", "8s"], Instant::now());
    let document = lag(&tool, &["mariadb/async:1"], &args).with_code(0).json();
    assert_eq!(document["target"]["fresh_starts"], 2);
    // The second start is due after half of the time.
    assert!(began.elapsed() > Duration::from_secs(4), "{document:#}");
    // Ctrl-C in the wait keeps the first start.
    let args = "lag --sandbox mariadb/async:1 --rounds 60 --interval 4ms --floor-rounds 10 --starts 2 --over 1h --run-dir ended --json";
    let mut command = tool.command(&args.split(' ').collect::<Vec<_>>());
    let child = command.spawn().unwrap();
    let servers = || children_named(&child, "mariadbd").len();
    wait_until("the first start has servers", LIMIT, || servers() == 2);
    wait_until("it waits for the second", LIMIT, || servers() == 0);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let document = wait(child, LIMIT).with_code(130).json();
    assert_eq!(document["status"], "interrupted");
    assert_eq!(document["results"]["rows"][0]["rounds"], 30, "{document:#}");
}

/// The document's rows as `shape replica`.
fn rows(document: &Value) -> Vec<String> {
    let rows = document["results"]["rows"].as_array().unwrap().iter();
    rows.map(|row| {
        format!(
            "{} {}",
            row["shape"].as_str().unwrap(),
            row["replica"].as_str().unwrap()
        )
    })
    .collect()
}

fn assert_whole(document: &Value) {
    for row in document["results"]["rows"].as_array().unwrap() {
        assert_eq!(
            (row["rounds"].as_u64(), row["timed_out"].as_u64()),
            (Some(60), Some(0)),
            "{row:#}"
        );
        assert!(
            row["from_send"]["min_us"].as_f64().unwrap() > 0.0,
            "nothing is seen before it is sent: {row:#}"
        );
    }
}

fn two_shapes_are_measured_in_one_run() {
    let (tool, manifest) = measured_in_one_run(
        &["mariadb/none", "mariadb/semi-sync:2"],
        &["none", "semi-sync"],
        &[
            "mariadb/none primary (null replica)",
            "mariadb/semi-sync:2 replica1",
            "mariadb/semi-sync:2 replica2",
        ],
    );
    let variable =
        |server: &str, name: &str| variable(&manifest, "mariadb/semi-sync:2", server, name);
    assert_eq!(
        variable("primary", "rpl_semi_sync_master_wait_point"),
        "AFTER_SYNC"
    );
    assert_eq!(variable("replica1", "slave_parallel_threads"), "3");
    assert_eq!(variable("replica2", "slave_parallel_threads"), "0");
    assert_eq!(tool.servers(), Vec::<i32>::new(), "nothing runs on");
}

fn mariadb_shapes_are_measured_in_one_run() {
    let (tool, manifest) = measured_in_one_run(
        &[
            "mariadb/none",
            "mariadb/async:1",
            "mariadb/semi-sync:2",
            "mariadb/chain:2",
            "galera:3",
        ],
        &["none", "async", "semi-sync", "chain", "galera"],
        &[
            "mariadb/none primary (null replica)",
            "mariadb/async:1 replica1",
            "mariadb/semi-sync:2 replica1",
            "mariadb/semi-sync:2 replica2",
            "mariadb/chain:2 replica1",
            "mariadb/chain:2 replica2",
            "galera:3 node2",
            "galera:3 node3",
        ],
    );
    // Options reach the servers that they name; the wait point only those that have one.
    for (shape, name, option, value) in [
        (
            "mariadb/semi-sync:2",
            "primary",
            "rpl_semi_sync_master_wait_point",
            "AFTER_SYNC",
        ),
        (
            "mariadb/async:1",
            "primary",
            "rpl_semi_sync_master_wait_point",
            "AFTER_COMMIT",
        ),
        ("mariadb/chain:2", "replica1", "slave_parallel_threads", "3"),
        ("mariadb/chain:2", "replica2", "slave_parallel_threads", "0"),
        ("galera:3", "node2", "slave_parallel_threads", "0"),
    ] {
        assert_eq!(variable(&manifest, shape, name, option), value, "{shape}");
    }
    assert_eq!(tool.servers(), Vec::<i32>::new(), "nothing runs on");
}

/// Returns a variable of a server, as the manifest has it.
fn variable(manifest: &Value, shape: &str, name: &str, variable: &str) -> String {
    let mut servers = manifest["servers"].as_array().unwrap().iter();
    let server = servers
        .find(|server| server["shape"] == shape && server["name"] == name)
        .unwrap();
    server["variables"][variable].as_str().unwrap().to_owned()
}

/// Measures shapes of MariaDB, and checks every output. `replicas` are the rows as `shape replica`. Returns the
/// folder of the run and its manifest.
fn measured_in_one_run(
    shapes: &[&str],
    modes: &[&str],
    replicas: &[&str],
) -> (TestEnvironment, Value) {
    let tool = TestEnvironment::new();
    let document = lag(
        &tool,
        shapes,
        &[
            "--wait-point",
            "after-sync",
            "--server-option",
            "replica1:slave_parallel_threads=3",
        ],
    )
    .with_code(0)
    .json();
    assert_eq!(document["target"]["modes"], serde_json::json!(modes));
    assert_eq!(rows(&document), replicas);
    assert_whole(&document);
    assert_eq!(
        document["results"]["floors"].as_array().unwrap().len(),
        shapes.len(),
        "a floor for each shape"
    );
    let run = tool.only_run();
    let manifest: Value =
        serde_json::from_str(&std::fs::read_to_string(run.join("manifest.json")).unwrap()).unwrap();

    // Every sample names its shape.
    let mut seen = BTreeSet::new();
    let read = samples::read(&run.join("samples.parquet"), |shape, _, _| {
        seen.insert(shape.to_owned());
    });
    read.unwrap();
    assert_eq!(seen.len(), shapes.len(), "{seen:?}");

    // The stored plan has all settings and gives the same plan.
    let plan = std::fs::read_to_string(run.join("plan.toml")).unwrap();
    let again = tool
        .run(&["run", "--dry-run", run.join("plan.toml").to_str().unwrap()])
        .with_code(0);
    assert_eq!(again.planned(), plan);

    // The terminal and the page show the shapes side by side, too.
    let text = tool
        .run(&["report", run.to_str().unwrap()])
        .with_code(0)
        .stdout;
    assert!(text.contains("Comparison ("), "{text}");
    let table: Vec<&str> = text
        .lines()
        .skip_while(|line| !line.starts_with("Comparison ("))
        .skip(2)
        .take(replicas.len())
        .collect();
    assert_eq!(table.len(), replicas.len(), "{text}");
    for (line, row) in table.iter().zip(replicas) {
        assert!(
            line.trim_start()
                .starts_with(row.split(' ').next().unwrap()),
            "{line} is not {row}"
        );
    }
    let page = std::fs::read_to_string(run.join("report.html")).unwrap();
    assert!(page.contains("id=\"side-by-side\""));
    for shape in shapes {
        let header = format!("<th scope=\"row\">{}</th>", net::escaped(shape));
        assert!(page.contains(&header), "{shape}");
    }
    (tool, manifest)
}

fn mysql_semi_sync_waits_for_two_replicas() {
    let tool = TestEnvironment::new();
    let document = assert_waits_for_two(&tool, &["mysql/semi-sync:2"]);
    assert_eq!(
        document["target"]["modes"],
        serde_json::json!(["semi-sync"])
    );
    assert!(
        document["target"]["nodes"][0]["version"]
            .as_str()
            .unwrap()
            .starts_with("MySQL ")
    );
}

fn mysql_shapes_are_measured_in_one_run() {
    let tool = TestEnvironment::new();
    let document = assert_waits_for_two(&tool, &["mysql/semi-sync:2", "mysql/chain:2", "group:3"]);
    assert_eq!(
        document["target"]["modes"],
        serde_json::json!(["semi-sync", "chain", "group"])
    );
}

/// Measures shapes of MySQL, the first of which waits for two replicas; returns the document.
fn assert_waits_for_two(tool: &TestEnvironment, shapes: &[&str]) -> Value {
    let document = lag(tool, shapes, &["--wait-for-replicas", "2"])
        .with_code(0)
        .json();
    assert_whole(&document);
    let manifest: Value = serde_json::from_str(
        &std::fs::read_to_string(tool.only_run().join("manifest.json")).unwrap(),
    )
    .unwrap();
    let primary = &manifest["servers"][0]["variables"];
    let waits = [
        "rpl_semi_sync_source_wait_for_replica_count",
        "rpl_semi_sync_master_wait_for_slave_count",
    ];
    assert!(
        waits.iter().any(|name| primary[*name] == "2"),
        "the primary waits for two"
    );
    assert_eq!(
        manifest["sandboxes"].as_array().unwrap().len(),
        shapes.len()
    );
    document
}

fn multi_primary_group_is_measured() {
    let sandbox = start_spec(SandboxSpec {
        multi_primary: true,
        ..SandboxSpec::of("group:2".parse().unwrap())
    })
    .unwrap();
    let second = &sandbox.nodes()[1];
    assert_eq!(
        value(second, "SELECT @@global.super_read_only").as_deref(),
        Some("0")
    );
    sql(second, "CREATE DATABASE written_on_node2");
    wait_until("the first member has it", LIMIT, || {
        let found = "SHOW DATABASES LIKE 'written_on_node2'";
        value(&sandbox.nodes()[0], found).is_some()
    });
}

fn galera_gtids_are_equal_for_every_writer() {
    let sandbox = shared("galera:2", &[]);
    let [one, two] = sandbox.nodes() else {
        panic!("two nodes")
    };
    sql(one, "CREATE DATABASE written");
    sql(one, "CREATE TABLE written.rounds (id INT PRIMARY KEY)");
    for round in 0..10 {
        let (node, other) = if round % 2 == 0 {
            (one, two)
        } else {
            (two, one)
        };
        wait_until("the node has the earlier rows", LIMIT, || {
            let count = "SELECT COUNT(*) FROM written.rounds";
            let count = session(node).value("test", count);
            count.is_ok_and(|count| count == Some(round.to_string()))
        });
        sql(
            node,
            &format!("INSERT INTO written.rounds VALUES ({round})"),
        );
        wait_until("the other node has it", LIMIT, || {
            let found = format!("SELECT id FROM written.rounds WHERE id = {round}");
            value(other, &found).is_some()
        });
    }
    let position = |node| value(node, "SELECT @@global.gtid_binlog_pos");
    assert!(position(one).is_some_and(|position| !position.is_empty()));
    wait_until("both logs agree", LIMIT, || position(one) == position(two));
}

fn failed_shape_keeps_results_of_the_others() {
    let tool = TestEnvironment::new();
    // A node of the second shape dies while it starts: its data was created with another page size. The option is for it alone.
    let args = [
        "lag",
        "--sandbox",
        "async:1",
        "--sandbox",
        "galera:2",
        "--rounds",
        "30",
        "--floor-rounds",
        "0",
        "--timeout",
        "60s",
        "--server-option",
        "node2:innodb_page_size=8k",
        "--json",
    ];
    let ended = tool
        .run(&args)
        .with_code(3)
        .stderr_contains("node2 ended while starting")
        .stderr_contains("Unknown/unsupported storage engine: InnoDB");
    let document = ended.json();
    assert_eq!(rows(&document), ["async:1 replica1"]);
    assert_eq!(document["status"], "failed");
    assert!(tool.only_run().join("report.html").exists());
    assert_eq!(
        tool.servers(),
        Vec::<i32>::new(),
        "the nodes that had started are gone"
    );
}

fn impossible_shape_is_refused_before_start() {
    for (args, code, want) in [
        (
            vec!["--sandbox", "mysql/galera:3"],
            2,
            "MySQL has no galera mode",
        ),
        (vec!["--sandbox", "group:10"], 2, "from 1 to 9"),
        (
            vec!["--sandbox", "async:1", "--wait-point", "after-sync"],
            2,
            "requires semi-sync:N",
        ),
        (
            vec!["--sandbox", "async:1", "--sandbox", "async:1"],
            2,
            "given twice",
        ),
        (
            vec!["--sandbox", "none", "--link-delay", "1ms"],
            2,
            "a link requires a shape that replicates",
        ),
        (
            vec![
                "--sandbox",
                "async:1",
                "--link-delay",
                "1ms",
                "--link-jitter",
                "2ms",
            ],
            2,
            "jitter",
        ),
        (
            vec![
                "--sandbox",
                "mariadb/async:1",
                "--server-option",
                "sync_binlog",
            ],
            3,
            "option '--sync_binlog' requires an argument",
        ),
        (
            vec![
                "--sandbox",
                "mariadb/async:1",
                "--server-option",
                "replica1:no_such_option=1",
            ],
            3,
            "unknown variable 'no_such_option=1'",
        ),
        (
            vec![
                "--sandbox",
                "mysql/async:1",
                "--server-option",
                "innodb_buffer_pool_size=abc",
            ],
            3,
            "does not accept the server options: Error while setting value 'abc'",
        ),
        (
            vec![
                "--sandbox",
                "async:1",
                "--server-option",
                "replica2:sync_binlog=1",
            ],
            2,
            "the servers are primary, replica1",
        ),
        (
            vec![
                "--sandbox",
                "galera:3",
                "--server-option",
                "wsrep_cluster_address=gcomm://x",
            ],
            2,
            "the sandbox sets",
        ),
        (
            vec![
                "--sandbox",
                "mariadb/semi-sync:2",
                "--wait-for-replicas",
                "2",
            ],
            2,
            "MariaDB waits for the first replica only",
        ),
        (
            vec!["--sandbox", "async:1", "--replica-server", "5.5"],
            3,
            "neither a folder nor a version of MariaDB",
        ),
        (
            vec![
                "--sandbox",
                "async:1",
                "--node",
                "mysql://a/",
                "--node",
                "mysql://b/",
            ],
            2,
            "not both",
        ),
        (vec!["--sandbox", "nobody"], 2, "there is no such sandbox"),
    ] {
        let tool = TestEnvironment::new();
        let ended = tool.run(&[vec!["lag"], args.clone()].concat());
        assert_eq!(ended.code, Some(code), "{args:?}: {ended:#?}");
        assert!(ended.stderr.contains(want), "{args:?}: {ended:#?}");
        assert!(tool.runs().is_empty(), "{args:?}");
    }
}

fn missing_capability_names_what_to_install() {
    // The same MariaDB without Galera's library, and MySQL without its plugins.
    let folder = folder();
    std::fs::set_permissions(
        folder.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    for (engine, shape, remove, want) in [
        ("mariadb", "galera:2", "libgalera_smm.so", "galera-4"),
        (
            "mysql",
            "mysql/semi-sync:1",
            // MySQL 8.4 has them under their former names too.
            "semisync_*.so",
            "semisync_source.so",
        ),
        (
            "mysql",
            "group:1",
            "group_replication.so",
            "group_replication.so",
        ),
    ] {
        let root = folder.path().join(shape.replace(['/', ':'], "-"));
        let whole = server_folder(engine);
        let copied = std::process::Command::new("cp")
            .arg("-a")
            .arg(&whole)
            .arg(&root)
            .status();
        assert!(copied.unwrap().success());
        let found = std::process::Command::new("find")
            .arg(&root)
            .args(["-name", remove, "-print", "-delete"])
            .output()
            .unwrap();
        assert!(!found.stdout.is_empty(), "no {remove} in {whole:?}");
        let tool = TestEnvironment::new();
        let args = [
            "lag",
            "--sandbox",
            shape,
            "--servers",
            root.to_str().unwrap(),
        ];
        let _ = tool
            .run(&args)
            .with_code(3)
            .stderr_contains(" has no ")
            .stderr_contains(want)
            .stderr_contains("make servers");
        assert!(tool.runs().is_empty());
    }
    assert!(binary().exists());
}

fn replicas_may_use_another_version() {
    let tool = TestEnvironment::new();
    let mariadb = server_folder("mariadb");
    let args = ["--replica-server", mariadb.to_str().unwrap()];
    let document = lag(&tool, &["mariadb/async:1"], &args).with_code(0).json();
    assert_whole(&document);
    let manifest: Value = serde_json::from_str(
        &std::fs::read_to_string(tool.only_run().join("manifest.json")).unwrap(),
    )
    .unwrap();
    assert!(
        manifest["sandboxes"][0]["replica_binaries"]
            .as_str()
            .unwrap()
            .contains("mariadbd")
    );
    // Another family cannot follow by GTID.
    let tool = TestEnvironment::new();
    let _ = lag(&tool, &["mysql/async:1"], &args)
        .with_code(3)
        .stderr_contains("MariaDB cannot replicate from MySQL");
}
