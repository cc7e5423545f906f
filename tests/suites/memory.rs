//! Memory does not grow with the length of a run.

use std::{thread, time::Duration};

use replimeter_suites::{
    LIMIT, TestEnvironment, harness::Test, memory_kib, password, shared, test, url, wait,
    wait_until,
};
use rustix::process::{Pid, Signal, kill_process};

pub(crate) const TESTS: &[Test] = &[
    // Alone, so that it writes many rows.
    test!(memory_does_not_grow_with_duration).alone().long(),
];

/// Time of the first reading of a run's memory: its buffers and histograms exist, also those for rows that waited for seconds.
const EARLY: Duration = Duration::from_secs(300);
/// Time from the first to the last reading.
const LATER: Duration = Duration::from_secs(300);
/// Largest allowed increase: the variation of the allocator, less than the rows would need.
const MORE_KIB: u64 = 4096;

fn memory_does_not_grow_with_duration() {
    let servers = shared(
        "mariadb/async:1",
        &["sync_binlog=0", "innodb_flush_log_at_trx_commit=0"],
    );
    let (primary, replica) = (&servers.nodes()[0], &servers.nodes()[1]);
    let (primary_url, replica_url) = (url(primary, "replimeter"), url(replica, "replimeter"));
    // Both at once: rows every millisecond with their samples, and a load of 64 connections.
    let args = [
        "lag",
        "--primary",
        &primary_url,
        "--replica",
        &replica_url,
        "--interval",
        "1ms",
        "--duration",
        "55m",
        "--timeout",
        "5m",
        "--load",
        "insert:64@primary",
        "--rate",
        "500",
        "--json",
    ];
    let tool = TestEnvironment::new();
    let child = tool
        .command(&args)
        .env("REPLIMETER_PASSWORD", password(primary))
        .spawn()
        .unwrap();
    wait_until("the run writes samples", LIMIT, || {
        tool.runs()
            .first()
            .is_some_and(|run| run.join("samples.partial").exists())
    });
    thread::sleep(EARLY);
    let early = memory_kib(child.id(), "RssAnon").unwrap();
    thread::sleep(LATER);
    let late = memory_kib(child.id(), "RssAnon").unwrap();
    println!(
        "without pages of files after {EARLY:?}: {early} KiB, after {LATER:?} more: {late} KiB"
    );
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let document = wait(child, LIMIT).with_code(130).json();
    // On a quiet machine 300,000 rows in the later half, which would need more than the allowed increase.
    assert!(
        document["results"]["rows"][0]["rounds"].as_u64() > Some(10_000),
        "{document:#}"
    );
    assert!(
        late <= early + MORE_KIB,
        "{early} KiB after {EARLY:?}, {late} KiB after {LATER:?} more"
    );
}
