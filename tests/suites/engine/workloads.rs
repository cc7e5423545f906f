//! Built-in workloads, the servers that they use, and their schedules.

use replimeter_engine::Node;
use replimeter_model::load::BUILT_IN;
use replimeter_suites::{LIMIT, TestEnvironment, password, session, shared, url, wait, wait_until};
use serde_json::Value;

use super::{
    ADMIN, assert_clean, assert_retried, codes, count, failures_before_the_end, interrupted, load,
    number, passed, spawn, statements_of, until,
};

/// Workloads that run concurrently, since no two of them change the same rows for long, and their numbers of threads.
const CONCURRENT: [(&[&str], &[u64]); 2] = [
    (
        &["insert", "select", "point-select", "big-update", "mix"],
        &[1, 3],
    ),
    (
        &[
            "post-insert",
            "oltp-mix",
            "update-key",
            "versioned",
            "versioned-update",
            "versioned-select",
        ],
        &[2],
    ),
];

pub(super) fn every_built_in_workload_runs(nodes: &[Node]) {
    let mut ran: Vec<&str> = CONCURRENT.map(|(names, _)| names).concat();
    let mut built_in = BUILT_IN;
    ran.sort_unstable();
    built_in.sort_unstable();
    assert_eq!(ran, built_in);
    for (names, threads) in CONCURRENT {
        let list: Vec<String> = threads.iter().map(ToString::to_string).collect();
        let list = list.join(",");
        let mut args = vec!["--threads", &list, "--data-size", "500", "--rate", "20"];
        args.extend(names.iter().flat_map(|name| ["--workload", name]));
        let run = |duration: &str| load(nodes, &[&args[..], &["--duration", duration]].concat());
        let document = until(run, passed);
        let rows = document["results"]["rows"].as_array().unwrap();
        let wanted: Vec<(&str, u64)> = threads
            .iter()
            .flat_map(|threads| names.iter().map(move |name| (*name, *threads)))
            .collect();
        let found: Vec<(&str, u64)> = rows
            .iter()
            .map(|row| (row["workload"].as_str().unwrap(), count(row, "threads")))
            .collect();
        assert_eq!(found, wanted);
        for row in rows {
            // MariaDB 11.8 refuses to change a row that changed after it was read.
            assert_retried(row);
            assert_eq!(row["latency"]["count"], row["passes"]);
            // The counted time is a number of whole seconds.
            let seconds = row["per_second"].as_array().unwrap().iter();
            let sum: u64 = seconds.map(|count| count.as_u64().unwrap()).sum();
            assert_eq!(sum, count(row, "passes"), "{row:#}");
            assert!(
                number(&row["client"]["cpu_us_per_op"]) > 0.0
                    && number(&row["client"]["limit_per_s"]) > 0.0,
                "{row:#}"
            );
            // Workloads that only read use the replica.
            let name = row["workload"].as_str().unwrap();
            let reads = matches!(name, "select" | "point-select" | "versioned-select");
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
    let tool = TestEnvironment::new();
    let args = [
        "--workload",
        "oltp-mix",
        // Two threads would repeat parts of transactions.
        "--threads",
        "1",
        "--duration",
        "600s",
        "--data-size",
        "1000",
    ];
    let child = spawn(&tool, nodes, &args);
    // Enough transactions that the statements of the run itself are few. A new session for each reading would have some too.
    let mut reader = session(&nodes[0]);
    wait_until("a thousand transactions have run", LIMIT, || {
        let counts = reader.pairs("test", "SHOW GLOBAL STATUS LIKE 'Com_delete'");
        let deletes = counts.unwrap().values().next().unwrap().parse::<f64>();
        deletes.unwrap() - before[2] >= 1000.0
    });
    let document = interrupted(child);
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
    let run = |more: &[&str], duration: &str| {
        let insert = ["--workload", "insert", "--duration", duration];
        load(nodes, &[&insert[..], more].concat())
    };
    let args = ["--threads", "4", "--rate", "400", "--arrivals", "poisson"];
    let document = until(|duration| run(&args, duration), passed);
    let row = &document["results"]["rows"][0];
    assert_eq!(row["arrivals"], "poisson");
    // However slow the machine: what was due was started or waits, and nothing else was started. Operations of the warm-up can
    // start after it, and each thread holds one that is not due yet. The intervals are five standard deviations wide.
    let due = count(row, "passes") + count(row, "failed") + count(row, "waiting");
    let mean = 400.0 * number(&row["counted_us"]) / 1e6;
    let (most_of_warm_up, width) = (80.0 + 5.0 * 80.0f64.sqrt(), 5.0 * mean.sqrt());
    assert!(
        (mean - width - 4.0..mean + width + most_of_warm_up + 4.0).contains(&(due as f64)),
        "{due} of {mean}: {row:#}"
    );
    assert!(
        number(&row["latency"]["mean_us"]) >= number(&row["service"]["mean_us"]),
        "{row:#}"
    );
    // A rate that cannot be sustained: the queue grows every second, and the response shows it.
    let args = ["--threads", "2", "--rate", "3000000"];
    let document = until(
        |duration| run(&args, duration),
        |document| {
            let waiting = &document["results"]["rows"][0]["waiting_per_second"];
            passed(document) && !waiting.as_array().unwrap().is_empty()
        },
    );
    let row = &document["results"]["rows"][0];
    let waiting: Vec<u64> = row["waiting_per_second"]
        .as_array()
        .unwrap()
        .iter()
        .map(|count| count.as_u64().unwrap())
        .collect();
    assert!(waiting.is_sorted() && waiting[0] > 1_000_000, "{waiting:?}");
    assert!(count(row, "waiting") > 1_000_000, "{row:#}");
    assert!(codes(&document).contains(&"load-not-held"), "{document:#}");
    // Counting begins 200 ms after the first operation was due, and less than a tenth of the schedule is done by then.
    assert!(
        number(&row["latency"]["mean_us"]) > number(&row["service"]["mean_us"]) + 1e5,
        "{row:#}"
    );
}

/// Distributes reads over the replicas, or over all servers.
pub(super) fn reads_are_spread_over_the_servers() {
    let servers = shared("mariadb/async:2", &[]);
    let nodes = servers.nodes();
    let spread = |reads: &str| {
        let args = "--workload point-select --threads 6 --rate 60 --data-size 1000 --reads";
        let args: Vec<&str> = args.split(' ').chain([reads]).collect();
        let run = |duration: &str| load(nodes, &[&args[..], &["--duration", duration]].concat());
        let document = until(run, |document| {
            let parts = document["results"]["rows"][0]["by_node"].as_array();
            let used = |part: &Value| count(part, "operations") > 0;
            passed(document) && parts.unwrap().iter().all(used)
        });
        let row = &document["results"]["rows"][0];
        let parts = row["by_node"].as_array().unwrap();
        assert_eq!(parts.is_empty(), reads == "primary", "{row:#}");
        if !parts.is_empty() {
            let sum: u64 = parts.iter().map(|part| count(part, "operations")).sum();
            assert_eq!(sum, count(row, "passes"));
        }
        row["node"].as_str().unwrap().to_owned()
    };
    assert_eq!(spread("replicas"), "replica1, replica2");
    assert_eq!(spread("all"), "primary, replica1, replica2");
    assert_eq!(spread("primary"), "primary");
    assert_clean(nodes);
}

/// On encrypted connections the driver runs the statements.
pub(super) fn encrypted_oltp_mix_runs(nodes: &[Node]) {
    let tool = TestEnvironment::new();
    let address = format!("{}?ssl-mode=required", url(&nodes[0], ADMIN));
    let args =
        "load --workload oltp-mix --data-size 1000 --threads 2 --warm-up 0s --json --primary";
    let args: Vec<&str> = args.split(' ').chain([address.as_str()]).collect();
    let run = |duration: &str| {
        let child = tool
            .command(&[&args[..], &["--duration", duration]].concat())
            .env("REPLIMETER_PASSWORD", password(&nodes[0]))
            .spawn();
        wait(child.unwrap(), LIMIT)
    };
    let document = until(run, passed);
    let row = &document["results"]["rows"][0];
    assert_eq!(failures_before_the_end(row), 0, "{row:#}");
}
