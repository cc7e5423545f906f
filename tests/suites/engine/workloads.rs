//! Built-in workloads, the servers that they use, and their schedules.

use replimeter_engine::Node;
use replimeter_suites::{LIMIT, TestEnvironment, password, start, url, wait};

use super::{ADMIN, BUILT_IN, RELAXED, assert_clean, codes, load, number, statements_of};

pub(super) fn every_built_in_workload_runs(nodes: &[Node]) {
    for workload in BUILT_IN {
        let mut args = vec![
            "--workload",
            workload,
            "--threads",
            "1,3",
            "--duration",
            "1s",
        ];
        if !matches!(workload, "insert" | "mix") {
            args.extend(["--data-size", "2000"]);
        }
        let document = load(nodes, &args).with_code(0).json();
        let rows = document["results"]["rows"].as_array().unwrap();
        assert_eq!(
            rows.iter()
                .map(|row| row["threads"].as_u64().unwrap())
                .collect::<Vec<_>>(),
            [1, 3]
        );
        for row in rows {
            // MariaDB 11.8 refuses to change a row that changed after it was read, also after ten retries on the few hot rows.
            assert!(
                row["passes"].as_u64() > Some(50 * row["failed"].as_u64().unwrap()),
                "{row:#}"
            );
            assert_eq!(row["latency"]["count"], row["passes"]);
            assert!(row["per_second"][0].as_u64() > Some(0), "{row:#}");
            assert!(
                number(&row["client"]["cpu_us_per_op"]) > 0.0
                    && number(&row["client"]["limit_per_s"]) > 0.0,
                "{row:#}"
            );
            // Workloads that only read use the replica.
            let reads = matches!(workload, "select" | "point-select");
            assert_eq!(row["node"], if reads { "replica1" } else { "primary" });
        }
        assert_clean(nodes);
    }
}

/// Returns the counts of statements that the primary ran, by kind.
fn asked(node: &Node) -> [f64; 6] {
    statements_of(
        node,
        ["select", "update", "delete", "insert", "begin", "commit"],
    )
    .map(|count| count as f64)
}

pub(super) fn oltp_mix_matches_sysbench(nodes: &[Node]) {
    let before = asked(&nodes[0]);
    let args = [
        "--workload",
        "oltp-mix",
        // Two threads would repeat parts of transactions.
        "--threads",
        "1",
        "--duration",
        "3s",
        "--data-size",
        "1000",
    ];
    let document = load(nodes, &args).with_code(0).json();
    assert_eq!(document["results"]["rows"][0]["statements"], 20);
    let after = asked(&nodes[0]);
    let delta: Vec<f64> = before
        .iter()
        .zip(after)
        .map(|(before, after)| after - before)
        .collect();
    // Ten by key and four ranges, two updates, a delete and an insert in each transaction.
    for (kind, wanted) in delta.iter().zip([14.0, 2.0, 1.0, 1.0, 1.0, 1.0]) {
        let per_operation = kind / delta[2];
        assert!((per_operation / wanted - 1.0).abs() < 0.1, "{delta:?}");
    }
}

pub(super) fn open_loop_schedules_are_kept(nodes: &[Node]) {
    let args = [
        "--workload",
        "insert",
        "--threads",
        "4",
        "--duration",
        "4s",
        "--rate",
        "200",
        "--arrivals",
        "poisson",
    ];
    let document = load(nodes, &args).with_code(0).json();
    let row = &document["results"]["rows"][0];
    assert_eq!(row["arrivals"], "poisson");
    // For 800 arrivals five standard deviations are 18 %.
    assert!(
        (160.0..240.0).contains(&number(&row["throughput"]["mean"])),
        "{row:#}"
    );
    assert!(
        number(&row["latency"]["mean_us"]) >= number(&row["service"]["mean_us"]),
        "{row:#}"
    );
    // A rate that cannot be sustained: the queue grows every second, and the response shows it.
    let args = [
        "--workload",
        "insert",
        "--threads",
        "2",
        "--duration",
        "4s",
        "--rate",
        "3000000",
    ];
    let document = load(nodes, &args).with_code(0).json();
    let row = &document["results"]["rows"][0];
    let waiting: Vec<u64> = row["waiting_per_second"]
        .as_array()
        .unwrap()
        .iter()
        .map(|count| count.as_u64().unwrap())
        .collect();
    assert!(
        waiting.len() >= 3 && waiting.is_sorted() && waiting[0] > 1_000_000,
        "{waiting:?}"
    );
    assert!(row["waiting"].as_u64().unwrap() >= waiting[0]);
    assert!(codes(&document).contains(&"load-not-held"), "{document:#}");
    assert!(
        number(&row["latency"]["p99_us"]) > 10.0 * number(&row["service"]["p99_us"]),
        "{row:#}"
    );
}

pub(super) fn every_built_in_workload_runs_on_mysql() {
    let sandbox = start("mysql/async:2", &RELAXED);
    let nodes = sandbox.nodes();
    for workload in BUILT_IN {
        let mut args = vec!["--workload", workload, "--threads", "4", "--duration", "1s"];
        if !matches!(workload, "insert" | "mix") {
            args.extend(["--data-size", "2000"]);
        }
        let document = load(nodes, &args).with_code(0).json();
        let row = &document["results"]["rows"][0];
        assert!(
            row["passes"].as_u64() > Some(0) && row["failed"] == 0,
            "{row:#}"
        );
        assert_clean(nodes);
    }
}

/// Distributes reads over the replicas, or over all servers.
pub(super) fn reads_are_spread_on_mysql() {
    let sandbox = start("mysql/async:2", &RELAXED);
    let nodes = sandbox.nodes();
    let spread = |reads: &str| {
        let args = [
            "--workload",
            "point-select",
            "--threads",
            "6",
            "--duration",
            "1s",
            "--data-size",
            "1000",
            "--reads",
            reads,
        ];
        let document = load(nodes, &args).with_code(0).json();
        let row = &document["results"]["rows"][0];
        let parts = row["by_node"].as_array().unwrap();
        assert!(
            parts
                .iter()
                .all(|part| part["operations"].as_u64() > Some(0)),
            "{row:#}"
        );
        let sum: u64 = parts
            .iter()
            .map(|part| part["operations"].as_u64().unwrap())
            .sum();
        if !parts.is_empty() {
            assert_eq!(Some(sum), row["passes"].as_u64());
        }
        row["node"].as_str().unwrap().to_owned()
    };
    assert_eq!(spread("replicas"), "replica1, replica2");
    assert_eq!(spread("all"), "primary, replica1, replica2");
    assert_eq!(spread("primary"), "primary");
    // On encrypted connections the driver runs the statements.
    let tool = TestEnvironment::new();
    let address = format!("{}?ssl-mode=required", url(&nodes[0], ADMIN));
    let args = [
        "load",
        "--primary",
        &address,
        "--workload",
        "oltp-mix",
        "--data-size",
        "1000",
        "--duration",
        "1s",
        "--json",
    ];
    let child = tool
        .command(&args)
        .env("REPLIMETER_PASSWORD", password(&nodes[0]))
        .spawn()
        .unwrap();
    let document = wait(child, LIMIT).with_code(0).json();
    let row = &document["results"]["rows"][0];
    assert!(
        row["passes"].as_u64() > Some(0) && row["failed"] == 0,
        "{row:#}"
    );
    assert_clean(nodes);
}
