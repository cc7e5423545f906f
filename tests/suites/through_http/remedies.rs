//! What each remedy against stale pages gives and costs.

use std::{fs, path::Path};

use replimeter_suites::{TestEnvironment, harness::skip, has_program};
use serde_json::Value;

use super::{NO_PROGRAMS, number, of_role, rows};

/// One-way delay of the links of `stale`'s servers.
const LINK: [&str; 2] = ["--link-delay", "100ms"];
const LINK_US: f64 = 100_000.0;
/// Rounds of each remedy.
const ROUNDS: u64 = 10;

/// Runs `stale` through a site; returns its document.
fn stale(tool: &TestEnvironment, shape: &str, more: &[&str]) -> Value {
    let rounds = ROUNDS.to_string();
    let mut args = vec![
        "stale",
        "--through",
        "http",
        "--sandbox",
        shape,
        "--rounds",
        &rounds,
        "--starts",
        "1",
        "--warm-up",
        "2",
        "--read-delays",
        "none",
        "--timeout",
        "60s",
        "--primary-for",
        "600s",
        "--json",
    ];
    args.extend(more);
    tool.run(&args).with_code(0).json()
}

fn cost<'a>(document: &'a Value, remedy: &str, connections: &str) -> &'a Value {
    let mut costs = document["results"]["site"].as_array().unwrap().iter();
    costs
        .find(|cost| cost["read_consistency"] == remedy && cost["session_reset"] == connections)
        .unwrap_or_else(|| panic!("{remedy}: {document:#}"))
}

/// Checks what each remedy gives and costs with replicas that are behind by the delay of their link. The machine may stall in some
/// rounds, not in all.
fn checked(document: &Value) {
    for row in rows(document) {
        let remedy = row["read_consistency"].as_str().unwrap();
        assert_eq!(
            (&row["reader"], &row["rounds"]),
            (&"site".into(), &ROUNDS.into()),
            "{row:#}"
        );
        let cost = cost(document, remedy, row["session_reset"].as_str().unwrap());
        assert_eq!(cost["rounds"], ROUNDS, "{cost:#}");
        let pages = number(&cost["pages"]);
        let stale = row["stale"].as_u64().unwrap();
        if matches!(remedy, "none" | "sticky") {
            // A page comes back before the post is on a replica, and is loaded again.
            assert!(stale > 0, "{row:#}");
            let staleness = &row["staleness"];
            assert_eq!(staleness["count"], stale, "{row:#}");
            assert!(number(&staleness["max_us"]) > LINK_US / 2.0, "{row:#}");
            assert!(pages >= (ROUNDS + stale) as f64, "{cost:#}");
            assert_eq!(cost["primary_pages"], 0, "{cost:#}");
        } else {
            assert_eq!(stale, 0, "{row:#}");
            assert_eq!(row["violations"]["monotonic_reads"], 0, "{row:#}");
            assert!((pages - ROUNDS as f64).abs() < 0.5, "{cost:#}");
        }
        let read = &row["read_latency"];
        match remedy {
            "sticky" => assert_eq!(row["violations"]["monotonic_reads"], 0, "{row:#}"),
            "wait-for-gtid" => {
                assert!(number(&read["max_us"]) > LINK_US / 2.0, "{row:#}");
                assert!(number(&cost["wait"]["max_us"]) > LINK_US / 2.0, "{cost:#}");
            }
            "primary-for" | "primary-always" => {
                assert_eq!(cost["primary_percent"], 100.0, "{cost:#}");
                assert!(number(&read["min_us"]) < LINK_US, "{row:#}");
            }
            _ => {}
        }
        for role in ["primary", "front", "balancer"] {
            assert!(
                of_role(cost, role, "cpu_us_per_op") > 0.0,
                "{role}: {cost:#}"
            );
        }
    }
}

pub(super) fn posts_are_missing_without_a_remedy() {
    if !has_program("haproxy") {
        return skip(NO_PROGRAMS);
    }
    let tool = TestEnvironment::new();
    let document = stale(&tool, "mariadb/async:2", &LINK);
    // Five remedies, each over connections that are kept and over new ones.
    assert_eq!(rows(&document).len(), 10, "{document:#}");
    for connections in ["keep-alive", "new-connections"] {
        let of = rows(&document)
            .iter()
            .filter(|row| row["session_reset"] == connections);
        assert_eq!(of.count(), 5, "{connections}");
    }
    checked(&document);
    let run = tool.only_run();
    for name in ["haproxy.cfg", "samples.parquet", "report.html"] {
        assert!(run.join(name).is_file(), "{name}");
    }
    let text = tool
        .run(&["report", run.to_str().unwrap()])
        .with_code(0)
        .words();
    for wanted in [
        "Cost of the remedies",
        "POST /insert (post ",
        "GET /",
        "HAProxy passed requests",
    ] {
        assert!(text.contains(wanted), "`{wanted}` is missing in {text}");
    }
    same_plan(&tool, &run);
    assert_eq!(tool.servers(), Vec::<i32>::new());
}

/// The plan of a run gives the same plan.
fn same_plan(tool: &TestEnvironment, run: &Path) {
    let path = run.join("plan.toml");
    let planned = tool.run(&["run", "--dry-run", path.to_str().unwrap()]);
    let planned = planned.with_code(0);
    assert_eq!(planned.planned(), fs::read_to_string(path).unwrap());
}

pub(super) fn posts_are_missing_without_a_remedy_on_mysql_and_galera() {
    if !has_program("haproxy") {
        return skip(NO_PROGRAMS);
    }
    let tool = TestEnvironment::new();
    let keep = ["--keep-alive", "on"];
    checked(&stale(&tool, "mysql/async:2", &[LINK, keep].concat()));
    // A commit of Galera waits for the link, so that pages are less late than it.
    let tool = TestEnvironment::new();
    let near = ["--link-delay", "10ms"];
    let document = stale(&tool, "galera:3", &[near, keep].concat());
    for row in rows(&document) {
        let remedy = row["read_consistency"].as_str().unwrap();
        if !matches!(remedy, "none" | "sticky") {
            assert_eq!(row["stale"], 0, "{row:#}");
        }
    }
}
