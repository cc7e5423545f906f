//! `replimeter stale`: reads that miss what was just acknowledged, on real servers.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use replimeter_engine::Session;
use replimeter_sandbox::Sandbox;
use replimeter_suites::{
    CommandOutput, LIMIT, TestEnvironment, clean, harness::Test, password, session, sql, start,
    test, url, value, wait, wait_until,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

pub(crate) const TESTS: &[Test] = &[
    test!(synchronous_reads_remove_galera_staleness),
    test!(replicas_wait_for_gtids),
    test!(replicas_wait_for_gtids_on_mysql).long(),
    test!(group_keeps_its_consistency_levels),
    test!(staleness_counts_versions_under_load),
    test!(load_reads_are_checked),
    test!(load_reads_on_every_cluster_node_are_checked),
    test!(replica_killed_under_checked_load_ends_the_run),
    test!(unknown_names_are_usage_errors_before_start),
    test!(external_writes_are_distinguished),
    test!(external_rollback_is_not_counted_as_stale).alone(),
    test!(stalled_reader_ends_the_run_and_keeps_results),
    test!(leaving_member_is_named_although_not_read),
    test!(unsupported_read_consistency_is_omitted),
];

/// The command line for the servers of a sandbox as a user's own.
fn args(sandbox: &Sandbox, members: bool, more: &[&str]) -> Vec<String> {
    let mut args = vec!["stale".to_owned()];
    for (index, node) in sandbox.nodes().iter().enumerate() {
        let flag = match (members, index) {
            (true, _) => "--node",
            (false, 0) => "--primary",
            (false, _) => "--replica",
        };
        args.extend([flag.to_owned(), url(node, "replimeter")]);
    }
    args.extend(more.iter().map(|arg| (*arg).to_owned()));
    args
}

fn run(sandbox: &Sandbox, tool: &TestEnvironment, args: &[String]) -> CommandOutput {
    let child = tool
        .command(args)
        .env("REPLIMETER_PASSWORD", password(&sandbox.nodes()[0]))
        .spawn()
        .unwrap();
    wait(child, LIMIT)
}

fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("no number: {value}"))
}

fn float(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("no number: {value}"))
}

fn rows(document: &Value) -> &Vec<Value> {
    document["results"]["rows"].as_array().unwrap()
}

/// The rows of one way of reading.
fn of<'a>(document: &'a Value, sync_reads: &str, pool: &str) -> Vec<&'a Value> {
    let rows = rows(document)
        .iter()
        .filter(|row| row["read_consistency"] == sync_reads && row["session_reset"] == pool)
        .collect::<Vec<_>>();
    assert!(!rows.is_empty(), "{sync_reads}, {pool}: {document:#}");
    rows
}

fn warned(document: &Value, code: &str) -> bool {
    document["warnings"]
        .as_array()
        .unwrap()
        .iter()
        .any(|warning| warning["code"] == code)
}

/// What every row must hold.
fn consistent(row: &Value) {
    let (rounds, stale) = (number(&row["rounds"]), number(&row["stale"]));
    assert!(stale <= rounds, "{row:#}");
    let share = float(&row["stale_percent"]);
    assert!(
        (share - stale as f64 / rounds as f64 * 100.0).abs() < 1e-9,
        "{row:#}"
    );
    assert!(
        float(&row["stale_percent_ci95"][0]) <= share
            && share < float(&row["stale_percent_ci95"][1]).max(100.1),
        "{row:#}"
    );
    assert!(
        float(&row["stale_percent_ci95"][1]) > 0.0,
        "never a bare 0 %: {row:#}"
    );
    if row["judged"] == "rounds" {
        assert_eq!(number(&row["staleness"]["count"]), stale, "{row:#}");
        // At once and at the times of the curve.
        let points = |key: &str| {
            row["curve"]
                .as_array()
                .unwrap()
                .iter()
                .map(|point| number(&point[key]))
                .sum::<u64>()
        };
        assert_eq!(
            number(&row["violations"]["read_your_writes"]),
            points("stale"),
            "{row:#}"
        );
        assert_eq!(
            number(&row["violations"]["read_your_writes_of"]),
            points("reads"),
            "{row:#}"
        );
    }
    assert!(
        number(&row["violations"]["monotonic_reads"])
            <= number(&row["violations"]["monotonic_reads_of"]),
        "{row:#}"
    );
    assert_eq!(
        row["witness"].is_null(),
        number(&row["violations"]["read_your_writes"]) == 0,
        "{row:#}"
    );
    assert_eq!(
        row["monotonic_witness"].is_null(),
        number(&row["violations"]["monotonic_reads"]) == 0,
        "{row:#}"
    );
    for point in row["curve"].as_array().unwrap() {
        assert!(
            point["probability_ci95"][0].as_f64() <= point["probability"].as_f64()
                && point["probability"].as_f64() <= point["probability_ci95"][1].as_f64()
        );
    }
}

fn synchronous_reads_remove_galera_staleness() {
    let sandbox = start("mariadb/galera:3", &[]);
    let tool = TestEnvironment::new();
    let more = [
        "--reader",
        "node1",
        "--reader",
        "node2",
        "--reader",
        "node3",
        "--rounds",
        "300",
        "--read-delays",
        "0,2ms,30ms",
        "--curve-rounds",
        "60",
        "--read-consistency=off,before",
        "--session-reset",
        "keep,reset,change-user",
        "--json",
    ];
    let document = run(&sandbox, &tool, &args(&sandbox, true, &more))
        .with_code(0)
        .json();
    assert_eq!(
        (document["schema"].as_str(), document["status"].as_str()),
        (Some("replimeter.stale/1"), Some("complete"))
    );
    // Without, with, and with on connections that were reset in two ways; three readers each.
    assert_eq!(rows(&document).len(), 12, "{document:#}");
    rows(&document).iter().for_each(consistent);
    for row in rows(&document) {
        assert_eq!(
            (row["writer"].as_str(), number(&row["rounds"])),
            (Some("node1"), 300)
        );
        assert_eq!(
            row["null_replica"].as_bool(),
            Some(row["reader"] == "node1")
        );
        if row["reader"] == "node1" {
            assert_eq!(
                number(&row["stale"]),
                0,
                "a server shows what it acknowledged: {row:#}"
            );
        }
    }
    let others = |rows: Vec<&Value>| {
        rows.iter()
            .filter(|row| row["reader"] != "node1")
            .map(|row| number(&row["stale"]))
            .sum::<u64>()
    };
    assert!(others(of(&document, "off", "keep")) > 0);
    assert_eq!(others(of(&document, "before", "keep")), 0);
    for pool in ["reset", "change-user"] {
        assert!(
            others(of(&document, "before", pool)) > 0,
            "a connection that is reset forgets"
        );
    }
    assert!(warned(&document, "guarantee-broken"));
    let plain = of(&document, "off", "keep");
    let plain = plain.iter().find(|row| row["reader"] == "node2").unwrap();
    let curve = plain["curve"].as_array().unwrap();
    assert_eq!(curve.len(), 3);
    assert!(
        float(&curve[2]["probability"]) <= float(&curve[0]["probability"]),
        "it passes: {curve:#?}"
    );
    for point in curve {
        assert!(
            float(&point["after_us"]) >= float(&point["asked_us"]),
            "no read before its time: {point:#}"
        );
    }
    let synced = of(&document, "before", "keep");
    assert!(
        synced
            .iter()
            .all(|row| number(&row["overhead"]["read_with"]["count"]) > 0)
    );
    for row in synced {
        let curve = row["curve"].as_array().unwrap();
        assert!(
            curve.len() == 3 && curve.iter().all(|point| number(&point["stale"]) == 0),
            "{row:#}"
        );
    }
    let broken = of(&document, "before", "reset");
    let witness = &broken.iter().find(|row| number(&row["stale"]) > 0).unwrap()["witness"];
    assert_eq!(witness["guarantee"], "read-your-writes");
    let steps = witness["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 3);
    assert_eq!(steps[0]["statement"], "COM_RESET_CONNECTION");
    assert!(
        float(&steps[0]["end_us"]) <= float(&steps[1]["begin_us"]),
        "reset before the write: {witness:#}"
    );
    assert!(
        float(&steps[2]["begin_us"]) >= float(&steps[1]["end_us"]),
        "read after the acknowledgement: {witness:#}"
    );
    // Counters of every node are beside the course.
    let windows = document["results"]["timelines"][0]["windows"]
        .as_array()
        .unwrap();
    let told = |name: &str| {
        windows.iter().any(|window| {
            window["counters"]
                .as_object()
                .unwrap()
                .keys()
                .any(|key| key.starts_with(name))
        })
    };
    assert!(
        ["node1 wsrep_", "node2 wsrep_", "node3 wsrep_"]
            .into_iter()
            .all(told),
        "{windows:#?}"
    );
    assert!(sandbox.nodes().iter().all(clean));
    let dir = tool.only_run();
    for name in [
        "plan.toml",
        "manifest.json",
        "samples.parquet",
        "summary.json",
        "report.html",
        "report.md",
    ] {
        assert!(dir.join(name).exists(), "{name}");
    }
    let again = tool.run(&["report", dir.to_str().unwrap()]).with_code(0);
    assert!(
        again
            .words()
            .contains("Reads that missed a write just acknowledged"),
        "{again:#?}"
    );
    let plan = dir.join("plan.toml");
    let planned = tool
        .run(&["run", "--dry-run", plan.to_str().unwrap()])
        .with_code(0);
    assert!(planned.stdout.contains("command = \"stale\""));
}

fn replicas_wait_for_gtids() {
    channels_wait_for_gtids("mariadb/chain:2", &["--session-reset", "keep,reset"]);
}

fn replicas_wait_for_gtids_on_mysql() {
    channels_wait_for_gtids("mysql/async:2", &[]);
}

fn channels_wait_for_gtids(shape: &str, more: &[&str]) {
    let sandbox = start(shape, &[]);
    let tool = TestEnvironment::new();
    let mut given = vec![
        "--rounds",
        "200",
        "--read-delays",
        "none",
        "--read-consistency=off,on",
        "--json",
    ];
    given.extend(more);
    let document = run(&sandbox, &tool, &args(&sandbox, false, &given))
        .with_code(0)
        .json();
    rows(&document).iter().for_each(consistent);
    for row in of(&document, "off", "keep") {
        assert!(number(&row["stale"]) > 0, "{row:#}");
    }
    for row in of(&document, "gtid", "keep") {
        assert_eq!(number(&row["stale"]), 0, "{row:#}");
    }
    if !more.is_empty() {
        // The answer no longer tells the GTID.
        assert!(
            of(&document, "gtid", "reset")
                .iter()
                .any(|row| number(&row["stale"]) > 0),
            "{document:#}"
        );
    }
    assert!(sandbox.nodes().iter().all(clean));
    let refused = run(
        &sandbox,
        &tool,
        &args(&sandbox, false, &["--read-consistency=before"]),
    )
    .with_code(3);
    assert!(
        refused.stderr.contains("--read-consistency=gtid"),
        "{refused:#?}"
    );
}

fn group_keeps_its_consistency_levels() {
    let sandbox = start("mysql/group:3", &[]);
    let tool = TestEnvironment::new();
    let more = [
        "--rounds",
        "200",
        "--read-delays",
        "none",
        "--read-consistency=off,before,after,before-and-after,gtid",
        "--json",
    ];
    let document = run(&sandbox, &tool, &args(&sandbox, true, &more))
        .with_code(0)
        .json();
    rows(&document).iter().for_each(consistent);
    assert!(
        of(&document, "off", "keep")
            .iter()
            .any(|row| number(&row["stale"]) > 0)
    );
    for way in ["before", "after", "before-and-after", "gtid"] {
        for row in of(&document, way, "keep") {
            assert_eq!(
                (number(&row["stale"]), number(&row["refused"])),
                (0, 0),
                "{row:#}"
            );
        }
    }
    let windows = document["results"]["timelines"][0]["windows"]
        .as_array()
        .unwrap();
    assert!(
        windows.iter().any(|window| window["counters"]
            .to_string()
            .contains("certification queue")),
        "{windows:#?}"
    );
}

fn staleness_counts_versions_under_load() {
    let sandbox = start("mariadb/async:1", &[]);
    let tool = TestEnvironment::new();
    let more = [
        "--pace",
        "ack",
        "--rows",
        "1",
        "--rounds",
        "2000",
        "--read-delays",
        "none",
        "--case",
        "none",
        "--case",
        "insert:2@writer",
        "--json",
    ];
    let document = run(&sandbox, &tool, &args(&sandbox, false, &more))
        .with_code(0)
        .json();
    assert_eq!(rows(&document).len(), 2);
    let behind = rows(&document)
        .iter()
        .flat_map(|row| row["versions_behind"].as_array().unwrap())
        .map(|one| number(&one["versions"]));
    assert!(behind.max().unwrap() > 1, "{document:#}");
    let load = document["results"]["load"].as_array().unwrap();
    assert_eq!(
        (load.len(), load[0]["case"].as_str()),
        (1, Some("insert:2@writer"))
    );
    assert!(
        number(&load[0]["passes"]) > 0 && float(&load[0]["latency"]["max_us"]) > 0.0,
        "{load:#?}"
    );
    // Its latency is in every stretch, beside the rounds'.
    let series = document["results"]["timelines"].as_array().unwrap();
    let windows = series
        .iter()
        .find(|course| course["load"] == "insert:2@writer")
        .unwrap()["windows"]
        .as_array()
        .unwrap();
    let met: Vec<&Value> = windows
        .iter()
        .flat_map(|window| window["load"].as_array().unwrap())
        .collect();
    assert!(
        !met.is_empty() && met.iter().all(|load| load["load"] == "insert:2@primary"),
        "{windows:#?}"
    );
    for load in met.iter().filter(|load| number(&load["operations"]) > 0) {
        assert!(
            float(&load["p50_us"]) <= float(&load["p99_us"]) * 1.02,
            "{load:#}"
        );
        assert!(
            float(&load["p99_us"]) <= float(&load["max_us"]) * 1.02,
            "{load:#}"
        );
    }
    assert!(
        met.iter()
            .map(|load| number(&load["operations"]))
            .sum::<u64>()
            > 0
    );
    assert!(sandbox.nodes().iter().all(clean));
}

/// The load's record of this workload on this node, of one way of reading.
fn load_of<'a>(document: &'a Value, workload: &str, node: &str, sync_reads: &str) -> &'a Value {
    let loads = document["results"]["load"].as_array().unwrap();
    let found = loads.iter().find(|load| {
        load["workload"] == workload
            && load["node"] == node
            && load["read_consistency"] == sync_reads
    });
    found.unwrap_or_else(|| panic!("{workload} on {node}: {loads:#?}"))
}

fn load_reads_are_checked() {
    let sandbox = start("mariadb/async:2", &[]);
    let tool = TestEnvironment::new();
    let more = [
        "--check-load-reads",
        "2:2",
        "--duration",
        "5s",
        "--rate",
        "300",
        "--json",
    ];
    let document = run(&sandbox, &tool, &args(&sandbox, false, &more))
        .with_code(0)
        .json();
    assert_eq!(rows(&document).len(), 2);
    for row in rows(&document) {
        let reader = row["reader"].as_str().unwrap();
        assert_eq!(
            (row["judged"].as_str(), row["writer"].as_str()),
            (Some("load"), Some("primary"))
        );
        assert!(
            number(&row["rounds"]) > 100 && number(&row["write_latency"]["count"]) > 100,
            "{row:#}"
        );
        // Nothing but the load's own statements: no more reads are judged than it made.
        let passes = number(&load_of(&document, "versioned-select", reader, "off")["passes"]);
        assert!(
            number(&row["rounds"]) <= passes + passes / 10 + 50,
            "{row:#}, {passes}"
        );
        let passes = number(&load_of(&document, "versioned-update", "primary", "off")["passes"]);
        assert!(
            number(&row["write_latency"]["count"]) <= passes + passes / 10 + 50,
            "{row:#}, {passes}"
        );
        assert_eq!(
            number(&row["violations"]["monotonic_same_connection"]),
            0,
            "a replica does not go back: {row:#}"
        );
        consistent(row);
    }
    assert!(sandbox.nodes().iter().all(clean));
    // A workload of the user's names the row, and where waiting for a GTID would be one statement more it is refused.
    let file = tool.folder().join("orders.toml");
    let text = "size = 50\n[[table]]\nname = \"orders\"\n\
                create = \"CREATE TABLE orders (id INT PRIMARY KEY, v BIGINT NOT NULL, note VARCHAR(99)) ENGINE=InnoDB\"\n\
                [table.columns]\nid = {row = true}\nv = 0\nnote = {text = 20}\n\
                [[operation]]\ntransaction = true\n[[operation.statement]]\n\
                sql = \"UPDATE orders SET note = :note, v = LAST_INSERT_ID(v + 1) WHERE id = :id\"\nnote = {text = 20}\n\
                id = {zipf = [1, \"rows\"]}\nversion-of = \"id\"\n\
                [[operation]]\n[[operation.statement]]\nsql = \"SELECT v, note FROM orders WHERE id = :id\"\n\
                id = {zipf = [1, \"rows\"]}\nversion-of = \"id\"\n";
    std::fs::write(&file, text).unwrap();
    let load = format!("{}:2@primary", file.display());
    let more = [
        "--load",
        &load,
        "--check-load-reads",
        "--duration",
        "2s",
        "--json",
    ];
    let document = run(&sandbox, &tool, &args(&sandbox, false, &more))
        .with_code(0)
        .json();
    let row = &rows(&document)[0];
    assert_eq!(
        (
            row["reader"].as_str(),
            row["null_replica"].as_bool(),
            number(&row["stale"])
        ),
        (Some("primary"), Some(true), 0)
    );
    assert!(
        number(&row["rounds"]) > 100 && number(&row["write_latency"]["count"]) > 100,
        "{row:#}"
    );
    let more = [
        "--check-load-reads",
        "1:1",
        "--duration",
        "1s",
        "--read-consistency=on",
    ];
    let _ = run(&sandbox, &tool, &args(&sandbox, false, &more))
        .with_code(3)
        .stderr_contains("would add a statement");
    let more = [
        "--load",
        "insert:1@primary",
        "--check-load-reads",
        "--duration",
        "1s",
    ];
    let _ = run(&sandbox, &tool, &args(&sandbox, false, &more))
        .with_code(2)
        .stderr_contains("writes row versions");
    assert!(sandbox.nodes().iter().all(clean));
}

fn load_reads_on_every_cluster_node_are_checked() {
    let sandbox = start("mariadb/galera:2", &[]);
    let tool = TestEnvironment::new();
    let more = [
        "--load",
        "versioned:2@node1",
        "--load",
        "versioned:2@node2",
        "--check-load-reads",
        "--duration",
        "4s",
        "--read-consistency=off,before",
        "--json",
    ];
    let document = run(&sandbox, &tool, &args(&sandbox, true, &more))
        .with_code(0)
        .json();
    assert_eq!(rows(&document).len(), 4);
    for row in rows(&document) {
        assert_eq!(
            (row["writer"].as_str(), row["null_replica"].as_bool()),
            (Some("node1, node2"), Some(false))
        );
        assert!(number(&row["rounds"]) > 20, "{row:#}");
        consistent(row);
    }
    for row in of(&document, "before", "keep") {
        assert_eq!(number(&row["stale"]), 0, "{row:#}");
    }
    assert!(
        !warned(&document, "changed-by-others"),
        "certification lets no version be given twice: {document:#}"
    );
    assert!(sandbox.nodes().iter().all(clean));
}

fn replica_killed_under_checked_load_ends_the_run() {
    let sandbox = start("mariadb/async:1", &[]);
    let primary = &sandbox.nodes()[0];
    let tool = TestEnvironment::new();
    let args = args(
        &sandbox,
        false,
        &[
            "--check-load-reads",
            "1:2",
            "--rate",
            "300",
            "--duration",
            "60s",
            "--json",
        ],
    );
    let ended = thread::scope(|scope| {
        let child = tool
            .command(&args)
            .env("REPLIMETER_PASSWORD", password(primary))
            .spawn()
            .unwrap();
        scope.spawn(|| {
            wait_until("versions are written and judged", LIMIT, || {
                let there =
                    "SELECT 1 FROM information_schema.tables WHERE table_schema = 'replimeter' AND table_name = 'load_versioned'";
                value(primary, there).is_some()
                    && value(primary, "SELECT SUM(v) > 1200 FROM replimeter.load_versioned").as_deref() == Some("1")
            });
            let replica = Pid::from_raw(i32::try_from(sandbox.pids()[1]).unwrap()).unwrap();
            kill_process(replica, Signal::KILL).unwrap();
        });
        wait(child, LIMIT)
    });
    let ended = ended.with_code(3).stderr_contains("replica1");
    let document = ended.json();
    assert_eq!(document["status"], "failed");
    assert!(
        number(&document["results"]["rows"][0]["rounds"]) > 50,
        "{document:#}"
    );
}

fn unknown_names_are_usage_errors_before_start() {
    let tool = TestEnvironment::new();
    for (more, what) in [
        (&["--load", "insert:1@node9"][..], "the load"),
        (&["--reader", "node7"], "the reader"),
        (&["--writer", "primary7"], "the writer"),
    ] {
        let mut args = vec!["stale", "--sandbox", "galera:3"];
        args.extend(more);
        let ended = tool.run(&args).with_code(2).stderr_contains(what);
        assert!(ended.stderr.contains("node1, node2, node3"), "{ended:#?}");
    }
    let _ = tool
        .run(&["stale", "--session-reset", "reset"])
        .with_code(2)
        .stderr_contains("read-consistency");
    let _ = tool
        .run(&["stale", "--check-load-reads", "2:2", "--rounds", "5"])
        .with_code(2)
        .stderr_contains("give a duration");
    let _ = tool
        .run(&["stale", "--check-load-reads", "--duration", "5s"])
        .with_code(2)
        .stderr_contains("add load");
    let _ = tool
        .run(&[
            "stale",
            "--check-load-reads",
            "2:2",
            "--read-consistency=gtid",
        ])
        .with_code(2)
        .stderr_contains("one more");
    assert!(tool.runs().is_empty());
    let ended = tool
        .run(&[
            "stale",
            "--sandbox",
            "async:1",
            "--load",
            "insert:1@replica1",
            "--rounds",
            "5",
        ])
        .with_code(2);
    assert!(ended.stderr.contains("accepts no writes"), "{ended:#?}");
}

/// Runs while somebody does something on the servers in the middle of it.
fn meanwhile(
    sandbox: &Sandbox,
    tool: &TestEnvironment,
    args: &[String],
    act: impl FnOnce() + Send,
) -> CommandOutput {
    let primary = &sandbox.nodes()[0];
    thread::scope(|scope| {
        let child = tool
            .command(args)
            .env("REPLIMETER_PASSWORD", password(primary))
            .spawn()
            .unwrap();
        scope.spawn(move || {
            wait_until("rounds are measured", LIMIT, || {
                let ours =
                    "SELECT 1 FROM information_schema.tables WHERE table_schema = 'replimeter' AND table_name = 'lag_probe'";
                value(primary, ours).is_some()
                    && value(primary, "SELECT MAX(k) > 100 FROM replimeter.lag_probe").as_deref() == Some("1")
            });
            act();
        });
        wait(child, LIMIT)
    })
}

fn external_writes_are_distinguished() {
    let sandbox = start("mariadb/galera:3", &[]);
    let nodes = sandbox.nodes();
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let tool = TestEnvironment::new();
    let more = ["--rounds", "4000", "--read-delays", "none", "--json"];
    // Another node writes the same rows: certification conflicts, and values that are not ours.
    let ended = meanwhile(&sandbox, &tool, &args(&sandbox, true, &more), || {
        let mut other: Session = session(&nodes[1]);
        for id in (1..200).cycle().step_by(2).take(3000) {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            // It may lose as well, and at the end the table is gone.
            let done = other.run(
                "test",
                &format!("UPDATE replimeter.lag_probe SET k = 9000000 + k % 1000 WHERE id = {id}"),
            );
            written.fetch_add(u64::from(done.is_ok()), Ordering::Relaxed);
        }
    });
    stop.store(true, Ordering::Relaxed);
    let document = ended.with_code(0).json();
    assert!(written.load(Ordering::Relaxed) > 0);
    let foreign: u64 = rows(&document)
        .iter()
        .map(|row| number(&row["foreign"]))
        .sum();
    assert!(
        foreign > 0 && warned(&document, "changed-by-others"),
        "{document:#}"
    );
    for row in rows(&document) {
        assert!(number(&row["rounds"]) > 0);
        consistent(row);
    }
}

fn external_rollback_is_not_counted_as_stale() {
    let sandbox = start("mariadb/galera:3", &[]);
    let tool = TestEnvironment::new();
    let nodes = sandbox.nodes();
    for more in [
        &["--rows", "50", "--rounds", "1200"][..],
        &[
            "--rows",
            "1",
            "--rounds",
            "800",
            "--read-consistency=before",
            "--timeout",
            "3s",
        ],
    ] {
        let mut given = vec!["--reader", "node2", "--read-delays", "none", "--json"];
        given.extend(more);
        let ended = meanwhile(&sandbox, &tool, &args(&sandbox, true, &given), || {
            let mut other: Session = session(&nodes[0]);
            for _ in 0..40 {
                // It may lose, and at the end the table is gone.
                let _ = other.run("test", "UPDATE replimeter.lag_probe SET k = 0");
                thread::sleep(Duration::from_millis(30));
            }
        });
        let document = ended.with_code(0).json();
        let row = &rows(&document)[0];
        assert!(
            number(&row["foreign"]) > 0 && warned(&document, "changed-by-others"),
            "{document:#}"
        );
        assert_eq!(
            number(&row["violations"]["monotonic_same_connection"]),
            0,
            "nobody went back: {row:#}"
        );
        // The next round begins when the last one was shown: more than one version behind cannot be.
        assert!(
            row["versions_behind"]
                .as_array()
                .unwrap()
                .iter()
                .all(|behind| number(&behind["versions"]) == 1),
            "{row:#}"
        );
        let warnings = document["warnings"].as_array().unwrap();
        assert_eq!(
            warnings
                .iter()
                .filter(|warning| warning["code"] == "changed-by-others")
                .count(),
            1,
            "{warnings:#?}"
        );
        assert!(number(&row["rounds"]) > 100, "{row:#}");
        consistent(row);
    }
}

fn stalled_reader_ends_the_run_and_keeps_results() {
    let sandbox = start("mariadb/async:1", &[]);
    let replica = &sandbox.nodes()[1];
    let tool = TestEnvironment::new();
    let more = ["--rounds", "1000000", "--timeout", "2s", "--json"];
    let ended = meanwhile(&sandbox, &tool, &args(&sandbox, false, &more), || {
        sql(replica, "STOP SLAVE SQL_THREAD")
    });
    let ended = ended
        .with_code(3)
        .stderr_contains("replica1")
        .stderr_contains("still showed an older version")
        .stderr_contains("SQL thread No");
    let document = ended.json();
    assert_eq!(document["status"], "failed");
    assert!(
        number(&document["results"]["rows"][0]["rounds"]) > 50,
        "{document:#}"
    );
    assert!(clean(&sandbox.nodes()[0]));
    sql(replica, "START SLAVE SQL_THREAD");
}

fn leaving_member_is_named_although_not_read() {
    let sandbox = start("mariadb/galera:3", &[]);
    let tool = TestEnvironment::new();
    let more = [
        "--reader",
        "node2",
        "--duration",
        "12s",
        "--read-delays",
        "none",
        "--read-consistency=before",
        "--json",
    ];
    let ended = meanwhile(&sandbox, &tool, &args(&sandbox, true, &more), || {
        let third = Pid::from_raw(i32::try_from(sandbox.pids()[2]).unwrap()).unwrap();
        kill_process(third, Signal::KILL).unwrap();
    });
    let document = ended.with_code(0).json();
    let warnings = document["warnings"].as_array().unwrap();
    let lost = warnings
        .iter()
        .find(|warning| warning["code"] == "server-lost");
    assert!(
        lost.is_some_and(|lost| lost["message"].as_str().unwrap().contains("node3")),
        "{warnings:#?}"
    );
    assert!(!warnings.iter().any(|warning| {
        warning["message"]
            .as_str()
            .unwrap()
            .contains("it will when replication resumes")
    }));
}

fn unsupported_read_consistency_is_omitted() {
    let sandbox = start("mariadb/async:1", &[]);
    let tool = TestEnvironment::new();
    let more = [
        "--rounds",
        "200",
        "--read-delays",
        "none",
        "--read-consistency=off,before",
        "--json",
    ];
    let document = run(&sandbox, &tool, &args(&sandbox, false, &more))
        .with_code(0)
        .json();
    assert_eq!(
        (rows(&document).len(), warned(&document, "case-left-out")),
        (1, true),
        "{document:#}"
    );
}
