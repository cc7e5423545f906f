//! Replicas that fail while their applier is stopped: whether and how it is restarted.

use std::fs;

use replimeter_engine::{Session, session::StatusRow};
use replimeter_suites::{LIMIT, TestEnvironment, session, sql, wait_until};
use rustix::process::Signal;

use super::{ADMIN, RunningCommand, Servers};

pub(super) fn frozen_replica_applies_again(servers: &Servers) {
    let tool = TestEnvironment::new();
    let run = servers.holding(&tool, "600s");
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
    let summary = fs::read_to_string(tool.only_run().join("summary.json")).unwrap();
    assert!(
        summary.contains("its applier could not be restored at first"),
        "{summary}"
    );
}

/// The replica answers again after the run has stopped waiting and before the process has ended.
pub(super) fn exit_starts_the_applier_the_run_could_not(servers: &Servers) {
    let tool = TestEnvironment::new();
    let run = servers.holding(&tool, "600s");
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
    let run = servers.holding(&tool, "600s");
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

/// Returns the connections of the user, except the reader's own, that have been idle for some seconds.
fn idle(replica: &mut Session, seconds: u64) -> Vec<String> {
    let own = replica.connection_id().to_string();
    let idle = |row: &StatusRow| {
        row["User"] == ADMIN
            && row["Command"] == "Sleep"
            && row["Time"].parse::<u64>().unwrap() >= seconds
            && row["Id"] != own
    };
    let connections = replica.rows("test", "SHOW PROCESSLIST").unwrap();
    let idle = connections.into_iter().filter(idle);
    idle.map(|row| row["Id"].clone()).collect()
}

pub(super) fn killed_connection_does_not_end_a_backlog(servers: &Servers) {
    let tool = TestEnvironment::new();
    let run = servers.holding(&tool, "6s");
    let mut replica = session(servers.replica());
    // The connection that reads positions is used many times per second, the others idle from now on.
    wait_until("connections idle", LIMIT, || {
        !idle(&mut replica, 2).is_empty()
    });
    let idle = idle(&mut replica, 1);
    assert!(!servers.applying());
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
    servers.await_grants();
    // The panic follows the stop of the applier after a second, and the privilege must be gone by then.
    let printed = (0..10).any(|_| panic_prints_statements(servers, stop));
    assert!(printed, "no panic came after the privilege was revoked");
    sql(servers.primary(), "DROP USER prober@'127.0.0.1'");
    // The user could not see all replicas.
    sql(servers.primary(), "DROP DATABASE IF EXISTS replimeter");
}

/// Revokes the privilege to start the applier during a run that panics; returns whether the run printed how to start it. It has
/// started it itself if it panicked first.
fn panic_prints_statements(servers: &Servers, stop: &str) -> bool {
    let on_replica = |statement: &str| {
        let mut replica = session(servers.replica());
        replica.run("test", "SET sql_log_bin = 0").unwrap();
        replica.run("test", statement).unwrap();
    };
    let args = [
        "backlog",
        "--build-up",
        "600s",
        "--workers",
        "5",
        "--load",
        "insert:2@primary",
        "--rate",
        "50",
        "--timeout",
        "60s",
    ];
    let tool = TestEnvironment::new();
    let run = RunningCommand::new(servers.spawn_as(
        &tool,
        "prober",
        "pw",
        Some("panic-while-measuring"),
        &args,
    ));
    wait_until("the applier is stopped, or the end", LIMIT, || {
        servers.is_held() || run.has_ended()
    });
    on_replica(&format!("REVOKE {stop} ON *.* FROM prober@'127.0.0.1'"));
    let printed = run.says_before_its_end("retrying to start the applier of replica1, ");
    on_replica(&format!("GRANT {stop} ON *.* TO prober@'127.0.0.1'"));
    let ended = run
        .wait()
        .with_code(101)
        .stderr_contains("a fault was requested");
    if printed {
        let _ = ended
            .stderr_contains(&servers.statements())
            .stderr_contains("the applier of replica1 was restored");
    }
    printed
}
