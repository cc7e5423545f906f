//! Stale reads during a load, and reads of the load itself.

use std::{fs, thread};

use replimeter_suites::{
    LIMIT, TestEnvironment, clean, password, shared, start, value, wait, wait_until,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{args, consistent, float, number, of, rows, run, warned};

pub(super) fn staleness_counts_versions_under_load() {
    let sandbox = shared("mariadb/async:1", &[]);
    let tool = TestEnvironment::new();
    let more = [
        "--pace",
        "ack",
        "--rows",
        "1",
        "--rounds",
        "1000",
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
    // Every window has its latency, next to that of the rounds.
    let series = document["results"]["timelines"].as_array().unwrap();
    let windows = series
        .iter()
        .find(|timeline| timeline["load"] == "insert:2@writer")
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
    wait_until("the schema is removed from every server", LIMIT, || {
        sandbox.nodes().iter().all(clean)
    });
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

pub(super) fn load_reads_are_checked() {
    let sandbox = shared("mariadb/async:2", &[]);
    let tool = TestEnvironment::new();
    let more = [
        "--check-load-reads",
        "2:2",
        "--duration",
        "2s",
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
            number(&row["rounds"]) > 0 && number(&row["write_latency"]["count"]) > 0,
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
    wait_until("the schema is removed from every server", LIMIT, || {
        sandbox.nodes().iter().all(clean)
    });
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
    fs::write(&file, text).unwrap();
    let load = format!("{}:2@primary", file.display());
    let more = [
        "--load",
        &load,
        "--check-load-reads",
        "--duration",
        "1s",
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
        number(&row["rounds"]) > 0 && number(&row["write_latency"]["count"]) > 0,
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
    wait_until("the schema is removed from every server", LIMIT, || {
        sandbox.nodes().iter().all(clean)
    });
}

pub(super) fn load_reads_on_every_cluster_node_are_checked() {
    let sandbox = shared("mariadb/galera:3", &[]);
    let tool = TestEnvironment::new();
    let more = [
        "--load",
        "versioned:2@node1",
        "--load",
        "versioned:2@node2",
        "--check-load-reads",
        "--duration",
        "1s",
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
        assert!(number(&row["rounds"]) > 0, "{row:#}");
        consistent(row);
    }
    for row in of(&document, "before", "keep") {
        assert_eq!(number(&row["stale"]), 0, "{row:#}");
    }
    assert!(
        !warned(&document, "changed-by-others"),
        "certification lets no version be given twice: {document:#}"
    );
    wait_until("the schema is removed from every server", LIMIT, || {
        sandbox.nodes().iter().all(clean)
    });
}

pub(super) fn replica_killed_under_checked_load_ends_the_run() {
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
            "600s",
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
        number(&document["results"]["rows"][0]["rounds"]) > 0,
        "{document:#}"
    );
}

/// Two connections run at most 40 statements of 50 ms in a second, and a few less unless the machine stalls.
pub(super) fn share_of_a_rate_is_of_what_the_load_reaches() {
    const MOST: f64 = 40.0;
    let sandbox = shared("mariadb/async:1", &[]);
    let tool = TestEnvironment::new();
    let file = tool.folder().join("slow.toml");
    fs::write(&file, "[[statement]]\nsql = 'SELECT SLEEP(0.05)'").unwrap();
    let load = format!("{}:2@primary", file.display());
    let words = "--duration 2s --read-delays none --json --load";
    let words: Vec<&str> = words.split(' ').chain([load.as_str()]).collect();
    let measure = |rate: &[&str]| {
        let more = [&words[..], rate].concat();
        let ended = run(&sandbox, &tool, &args(&sandbox, false, &more));
        let load = &ended.with_code(0).json()["results"]["load"][0];
        (load["rate"].as_f64(), float(&load["throughput"]["mean"]))
    };
    // Back to back.
    let (rate, reached) = measure(&[]);
    assert!(rate.is_none() && reached > 0.0, "{rate:?} and {reached}");
    assert!(reached < 1.1 * MOST, "{reached}");
    // A trial of three seconds in which the machine stalls finds less, or nothing.
    let share = |percent: &str, share: f64, least: f64| {
        let found = (0..5).find_map(|_| {
            let (rate, reached) = measure(&["--rate", percent]);
            let rate = rate.unwrap_or_default();
            assert!(rate <= share * 1.05 * MOST + 0.5, "{rate}");
            // One more in each second than are due.
            let most = if rate > 0.0 { rate + 1.0 } else { 1.1 * MOST };
            assert!(reached < most + 1.0, "{rate} and {reached}");
            assert!(reached > 0.0 || rate < 2.0, "{rate} and {reached}");
            (rate > least).then_some(rate)
        });
        found.unwrap_or_else(|| panic!("no rate of {percent} is above {least}"))
    };
    let small = share("20%", 0.2, 0.0);
    let _ = share("90%", 0.9, 2.0 * small);
    let more = [&words[..], &["--rate", "101%"]].concat();
    let _ = run(&sandbox, &tool, &args(&sandbox, false, &more))
        .with_code(2)
        .stderr_contains("is not a rate");
}
