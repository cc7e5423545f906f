//! Load during a measurement.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use replimeter_suites::{LIMIT, TestEnvironment, password, session, value, wait, wait_until};
use rustix::process::{Signal, kill_process};

use super::{ADMIN, Servers, number, pid};
use crate::engine::{assert_retried, failures_before_the_end};

pub(super) fn open_loop_holds_its_rate(servers: &Servers) {
    let tool = TestEnvironment::new();
    let args = [
        "lag",
        "--duration",
        "2s",
        "--timeout",
        "60s",
        "--load",
        "insert:4@primary",
        "--rate",
        "100",
        "--json",
    ];
    let began = Instant::now();
    let document = servers.run(&tool, &args).with_code(0).json();
    let took = began.elapsed().as_secs_f64();
    let load = &document["results"]["load"][0];
    assert_eq!(
        (
            load["workload"].as_str(),
            load["threads"].as_u64(),
            load["node"].as_str()
        ),
        (Some("insert"), Some(4), Some("primary"))
    );
    assert_eq!(load["rate"].as_u64(), Some(100));
    assert_eq!(failures_before_the_end(load), 0, "{load:#}");
    // However slow the machine: what was due was started or waits, and each thread may hold one that is not due yet; and no more
    // was started than was due since the load began.
    let passes = number(&load["passes"]);
    let due = passes + number(&load["failed"]) + number(&load["waiting"]);
    let wanted = 100.0 * number(&load["counted_us"]) / 1e6;
    assert!(due + 5.0 >= wanted && passes <= 100.0 * took, "{load:#}");
    assert_eq!(load["latency"]["count"], load["passes"]);
    assert_eq!(
        document["results"]["rows"][0]["timed_out"].as_u64(),
        Some(0)
    );
    // The stored plan runs the same load.
    let plan = fs::read_to_string(tool.only_run().join("plan.toml")).unwrap();
    assert!(
        plan.contains("insert:4@primary") && plan.contains("rate = 100"),
        "{plan}"
    );
    let report = tool
        .run(&["report", tool.only_run().to_str().unwrap()])
        .with_code(0);
    assert!(
        report.stdout.contains("insert:4@primary") && report.stdout.contains("open, 100/s"),
        "{report:#?}"
    );
}

pub(super) fn two_loads_share_the_script_data(servers: &Servers) {
    let tool = TestEnvironment::new();
    let mut args = vec![
        "lag",
        "--rounds",
        "50",
        "--timeout",
        "60s",
        "--json",
        "--load",
        "insert:1@primary",
        "--load",
        "insert:2@primary",
    ];
    args.extend(["--rate", "20", "--rate", "40"]);
    let document = servers.run(&tool, &args).with_code(0).json();
    let rates: Vec<Option<u64>> = document["results"]["load"]
        .as_array()
        .unwrap()
        .iter()
        .map(|load| load["rate"].as_u64())
        .collect();
    assert_eq!(rates, [Some(20), Some(40)]);
    assert!(
        document["results"]["load"]
            .as_array()
            .unwrap()
            .iter()
            .all(|load| load["passes"].as_u64() > Some(0)),
        "{document:#}"
    );
}

pub(super) fn deadlocks_are_retried_and_counted(servers: &Servers) {
    let script = "-- setup
        CREATE TABLE pair (id INT PRIMARY KEY, n INT NOT NULL) ENGINE=InnoDB;
        INSERT INTO pair VALUES (1, 0), (2, 0), (3, 0);
        -- run
        BEGIN;
        UPDATE pair SET n = n + 1 WHERE id = {random:1-3};
        UPDATE pair SET n = n + 1 WHERE id = {random:1-3};
        COMMIT;
        -- teardown
        DROP TABLE pair;";
    let document = servers.under(script, 8, &[]).with_code(0).json();
    let load = &document["results"]["load"][0];
    let errors = load["errors"].as_array().unwrap();
    let deadlocks = errors
        .iter()
        .find(|error| error["code"] == 1213)
        .unwrap_or_else(|| panic!("no deadlock in {load:#}"));
    assert!(
        load["retries"].as_u64().unwrap() > 0 && deadlocks["count"].as_u64().unwrap() > 0,
        "{load:#}"
    );
    assert_retried(load);
    assert!(load["passes"].as_u64().unwrap() > 0, "{load:#}");
}

pub(super) fn errors_are_counted_by_code(servers: &Servers) {
    let script = "-- setup
        CREATE TABLE few (id INT PRIMARY KEY) ENGINE=InnoDB;
        -- run
        INSERT INTO few VALUES ({random:1-30});
        -- teardown
        DROP TABLE few;";
    let document = servers
        .under(script, 2, &["--rate", "100"])
        .with_code(0)
        .json();
    let load = &document["results"]["load"][0];
    let mut errors = load["errors"].as_array().unwrap().iter();
    let duplicates = errors
        .find(|error| error["code"] == 1062)
        .unwrap_or_else(|| panic!("no duplicate in {load:#}"));
    let message = duplicates["message"].as_str().unwrap();
    assert!(message.contains("Duplicate entry"), "{message}");
    // Each fails its operation.
    let (count, failed) = (duplicates["count"].as_u64(), load["failed"].as_u64());
    assert!(count > Some(0) && count <= failed, "{load:#}");
    assert!(
        document["warnings"].to_string().contains("load-errors"),
        "{document:#}"
    );
}

pub(super) fn always_failing_load_ends_before_the_run(servers: &Servers) {
    let script = "-- setup
        CREATE TABLE made (id INT) ENGINE=InnoDB;
        -- run
        INSERT INTO made VALUES (1);
        INSERT INTO missing VALUES (1);
        -- teardown
        DROP TABLE made;";
    let ended = servers
        .under(script, 2, &[])
        .with_code(3)
        .stderr_contains("line 5")
        .stderr_contains("replimeter.missing' doesn't exist");
    assert_eq!(ended.stdout, "");
    let script = "-- setup\nCREATE TABLE made (id INT) ENGINE=InnoDB;\nCREATE TABEL x;\n-- run\nSELECT 1;\n-- teardown\nDROP TABLE made;";
    let _ = servers
        .under(script, 2, &[])
        .with_code(3)
        .stderr_contains("line 3")
        .stderr_contains("CREATE TABEL x");
}

pub(super) fn replica_accepts_only_reads(servers: &Servers) {
    let tool = TestEnvironment::new();
    let ended = servers
        .run(
            &tool,
            &[
                "lag",
                "--rounds",
                "10",
                "--timeout",
                "60s",
                "--load",
                "insert:1@replica1",
            ],
        )
        .with_code(3);
    let _ = ended
        .stderr_contains("replica1 (")
        .stderr_contains("READ ONLY")
        .stderr_contains("only a load that reads");
    fs::write(
        tool.folder().join("read.sql"),
        "SELECT COUNT(*) FROM load_mix WHERE id < {random:1-900}",
    )
    .unwrap();
    let args = [
        "lag",
        "--rounds",
        "100",
        "--timeout",
        "60s",
        "--json",
        "--load",
        "mix:1@primary",
        "--load",
        "read.sql:1@replica1",
        "--rate",
        "50",
    ];
    let document = servers.run(&tool, &args).with_code(0).json();
    assert!(
        document["results"]["load"][1]["passes"].as_u64().unwrap() > 0,
        "{document:#}"
    );
    assert_eq!(failures_before_the_end(&document["results"]["load"][1]), 0);
}

pub(super) fn bad_scripts_and_names_are_refused(servers: &Servers) {
    for (script, wanted) in [
        ("SELECT 1;\nDELIMITER //", "DELIMITER"),
        ("SELECT {round}", "unknown placeholder `{round}`"),
        ("SELECT 'a", "unterminated"),
        ("", "no statement to run"),
    ] {
        let _ = servers
            .under(script, 1, &[])
            .with_code(2)
            .stderr_contains("line ")
            .stderr_contains(wanted);
    }
    let run = |load: &str, more: &[&str]| {
        servers.run(
            &TestEnvironment::new(),
            &[
                &["lag", "--rounds", "10", "--timeout", "60s", "--load", load],
                more,
            ]
            .concat(),
        )
    };
    let _ = run("insert:1@node7", &[])
        .with_code(3)
        .stderr_contains("no server called `node7`")
        .stderr_contains("primary, replica1");
    let _ = run("no-such.sql:1@primary", &[])
        .with_code(2)
        .stderr_contains("cannot read the workload")
        .stderr_contains("insert, select");
    let _ = run("insert:1@primary", &["--rate", "0"])
        .with_code(2)
        .stderr_contains("closed loop");
    let _ = servers
        .run(&TestEnvironment::new(), &["lag", "--rate", "5"])
        .with_code(2)
        .stderr_contains("requires a load");
}

pub(super) fn interrupted_or_panicked_run_removes_script_data(servers: &Servers) {
    let tool = TestEnvironment::new();
    let child = servers.spawn(
        &tool,
        &[
            "lag",
            "--duration",
            "600s",
            "--timeout",
            "60s",
            "--load",
            "insert:2@primary",
            "--rate",
            "50",
            "--json",
        ],
    );
    servers.await_counted(2);
    kill_process(pid(&child), Signal::INT).unwrap();
    let document = wait(child, LIMIT).with_code(130).json();
    assert_eq!(document["status"], "interrupted");
    assert!(
        document["results"]["load"][0]["passes"].as_u64().unwrap() > 0,
        "{document:#}"
    );
    servers.assert_clean();
    let tool = TestEnvironment::new();
    let secret = password(servers.primary());
    let args = [
        "lag",
        "--duration",
        "600s",
        "--timeout",
        "60s",
        "--load",
        "insert:2@primary",
        "--rate",
        "50",
    ];
    let child = servers.spawn_as(&tool, ADMIN, secret, Some("panic-while-measuring"), &args);
    let _ = wait(child, LIMIT).with_code(101);
}

pub(super) fn stalled_primary_delays_an_open_loop(servers: &Servers) {
    let tool = TestEnvironment::new();
    let child = servers.spawn(
        &tool,
        &[
            "lag",
            "--duration",
            "600s",
            "--timeout",
            "60s",
            "--load",
            "insert:2@primary",
            "--rate",
            "100",
            "--json",
        ],
    );
    servers.await_counted(2);
    let mut stalling = session(servers.primary());
    stalling.run("test", "FLUSH TABLES WITH READ LOCK").unwrap();
    let before = servers.loaded();
    wait_until("an operation is blocked", LIMIT, || {
        let blocked = "SELECT COUNT(*) FROM information_schema.processlist WHERE command = 'Execute' AND info LIKE '%load_insert%'";
        value(servers.primary(), blocked).as_deref() != Some("0")
    });
    thread::sleep(Duration::from_secs(2));
    stalling.run("test", "UNLOCK TABLES").unwrap();
    // More than was due in two seconds.
    servers.await_load(before + 250);
    kill_process(pid(&child), Signal::INT).unwrap();
    let document = wait(child, LIMIT).with_code(130).json();
    let load = &document["results"]["load"][0];
    // Passes of two seconds were delayed, but only two threads were blocked.
    let (latency, service) = (&load["latency"], &load["service"]);
    assert!(
        number(&latency["max_us"]) > 1.5e6 && number(&service["max_us"]) > 1.5e6,
        "{load:#}"
    );
    // The delays of 200 passes sum up to 200 s, whatever else delayed them.
    let (latency, service) = (number(&latency["mean_us"]), number(&service["mean_us"]));
    let delays = number(&load["passes"]) * (latency - service);
    assert!(delays > 150e6, "{delays}: {load:#}");
    assert!(latency > 2.0 * service, "{load:#}");
}
