//! Servers, tables and settings that prevent or change a run.

use std::{fs, thread, time::Duration};

use replimeter_suites::{
    CommandOutput, LIMIT, TestEnvironment, clean, password, session, sql, start, url, value, wait,
    wait_until,
};

use super::{ADMIN, Cluster, replica_tables::LOAD, tables, under_way};

pub(super) fn same_server_twice_is_refused(cluster: &Cluster) {
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

pub(super) fn replica_of_another_primary_is_refused(cluster: &Cluster) {
    let other = start("mariadb/async:1", &[]);
    // With distinct server ids the status shows the source.
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
    // With equal server ids only the sentinel shows it.
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
    let _ = run(&["--timeout", "5s"])
        .with_code(3)
        .stderr_contains("replica1 (")
        .stderr_contains("did not arrive within 5 s");
    cluster.assert_clean();
}

pub(super) fn read_only_primary_is_refused(cluster: &Cluster) {
    sql(cluster.primary(), "SET GLOBAL read_only = 1");
    let ended = cluster
        .run(&TestEnvironment::new(), &[])
        .with_code(3)
        .stderr_contains("cannot be the primary")
        .stderr_contains("read_only=ON");
    drop(ended);
    sql(cluster.primary(), "SET GLOBAL read_only = 0");
}

pub(super) fn foreign_table_is_refused(cluster: &Cluster) {
    let refused = |server: &str| {
        let (primary, replica) = (url(cluster.primary(), ADMIN), url(cluster.replica(), ADMIN));
        let mut args = Vec::from_iter(LOAD[0].split(' '));
        args.extend(["--primary", &primary, "--replica", &replica]);
        let tool = TestEnvironment::new();
        let mut command = tool.command(&args);
        command.env("REPLIMETER_PASSWORD", cluster.password());
        let _ = wait(command.spawn().unwrap(), LIMIT)
            .with_code(3)
            .stderr_contains(server)
            .stderr_contains("was not created by Replimeter");
    };
    let mine = "SELECT mine FROM replimeter.load_insert";
    for statement in [
        "CREATE DATABASE replimeter",
        "CREATE TABLE replimeter.load_insert (mine INT)",
        "INSERT INTO replimeter.load_insert VALUES (42)",
    ] {
        sql(cluster.primary(), statement);
    }
    cluster.settle();
    refused("error: ");
    assert_eq!(value(cluster.primary(), mine).as_deref(), Some("42"));
    sql(cluster.primary(), "DROP DATABASE replimeter");
    cluster.settle();
    // A table on the replica only would break replication.
    let mut replica = session(cluster.replica());
    for statement in [
        "SET sql_log_bin=0",
        "CREATE DATABASE replimeter",
        "CREATE TABLE replimeter.load_insert (mine INT)",
        "INSERT INTO replimeter.load_insert VALUES (42)",
    ] {
        replica.run("test", statement).unwrap();
    }
    refused("replica1 (");
    assert_eq!(value(cluster.replica(), mine).as_deref(), Some("42"));
    replica.run("test", "DROP DATABASE replimeter").unwrap();
}

pub(super) fn stopped_replica_is_refused(cluster: &Cluster) {
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
    // Behind for longer than the timeout: the message has the threads' states, and is not that it does not replicate.
    let mut lock = session(cluster.replica());
    lock.run("test", "FLUSH TABLES WITH READ LOCK").unwrap();
    let _ = cluster
        .run(&TestEnvironment::new(), &["--timeout", "5s"])
        .with_code(3)
        .stderr_contains("did not arrive within")
        .stderr_contains("SQL thread Yes");
    drop(lock);
    cluster.settle();
    // Stopped during the check: no hang, but an error after the timeout.
    let tool = TestEnvironment::new();
    let child = under_way(cluster, &tool, &["--timeout", "5s"]);
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

pub(super) fn replica_that_was_behind_is_named(cluster: &Cluster) {
    let mut lock = session(cluster.replica());
    lock.run("test", "FLUSH TABLES WITH READ LOCK").unwrap();
    let tool = TestEnvironment::new();
    let child = cluster.spawn(&tool, &["--rounds", "30", "--timeout", "600s", "--json"]);
    wait_until("the primary has the table", LIMIT, || {
        tables(cluster.primary()).is_some()
    });
    // The run asks the replica for the table every millisecond.
    let mut statements = || -> u64 {
        let status = "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'QUESTIONS'";
        let number = lock.value("test", status).unwrap();
        number.unwrap().parse().unwrap()
    };
    let (before, mut own) = (statements(), 0);
    wait_until("the run waits for the replica", LIMIT, || {
        own += 1;
        statements() > before + own + 500
    });
    // Longer than a replica may take (1 s).
    thread::sleep(Duration::from_secs(2));
    lock.run("test", "UNLOCK TABLES").unwrap();
    let document = wait(child, LIMIT).with_code(0).json();
    let warnings = document["warnings"].to_string();
    assert!(
        warnings.contains("replica-behind")
            && warnings.contains("replica1 was behind when the measurement began"),
        "{warnings}"
    );
}

pub(super) fn filter_that_excludes_the_schema_is_refused(cluster: &Cluster) {
    let filter = |value: &str| {
        sql(cluster.replica(), "STOP SLAVE");
        sql(
            cluster.replica(),
            &format!("SET GLOBAL replicate_wild_ignore_table='{value}'"),
        );
        sql(cluster.replica(), "START SLAVE");
    };
    let refused = |ended: CommandOutput, pattern: &str| {
        let _ = ended
            .with_code(3)
            .stderr_contains("a filter excludes the schema")
            .stderr_contains(&format!("Wild_Ignore_Table={pattern}"));
        assert!(clean(cluster.primary()), "nothing was written");
    };
    let run = |line: &str| {
        let tool = TestEnvironment::new();
        let mut command = tool.command(&line.split(' ').collect::<Vec<_>>());
        command
            .args(["--primary", &url(cluster.primary(), ADMIN)])
            .args(["--replica", &url(cluster.replica(), ADMIN)])
            .env("REPLIMETER_PASSWORD", cluster.password());
        wait(command.spawn().unwrap(), LIMIT)
    };
    let (load, front) = (
        "load --workload insert --duration 1s",
        "front --duration 1s --listen 127.0.0.1:0",
    );
    filter("repli%.%");
    refused(cluster.run(&TestEnvironment::new(), &[]), "repli%.%");
    refused(run(load), "repli%.%");
    refused(run(front), "repli%.%");
    // A table of a workload only.
    filter("replimeter.load%");
    refused(run(load), "replimeter.load%");
    filter("");
}

pub(super) fn delayed_replica_is_refused(cluster: &Cluster) {
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
        .run(&TestEnvironment::new(), &["--rounds", "30", "--json"])
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

pub(super) fn too_large_payload_is_clamped(cluster: &Cluster) {
    let before = value(cluster.replica(), "SELECT @@GLOBAL.max_allowed_packet").unwrap();
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
        &format!("SET GLOBAL max_allowed_packet = {before}"),
    );
}
