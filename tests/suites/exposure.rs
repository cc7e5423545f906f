//! `replimeter exposure`: transactions that no replica had received, on real servers.

use std::time::{Duration, Instant};

use replimeter_engine::Node;
use replimeter_model::sandbox::{LinkSpec, SandboxSpec};
use replimeter_suites::{
    LIMIT, TestEnvironment, clean, harness::Test, password, sql, start, start_spec, test, url,
    value, wait, wait_until,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

pub(crate) const TESTS: &[Test] = &[
    test!(slow_link_exposes_its_delay).alone(),
    test!(modes_without_exposure_are_reported),
    test!(semi_sync_of_mysql_exposes_nothing).long(),
    test!(user_servers_are_only_read),
    test!(stopped_replica_is_a_warning_of_exposure_and_tap),
    test!(stalled_replica_counts_with_its_time),
    test!(fall_back_counts_as_exposure),
    test!(killed_primary_ends_run_and_is_not_averaged),
    test!(several_targets_or_no_replica_are_refused),
];

/// Returns the number of a user's connections to a server, including the one of this query.
fn connections(node: &Node, user: &str) -> u64 {
    let count =
        format!("SELECT COUNT(*) FROM information_schema.processlist WHERE user = '{user}'");
    value(node, &count).unwrap().parse().unwrap()
}

fn exposure(args: &[&str]) -> Value {
    let tool = TestEnvironment::new();
    let mut all = vec!["exposure", "--json"];
    all.extend(args);
    let document = wait(
        tool.command(&all).spawn().unwrap(),
        Duration::from_secs(180),
    )
    .with_code(0)
    .json();
    assert_eq!(document["schema"], "replimeter.exposure/1");
    document
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("no number: {value}"))
}

fn slow_link_exposes_its_delay() {
    for engine in ["mariadb", "mysql"] {
        let shape = format!("{engine}/async:1");
        let of = |delay: &str| {
            exposure(&[
                "--sandbox",
                &shape,
                "--link-delay",
                delay,
                "--rate",
                "400",
                "--duration",
                "4s",
            ])
        };
        let (near, far) = (of("0"), of("50ms"));
        // Little's law: on average rate × delay transactions are in progress; a busy machine makes it more, never less.
        let rate =
            number(&far["results"]["rows"][0]["committed"]) / (number(&far["measured_us"]) / 1e6);
        let (near, far) = (&near["results"]["rows"][0], &far["results"]["rows"][0]);
        let (near_mean, far_mean) = (
            number(&near["transactions"]["mean"]),
            number(&far["transactions"]["mean"]),
        );
        assert!(
            far_mean > 0.75 * rate * 0.05 && far_mean > near_mean,
            "{engine}: {near_mean} and {far_mean} at {rate}/s"
        );
        assert!(number(&far["age"]["max_us"]) > 45_000.0, "{far}");
        assert!(
            number(&far["bytes"]["mean"]) > 100.0 * far_mean,
            "more than its payload"
        );
        assert!(far["zero_by_construction"].is_null());
        assert!(number(&far["committed"]) > 100.0);
    }
}

fn modes_without_exposure_are_reported() {
    expose_nothing(&["galera:2", "mariadb/semi-sync:1"]);
}

fn semi_sync_of_mysql_exposes_nothing() {
    expose_nothing(&["mysql/semi-sync:1"]);
}

fn expose_nothing(shapes: &[&str]) {
    for shape in shapes {
        let document = exposure(&["--sandbox", shape, "--duration", "1s"]);
        let row = &document["results"]["rows"][0];
        assert!(
            row["zero_by_construction"]
                .as_str()
                .unwrap()
                .contains("acknowledge"),
            "{shape}: {row}"
        );
        assert!(
            document["headline"].as_str().unwrap().contains("by design"),
            "{shape}"
        );
    }
}

fn stopped_replica_is_a_warning_of_exposure_and_tap() {
    let sandbox = start("async:1", &[]);
    let (primary, replica) = (&sandbox.nodes()[0], &sandbox.nodes()[1]);
    sql(replica, "STOP SLAVE");
    sql(primary, "CREATE DATABASE not_received");
    let (on_primary, on_replica) = (url(primary, "replimeter"), url(replica, "replimeter"));
    for command in ["exposure", "tap"] {
        let tool = TestEnvironment::new();
        let mut args = vec![command, "--primary", &on_primary, "--replica", &on_replica];
        args.extend(["--duration", "1s", "--json"]);
        let child = tool
            .command(&args)
            .env("REPLIMETER_PASSWORD", password(primary))
            .spawn()
            .unwrap();
        let document = wait(child, LIMIT).with_code(0).json();
        let warnings = document["warnings"].as_array().unwrap();
        let stopped = warnings
            .iter()
            .find(|warning| warning["code"] == "replica-stopped");
        let stopped = stopped.unwrap_or_else(|| panic!("{document:#}"));
        let message = stopped["message"].as_str().unwrap();
        assert!(
            message.contains("does not replicate (IO thread No"),
            "{message}"
        );
        assert!(stopped["hint"].as_str().unwrap().contains("START REPLICA"));
    }
}

fn user_servers_are_only_read() {
    let sandbox = start("mariadb/async:1", &[]);
    let [primary, replica] = sandbox.nodes() else {
        panic!("two servers")
    };
    sql(primary, "CREATE USER looker@'127.0.0.1' IDENTIFIED BY 'pw'");
    sql(
        primary,
        "GRANT REPLICATION SLAVE, REPLICA MONITOR, BINLOG MONITOR ON *.* TO looker@'127.0.0.1'",
    );
    wait_until("the user has arrived", LIMIT, || {
        value(replica, "SELECT 1 FROM mysql.user WHERE user = 'looker'").is_some()
    });
    let tool = TestEnvironment::new();
    let (one, other) = (url(primary, "looker"), url(replica, "looker"));
    let args = [
        "exposure",
        "--primary",
        &one,
        "--replica",
        &other,
        "--duration",
        "4s",
        "--report-interval",
        "500ms",
    ];
    let mut command = tool.command(&args);
    command.env("REPLIMETER_PASSWORD", "pw");
    let child = command.spawn().unwrap();
    wait_until("the run is connected", LIMIT, || {
        connections(replica, "looker") > 0
    });
    std::thread::sleep(Duration::from_secs(1));
    // While the replica receives nothing, all transactions are exposed.
    sql(replica, "STOP SLAVE IO_THREAD");
    sql(primary, "CREATE DATABASE shop");
    sql(primary, "CREATE TABLE shop.t (id INT PRIMARY KEY)");
    for id in 0..20 {
        sql(primary, &format!("INSERT INTO shop.t VALUES ({id})"));
    }
    let ended = wait(child, Duration::from_secs(60)).with_code(0);
    assert!(
        ended.words().contains("A crash would have lost"),
        "{ended:#?}"
    );
    let summary = std::fs::read_to_string(tool.only_run().join("summary.json")).unwrap();
    let document: Value = serde_json::from_str(&summary).unwrap();
    let row = &document["results"]["rows"][0];
    assert_eq!(number(&row["transactions"]["max"]), 22.0, "{row}");
    assert_eq!(number(&row["committed"]), 22.0);
    assert!(document["results"]["windows"].as_array().unwrap().len() >= 4);
    assert!(clean(primary) && !password(primary).is_empty());
    let refused = tool
        .run(&[
            "exposure",
            "--primary",
            &one,
            "--replica",
            &other,
            "--writers",
            "2",
        ])
        .with_code(2);
    let _ = refused.stderr_contains("writes only to servers that it starts");
}

/// Polls of a stopped replica take ten times as long as others, so there are fewer of them.
fn stalled_replica_counts_with_its_time() {
    let sandbox = start("mariadb/async:1", &[]);
    let [primary, replica] = sandbox.nodes() else {
        panic!("two servers")
    };
    let tool = TestEnvironment::new();
    let (one, other) = (url(primary, "replimeter"), url(replica, "replimeter"));
    let mut args = vec!["exposure", "--primary", &one, "--replica", &other];
    args.extend(["--duration", "8s", "--json"]);
    let mut command = tool.command(&args);
    command.env("REPLIMETER_PASSWORD", password(primary));
    let child = command.spawn().unwrap();
    wait_until("the run is connected", LIMIT, || {
        connections(replica, "replimeter") > 1
    });
    std::thread::sleep(Duration::from_secs(1));
    let pid = Pid::from_raw(i32::try_from(sandbox.pids()[1]).unwrap()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    sql(primary, "CREATE DATABASE shop");
    let began = Instant::now();
    std::thread::sleep(Duration::from_secs(3));
    let stopped = began.elapsed().as_secs_f64();
    kill_process(pid, Signal::CONT).unwrap();
    let document = wait(child, Duration::from_secs(60)).with_code(0).json();
    let row = &document["results"]["rows"][0];
    let truth = stopped * 1e6 / number(&document["measured_us"]) * 100.0;
    let percent = number(&row["exposed_percent"]);
    assert!((percent - truth).abs() < 0.15 * truth, "{truth}: {row:#}");
    let ends = &row["exposed_percent_ci95"];
    assert!(
        number(&ends[0]) <= truth && truth <= number(&ends[1]),
        "{truth}: {row:#}"
    );
}

fn fall_back_counts_as_exposure() {
    let spec = SandboxSpec {
        server_options: vec!["rpl_semi_sync_master_timeout=50".parse().unwrap()],
        link: Some(LinkSpec {
            delay: "0".parse().unwrap(),
            jitter: "0".parse().unwrap(),
            bandwidth: None,
        }),
        ..SandboxSpec::of("mariadb/semi-sync:1".parse().unwrap())
    };
    let sandbox = start_spec(spec).unwrap();
    let [primary, replica] = sandbox.nodes() else {
        panic!("two servers")
    };
    let tool = TestEnvironment::new();
    let (one, other) = (url(primary, "replimeter"), url(replica, "replimeter"));
    let mut command = tool.command(&[
        "exposure",
        "--primary",
        &one,
        "--replica",
        &other,
        "--duration",
        "5s",
        "--json",
    ]);
    command.env("REPLIMETER_PASSWORD", password(primary));
    let child = command.spawn().unwrap();
    wait_until("the run is connected", LIMIT, || {
        connections(replica, "replimeter") > 1
    });
    std::thread::sleep(Duration::from_millis(500));
    sandbox.isolate("primary").unwrap();
    sql(primary, "CREATE DATABASE shop");
    sql(primary, "CREATE DATABASE shop2");
    let document = wait(child, Duration::from_secs(60)).with_code(0).json();
    let row = &document["results"]["rows"][0];
    assert!(
        row["zero_by_construction"].is_null() && number(&row["fallen_back_percent"]) > 10.0,
        "{row}"
    );
    assert!(number(&row["transactions"]["max"]) >= 2.0, "{row}");
}

fn killed_primary_ends_run_and_is_not_averaged() {
    let sandbox = start("mariadb/async:1", &[]);
    let [primary, replica] = sandbox.nodes() else {
        panic!("two servers")
    };
    let tool = TestEnvironment::new();
    let (one, other) = (url(primary, "replimeter"), url(replica, "replimeter"));
    let mut command = tool.command(&[
        "exposure",
        "--primary",
        &one,
        "--replica",
        &other,
        "--duration",
        "8s",
        "--json",
    ]);
    command.env("REPLIMETER_PASSWORD", password(primary));
    let child = command.spawn().unwrap();
    wait_until("the run is connected", LIMIT, || {
        connections(replica, "replimeter") > 1
    });
    std::thread::sleep(Duration::from_secs(2));
    let pid = Pid::from_raw(i32::try_from(sandbox.pids()[0]).unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    let document = wait(child, Duration::from_secs(60)).with_code(3).json();
    assert_eq!(document["status"], "failed");
    assert!(
        document["error"].as_str().unwrap().contains("primary"),
        "{document:#}"
    );
    let warnings = document["warnings"].as_array().unwrap();
    assert!(
        warnings
            .iter()
            .any(|warning| warning["code"] == "server-lost"),
        "{warnings:#?}"
    );
    // Polls cover less than half of the time, and only these count.
    assert!(number(&document["measured_us"]) < 6e6, "{document:#}");
    assert!(
        number(&document["results"]["rows"][0]["polls"]) < 600.0,
        "{document:#}"
    );
}

fn several_targets_or_no_replica_are_refused() {
    let tool = TestEnvironment::new();
    let _ = tool
        .run(&["exposure", "--sandbox", "async:1", "--sandbox", "async:2"])
        .with_code(2)
        .stderr_contains("one target");
    let _ = tool
        .run(&["exposure", "--sandbox", "mariadb/none"])
        .with_code(2)
        .stderr_contains("has no replica");
}
