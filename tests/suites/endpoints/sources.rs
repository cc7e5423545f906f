//! Other sources: primaries that are themselves replicas, and replicas with another source.

use std::fs;

use replimeter_engine::Node;
use replimeter_suites::{
    LIMIT, TestEnvironment, clean, password, session, shared, sql, url, value, wait, wait_until,
};
use rustix::process::{Signal, kill_process};

use super::{
    ADMIN, Cluster,
    replica_tables::{LAG, LOAD},
    tables, under_way,
};

/// Every command that writes to a user's servers.
const WRITING: [&str; 5] = [
    "lag --rounds 5",
    "stale --rounds 5 --curve-rounds 2",
    "backlog --build-up 1s",
    "load --workload insert --duration 300ms",
    "front --duration 1s --listen 127.0.0.1:0",
];

/// `position` is a query of all that the server has executed; `writable` and `restore` are statements.
fn is_refused(shape: &str, position: &str, [writable, restore]: [&str; 2]) {
    let sandbox = shared(shape, &[]);
    let replica = &sandbox.nodes()[1];
    sql(replica, writable);
    let tool = TestEnvironment::new();
    let file = format!(
        "[[node]]\nname = \"middle\"\nurl = \"{}\"\n",
        url(replica, ADMIN)
    );
    fs::write(tool.folder().join("one.toml"), file).unwrap();
    let run = |command: &str| {
        let mut args = Vec::from_iter(command.split(' '));
        args.extend(["--topology", "one.toml"]);
        let mut command = tool.command(&args);
        let child = command
            .env("REPLIMETER_PASSWORD", password(replica))
            .spawn();
        wait(child.unwrap(), LIMIT)
    };
    let before = value(replica, position);
    for command in WRITING {
        let _ = run(command)
            .with_code(3)
            .stderr_contains("middle (")
            .stderr_contains("which is not named: that server does not get what a run writes here")
            .stderr_contains("--write-to-replica");
    }
    let _ = run("doctor").with_code(1);
    let allowed = run("doctor --json --write-to-replica").with_code(0).json();
    assert!(
        allowed["findings"].to_string().contains("source-not-named"),
        "{allowed:#}"
    );
    assert_eq!(value(replica, position), before);
    assert!(clean(replica));
    sql(replica, restore);
}

pub(super) fn primary_that_is_a_replica_is_refused() {
    is_refused(
        "mariadb/async:1",
        "SELECT CONCAT(@@gtid_binlog_pos, ' ', @@gtid_current_pos)",
        ["SET GLOBAL read_only = 0", "SET GLOBAL read_only = 1"],
    );
}

pub(super) fn mysql_primary_that_is_a_replica_is_refused() {
    is_refused(
        "mysql/async:1",
        "SELECT @@global.gtid_executed",
        ["SET GLOBAL read_only = 0", "SET GLOBAL super_read_only = 1"],
    );
}

/// Runs statements on a server without replicating them.
fn alone(node: &Node, statements: &[&str]) {
    let mut session = session(node);
    session.run("test", "SET sql_log_bin=0").unwrap();
    for statement in statements {
        session.run("test", statement).unwrap();
    }
}

pub(super) fn runs_on_two_sources_of_a_replica_exclude_each_other(cluster: &Cluster) {
    let (primary, replica) = (cluster.primary(), cluster.replica());
    let tool = TestEnvironment::new();
    let running = under_way(cluster, &tool, &[]);
    // A run on another source of this replica would ask for it there.
    let holder = "SELECT IS_USED_LOCK('replimeter.run')";
    assert!(value(replica, holder).is_some() && value(primary, holder).is_some());
    // A lock that is lost with its connection is taken again, on every server.
    for server in [replica, primary] {
        let lost = value(server, holder).unwrap();
        sql(server, &format!("KILL {lost}"));
        wait_until("the lock is taken again", LIMIT, || {
            value(server, holder).is_some_and(|now| now != lost)
        });
    }
    kill_process(super::pid(&running), Signal::INT).unwrap();
    let _ = cluster.clean_or_named(&wait(running, LIMIT).with_code(130));
    cluster.settle();

    // A table that this replica has from another source is not removed through this one.
    let table = "CREATE TABLE replimeter.probe_1 (id INT) COMMENT 'replimeter: made by a measurement and removed by it; run 1'";
    alone(replica, &["CREATE DATABASE replimeter", table]);
    let other =
        "CHANGE MASTER 'other' TO MASTER_HOST='127.0.0.1', MASTER_PORT=1, MASTER_USER='none'";
    sql(replica, other);
    for [command, _] in [LAG, LOAD] {
        let (primary, replica) = (url(primary, ADMIN), url(replica, ADMIN));
        let mut args = Vec::from_iter(command.split(' '));
        args.extend([
            "--duration",
            "1s",
            "--primary",
            &primary,
            "--replica",
            &replica,
        ]);
        let mut command = tool.command(&args);
        let child = command
            .env("REPLIMETER_PASSWORD", cluster.password())
            .spawn();
        let _ = wait(child.unwrap(), LIMIT)
            .with_code(3)
            .stderr_contains("replica1 (")
            .stderr_contains("it also replicates from 127.0.0.1:1");
    }
    assert_eq!(tables(replica).as_deref(), Some("probe_1"));
    assert!(clean(primary));
    sql(replica, "RESET SLAVE 'other' ALL");
    alone(replica, &["DROP DATABASE replimeter"]);
}
