//! MySQL: the same commands in the other dialect. `shapes` has sandboxes of MySQL.

use replimeter_suites::{
    LIMIT, TestEnvironment, clean, harness::Test, of_run, password, session, shared, sql, start,
    test, url, value, wait, wait_until,
};

pub(crate) const TESTS: &[Test] = &[test!(lag_works_on_user_servers_of_mysql).starts(1)];

fn lag_works_on_user_servers_of_mysql() {
    let sandbox = shared("mysql/async:1", &[]);
    let (primary, replica) = (&sandbox.nodes()[0], &sandbox.nodes()[1]);
    let run = |user: &str, secret: &str, more: &[&str]| {
        let tool = TestEnvironment::new();
        let (primary, replica) = (url(primary, user), url(replica, user));
        let mut args = vec![
            "lag",
            "--primary",
            &primary,
            "--replica",
            &replica,
            "--rounds",
            "30",
            "--floor-rounds",
            "10",
            "--timeout",
            "60s",
        ];
        args.extend(more);
        wait(
            tool.command(&args)
                .env("REPLIMETER_PASSWORD", secret)
                .spawn()
                .unwrap(),
            LIMIT,
        )
    };
    let admin = password(primary);
    let caught_up = || {
        let executed = value(primary, "SELECT @@global.gtid_executed").unwrap();
        assert_eq!(
            value(
                replica,
                &format!("SELECT WAIT_FOR_EXECUTED_GTID_SET('{executed}', 240)")
            )
            .as_deref(),
            Some("0")
        );
    };
    // By default MySQL offers TLS, and accounts authenticate with caching_sha2_password.
    let document = run("replimeter", admin, &["--json"]).with_code(0).json();
    assert_eq!(document["target"]["shape"], "endpoints:1");
    wait_until("the schema is gone everywhere", LIMIT, || {
        clean(primary) && clean(replica)
    });

    // caching_sha2_password over plain text, with nothing cached yet.
    sql(
        primary,
        "CREATE USER probe@'127.0.0.1' IDENTIFIED WITH caching_sha2_password BY 'pw'",
    );
    caught_up();
    let plain = |node| format!("{}?ssl-mode=disabled", url(node, "probe"));
    let tool = TestEnvironment::new();
    let (plain_primary, plain_replica) = (plain(primary), plain(replica));
    let args = [
        "lag",
        "--primary",
        &plain_primary,
        "--replica",
        &plain_replica,
    ];
    let child = tool.command(&args).env("REPLIMETER_PASSWORD", "pw").spawn();
    let ended = wait(child.unwrap(), LIMIT).with_code(3);
    let _ = ended.stderr_contains("CREATE, DROP, INSERT, DELETE, SELECT");
    // Privileges granted through a role count.
    sql(primary, "CREATE ROLE prober");
    sql(
        primary,
        "GRANT CREATE, DROP, INSERT, DELETE, SELECT ON replimeter.* TO prober",
    );
    sql(primary, "GRANT prober TO probe@'127.0.0.1'");
    sql(primary, "SET DEFAULT ROLE prober TO probe@'127.0.0.1'");
    caught_up();
    let _ = run("probe", "pw", &[])
        .with_code(3)
        .stderr_contains("replica1 (")
        .stderr_contains("REPLICATION CLIENT");
    sql(
        primary,
        "GRANT REPLICATION CLIENT ON *.* TO probe@'127.0.0.1'",
    );
    caught_up();
    // Routines and events are hidden from this user.
    let document = run("probe", "pw", &["--json"]).with_code(0).json();
    let warnings = document["warnings"].to_string();
    assert!(
        warnings
            .contains("the user may not see everything in it (no EXECUTE, EVENT on the schema)"),
        "{warnings}"
    );
    assert!(!clean(primary));
    sql(primary, "DROP DATABASE replimeter");
    sql(primary, "GRANT EXECUTE, EVENT ON replimeter.* TO prober");
    sql(
        primary,
        "GRANT REPLICATION SLAVE ON *.* TO probe@'127.0.0.1'",
    );
    caught_up();
    let _ = run("probe", "pw", &[]).with_code(0);
    wait_until("the schema is gone everywhere", LIMIT, || {
        clean(primary) && clean(replica)
    });
    sql(primary, "CREATE DATABASE replimeter");
    sql(primary, "CREATE PROCEDURE replimeter.mine() SELECT 42");
    sql(
        primary,
        "CREATE EVENT replimeter.mine ON SCHEDULE EVERY 1 YEAR DO SELECT 42",
    );
    let mut prober = session(&replimeter_engine::Node {
        user: "probe".to_owned(),
        password: Some(replimeter_model::target::Secret::new("pw")),
        ..primary.clone()
    });
    for (list, of) in [("routines", "routine"), ("events", "event")] {
        let count = format!(
            "SELECT COUNT(*) FROM information_schema.{list} WHERE {of}_schema = 'replimeter'"
        );
        assert_eq!(
            prober.value("test", &count).unwrap().as_deref(),
            Some("1"),
            "the privileges show {list}"
        );
    }
    sql(primary, "DROP DATABASE replimeter");

    let _ = run("replimeter", "wrong", &[])
        .with_code(3)
        .stderr_contains("Access denied");
    sql(primary, "SET GLOBAL super_read_only = 1");
    let _ = run("replimeter", admin, &[])
        .with_code(3)
        .stderr_contains("super_read_only=ON");
    sql(primary, "SET GLOBAL super_read_only = 0");
    sql(primary, "SET GLOBAL read_only = 0");

    for statement in [
        "STOP REPLICA",
        "CHANGE REPLICATION FILTER REPLICATE_IGNORE_DB=(replimeter)",
        "START REPLICA",
    ] {
        sql(replica, statement);
    }
    let _ = run("replimeter", admin, &[])
        .with_code(3)
        .stderr_contains("a filter excludes the schema")
        .stderr_contains("Ignore_DB=replimeter");
    sql(replica, "STOP REPLICA");
    let _ = run("replimeter", admin, &[])
        .with_code(3)
        .stderr_contains("replica1 (");
    sql(replica, "CHANGE REPLICATION FILTER REPLICATE_IGNORE_DB=()");
    let _ = run("replimeter", admin, &[])
        .with_code(3)
        .stderr_contains("does not replicate")
        .stderr_contains("SQL thread No");
    sql(replica, "START REPLICA");
    wait_until("the replica is connected", LIMIT, || {
        let state = "SELECT service_state FROM performance_schema.replication_connection_status";
        session(replica).value("test", state).unwrap().as_deref() == Some("ON")
    });

    // A leftover that a user removed from the replica does not break replication.
    let tool = TestEnvironment::new();
    let (primary_url, replica_url) = (url(primary, "replimeter"), url(replica, "replimeter"));
    let args = [
        "lag",
        "--primary",
        &primary_url,
        "--replica",
        &replica_url,
        "--duration",
        "60s",
        "--timeout",
        "60s",
    ];
    let mut child = tool
        .command(&args)
        .env("REPLIMETER_PASSWORD", admin)
        .spawn()
        .unwrap();
    wait_until("rows arrive on the replica", LIMIT, || {
        let rows = of_run(replica, "SELECT COUNT(*) FROM replimeter.probe");
        let rows = session(replica).value("test", &rows);
        rows.ok().flatten().is_some_and(|count| count.len() > 2)
    });
    child.kill().unwrap();
    child.wait().unwrap();
    // The server may still commit a row in progress.
    wait_until("the server closes the tool's connections", LIMIT, || {
        let others = "SELECT COUNT(*) FROM performance_schema.processlist WHERE user = 'replimeter' AND \
                      command NOT LIKE 'Binlog Dump%' AND id <> CONNECTION_ID()";
        value(primary, others).as_deref() == Some("0")
    });
    caught_up();
    let mut on_replica = session(replica);
    on_replica.run("test", "SET sql_log_bin=0").unwrap();
    on_replica
        .run("test", &of_run(replica, "DROP TABLE replimeter.probe"))
        .unwrap();
    let document = run("replimeter", admin, &["--json"]).with_code(0).json();
    assert!(
        document["warnings"]
            .to_string()
            .contains("leftover-removed"),
        "{document:#}"
    );
    wait_until("the schema is gone everywhere", LIMIT, || {
        clean(primary) && clean(replica)
    });

    sql(primary, "DROP USER probe@'127.0.0.1'");
    sql(primary, "DROP ROLE prober");
    caught_up();

    // A replica of another primary is recognized by its source's UUID.
    let other = start("mysql/none", &[]);
    let tool = TestEnvironment::new();
    let (other_primary, replica_url) = (
        url(&other.nodes()[0], "replimeter"),
        url(replica, "replimeter"),
    );
    let mut command = tool.command(&[
        "lag",
        "--primary",
        &other_primary,
        "--replica",
        &replica_url,
    ]);
    command
        .env("REPLIMETER_PRIMARY_PASSWORD", password(&other.nodes()[0]))
        .env("REPLIMETER_REPLICA1_PASSWORD", admin);
    let _ = wait(command.spawn().unwrap(), LIMIT)
        .with_code(3)
        .stderr_contains("is not a replica of the given primary");
    assert!(clean(&other.nodes()[0]));
}
