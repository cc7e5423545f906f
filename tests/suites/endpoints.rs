//! The user's own servers: one MariaDB primary with a replica stands in for them,
//! reached by URL as any server would be.

use std::{ffi::OsStr, fs, io::Write, path::Path, process::Stdio, thread, time::Duration};

use replimeter_engine::Node;
use replimeter_suites::{
    CommandOutput, LIMIT, Shared, TestEnvironment, clean, harness::Test, password, session, shared,
    sql, start, test, url, value, wait, wait_until,
};
use rustix::process::{Pid, Signal, kill_process};

pub(crate) const TESTS: &[Test] = &[
    test!(lag_measures_and_leaves_nothing on cluster),
    test!(passwords_are_read_from_every_source on cluster),
    test!(wrong_password_is_refused on cluster),
    test!(same_server_twice_is_refused on cluster),
    test!(replica_of_another_primary_is_refused on cluster),
    test!(missing_privileges_are_named on cluster),
    test!(read_only_primary_is_refused on cluster),
    test!(foreign_table_is_refused on cluster),
    test!(user_schema_is_kept on cluster),
    test!(leftover_of_an_earlier_run_is_removed on cluster),
    test!(second_concurrent_run_is_refused on cluster),
    test!(interrupted_run_keeps_results_and_cleans_up on cluster),
    test!(panic_still_cleans_up on cluster),
    test!(stopped_replica_is_refused on cluster),
    test!(frozen_replica_ends_the_run on cluster),
    test!(replica_that_breaks_ends_the_run on cluster),
    test!(filter_that_excludes_the_schema_is_refused on cluster),
    test!(delayed_replica_is_refused on cluster),
    test!(too_large_payload_is_clamped on cluster),
    test!(killed_replica_ends_the_run),
    test!(lag_keeps_tables_only_on_a_replica on relaxed),
    test!(load_keeps_tables_only_on_a_replica on relaxed),
    test!(background_load_keeps_tables_only_on_a_replica on relaxed),
    test!(tiny_rows_are_removed_in_small_transactions),
];

const ADMIN: &str = "replimeter";
/// One thing that is tried on the cluster.
type Case = fn(&Cluster);

/// The user's cluster and ways to point the tool at it.
struct Cluster {
    sandbox: Shared,
}

impl Cluster {
    fn primary(&self) -> &Node {
        &self.sandbox.nodes()[0]
    }

    fn replica(&self) -> &Node {
        &self.sandbox.nodes()[1]
    }

    fn password(&self) -> &str {
        password(self.primary())
    }

    /// Arguments for a short run as `user`.
    fn args(&self, user: &str, more: &[&str]) -> Vec<String> {
        let mut args = vec![
            "lag".to_owned(),
            "--primary".to_owned(),
            url(self.primary(), user),
        ];
        args.extend(["--replica".to_owned(), url(self.replica(), user)]);
        args.extend(["--floor-rounds", "20", "--warm-up", "5"].map(str::to_owned));
        args.extend(more.iter().map(|arg| (*arg).to_owned()));
        args
    }

    fn run(&self, tool: &TestEnvironment, more: &[&str]) -> CommandOutput {
        let child = tool
            .command(&self.args(ADMIN, more))
            .env("REPLIMETER_PASSWORD", self.password())
            .spawn()
            .unwrap();
        let ended = wait(child, LIMIT);
        assert!(!ended.stderr.contains(self.password()) && !ended.stdout.contains(self.password()));
        ended
    }

    /// Everything of ours is gone, on both servers.
    fn assert_clean(&self) {
        wait_until("the schema is gone everywhere", LIMIT, || {
            clean(self.primary()) && clean(self.replica())
        });
    }

    /// Waits until the replica has applied everything and runs.
    fn settle(&self) {
        wait_until("the replica runs", LIMIT, || {
            let row = session(self.replica())
                .rows("test", "SHOW ALL SLAVES STATUS")
                .unwrap()
                .remove(0);
            row["Slave_SQL_Running"] == "Yes" && row["Slave_IO_Running"] == "Yes"
        });
        let position = value(self.primary(), "SELECT @@gtid_binlog_pos").unwrap();
        assert_eq!(
            value(
                self.replica(),
                &format!("SELECT MASTER_GTID_WAIT('{position}', 30)")
            )
            .as_deref(),
            Some("0")
        );
    }
}

/// Tries something on the shared cluster, which is afterwards as it was.
fn cluster(case: Case) {
    let cluster = Cluster {
        sandbox: shared("mariadb/async:1", &[]),
    };
    case(&cluster);
    cluster.settle();
    cluster.assert_clean();
}

fn lag_measures_and_leaves_nothing(cluster: &Cluster) {
    let tool = TestEnvironment::new();
    let document = cluster
        .run(&tool, &["--rounds", "100", "--interval", "2ms", "--json"])
        .with_code(0)
        .json();
    assert_eq!(document["schema"], "replimeter.lag/1");
    assert_eq!(document["target"]["shape"], "endpoints:1");
    let row = &document["results"]["rows"][0];
    assert_eq!(
        (row["rounds"].as_u64(), row["timed_out"].as_u64()),
        (Some(100), Some(0))
    );
    cluster.assert_clean();
}

fn passwords_are_read_from_every_source(cluster: &Cluster) {
    let secret = cluster.password();
    let short = ["--rounds", "5"];
    let file = |tool: &TestEnvironment, name: &str| {
        let path = tool.folder().join(name);
        fs::write(
            &path,
            format!("[client]\nuser={ADMIN}\npassword=\"{secret}\"\n"),
        )
        .unwrap();
        path
    };
    let tool = TestEnvironment::new();
    let named = file(&tool, "option.cnf");
    let mut args = cluster.args(ADMIN, &short);
    args.extend(["--defaults-file".to_owned(), named.display().to_string()]);
    let _ = tool.run(&args).with_code(0);

    let tool = TestEnvironment::new();
    file(&tool, ".my.cnf");
    let _ = tool.run(&cluster.args(ADMIN, &short)).with_code(0);

    let tool = TestEnvironment::new();
    let each = [
        ("REPLIMETER_PRIMARY_PASSWORD", secret),
        ("REPLIMETER_REPLICA1_PASSWORD", secret),
    ];
    let _ = CommandOutput::of(
        tool.command(&cluster.args(ADMIN, &short))
            .envs(each)
            .output()
            .unwrap(),
    )
    .with_code(0);

    let tool = TestEnvironment::new();
    let with_password = |node: &Node| url(node, &format!("{ADMIN}:{secret}"));
    let args = [
        "lag",
        "--primary",
        &with_password(cluster.primary()),
        "--replica",
        &with_password(cluster.replica()),
    ];
    let ended = tool.run(&[&args[..], &short[..]].concat()).with_code(0);
    assert!(ended.stdout.contains("carries a password"), "{ended:#?}");
    let run = tool.only_run();
    // At a terminal the tool asks by itself, once for each server.
    let asking = TestEnvironment::new();
    let words = asking.command(&cluster.args(ADMIN, &short));
    let line: Vec<String> = std::iter::once(words.get_program())
        .chain(words.get_args())
        .map(quoted)
        .collect();
    let mut terminal = std::process::Command::new("script");
    terminal
        .args([
            "--quiet",
            "--return",
            "--command",
            &line.join(" "),
            "/dev/null",
        ])
        .current_dir(asking.folder());
    terminal
        .envs(
            words
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .env_remove("MYSQL_PWD");
    let screen = asking.folder().join("screen.txt");
    terminal
        .stdin(Stdio::piped())
        .stdout(fs::File::create(&screen).unwrap())
        .stderr(Stdio::piped());
    let mut child = terminal.spawn().unwrap();
    let mut keys = child.stdin.take().unwrap();
    let shown = || String::from_utf8_lossy(&fs::read(&screen).unwrap()).into_owned();
    for asked in 1..=2 {
        wait_until("it asks for a password", LIMIT, || {
            shown()
                .matches("Password for replimeter@127.0.0.1:")
                .count()
                >= asked
        });
        // The terminal stops to show what is typed right after the question.
        thread::sleep(Duration::from_millis(500));
        writeln!(keys, "{secret}").unwrap();
    }
    let _ = wait(child, LIMIT).with_code(0);
    drop(keys);
    assert!(
        !shown().contains(secret),
        "it is not shown while it is typed"
    );
    // Whatever was given how: it is in no file of the run.
    for entry in fs::read_dir(run).unwrap() {
        let bytes = fs::read(entry.unwrap().path()).unwrap();
        assert!(
            !bytes
                .windows(secret.len())
                .any(|window| window == secret.as_bytes())
        );
    }
}

/// A word as a shell takes it.
fn quoted(word: &OsStr) -> String {
    format!("'{}'", word.to_str().unwrap())
}

fn wrong_password_is_refused(cluster: &Cluster) {
    let tool = TestEnvironment::new();
    let mut command = tool.command(&cluster.args(ADMIN, &[]));
    let ended = CommandOutput::of(
        command
            .env("REPLIMETER_PASSWORD", "wrong")
            .output()
            .unwrap(),
    )
    .with_code(3);
    let _ = ended
        .stderr_contains("primary (127.0.0.1:")
        .stderr_contains("Access denied")
        .stderr_contains("--defaults-file");
    assert!(tool.runs().is_empty());
}

fn same_server_twice_is_refused(cluster: &Cluster) {
    let (primary, replica) = (url(cluster.primary(), ADMIN), url(cluster.replica(), ADMIN));
    let run = |args: &[&str]| {
        let tool = TestEnvironment::new();
        CommandOutput::of(
            tool.command(args)
                .env("REPLIMETER_PASSWORD", cluster.password())
                .output()
                .unwrap(),
        )
    };
    let ended = run(&["lag", "--primary", &primary, "--replica", &primary]).with_code(3);
    let _ = ended
        .stderr_contains("replica1 (")
        .stderr_contains("is the same server as primary");
    let ended = run(&[
        "lag",
        "--primary",
        &primary,
        "--replica",
        &replica,
        "--replica",
        &replica,
    ])
    .with_code(3);
    let _ = ended
        .stderr_contains("replica2 (")
        .stderr_contains("is the same server as replica1");
    let ended = run(&["lag", "--primary", &replica, "--replica", &primary]).with_code(3);
    let _ = ended
        .stderr_contains("primary (")
        .stderr_contains("declared the primary, but it replicates from replica1");
}

fn replica_of_another_primary_is_refused(cluster: &Cluster) {
    let other = start("mariadb/async:1", &[]);
    // With distinct numbers the status tells.
    let number = value(cluster.primary(), "SELECT @@server_id").unwrap();
    sql(&other.nodes()[0], "SET GLOBAL server_id = 77");
    sql(&other.nodes()[1], "STOP SLAVE");
    sql(&other.nodes()[1], "START SLAVE");
    wait_until(
        "the other replica knows its primary's number",
        LIMIT,
        || {
            let row = session(&other.nodes()[1])
                .rows("test", "SHOW ALL SLAVES STATUS")
                .unwrap()
                .remove(0);
            row["Master_Server_Id"] == "77" && row["Slave_SQL_Running"] == "Yes"
        },
    );
    let run = |extra: &[&str]| {
        let tool = TestEnvironment::new();
        let replica = url(&other.nodes()[1], ADMIN);
        let primary = url(cluster.primary(), ADMIN);
        let mut args = vec![
            "lag",
            "--primary",
            primary.as_str(),
            "--replica",
            replica.as_str(),
        ];
        args.extend(extra);
        let mut command = tool.command(&args);
        command.env("REPLIMETER_PRIMARY_PASSWORD", cluster.password());
        command.env("REPLIMETER_REPLICA1_PASSWORD", password(&other.nodes()[0]));
        wait(command.spawn().unwrap(), LIMIT)
    };
    let ended = run(&[])
        .with_code(3)
        .stderr_contains("replica1 (")
        .stderr_contains("is not a replica of the given primary");
    let _ = ended
        .stderr_contains("server_id 77")
        .stderr_contains(&format!("has server_id {number}"));
    // With the same one only the sentinel can.
    sql(
        &other.nodes()[0],
        &format!("SET GLOBAL server_id = {number}"),
    );
    sql(&other.nodes()[1], "STOP SLAVE");
    sql(&other.nodes()[1], "START SLAVE");
    wait_until("the other replica runs again", LIMIT, || {
        let row = session(&other.nodes()[1])
            .rows("test", "SHOW ALL SLAVES STATUS")
            .unwrap()
            .remove(0);
        row["Master_Server_Id"] == number && row["Slave_SQL_Running"] == "Yes"
    });
    let _ = run(&["--timeout", "2s"])
        .with_code(3)
        .stderr_contains("replica1 (")
        .stderr_contains("did not arrive within 2 s");
    cluster.assert_clean();
}

fn missing_privileges_are_named(cluster: &Cluster) {
    let run = |user: &str| {
        let tool = TestEnvironment::new();
        let mut command = tool.command(&cluster.args(user, &["--rounds", "5"]));
        wait(
            command.env("REPLIMETER_PASSWORD", "pw").spawn().unwrap(),
            LIMIT,
        )
    };
    sql(
        cluster.primary(),
        "CREATE USER probe@'127.0.0.1' IDENTIFIED BY 'pw'",
    );
    cluster.settle();
    let ended = run("probe")
        .with_code(3)
        .stderr_contains("primary (127.0.0.1:")
        .stderr_contains("CREATE, DROP, INSERT, DELETE, SELECT");
    let _ = ended.stderr_contains(
        "GRANT CREATE, DROP, INSERT, DELETE, SELECT ON `replimeter`.* TO 'probe'@'127.0.0.1'",
    );
    sql(
        cluster.primary(),
        "GRANT CREATE, DROP, INSERT, DELETE, SELECT ON replimeter.* TO probe@'127.0.0.1'",
    );
    cluster.settle();
    let _ = run("probe")
        .with_code(3)
        .stderr_contains("replica1 (127.0.0.1:")
        .stderr_contains("REPLICA MONITOR");
    cluster.assert_clean();
    // Exactly what the documentation lists is enough.
    sql(
        cluster.primary(),
        "GRANT REPLICA MONITOR, BINLOG MONITOR ON *.* TO probe@'127.0.0.1'",
    );
    cluster.settle();
    let _ = run("probe").with_code(0);
    sql(cluster.primary(), "DROP USER probe@'127.0.0.1'");
}

fn read_only_primary_is_refused(cluster: &Cluster) {
    sql(cluster.primary(), "SET GLOBAL read_only = 1");
    let ended = cluster
        .run(&TestEnvironment::new(), &[])
        .with_code(3)
        .stderr_contains("cannot be the primary")
        .stderr_contains("read_only=ON");
    drop(ended);
    sql(cluster.primary(), "SET GLOBAL read_only = 0");
}

fn foreign_table_is_refused(cluster: &Cluster) {
    sql(cluster.primary(), "CREATE DATABASE replimeter");
    sql(
        cluster.primary(),
        "CREATE TABLE replimeter.lag_probe (mine INT)",
    );
    sql(
        cluster.primary(),
        "INSERT INTO replimeter.lag_probe VALUES (42)",
    );
    cluster.settle();
    let _ = cluster
        .run(&TestEnvironment::new(), &[])
        .with_code(3)
        .stderr_contains("primary (")
        .stderr_contains("did not make, and will not touch");
    assert_eq!(
        value(cluster.primary(), "SELECT mine FROM replimeter.lag_probe").as_deref(),
        Some("42")
    );
    sql(cluster.primary(), "DROP DATABASE replimeter");
    cluster.settle();
    // On the replica alone it would break replication.
    let mut replica = session(cluster.replica());
    for statement in [
        "SET sql_log_bin=0",
        "CREATE DATABASE replimeter",
        "CREATE TABLE replimeter.lag_probe (mine INT)",
    ] {
        replica.run("test", statement).unwrap();
    }
    let _ = cluster
        .run(&TestEnvironment::new(), &[])
        .with_code(3)
        .stderr_contains("replica1 (")
        .stderr_contains("will not touch");
    assert_eq!(
        value(
            cluster.replica(),
            "SELECT COUNT(*) FROM replimeter.lag_probe"
        )
        .as_deref(),
        Some("0")
    );
    replica.run("test", "DROP DATABASE replimeter").unwrap();
}

fn user_schema_is_kept(cluster: &Cluster) {
    sql(cluster.primary(), "CREATE DATABASE replimeter");
    sql(
        cluster.primary(),
        "CREATE TABLE replimeter.notes (mine INT)",
    );
    cluster.settle();
    let _ = cluster
        .run(&TestEnvironment::new(), &["--rounds", "10"])
        .with_code(0);
    let tables = "SELECT GROUP_CONCAT(table_name) FROM information_schema.tables WHERE table_schema = 'replimeter'";
    for node in cluster.sandbox.nodes() {
        assert_eq!(value(node, tables).as_deref(), Some("notes"));
    }
    sql(cluster.primary(), "DROP DATABASE replimeter");
}

/// Starts a run and waits until it writes.
fn under_way(cluster: &Cluster, tool: &TestEnvironment, more: &[&str]) -> std::process::Child {
    let args = cluster.args(ADMIN, more);
    let child = tool
        .command(&args)
        .env("REPLIMETER_PASSWORD", cluster.password())
        .spawn()
        .unwrap();
    await_rows(cluster.primary());
    child
}

/// Waits until a run has written more than a hundred rows.
fn await_rows(primary: &Node) {
    wait_until("rows are written", LIMIT, || {
        let count = session(primary).value("test", "SELECT COUNT(*) FROM replimeter.lag_probe");
        count
            .ok()
            .flatten()
            .and_then(|count| count.parse().ok())
            .is_some_and(|count: u64| count > 100)
    });
}

fn pid(child: &std::process::Child) -> Pid {
    Pid::from_child(child)
}

fn leftover_of_an_earlier_run_is_removed(cluster: &Cluster) {
    let tool = TestEnvironment::new();
    let mut child = under_way(cluster, &tool, &["--duration", "60s"]);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(
        !clean(cluster.primary()),
        "a killed tool cannot clean up on the user's servers"
    );
    let ended = cluster
        .run(&TestEnvironment::new(), &["--rounds", "5", "--json"])
        .with_code(0);
    let warnings = ended.json()["warnings"].to_string();
    assert!(warnings.contains("leftover-removed"), "{warnings}");
}

fn second_concurrent_run_is_refused(cluster: &Cluster) {
    let tool = TestEnvironment::new();
    let child = under_way(cluster, &tool, &["--duration", "60s"]);
    let _ = cluster
        .run(&TestEnvironment::new(), &[])
        .with_code(3)
        .stderr_contains("another Replimeter run is measuring this server");
    kill_process(pid(&child), Signal::INT).unwrap();
    let _ = wait(child, LIMIT).with_code(130);
}

fn interrupted_run_keeps_results_and_cleans_up(cluster: &Cluster) {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let tool = TestEnvironment::new();
        let child = under_way(cluster, &tool, &["--duration", "60s", "--json"]);
        kill_process(pid(&child), signal).unwrap();
        let ended = wait(child, LIMIT)
            .with_code(130)
            .stderr_contains("interrupted");
        let document = ended.json();
        assert_eq!(document["status"], "interrupted");
        assert!(document["results"]["rows"][0]["rounds"].as_u64().unwrap() > 20);
        let run = tool.only_run();
        assert_rendered_again(&tool, &run);
        cluster.assert_clean();
    }
}

fn assert_rendered_again(tool: &TestEnvironment, run: &Path) {
    fs::remove_file(run.join("report.html")).unwrap();
    let ended = tool.run(&["report", run.to_str().unwrap()]).with_code(0);
    assert!(
        ended.words().contains("The run was interrupted"),
        "{ended:#?}"
    );
    assert!(run.join("report.html").exists());
}

fn panic_still_cleans_up(cluster: &Cluster) {
    let tool = TestEnvironment::new();
    let mut command = tool.command(&cluster.args(ADMIN, &["--duration", "60s"]));
    command
        .env("REPLIMETER_PASSWORD", cluster.password())
        .env("REPLIMETER_FAULT", "panic-while-measuring");
    let _ = wait(command.spawn().unwrap(), LIMIT).with_code(101);
    assert!(clean(cluster.primary()));
}

fn stopped_replica_is_refused(cluster: &Cluster) {
    sql(cluster.replica(), "STOP SLAVE");
    let _ = cluster
        .run(&TestEnvironment::new(), &[])
        .with_code(3)
        .stderr_contains("replica1 (")
        .stderr_contains("does not replicate")
        .stderr_contains("SQL thread No");
    assert!(clean(cluster.primary()), "nothing was written");
    sql(cluster.replica(), "START SLAVE");
    cluster.settle();
    // Stopped in the middle: no hang, but an error once the time-out is over.
    let tool = TestEnvironment::new();
    let child = under_way(cluster, &tool, &["--duration", "60s", "--timeout", "2s"]);
    sql(cluster.replica(), "STOP SLAVE SQL_THREAD");
    let ended = wait(child, LIMIT)
        .with_code(3)
        .stderr_contains("replica1 (")
        .stderr_contains("SQL thread No");
    assert!(ended.words().contains("The run failed"), "{ended:#?}");
    let document: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(tool.only_run().join("summary.json")).unwrap())
            .unwrap();
    assert_eq!(document["status"], "failed");
    assert!(
        document["results"]["rows"][0]["timed_out"]
            .as_u64()
            .unwrap()
            > 0
    );
    sql(cluster.replica(), "START SLAVE");
}

fn frozen_replica_ends_the_run(cluster: &Cluster) {
    let replica = Pid::from_raw(i32::try_from(cluster.sandbox.pids()[1]).unwrap()).unwrap();
    let tool = TestEnvironment::new();
    let child = under_way(cluster, &tool, &["--duration", "60s", "--timeout", "2s"]);
    kill_process(replica, Signal::STOP).unwrap();
    // The time-out, a look at the replica, and the clean-up: far from the sixty seconds.
    let ended = wait(child, Duration::from_secs(20));
    kill_process(replica, Signal::CONT).unwrap();
    let ended = ended.with_code(3).stderr_contains("replica1 (");
    // It could not be asked what it has in the schema.
    assert!(
        ended
            .words()
            .contains("the schema `replimeter` was not removed"),
        "{ended:#?}"
    );
    // Ctrl-C is heeded with a frozen replica too.
    let tool = TestEnvironment::new();
    let child = under_way(cluster, &tool, &["--duration", "60s", "--timeout", "30s"]);
    kill_process(replica, Signal::STOP).unwrap();
    kill_process(pid(&child), Signal::INT).unwrap();
    thread::sleep(Duration::from_secs(3));
    kill_process(replica, Signal::CONT).unwrap();
    let _ = wait(child, LIMIT).with_code(130);
    sql(cluster.primary(), "DROP DATABASE IF EXISTS replimeter");
}

fn replica_that_breaks_ends_the_run(cluster: &Cluster) {
    let tool = TestEnvironment::new();
    let child = under_way(cluster, &tool, &["--duration", "60s", "--timeout", "30s"]);
    // A row of somebody else's makes the applying thread fail on a duplicate key.
    let mut replica = session(cluster.replica());
    for statement in [
        "SET sql_log_bin=0",
        "INSERT INTO replimeter.lag_probe (id, sequence, sent_us, payload) SELECT MAX(id) + 500, 1, 1, 'x' FROM replimeter.lag_probe",
    ] {
        replica.run("test", statement).unwrap();
    }
    let ended = wait(child, Duration::from_secs(25)).with_code(3);
    let _ = ended
        .stderr_contains("replica1 (")
        .stderr_contains("1062")
        .stderr_contains("Duplicate entry");
    replica
        .run("test", "DELETE FROM replimeter.lag_probe")
        .unwrap();
    replica.run("test", "STOP SLAVE").unwrap();
    replica
        .run("test", "SET GLOBAL slave_exec_mode='IDEMPOTENT'")
        .unwrap();
    replica.run("test", "START SLAVE").unwrap();
    cluster.settle();
    replica.run("test", "STOP SLAVE").unwrap();
    replica
        .run("test", "SET GLOBAL slave_exec_mode='STRICT'")
        .unwrap();
    replica.run("test", "START SLAVE").unwrap();
}

fn filter_that_excludes_the_schema_is_refused(cluster: &Cluster) {
    let filter = |value: &str| {
        sql(cluster.replica(), "STOP SLAVE");
        sql(
            cluster.replica(),
            &format!("SET GLOBAL replicate_wild_ignore_table='{value}'"),
        );
        sql(cluster.replica(), "START SLAVE");
    };
    filter("repli%.%");
    let _ = cluster
        .run(&TestEnvironment::new(), &[])
        .with_code(3)
        .stderr_contains("a filter excludes the schema")
        .stderr_contains("Wild_Ignore_Table=repli%.%");
    assert!(clean(cluster.primary()), "nothing was written");
    filter("");
}

fn delayed_replica_is_refused(cluster: &Cluster) {
    let delay = |seconds: u32| {
        sql(cluster.replica(), "STOP SLAVE");
        sql(
            cluster.replica(),
            &format!("CHANGE MASTER TO MASTER_DELAY={seconds}"),
        );
        sql(cluster.replica(), "START SLAVE");
    };
    delay(2);
    let ended = cluster
        .run(
            &TestEnvironment::new(),
            &["--rounds", "30", "--timeout", "3s", "--json"],
        )
        .with_code(0);
    let document = ended.json();
    let row = &document["results"]["rows"][0];
    assert_eq!(row["configured_delay_us"].as_f64(), Some(2e6));
    assert!(
        row["from_send"]["min_us"].as_f64().unwrap() > 0.9e6,
        "{row:#}"
    );
    assert!(
        document["headline"]
            .as_str()
            .unwrap()
            .contains("configured delay"),
        "{document:#}"
    );
    assert!(
        document["warnings"]
            .to_string()
            .contains("deliberately delayed by 2 s")
    );
    delay(0);
}

fn too_large_payload_is_clamped(cluster: &Cluster) {
    sql(cluster.replica(), "SET GLOBAL max_allowed_packet = 1048576");
    let ended = cluster
        .run(
            &TestEnvironment::new(),
            &[
                "--rounds",
                "3",
                "--interval",
                "50ms",
                "--row-size",
                "2000000",
                "--json",
            ],
        )
        .with_code(0);
    let document = ended.json();
    assert!(
        document["warnings"].to_string().contains("payload-clamped"),
        "{document:#}"
    );
    assert_eq!(
        document["results"]["rows"][0]["size_bytes"].as_u64(),
        Some(1_048_576 - 256),
        "what was written, not what was asked for"
    );
    sql(
        cluster.replica(),
        "SET GLOBAL max_allowed_packet = 16777216",
    );
}

fn killed_replica_ends_the_run() {
    let sandbox = start("mariadb/async:1", &[]);
    let [primary, replica] = sandbox.nodes() else {
        panic!("two servers")
    };
    let tool = TestEnvironment::new();
    let (primary_url, replica_url) = (url(primary, ADMIN), url(replica, ADMIN));
    let args = [
        "lag",
        "--primary",
        &primary_url,
        "--replica",
        &replica_url,
        "--floor-rounds",
        "20",
        "--duration",
        "60s",
    ];
    let child = tool
        .command(&args)
        .env("REPLIMETER_PASSWORD", password(primary))
        .spawn()
        .unwrap();
    await_rows(primary);
    kill_process(
        Pid::from_raw(i32::try_from(sandbox.pids()[1]).unwrap()).unwrap(),
        Signal::KILL,
    )
    .unwrap();
    let ended = wait(child, Duration::from_secs(20))
        .with_code(3)
        .stderr_contains("replica1 (");
    assert!(tool.only_run().join("samples.parquet").exists());
    // The table is gone all the same. Whether the replica has anything of its own in the schema is not known.
    assert!(
        ended
            .words()
            .contains("the schema `replimeter` was not removed"),
        "{ended:#?}"
    );
    assert_eq!(tables(primary), None);
}

/// The names of the tables in the schema.
fn tables(node: &Node) -> Option<String> {
    let tables = "SELECT GROUP_CONCAT(table_name) FROM information_schema.tables WHERE table_schema = 'replimeter'";
    value(node, tables)
}

/// When the user makes a table on the replica alone.
#[derive(Clone, Copy, Debug, PartialEq)]
enum TableCreation {
    Never,
    BeforeTheRun,
    DuringTheRun,
}

const LAG: [&str; 7] = [
    "lag",
    "--duration",
    "1s",
    "--floor-rounds",
    "20",
    "--warm-up",
    "5",
];
const LOAD: [&str; 9] = [
    "load",
    "--workload",
    "insert",
    "--threads",
    "1",
    "--duration",
    "1s",
    "--warm-up",
    "200ms",
];

/// Tries something on shared servers that flush seldom.
fn relaxed(case: Case) {
    let cluster = Cluster {
        sandbox: shared(
            "mariadb/async:1",
            &["sync_binlog=0", "innodb_flush_log_at_trx_commit=0"],
        ),
    };
    case(&cluster);
    cluster.settle();
    cluster.assert_clean();
}

fn lag_keeps_tables_only_on_a_replica(cluster: &Cluster) {
    keeps_tables_of_a_replica_alone(
        cluster,
        &LAG,
        &[TableCreation::BeforeTheRun, TableCreation::DuringTheRun],
    );
}

fn load_keeps_tables_only_on_a_replica(cluster: &Cluster) {
    keeps_tables_of_a_replica_alone(
        cluster,
        &LOAD,
        &[
            TableCreation::BeforeTheRun,
            TableCreation::DuringTheRun,
            TableCreation::Never,
        ],
    );
}

fn background_load_keeps_tables_only_on_a_replica(cluster: &Cluster) {
    let lag = [&LAG[..], &["--load", "insert:1@primary", "--rate", "50"]].concat();
    keeps_tables_of_a_replica_alone(cluster, &lag, &[TableCreation::DuringTheRun]);
    let stale = [
        "stale",
        "--duration",
        "1s",
        "--read-delays",
        "none",
        "--load",
        "insert:1@writer",
    ];
    keeps_tables_of_a_replica_alone(
        cluster,
        &stale,
        &[TableCreation::DuringTheRun, TableCreation::Never],
    );
}

/// Runs a command while the user makes a table on the replica alone.
fn keeps_tables_of_a_replica_alone(cluster: &Cluster, command: &[&str], moments: &[TableCreation]) {
    let on_replica = |statements: &[&str]| {
        let mut session = session(cluster.replica());
        session.run("test", "SET sql_log_bin=0").unwrap();
        statements
            .iter()
            .for_each(|statement| session.run("test", statement).unwrap());
    };
    let make = || {
        on_replica(&[
            "CREATE DATABASE IF NOT EXISTS replimeter",
            "CREATE TABLE replimeter.notes (mine INT)",
            "INSERT INTO replimeter.notes VALUES (42)",
        ]);
    };
    for made in moments.iter().copied() {
        eprintln!("case {made:?}: {}", command.join(" "));
        if made == TableCreation::BeforeTheRun {
            make();
        }
        let tool = TestEnvironment::new();
        let (primary, replica) = (url(cluster.primary(), ADMIN), url(cluster.replica(), ADMIN));
        let args = [
            command,
            &["--primary", &primary, "--replica", &replica, "--json"],
        ]
        .concat();
        let child = tool
            .command(&args)
            .env("REPLIMETER_PASSWORD", cluster.password())
            .spawn()
            .unwrap();
        if made == TableCreation::DuringTheRun {
            wait_until("the schema has arrived", LIMIT, || {
                !clean(cluster.replica())
            });
            make();
        }
        let document = wait(child, LIMIT).with_code(0).json();
        cluster.settle();
        let warnings = document["warnings"].to_string();
        assert_eq!(
            warnings
                .matches("the schema `replimeter` was not removed: replica1 (")
                .count(),
            usize::from(made != TableCreation::Never),
            "{warnings}"
        );
        if made == TableCreation::Never {
            cluster.assert_clean();
            continue;
        }
        assert_eq!(
            value(cluster.replica(), "SELECT mine FROM replimeter.notes").as_deref(),
            Some("42")
        );
        assert_eq!(
            (
                tables(cluster.primary()),
                tables(cluster.replica()).as_deref()
            ),
            (None, Some("notes"))
        );
        on_replica(&["DROP TABLE replimeter.notes"]);
        sql(cluster.primary(), "DROP DATABASE replimeter");
        cluster.assert_clean();
    }
}

/// Rows that each transaction of the primary's binary log deletes, where it deletes any. The log must have row events
/// with the key alone (`binlog_row_image=MINIMAL`).
fn deleted_rows(node: &Node) -> Vec<u64> {
    /// Bytes of an event of deleted rows that are of no row: header, table, flags, columns, checksum.
    const FRAME: u64 = 19 + 6 + 2 + 1 + 1 + 4;
    /// Bytes of a deleted row: which columns are null, and the key.
    const ROW: u64 = 1 + 8;
    const PAGE: usize = 20_000;
    let mut session = session(node);
    let log = session
        .rows("test", "SHOW MASTER STATUS")
        .unwrap()
        .remove(0)["File"]
        .clone();
    let (mut from, mut of_transaction, mut deleted) = (4, 0, Vec::new());
    loop {
        let events = session
            .rows(
                "test",
                &format!("SHOW BINLOG EVENTS IN '{log}' FROM {from} LIMIT {PAGE}"),
            )
            .unwrap();
        for event in &events {
            let [start, end] =
                ["Pos", "End_log_pos"].map(|column| event[column].parse::<u64>().unwrap());
            from = end;
            match event["Event_type"].as_str() {
                "Delete_rows_v1" => {
                    let rows = end - start - FRAME;
                    assert_eq!(rows % ROW, 0, "{event:?}");
                    of_transaction += rows / ROW;
                }
                "Xid" if of_transaction > 0 => deleted.push(std::mem::take(&mut of_transaction)),
                _ => {}
            }
        }
        if events.len() < PAGE {
            return deleted;
        }
    }
}

fn tiny_rows_are_removed_in_small_transactions() {
    let options = [
        "binlog_format=ROW",
        "binlog_row_image=MINIMAL",
        "sync_binlog=0",
        "innodb_flush_log_at_trx_commit=0",
    ];
    let cluster = Cluster {
        sandbox: shared("mariadb/async:1", &options),
    };
    let more = [
        "--rounds",
        "101000",
        "--pace",
        "ack",
        "--writers",
        "4",
        "--row-size",
        "1",
        "--json",
    ];
    let document = cluster
        .run(&TestEnvironment::new(), &more)
        .with_code(0)
        .json();
    let row = &document["results"]["rows"][0];
    assert_eq!(
        (row["rounds"].as_u64(), row["timed_out"].as_u64()),
        (Some(101_000), Some(0)),
        "{row:#}"
    );
    let warnings = document["warnings"].to_string();
    assert!(
        warnings.contains("the write schedule paused 1 times to empty the table"),
        "{warnings}"
    );
    let deleted = deleted_rows(cluster.primary());
    assert!(deleted.iter().all(|rows| *rows <= 10_000), "{deleted:?}");
    assert!(
        (100_000..101_000).contains(&deleted.iter().sum::<u64>()),
        "{deleted:?}"
    );
    cluster.assert_clean();
}
