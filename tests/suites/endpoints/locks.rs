//! Open transactions on the table of a run: definitions wait for them, within bounds, and leave nothing queued.

use std::process::Child;

use replimeter_engine::{Node, Session};
use replimeter_suites::{
    CommandOutput, LIMIT, Shared, TestEnvironment, clean, of_run, password, session, shared, sql,
    url, value, wait, wait_until,
};

use super::ADMIN;

/// A time that no run waits for a row on a busy machine.
const PATIENT: &str = "60s";

/// Starts a run; a table that an earlier one left may take `timeout` to be replaced on the replica.
fn spawn(sandbox: &Shared, tool: &TestEnvironment, timeout: &str, duration: &str) -> Child {
    let [primary, replica] = [0, 1].map(|index| url(&sandbox.nodes()[index], ADMIN));
    let args = [
        "lag",
        "--primary",
        &primary,
        "--replica",
        &replica,
        "--json",
        "--floor-rounds",
        "20",
        "--warm-up",
        "5",
        "--timeout",
        timeout,
        "--duration",
        duration,
    ];
    let mut command = tool.command(&args);
    let secret = password(&sandbox.nodes()[0]);
    command.env("REPLIMETER_PASSWORD", secret).spawn().unwrap()
}

/// Runs to the end. A server itself waits for a lock for a day (MariaDB) or a year.
fn run(sandbox: &Shared, timeout: &str) -> CommandOutput {
    wait(
        spawn(sandbox, &TestEnvironment::new(), timeout, "1s"),
        LIMIT,
    )
}

/// Returns whether a server has rows of a run.
fn has_rows(node: &Node) -> bool {
    let rows = of_run(node, "SELECT COUNT(*) FROM replimeter.probe");
    let count = session(node).value("test", &rows);
    count.is_ok_and(|count| count.is_some_and(|count| count != "0"))
}

/// Opens a transaction that has read the table; returns its session and how a message names it, or nothing without the table.
fn open_transaction(node: &Node) -> Option<(Session, String)> {
    let rows = of_run(node, "SELECT COUNT(*) FROM replimeter.probe");
    let mut session = session(node);
    session.run("test", "BEGIN").unwrap();
    session.run("test", &rows).ok()?;
    let name = format!("connection {} ({ADMIN}@", session.connection_id());
    Some((session, name))
}

/// Runs to the end, and opens a transaction on a server during it. A run that a busy machine let end before is repeated with a
/// longer time.
fn run_with_open_transaction(sandbox: &Shared, node: &Node) -> (CommandOutput, Session, String) {
    for duration in ["1s", "4s", "16s", "64s"] {
        let tool = TestEnvironment::new();
        let mut child = spawn(sandbox, &tool, PATIENT, duration);
        let mut opened = None;
        wait_until("a transaction is open, or the run has ended", LIMIT, || {
            if has_rows(node) {
                opened = open_transaction(node);
            }
            opened.is_some() || child.try_wait().unwrap().is_some()
        });
        let ended = wait(child, LIMIT);
        if let Some((session, name)) = opened {
            return (ended, session, name);
        }
    }
    panic!("no run lasted until a transaction was open");
}

/// Checks that no definition waits on the server.
fn assert_nothing_queued(node: &Node) {
    let queued = "SELECT GROUP_CONCAT(INFO) FROM information_schema.PROCESSLIST WHERE ID <> CONNECTION_ID() \
                  AND (INFO LIKE 'DROP%' OR INFO LIKE 'CREATE%')";
    assert_eq!(value(node, queued), None);
}

/// Kills a run, so that its table stays on both servers.
fn leave_the_table(sandbox: &Shared) {
    let tool = TestEnvironment::new();
    let mut child = spawn(sandbox, &tool, PATIENT, "1000s");
    let [primary, replica] = [&sandbox.nodes()[0], &sandbox.nodes()[1]];
    wait_until("both servers have rows", LIMIT, || {
        has_rows(primary) && has_rows(replica)
    });
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until("the lock is free", LIMIT, || {
        value(primary, "SELECT IS_USED_LOCK('replimeter.run')").is_none()
    });
}

fn warnings(ended: CommandOutput) -> String {
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    ended.json()["warnings"].to_string()
}

/// Returns the findings of `doctor`.
fn findings(sandbox: &Shared) -> String {
    let [primary, replica] = [0, 1].map(|index| url(&sandbox.nodes()[index], ADMIN));
    let args = [
        "doctor",
        "--json",
        "--primary",
        &primary,
        "--replica",
        &replica,
    ];
    let tool = TestEnvironment::new();
    let mut command = tool.command(&args);
    let secret = password(&sandbox.nodes()[0]);
    let child = command.env("REPLIMETER_PASSWORD", secret).spawn().unwrap();
    wait(child, LIMIT).json()["findings"].to_string()
}

/// Checks that `doctor` names the connection that holds a lock of a backup.
fn backups_are_named(sandbox: &Shared) {
    let replica = &sandbox.nodes()[1];
    let version = value(replica, "SELECT VERSION()").unwrap();
    let mysql = !version.contains("MariaDB");
    let hidden = "the locks of backups of other clients cannot be seen";
    assert_eq!(findings(sandbox).contains(hidden), !mysql);
    let lock = if mysql {
        "LOCK INSTANCE FOR BACKUP"
    } else {
        sql(replica, "INSTALL SONAME 'metadata_lock_info'");
        "FLUSH TABLES WITH READ LOCK"
    };
    let mut backup = session(replica);
    backup.run("test", lock).unwrap();
    let name = format!("connection {} ({ADMIN}@", backup.connection_id());
    let found = findings(sandbox);
    assert!(
        found.contains("definitions-may-wait") && found.contains(&name),
        "{name}: {found}"
    );
    drop(backup);
    if !mysql {
        sql(replica, "UNINSTALL SONAME 'metadata_lock_info'");
    }
}

fn on_the_primary(sandbox: &Shared) {
    let [primary, replica] = [&sandbox.nodes()[0], &sandbox.nodes()[1]];
    let mut long = session(replica);
    let snapshot = "START TRANSACTION WITH CONSISTENT SNAPSHOT";
    long.run("test", snapshot).unwrap();
    let long_name = format!("connection {} ({ADMIN}@", long.connection_id());
    let (ended, mut open, name) = run_with_open_transaction(sandbox, primary);
    let found = warnings(ended);
    assert!(
        found.contains(&name) && found.contains("its table `replimeter`.`probe_"),
        "{name}: {found}"
    );
    assert_nothing_queued(primary);
    // Its removal fails at the beginning of the next run too.
    let _ = run(sandbox, PATIENT)
        .with_code(3)
        .stderr_contains("cannot remove an earlier run's table")
        .stderr_contains(&name);
    assert_nothing_queued(primary);
    open.run("test", "COMMIT").unwrap();
    let found = warnings(run(sandbox, PATIENT));
    assert!(found.contains("leftover-removed"), "{found}");
    // It has been open for longer than 10 s: for three waits of 2 s at the end of a run, and as many at the begin of the next.
    assert!(
        found.contains("definitions-may-wait") && found.contains(&long_name),
        "{long_name}: {found}"
    );
    drop(long);
    backups_are_named(sandbox);
    wait_until("the schema is gone everywhere", LIMIT, || {
        clean(primary) && clean(replica)
    });
}

fn on_the_replica(sandbox: &Shared) {
    let [primary, replica] = [&sandbox.nodes()[0], &sandbox.nodes()[1]];
    let (ended, mut open, name) = run_with_open_transaction(sandbox, replica);
    let found = warnings(ended);
    assert!(
        found.contains(&name) && found.contains("its applier waits for a lock"),
        "{name}: {found}"
    );
    assert_nothing_queued(primary);
    open.run("test", "COMMIT").unwrap();
    wait_until("the schema is gone everywhere", LIMIT, || {
        clean(primary) && clean(replica)
    });
    leave_the_table(sandbox);
    let (mut open, name) = open_transaction(replica).unwrap();
    let _ = run(sandbox, "5s")
        .with_code(3)
        .stderr_contains("its applier waits for a lock")
        .stderr_contains(&name);
    assert_nothing_queued(primary);
    open.run("test", "COMMIT").unwrap();
    sql(primary, "DROP DATABASE IF EXISTS replimeter");
    wait_until("the schema is gone everywhere", LIMIT, || {
        clean(primary) && clean(replica)
    });
}

pub(super) fn open_transaction_on_the_primary_bounds_the_run() {
    on_the_primary(&shared("mariadb/async:1", &[]));
}

pub(super) fn open_transaction_on_the_replica_bounds_the_run() {
    on_the_replica(&shared("mariadb/async:1", &[]));
}

pub(super) fn open_transactions_on_mysql_bound_the_run() {
    let sandbox = shared("mysql/async:1", &[]);
    on_the_primary(&sandbox);
    on_the_replica(&sandbox);
}
