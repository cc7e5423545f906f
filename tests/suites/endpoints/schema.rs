//! The schema `replimeter` and its objects that the user created.

use std::process::Child;

use replimeter_engine::Node;
use replimeter_suites::{
    CommandOutput, LIMIT, TestEnvironment, clean, session, sql, url, value, wait,
};

use super::{
    ADMIN, Cluster, during_a_run,
    replica_tables::{LAG, LOAD, Line},
    tables,
};

/// Privileges that suffice for `lag` and `load`, without those to see routines and events.
const BLIND: &str = "CREATE, DROP, INSERT, DELETE, SELECT";
/// All that the documentation lists.
const SIGHTED: &str = "CREATE, DROP, INSERT, DELETE, SELECT, EXECUTE, EVENT";

const UNSEEN: &str = "the user may not see everything in it (no EXECUTE, EVENT on the schema)";

fn spawn(
    cluster: &Cluster,
    tool: &TestEnvironment,
    [user, password]: [&str; 2],
    command: &str,
    duration: &str,
) -> Child {
    let (primary, replica) = (url(cluster.primary(), user), url(cluster.replica(), user));
    let mut args: Vec<&str> = command.split(' ').collect();
    args.extend(["--duration", duration, "--json"]);
    args.extend(["--primary", &primary, "--replica", &replica]);
    let mut command = tool.command(&args);
    command
        .env("REPLIMETER_PASSWORD", password)
        .spawn()
        .unwrap()
}

fn run(cluster: &Cluster, user: [&str; 2], [command, _]: Line) -> CommandOutput {
    let tool = TestEnvironment::new();
    wait(spawn(cluster, &tool, user, command, "1s"), LIMIT)
}

/// Runs a command, and calls `work` in the middle of it.
fn run_and_change(
    cluster: &Cluster,
    user: [&str; 2],
    [command, begun]: Line,
    work: impl FnOnce(),
) -> CommandOutput {
    let tool = TestEnvironment::new();
    let start = |duration: &str| spawn(cluster, &tool, user, command, duration);
    during_a_run(cluster, begun, start, work)
}

/// Returns the warnings of a run that ended well.
fn warnings(ended: CommandOutput) -> String {
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    ended.json()["warnings"].to_string()
}

/// Creates the user `probe`, password `pw`, with these privileges on the schema.
fn create_probe(cluster: &Cluster, privileges: &str) {
    for statement in [
        "CREATE OR REPLACE USER probe@'127.0.0.1' IDENTIFIED BY 'pw'".to_owned(),
        format!("GRANT {privileges} ON replimeter.* TO probe@'127.0.0.1'"),
        "GRANT REPLICA MONITOR, BINLOG MONITOR, REPLICATION MASTER ADMIN ON *.* TO probe@'127.0.0.1'"
            .to_owned(),
    ] {
        sql(cluster.primary(), &statement);
    }
    cluster.settle();
}

/// Runs statements on a server without replicating them.
fn alone(node: &Node, statements: &[&str]) {
    let mut session = session(node);
    session.run("test", "SET sql_log_bin=0").unwrap();
    for statement in statements {
        session.run("test", statement).unwrap();
    }
}

const PROCEDURE: &str = "CREATE PROCEDURE replimeter.mine() SELECT 42";
const EVENT: &str = "CREATE EVENT replimeter.mine ON SCHEDULE EVERY 1 YEAR DO SELECT 42";

/// Returns the number of routines and events in the schema.
fn programs(node: &Node) -> Option<String> {
    value(
        node,
        "SELECT (SELECT COUNT(*) FROM information_schema.routines WHERE routine_schema = 'replimeter') \
         + (SELECT COUNT(*) FROM information_schema.events WHERE event_schema = 'replimeter')",
    )
}

pub(super) fn routines_and_events_of_the_user_are_kept(cluster: &Cluster) {
    for (privileges, object, on_replica_only, command) in [
        (BLIND, PROCEDURE, false, LAG),
        (BLIND, EVENT, true, LOAD),
        (SIGHTED, PROCEDURE, true, LAG),
        (SIGHTED, EVENT, false, LOAD),
    ] {
        eprintln!("case {privileges}; {object}; {}", command[0]);
        create_probe(cluster, privileges);
        let ended = run_and_change(cluster, ["probe", "pw"], command, || {
            if on_replica_only {
                alone(cluster.replica(), &[object]);
            } else {
                sql(cluster.primary(), object);
            }
        });
        let warnings = warnings(ended);
        cluster.settle();
        assert_eq!(programs(cluster.replica()).as_deref(), Some("1"));
        assert_eq!(
            (tables(cluster.primary()), tables(cluster.replica())),
            (None, None)
        );
        let why = match privileges {
            BLIND => UNSEEN,
            _ => "has `mine` in it",
        };
        assert!(
            warnings.contains("the schema `replimeter` was not removed: ")
                && warnings.contains(why),
            "{warnings}"
        );
        sql(cluster.primary(), "DROP DATABASE replimeter");
        cluster.assert_clean();
    }
    sql(cluster.primary(), "DROP USER probe@'127.0.0.1'");
}

pub(super) fn schema_is_removed_if_everything_in_it_is_visible(cluster: &Cluster) {
    create_probe(cluster, SIGHTED);
    for command in [LAG, LOAD] {
        let found = warnings(run(cluster, ["probe", "pw"], command));
        assert!(!found.contains("was not removed"), "{found}");
        cluster.assert_clean();
    }
    create_probe(cluster, BLIND);
    // Once: a later run finds a schema that it did not create.
    for (command, times) in [(LAG, 1), (LOAD, 0)] {
        let found = warnings(run(cluster, ["probe", "pw"], command));
        assert_eq!(found.matches(UNSEEN).count(), times, "{found}");
        assert!(!clean(cluster.primary()));
        assert_eq!(tables(cluster.primary()), None);
    }
    sql(cluster.primary(), "DROP DATABASE replimeter");
    sql(cluster.primary(), "DROP USER probe@'127.0.0.1'");
}

pub(super) fn empty_schema_of_the_user_is_kept(cluster: &Cluster) {
    let admin = [ADMIN, cluster.password()];
    for command in [LAG, LOAD] {
        sql(cluster.primary(), "CREATE DATABASE replimeter");
        cluster.settle();
        let found = warnings(run(cluster, admin, command));
        assert!(!found.contains("was not removed"), "{found}");
        cluster.settle();
        assert!(!clean(cluster.primary()) && !clean(cluster.replica()));
        sql(cluster.primary(), "DROP DATABASE replimeter");
        cluster.assert_clean();
        alone(cluster.replica(), &["CREATE DATABASE replimeter"]);
        let found = warnings(run(cluster, admin, command));
        cluster.settle();
        assert!(found.contains("had it before the run"), "{found}");
        assert!(!clean(cluster.replica()));
        sql(cluster.primary(), "DROP DATABASE replimeter");
        cluster.assert_clean();
    }
}

pub(super) fn schema_of_the_primary_alone_is_refused(cluster: &Cluster) {
    let mut primary = session(cluster.primary());
    primary.run("test", "SET sql_log_bin=0").unwrap();
    primary.run("test", "CREATE DATABASE replimeter").unwrap();
    for command in [LAG, LOAD] {
        let _ = run(cluster, [ADMIN, cluster.password()], command)
            .with_code(3)
            .stderr_contains("replica1 (")
            .stderr_contains("the primary has it and this server does not");
        assert_eq!(tables(cluster.primary()), None, "nothing was created");
    }
    primary.run("test", "DROP DATABASE replimeter").unwrap();
}

pub(super) fn schema_is_checked_and_dropped_under_one_lock(cluster: &Cluster) {
    let admin = [ADMIN, cluster.password()];
    let lock = |function: &str, more: &str, session: &mut replimeter_engine::Session| {
        let sql = format!("SELECT {function}('replimeter.schema'{more})");
        assert_eq!(session.value("test", &sql).unwrap().as_deref(), Some("1"));
    };
    let mut other = session(cluster.primary());
    for command in [LAG, LOAD] {
        lock("GET_LOCK", ", 0", &mut other);
        let _ = run(cluster, admin, command)
            .with_code(3)
            .stderr_contains("another Replimeter run is creating or removing its tables");
        assert!(clean(cluster.primary()));
        lock("RELEASE_LOCK", "", &mut other);
        let take = || lock("GET_LOCK", ", 0", &mut other);
        let found = warnings(run_and_change(cluster, admin, command, take));
        lock("RELEASE_LOCK", "", &mut other);
        assert!(
            found.contains("the schema `replimeter` was not removed: ")
                && found.contains("another Replimeter run is creating or removing its tables"),
            "{found}"
        );
        assert!(!clean(cluster.primary()));
        assert_eq!(tables(cluster.primary()), None);
        sql(cluster.primary(), "DROP DATABASE replimeter");
        cluster.assert_clean();
    }
}
