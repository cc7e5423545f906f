//! Numbers of threads: found by measuring, opened at a rate, and close to what a server takes.

use std::time::{Duration, Instant};

use replimeter_engine::Node;

use super::{SIXTY, codes, count, finished, load, run_file, with_global};

pub(super) fn connections_are_opened_at_their_rate(nodes: &[Node]) {
    let began = Instant::now();
    let _ = finished(load(
        nodes,
        &[&SIXTY[..], &["--connect-rate", "20"]].concat(),
    ));
    // The last one opens 59/20 s after the first.
    assert!(began.elapsed() >= Duration::from_millis(2950 + 1000));
}

/// All threads need one lock, so that it is saturated with few threads, on every machine.
const ONE_AT_A_TIME: &str =
    "[[statement]]\nsql = \"SELECT GET_LOCK('one', 60), SLEEP(0.02), RELEASE_LOCK('one')\"";
/// The throughput rises with the number of threads, on every machine that takes so many.
const ALL_AT_ONCE: &str = "[[statement]]\nsql = 'SELECT SLEEP(0.02)'";

pub(super) fn threads_are_doubled_until_the_throughput_no_longer_rises(nodes: &[Node]) {
    let run = |text: &str| {
        let args = "--reads primary --threads auto --duration 1s";
        run_file(nodes, text, &args.split(' ').collect::<Vec<_>>())
    };
    let document = finished(run(ONE_AT_A_TIME));
    let rows = document["results"]["rows"].as_array().unwrap();
    let threads: Vec<u64> = rows.iter().map(|row| count(row, "threads")).collect();
    let doubled: Vec<u64> = (0..rows.len()).map(|step| 1 << step).collect();
    assert_eq!(threads, doubled);
    let found = &document["results"]["saturation"];
    let limited = codes(&document).contains(&"connections-scarce");
    assert!(
        rows.len() >= 3 && found["reached"].as_bool() != Some(limited),
        "{document:#}"
    );
    assert!(threads.contains(&count(found, "threads")), "{found:#}");
    // The server takes fewer connections than the throughput needs to saturate.
    let ended = with_global(&nodes[0], "max_connections", 12, || run(ALL_AT_ONCE));
    let document = finished(ended);
    let most = document["results"]["rows"].as_array().unwrap().last();
    assert!(count(most.unwrap(), "threads") < 12, "{document:#}");
    assert!(
        document["results"]["saturation"]["reached"] == true
            || codes(&document).contains(&"connections-scarce"),
        "{document:#}"
    );
}
