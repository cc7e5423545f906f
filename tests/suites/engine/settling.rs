//! A load begins when its servers have done what filling left to them.

use std::time::Duration;

use replimeter_suites::{LIMIT, TestEnvironment, start, value, wait, wait_until};
use rustix::process::{Signal, kill_process};
use serde_json::Value;

use super::{RELAXED, load, number, pid, spawn};

/// Server options: at most 100 pages per second are flushed, and on MariaDB also without other work.
const SLOW: [&str; 2] = ["innodb_io_capacity=100", "innodb_io_capacity_max=100"];
const ALL_PAGES: [&str; 1] = ["innodb_max_dirty_pages_pct_lwm=0.001"];

fn waits(shape: &str, more: &[&str]) {
    let sandbox = start(shape, &[RELAXED.as_slice(), &SLOW, more].concat());
    let nodes = sandbox.nodes();
    let run = || {
        let args =
            "--workload point-select --data-size 60000 --keep-data --duration 3s --threads 1,2";
        let document = load(nodes, &args.split(' ').collect::<Vec<_>>());
        document.with_code(0).json()
    };
    let document = run();
    let settling = &document["results"]["settling"];
    // The load only reads, so the second number of threads has nothing to wait for.
    assert_eq!(settling.as_array().map(Vec::len), Some(1), "{settling:#}");
    let server = &settling[0]["servers"][0];
    assert_eq!(settling[0]["threads"], 1);
    assert!(number(&settling[0]["settled_us"]) > 0.0, "{settling:#}");
    let pages = |key: &str| number(&server[key]["dirty_pages"]);
    assert!(pages("after") < pages("before"), "{settling:#}");
    assert_eq!(server["settled"], true, "{settling:#}");
    let how = document.to_string();
    assert!(!how.contains("not-settled"), "{document:#}");
    // Data that exists has left nothing.
    let document = run();
    assert_eq!(document["results"]["data"][0]["reused"], true);
    assert_eq!(document["results"]["settling"], Value::Null);
}

pub(super) fn load_waits_until_mariadb_has_settled() {
    waits("mariadb/none", &ALL_PAGES);
}

pub(super) fn load_waits_until_mysql_has_settled() {
    waits("mysql/none", &[]);
}

pub(super) fn interrupt_ends_the_wait_for_settling() {
    let options = [RELAXED.as_slice(), &SLOW, &ALL_PAGES].concat();
    let sandbox = start("mariadb/none", &options);
    let nodes = sandbox.nodes();
    let tool = TestEnvironment::new();
    let args = "--workload point-select --data-size 100000 --duration 60s";
    let child = spawn(&tool, nodes, &args.split(' ').collect::<Vec<_>>());
    wait_until("the data set is complete", LIMIT, || {
        let tables =
            "SELECT COUNT(*) FROM information_schema.tables WHERE table_name = 'load_data'";
        value(&nodes[0], tables).as_deref() == Some("1")
    });
    kill_process(pid(&child), Signal::INT).unwrap();
    let _ = wait(child, Duration::from_secs(60)).with_code(130);
    assert!(tool.runs().is_empty());
}
