//! A load begins when its servers have done what filling left to them.

use replimeter_suites::{LIMIT, TestEnvironment, start, value, wait, wait_until};
use rustix::process::{Signal, kill_process};
use serde_json::Value;

use super::{finished, load, number, pid, spawn};

/// Server options: at most 100 pages per second are flushed, and on MariaDB also without other work.
const SLOW: [&str; 2] = ["innodb_io_capacity=100", "innodb_io_capacity_max=100"];
const ALL_PAGES: [&str; 1] = ["innodb_max_dirty_pages_pct_lwm=0.001"];

/// Numbers of rows: another one makes another data set.
const SIZES: [&str; 3] = ["60000", "61000", "62000"];

fn waits(shape: &str, more: &[&str]) {
    let sandbox = start(shape, &[&SLOW, more].concat());
    let nodes = sandbox.nodes();
    let run = |size: &str, threads: &str| {
        let args = "--workload point-select --keep-data --duration 300ms --data-size";
        let args: Vec<&str> = args.split(' ').collect();
        finished(load(
            nodes,
            &[&args[..], &[size, "--threads", threads]].concat(),
        ))
    };
    // A machine that stalls can hide the work: it is done before the wait begins, or does not decrease for two seconds.
    let waited = |document: &Value| {
        let server = &document["results"]["settling"][0]["servers"][0];
        let pages = |key: &str| server[key]["dirty_pages"].as_u64();
        server["settled"] == true && pages("after") < pages("before")
    };
    let mut runs = SIZES.iter().map(|size| (size, run(size, "1,2")));
    let (size, document) = runs
        .find(|(_, document)| waited(document))
        .expect("a wait until the pages are flushed");
    let settling = &document["results"]["settling"];
    // The load only reads, so the second number of threads has nothing to wait for.
    assert_eq!(settling.as_array().map(Vec::len), Some(1), "{settling:#}");
    assert_eq!(settling[0]["threads"], 1);
    assert!(number(&settling[0]["settled_us"]) > 0.0, "{settling:#}");
    let how = document.to_string();
    assert!(!how.contains("not-settled"), "{document:#}");
    // Data that exists has left nothing.
    let document = run(size, "1");
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
    let options = [&SLOW[..], &ALL_PAGES].concat();
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
    let _ = wait(child, LIMIT).with_code(130);
    assert!(tool.runs().is_empty());
}
