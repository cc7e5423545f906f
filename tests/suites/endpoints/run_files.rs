//! What a run leaves in its directory if it is killed, or the disk is full.

use std::fs;

use replimeter_render::reading;
use replimeter_suites::{LIMIT, TestEnvironment, wait, wait_until};
use rustix::process::{Signal, kill_process};

use super::{Cluster, under_way};

pub(super) fn killed_run_keeps_its_rows(cluster: &Cluster) {
    let tool = TestEnvironment::new();
    let child = under_way(cluster, &tool, &["--duration", "60s"]);
    let dir = tool.only_run();
    let (journal, samples) = (dir.join("samples.journal"), dir.join("samples.parquet"));
    wait_until("rows are described", LIMIT, || {
        fs::metadata(&journal).is_ok_and(|file| file.len() > 0)
    });
    let report = || tool.run(&["report", dir.to_str().unwrap()]).with_code(3);
    let _ = report().stderr_contains("is still active");
    kill_process(super::pid(&child), Signal::KILL).unwrap();
    let _ = wait(child, LIMIT);
    let report = report();
    let rows = reading::read(&samples, &["seq", "ack_ns"], |_, _| {}).unwrap();
    assert!(rows > 0 && !journal.exists(), "{rows} rows");
    let _ = report.stderr_contains(&format!("samples.parquet has {rows} rows"));
    let names: Vec<_> = fs::read_dir(&dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names.len(), 3, "{names:?}");
    // The next run removes the table.
    let _ = cluster
        .run(&tool, &["--rounds", "20", "--run-dir", "next"])
        .with_code(0);
    let _ = tool
        .run(&["compare", "next", dir.to_str().unwrap()])
        .with_code(3)
        .stderr_contains(&format!("samples.parquet has {rows} rows"));
}
