//! Load beside a measurement, and the backlog that a replica catches up with.

use std::{
    fs,
    io::{BufRead, BufReader},
    ops::Deref,
    process::Child,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use replimeter_engine::{Node, Session, session::StatusRow};
use replimeter_sandbox::Sandbox;
use replimeter_suites::{
    CommandOutput, LIMIT, TestEnvironment, clean, harness::Test, password, session, shared, sql,
    start, test, url, value, wait, wait_until,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

pub(crate) const TESTS: &[Test] = &[
    test!(open_loop_holds_its_rate on mariadb).alone(),
    test!(two_loads_share_the_script_data on mariadb),
    test!(deadlocks_are_retried_and_counted on mariadb),
    test!(errors_are_counted_by_code on mariadb),
    test!(always_failing_load_ends_before_the_run on mariadb),
    test!(replica_accepts_only_reads on mariadb),
    test!(bad_scripts_and_names_are_refused on mariadb),
    test!(interrupted_or_panicked_run_removes_script_data on mariadb),
    test!(stalled_primary_delays_an_open_loop on mariadb).alone(),
    test!(replica_catches_up on mariadb_backlog),
    test!(replica_catches_up on mysql_backlog),
    test!(missing_privileges_are_named on mariadb_backlog),
    test!(missing_privileges_are_named on mysql_backlog),
    test!(delayed_replica_is_refused on mariadb_backlog),
    test!(backlog_without_replica_is_refused on mariadb_backlog),
    test!(interrupted_backlog_starts_the_applier on mariadb_backlog),
    test!(interrupted_backlog_starts_the_applier on mysql_backlog).long(),
    test!(panic_during_backlog_starts_the_applier on mariadb_backlog),
    test!(panic_during_backlog_starts_the_applier on mysql_backlog).long(),
    test!(second_signal_ends_run_with_frozen_primary on mariadb_backlog),
    test!(second_signal_ends_run_with_frozen_primary on mysql_backlog).long(),
    test!(failed_applier_ends_the_backlog on mariadb_backlog),
    test!(frozen_replica_applies_again on mariadb_backlog),
    test!(frozen_replica_applies_again on mysql_backlog).long(),
    test!(exit_starts_the_applier_the_run_could_not on mariadb_backlog),
    test!(exit_starts_the_applier_the_run_could_not on mysql_backlog).long(),
    test!(killed_replica_prints_restore_statements),
    test!(killed_connection_does_not_end_a_backlog on mariadb_backlog),
    test!(killed_connection_does_not_end_a_backlog on mysql_backlog).long(),
    test!(panic_prints_how_to_start_the_applier on mariadb_backlog),
    test!(panic_prints_how_to_start_the_applier on mysql_backlog).long(),
    test!(unanswered_stop_prints_restore_statements),
    test!(slow_stop_is_awaited on mariadb_backlog),
    test!(slow_stop_is_awaited on mysql_backlog),
    test!(backlog_refuses_cluster_members),
];

const ADMIN: &str = "replimeter";
/// Servers that flush seldom, so that no disk decides how long a suite takes.
const RELAXED: [&str; 2] = ["sync_binlog=0", "innodb_flush_log_at_trx_commit=0"];

/// The user's own servers.
struct Servers {
    sandbox: Box<dyn Deref<Target = Sandbox>>,
    mysql: bool,
}

impl Servers {
    fn borrow(shape: &str) -> Self {
        Self {
            sandbox: Box::new(shared(shape, &RELAXED)),
            mysql: shape.starts_with("mysql"),
        }
    }

    fn primary(&self) -> &Node {
        &self.sandbox.nodes()[0]
    }

    fn replica(&self) -> &Node {
        &self.sandbox.nodes()[1]
    }

    /// Measures these servers, by a command and its options.
    fn spawn_as(
        &self,
        tool: &TestEnvironment,
        user: &str,
        secret: &str,
        fault: Option<&str>,
        line: &[&str],
    ) -> Child {
        let (primary, replica) = (url(self.primary(), user), url(self.replica(), user));
        let args = [line, &["--primary", &primary, "--replica", &replica]].concat();
        let mut command = tool.command(&args);
        command
            .env("REPLIMETER_PASSWORD", secret)
            .envs(fault.map(|fault| ("REPLIMETER_FAULT", fault)));
        command.spawn().unwrap()
    }

    fn spawn(&self, tool: &TestEnvironment, line: &[&str]) -> Child {
        self.spawn_as(tool, ADMIN, password(self.primary()), None, line)
    }

    fn run(&self, tool: &TestEnvironment, line: &[&str]) -> CommandOutput {
        wait(self.spawn(tool, line), LIMIT)
    }

    /// A short measurement of rounds under a script's load.
    fn under(&self, script: &str, threads: u32, more: &[&str]) -> CommandOutput {
        let tool = TestEnvironment::new();
        fs::write(tool.folder().join("load.sql"), script).unwrap();
        let load = format!("load.sql:{threads}@primary");
        let mut args = vec![
            "lag",
            "--rounds",
            "100",
            "--floor-rounds",
            "10",
            "--timeout",
            "60s",
            "--json",
            "--load",
            &load,
        ];
        args.extend(more);
        let ended = self.run(&tool, &args);
        self.assert_clean();
        ended
    }

    /// Everything of ours is gone, on both servers.
    fn assert_clean(&self) {
        wait_until("the schema is gone everywhere", LIMIT, || {
            clean(self.primary()) && clean(self.replica())
        });
    }

    fn workers_variable(&self) -> &'static str {
        if self.mysql {
            "replica_parallel_workers"
        } else {
            "slave_parallel_threads"
        }
    }

    fn workers(&self) -> String {
        value(
            self.replica(),
            &format!("SELECT @@GLOBAL.{}", self.workers_variable()),
        )
        .unwrap()
    }

    fn applying(&self) -> bool {
        let (statement, column) = if self.mysql {
            ("SHOW REPLICA STATUS", "Replica_SQL_Running")
        } else {
            ("SHOW ALL SLAVES STATUS", "Slave_SQL_Running")
        };
        session(self.replica()).rows("test", statement).unwrap()[0][column] == "Yes"
    }

    fn stop_and_start(&self, between: &str) {
        let word = if self.mysql { "REPLICA" } else { "SLAVE" };
        for statement in [&format!("STOP {word}"), between, &format!("START {word}")] {
            sql(self.replica(), statement);
        }
    }

    fn await_stopped_applier(&self) {
        wait_until("the applier is stopped", LIMIT, || {
            self.workers() == "5" && !self.applying()
        });
    }

    /// How many rows the shipped insert has written.
    fn loaded(&self) -> u64 {
        let rows =
            session(self.primary()).value("test", "SELECT COUNT(*) FROM replimeter.load_insert");
        rows.ok()
            .flatten()
            .and_then(|rows| rows.parse().ok())
            .unwrap_or(0)
    }

    fn await_load(&self, rows: u64) {
        wait_until("the load has written rows", LIMIT, || self.loaded() >= rows);
    }

    /// The replica applies as it was set to.
    fn assert_as_it_was(&self, workers: &str) {
        assert_eq!(self.workers(), workers);
        assert!(self.applying());
    }
}

fn pid(child: &Child) -> Pid {
    Pid::from_child(child)
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}

/// Tries something on the shared servers, on which nothing of ours is left.
fn mariadb(case: fn(&Servers)) {
    let servers = Servers::borrow("mariadb/async:1");
    case(&servers);
    servers.assert_clean();
}

fn open_loop_holds_its_rate(servers: &Servers) {
    let tool = TestEnvironment::new();
    let args = [
        "lag",
        "--duration",
        "3s",
        "--timeout",
        "60s",
        "--load",
        "insert:4@primary",
        "--rate",
        "100",
        "--json",
    ];
    let document = servers.run(&tool, &args).with_code(0).json();
    let load = &document["results"]["load"][0];
    assert_eq!(
        (
            load["workload"].as_str(),
            load["threads"].as_u64(),
            load["node"].as_str()
        ),
        (Some("insert"), Some(4), Some("primary"))
    );
    assert_eq!(
        (load["rate"].as_u64(), load["failed"].as_u64()),
        (Some(100), Some(0))
    );
    let mean = number(&load["throughput"]["mean"]);
    assert!((90.0..110.0).contains(&mean), "{load:#}");
    assert_eq!(load["latency"]["count"], load["passes"]);
    assert_eq!(
        document["results"]["rows"][0]["timed_out"].as_u64(),
        Some(0)
    );
    // The plan that was kept asks for the same.
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

fn two_loads_share_the_script_data(servers: &Servers) {
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

fn deadlocks_are_retried_and_counted(servers: &Servers) {
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
    assert!(
        load["passes"].as_u64().unwrap() > load["failed"].as_u64().unwrap(),
        "{load:#}"
    );
}

fn errors_are_counted_by_code(servers: &Servers) {
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
    assert_eq!(load["errors"][0]["code"], 1062, "{load:#}");
    assert!(
        load["errors"][0]["message"]
            .as_str()
            .unwrap()
            .contains("Duplicate entry")
    );
    assert!(load["failed"].as_u64().unwrap() > 0);
    assert!(
        document["warnings"].to_string().contains("load-errors"),
        "{document:#}"
    );
}

fn always_failing_load_ends_before_the_run(servers: &Servers) {
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

fn replica_accepts_only_reads(servers: &Servers) {
    let tool = TestEnvironment::new();
    let ended = servers
        .run(
            &tool,
            &["lag", "--rounds", "10", "--load", "insert:1@replica1"],
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
    assert_eq!(document["results"]["load"][1]["failed"].as_u64(), Some(0));
}

fn bad_scripts_and_names_are_refused(servers: &Servers) {
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
            &[&["lag", "--rounds", "10", "--load", load], more].concat(),
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

/// Waits until the shipped insert's table has rows.
fn under_way(servers: &Servers) {
    servers.await_load(10);
}

fn interrupted_or_panicked_run_removes_script_data(servers: &Servers) {
    let tool = TestEnvironment::new();
    let child = servers.spawn(
        &tool,
        &[
            "lag",
            "--duration",
            "60s",
            "--timeout",
            "60s",
            "--load",
            "insert:2@primary",
            "--rate",
            "50",
            "--json",
        ],
    );
    under_way(servers);
    servers.await_load(servers.loaded() + 50);
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
        "60s",
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

fn stalled_primary_delays_an_open_loop(servers: &Servers) {
    let tool = TestEnvironment::new();
    let child = servers.spawn(
        &tool,
        &[
            "lag",
            "--duration",
            "6s",
            "--timeout",
            "60s",
            "--load",
            "insert:2@primary",
            "--rate",
            "100",
            "--json",
        ],
    );
    under_way(servers);
    thread::sleep(Duration::from_secs(3));
    let mut stalling = session(servers.primary());
    stalling.run("test", "FLUSH TABLES WITH READ LOCK").unwrap();
    thread::sleep(Duration::from_secs(2));
    stalling.run("test", "UNLOCK TABLES").unwrap();
    let document = wait(child, LIMIT).with_code(0).json();
    let load = &document["results"]["load"][0];
    // Two seconds' worth of passes waited, and only two threads were held up.
    let (latency, service) = (&load["latency"], &load["service"]);
    assert!(
        number(&latency["max_us"]) > 1.5e6 && number(&service["max_us"]) > 1.5e6,
        "{load:#}"
    );
    assert!(number(&latency["p95_us"]) > 5e5, "{load:#}");
    assert!(
        number(&latency["p95_us"]) > 5.0 * number(&service["p95_us"]),
        "{load:#}"
    );
}

/// Tries a backlog on a replica with three workers, which it has afterwards, too.
fn with_backlog(shape: &str, case: fn(&Servers)) {
    let servers = Servers::borrow(shape);
    let (variable, workers) = (servers.workers_variable(), servers.workers());
    servers.stop_and_start(&format!("SET GLOBAL {variable} = 3"));
    case(&servers);
    servers.assert_as_it_was("3");
    servers.assert_clean();
    servers.stop_and_start(&format!("SET GLOBAL {variable} = {workers}"));
}

fn mariadb_backlog(case: fn(&Servers)) {
    with_backlog("mariadb/async:1", case);
}

fn mysql_backlog(case: fn(&Servers)) {
    with_backlog("mysql/async:1", case);
}

fn delayed_replica_is_refused(servers: &Servers) {
    servers.stop_and_start("CHANGE MASTER TO MASTER_DELAY=1");
    let _ = servers
        .run(&TestEnvironment::new(), &["backlog", "--build-up", "1s"])
        .with_code(3)
        .stderr_contains("deliberately delayed by 1 s");
    servers.stop_and_start("CHANGE MASTER TO MASTER_DELAY=0");
}

fn backlog_refuses_cluster_members() {
    let ended = TestEnvironment::new()
        .run(&["backlog", "--sandbox", "galera:2", "--build-up", "1s"])
        .with_code(3);
    let _ = ended
        .stderr_contains("cannot build up a backlog")
        .stderr_contains("member of a cluster");
    let ended = TestEnvironment::new()
        .run(&["backlog", "--sandbox", "none", "--build-up", "1s"])
        .with_code(3);
    let _ = ended.stderr_contains("the target has no replica");
}

fn replica_catches_up(servers: &Servers) {
    let workers = ["1", "4"];
    let tool = TestEnvironment::new();
    let list = workers.join(",");
    let args = [
        "backlog",
        "--build-up",
        "2s",
        "--workers",
        &list,
        "--load",
        "insert:4@primary",
        "--json",
    ];
    let document = servers.run(&tool, &args).with_code(0).json();
    servers.assert_as_it_was("3");
    servers.assert_clean();
    assert_eq!(document["schema"], "replimeter.backlog/1");
    let rows = document["results"]["rows"].as_array().unwrap();
    assert_eq!(
        rows.iter()
            .map(|row| row["workers"].to_string())
            .collect::<Vec<_>>(),
        workers
    );
    for row in rows {
        let shown = format!("{row:#}");
        assert_eq!(
            (row["replica"].as_str(), row["complete"].as_bool()),
            (Some("replica1"), Some(true)),
            "{shown}"
        );
        assert!(number(&row["grown_us"]) >= 2e6, "{shown}");
        let backlog = number(&row["backlog_transactions"]);
        // Three seconds' worth, the ramp's included.
        let written = number(&row["load_per_s"]["mean"]);
        assert!(
            written > 0.0 && (1.5..8.0).contains(&(backlog / written)),
            "{shown}"
        );
        assert!(number(&row["sustained_per_s"]["mean"]) > 0.0, "{shown}");
        // A fast replica has nothing left when the load has ended; that is said.
        let unclear = document["warnings"].to_string().contains("backlog-unclear");
        assert!(
            unclear || number(&row["catch_up_per_s"]["mean"]) > 0.0,
            "{shown}"
        );
        assert!(number(&row["caught_up_after_us"]) > 0.0, "{shown}");
        if let (Some(low), Some(high)) = (
            row["sustained_per_s"]["ci95"][0].as_f64(),
            row["sustained_per_s"]["ci95"][1].as_f64(),
        ) {
            assert!(low <= high, "{shown}");
        }
        let windows = row["windows"].as_array().unwrap();
        let phases: Vec<&str> = windows
            .iter()
            .map(|window| window["phase"].as_str().unwrap())
            .collect();
        assert!(phases.is_sorted_by_key(|phase| {
            ["growing", "with-load", "without-load"]
                .iter()
                .position(|known| known == phase)
        }));
        let growing: Vec<&Value> = windows
            .iter()
            .filter(|window| window["phase"] == "growing")
            .collect();
        assert!(
            growing.iter().all(|window| window["applied"] == 0),
            "a stopped applier applies nothing: {shown}"
        );
        assert_eq!(windows.last().unwrap()["behind"], 0, "{shown}");
    }
    let run = tool.only_run();
    assert!(
        fs::read_to_string(run.join("report.html"))
            .unwrap()
            .contains("Backlog over time")
    );
    let report = tool.run(&["report", run.to_str().unwrap()]).with_code(0);
    assert!(
        report.words().contains("replica1, 4 workers")
            && report.words().contains("caught up after"),
        "{report:#?}"
    );
    // And the run's own plan is the same again.
    let again = tool
        .run(&["run", "--dry-run", run.join("plan.toml").to_str().unwrap()])
        .with_code(0);
    assert_eq!(
        again.planned(),
        fs::read_to_string(run.join("plan.toml")).unwrap()
    );
}

/// Everything but the right to stop the applier.
fn missing_privileges_are_named(servers: &Servers) {
    let (missing, monitor) = servers.grants();
    let grants = [
        "CREATE USER prober@'127.0.0.1' IDENTIFIED BY 'pw'".to_owned(),
        "GRANT CREATE, DROP, INSERT, DELETE, SELECT ON replimeter.* TO prober@'127.0.0.1'"
            .to_owned(),
        format!("GRANT {monitor} ON *.* TO prober@'127.0.0.1'"),
    ];
    grants
        .iter()
        .for_each(|grant| sql(servers.primary(), grant));
    let run = |more: &[&str]| {
        let args = [
            &[
                "backlog",
                "--build-up",
                "1s",
                "--workers",
                "2",
                "--rate",
                "100",
            ],
            more,
        ]
        .concat();
        wait(
            servers.spawn_as(&TestEnvironment::new(), "prober", "pw", None, &args),
            LIMIT,
        )
    };
    wait_until("the user has arrived", LIMIT, || {
        let count = value(
            servers.replica(),
            "SELECT COUNT(*) FROM mysql.user WHERE user = 'prober'",
        );
        count.as_deref() == Some("1")
    });
    thread::sleep(Duration::from_millis(500));
    let ended = run(&[])
        .with_code(3)
        .stderr_contains("replica1 (")
        .stderr_contains("cannot stop the applier");
    let _ = ended.stderr_contains(&format!("GRANT {missing} ON *.*"));
    servers.assert_as_it_was("3");
    // Exactly what is named is enough.
    sql(
        servers.primary(),
        &format!("GRANT {missing} ON *.* TO prober@'127.0.0.1'"),
    );
    thread::sleep(Duration::from_millis(500));
    let _ = run(&[]).with_code(0);
    servers.assert_as_it_was("3");
    sql(servers.primary(), "DROP USER prober@'127.0.0.1'");
}

fn backlog_without_replica_is_refused(servers: &Servers) {
    let tool = TestEnvironment::new();
    fs::write(tool.folder().join("idle.sql"), "SELECT 1").unwrap();
    let args = [
        "backlog",
        "--build-up",
        "1s",
        "--load",
        "idle.sql:1@primary",
        "--rate",
        "10",
        "--json",
    ];
    let document = servers.run(&tool, &args).with_code(0).json();
    assert!(
        document["headline"]
            .as_str()
            .unwrap()
            .contains("no backlog grew"),
        "{document:#}"
    );
    assert!(document["warnings"].to_string().contains("backlog-unclear"));
    servers.assert_as_it_was("3");
}

const LONG_BACKLOG: [&str; 10] = [
    "backlog",
    "--build-up",
    "60s",
    "--workers",
    "5",
    "--load",
    "insert:2@primary",
    "--rate",
    "50",
    "--json",
];

/// However it ends, the replica applies as it did before.
fn interrupted_backlog_starts_the_applier(servers: &Servers) {
    let tool = TestEnvironment::new();
    let child = servers.spawn(&tool, &LONG_BACKLOG);
    servers.await_stopped_applier();
    under_way(servers);
    servers.await_load(servers.loaded() + 50);
    kill_process(pid(&child), Signal::INT).unwrap();
    let document = wait(child, LIMIT).with_code(130).json();
    let row = &document["results"]["rows"][0];
    assert_eq!(
        (
            row["complete"].as_bool(),
            row["caught_up_after_us"].as_f64()
        ),
        (Some(false), None),
        "{row:#}"
    );
    assert!(
        number(&row["backlog_transactions"]) > 0.0,
        "what was seen is kept: {row:#}"
    );
}

fn panic_during_backlog_starts_the_applier(servers: &Servers) {
    let tool = TestEnvironment::new();
    let child = servers.spawn_as(
        &tool,
        ADMIN,
        password(servers.primary()),
        Some("panic-while-measuring"),
        &LONG_BACKLOG,
    );
    let _ = wait(child, LIMIT).with_code(101);
}

fn second_signal_ends_run_with_frozen_primary(servers: &Servers) {
    let tool = TestEnvironment::new();
    let child = servers.spawn(&tool, &LONG_BACKLOG);
    servers.await_stopped_applier();
    let primary = Pid::from_raw(i32::try_from(servers.sandbox.pids()[0]).unwrap()).unwrap();
    kill_process(primary, Signal::STOP).unwrap();
    kill_process(pid(&child), Signal::INT).unwrap();
    thread::sleep(Duration::from_millis(1500));
    kill_process(pid(&child), Signal::INT).unwrap();
    let ended = wait(child, LIMIT);
    let as_it_was = (servers.workers(), servers.applying());
    kill_process(primary, Signal::CONT).unwrap();
    let _ = ended
        .with_code(130)
        .stderr_contains("stopped without cleaning up");
    assert_eq!(as_it_was, ("3".to_owned(), true));
    // What it could not remove then the next run does, and the user the script's table.
    wait_until("the primary answers", LIMIT, || {
        session(servers.primary()).value("test", "SELECT 1").is_ok()
    });
    sql(
        servers.primary(),
        "DROP TABLE IF EXISTS replimeter.load_insert",
    );
    let _ = servers
        .run(&TestEnvironment::new(), &["lag", "--rounds", "5"])
        .with_code(0);
}

/// A replica that cannot apply what comes is an error with its words, not a long wait.
fn failed_applier_ends_the_backlog(servers: &Servers) {
    let tool = TestEnvironment::new();
    let child = servers.spawn(
        &tool,
        &[
            "backlog",
            "--build-up",
            "3s",
            "--load",
            "insert:2@primary",
            "--rate",
            "50",
        ],
    );
    wait_until("the applier stands still", LIMIT, || !servers.applying());
    under_way(servers);
    // The table has arrived before the applier was stopped; a row of somebody else's is in the way.
    let mut replica = session(servers.replica());
    for statement in [
        "SET sql_log_bin=0",
        "INSERT INTO replimeter.load_insert (id, data) SELECT 100, 'x'",
    ] {
        replica.run("test", statement).unwrap();
    }
    let ended = wait(child, LIMIT).with_code(3);
    let _ = ended
        .stderr_contains("replica1 (")
        .stderr_contains("cannot catch up")
        .stderr_contains("Duplicate entry");
    replica
        .run(
            "test",
            "DELETE FROM replimeter.load_insert WHERE data = 'x'",
        )
        .unwrap();
    servers.stop_and_start("DO 0");
    servers.assert_clean();
}

/// The tool under way, whose standard error can be read meanwhile.
struct RunningCommand {
    child: Child,
    said: Arc<Mutex<String>>,
    reader: thread::JoinHandle<()>,
}

impl RunningCommand {
    fn new(mut child: Child) -> Self {
        let said = Arc::new(Mutex::new(String::new()));
        let (stderr, heard) = (child.stderr.take().unwrap(), Arc::clone(&said));
        let reader = thread::spawn(move || {
            for line in BufReader::new(stderr).lines() {
                *heard.lock().unwrap() += &format!("{}\n", line.unwrap());
            }
        });
        Self {
            child,
            said,
            reader,
        }
    }

    fn until_it_says(&self, wanted: &str) {
        let said = || self.said.lock().unwrap().clone();
        wait_until(&format!("the tool says `{wanted}`"), LIMIT, || {
            said().contains(wanted)
        });
    }

    fn wait(self) -> CommandOutput {
        let ended = wait(self.child, LIMIT);
        self.reader.join().unwrap();
        let stderr = self.said.lock().unwrap().clone();
        eprintln!("{stderr}");
        CommandOutput { stderr, ..ended }
    }
}

impl Servers {
    /// With three workers, and a backlog to be made with five.
    fn of_three_workers(shape: &str) -> Self {
        let servers = Self {
            sandbox: Box::new(Box::new(start(shape, &RELAXED))),
            mysql: shape.starts_with("mysql"),
        };
        servers.stop_and_start(&format!("SET GLOBAL {} = 3", servers.workers_variable()));
        servers
    }

    /// A run whose limits are a few seconds, when the applier is stopped and the load runs.
    fn holding(&self, tool: &TestEnvironment, grow: &str) -> RunningCommand {
        let args = [
            "backlog",
            "--build-up",
            grow,
            "--workers",
            "5",
            "--load",
            "insert:2@primary",
            "--rate",
            "50",
        ];
        let secret = password(self.primary());
        let child = RunningCommand::new(self.spawn_as(
            tool,
            ADMIN,
            secret,
            Some("impatient-backlog"),
            &args,
        ));
        wait_until("the applier stands still", LIMIT, || {
            self.workers() == "5" && !self.applying()
        });
        under_way(self);
        child
    }

    fn signal_replica(&self, signal: Signal) {
        let replica = Pid::from_raw(i32::try_from(self.sandbox.pids()[1]).unwrap()).unwrap();
        kill_process(replica, signal).unwrap();
    }

    /// What a user needs to stop the applier and set its workers, and to see how it is.
    fn grants(&self) -> (&'static str, &'static str) {
        if self.mysql {
            (
                "REPLICATION_SLAVE_ADMIN, SYSTEM_VARIABLES_ADMIN",
                "REPLICATION CLIENT",
            )
        } else {
            ("REPLICATION SLAVE ADMIN", "REPLICA MONITOR, BINLOG MONITOR")
        }
    }

    /// What brings the applier back, for a person.
    fn statements(&self) -> String {
        let (word, variable) = (
            if self.mysql { "REPLICA" } else { "SLAVE" },
            self.workers_variable(),
        );
        let set = format!("SET GLOBAL {variable} = 3");
        format!("run on replica1: STOP {word} SQL_THREAD; {set}; START {word} SQL_THREAD;")
    }
}

fn frozen_replica_applies_again(servers: &Servers) {
    let tool = TestEnvironment::new();
    let run = servers.holding(&tool, "60s");
    servers.signal_replica(Signal::STOP);
    run.until_it_says("retrying to start the applier of replica1, ");
    let early = run.said.lock().unwrap().clone();
    servers.signal_replica(Signal::CONT);
    assert!(
        early.contains("cannot read the server's GTID position: no answer in time"),
        "the cause: {early}"
    );
    assert!(
        early.contains(&servers.statements()),
        "the statements: {early}"
    );
    let again = format!(
        "the applier of replica1 was restored, with {} = 3",
        servers.workers_variable()
    );
    let ended = run.wait().with_code(3).stderr_contains(&again);
    let _ = ended
        .stderr_contains("error: replica1 (")
        .stderr_contains("no answer in time");
}

/// The replica answers again after the run has given up, and before the process has ended.
fn exit_starts_the_applier_the_run_could_not(servers: &Servers) {
    let tool = TestEnvironment::new();
    let run = servers.holding(&tool, "60s");
    servers.signal_replica(Signal::STOP);
    run.until_it_says("error: replica1 (");
    servers.signal_replica(Signal::CONT);
    let ended = run.wait().with_code(3);
    let (error, after) = ended.stderr.rsplit_once("error: replica1 (").unwrap();
    assert_eq!(
        error.matches(&servers.statements()).count(),
        1,
        "while the run tries: {error}"
    );
    assert!(
        after.contains(&servers.statements()),
        "with the error: {after}"
    );
    let again = format!(
        "the applier of replica1 was restored, with {} = 3",
        servers.workers_variable()
    );
    assert!(after.trim_end().ends_with(&again), "{after}");
    // The replica could not be asked whether it has something in there.
    sql(servers.primary(), "DROP DATABASE IF EXISTS replimeter");
}

fn killed_replica_prints_restore_statements() {
    let servers = Servers::of_three_workers("mariadb/async:1");
    let tool = TestEnvironment::new();
    let run = servers.holding(&tool, "60s");
    servers.signal_replica(Signal::KILL);
    let ended = run
        .wait()
        .with_code(3)
        .stderr_contains(&servers.statements());
    let error = ended.stderr.split_once("error: ").unwrap().1;
    let cause = error
        .find("cannot read the server's GTID position")
        .expect("the cause");
    let held = error
        .find("which may be stopped or have a changed number of workers")
        .expect("the state");
    let statements = error.find(&servers.statements()).expect("the statements");
    assert!(
        error.starts_with("replica1 (") && cause < held && held < statements,
        "{error}"
    );
}

fn killed_connection_does_not_end_a_backlog(servers: &Servers) {
    let tool = TestEnvironment::new();
    let run = servers.holding(&tool, "3s");
    // All that idle: the one that is asked for positions is asked many times a second.
    thread::sleep(Duration::from_millis(1500));
    let mut replica = session(servers.replica());
    let own = replica.connection_id().to_string();
    let connections = replica.rows("test", "SHOW PROCESSLIST").unwrap();
    let idle = |row: &&StatusRow| {
        row["User"] == ADMIN
            && row["Command"] == "Sleep"
            && row["Time"].parse::<u64>().unwrap() >= 1
            && row["Id"] != own
    };
    let idle: Vec<&str> = connections
        .iter()
        .filter(idle)
        .map(|row| row["Id"].as_str())
        .collect();
    assert!(!idle.is_empty() && !servers.applying());
    idle.iter()
        .for_each(|id| replica.run("test", &format!("KILL {id}")).unwrap());
    let _ = run.wait().with_code(0);
}

fn panic_prints_how_to_start_the_applier(servers: &Servers) {
    let (stop, monitor) = servers.grants();
    for grant in [
        "CREATE USER prober@'127.0.0.1' IDENTIFIED BY 'pw'".to_owned(),
        "GRANT CREATE, DROP, INSERT, DELETE, SELECT ON replimeter.* TO prober@'127.0.0.1'"
            .to_owned(),
        format!("GRANT {monitor}, {stop} ON *.* TO prober@'127.0.0.1'"),
    ] {
        sql(servers.primary(), &grant);
    }
    wait_until("the user has arrived", LIMIT, || {
        value(
            servers.replica(),
            "SELECT COUNT(*) FROM mysql.user WHERE user = 'prober'",
        )
        .as_deref()
            == Some("1")
    });
    let on_replica = |statement: &str| {
        let mut replica = session(servers.replica());
        replica.run("test", "SET sql_log_bin = 0").unwrap();
        replica.run("test", statement).unwrap();
    };
    let args = [
        "backlog",
        "--build-up",
        "60s",
        "--workers",
        "5",
        "--load",
        "insert:2@primary",
        "--rate",
        "50",
    ];
    let tool = TestEnvironment::new();
    let run = RunningCommand::new(servers.spawn_as(
        &tool,
        "prober",
        "pw",
        Some("panic-while-measuring"),
        &args,
    ));
    wait_until("the applier stands still", LIMIT, || {
        servers.workers() == "5" && !servers.applying()
    });
    on_replica(&format!("REVOKE {stop} ON *.* FROM prober@'127.0.0.1'"));
    run.until_it_says("retrying to start the applier of replica1, ");
    on_replica(&format!("GRANT {stop} ON *.* TO prober@'127.0.0.1'"));
    let ended = run
        .wait()
        .with_code(101)
        .stderr_contains("a fault was requested")
        .stderr_contains(&servers.statements());
    let _ = ended.stderr_contains("the applier of replica1 was restored");
    sql(servers.primary(), "DROP USER prober@'127.0.0.1'");
}

/// A replica's worker waits for a row that the test has locked, and `STOP` waits for the worker.
struct BlockedApplier {
    lock: Session,
}

impl BlockedApplier {
    /// With a table of two rows on both servers.
    fn prepare(servers: &Servers) {
        for statement in [
            "CREATE DATABASE app",
            "CREATE TABLE app.t (id INT PRIMARY KEY, n INT NOT NULL) ENGINE=InnoDB",
            "INSERT INTO app.t VALUES (1, 0), (2, 0)",
        ] {
            sql(servers.primary(), statement);
        }
        wait_until("the rows have arrived", LIMIT, || {
            let rows = session(servers.replica()).value("test", "SELECT COUNT(*) FROM app.t");
            rows.ok().flatten().as_deref() == Some("2")
        });
    }

    fn new(servers: &Servers, update: &[&str]) -> Self {
        let mut lock = session(servers.replica());
        for statement in ["BEGIN", "SELECT n FROM app.t WHERE id = 1 FOR UPDATE"] {
            lock.run("test", statement).unwrap();
        }
        let mut primary = session(servers.primary());
        update
            .iter()
            .for_each(|statement| primary.run("test", statement).unwrap());
        Self { lock }
    }

    fn until_it_waits(&self, servers: &Servers) {
        let waiting =
            "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'";
        wait_until("the replica's worker waits", LIMIT, || {
            // The server fills this table anew when it was not read for 100 ms.
            thread::sleep(Duration::from_millis(150));
            value(servers.replica(), waiting).as_deref() == Some("1")
        });
    }

    fn end(mut self) {
        self.lock.run("test", "ROLLBACK").unwrap();
    }
}

fn unanswered_stop_prints_restore_statements() {
    let servers = Servers::of_three_workers("mariadb/async:1");
    BlockedApplier::prepare(&servers);
    // By its numbers the replica has everything while it applies the last one.
    let stuck = BlockedApplier::new(
        &servers,
        &[
            "SET gtid_domain_id = 7, gtid_seq_no = 1000",
            "UPDATE app.t SET n = 1 WHERE id = 2",
            "SET gtid_seq_no = 10",
            "UPDATE app.t SET n = 1 WHERE id = 1",
        ],
    );
    stuck.until_it_waits(&servers);
    let tool = TestEnvironment::new();
    let args = [
        "backlog",
        "--build-up",
        "60s",
        "--workers",
        "5",
        "--load",
        "insert:2@primary",
        "--rate",
        "50",
    ];
    let run = RunningCommand::new(servers.spawn_as(
        &tool,
        ADMIN,
        password(servers.primary()),
        Some("impatient-backlog"),
        &args,
    ));
    run.until_it_says("retrying to start the applier of replica1, ");
    kill_process(pid(&run.child), Signal::INT).unwrap();
    let ended = run
        .wait()
        .with_code(3)
        .stderr_contains("cannot execute `STOP SLAVE SQL_THREAD`: no answer in time; replica1 (");
    let ended = ended
        .stderr_contains("is still running")
        .stderr_contains(&servers.statements());
    assert!(
        servers.applying(),
        "it applies until the statement takes effect"
    );
    stuck.end();
    wait_until("the late statement stops it", LIMIT, || !servers.applying());
    let statements = ended
        .stderr
        .rsplit_once("run on replica1: ")
        .unwrap()
        .1
        .trim();
    statements
        .split_terminator(';')
        .for_each(|statement| sql(servers.replica(), statement));
    servers.assert_as_it_was("3");
    servers.assert_clean();
}

/// The statement that stops it, to give it its workers back.
fn slow_stop_is_awaited(servers: &Servers) {
    BlockedApplier::prepare(servers);
    let tool = TestEnvironment::new();
    let run = servers.holding(&tool, "1s");
    let stuck = BlockedApplier::new(servers, &["UPDATE app.t SET n = 1 WHERE id = 1"]);
    wait_until("the applier runs", LIMIT, || servers.applying());
    stuck.until_it_waits(servers);
    kill_process(pid(&run.child), Signal::INT).unwrap();
    run.until_it_says("retrying to start the applier of replica1, ");
    assert_eq!(servers.workers(), "5");
    stuck.end();
    let ended = run
        .wait()
        .with_code(130)
        .stderr_contains(&servers.statements());
    let _ = ended.stderr_contains("the applier of replica1 was restored");
}
