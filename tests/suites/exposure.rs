//! `replimeter exposure`: transactions that no replica had received, on real servers.

use std::{
    process::Child,
    thread,
    time::{Duration, Instant},
};

use replimeter_engine::Node;
use replimeter_model::sandbox::{LinkSpec, SandboxSpec};
use replimeter_suites::{
    LIMIT, TestEnvironment, clean, harness::Test, password, shared, sql, start, start_spec, test,
    url, value, wait, wait_until,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

pub(crate) const TESTS: &[Test] = &[
    test!(slow_link_exposes_its_delay).starts(4),
    test!(modes_without_exposure_are_reported).starts(2),
    test!(semi_sync_of_mysql_exposes_nothing).starts(2).long(),
    test!(user_servers_are_only_read),
    test!(stopped_replica_is_a_warning_of_exposure_and_tap),
    test!(stalled_replica_counts_with_its_time),
    test!(fall_back_counts_as_exposure).starts(2),
    test!(killed_primary_ends_run_and_is_not_averaged).starts(2),
    test!(several_targets_or_no_replica_are_refused),
];

/// Waits until a run has polled a MariaDB replica this many times from now on.
fn await_polls(replica: &Node, count: u64) {
    let asked = "SELECT CAST(SUM(variable_value) AS UNSIGNED) FROM information_schema.global_status \
                 WHERE variable_name IN ('COM_SHOW_SLAVE_STATUS', 'COM_SHOW_REPLICA_STATUS')";
    let asked = || value(replica, asked).unwrap().parse::<u64>().unwrap();
    let wanted = asked() + count;
    wait_until("the run polls", LIMIT, || asked() >= wanted);
}

/// Starts a run on servers that run already; returns when it follows the primary's log and polls the replica.
fn under_way(tool: &TestEnvironment, servers: [&Node; 2], user: &str, more: &[&str]) -> Child {
    let [primary, replica] = servers;
    let newest =
        "SELECT MAX(id) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'";
    let newest = || value(primary, newest).map(|id| id.parse::<u64>().unwrap());
    let before = newest();
    let (primary_url, replica_url) = (url(primary, user), url(replica, user));
    let mut args = vec!["exposure", "--primary", &primary_url];
    args.extend(["--replica", &replica_url]);
    args.extend(more);
    let secret = if user == READER {
        READER
    } else {
        password(primary)
    };
    let child = tool
        .command(&args)
        .env("REPLIMETER_PASSWORD", secret)
        .spawn()
        .unwrap();
    wait_until("the run follows the primary's log", LIMIT, || {
        newest() > before
    });
    await_polls(replica, 3);
    child
}

/// The user without privileges to write, and its password.
const READER: &str = "reader";
/// The user of the sandboxes.
const ADMIN: &str = "replimeter";

fn interrupt(child: &Child) {
    kill_process(Pid::from_child(child), Signal::INT).unwrap();
}

fn exposure(args: &[&str]) -> Value {
    exposure_as(&TestEnvironment::new(), args, "")
}

fn exposure_as(tool: &TestEnvironment, args: &[&str], password: &str) -> Value {
    let all = [&["exposure", "--json"], args].concat();
    let mut command = tool.command(&all);
    if !password.is_empty() {
        command.env("REPLIMETER_PASSWORD", password);
    }
    let document = wait(command.spawn().unwrap(), LIMIT).with_code(0).json();
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
        let args = [
            "--sandbox",
            &shape,
            "--link-delay",
            "300ms",
            "--rate",
            "200",
            "--duration",
            "3s",
        ];
        let document = exposure(&args);
        let row = &document["results"]["rows"][0];
        // Little's law: on average rate × delay transactions are in progress; a busy machine makes it more. Those of the last
        // 300 ms count only in part.
        let rate = number(&row["committed"]) / (number(&document["measured_us"]) / 1e6);
        let mean = number(&row["transactions"]["mean"]);
        assert!(
            rate > 0.0 && mean > 0.25 * rate * 0.3,
            "{engine}: {mean} at {rate}/s"
        );
        assert!(
            number(&row["transactions"]["max"]) >= mean
                && number(&row["age"]["max_us"]) > 250_000.0,
            "{row}"
        );
        assert!(
            number(&row["bytes"]["mean"]) > 100.0 * mean,
            "more than its payload"
        );
        assert!(row["zero_by_construction"].is_null());
    }
}

fn modes_without_exposure_are_reported() {
    // A write that waits for longer would fall back, and be exposed.
    let patient = "rpl_semi_sync_master_timeout=600000";
    let args = ["--sandbox", "mariadb/semi-sync:1", "--server-option"];
    expose_nothing(&exposure(
        &[&args[..], &[patient, "--duration", "1s"]].concat(),
    ));
    let cluster = shared("galera:2", &[]);
    let [one, other] = [0, 1].map(|index| url(&cluster.nodes()[index], ADMIN));
    let args = ["--node", &one, "--node", &other, "--duration", "1s"];
    let secret = password(&cluster.nodes()[0]);
    expose_nothing(&exposure_as(&TestEnvironment::new(), &args, secret));
}

fn semi_sync_of_mysql_exposes_nothing() {
    let args = ["--sandbox", "mysql/semi-sync:1", "--duration", "1s"];
    expose_nothing(&exposure(&args));
}

fn expose_nothing(document: &Value) {
    let row = &document["results"]["rows"][0];
    let reason = row["zero_by_construction"].as_str();
    assert!(
        reason.is_some_and(|reason| reason.contains("acknowledge")),
        "{row}"
    );
    assert!(
        document["headline"].as_str().unwrap().contains("by design"),
        "{document:#}"
    );
}

fn stopped_replica_is_a_warning_of_exposure_and_tap() {
    let sandbox = shared("mariadb/async:1", &[]);
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
        assert!(
            stopped["hint"]
                .as_str()
                .unwrap()
                .contains("run on it: START SLAVE;")
        );
    }
    sql(replica, "START SLAVE");
}

fn user_servers_are_only_read() {
    let sandbox = shared("mariadb/async:1", &[]);
    let [primary, replica] = sandbox.nodes() else {
        panic!("two servers")
    };
    let user = format!("{READER}@'127.0.0.1'");
    sql(
        primary,
        &format!("CREATE USER {user} IDENTIFIED BY '{READER}'"),
    );
    sql(
        primary,
        &format!("GRANT REPLICATION SLAVE, REPLICA MONITOR, BINLOG MONITOR ON *.* TO {user}"),
    );
    let position = value(primary, "SELECT @@gtid_binlog_pos");
    wait_until("the user and its privileges have arrived", LIMIT, || {
        value(replica, "SELECT @@gtid_slave_pos") == position
    });
    let tool = TestEnvironment::new();
    // It ends when every transaction has been polled, however long that takes.
    let more = ["--duration", "30m", "--report-interval", "100ms"];
    let child = under_way(&tool, [primary, replica], READER, &more);
    // While the replica receives nothing, all transactions are exposed.
    sql(replica, "STOP SLAVE IO_THREAD");
    sql(primary, "CREATE DATABASE shop");
    sql(primary, "CREATE TABLE shop.t (id INT PRIMARY KEY)");
    for id in 0..20 {
        sql(primary, &format!("INSERT INTO shop.t VALUES ({id})"));
    }
    await_polls(replica, 50);
    interrupt(&child);
    let ended = wait(child, LIMIT).with_code(130);
    assert!(
        ended.words().contains("A crash would have lost"),
        "{ended:#?}"
    );
    let summary = std::fs::read_to_string(tool.only_run().join("summary.json")).unwrap();
    let document: Value = serde_json::from_str(&summary).unwrap();
    let row = &document["results"]["rows"][0];
    assert_eq!(number(&row["transactions"]["max"]), 22.0, "{row}");
    assert_eq!(number(&row["committed"]), 22.0);
    let windows = document["results"]["windows"].as_array().unwrap();
    assert!(!windows.is_empty(), "{document:#}");
    let in_order = windows
        .windows(2)
        .all(|pair| number(&pair[0]["end_us"]) <= number(&pair[1]["start_us"]));
    assert!(in_order, "{windows:#?}");
    // The last window is not complete.
    let committed: f64 = windows.iter().map(|one| number(&one["committed"])).sum();
    assert!(committed <= 22.0, "{windows:#?}");
    assert!(clean(primary) && !password(primary).is_empty());
    let (one, other) = (url(primary, READER), url(replica, READER));
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
    sql(replica, "START SLAVE IO_THREAD");
    sql(primary, &format!("DROP USER {user}"));
}

/// Polls of a stopped replica take ten times as long as others, so there are fewer of them.
fn stalled_replica_counts_with_its_time() {
    let sandbox = shared("mariadb/async:1", &[]);
    let [primary, replica] = sandbox.nodes() else {
        panic!("two servers")
    };
    let tool = TestEnvironment::new();
    let more = ["--duration", "30m", "--json"];
    let child = under_way(&tool, [primary, replica], ADMIN, &more);
    await_polls(replica, 100);
    let pid = Pid::from_raw(i32::try_from(sandbox.pids()[1]).unwrap()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    sql(primary, "CREATE DATABASE shop");
    let began = Instant::now();
    thread::sleep(Duration::from_secs(3));
    let stopped = began.elapsed().as_secs_f64();
    kill_process(pid, Signal::CONT).unwrap();
    wait_until("the replica has received it", LIMIT, || {
        let there = "SELECT 1 FROM information_schema.schemata WHERE schema_name = 'shop'";
        value(replica, there).is_some()
    });
    await_polls(replica, 100);
    interrupt(&child);
    let document = wait(child, LIMIT).with_code(130).json();
    let row = &document["results"]["rows"][0];
    // At least this share of the time; by the number of polls it would be about a tenth of it.
    let truth = stopped * 1e6 / number(&document["measured_us"]) * 100.0;
    let percent = number(&row["exposed_percent"]);
    assert!(percent > 0.5 * truth && percent < 100.0, "{truth}: {row:#}");
    let ends = &row["exposed_percent_ci95"];
    assert!(
        ends.is_null() || number(&ends[0]) <= percent && percent <= number(&ends[1]),
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
    let more = ["--duration", "30m", "--json"];
    let tool = TestEnvironment::new();
    let child = under_way(&tool, [primary, replica], ADMIN, &more);
    // The run asks twice a second whether the mode is in effect. It cannot while it is stopped.
    kill_process(Pid::from_child(&child), Signal::STOP).unwrap();
    let status = |name: &str| {
        let sql = "SELECT variable_value FROM information_schema.global_status WHERE variable_name";
        value(primary, &format!("{sql} = 'RPL_SEMI_SYNC_MASTER_{name}'")).unwrap()
    };
    let count = || status("NO_TX").parse::<u64>().unwrap();
    let before = count();
    sql(replica, "STOP SLAVE IO_THREAD");
    sql(primary, "CREATE DATABASE unseen");
    sql(replica, "START SLAVE IO_THREAD");
    wait_until("the mode is in effect again", LIMIT, || {
        status("STATUS") == "ON"
    });
    let exposed = count() - before;
    assert!(exposed > 0);
    kill_process(Pid::from_child(&child), Signal::CONT).unwrap();
    await_polls(replica, 50);
    interrupt(&child);
    let document = wait(child, LIMIT).with_code(130).json();
    let row = &document["results"]["rows"][0];
    assert!(row["zero_by_construction"].is_null(), "{row}");
    assert_eq!(row["unacknowledged"], exposed, "{row}");
    let warnings = document["warnings"].to_string();
    assert!(
        warnings.contains(&format!("exposed: {exposed}")),
        "{warnings}"
    );

    let tool = TestEnvironment::new();
    let child = under_way(&tool, [primary, replica], ADMIN, &more);
    sandbox.isolate("primary").unwrap();
    sql(primary, "CREATE DATABASE shop");
    sql(primary, "CREATE DATABASE shop2");
    // In this time the run also asks twice whether semi-synchronous replication is in effect.
    await_polls(replica, 150);
    interrupt(&child);
    let document = wait(child, LIMIT).with_code(130).json();
    let row = &document["results"]["rows"][0];
    assert!(
        row["zero_by_construction"].is_null() && number(&row["fallen_back_percent"]) > 0.0,
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
    let began = Instant::now();
    // The run ends with its time. The primary must be killed in it.
    let more = ["--duration", "15s", "--json"];
    let child = under_way(&tool, [primary, replica], ADMIN, &more);
    let pid = Pid::from_raw(i32::try_from(sandbox.pids()[0]).unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    let document = wait(child, LIMIT).with_code(3).json();
    let took = began.elapsed().as_secs_f64();
    assert_eq!(document["status"], "failed");
    assert!(
        document["error"].as_str().unwrap().contains("primary"),
        "{document:#}"
    );
    let warnings = document["warnings"].as_array().unwrap();
    let lost = warnings
        .iter()
        .find(|warning| warning["code"] == "server-lost");
    let lost = lost.unwrap_or_else(|| panic!("{warnings:#?}"));
    // "the primary was unreachable for the last 13.2 s; …": the rest was measured, and only polls of the rest count.
    let message = lost["message"].as_str().unwrap();
    let unreachable = message
        .split("for the last ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next())
        .and_then(|seconds| seconds.parse::<f64>().ok())
        .unwrap_or_else(|| panic!("{message}"));
    let measured = number(&document["measured_us"]) / 1e6;
    let rounding = 0.1;
    assert!(
        measured + unreachable >= 15.0 - rounding && measured + unreachable <= took + rounding,
        "{measured} s measured, {unreachable} s unreachable in {took} s"
    );
    // There is one poll each 10 ms at most.
    let polls = number(&document["results"]["rows"][0]["polls"]);
    assert!(
        polls > 0.0 && polls <= measured * 100.0 + 1.0,
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
