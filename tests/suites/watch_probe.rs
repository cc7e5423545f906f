//! `replimeter watch` with a row of its own, with a heartbeat table, and while servers fail.

use std::collections::BTreeSet;

use replimeter_engine::Node;
use replimeter_suites::{
    LIMIT, TestEnvironment, harness::Test, password, session, shared, sql, start, test, url, value,
    wait_until,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::watch::{ADMIN, READER, Watch};

pub(crate) const TESTS: &[Test] = &[
    test!(probe_keeps_an_idle_link_in_step_during_lag),
    test!(killed_probe_is_removed_by_the_next_run_or_watch),
    test!(probe_waits_while_the_primary_is_read_only),
    test!(probe_follows_a_failover).starts(3),
    test!(heartbeat_table_gives_the_lag_without_gtids).starts(2),
    test!(lost_connections_and_privileges_come_back),
    test!(reset_positions_begin_again).starts(2),
];

const PROBE: &[&str] = &["--probe", "100ms"];
/// The state of a server that takes no writes from this test.
const FINE: [&str; 2] = ["in-step", "idle"];

/// Returns the names of the tables of probes on a server.
fn tables(node: &Node) -> BTreeSet<String> {
    let all = "SELECT GROUP_CONCAT(table_name) FROM information_schema.tables \
               WHERE table_schema = 'replimeter' AND table_name LIKE 'watch\\_probe\\_%'";
    let all = value(node, all).unwrap_or_default();
    all.split(',')
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Returns the only such table.
fn table(node: &Node) -> Option<String> {
    let mut all = tables(node);
    assert!(all.len() <= 1, "{all:?}");
    all.pop_first()
}

/// Waits until a server has a table, and the row in it changes.
fn await_probe(node: &Node) -> String {
    let mut found = None;
    wait_until("the table has arrived", LIMIT, || {
        found = table(node);
        found.is_some()
    });
    let found = found.unwrap();
    let written = || value(node, &format!("SELECT written FROM replimeter.`{found}`"));
    let before = written();
    wait_until("the row changes", LIMIT, || written() != before);
    found
}

fn has_schema(node: &Node) -> bool {
    let there = "SELECT 1 FROM information_schema.schemata WHERE schema_name = 'replimeter'";
    value(node, there).is_some()
}

fn await_no_schema(nodes: &[Node]) {
    for node in nodes {
        wait_until("the schema is removed", LIMIT, || !has_schema(node));
    }
}

fn changes(document: &Value) -> Vec<String> {
    let changes = document["results"]["changes"].as_array().unwrap().iter();
    changes
        .map(|change| change["text"].as_str().unwrap().to_owned())
        .collect()
}

/// Runs `lag` on servers.
fn measure_lag(nodes: &[Node]) {
    let tool = TestEnvironment::new();
    let urls: Vec<String> = nodes.iter().map(|node| url(node, ADMIN)).collect();
    let servers = ["lag", "--primary", &urls[0], "--replica", &urls[1]];
    let rounds = ["--rounds", "30", "--floor-rounds", "10", "--method", "poll"];
    let mut command = tool.command(&[&servers[..], &rounds].concat());
    command.env("REPLIMETER_PASSWORD", password(&nodes[0]));
    let ended = command.output().unwrap();
    assert!(
        ended.status.success(),
        "{}",
        String::from_utf8_lossy(&ended.stderr)
    );
}

fn probe_keeps_an_idle_link_in_step_during_lag() {
    for shape in ["mariadb/async:1", "mysql/async:1"] {
        let sandbox = shared(shape, &[]);
        let nodes = sandbox.nodes();
        let watch = Watch::start(nodes, ADMIN, PROBE);
        let probed = await_probe(&nodes[1]);
        watch.await_sample("the link is proven", |sample| {
            sample["server"] == "replica1"
                && sample["state"] == "in-step"
                && sample["proof_age_us"].as_f64().is_some_and(|age| age < 1e6)
        });
        measure_lag(nodes);
        assert_eq!(await_probe(&nodes[1]), probed, "lag has left it");
        assert!(has_schema(&nodes[0]));
        let document = watch.end();
        await_no_schema(nodes);
        assert!(
            changes(&document).contains(&"the probe writes".to_owned()),
            "{document:#}"
        );
    }
}

fn killed_probe_is_removed_by_the_next_run_or_watch() {
    let sandbox = shared("mariadb/async:1", &[]);
    let nodes = sandbox.nodes();
    let kill = || {
        let mut watch = Watch::start(nodes, ADMIN, PROBE);
        let left = await_probe(&nodes[1]);
        watch.child.kill().unwrap();
        let _ = watch.child.wait();
        wait_until("the server has seen its end", LIMIT, || {
            value(&nodes[0], "SELECT IS_USED_LOCK('replimeter.probe')")
                .is_none_or(|id| id.is_empty())
        });
        left
    };
    let left = kill();
    assert_eq!(table(&nodes[0]), Some(left.clone()));
    let watch = Watch::start(nodes, ADMIN, PROBE);
    wait_until("it is removed", LIMIT, || {
        !tables(&nodes[1]).contains(&left)
    });
    assert_ne!(await_probe(&nodes[1]), left);
    let _ = watch.end();
    await_no_schema(nodes);
    kill();
    measure_lag(nodes);
    await_no_schema(nodes);
}

fn probe_waits_while_the_primary_is_read_only() {
    let sandbox = shared("mysql/async:1", &[]);
    let nodes = sandbox.nodes();
    sql(&nodes[0], "SET GLOBAL read_only = ON");
    let watch = Watch::start(nodes, ADMIN, PROBE);
    watch.await_sample("it has waited", |sample| {
        sample["at_us"].as_f64() > Some(2e6)
    });
    assert!(!has_schema(&nodes[0]), "nothing was written");
    sql(&nodes[0], "SET GLOBAL read_only = OFF");
    await_probe(&nodes[1]);
    // Another watch waits for the first one, and its replica is proven all the same.
    let other = Watch::start(nodes, ADMIN, PROBE);
    other.await_state("replica1", "in-step");
    let waits = changes(&other.end());
    let document = watch.end();
    await_no_schema(nodes);
    let texts = changes(&document);
    let read_only = "the probe does not write: the server is read-only";
    assert_eq!(
        texts.iter().filter(|text| *text == read_only).count(),
        1,
        "{texts:?}"
    );
    let waits_for = "the probe does not write: another watch probes this server";
    assert!(
        waits.iter().any(|text| text.starts_with(waits_for)),
        "{waits:?}"
    );
}

fn probe_follows_a_failover() {
    let sandbox = start("mariadb/async:2", &[]);
    let nodes = sandbox.nodes();
    let watch = Watch::start(nodes, ADMIN, PROBE);
    let first = await_probe(&nodes[2]);
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
    assert_eq!(await_probe(&nodes[2]), first, "it came by replication");
    watch.await_state("replica2", "in-step");
    let _ = watch.end();
    for node in &nodes[1..] {
        wait_until("the table is removed", LIMIT, || tables(node).is_empty());
    }
}

fn heartbeat_table_gives_the_lag_without_gtids() {
    let sandbox = start("mysql/async:1", &[]);
    let nodes = sandbox.nodes();
    let [primary, replica] = nodes else {
        panic!("two servers")
    };
    sql(primary, "CREATE DATABASE percona");
    sql(
        primary,
        "CREATE TABLE percona.heartbeat (id INT PRIMARY KEY, ts DATETIME(6))",
    );
    sql(primary, "INSERT INTO percona.heartbeat VALUES (1, NOW(6))");
    let rows = "SELECT COUNT(*) FROM percona.heartbeat";
    let there = "SELECT 1 FROM information_schema.tables WHERE table_schema = 'percona'";
    wait_until("the table has arrived", LIMIT, || {
        value(replica, there).is_some() && value(replica, rows).as_deref() == Some("1")
    });
    sql(replica, "STOP REPLICA");
    sql(
        replica,
        "CHANGE REPLICATION SOURCE TO SOURCE_AUTO_POSITION = 0",
    );
    for mode in ["ON_PERMISSIVE", "OFF_PERMISSIVE", "OFF"] {
        for node in nodes {
            sql(node, &format!("SET GLOBAL gtid_mode = {mode}"));
        }
    }
    sql(replica, "START REPLICA");
    let watch = Watch::start(
        nodes,
        ADMIN,
        &["--heartbeat", "percona.heartbeat", "--max-lag", "1s"],
    );
    let write = || sql(primary, "UPDATE percona.heartbeat SET ts = NOW(6)");
    write();
    watch.await_sample("the lag is known", |sample| {
        sample["server"] == "replica1"
            && FINE.contains(&sample["state"].as_str().unwrap())
            && sample["lag_low_us"] == 0.0
            && sample["lag_high_us"].is_number()
    });
    // A writer that pauses is no lag: it has paused for longer than the limit.
    let after = watch.await_sample("a sample", |sample| sample["server"] == "replica1");
    let later = after["at_us"].as_f64().unwrap() + 1.5e6;
    let paused = watch.await_sample("a later one", |sample| {
        sample["server"] == "replica1" && sample["at_us"].as_f64() > Some(later)
    });
    assert_ne!(paused["state"], "lagging", "{paused:#}");
    // Another session's lock stops the applier at the row.
    let mut holder = session(replica);
    holder.run("test", "START TRANSACTION").unwrap();
    holder
        .value("test", "SELECT ts FROM percona.heartbeat FOR UPDATE")
        .unwrap();
    write();
    let lags = |sample: &Value| {
        sample["server"] == "replica1"
            && ["lagging", "blocked"].contains(&sample["state"].as_str().unwrap())
    };
    watch.await_sample("it lags", lags);
    holder.run("test", "ROLLBACK").unwrap();
    watch.await_sample("it has caught up", |sample| {
        sample["server"] == "replica1" && FINE.contains(&sample["state"].as_str().unwrap())
    });
    sql(primary, "DROP TABLE percona.heartbeat");
    watch.await_state("replica1", "unknown");
    let texts = changes(&watch.end());
    let missing = "there is no table `percona`.`heartbeat`";
    assert!(texts.iter().any(|text| text == missing), "{texts:?}");
}

/// Ends the connections of a user.
fn end_connections(node: &Node, user: &str) {
    let ids = format!(
        "SELECT GROUP_CONCAT(id) FROM information_schema.processlist WHERE user = '{user}'"
    );
    let ids = value(node, &ids).unwrap_or_default();
    for id in ids.split(',').filter(|id| !id.is_empty()) {
        // It may have ended by now.
        let _ = session(node).run("test", &format!("KILL {id}"));
    }
}

fn lost_connections_and_privileges_come_back() {
    let sandbox = shared("mariadb/async:1", &[]);
    let nodes = sandbox.nodes();
    let [primary, replica] = nodes else {
        panic!("two servers")
    };
    let user = format!("{READER}@'127.0.0.1'");
    let grant = format!("GRANT REPLICA MONITOR, BINLOG MONITOR ON *.* TO {user}");
    sql(
        primary,
        &format!("CREATE USER {user} IDENTIFIED BY '{READER}'"),
    );
    sql(primary, &grant);
    let is_there = format!("SELECT 1 FROM mysql.user WHERE user = '{READER}'");
    wait_until("the user has arrived", LIMIT, || {
        value(replica, &is_there).is_some()
    });
    let watch = Watch::start(nodes, READER, &[]);
    let is_fine = |sample: &Value| {
        sample["server"] == "replica1"
            && sample["behind"] == 0
            && FINE.contains(&sample["state"].as_str().unwrap())
    };
    watch.await_sample("it is in step", is_fine);

    // The connection is lost, and no other one is accepted.
    let mut admin = session(replica);
    let mut ask = |sql: &str| admin.value("test", sql).unwrap();
    let most = ask("SELECT @@GLOBAL.max_connections").unwrap();
    let own = format!("SELECT MIN(id) FROM information_schema.processlist WHERE user = '{READER}'");
    let own = ask(&own).unwrap();
    let held: Vec<_> = (0..12).map(|_| session(replica)).collect();
    ask("SET GLOBAL max_connections = 10");
    ask(&format!("KILL {own}"));
    watch.await_state("replica1", "unreachable");
    drop(held);
    watch.await_sample("it is back", is_fine);
    ask(&format!("SET GLOBAL max_connections = {most}"));

    // A privilege is revoked, and granted again.
    sql(
        primary,
        &format!("REVOKE REPLICA MONITOR ON *.* FROM {user}"),
    );
    wait_until("it has arrived", LIMIT, || {
        let grants = value(replica, &format!("SHOW GRANTS FOR {user}"));
        !grants.unwrap_or_default().contains("MONITOR, ")
    });
    end_connections(replica, READER);
    watch.await_state("replica1", "unknown");
    sql(primary, &grant);
    watch.await_sample("it is back", is_fine);
    let texts = changes(&watch.end());
    for reason in ["Too many connections", "Access denied; you need"] {
        assert!(texts.iter().any(|text| text.contains(reason)), "{texts:#?}");
    }
    sql(primary, &format!("DROP USER {user}"));
}

fn reset_positions_begin_again() {
    let sandbox = start("mariadb/async:1", &[]);
    let nodes = sandbox.nodes();
    let [primary, replica] = nodes else {
        panic!("two servers")
    };
    for id in 0..5 {
        sql(primary, &format!("CREATE DATABASE shop{id}"));
    }
    let watch = Watch::start(nodes, ADMIN, &[]);
    watch.await_sample("it has everything", |sample| {
        sample["server"] == "replica1" && sample["behind"] == 0
    });
    sql(replica, "STOP SLAVE");
    watch.await_state("replica1", "stopped");
    sql(primary, "RESET MASTER");
    sql(replica, "RESET MASTER");
    sql(replica, "SET GLOBAL gtid_slave_pos = ''");
    sql(replica, "START SLAVE");
    sql(primary, "CREATE DATABASE shop");
    watch.await_sample("it is in step", |sample| {
        sample["server"] == "replica1"
            && sample["behind"] == 0
            && FINE.contains(&sample["state"].as_str().unwrap())
    });
    let texts = changes(&watch.end());
    assert!(
        texts
            .iter()
            .any(|text| text.contains("lacks transactions that the primary had")),
        "{texts:?}"
    );
}
