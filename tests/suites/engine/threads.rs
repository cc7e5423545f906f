//! Numbers of threads: found by measuring, opened at a rate, and close to what a server takes.

use std::time::{Duration, Instant};

use replimeter_engine::Node;

use super::{SIXTY, codes, load, with_global};

pub(super) fn connections_are_opened_at_their_rate(nodes: &[Node]) {
    let began = Instant::now();
    let _ = load(nodes, &[&SIXTY[..], &["--connect-rate", "20"]].concat()).with_code(0);
    // The last one opens 59/20 s after the first.
    assert!(began.elapsed() >= Duration::from_millis(2950 + 1000));
}

/// The load waits for one row, so that it is saturated with few threads, on every machine.
pub(super) fn threads_are_doubled_until_the_throughput_no_longer_rises(nodes: &[Node]) {
    let args = [
        "--workload",
        "point-select",
        "--data-size",
        "1000",
        "--reads",
        "primary",
        "--threads",
        "auto",
    ];
    let document = load(nodes, &[&args[..], &["--duration", "1s"]].concat())
        .with_code(0)
        .json();
    let rows = document["results"]["rows"].as_array().unwrap();
    let threads: Vec<u64> = rows
        .iter()
        .map(|row| row["threads"].as_u64().unwrap())
        .collect();
    let doubled: Vec<u64> = (0..rows.len()).map(|step| 1 << step).collect();
    assert_eq!(threads, doubled);
    let found = &document["results"]["saturation"];
    let limited = codes(&document).contains(&"connections-scarce");
    assert!(
        rows.len() >= 3 && found["reached"].as_bool() != Some(limited),
        "{document:#}"
    );
    assert!(
        threads.contains(&found["threads"].as_u64().unwrap()),
        "{found:#}"
    );
    // The server takes fewer connections than the throughput needs to saturate.
    let ended = with_global(&nodes[0], "max_connections", 12, || {
        load(nodes, &[&args[..], &["--duration", "300ms"]].concat())
    });
    let document = ended.with_code(0).json();
    let most = document["results"]["rows"]
        .as_array()
        .unwrap()
        .last()
        .unwrap()["threads"]
        .as_u64();
    assert!(most < Some(12), "{document:#}");
    assert!(
        document["results"]["saturation"]["reached"] == true
            || codes(&document).contains(&"connections-scarce"),
        "{document:#}"
    );
}
