//! Crashes of real servers: lost writes, surviving writes, and the server that takes over.

use std::{process::Child, time::Duration};

use replimeter_suites::{
    CommandOutput, LIMIT, TestEnvironment, harness::Test, test, wait, wait_until,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

pub(crate) const TESTS: &[Test] = &[
    // After each crash the old primary is restarted.
    test!(async_loses_writes_acknowledged_after_the_cut).starts(3),
    test!(async_loses_writes_on_mysql_after_the_cut).starts(3),
    test!(semi_sync_after_commit_shows_writes_that_are_lost).starts(3),
    test!(semi_sync_after_sync_shows_no_write_that_is_lost).starts(3),
    test!(semi_sync_loses_nothing_and_wait_points_differ)
        .starts(4)
        .long(),
    test!(semi_sync_wait_points_differ_on_mysql)
        .starts(4)
        .long(),
    test!(semi_sync_primary_that_falls_back_loses_writes).starts(3),
    test!(cluster_loses_no_acknowledged_write).starts(4),
    test!(group_loses_no_acknowledged_write).starts(4).long(),
    test!(most_advanced_replica_takes_over).starts(4),
    test!(loss_refuses_unsafe_or_impossible_targets),
    test!(interrupted_loss_leaves_no_server).starts(3),
    test!(interrupted_loss_keeps_crashes_and_leaves_no_server)
        .starts(4)
        .long(),
];

/// Crashes of a MySQL group take long on a busy machine.
const CRASHES_LIMIT: Duration = Duration::from_secs(600);
/// Few rows, and three seconds in which one is acknowledged even if the machine stalls.
const WRITES: [&str; 6] = ["--duration", "3s", "--rate", "200", "--writers", "4"];
/// A partition that lasts long enough for a write and a read during a stall of the machine.
const PARTITION: [&str; 4] = ["--crash", "partition", "--kill-delay", "3s"];

fn loss(args: &[&str]) -> CommandOutput {
    let tool = TestEnvironment::new();
    let all = [&["loss"], args, &WRITES].concat();
    wait(tool.command(&all).spawn().unwrap(), CRASHES_LIMIT)
}

fn count(value: &Value, key: &str) -> u64 {
    value[key]
        .as_u64()
        .unwrap_or_else(|| panic!("{key} is missing in {value}"))
}

/// Checks what holds for every row, regardless of the crash.
fn consistent(document: &Value) {
    assert_eq!(document["schema"], "replimeter.loss/1");
    for row in document["results"]["rows"].as_array().unwrap() {
        let crashes: Vec<&Value> = document["results"]["crashes"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|crash| crash["shape"] == row["shape"])
            .collect();
        assert_eq!(count(row, "crashes"), crashes.len() as u64);
        for key in [
            "acknowledged",
            "lost",
            "seen_then_lost",
            "unacknowledged_present",
        ] {
            assert_eq!(
                count(row, key),
                crashes.iter().map(|crash| count(crash, key)).sum::<u64>(),
                "{key}"
            );
        }
        assert!(count(row, "acknowledged") > 0);
        let lossy = crashes
            .iter()
            .filter(|crash| count(crash, "lost") > 0)
            .count() as u64;
        assert_eq!(count(&row["lossy"], "count"), lossy);
        assert!(
            row["lossy"]["percent_ci95"][1].as_f64().unwrap() > 0.0,
            "zero never without an upper bound"
        );
        for crash in crashes {
            assert!(count(crash, "lost") <= count(crash, "acknowledged"));
            assert_eq!(
                count(crash, "begun"),
                count(crash, "acknowledged") + count(crash, "unacknowledged")
            );
            assert!(count(crash, "seen_then_lost") <= count(crash, "seen"));
            assert!(
                crash["recovery_us"].as_f64().unwrap() >= crash["promoted_us"].as_f64().unwrap()
            );
            assert!(crash["return_error"].is_null(), "{crash}");
            let errant = &crash["errant"];
            // After SIGKILL only, the old primary has every write that it acknowledged.
            assert_eq!(
                count(errant, "acknowledged"),
                count(crash, "lost"),
                "{crash}"
            );
            assert!(count(errant, "rows") >= count(crash, "lost"));
        }
    }
}

fn async_loses_writes_acknowledged_after_the_cut() {
    lose_writes_after_the_cut("mariadb");
}

fn async_loses_writes_on_mysql_after_the_cut() {
    lose_writes_after_the_cut("mysql");
}

fn lose_writes_after_the_cut(engine: &str) {
    let shape = format!("{engine}/async:1");
    let args = ["--sandbox", &shape, "--crashes", "1", "--json"];
    let document = loss(&[&args[..], &PARTITION].concat()).with_code(0).json();
    consistent(&document);
    let row = &document["results"]["rows"][0];
    assert_eq!(
        (
            row["engine"].as_str(),
            row["mode"].as_str(),
            row["crash"].as_str()
        ),
        (Some(engine), Some("async"), Some("partition"))
    );
    for crash in document["results"]["crashes"].as_array().unwrap() {
        assert!(count(crash, "lost_after_cut") > 0, "{crash}");
        assert!(count(crash, "seen_then_lost") > 0, "{crash}");
        assert!(
            !crash["errant"]["gtids"].as_str().unwrap().is_empty(),
            "{crash}"
        );
        assert!(
            count(&crash["errant"], "transactions") >= count(crash, "lost"),
            "{crash}"
        );
    }
}

fn semi_sync_after_commit_shows_writes_that_are_lost() {
    let point = ["--wait-point", "after-commit", "--crashes", "1"];
    let document = lose_nothing("mariadb", &point);
    after_commit(&document, &document["results"]["rows"][0]);
}

fn semi_sync_after_sync_shows_no_write_that_is_lost() {
    let point = ["--wait-point", "after-sync", "--crashes", "1"];
    let document = lose_nothing("mariadb", &point);
    after_sync(&document, &document["results"]["rows"][0]);
}

fn semi_sync_loses_nothing_and_wait_points_differ() {
    wait_points_differ("mariadb", "2");
}

fn semi_sync_wait_points_differ_on_mysql() {
    wait_points_differ("mysql", "1");
}

fn wait_points_differ(engine: &str, crashes: &str) {
    let document = lose_nothing(engine, &["--crashes", crashes]);
    let rows = document["results"]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2, "{document}");
    let point = |point: &str| rows.iter().find(|row| row["wait_point"] == point).unwrap();
    after_commit(&document, point("after-commit"));
    after_sync(&document, point("after-sync"));
}

/// Cuts a semi-synchronous primary off; its writers wait for a replica, and nothing acknowledged is lost.
fn lose_nothing(engine: &str, more: &[&str]) -> Value {
    let shape = format!("{engine}/semi-sync:1");
    let args = ["--sandbox", &shape, "--json"];
    let document = loss(&[&args[..], more, &PARTITION].concat());
    let document = document.with_code(0).json();
    consistent(&document);
    for row in document["results"]["rows"].as_array().unwrap() {
        assert_eq!(
            (
                row["mode"].as_str(),
                count(row, "lost"),
                count(row, "fallen_back")
            ),
            (Some("semi-sync"), 0, 0)
        );
    }
    document
}

/// Rows for which writers wait are visible.
fn after_commit(document: &Value, row: &Value) {
    assert_eq!(row["wait_point"], "after-commit");
    assert!(count(row, "seen_then_lost") > 0, "{document}");
    assert_eq!(
        count(row, "seen_unacknowledged_lost"),
        count(row, "seen_then_lost")
    );
}

/// They are not.
fn after_sync(document: &Value, row: &Value) {
    assert_eq!(row["wait_point"], "after-sync");
    assert_eq!(count(row, "seen_then_lost"), 0, "{document}");
    assert!(
        count(row, "errant_rows") > 0,
        "what waited is in the old primary's log: {document}"
    );
}

fn semi_sync_primary_that_falls_back_loses_writes() {
    let option = "rpl_semi_sync_master_timeout=50";
    let args = [
        "--sandbox",
        "mariadb/semi-sync:1",
        "--wait-point",
        "after-sync",
        "--server-option",
        option,
        "--crashes",
        "1",
        "--json",
    ];
    let document = loss(&[&args[..], &PARTITION].concat()).with_code(0).json();
    let row = &document["results"]["rows"][0];
    assert!(
        count(row, "lost") > 0 && count(row, "fallen_back") == 1,
        "{row}"
    );
    let warned = document["warnings"]
        .as_array()
        .unwrap()
        .iter()
        .any(|warning| warning["code"] == "semi-sync-not-in-effect");
    assert!(warned, "{document}");
}

fn cluster_loses_no_acknowledged_write() {
    members_lose_nothing("galera:3");
}

fn group_loses_no_acknowledged_write() {
    members_lose_nothing("group:3");
}

fn members_lose_nothing(shape: &str) {
    let document = loss(&["--sandbox", shape, "--crashes", "1", "--json"])
        .with_code(0)
        .json();
    consistent(&document);
    let row = &document["results"]["rows"][0];
    assert_eq!(
        (count(row, "lost"), count(row, "seen_then_lost")),
        (0, 0),
        "{document}"
    );
    assert!(row["recovery_us"].as_f64().unwrap() > 0.0);
}

fn most_advanced_replica_takes_over() {
    let tool = TestEnvironment::new();
    let args = ["loss", "--sandbox", "mariadb/async:2", "--crashes", "1"];
    let args = [&args[..], &WRITES].concat();
    let ended = wait(tool.command(&args).spawn().unwrap(), LIMIT).with_code(0);
    let words = ended.words();
    assert!(
        words.contains("Lost transactions and recovery") && words.contains("replica"),
        "{words}"
    );
    let run = tool.only_run();
    for file in [
        "plan.toml",
        "manifest.json",
        "samples.parquet",
        "summary.json",
        "report.html",
    ] {
        assert!(run.join(file).exists(), "{file}");
    }
    let again = tool.run(&["report", run.to_str().unwrap()]).with_code(0);
    assert!(
        again.words().contains("Lost transactions and recovery"),
        "{again:#?}"
    );
    let planned = tool
        .run(&["run", "--dry-run", run.join("plan.toml").to_str().unwrap()])
        .with_code(0);
    assert!(planned.stdout.contains("crashes = 1"), "{planned:#?}");
}

fn loss_refuses_unsafe_or_impossible_targets() {
    let tool = TestEnvironment::new();
    let urls = ["loss", "--primary", "mysql://a/", "--replica", "mysql://b/"];
    let _ = tool
        .run(&urls)
        .with_code(2)
        .stderr_contains("only sandboxes that it starts")
        .stderr_contains("exposure");
    let _ = tool
        .run(&["loss", "--sandbox", "work"])
        .with_code(2)
        .stderr_contains("or a running sandbox");
    for shape in ["none", "galera:1", "group:1"] {
        let _ = tool
            .run(&["loss", "--sandbox", shape])
            .with_code(2)
            .stderr_contains("has no replica");
    }
    let _ = tool
        .run(&["loss", "--kill-delay", "1s"])
        .with_code(2)
        .stderr_contains("requires crash");
    assert!(tool.runs().is_empty());
}

/// Starts many crashes.
fn many_crashes(tool: &TestEnvironment) -> Child {
    let args = ["loss", "--sandbox", "mariadb/async:1"];
    let more = ["--crashes", "500", "--json"];
    let mut command = tool.command(&[&args[..], &more, &WRITES].concat());
    command.spawn().unwrap()
}

fn interrupted_loss_leaves_no_server() {
    let tool = TestEnvironment::new();
    let child = many_crashes(&tool);
    wait_until("the first crash has its servers", LIMIT, || {
        tool.servers().len() == 2
    });
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let _ = wait(child, LIMIT).with_code(130);
    assert_eq!(tool.servers(), Vec::<i32>::new());
}

fn interrupted_loss_keeps_crashes_and_leaves_no_server() {
    let tool = TestEnvironment::new();
    let child = many_crashes(&tool);
    // Each crash has two servers of its own; one that creates a data directory runs alone.
    let mut generations: Vec<Vec<i32>> = Vec::new();
    wait_until("the second crash has its servers", LIMIT, || {
        let servers = tool.servers();
        let new = generations
            .last()
            .is_none_or(|last| servers.iter().all(|server| !last.contains(server)));
        if new && servers.len() == 2 {
            generations.push(servers);
        }
        generations.len() > 1
    });
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let document = wait(child, LIMIT).with_code(130).json();
    assert_eq!(document["status"], "interrupted");
    assert!(count(&document["results"]["rows"][0], "crashes") >= 1);
    assert_eq!(tool.servers(), Vec::<i32>::new());
}
