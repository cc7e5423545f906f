//! Load beside a measurement, and the backlog that a replica catches up with.

use std::{fs, process::Child, thread, time::Duration};

use replimeter_sandbox::Sandbox;
use replimeter_server::Node;
use replimeter_suites::{
    Ended, Tool, clean, password, session, sql, start, until, url, value, wait,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const ADMIN: &str = "replimeter";
const LIMIT: Duration = Duration::from_secs(120);

/// Servers that flush seldom, so that no disk decides how long a suite takes.
const RELAXED: [&str; 2] = ["sync_binlog=0", "innodb_flush_log_at_trx_commit=0"];

/// The user's own servers.
struct Servers {
    sandbox: Sandbox,
    mysql: bool,
}

impl Servers {
    fn start(shape: &str) -> Self {
        Self {
            sandbox: start(shape, &RELAXED),
            mysql: shape.starts_with("mysql"),
        }
    }

    fn primary(&self) -> &Node {
        &self.sandbox.nodes()[0]
    }

    fn replica(&self) -> &Node {
        &self.sandbox.nodes()[1]
    }

    fn spawn_as(
        &self,
        tool: &Tool,
        user: &str,
        secret: &str,
        fault: Option<&str>,
        more: &[&str],
    ) -> Child {
        let (primary, replica) = (url(self.primary(), user), url(self.replica(), user));
        let mut args = vec!["lag", "--primary", &primary, "--replica", &replica];
        args.extend(more);
        let mut command = tool.command(&args);
        command
            .env("REPLIMETER_PASSWORD", secret)
            .envs(fault.map(|fault| ("REPLIMETER_FAULT", fault)));
        command.spawn().unwrap()
    }

    fn spawn(&self, tool: &Tool, more: &[&str]) -> Child {
        self.spawn_as(tool, ADMIN, password(self.primary()), None, more)
    }

    fn run(&self, tool: &Tool, more: &[&str]) -> Ended {
        wait(self.spawn(tool, more), LIMIT)
    }

    /// A short measurement of rounds under a script's load.
    fn under(&self, script: &str, threads: u32, more: &[&str]) -> Ended {
        let tool = Tool::new();
        fs::write(tool.folder().join("load.sql"), script).unwrap();
        let load = format!("load.sql:{threads}@primary");
        let mut args = vec![
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
        until("the schema is gone everywhere", LIMIT, || {
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

#[test]
fn lag_under_load() {
    let servers = Servers::start("mariadb/async:1");
    for (name, case) in [
        (
            "an_open_loop_holds_its_rate",
            an_open_loop_holds_its_rate as fn(&Servers),
        ),
        (
            "two_loads_share_what_a_script_makes",
            two_loads_share_what_a_script_makes,
        ),
        (
            "deadlocks_are_retried_and_counted",
            deadlocks_are_retried_and_counted,
        ),
        ("errors_are_counted_by_code", errors_are_counted_by_code),
        (
            "what_never_succeeds_ends_the_run_before_it_begins",
            what_never_succeeds_ends_the_run_before_it_begins,
        ),
        ("a_replica_takes_only_reads", a_replica_takes_only_reads),
        ("bad_scripts_and_names", bad_scripts_and_names),
        (
            "interrupted_and_panicking_runs_remove_what_a_script_made",
            interrupted_and_panicking_runs_remove_what_a_script_made,
        ),
        (
            "a_stalled_primary_delays_an_open_loop",
            a_stalled_primary_delays_an_open_loop,
        ),
    ] {
        eprintln!("case {name}");
        case(&servers);
        servers.assert_clean();
    }
}

fn an_open_loop_holds_its_rate(servers: &Servers) {
    let tool = Tool::new();
    let args = [
        "--for",
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
    let load = &document["load"][0];
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
    assert_eq!(document["results"][0]["missing"].as_u64(), Some(0));
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

fn two_loads_share_what_a_script_makes(servers: &Servers) {
    let tool = Tool::new();
    let mut args = vec![
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
    let rates: Vec<Option<u64>> = document["load"]
        .as_array()
        .unwrap()
        .iter()
        .map(|load| load["rate"].as_u64())
        .collect();
    assert_eq!(rates, [Some(20), Some(40)]);
    assert!(
        document["load"]
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
    let load = &document["load"][0];
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
    let load = &document["load"][0];
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

fn what_never_succeeds_ends_the_run_before_it_begins(servers: &Servers) {
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
        .saying("line 5")
        .saying("replimeter.missing' doesn't exist");
    assert_eq!(ended.stdout, "");
    let script = "-- setup\nCREATE TABLE made (id INT) ENGINE=InnoDB;\nCREATE TABEL x;\n-- run\nSELECT 1;\n-- teardown\nDROP TABLE made;";
    let _ = servers
        .under(script, 2, &[])
        .with_code(3)
        .saying("line 3")
        .saying("CREATE TABEL x");
}

fn a_replica_takes_only_reads(servers: &Servers) {
    let tool = Tool::new();
    let ended = servers
        .run(&tool, &["--rounds", "10", "--load", "insert:1@replica1"])
        .with_code(3);
    let _ = ended
        .saying("replica1 (")
        .saying("READ ONLY")
        .saying("only a load that reads");
    fs::write(
        tool.folder().join("read.sql"),
        "SELECT COUNT(*) FROM load_mix WHERE id < {random:1-900}",
    )
    .unwrap();
    let args = [
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
        document["load"][1]["passes"].as_u64().unwrap() > 0,
        "{document:#}"
    );
    assert_eq!(document["load"][1]["failed"].as_u64(), Some(0));
}

fn bad_scripts_and_names(servers: &Servers) {
    for (script, wanted) in [
        ("SELECT 1;\nDELIMITER //", "DELIMITER"),
        ("SELECT {round}", "no `{round}`"),
        ("SELECT 'a", "does not end"),
        ("", "no statement to run"),
    ] {
        let _ = servers
            .under(script, 1, &[])
            .with_code(2)
            .saying("line ")
            .saying(wanted);
    }
    let run = |load: &str, more: &[&str]| {
        servers.run(
            &Tool::new(),
            &[&["--rounds", "10", "--load", load], more].concat(),
        )
    };
    let _ = run("insert:1@node7", &[])
        .with_code(3)
        .saying("no server called `node7`")
        .saying("primary, replica1");
    let _ = run("no-such.sql:1@primary", &[])
        .with_code(2)
        .saying("cannot read the workload")
        .saying("insert, select");
    let _ = run("insert:1@primary", &["--rate", "0"])
        .with_code(2)
        .saying("closed loop");
    let _ = servers
        .run(&Tool::new(), &["--rate", "5"])
        .with_code(2)
        .saying("needs a load");
}

/// Waits until the shipped insert's table has rows.
fn under_way(servers: &Servers) {
    until("the load runs", LIMIT, || {
        let rows =
            session(servers.primary()).value("test", "SELECT COUNT(*) FROM replimeter.load_insert");
        rows.ok().flatten().is_some_and(|rows| rows.len() > 1)
    });
}

fn interrupted_and_panicking_runs_remove_what_a_script_made(servers: &Servers) {
    let tool = Tool::new();
    let child = servers.spawn(
        &tool,
        &[
            "--for",
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
    thread::sleep(Duration::from_secs(3));
    kill_process(pid(&child), Signal::INT).unwrap();
    let document = wait(child, LIMIT).with_code(130).json();
    assert_eq!(document["status"], "interrupted");
    assert!(
        document["load"][0]["passes"].as_u64().unwrap() > 0,
        "{document:#}"
    );
    servers.assert_clean();
    let tool = Tool::new();
    let secret = password(servers.primary());
    let args = [
        "--for",
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

fn a_stalled_primary_delays_an_open_loop(servers: &Servers) {
    let tool = Tool::new();
    let child = servers.spawn(
        &tool,
        &[
            "--for",
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
    let load = &document["load"][0];
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

#[test]
fn backlog_on_mariadb() {
    let servers = Servers::start("mariadb/async:1");
    servers.stop_and_start("SET GLOBAL slave_parallel_threads = 3");
    catches_up(&servers, &["1", "4"]);
    missing_privileges(
        &servers,
        "REPLICATION SLAVE ADMIN",
        "REPLICA MONITOR, BINLOG MONITOR",
    );
    servers.stop_and_start("CHANGE MASTER TO MASTER_DELAY=1");
    let _ = servers
        .run(&Tool::new(), &["--backlog", "1s"])
        .with_code(3)
        .saying("deliberately delayed by 1 s");
    servers.stop_and_start("CHANGE MASTER TO MASTER_DELAY=0");
    nothing_to_catch_up_with(&servers);
    ends_early(&servers);
    an_applier_that_fails(&servers);
}

#[test]
fn backlog_on_mysql() {
    let servers = Servers::start("mysql/async:1");
    servers.stop_and_start("SET GLOBAL replica_parallel_workers = 3");
    catches_up(&servers, &["1", "4"]);
    missing_privileges(
        &servers,
        "REPLICATION_SLAVE_ADMIN, SYSTEM_VARIABLES_ADMIN",
        "REPLICATION CLIENT",
    );
    ends_early(&servers);
}

#[test]
fn members_of_a_cluster_have_no_such_applier() {
    let ended = Tool::new()
        .run(&["lag", "--sandbox", "galera:2", "--backlog", "1s"])
        .with_code(3);
    let _ = ended
        .saying("cannot make a backlog")
        .saying("member of a cluster");
    let ended = Tool::new()
        .run(&["lag", "--sandbox", "none", "--backlog", "1s"])
        .with_code(3);
    let _ = ended.saying("it has no replica");
}

fn catches_up(servers: &Servers, workers: &[&str]) {
    let tool = Tool::new();
    let list = workers.join(",");
    let args = [
        "--backlog",
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
    assert_eq!(document["schema"], "replimeter.lag/1");
    assert_eq!(
        document["results"].as_array().unwrap().len(),
        0,
        "no rounds are measured beside it"
    );
    let rows = document["backlog"].as_array().unwrap();
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
            row["sustained_per_s"]["low"].as_f64(),
            row["sustained_per_s"]["high"].as_f64(),
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
            .contains("How fast it catches up")
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
fn missing_privileges(servers: &Servers, missing: &str, monitor: &str) {
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
            &["--backlog", "1s", "--workers", "2", "--rate", "100"],
            more,
        ]
        .concat();
        wait(
            servers.spawn_as(&Tool::new(), "prober", "pw", None, &args),
            LIMIT,
        )
    };
    until("the user has arrived", LIMIT, || {
        let count = value(
            servers.replica(),
            "SELECT COUNT(*) FROM mysql.user WHERE user = 'prober'",
        );
        count.as_deref() == Some("1")
    });
    thread::sleep(Duration::from_millis(500));
    let ended = run(&[])
        .with_code(3)
        .saying("replica1 (")
        .saying("may not stop the applier");
    let _ = ended.saying(&format!("GRANT {missing} ON *.*"));
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

fn nothing_to_catch_up_with(servers: &Servers) {
    let tool = Tool::new();
    fs::write(tool.folder().join("idle.sql"), "SELECT 1").unwrap();
    let args = [
        "--backlog",
        "1s",
        "--load",
        "idle.sql:1@primary",
        "--rate",
        "10",
        "--json",
    ];
    let document = servers.run(&tool, &args).with_code(0).json();
    assert!(
        document["answer"]
            .as_str()
            .unwrap()
            .contains("no backlog grew"),
        "{document:#}"
    );
    assert!(document["warnings"].to_string().contains("backlog-unclear"));
    servers.assert_as_it_was("3");
}

/// However it ends, the replica applies as it did before.
fn ends_early(servers: &Servers) {
    let args = [
        "--backlog",
        "60s",
        "--workers",
        "5",
        "--load",
        "insert:2@primary",
        "--rate",
        "50",
        "--json",
    ];
    let stopped = || {
        until("the applier stands still", LIMIT, || {
            servers.workers() == "5" && !servers.applying()
        })
    };
    let tool = Tool::new();
    let child = servers.spawn(&tool, &args);
    stopped();
    under_way(servers);
    thread::sleep(Duration::from_secs(3));
    kill_process(pid(&child), Signal::INT).unwrap();
    let document = wait(child, LIMIT).with_code(130).json();
    servers.assert_as_it_was("3");
    servers.assert_clean();
    let row = &document["backlog"][0];
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
    eprintln!("a panic");
    let tool = Tool::new();
    let child = servers.spawn_as(
        &tool,
        ADMIN,
        password(servers.primary()),
        Some("panic-while-measuring"),
        &args,
    );
    let _ = wait(child, LIMIT).with_code(101);
    servers.assert_as_it_was("3");
    servers.assert_clean();
    eprintln!("once more to end at once, with a frozen primary");
    let tool = Tool::new();
    let child = servers.spawn(&tool, &args);
    stopped();
    let primary = Pid::from_raw(i32::try_from(servers.sandbox.pids()[0]).unwrap()).unwrap();
    kill_process(primary, Signal::STOP).unwrap();
    kill_process(pid(&child), Signal::INT).unwrap();
    thread::sleep(Duration::from_millis(1500));
    kill_process(pid(&child), Signal::INT).unwrap();
    let ended = wait(child, LIMIT);
    let as_it_was = (servers.workers(), servers.applying());
    kill_process(primary, Signal::CONT).unwrap();
    let _ = ended.with_code(130).saying("ended at once");
    assert_eq!(as_it_was, ("3".to_owned(), true));
    // What it could not remove then the next run does, and the user the script's table.
    until("the primary answers", LIMIT, || {
        session(servers.primary()).value("test", "SELECT 1").is_ok()
    });
    sql(
        servers.primary(),
        "DROP TABLE IF EXISTS replimeter.load_insert",
    );
    let _ = servers.run(&Tool::new(), &["--rounds", "5"]).with_code(0);
    servers.assert_clean();
}

/// A replica that cannot apply what comes is an error with its words, not a long wait.
fn an_applier_that_fails(servers: &Servers) {
    let tool = Tool::new();
    let child = servers.spawn(
        &tool,
        &[
            "--backlog",
            "3s",
            "--load",
            "insert:2@primary",
            "--rate",
            "50",
        ],
    );
    until("the applier stands still", LIMIT, || !servers.applying());
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
        .saying("replica1 (")
        .saying("does not catch up")
        .saying("Duplicate entry");
    replica
        .run(
            "test",
            "DELETE FROM replimeter.load_insert WHERE data = 'x'",
        )
        .unwrap();
    servers.stop_and_start("DO 0");
    servers.assert_clean();
}
