//! Servers that are frozen for longer than a session waits for an answer, and then continue.

use std::{thread, time::Duration};

use replimeter_engine::Node;
use replimeter_suites::{CommandOutput, LIMIT, TestEnvironment, of_run, session, wait, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{ADMIN, Cluster};

/// Longer than the timeout of the session that holds the lock of a run (10 s).
const STALL: Duration = Duration::from_secs(15);
/// In the figures a stall may miss the time from a write to the next, and what the client itself was late by.
const SHOWN_US: f64 = 12e6;

/// Runs a command while one of its servers is frozen for a time; returns its document.
fn stalled(cluster: &Cluster, server: usize, line: &[&str], begun: &str) -> Value {
    let tool = TestEnvironment::new();
    let [primary, replica] = [cluster.primary(), cluster.replica()]
        .map(|node: &Node| replimeter_suites::url(node, ADMIN));
    let servers = ["--json", "--primary", &primary, "--replica", &replica];
    let mut command = tool.command(&[line, &servers].concat());
    command.env("REPLIMETER_PASSWORD", cluster.password());
    let child = command.spawn().unwrap();
    wait_until("the run is under way", LIMIT, || {
        let begun = of_run(cluster.primary(), begun);
        let found = session(cluster.primary()).value("test", &begun);
        found.is_ok_and(|found| found.as_deref() == Some("1"))
    });
    let frozen = cluster.sandbox.pids()[server];
    let frozen = Pid::from_raw(i32::try_from(frozen).unwrap()).unwrap();
    kill_process(frozen, Signal::STOP).unwrap();
    thread::sleep(STALL);
    kill_process(frozen, Signal::CONT).unwrap();
    let ended: CommandOutput = wait(child, LIMIT).with_code(0);
    let text = format!("{}{}", ended.stdout, ended.stderr);
    assert!(
        !text.contains("another Replimeter run") && !text.contains("lost its lock"),
        "{ended:#?}"
    );
    let document = ended.json();
    assert_eq!(document["status"], "complete", "{document:#}");
    cluster.assert_clean();
    document
}

fn largest(document: &Value, of: &[&str]) -> f64 {
    let row = &document["results"]["rows"][0];
    let figure = of.iter().fold(row, |value, key| &value[key]);
    figure
        .as_f64()
        .unwrap_or_else(|| panic!("{of:?} in {row:#}"))
}

const LAG: [&str; 7] = [
    "lag",
    "--floor-rounds",
    "20",
    "--timeout",
    "200s",
    "--duration",
    "20s",
];
const ROWS: &str = "SELECT COUNT(*) > 100 FROM replimeter.probe";

pub(super) fn stalled_primary_is_in_the_lag(cluster: &Cluster) {
    let document = stalled(cluster, 0, &LAG, ROWS);
    let worst = largest(&document, &["from_intended", "max_us"]);
    assert!(worst > SHOWN_US, "{document:#}");
}

pub(super) fn stalled_replica_is_in_the_lag(cluster: &Cluster) {
    let document = stalled(cluster, 1, &LAG, ROWS);
    let worst = largest(&document, &["from_ack", "max_us"]);
    assert!(worst > SHOWN_US, "{document:#}");
}

pub(super) fn stalled_primary_is_in_the_latency_of_a_load(cluster: &Cluster) {
    let line = [
        "load",
        "--workload",
        "insert",
        "--threads",
        "2",
        "--warm-up",
        "0s",
        "--duration",
        "20s",
    ];
    let begun = "SELECT COUNT(*) > 1000 FROM replimeter.load_insert";
    let document = stalled(cluster, 0, &line, begun);
    let worst = largest(&document, &["latency", "max_us"]);
    assert!(worst > SHOWN_US, "{document:#}");
}

pub(super) fn stalled_primary_is_in_the_writes_of_stale(cluster: &Cluster) {
    let line = [
        "stale",
        "--read-delays",
        "none",
        "--timeout",
        "200s",
        "--duration",
        "20s",
    ];
    let begun = "SELECT MAX(k) > 100 FROM replimeter.probe";
    let document = stalled(cluster, 0, &line, begun);
    let worst = largest(&document, &["write_latency", "max_us"]);
    assert!(worst > SHOWN_US, "{document:#}");
}
