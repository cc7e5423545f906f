//! Loads that are rejected before they are measured.

use std::fs;

use replimeter_engine::Node;
use replimeter_suites::{TestEnvironment, harness::skip, value};
use rustix::fs::statvfs;

use super::{SIXTY, assert_clean, codes, finished, load, load_with, run_file, with_global};

pub(super) fn invalid_load_files_are_refused(nodes: &[Node]) {
    let more = ["--duration", "1s", "--threads", "1"];
    let ended = run_file(nodes, "[[statement]]\nsql = 'SELEC 1'", &more).with_code(3);
    let _ = ended
        .stderr_contains("line 2")
        .stderr_contains("You have an error in your SQL syntax")
        .stderr_contains("SELEC 1");
    let ended = run_file(nodes, "[[statement]]\nsql = 'SELECT * FROM missing'", &more).with_code(3);
    let _ = ended
        .stderr_contains("missing' doesn't exist")
        .stderr_contains("line 2");
    let ended = run_file(nodes, "[[statement]]\nsql = 'SELECT :id'", &more).with_code(2);
    let _ = ended
        .stderr_contains("line 2")
        .stderr_contains("`:id` does not exist");
    let _ = run_file(
        nodes,
        "[[statement]]\nsql = 'SELECT 1'",
        &["--threads", "0"],
    )
    .with_code(2)
    .stderr_contains("1 to 10000 threads");
    let _ = run_file(
        nodes,
        "[[statement]]\nsql = 'SELECT 1'",
        &["--data-size", "5"],
    )
    .with_code(2)
    .stderr_contains("no workload has data");
    // A statement that always fails when it runs, and not when it is prepared.
    let table = "[[table]]\nname = 'one'\ncreate = 'CREATE TABLE one (id INT PRIMARY KEY)'\n[table.columns]\nid = {row = true}\n";
    let text =
        format!("size = 1\n{table}[[statement]]\nsql = 'INSERT INTO one VALUES (:id)'\nid = 1");
    let _ = run_file(nodes, &text, &more)
        .with_code(3)
        .stderr_contains("Duplicate entry")
        .stderr_contains("line 8");
    assert_clean(nodes);
    let _ = load(nodes, &["--workload", "no-such.toml"])
        .with_code(2)
        .stderr_contains("cannot read the workload");
}

pub(super) fn too_many_connections_are_refused(nodes: &[Node]) {
    let ended = with_global(&nodes[0], "max_connections", 20, || load(nodes, &SIXTY));
    let _ = ended
        .with_code(3)
        .stderr_contains("the load needs 60 connections")
        .stderr_contains("max_connections");
}

pub(super) fn refused_script_ends_before_measuring(nodes: &[Node]) {
    let tool = TestEnvironment::new();
    fs::write(tool.folder().join("own.sql"), "SELECT 1;\nSELEC 2;\n").unwrap();
    let ended = load_with(
        &tool,
        nodes,
        &["--workload", "own.sql", "--duration", "60s"],
    )
    .with_code(3);
    let _ = ended.stderr_contains("line 2").stderr_contains("SELEC 2");
    assert!(tool.runs().is_empty(), "nothing was measured");
}

pub(super) fn invalid_shares_and_sizes_are_refused(nodes: &[Node]) {
    let args = [
        "--workload",
        "point-select",
        "--data-size",
        "1000",
        "--reads",
        "all",
        "--threads",
        "3",
        "--duration",
        "500ms",
    ];
    let document = finished(load(nodes, &args));
    assert!(codes(&document).contains(&"uneven-load"), "{document:#}");
    let _ = load(nodes, &["--workload", "point-select", "--data-size", "0"])
        .with_code(2)
        .stderr_contains("makes an empty data set");
}

pub(super) fn data_larger_than_the_disk_is_refused(nodes: &[Node]) {
    let folder = value(&nodes[0], "SELECT @@datadir").unwrap();
    let disk = statvfs(folder.as_str()).unwrap();
    if disk.f_bavail * disk.f_frsize >= 1_000_000_000_000 {
        // About the largest data set that can be requested.
        return skip("the disk of the servers has more than a terabyte of free space");
    }
    let args = ["--workload", "point-select", "--data-size", "1TB"];
    let ended = load(nodes, &args).with_code(3);
    let _ = ended
        .stderr_contains("MB free")
        .stderr_contains("--data-size");
}
