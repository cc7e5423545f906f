//! Every series of servers in the private folder (`make test-versions` fetches more than `make servers`).

use std::{fs, path::PathBuf};

use replimeter_suites::{
    TestEnvironment,
    harness::{Test, skip},
    home, test,
};

pub(crate) const TESTS: &[Test] = &[
    test!(every_mode_is_measured_on_every_series)
        .starts(4)
        .long(),
    test!(mariadb_series_replicate_both_ways).starts(4).long(),
    test!(mysql_series_replicate_both_ways).starts(4).long(),
];

/// Returns the folders of an engine's servers.
fn series(engine: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(home().join("servers")).unwrap();
    let mut folders: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_name().to_str().unwrap().starts_with(engine))
        .map(|entry| entry.path())
        .collect();
    folders.sort();
    folders
}

/// Measures a short run and returns the versions of its servers.
fn versions(shape: &str, servers: &PathBuf, more: &[&str]) -> Vec<String> {
    let tool = TestEnvironment::new();
    let mut args = vec!["lag", "--rounds", "60", "--floor-rounds", "10", "--json"];
    args.extend(["--timeout", "60s"]);
    args.extend(["--sandbox", shape, "--servers", servers.to_str().unwrap()]);
    args.extend(more);
    let document = tool.run(&args).with_code(0).json();
    let rows = document["results"]["rows"].as_array().unwrap();
    assert!(!rows.is_empty(), "{shape} on {servers:?}");
    for row in rows {
        assert_eq!(row["timed_out"], 0, "{shape} on {servers:?}: {row:#}");
    }
    let _ = tool.only_run();
    let manifest = fs::read_to_string(tool.only_run().join("manifest.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    let servers = manifest["servers"].as_array().unwrap().iter();
    servers
        .map(|server| server["version"].as_str().unwrap().to_owned())
        .collect()
}

fn every_mode_is_measured_on_every_series() {
    let clustered = [("mariadb", "galera:2"), ("mysql", "group:2")];
    for (engine, cluster) in clustered {
        for servers in series(engine) {
            for mode in ["async:1", "semi-sync:1", "chain:2", cluster] {
                let _ = versions(&format!("{engine}/{mode}"), &servers, &[]);
            }
        }
    }
}

fn mariadb_series_replicate_both_ways() {
    replicate_both_ways("mariadb");
}

fn mysql_series_replicate_both_ways() {
    replicate_both_ways("mysql");
}

fn replicate_both_ways(engine: &str) {
    let all = series(engine);
    if all.len() < 2 {
        return skip("one series only; `make test-versions` fetches others");
    }
    for primary in &all {
        for replica in all.iter().filter(|replica| *replica != primary) {
            let more = ["--replica-server", replica.to_str().unwrap()];
            let found = versions(&format!("{engine}/async:1"), primary, &more);
            assert_ne!(found[0], found[1], "{primary:?} to {replica:?}");
        }
    }
}
