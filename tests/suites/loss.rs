//! Crashes of real servers: lost writes, surviving writes, and the server that takes over.

use std::time::Duration;

use replimeter_suites::{CommandOutput, TestEnvironment, harness::Test, test, wait, wait_until};
use serde_json::Value;

pub(crate) const TESTS: &[Test] = &[
    test!(async_loses_writes_acknowledged_after_the_cut).alone(),
    test!(semi_sync_loses_nothing_and_wait_points_differ),
    test!(semi_sync_wait_points_differ_on_mysql).long(),
    test!(semi_sync_primary_that_falls_back_loses_writes),
    test!(cluster_loses_no_acknowledged_write),
    test!(group_loses_no_acknowledged_write).long(),
    test!(most_advanced_replica_takes_over),
    test!(loss_refuses_unsafe_or_impossible_targets),
    test!(interrupted_loss_keeps_crashes_and_leaves_no_server),
];

/// Runs `loss`, with a long time limit: crashes of a MySQL group take long on a busy machine.
fn loss(args: &[&str]) -> CommandOutput {
    let tool = TestEnvironment::new();
    let mut all = vec!["loss"];
    all.extend(args);
    wait(
        tool.command(&all).spawn().unwrap(),
        Duration::from_secs(600),
    )
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
    for engine in ["mariadb", "mysql"] {
        let shape = format!("{engine}/async:1");
        let args = [
            "--sandbox",
            &shape,
            "--crash",
            "partition",
            "--crashes",
            "2",
            "--kill-delay",
            "300ms",
            "--json",
        ];
        let document = loss(&args).with_code(0).json();
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
}

fn semi_sync_loses_nothing_and_wait_points_differ() {
    semi_synchronous_wait_points("mariadb");
}

fn semi_sync_wait_points_differ_on_mysql() {
    semi_synchronous_wait_points("mysql");
}

fn semi_synchronous_wait_points(engine: &str) {
    let shape = format!("{engine}/semi-sync:1");
    let args = [
        "--sandbox",
        &shape,
        "--crash",
        "partition",
        "--crashes",
        "2",
        "--json",
    ];
    let document = loss(&args).with_code(0).json();
    consistent(&document);
    let rows = document["results"]["rows"].as_array().unwrap();
    let point = |point: &str| rows.iter().find(|row| row["wait_point"] == point).unwrap();
    for row in rows {
        assert_eq!(
            (
                row["mode"].as_str(),
                count(row, "lost"),
                count(row, "fallen_back")
            ),
            (Some("semi-sync"), 0, 0)
        );
    }
    // Writers wait for a replica that is cut off; only after-commit shows their rows during this time.
    let seen = |row: &Value| count(row, "seen_then_lost");
    assert!(seen(point("after-commit")) > 0, "{document}");
    assert_eq!(seen(point("after-sync")), 0, "{document}");
    assert_eq!(
        count(point("after-commit"), "seen_unacknowledged_lost"),
        seen(point("after-commit"))
    );
    assert!(
        count(point("after-sync"), "errant_rows") > 0,
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
        "--crash",
        "partition",
        "--kill-delay",
        "1s",
    ];
    let more = ["--server-option", option, "--crashes", "1", "--json"];
    let document = loss(&[&args[..], &more[..]].concat()).with_code(0).json();
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
    let args = [
        "loss",
        "--sandbox",
        "mariadb/async:2",
        "--crashes",
        "1",
        "--rate",
        "500",
        "--markdown",
    ];
    let args: Vec<&str> = args
        .into_iter()
        .filter(|arg| *arg != "--markdown")
        .collect();
    let ended = wait(
        tool.command(&args).spawn().unwrap(),
        Duration::from_secs(120),
    )
    .with_code(0);
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

fn interrupted_loss_keeps_crashes_and_leaves_no_server() {
    use rustix::process::{Pid, Signal, kill_process};
    let tool = TestEnvironment::new();
    let child = tool
        .command(&[
            "loss",
            "--sandbox",
            "mariadb/async:1",
            "--crashes",
            "500",
            "--duration",
            "100ms",
            "--json",
        ])
        .spawn()
        .unwrap();
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    // Each crash has its own servers; before the first, servers may run to create their data directories.
    let mut generations: Vec<Vec<i32>> = Vec::new();
    wait_until("two crashes are over", Duration::from_secs(120), || {
        let servers = tool.servers();
        let new = generations
            .last()
            .is_none_or(|last| servers.iter().all(|server| !last.contains(server)));
        if new && servers.len() == 2 {
            generations.push(servers);
        }
        generations.len() > 3
    });
    kill_process(pid, Signal::INT).unwrap();
    let ended = wait(child, Duration::from_secs(60));
    assert_eq!(ended.code, Some(130), "{ended:#?}");
    if !ended.stdout.is_empty() {
        let document = ended.json();
        assert_eq!(document["status"], "interrupted");
        assert!(count(&document["results"]["rows"][0], "crashes") >= 1);
    }
    assert_eq!(tool.servers(), Vec::<i32>::new());
}
