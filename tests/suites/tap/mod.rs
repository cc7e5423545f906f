//! `replimeter tap`: the lag of other clients' traffic, from the binary logs.

mod clusters;
mod interruptions;
mod output;
mod refusals;
mod transactions;

use std::{
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use replimeter_engine::{Node, Session};
use replimeter_sandbox::Sandbox;
use replimeter_suites::{
    CommandOutput, LIMIT, TestEnvironment, harness::Test, password, session, sql, test, url, value,
    wait, wait_until,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

pub(crate) const TESTS: &[Test] = &[
    test!(transactions::mariadb_tap_follows_rotations_and_tables),
    test!(transactions::mysql_tap_follows_tags_and_compression),
    test!(transactions::tap_follows_a_replica_of_a_replica),
    test!(clusters::tap_on_galera_needs_gtid_mode),
    test!(interruptions::tap_survives_a_stopped_replica),
    test!(interruptions::lost_connection_is_restored_and_reported),
    test!(interruptions::tap_survives_a_server_restart),
    test!(interruptions::tap_survives_a_server_restart_on_mysql).long(),
    test!(transactions::tap_filters_by_schema_and_table),
    test!(clusters::tap_follows_group_members),
    test!(refusals::unfollowable_servers_are_refused),
    test!(refusals::server_without_binary_log_is_refused),
    test!(refusals::tap_checks_privileges_and_server_ids),
    test!(output::tap_streams_end_properly),
    test!(interruptions::purged_positions_are_reported),
    test!(interruptions::stream_by_gtid_resumes_without_repeats),
];

/// Creates tables for the traffic, on the replicas too.
fn tables(primary: &Node) {
    for statement in [
        "CREATE DATABASE shop",
        "CREATE TABLE shop.orders (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(200))",
        "CREATE TABLE shop.carts (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(200))",
    ] {
        sql(primary, statement);
    }
}

/// Writes over several connections until told to stop; how many transactions.
fn traffic(nodes: &[&Node], prefix: &[&str], stop: &AtomicBool, written: &AtomicU64) {
    thread::scope(|scope| {
        for writer in 0..3 {
            let node = nodes[writer % nodes.len()];
            scope.spawn(move || {
                let mut session = session(node);
                for statement in prefix {
                    session.run("test", statement).unwrap();
                }
                let table = if writer == 0 { "carts" } else { "orders" };
                while !stop.load(Ordering::Relaxed) {
                    session
                        .run(
                            "test",
                            &format!("INSERT INTO shop.{table} (v) VALUES ('x')"),
                        )
                        .unwrap();
                    written.fetch_add(1, Ordering::Relaxed);
                    thread::sleep(Duration::from_millis(2));
                }
            });
        }
    });
}

/// The command line for a sandbox's servers; the first is the primary.
fn args(sandbox: &Sandbox, more: &[&str]) -> Vec<String> {
    let nodes = sandbox.nodes();
    let mut args = vec![
        "tap".to_owned(),
        "--primary".to_owned(),
        url(&nodes[0], "replimeter"),
    ];
    for node in &nodes[1..] {
        args.extend(["--replica".to_owned(), url(node, "replimeter")]);
    }
    args.extend(more.iter().map(|arg| (*arg).to_owned()));
    args
}

/// How many connections read a server's binary log.
fn dumps(node: &Node) -> BTreeSet<String> {
    let ids = "SELECT GROUP_CONCAT(id) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'";
    value(node, ids)
        .unwrap_or_default()
        .split_terminator(',')
        .map(str::to_owned)
        .collect()
}

/// How many rows the traffic has left on a server; `None` while it does not answer.
fn rows(node: &Node) -> Option<String> {
    let count = "SELECT (SELECT COUNT(*) FROM shop.orders) + (SELECT COUNT(*) FROM shop.carts)";
    Session::open(node)
        .and_then(|mut session| session.value("test", count))
        .ok()
        .flatten()
}

/// Follows from before the traffic begins, while it lasts and `meanwhile` happens, until every
/// server has what was written.
fn followed(
    sandbox: &Sandbox,
    args: &[String],
    prefix: &[&str],
    meanwhile: impl FnOnce(),
) -> (TestEnvironment, CommandOutput) {
    followed_on(sandbox, &[&sandbox.nodes()[0]], args, prefix, meanwhile)
}

/// The same with traffic on these servers.
fn followed_on(
    sandbox: &Sandbox,
    writers: &[&Node],
    args: &[String],
    prefix: &[&str],
    meanwhile: impl FnOnce(),
) -> (TestEnvironment, CommandOutput) {
    let tool = TestEnvironment::new();
    let nodes = sandbox.nodes();
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let ended = thread::scope(|scope| {
        // One of the run before may not have ended yet.
        let before: Vec<BTreeSet<String>> = nodes.iter().map(dumps).collect();
        let child = tool
            .command(args)
            .env("REPLIMETER_PASSWORD", password(&nodes[0]))
            .spawn()
            .unwrap();
        wait_until("every server is followed", LIMIT, || {
            nodes
                .iter()
                .zip(&before)
                .all(|(node, before)| !dumps(node).is_subset(before))
        });
        scope.spawn(|| traffic(writers, prefix, &stop, &written));
        let more = |what: &str| {
            let now = written.load(Ordering::Relaxed);
            wait_until(what, LIMIT, || written.load(Ordering::Relaxed) > now + 200);
        };
        // The traffic must end whatever happens, or the scope waits for it.
        let happened = catch_unwind(AssertUnwindSafe(|| {
            more("there is traffic");
            meanwhile();
            more("there is traffic again");
        }));
        stop.store(true, Ordering::Relaxed);
        wait_until("every server has what was written", LIMIT, || {
            let primary = rows(&nodes[0]);
            primary.is_some() && nodes.iter().all(|node| rows(node) == primary)
        });
        // The last ones are read from the logs within a moment.
        thread::sleep(Duration::from_millis(300));
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let ended = wait(child, LIMIT);
        happened.unwrap_or_else(|panic| resume_unwind(panic));
        ended
    });
    (tool, ended)
}

fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("no number: {value}"))
}

/// Every transaction of the primary is accounted for, and all have a lag.
fn all_matched(document: &Value) {
    assert!(!document["results"]["rows"].as_array().unwrap().is_empty());
    for row in document["results"]["rows"].as_array().unwrap() {
        assert!(number(&row["transactions"]) > 100, "{row:#}");
        assert_eq!(row["matched"], row["transactions"], "{row:#}");
        assert_eq!(
            (number(&row["unmatched"]), number(&row["pending"])),
            (0, 0),
            "{row:#}"
        );
        assert_eq!(row["lag"]["count"], row["matched"]);
    }
}
