//! `replimeter watch` on real servers: states, the bound of the lag, and that it only reads.

use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Child, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use replimeter_engine::Node;
use replimeter_suites::{
    LIMIT, TestEnvironment, harness::Test, password, shared, sql, start, test, url, value, wait,
    wait_until,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

pub(crate) const TESTS: &[Test] = &[
    test!(stopped_applier_ages_within_the_bound_on_mariadb),
    test!(stopped_applier_ages_within_the_bound_on_mysql),
    test!(frozen_server_is_unreachable_and_delays_no_other),
    test!(user_who_may_not_write_sees_states),
    test!(members_of_a_cluster_are_watched),
    test!(killed_watch_leaves_a_readable_run).starts(2),
    test!(failover_is_followed_without_a_restart).starts(3),
];

/// The user of the sandboxes.
pub(crate) const ADMIN: &str = "replimeter";
/// A user that may only see the state of replication, and its password.
pub(crate) const READER: &str = "watcher";

/// A watch that is under way, and its samples.
pub(crate) struct Watch {
    pub(crate) child: Child,
    samples: Receiver<Value>,
    tool: TestEnvironment,
}

impl Watch {
    pub(crate) fn start(nodes: &[Node], user: &str, more: &[&str]) -> Self {
        let tool = TestEnvironment::new();
        let urls: Vec<String> = nodes.iter().map(|node| url(node, user)).collect();
        let mut args = vec!["watch", "--primary", &urls[0]];
        urls[1..]
            .iter()
            .for_each(|url| args.extend(["--replica", url]));
        Self::with(
            tool,
            &args,
            more,
            if user == READER {
                READER
            } else {
                password(&nodes[0])
            },
        )
    }

    fn with(tool: TestEnvironment, args: &[&str], more: &[&str], secret: &str) -> Self {
        let all = [
            args,
            &["--stream", "samples", "--poll-interval", "100ms"],
            more,
        ]
        .concat();
        let mut child = tool
            .command(&all)
            .env("REPLIMETER_PASSWORD", secret)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (send, samples) = mpsc::channel();
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let _ = send.send(serde_json::from_str(&line).unwrap());
            }
        });
        Self {
            child,
            samples,
            tool,
        }
    }

    /// Returns the first sample from now on for which this holds.
    pub(crate) fn await_sample(&self, what: &str, mut holds: impl FnMut(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        loop {
            match self.samples.recv_timeout(LIMIT) {
                Ok(sample) if holds(&sample) => return sample,
                Ok(sample) => last = sample,
                Err(_) => panic!("{what}: {last:#}"),
            }
        }
    }

    /// Waits until a server is in a state.
    pub(crate) fn await_state(&self, server: &str, state: &str) -> Value {
        self.await_sample(&format!("{server} is {state}"), |sample| {
            sample["server"] == server && sample["state"] == state
        })
    }

    /// Returns when the clock of the run began, in µs since 1970.
    fn origin_unix_us(&self) -> f64 {
        let manifest = self.tool.only_run().join("manifest.json");
        wait_until("the run has its manifest", LIMIT, || manifest.exists());
        let manifest: Value = serde_json::from_slice(&fs::read(manifest).unwrap()).unwrap();
        manifest["origin_unix_us"].as_f64().unwrap()
    }

    /// Ends the watch as a user does, and returns its document.
    pub(crate) fn end(self) -> Value {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        let ended = wait(self.child, LIMIT);
        let run = self.tool.only_run();
        let summary = run.join("summary.json");
        assert!(summary.exists(), "{ended:#?}");
        serde_json::from_slice(&fs::read(summary).unwrap()).unwrap()
    }
}

fn unix_us() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs_f64()
        * 1e6
}

fn stopped_applier_ages_within_the_bound_on_mariadb() {
    stopped_applier_ages_within_the_bound(
        "mariadb/async:1",
        "STOP SLAVE SQL_THREAD",
        "START SLAVE SQL_THREAD",
    );
}

fn stopped_applier_ages_within_the_bound_on_mysql() {
    stopped_applier_ages_within_the_bound(
        "mysql/async:1",
        "STOP REPLICA SQL_THREAD",
        "START REPLICA SQL_THREAD",
    );
}

/// A stopped applier is stopped, and its lag is the age of the first transaction that it lacks, whose commit the test has timed.
fn stopped_applier_ages_within_the_bound(shape: &str, stop: &str, restart: &str) {
    let sandbox = shared(shape, &[]);
    let [primary, replica] = sandbox.nodes() else {
        panic!("two servers")
    };
    let watch = Watch::start(sandbox.nodes(), ADMIN, &["--max-lag", "1ms"]);
    sql(primary, "CREATE DATABASE shop");
    sql(primary, "CREATE TABLE shop.t (id INT PRIMARY KEY)");
    watch.await_sample("the replica has everything", |sample| {
        sample["server"] == "replica1"
            && sample["behind"] == 0
            && sample["at_us"].as_f64() > Some(1e6)
    });
    sql(replica, stop);
    let origin = watch.origin_unix_us();
    let before = unix_us() - origin;
    sql(primary, "INSERT INTO shop.t VALUES (0)");
    let after = unix_us() - origin;
    for id in 1..30 {
        sql(primary, &format!("INSERT INTO shop.t VALUES ({id})"));
        thread::sleep(Duration::from_millis(50));
    }
    let mut checked = 0;
    while checked < 20 {
        let sample = watch.await_state("replica1", "stopped");
        let number = |key: &str| sample[key].as_f64();
        let Some(low) = number("lag_low_us").filter(|_| sample["behind"].as_u64() >= Some(1))
        else {
            continue;
        };
        let high = number("lag_high_us").expect("the position before is known");
        let answered = number("at_us").unwrap() - number("answer_age_us").unwrap();
        let asked = answered - number("answer_took_us").unwrap();
        assert!(
            low <= answered - before && asked - after <= high,
            "{before}, {after}: {sample:#}"
        );
        assert!(low <= high && high > 0.0, "{sample:#}");
        checked += 1;
    }
    sql(replica, restart);
    watch.await_sample("the replica has caught up", |sample| {
        sample["server"] == "replica1" && sample["behind"] == 0 && sample["state"] != "stopped"
    });
    let document = watch.end();
    let row = &document["results"]["rows"][1];
    assert!(row["lag_max_low_us"].as_f64() > Some(0.0), "{document:#}");
    assert!(row["state_us"]["stopped"].as_f64() > Some(0.0), "{row:#}");
    let changes = document["results"]["changes"].as_array().unwrap();
    assert!(
        changes.iter().any(|change| change["state"] == "stopped"),
        "{changes:#?}"
    );
}

fn frozen_server_is_unreachable_and_delays_no_other() {
    let sandbox = shared("mariadb/async:2", &[]);
    let primary = &sandbox.nodes()[0];
    let watch = Watch::start(sandbox.nodes(), ADMIN, &[]);
    watch.await_sample("both answer", |sample| {
        sample["server"] == "replica2" && sample["behind"] == 0
    });
    let pid = Pid::from_raw(i32::try_from(sandbox.pids()[1]).unwrap()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    watch.await_state("replica1", "unreachable");
    sql(primary, "CREATE DATABASE shop");
    watch.await_sample("the other replica goes on", |sample| {
        sample["server"] == "replica2"
            && sample["behind"] == 0
            && ["in-step", "idle"].contains(&sample["state"].as_str().unwrap())
    });
    kill_process(pid, Signal::CONT).unwrap();
    watch.await_sample("it is back", |sample| {
        sample["server"] == "replica1" && sample["behind"] == 0
    });
    let _ = watch.end();
}

fn user_who_may_not_write_sees_states() {
    for (shape, privileges) in [
        ("mariadb/async:1", "REPLICA MONITOR, BINLOG MONITOR"),
        ("mysql/async:1", "REPLICATION CLIENT"),
    ] {
        let sandbox = shared(shape, &[]);
        let [primary, replica] = sandbox.nodes() else {
            panic!("two servers")
        };
        let user = format!("{READER}@'127.0.0.1'");
        sql(
            primary,
            &format!("CREATE USER {user} IDENTIFIED BY '{READER}'"),
        );
        sql(primary, &format!("GRANT {privileges} ON *.* TO {user}"));
        wait_until("the user has arrived", LIMIT, || {
            let there = format!("SELECT 1 FROM mysql.user WHERE user = '{READER}'");
            value(replica, &there).is_some()
        });
        let position = |node: &Node| {
            value(node, "SHOW GLOBAL VARIABLES LIKE 'gtid_executed'")
                .or_else(|| value(node, "SELECT @@gtid_binlog_state"))
        };
        let before = position(primary);
        let watch = Watch::start(sandbox.nodes(), READER, &[]);
        watch.await_sample("the lag is known", |sample| {
            sample["server"] == "replica1"
                && sample["behind"] == 0
                && sample["lag_high_us"].is_number()
        });
        let _ = watch.end();
        assert_eq!(position(primary), before, "nothing is written");
        sql(primary, &format!("DROP USER {user}"));
    }
}

fn members_of_a_cluster_are_watched() {
    for shape in ["galera:2", "mysql/group:3"] {
        let sandbox = shared(shape, &[]);
        let nodes = sandbox.nodes();
        let urls: Vec<String> = nodes.iter().map(|node| url(node, ADMIN)).collect();
        let mut args = vec!["watch"];
        urls.iter().for_each(|url| args.extend(["--node", url]));
        let watch = Watch::with(TestEnvironment::new(), &args, &[], password(&nodes[0]));
        let primary = watch.await_sample("one takes the writes", |sample| {
            sample["state"] == "primary"
        });
        let other = watch.await_sample("another one is in step", |sample| {
            sample["server"] != primary["server"] && sample["behind"] == 0
        });
        assert!(other["queue"].is_number(), "{other:#}");
        let writer = nodes
            .iter()
            .find(|node| node.name == primary["server"])
            .unwrap();
        sql(writer, "CREATE DATABASE shop");
        let after = watch.await_sample("it has the write", |sample| {
            sample["server"] == other["server"] && sample["behind"] == 0
        });
        assert!(
            ["in-step", "idle"].contains(&after["state"].as_str().unwrap()),
            "{after:#}"
        );
        let _ = watch.end();
    }
}

fn killed_watch_leaves_a_readable_run() {
    let tool = TestEnvironment::new();
    let args = ["watch", "--sandbox", "async:1"];
    let mut watch = Watch::with(tool, &args, &[], "");
    watch.await_sample("it has run for some seconds", |sample| {
        sample["at_us"].as_f64() > Some(6e6)
    });
    watch.child.kill().unwrap();
    let _ = watch.child.wait();
    let run = watch.tool.only_run();
    let report = watch.tool.run(&["report", run.to_str().unwrap(), "--json"]);
    let document = report.with_code(0).json();
    assert_eq!(document["schema"], "replimeter.watch/1");
    assert!(
        document["results"]["polls"].as_u64() >= Some(1),
        "{document:#}"
    );
}

fn failover_is_followed_without_a_restart() {
    let sandbox = start("mariadb/async:2", &[]);
    let nodes = sandbox.nodes();
    let watch = Watch::start(nodes, ADMIN, &[]);
    watch.await_sample("both answer", |sample| {
        sample["server"] == "replica2" && sample["behind"] == 0
    });
    let pid = Pid::from_raw(i32::try_from(sandbox.pids()[0]).unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    watch.await_state("primary", "unreachable");
    let port = nodes[1].endpoint.port;
    sql(&nodes[1], "STOP SLAVE");
    sql(&nodes[1], "RESET SLAVE ALL");
    sql(&nodes[1], "SET GLOBAL read_only = OFF");
    sql(&nodes[2], "STOP SLAVE");
    sql(&nodes[2], &format!("CHANGE MASTER TO MASTER_PORT = {port}"));
    sql(&nodes[2], "START SLAVE");
    watch.await_state("replica1", "primary");
    sql(&nodes[1], "CREATE DATABASE shop");
    watch.await_sample("the other one replicates from it", |sample| {
        sample["server"] == "replica2"
            && sample["behind"] == 0
            && ["in-step", "idle"].contains(&sample["state"].as_str().unwrap())
    });
    let document = watch.end();
    let changes = document["results"]["changes"].as_array().unwrap();
    let follows = |change: &Value| {
        change["text"] == "it takes the writes now" && change["server"] == "replica1"
    };
    assert!(changes.iter().any(follows), "{changes:#?}");
}
