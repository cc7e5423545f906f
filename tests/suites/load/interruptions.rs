//! Backlogs that are interrupted, or whose applier fails.

use std::fs;

use replimeter_suites::{LIMIT, TestEnvironment, password, session, sql, value, wait, wait_until};
use rustix::process::{Pid, Signal, kill_process};

use super::{ADMIN, RunningCommand, Servers, number, pid, under_way};

const LONG_BACKLOG: [&str; 12] = [
    "backlog",
    "--build-up",
    "600s",
    "--timeout",
    "60s",
    "--workers",
    "5",
    "--load",
    "insert:2@primary",
    "--rate",
    "50",
    "--json",
];

/// Removes what a killed run left: the user the load's table, the next run the others.
fn remove_leftovers(servers: &Servers) {
    sql(
        servers.primary(),
        "DROP TABLE IF EXISTS replimeter.load_insert",
    );
    wait_until("the killed run has lost its lock", LIMIT, || {
        value(servers.primary(), "SELECT IS_USED_LOCK('replimeter.run')").is_none()
    });
    let args = ["lag", "--rounds", "5", "--timeout", "60s"];
    let _ = servers.run(&TestEnvironment::new(), &args).with_code(0);
}

/// However the run ends, the replica applies with its previous settings.
pub(super) fn interrupted_backlog_starts_the_applier(servers: &Servers) {
    let tool = TestEnvironment::new();
    let child = servers.spawn(&tool, &LONG_BACKLOG);
    servers.await_stopped_applier();
    under_way(servers);
    servers.await_load(servers.loaded() + 50);
    kill_process(pid(&child), Signal::INT).unwrap();
    let document = wait(child, LIMIT).with_code(130).json();
    let row = &document["results"]["rows"][0];
    assert_eq!(
        (
            row["complete"].as_bool(),
            row["caught_up_after_us"].as_f64()
        ),
        (Some(false), None),
        "{row:#}"
    );
    assert!(
        number(&row["backlog_transactions"]) > 0.0,
        "what was seen is kept: {row:#}"
    );
}

/// Ctrl-Z leaves no applier stopped; the run ends when it is continued.
pub(super) fn suspended_backlog_starts_the_applier(servers: &Servers) {
    let tool = TestEnvironment::new();
    let child = servers.spawn(&tool, &LONG_BACKLOG);
    servers.await_stopped_applier();
    under_way(servers);
    kill_process(pid(&child), Signal::TSTP).unwrap();
    let status = format!("/proc/{}/status", child.id());
    wait_until("the run is suspended", LIMIT, || {
        fs::read_to_string(&status)
            .unwrap()
            .contains("State:\tT (stopped)")
    });
    servers.assert_as_it_was("3");
    kill_process(pid(&child), Signal::CONT).unwrap();
    let ended = wait(child, LIMIT)
        .with_code(130)
        .stderr_contains("starting the applier before this process is suspended");
    let row = &ended.json()["results"]["rows"][0];
    assert_eq!(row["complete"].as_bool(), Some(false), "{row:#}");
}

pub(super) fn killed_backlog_starts_the_applier(servers: &Servers) {
    let tool = TestEnvironment::new();
    let mut child = servers.spawn(&tool, &LONG_BACKLOG);
    servers.await_stopped_applier();
    under_way(servers);
    kill_process(pid(&child), Signal::KILL).unwrap();
    let _ = child.wait().unwrap();
    wait_until("the applier runs again", LIMIT, || {
        servers.workers() == "3" && servers.applying()
    });
    remove_leftovers(servers);
}

pub(super) fn applier_that_was_left_stopped_is_named(servers: &Servers) {
    sql(servers.replica(), "STOP SLAVE SQL_THREAD");
    let hint = "start its applier, which a killed `replimeter backlog` can have left stopped: START SLAVE SQL_THREAD;";
    let run = servers.run(&TestEnvironment::new(), &["backlog", "--build-up", "1s"]);
    let examined = servers.run(&TestEnvironment::new(), &["doctor", "--json"]);
    sql(servers.replica(), "START SLAVE SQL_THREAD");
    let _ = run.with_code(3).stderr_contains(hint);
    let found = examined.json()["findings"].to_string();
    assert!(found.contains(hint), "{found}");
}

pub(super) fn panic_during_backlog_starts_the_applier(servers: &Servers) {
    let tool = TestEnvironment::new();
    let child = servers.spawn_as(
        &tool,
        ADMIN,
        password(servers.primary()),
        Some("panic-while-measuring"),
        &LONG_BACKLOG,
    );
    let _ = wait(child, LIMIT).with_code(101);
}

pub(super) fn second_signal_ends_run_with_frozen_primary(servers: &Servers) {
    let tool = TestEnvironment::new();
    let run = RunningCommand::new(servers.spawn(&tool, &LONG_BACKLOG));
    servers.await_stopped_applier();
    let primary = Pid::from_raw(i32::try_from(servers.sandbox.pids()[0]).unwrap()).unwrap();
    let interrupt = || kill_process(pid(&run.child), Signal::INT).unwrap();
    kill_process(primary, Signal::STOP).unwrap();
    interrupt();
    run.until_it_says("repeat to stop immediately");
    // Within a second it belongs to the first signal.
    wait_until("another signal ends the run", LIMIT, || {
        interrupt();
        run.has_ended()
    });
    let ended = run.wait();
    let as_it_was = (servers.workers(), servers.applying());
    kill_process(primary, Signal::CONT).unwrap();
    let _ = ended
        .with_code(130)
        .stderr_contains("stopped without cleaning up");
    assert_eq!(as_it_was, ("3".to_owned(), true));
    wait_until("the primary answers", LIMIT, || {
        session(servers.primary()).value("test", "SELECT 1").is_ok()
    });
    remove_leftovers(servers);
}

/// A replica that cannot apply a transaction fails the run with the server's error, without a long wait.
pub(super) fn failed_applier_ends_the_backlog(servers: &Servers) {
    let tool = TestEnvironment::new();
    let args = "backlog --build-up 5s --load insert:2@primary --rate 50 --timeout 60s";
    let child = servers.spawn(&tool, &args.split(' ').collect::<Vec<_>>());
    // The table arrives before the applier is stopped; a row of another client causes a duplicate key.
    let mut replica = session(servers.replica());
    wait_until("the load's table has arrived", LIMIT, || {
        let rows = "SELECT COUNT(*) FROM replimeter.load_insert";
        replica.value("test", rows).is_ok()
    });
    for statement in [
        "SET sql_log_bin=0",
        "INSERT INTO replimeter.load_insert (id, data) SELECT 10, 'x'",
    ] {
        replica.run("test", statement).unwrap();
    }
    let ended = wait(child, LIMIT).with_code(3);
    let _ = ended
        .stderr_contains("replica1 (")
        .stderr_contains("cannot catch up")
        .stderr_contains("(error 1062)");
    replica
        .run(
            "test",
            "DELETE FROM replimeter.load_insert WHERE data = 'x'",
        )
        .unwrap();
    servers.stop_and_start("DO 0");
    servers.assert_clean();
}
