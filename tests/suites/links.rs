//! Links of Replimeter between servers: a link's delay appears as lag.

use replimeter_suites::{
    LIMIT, TestEnvironment,
    harness::{Test, skip},
    run_unprivileged, test, wait,
};
use serde_json::Value;

pub(crate) const TESTS: &[Test] = &[
    test!(link_delay_adds_to_lag).starts(4),
    test!(semi_sync_waits_for_the_link_both_ways).starts(2),
    test!(chain_lag_adds_every_link_delay).starts(3),
    test!(cluster_members_run_in_separate_networks).starts(2),
    test!(group_members_run_in_separate_networks)
        .starts(2)
        .long(),
    test!(unprivileged_user_gets_reason_for_missing_links),
    test!(client_link_delays_each_statement).starts(2),
    test!(client_link_leads_into_the_networks_of_members)
        .starts(2)
        .long(),
    test!(flush_delay_lengthens_each_commit).starts(4),
];

/// Runs `lag` with links of this delay between servers. Only lower bounds hold on a busy machine; `make bench` measures the
/// accuracy.
fn document(shape: &str, delay: &str, every: &str, more: &[&str]) -> Value {
    let tool = TestEnvironment::new();
    let mut args = vec!["lag", "--sandbox", shape, "--link-delay", delay];
    args.extend(["--rounds", "40", "--warm-up", "10", "--floor-rounds", "0"]);
    args.extend(["--interval", every, "--timeout", "2m"]);
    args.extend(["--keep-awake", "off", "--json"]);
    args.extend(more);
    wait(tool.command(&args).spawn().unwrap(), LIMIT)
        .with_code(0)
        .json()
}

/// Returns a quantile of a row's figure, in microseconds.
fn figure(document: &Value, row: usize, key: &str, quantile: &str) -> f64 {
    document["results"]["rows"][row][key][quantile]
        .as_f64()
        .unwrap()
}

fn link_delay_adds_to_lag() {
    let earliest = |delay: &str| {
        let document = document("mariadb/async:1", delay, "40ms", &[]);
        figure(&document, 0, "from_send", "min_us")
    };
    let (near, far) = (earliest("20ms"), earliest("200ms"));
    assert!(
        near >= 20_000.0 && far >= 200_000.0,
        "a row came after {near} and {far} µs, before the link let it through"
    );
    // The row that was delayed least was delayed once.
    assert!(near < far && far < 400_000.0, "{near} and {far} µs");
}

fn semi_sync_waits_for_the_link_both_ways() {
    // Without an acknowledgement for longer it would fall back.
    let patient = ["--server-option", "rpl_semi_sync_master_timeout=600000"];
    let document = document("mariadb/semi-sync:1", "50ms", "150ms", &patient);
    assert!(
        figure(&document, 0, "write_latency", "min_us") >= 99_000.0,
        "there and back before the acknowledgement"
    );
    assert!(
        figure(&document, 0, "from_ack", "min_us") < 0.0,
        "the replica shows a row before the primary acknowledges it"
    );
}

fn chain_lag_adds_every_link_delay() {
    let links = ["--link-jitter", "1ms", "--link-bandwidth", "100mbit"];
    let document = document("mariadb/chain:2", "100ms", "60ms", &links);
    let [first, second] = [0, 1].map(|row| figure(&document, row, "from_send", "min_us"));
    assert!(
        first >= 99_000.0 && second >= 198_000.0 && first < second,
        "{first} {second}"
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
        return skip("networks of members need root");
    }
    let document = document(shape, "20ms", "120ms", &[]);
    // At least one round trip before a commit.
    let latency = figure(&document, 0, "write_latency", "p50_us");
    assert!(latency > 36_000.0, "{shape}: {latency} µs");
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
    measure_from_afar("mariadb/async:1");
}

fn client_link_leads_into_the_networks_of_members() {
    if !rustix::process::geteuid().is_root() {
        return skip("networks of members need root");
    }
    measure_from_afar("galera:2");
}

fn unprivileged_user_gets_reason_for_missing_links() {
    let args = ["lag", "--sandbox", "galera:2", "--link-delay", "1ms"];
    let ended = if rustix::process::geteuid().is_root() {
        run_unprivileged(&args)
    } else {
        TestEnvironment::new().run(&args)
    };
    let _ = ended
        .with_code(3)
        .stderr_contains("needs its own network namespace")
        .stderr_contains("run it as root")
        .stderr_contains("need no privilege");
}

fn flush_delay_lengthens_each_commit() {
    for shape in ["mariadb/async:1", "mysql/async:1"] {
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
