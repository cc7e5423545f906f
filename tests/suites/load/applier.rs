//! Replicas that fail while their applier is stopped: whether and how it is restarted.

use std::{thread, time::Duration};

use replimeter_engine::session::StatusRow;
use replimeter_suites::{LIMIT, TestEnvironment, session, sql, value, wait_until};
use rustix::process::Signal;

use super::{ADMIN, RunningCommand, Servers};

pub(super) fn frozen_replica_applies_again(servers: &Servers) {
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

/// The replica answers again after the run has stopped waiting and before the process has ended.
pub(super) fn exit_starts_the_applier_the_run_could_not(servers: &Servers) {
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
    // The contents of the replica's schema could not be checked.
    sql(servers.primary(), "DROP DATABASE IF EXISTS replimeter");
}

pub(super) fn killed_replica_prints_restore_statements() {
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

pub(super) fn killed_connection_does_not_end_a_backlog(servers: &Servers) {
    let tool = TestEnvironment::new();
    let run = servers.holding(&tool, "3s");
    // The connections that idle; the one that reads positions is used many times per second.
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

pub(super) fn panic_prints_how_to_start_the_applier(servers: &Servers) {
    let (stop, monitor) = servers.grants();
    for grant in [
        "CREATE USER prober@'127.0.0.1' IDENTIFIED BY 'pw'".to_owned(),
        "GRANT CREATE, DROP, INSERT, DELETE, SELECT, EXECUTE, EVENT ON replimeter.* TO prober@'127.0.0.1'"
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
    wait_until("the applier is stopped", LIMIT, || {
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
