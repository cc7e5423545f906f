//! Read consistency: which settings and waits remove stale reads.

use replimeter_suites::{LIMIT, TestEnvironment, clean, shared, start, wait_until};
use serde_json::Value;

use super::{args, consistent, float, number, of, rows, run, warned};

pub(super) fn synchronous_reads_remove_galera_staleness() {
    let sandbox = shared("mariadb/galera:3", &[]);
    let tool = TestEnvironment::new();
    let more = [
        "--reader",
        "node1",
        "--reader",
        "node2",
        "--reader",
        "node3",
        "--rounds",
        "100",
        "--read-delays",
        "0,2ms,30ms",
        "--curve-rounds",
        "30",
        "--read-consistency=off,before",
        "--session-reset",
        "keep,reset,change-user",
        "--json",
    ];
    let document = run(&sandbox, &tool, &args(&sandbox, true, &more))
        .with_code(0)
        .json();
    assert_eq!(
        (document["schema"].as_str(), document["status"].as_str()),
        (Some("replimeter.stale/1"), Some("complete"))
    );
    // Without, with, and with on connections that were reset in two ways; three readers each.
    assert_eq!(rows(&document).len(), 12, "{document:#}");
    rows(&document).iter().for_each(consistent);
    for row in rows(&document) {
        assert_eq!(
            (row["writer"].as_str(), number(&row["rounds"])),
            (Some("node1"), 100)
        );
        assert_eq!(
            row["null_replica"].as_bool(),
            Some(row["reader"] == "node1")
        );
        if row["reader"] == "node1" {
            assert_eq!(
                number(&row["stale"]),
                0,
                "a server shows what it acknowledged: {row:#}"
            );
        }
    }
    let others = |rows: Vec<&Value>| {
        rows.iter()
            .filter(|row| row["reader"] != "node1")
            .map(|row| number(&row["stale"]))
            .sum::<u64>()
    };
    assert!(others(of(&document, "off", "keep")) > 0);
    assert_eq!(others(of(&document, "before", "keep")), 0);
    for pool in ["reset", "change-user"] {
        assert!(
            others(of(&document, "before", pool)) > 0,
            "a connection that is reset forgets"
        );
    }
    assert!(warned(&document, "guarantee-broken"));
    let plain = of(&document, "off", "keep");
    let plain = plain.iter().find(|row| row["reader"] == "node2").unwrap();
    let curve = plain["curve"].as_array().unwrap();
    assert_eq!(curve.len(), 3);
    assert!(
        number(&curve[2]["stale"]) < number(&curve[2]["reads"]),
        "it passes: {curve:#?}"
    );
    for point in curve {
        assert!(
            float(&point["after_us"]) >= float(&point["asked_us"]),
            "no read before its time: {point:#}"
        );
    }
    let synced = of(&document, "before", "keep");
    assert!(
        synced
            .iter()
            .all(|row| number(&row["overhead"]["read_with"]["count"]) > 0)
    );
    for row in synced {
        let curve = row["curve"].as_array().unwrap();
        assert!(
            curve.len() == 3 && curve.iter().all(|point| number(&point["stale"]) == 0),
            "{row:#}"
        );
    }
    let broken = of(&document, "before", "reset");
    let witness = &broken.iter().find(|row| number(&row["stale"]) > 0).unwrap()["witness"];
    assert_eq!(witness["guarantee"], "read-your-writes");
    let steps = witness["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 3);
    assert_eq!(steps[0]["statement"], "COM_RESET_CONNECTION");
    assert!(
        float(&steps[0]["end_us"]) <= float(&steps[1]["begin_us"]),
        "reset before the write: {witness:#}"
    );
    assert!(
        float(&steps[2]["begin_us"]) >= float(&steps[1]["end_us"]),
        "read after the acknowledgement: {witness:#}"
    );
    // The timelines have the counters of every node.
    let windows = windows(&document);
    let has_counters = |name: &str| {
        windows.iter().any(|window| {
            window["counters"]
                .as_object()
                .unwrap()
                .keys()
                .any(|key| key.starts_with(name))
        })
    };
    assert!(
        ["node1 wsrep_", "node2 wsrep_", "node3 wsrep_"]
            .into_iter()
            .all(has_counters),
        "{windows:#?}"
    );
    wait_until("the schema is removed from every server", LIMIT, || {
        sandbox.nodes().iter().all(clean)
    });
    let dir = tool.only_run();
    for name in [
        "plan.toml",
        "manifest.json",
        "samples.parquet",
        "summary.json",
        "report.html",
        "report.md",
    ] {
        assert!(dir.join(name).exists(), "{name}");
    }
    let again = tool.run(&["report", dir.to_str().unwrap()]).with_code(0);
    assert!(
        again
            .words()
            .contains("Reads that missed a write just acknowledged"),
        "{again:#?}"
    );
    let plan = dir.join("plan.toml");
    let planned = tool
        .run(&["run", "--dry-run", plan.to_str().unwrap()])
        .with_code(0);
    assert!(planned.stdout.contains("command = \"stale\""));
}

/// Returns the windows of every case.
fn windows(document: &Value) -> Vec<&Value> {
    let timelines = document["results"]["timelines"].as_array().unwrap();
    let windows = timelines
        .iter()
        .flat_map(|timeline| timeline["windows"].as_array().unwrap());
    windows.collect()
}

pub(super) fn replicas_wait_for_gtids() {
    channels_wait_for_gtids("mariadb/chain:2", &["--session-reset", "keep,reset"]);
}

pub(super) fn replicas_wait_for_gtids_on_mysql() {
    channels_wait_for_gtids("mysql/async:2", &[]);
}

fn channels_wait_for_gtids(shape: &str, more: &[&str]) {
    let sandbox = start(shape, &[]);
    let tool = TestEnvironment::new();
    let mut given = vec![
        "--rounds",
        "100",
        "--read-delays",
        "none",
        "--read-consistency=off,on",
        "--json",
    ];
    given.extend(more);
    let document = run(&sandbox, &tool, &args(&sandbox, false, &given))
        .with_code(0)
        .json();
    rows(&document).iter().for_each(consistent);
    for row in of(&document, "off", "keep") {
        assert!(number(&row["stale"]) > 0, "{row:#}");
    }
    for row in of(&document, "gtid", "keep") {
        assert_eq!(number(&row["stale"]), 0, "{row:#}");
    }
    if !more.is_empty() {
        // The answer no longer contains the GTID.
        assert!(
            of(&document, "gtid", "reset")
                .iter()
                .any(|row| number(&row["stale"]) > 0),
            "{document:#}"
        );
    }
    wait_until("the schema is removed from every server", LIMIT, || {
        sandbox.nodes().iter().all(clean)
    });
    let refused = run(
        &sandbox,
        &tool,
        &args(&sandbox, false, &["--read-consistency=before"]),
    )
    .with_code(3);
    assert!(
        refused.stderr.contains("--read-consistency=gtid"),
        "{refused:#?}"
    );
}

pub(super) fn group_keeps_its_consistency_levels() {
    let sandbox = shared("mysql/group:3", &[]);
    let tool = TestEnvironment::new();
    // A member on which reads wait needs processor time for each round.
    let more = [
        "--reader",
        "node2",
        "--rounds",
        "60",
        "--warm-up",
        "5",
        "--read-delays",
        "none",
        "--read-consistency=off,before,after,before-and-after,gtid",
        "--json",
    ];
    let document = run(&sandbox, &tool, &args(&sandbox, true, &more))
        .with_code(0)
        .json();
    rows(&document).iter().for_each(consistent);
    assert!(
        of(&document, "off", "keep")
            .iter()
            .any(|row| number(&row["stale"]) > 0)
    );
    for way in ["before", "after", "before-and-after", "gtid"] {
        for row in of(&document, way, "keep") {
            assert_eq!(
                (number(&row["stale"]), number(&row["refused"])),
                (0, 0),
                "{row:#}"
            );
        }
    }
    let windows = windows(&document);
    assert!(
        windows.iter().any(|window| window["counters"]
            .to_string()
            .contains("certification queue")),
        "{windows:#?}"
    );
}

pub(super) fn unknown_names_are_usage_errors_before_start() {
    let tool = TestEnvironment::new();
    for (more, what) in [
        (&["--load", "insert:1@node9"][..], "the load"),
        (&["--reader", "node7"], "the reader"),
        (&["--writer", "primary7"], "the writer"),
    ] {
        let mut args = vec!["stale", "--sandbox", "galera:3"];
        args.extend(more);
        let ended = tool.run(&args).with_code(2).stderr_contains(what);
        assert!(ended.stderr.contains("node1, node2, node3"), "{ended:#?}");
    }
    let _ = tool
        .run(&["stale", "--session-reset", "reset"])
        .with_code(2)
        .stderr_contains("read-consistency");
    let _ = tool
        .run(&["stale", "--check-load-reads", "2:2", "--rounds", "5"])
        .with_code(2)
        .stderr_contains("give a duration");
    let _ = tool
        .run(&["stale", "--check-load-reads", "--duration", "5s"])
        .with_code(2)
        .stderr_contains("add load");
    let _ = tool
        .run(&[
            "stale",
            "--check-load-reads",
            "2:2",
            "--read-consistency=gtid",
        ])
        .with_code(2)
        .stderr_contains("cannot be gtid");
    assert!(tool.runs().is_empty());
    let sandbox = shared("mariadb/async:1", &[]);
    let more = ["--load", "insert:1@replica1", "--rounds", "5"];
    let ended = run(&sandbox, &tool, &args(&sandbox, false, &more)).with_code(2);
    assert!(ended.stderr.contains("accepts no writes"), "{ended:#?}");
}

pub(super) fn unsupported_read_consistency_is_omitted() {
    let sandbox = shared("mariadb/async:1", &[]);
    let tool = TestEnvironment::new();
    let more = [
        "--rounds",
        "50",
        "--read-delays",
        "none",
        "--read-consistency=off,before",
        "--json",
    ];
    let document = run(&sandbox, &tool, &args(&sandbox, false, &more))
        .with_code(0)
        .json();
    assert_eq!(
        (rows(&document).len(), warned(&document, "case-left-out")),
        (1, true),
        "{document:#}"
    );
}
