//! Links of Replimeter between servers: a link's delay appears as lag.

use std::time::Duration;

use replimeter_suites::{
    TestEnvironment,
    harness::{Test, skip},
    run_unprivileged, test, wait,
};
use serde_json::Value;

pub(crate) const TESTS: &[Test] = &[
    test!(link_delay_adds_to_lag).alone(),
    test!(chain_lag_adds_every_link_delay).alone(),
    test!(cluster_members_run_in_separate_networks).alone(),
    test!(group_members_run_in_separate_networks).alone().long(),
    test!(unprivileged_user_gets_reason_for_missing_links),
    test!(client_link_delays_each_statement),
    test!(client_link_leads_into_the_networks_of_members).long(),
    test!(flush_delay_lengthens_each_commit),
    test!(dilation_slows_links_timers_and_pauses),
];

fn document(shape: &str, delay: &str, every: &str, more: &[&str]) -> Value {
    let tool = TestEnvironment::new();
    let mut args = vec![
        "lag",
        "--sandbox",
        shape,
        "--link-delay",
        delay,
        "--rounds",
        "100",
        "--interval",
        every,
        "--floor-rounds",
        "0",
        "--json",
    ];
    args.extend(more);
    wait(
        tool.command(&args).spawn().unwrap(),
        Duration::from_secs(120),
    )
    .with_code(0)
    .json()
}

fn p50(document: &Value, key: &str) -> f64 {
    document["results"]["rows"][0][key]["p50_us"]
        .as_f64()
        .unwrap()
}

fn link_delay_adds_to_lag() {
    // Without flushes, so that a busy disk does not hide the delay.
    let quiet = [
        "--server-option",
        "sync_binlog=0",
        "--server-option",
        "innodb_flush_log_at_trx_commit=0",
    ];
    let measure = |shape: &str, delay: &str| document(shape, delay, "40ms", &quiet);
    let mut rises = Vec::new();
    // `make bench` measures the accuracy: here other work may run at the same time.
    for _ in 0..4 {
        let without = measure("async:1", "0");
        for (delay, us) in [("5ms", 5_000.0), ("20ms", 20_000.0)] {
            let with = measure("async:1", delay);
            let earliest = with["results"]["rows"][0]["from_send"]["min_us"]
                .as_f64()
                .unwrap();
            assert!(
                earliest >= us,
                "{delay}: a row came after {earliest} µs, before the link let it through"
            );
            rises.push((us, p50(&with, "from_ack") - p50(&without, "from_ack")));
        }
        if rises
            .iter()
            .rev()
            .take(2)
            .all(|(us, rise)| *rise > us * 0.9 && *rise < us + 3_000.0)
        {
            break;
        }
        assert!(rises.len() < 8, "injected and measured (µs): {rises:?}");
    }
    let with = measure("semi-sync:1", "20ms");
    assert!(
        p50(&with, "write_latency") > 40_000.0,
        "there and back before the acknowledgement"
    );
    assert!(
        p50(&with, "from_ack") < 0.0,
        "the replica shows the row before the primary acknowledges it"
    );
}

fn chain_lag_adds_every_link_delay() {
    let document = document(
        "chain:2",
        "10ms",
        "60ms",
        &["--link-jitter", "1ms", "--link-bandwidth", "100mbit"],
    );
    let of = |row: usize| {
        document["results"]["rows"][row]["from_send"]["p50_us"]
            .as_f64()
            .unwrap()
    };
    assert!(
        of(0) > 9_000.0 && of(1) > 18_000.0 && of(1) > of(0) + 8_000.0,
        "{} {}",
        of(0),
        of(1)
    );
}

fn cluster_members_run_in_separate_networks() {
    members_in_networks("galera:2");
}

fn group_members_run_in_separate_networks() {
    members_in_networks("group:2");
}

fn members_in_networks(shape: &str) {
    if !rustix::process::geteuid().is_root() {
        let tool = TestEnvironment::new();
        let _ = tool
            .run(&["lag", "--sandbox", shape, "--link-delay", "1ms"])
            .with_code(3)
            .stderr_contains("needs its own network namespace");
        return;
    }
    let (without, with) = (
        document(shape, "0", "120ms", &[]),
        document(shape, "20ms", "120ms", &[]),
    );
    let rise = p50(&with, "write_latency") - p50(&without, "write_latency");
    // At least one round trip before a commit.
    assert!(rise > 36_000.0, "{shape}: rose by {rise} µs");
}

/// Measures with a link of 5 ms to each server, and checks that no write and no read took less than its round trip.
fn measure_from_afar(shape: &str) {
    let document = document(shape, "0", "40ms", &["--client-link-delay", "5ms"]);
    for what in ["write_latency", "retrieval"] {
        let least = document["results"]["rows"][0][what]["min_us"]
            .as_f64()
            .unwrap();
        assert!(least >= 10_000.0, "{what}: {least} µs");
    }
    let options = document["target"]["options"].to_string();
    assert!(
        options.contains("links of the client: 5ms one way"),
        "{options}"
    );
}

fn client_link_delays_each_statement() {
    measure_from_afar("async:1");
}

fn client_link_leads_into_the_networks_of_members() {
    if !rustix::process::geteuid().is_root() {
        return skip("networks of members need root");
    }
    measure_from_afar("galera:2");
}

fn unprivileged_user_gets_reason_for_missing_links() {
    if !rustix::process::geteuid().is_root() {
        return skip(
            "only root changes to another user; as an ordinary user the test above tries the same",
        );
    }
    let ended = run_unprivileged(&["lag", "--sandbox", "galera:2", "--link-delay", "1ms"]);
    let ended = ended.with_code(3);
    let _ = ended
        .stderr_contains("needs its own network namespace")
        .stderr_contains("run it as root")
        .stderr_contains("need no privilege");
}

fn flush_delay_lengthens_each_commit() {
    for shape in ["async:1", "mysql/async:1"] {
        let flushing = [
            "--flush-delay",
            "5ms",
            "--server-option",
            "innodb_flush_log_at_trx_commit=1",
        ];
        let document = document(shape, "0", "30ms", &flushing);
        let least = &document["results"]["rows"][0]["write_latency"]["min_us"];
        assert!(least.as_f64().unwrap() >= 5_000.0, "{shape}: {least} µs");
        let options = document["target"]["options"].to_string();
        assert!(
            options.contains("flushes to the disk: at least 5ms each"),
            "{options}"
        );
    }
}

fn dilation_slows_links_timers_and_pauses() {
    let tool = TestEnvironment::new();
    let words = "lag --sandbox mariadb/async:1 --link-delay 1ms --dilation 10 --interval 3ms --rounds 40 --starts 1 --floor-rounds 0 \
                 --server-option innodb_flush_log_at_timeout=2 --server-option lock_wait_timeout=50 --run-dir slow --json";
    let words: Vec<&str> = words.split_whitespace().collect();
    let document = tool.run(&words).with_code(0).json();
    let row = &document["results"]["rows"][0];
    let earliest = row["from_send"]["min_us"].as_f64().unwrap();
    assert!(earliest >= 10_000.0, "a link of 10 ms: {earliest} µs");
    assert_eq!(document["target"]["dilation"], 10);
    assert_eq!(
        document["settings"]["pace"], "interval 3ms",
        "as it was given"
    );
    let measured = document["measured_us"].as_f64().unwrap();
    assert!(
        measured > 40.0 * 30_000.0 * 0.5,
        "pauses of 30 ms: {measured} µs"
    );
    let warnings = document["warnings"].to_string();
    assert!(
        warnings.contains("dilation-incomplete") && warnings.contains("lock_wait_timeout=50"),
        "{warnings}"
    );
    let manifest: Value = serde_json::from_str(
        &std::fs::read_to_string(tool.folder().join("slow/manifest.json")).unwrap(),
    )
    .unwrap();
    let started = manifest["sandboxes"][0]["command_lines"]["primary"].to_string();
    assert!(
        started.contains("innodb_flush_log_at_timeout=20"),
        "{started}"
    );
    let report = tool.run(&["report", "slow"]).with_code(0).stdout;
    assert!(
        report.contains("In plain time: as measured, divided by 10"),
        "{report}"
    );
}
