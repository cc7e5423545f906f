//! Settings of servers that change what sessions and replication do, and must not change what commands do.

mod matrix;

use replimeter_engine::Node;
use replimeter_suites::{
    CommandOutput, LIMIT, Shared, TestEnvironment, clean, harness::Test, password, session, shared,
    sql, test, url, value, wait, wait_until,
};

pub(crate) const TESTS: &[Test] = &[
    test!(rows_follow_their_table_to_every_node_of_a_cluster),
    test!(applier_without_privileges_is_refused),
    test!(matrix::sessions_have_their_own_settings),
    test!(matrix::sessions_have_their_own_settings_on_mysql),
    test!(matrix::commands_run_with_any_defaults_of_mariadb).long(),
    test!(matrix::commands_run_with_any_defaults_of_mysql).long(),
];

/// Runs a command on servers as their administrator; `role` is how a server is named, by its index.
fn run(nodes: &[Node], role: fn(usize) -> &'static str, command: &str) -> CommandOutput {
    let tool = TestEnvironment::new();
    let mut args: Vec<String> = command.split(' ').map(str::to_owned).collect();
    for (index, node) in nodes.iter().enumerate() {
        args.extend([role(index).to_owned(), url(node, "replimeter")]);
    }
    let mut command = tool.command(&args);
    let child = command.env("REPLIMETER_PASSWORD", password(&nodes[0]));
    wait(child.spawn().unwrap(), LIMIT)
}

fn member(_: usize) -> &'static str {
    "--node"
}

fn replica_of_the_first(index: usize) -> &'static str {
    match index {
        0 => "--primary",
        _ => "--replica",
    }
}

fn await_clean(sandbox: &Shared) {
    wait_until("the schema is gone everywhere", LIMIT, || {
        sandbox.nodes().iter().all(clean)
    });
}

/// With RSU, a definition is executed by the writer alone, and the first row after it removes the writer from the cluster.
fn rows_follow_their_table_to_every_node_of_a_cluster() {
    let sandbox = shared("mariadb/galera:3", &[]);
    let nodes = sandbox.nodes();
    sql(&nodes[0], "SET GLOBAL wsrep_OSU_method = RSU");
    for command in [
        "doctor",
        "stale --rows 4 --duration 500ms --read-delays none --timeout 60s",
        "load --workload point-select --data-size 200 --threads 2 --warm-up 100ms --duration 300ms",
    ] {
        let _ = run(nodes, member, command).with_code(0);
        let size = "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'wsrep_cluster_size'";
        assert_eq!(value(&nodes[0], size).as_deref(), Some("3"), "{command}");
        await_clean(&sandbox);
    }
    sql(&nodes[0], "SET GLOBAL wsrep_OSU_method = TOI");
    // A node that applies nothing has no table.
    let mut lock = session(&nodes[2]);
    lock.run("test", "FLUSH TABLES WITH READ LOCK").unwrap();
    let load =
        "load --workload point-select --data-size 200 --threads 2 --duration 300ms --timeout 2s";
    let _ = run(nodes, member, load)
        .with_code(3)
        .stderr_contains("node3 (")
        .stderr_contains("does not have the table that was created on node1");
    drop(lock);
    await_clean(&sandbox);
}

fn applier_without_privileges_is_refused() {
    let sandbox = shared("mysql/async:1", &[]);
    let nodes = sandbox.nodes();
    let replica = &nodes[1];
    let mut administrator = session(replica);
    let mut on_replica = |statements: &[&str]| {
        for statement in statements {
            administrator.run("test", statement).unwrap();
        }
    };
    on_replica(&[
        "SET SESSION sql_log_bin = 0",
        "SET GLOBAL super_read_only = 0",
        "CREATE USER applier@localhost IDENTIFIED BY 'x'",
        "GRANT REPLICATION_APPLIER ON *.* TO applier@localhost",
        "GRANT ALL ON shop.* TO applier@localhost",
        "STOP REPLICA",
        "CHANGE REPLICATION SOURCE TO PRIVILEGE_CHECKS_USER = 'applier'@'localhost'",
        "START REPLICA",
    ]);
    let grant = "GRANT CREATE, DROP, INSERT, UPDATE, DELETE, INDEX ON `replimeter`.* TO 'applier'@'localhost';";
    for command in [
        "lag --rounds 20 --timeout 60s",
        "stale --rows 4 --duration 300ms --timeout 60s",
        "load --workload point-select --data-size 200 --threads 2 --duration 300ms",
        "backlog --build-up 300ms --load insert:1@primary --timeout 60s",
    ] {
        let _ = run(nodes, replica_of_the_first, command)
            .with_code(3)
            .stderr_contains("replica1 (")
            .stderr_contains("who lacks CREATE, DROP, INSERT, UPDATE, DELETE, INDEX")
            .stderr_contains(grant);
        assert!(nodes.iter().all(clean), "nothing is written: {command}");
    }
    let document = run(nodes, replica_of_the_first, "doctor --json")
        .with_code(1)
        .json();
    let found = document["findings"].as_array().unwrap().iter();
    let found: Vec<_> = found
        .filter(|finding| finding["severity"] == "error")
        .collect();
    assert_eq!(found.len(), 1, "{document:#}");
    assert_eq!(found[0]["code"], "missing-privilege");
    assert!(
        found[0]["hint"].as_str().unwrap().contains(grant),
        "{document:#}"
    );
    // With what the hint says, runs begin, and replication does not stop.
    on_replica(&[
        grant.trim_end_matches(';'),
        "GRANT SESSION_VARIABLES_ADMIN ON *.* TO applier@localhost",
    ]);
    for command in [
        "doctor",
        "lag --rounds 20 --timeout 60s",
        "load --workload point-select --data-size 200 --threads 2 --warm-up 100ms --duration 300ms",
    ] {
        let _ = run(nodes, replica_of_the_first, command).with_code(0);
        await_clean(&sandbox);
    }
    on_replica(&[
        "STOP REPLICA",
        "CHANGE REPLICATION SOURCE TO PRIVILEGE_CHECKS_USER = NULL",
        "START REPLICA",
        "DROP USER applier@localhost",
    ]);
}
