//! Several starts of a sandbox.

use super::*;

/// Measures 120 rounds in a number of starts of a sandbox.
fn measure(tool: &TestEnvironment, name: &str, starts: &str) -> Value {
    let rounds = ["--rounds", "120", "--starts", starts, "--warm-up", "5"];
    let curve = ["--read-delays", "0,1ms", "--curve-rounds", "20"];
    let load = ["--load", "insert:1@primary"];
    let args = [
        &[
            "stale",
            "--sandbox",
            "mariadb/async:1",
            "--timeout",
            "60s",
            "--run-dir",
            name,
            "--json",
        ],
        &rounds[..],
        &curve,
        &load,
    ];
    tool.run(&args.concat()).with_code(0).json()
}

/// Measures in several starts, and checks what the figures are of.
fn share_the_rounds(tool: &TestEnvironment, starts: u64) {
    let several = measure(tool, "several", &starts.to_string());
    assert_eq!(several["target"]["fresh_starts"], starts);
    let row = &rows(&several)[0];
    consistent(row);
    assert_eq!(number(&row["rounds"]), 120, "{row:#}");
    assert_eq!(number(&row["curve"][1]["reads"]), 20, "{row:#}");
    // Each start has a load of its own.
    let loads = several["results"]["load"].as_array().unwrap();
    let of_start: Vec<u64> = loads
        .iter()
        .map(|load| load["start"].as_u64().unwrap_or(1))
        .collect();
    assert_eq!(of_start, Vec::from_iter(1..=starts));
    assert!(
        loads.iter().all(|load| number(&load["passes"]) > 0),
        "{loads:#?}"
    );
    // The time between starts is no round, no part of the rate, and not in the timeline.
    let windows = several["results"]["timelines"][0]["windows"].as_array();
    let windows = windows.unwrap();
    assert!(
        windows
            .windows(2)
            .all(|pair| float(&pair[0]["start_us"]) < float(&pair[1]["start_us"])),
        "{windows:#?}"
    );
    let measured = float(&several["measured_us"]);
    assert!(float(&row["longest_round_us"]) < measured, "{row:#}");
    assert!(
        float(&row["rounds_per_s"]) > 120.0 / measured * 1e6,
        "{row:#}"
    );
}

pub(super) fn starts_share_the_rounds() {
    share_the_rounds(&TestEnvironment::new(), 2);
}

pub(super) fn starts_share_the_rounds_and_are_compared() {
    let tool = TestEnvironment::new();
    share_the_rounds(&tool, 4);
    let single = measure(&tool, "single", "1");
    assert_eq!(single["target"]["fresh_starts"], 1);
    let compared = |a: &str, b: &str| tool.run(&["compare", a, b]).with_code(0);
    let ended = compared("single", "several");
    assert!(
        ended.words().contains("cannot be told from one start of A"),
        "{}",
        ended.stdout
    );
    // Figures of several starts have one value for each.
    let ended = tool
        .run(&["compare", "several", "single", "--json"])
        .with_code(0)
        .json();
    let figures = ended["results"].as_array().unwrap();
    let latency = figures
        .iter()
        .find(|figure| figure["figure"] == "stale.read_latency.p50");
    assert_eq!(latency.unwrap()["a"]["starts"], 4, "{ended:#}");
}
