//! Replicas that fail during a run.

use replimeter_suites::{
    CommandOutput, LIMIT, TestEnvironment, of_run, password, session, sql, start, url, wait,
};
use rustix::process::{Pid, Signal, kill_process};

use super::{ADMIN, Cluster, await_rows, pid, tables, under_way};

pub(super) fn frozen_replica_ends_the_run(cluster: &Cluster) {
    let replica = Pid::from_raw(i32::try_from(cluster.sandbox.pids()[1]).unwrap()).unwrap();
    let tool = TestEnvironment::new();
    let child = under_way(cluster, &tool, &["--timeout", "5s"]);
    kill_process(replica, Signal::STOP).unwrap();
    let ended = wait(child, LIMIT);
    kill_process(replica, Signal::CONT).unwrap();
    let ended = ended.with_code(3).stderr_contains("replica1 (");
    // The contents of its schema could not be checked.
    assert!(
        ended
            .words()
            .contains("the schema `replimeter` was not removed"),
        "{ended:#?}"
    );
    cluster.settle();
    // Ctrl-C also ends a run whose replica stays frozen.
    let tool = TestEnvironment::new();
    let child = under_way(cluster, &tool, &["--timeout", "600s"]);
    kill_process(replica, Signal::STOP).unwrap();
    kill_process(pid(&child), Signal::INT).unwrap();
    let ended = wait(child, LIMIT);
    kill_process(replica, Signal::CONT).unwrap();
    let _ = ended.with_code(130);
    sql(cluster.primary(), "DROP DATABASE IF EXISTS replimeter");
}

pub(super) fn replica_that_breaks_ends_the_run(cluster: &Cluster) {
    let tool = TestEnvironment::new();
    // Only the error of the applier can end the run.
    let child = under_way(cluster, &tool, &["--timeout", "600s"]);
    // A row of another client makes the applier fail on a duplicate key.
    let row = "INSERT INTO replimeter.probe (id, sequence, sent_us, payload) SELECT MAX(id) + 500, 1, 1, 'x' FROM replimeter.probe";
    let row = of_run(cluster.replica(), row);
    let mut replica = session(cluster.replica());
    for statement in ["SET sql_log_bin=0", &row] {
        replica.run("test", statement).unwrap();
    }
    let ended = wait(child, LIMIT).with_code(3);
    let ended = ended
        .stderr_contains("replica1 (")
        .stderr_contains("(error 1062)")
        .stderr_contains("--show-errors");
    assert!(!ended.stderr.contains("Duplicate entry"), "{ended:#?}");
    // The replica is still broken, and its error has a text that can be asked for.
    let shown = |more: &[&str]| {
        let doctor = cluster.args(ADMIN, &[]);
        let args: Vec<&str> = ["doctor"]
            .into_iter()
            .chain(doctor[1..5].iter().map(String::as_str))
            .chain(more.iter().copied())
            .collect();
        let tool = TestEnvironment::new();
        let mut command = tool.command(&args);
        command.env("REPLIMETER_PASSWORD", cluster.password());
        let ended = CommandOutput::of(command.output().unwrap()).with_code(1);
        assert!(ended.stdout.contains("1062"), "{ended:#?}");
        ended.stdout.contains("Duplicate entry")
    };
    assert_eq!([shown(&[]), shown(&["--show-errors"])], [false, true]);
    let delete = of_run(cluster.replica(), "DELETE FROM replimeter.probe");
    replica.run("test", &delete).unwrap();
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

pub(super) fn killed_replica_ends_the_run() {
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
        "--timeout",
        "600s",
        "--duration",
        "1000s",
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
    let ended = wait(child, LIMIT)
        .with_code(3)
        .stderr_contains("replica1 (");
    assert!(tool.only_run().join("samples.parquet").exists());
    // The table is removed anyway. Whether the replica has other tables in the schema is unknown.
    assert!(
        ended
            .words()
            .contains("the schema `replimeter` was not removed"),
        "{ended:#?}"
    );
    assert_eq!(tables(primary), None);
}
