//! `replimeter stale`: reads that miss acknowledged writes, on real servers.

mod consistency;
mod interference;
mod starts;
mod under_load;

use replimeter_sandbox::Sandbox;
use replimeter_suites::{
    CommandOutput, LIMIT, TestEnvironment, harness::Test, password, test, url, wait,
};
use serde_json::Value;

pub(crate) const TESTS: &[Test] = &[
    test!(consistency::synchronous_reads_remove_galera_staleness),
    test!(consistency::replicas_wait_for_gtids).starts(3),
    test!(consistency::replicas_wait_for_gtids_on_mysql)
        .starts(3)
        .long(),
    test!(consistency::group_keeps_its_consistency_levels),
    test!(under_load::staleness_counts_versions_under_load),
    test!(under_load::load_reads_are_checked),
    test!(under_load::share_of_a_rate_is_of_what_the_load_reaches),
    test!(under_load::load_reads_on_every_cluster_node_are_checked),
    test!(under_load::replica_killed_under_checked_load_ends_the_run).starts(2),
    test!(consistency::unknown_names_are_usage_errors_before_start),
    test!(interference::external_writes_are_distinguished),
    test!(interference::external_rollback_is_not_counted_as_stale),
    test!(interference::stalled_reader_ends_the_run_and_keeps_results),
    test!(interference::stalled_applier_counts_with_its_time),
    test!(interference::leaving_member_is_named_although_not_read).starts(3),
    test!(consistency::unsupported_read_consistency_is_omitted),
    test!(starts::starts_share_the_rounds).starts(4),
    test!(starts::starts_share_the_rounds_and_are_compared)
        .starts(4)
        .long(),
];

/// The command line for the servers of a sandbox as a user's own. Unless it is given, the timeout is long enough for a machine that
/// stalls.
fn args(sandbox: &Sandbox, members: bool, more: &[&str]) -> Vec<String> {
    let mut args = vec!["stale".to_owned()];
    for (index, node) in sandbox.nodes().iter().enumerate() {
        let flag = match (members, index) {
            (true, _) => "--node",
            (false, 0) => "--primary",
            (false, _) => "--replica",
        };
        args.extend([flag.to_owned(), url(node, "replimeter")]);
    }
    if !more.contains(&"--timeout") {
        args.extend(["--timeout", "60s"].map(str::to_owned));
    }
    args.extend(more.iter().map(|arg| (*arg).to_owned()));
    args
}

fn run(sandbox: &Sandbox, tool: &TestEnvironment, args: &[String]) -> CommandOutput {
    let child = tool
        .command(args)
        .env("REPLIMETER_PASSWORD", password(&sandbox.nodes()[0]))
        .spawn()
        .unwrap();
    wait(child, LIMIT)
}

fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("no number: {value}"))
}

fn float(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("no number: {value}"))
}

fn rows(document: &Value) -> &Vec<Value> {
    document["results"]["rows"].as_array().unwrap()
}

/// The rows of one way of reading.
fn of<'a>(document: &'a Value, sync_reads: &str, pool: &str) -> Vec<&'a Value> {
    let rows = rows(document)
        .iter()
        .filter(|row| row["read_consistency"] == sync_reads && row["session_reset"] == pool)
        .collect::<Vec<_>>();
    assert!(!rows.is_empty(), "{sync_reads}, {pool}: {document:#}");
    rows
}

fn warned(document: &Value, code: &str) -> bool {
    document["warnings"]
        .as_array()
        .unwrap()
        .iter()
        .any(|warning| warning["code"] == code)
}

/// Checks what holds for every row.
fn consistent(row: &Value) {
    let (rounds, stale) = (number(&row["rounds"]), number(&row["stale"]));
    assert!(stale <= rounds, "{row:#}");
    let share = float(&row["stale_percent"]);
    assert!(
        (share - stale as f64 / rounds as f64 * 100.0).abs() < 1e-9,
        "{row:#}"
    );
    assert!(
        float(&row["stale_percent_ci95"][0]) <= share
            && share < float(&row["stale_percent_ci95"][1]).max(100.1),
        "{row:#}"
    );
    assert!(
        float(&row["stale_percent_ci95"][1]) > 0.0,
        "never a bare 0 %: {row:#}"
    );
    if row["judged"] == "rounds" {
        assert_eq!(number(&row["staleness"]["count"]), stale, "{row:#}");
        // At once and at the times of the curve.
        let points = |key: &str| {
            row["curve"]
                .as_array()
                .unwrap()
                .iter()
                .map(|point| number(&point[key]))
                .sum::<u64>()
        };
        assert_eq!(
            number(&row["violations"]["read_your_writes"]),
            points("stale"),
            "{row:#}"
        );
        assert_eq!(
            number(&row["violations"]["read_your_writes_of"]),
            points("reads"),
            "{row:#}"
        );
    }
    assert!(
        number(&row["violations"]["monotonic_reads"])
            <= number(&row["violations"]["monotonic_reads_of"]),
        "{row:#}"
    );
    assert_eq!(
        row["witness"].is_null(),
        number(&row["violations"]["read_your_writes"]) == 0,
        "{row:#}"
    );
    assert_eq!(
        row["monotonic_witness"].is_null(),
        number(&row["violations"]["monotonic_reads"]) == 0,
        "{row:#}"
    );
    for point in row["curve"].as_array().unwrap() {
        assert!(
            point["probability_ci95"][0].as_f64() <= point["probability"].as_f64()
                && point["probability"].as_f64() <= point["probability_ci95"][1].as_f64()
        );
    }
}
