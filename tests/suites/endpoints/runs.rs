//! Runs that complete, are interrupted, or run concurrently: what they store and remove.

use std::{collections::BTreeMap, fs, path::Path};

use replimeter_engine::Node;
use replimeter_suites::{
    LIMIT, TestEnvironment,
    binlog::{BinlogEvent, binlog_end, transactions_since},
    clean, sql, value, wait,
};
use rustix::process::{Signal, kill_process};

use super::{ADMIN, Cluster, await_rows, kill, pid, tables, under_way};

pub(super) fn lag_measures_and_leaves_nothing(cluster: &Cluster) {
    let tool = TestEnvironment::new();
    let document = cluster
        .run(&tool, &["--rounds", "100", "--interval", "2ms", "--json"])
        .with_code(0)
        .json();
    assert_eq!(document["schema"], "replimeter.lag/1");
    assert_eq!(document["target"]["shape"], "endpoints:1");
    let row = &document["results"]["rows"][0];
    assert_eq!(
        (row["rounds"].as_u64(), row["timed_out"].as_u64()),
        (Some(100), Some(0))
    );
    cluster.assert_clean();
}

pub(super) fn user_schema_is_kept(cluster: &Cluster) {
    sql(cluster.primary(), "CREATE DATABASE replimeter");
    sql(
        cluster.primary(),
        "CREATE TABLE replimeter.notes (mine INT)",
    );
    cluster.settle();
    let _ = cluster
        .run(&TestEnvironment::new(), &["--rounds", "10"])
        .with_code(0);
    let tables = "SELECT GROUP_CONCAT(table_name) FROM information_schema.tables WHERE table_schema = 'replimeter'";
    for node in cluster.sandbox.nodes() {
        assert_eq!(value(node, tables).as_deref(), Some("notes"));
    }
    sql(cluster.primary(), "DROP DATABASE replimeter");
}

pub(super) fn leftover_of_an_earlier_run_is_removed(cluster: &Cluster) {
    let tool = TestEnvironment::new();
    kill(cluster, under_way(cluster, &tool, &[]));
    assert!(
        !clean(cluster.primary()),
        "a killed tool cannot clean up on the user's servers"
    );
    let ended = cluster
        .run(&TestEnvironment::new(), &["--rounds", "5", "--json"])
        .with_code(0);
    let warnings = ended.json()["warnings"].to_string();
    assert!(warnings.contains("leftover-removed"), "{warnings}");
}

pub(super) fn second_concurrent_run_is_refused(cluster: &Cluster) {
    let tool = TestEnvironment::new();
    let child = under_way(cluster, &tool, &[]);
    let _ = cluster
        .run(&TestEnvironment::new(), &[])
        .with_code(3)
        .stderr_contains("another Replimeter run is measuring this server");
    kill_process(pid(&child), Signal::INT).unwrap();
    let ended = wait(child, LIMIT).with_code(130);
    cluster.clean_or_named(&ended);
}

pub(super) fn interrupted_run_keeps_results_and_cleans_up(cluster: &Cluster) {
    let removed = [Signal::INT, Signal::TERM, Signal::HUP].map(|signal| {
        let tool = TestEnvironment::new();
        let child = under_way(cluster, &tool, &["--json"]);
        kill_process(pid(&child), signal).unwrap();
        let ended = wait(child, LIMIT)
            .with_code(130)
            .stderr_contains("interrupted");
        let document = ended.json();
        assert_eq!(document["status"], "interrupted");
        assert!(document["results"]["rows"][0]["rounds"].as_u64().unwrap() > 20);
        let run = tool.only_run();
        assert_rendered_again(&tool, &run);
        cluster.clean_or_named(&ended)
    });
    assert!(removed.contains(&true), "every run left its schema");
}

pub(super) fn interruption_in_the_warm_up_measures_nothing(cluster: &Cluster) {
    let tool = TestEnvironment::new();
    let mut args = cluster.args(ADMIN, &["--json"]);
    let warm_up = args.iter().position(|arg| arg == "--warm-up").unwrap() + 1;
    "1000s".clone_into(&mut args[warm_up]);
    let mut command = tool.command(&args);
    command.env("REPLIMETER_PASSWORD", cluster.password());
    let child = command.spawn().unwrap();
    await_rows(cluster.primary());
    kill_process(pid(&child), Signal::INT).unwrap();
    let ended = wait(child, LIMIT)
        .with_code(130)
        .stderr_contains("interrupted before anything was measured; the run directory has only");
    let document = ended.json();
    assert_eq!(document["status"], "interrupted");
    assert_eq!(document["measured_us"].as_f64(), Some(0.0));
    let shown = document.to_string();
    assert!(!shown.contains("partial"), "{shown}");
    cluster.clean_or_named(&ended);
}

fn assert_rendered_again(tool: &TestEnvironment, run: &Path) {
    fs::remove_file(run.join("report.html")).unwrap();
    let ended = tool.run(&["report", run.to_str().unwrap()]).with_code(0);
    assert!(
        ended.words().contains("The run was interrupted"),
        "{ended:#?}"
    );
    assert!(run.join("report.html").exists());
}

pub(super) fn panic_still_cleans_up(cluster: &Cluster) {
    let panicked = || {
        let tool = TestEnvironment::new();
        let mut command = tool.command(&cluster.args(ADMIN, &["--duration", "1000s"]));
        command
            .env("REPLIMETER_PASSWORD", cluster.password())
            .env("REPLIMETER_FAULT", "panic-while-measuring");
        let _ = wait(command.spawn().unwrap(), LIMIT).with_code(101);
        assert_eq!(tables(cluster.primary()), None);
        let removed = clean(cluster.primary());
        sql(cluster.primary(), "DROP DATABASE IF EXISTS replimeter");
        removed
    };
    // The schema stays if a replica takes longer than a second to show that nothing else is in it.
    assert!(
        (0..3).any(|_| panicked()),
        "the schema was left three times"
    );
}

/// Returns the number of rows that each deleting transaction of the primary's binary log deletes, after a place in it. The log must
/// have row events with the key only (`binlog_row_image=MINIMAL`).
fn deleted_rows(node: &Node, since: &BTreeMap<String, u64>) -> Vec<u64> {
    /// Bytes of an event of deleted rows without the rows: header, table, flags, columns, checksum.
    const FRAME: u64 = 19 + 6 + 2 + 1 + 1 + 4;
    /// Bytes of a deleted row: its null columns and the key.
    const ROW: u64 = 1 + 8;
    let rows = |event: &BinlogEvent| {
        let bytes = event.bytes - FRAME;
        assert_eq!(bytes % ROW, 0, "{event:?}");
        bytes / ROW
    };
    let transactions = transactions_since(node, since).into_iter();
    transactions
        .map(|events| {
            let deletes = events.iter().filter(|event| event.kind == "Delete_rows_v1");
            deletes.map(rows).sum()
        })
        .filter(|rows| *rows > 0)
        .collect()
}

/// Sets global variables of a server; returns their former values.
fn set(node: &Node, settings: &[(&'static str, String)]) -> Vec<(&'static str, String)> {
    let set = |(name, wanted): &(&'static str, String)| {
        let former = value(node, &format!("SELECT @@GLOBAL.{name}")).unwrap();
        sql(node, &format!("SET GLOBAL {name} = {wanted}"));
        (*name, former)
    };
    settings.iter().map(set).collect()
}

pub(super) fn tiny_rows_are_removed_in_small_transactions(cluster: &Cluster) {
    let (primary, replica) = (cluster.primary(), cluster.replica());
    let with_value = |(name, value): (&'static str, &str)| (name, value.to_owned());
    let flushes = [
        ("sync_binlog", "0"),
        ("innodb_flush_log_at_trx_commit", "0"),
    ]
    .map(with_value);
    let log = [("binlog_format", "ROW"), ("binlog_row_image", "MINIMAL")].map(with_value);
    let before = set(primary, &[&flushes[..], &log].concat());
    let before_on_replica = set(replica, &flushes);
    let since = binlog_end(primary);
    let more = [
        "--rounds",
        "101000",
        "--pace",
        "ack",
        "--writers",
        "4",
        "--row-size",
        "1",
        "--json",
    ];
    let document = cluster
        .run(&TestEnvironment::new(), &more)
        .with_code(0)
        .json();
    let row = &document["results"]["rows"][0];
    assert_eq!(
        (row["rounds"].as_u64(), row["timed_out"].as_u64()),
        (Some(101_000), Some(0)),
        "{row:#}"
    );
    let warnings = document["warnings"].to_string();
    assert!(
        warnings.contains("the write schedule paused 1 times to empty the table"),
        "{warnings}"
    );
    let deleted = deleted_rows(primary, &since);
    assert!(deleted.iter().all(|rows| *rows <= 10_000), "{deleted:?}");
    assert!(
        (100_000..101_000).contains(&deleted.iter().sum::<u64>()),
        "{deleted:?}"
    );
    cluster.assert_clean();
    set(primary, &before);
    set(replica, &before_on_replica);
}
