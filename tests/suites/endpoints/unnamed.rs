//! Replicas that are not named on the command line.

use replimeter_engine::Node;
use replimeter_suites::{
    CommandOutput, LIMIT, Shared, TestEnvironment, clean, password, session, shared, sql, url,
    value, wait, wait_until,
};
use rustix::process::{Pid, Signal, kill_process};

use super::ADMIN;

const MARKED: &str = "CREATE TABLE replimeter.probe_1 (old INT) \
                      COMMENT 'replimeter: made by a measurement and removed by it; with the schema; run 1'";
const FOREIGN: &str = "CREATE TABLE replimeter.load_insert (mine INT)";

/// Runs a command that names the primary, for a user there, and the first of two replicas.
fn run(sandbox: &Shared, user: [&str; 2], command: &str) -> CommandOutput {
    let [user, own] = user;
    let [primary, replica, _] = servers(sandbox);
    let (primary_url, replica_url) = (url(primary, user), url(replica, ADMIN));
    let mut args = Vec::from_iter(command.split(' '));
    args.extend([
        "--primary",
        &primary_url,
        "--replica",
        &replica_url,
        "--json",
    ]);
    let tool = TestEnvironment::new();
    let mut command = tool.command(&args);
    command
        .env("REPLIMETER_PRIMARY_PASSWORD", own)
        .env("REPLIMETER_REPLICA1_PASSWORD", password(primary));
    wait(command.spawn().unwrap(), LIMIT)
}

/// Returns the primary, the named and the unnamed replica.
fn servers(sandbox: &Shared) -> [&Node; 3] {
    [0, 1, 2].map(|index| &sandbox.nodes()[index])
}

const LAG: &str = "lag --rounds 5 --warm-up 2 --floor-rounds 20 --timeout 60s";
const LOAD: &str = "load --workload insert --threads 1 --duration 300ms --warm-up 100ms";

fn replicates(node: &Node) -> bool {
    ["SHOW REPLICA STATUS", "SHOW SLAVE STATUS"]
        .iter()
        .filter_map(|statement| session(node).rows("test", statement).ok())
        .flatten()
        .any(|row| {
            ["Replica_SQL_Running", "Slave_SQL_Running"]
                .iter()
                .any(|column| row.get(*column).is_some_and(|state| state == "Yes"))
        })
}

fn on_replica_only(sandbox: &Shared, table: &str) {
    let mut replica = session(servers(sandbox)[2]);
    for statement in ["SET sql_log_bin=0", "CREATE DATABASE replimeter", table] {
        replica.run("test", statement).unwrap();
    }
}

/// Runs a statement on a server without replicating it.
fn sql_alone(node: &Node, statement: &str) {
    let mut session = session(node);
    session.run("test", "SET sql_log_bin=0").unwrap();
    session.run("test", statement).unwrap();
}

/// Waits until the replica has applied everything.
fn settle(sandbox: &Shared) {
    let [primary, _, replica] = servers(sandbox);
    sql(primary, "CREATE DATABASE settled");
    wait_until("the replica has applied everything", LIMIT, || {
        let there = "SELECT 1 FROM information_schema.schemata WHERE schema_name = 'settled'";
        value(replica, there).is_some()
    });
    sql(primary, "DROP DATABASE settled");
}

fn leftovers_there_do_not_stop_its_replication(sandbox: &Shared) {
    let [primary, _, replica] = servers(sandbox);
    let admin = [ADMIN, password(primary)];
    let doctor = run(sandbox, admin, "doctor").json()["findings"].to_string();
    assert!(doctor.contains("replica-not-named"), "{doctor}");
    let tables = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'replimeter'";
    for command in [LAG, LOAD] {
        on_replica_only(sandbox, MARKED);
        let ended = run(sandbox, admin, command);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        let warnings = ended.json()["warnings"].to_string();
        let named = format!(
            "({}) replicates from it and is not named",
            replica.endpoint.address()
        );
        assert!(
            warnings.contains(&named) && warnings.contains("had it before the run"),
            "{warnings}"
        );
        settle(sandbox);
        assert!(replicates(replica));
        assert!(!clean(replica), "the schema was there before");
        if command == LAG {
            assert!(
                warnings.contains("which its primary does not have"),
                "{warnings}"
            );
            assert_eq!(value(replica, tables).as_deref(), Some("0"));
        }
        sql(primary, "DROP DATABASE replimeter");
        settle(sandbox);
        assert!(clean(primary) && clean(replica) && replicates(replica));
    }
    on_replica_only(sandbox, FOREIGN);
    let _ = run(sandbox, admin, LOAD)
        .with_code(3)
        .stderr_contains("was not created by Replimeter")
        .stderr_contains("server_id ");
    assert_eq!(value(replica, tables).as_deref(), Some("1"));
    let mut replica = session(replica);
    for statement in ["SET sql_log_bin=0", "DROP DATABASE replimeter"] {
        replica.run("test", statement).unwrap();
    }
}

pub(super) fn leftovers_on_an_unnamed_replica_do_not_stop_it() {
    leftovers_there_do_not_stop_its_replication(&shared("mariadb/async:2", &[]));
}

pub(super) fn leftovers_on_an_unnamed_mysql_replica_do_not_stop_it() {
    leftovers_there_do_not_stop_its_replication(&shared("mysql/async:2", &[]));
}

pub(super) fn unnamed_replicas_are_warned_of() {
    let sandbox = shared("mariadb/async:2", &[]);
    let warned = |user: [&str; 2], texts: &[&str]| {
        let ended = run(&sandbox, user, LAG);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        let warnings = ended.json()["warnings"].to_string();
        for text in texts {
            assert!(warnings.contains(text), "{text}: {warnings}");
        }
    };
    let [primary, named, replica] = servers(&sandbox);
    let readers =
        "SELECT COUNT(*) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'";
    wait_until("only the replicas read the binary log", LIMIT, || {
        value(primary, readers).as_deref() == Some("2")
    });
    warned([ADMIN, password(primary)], &["nothing waits for it"]);
    assert!(clean(primary));
    // What only follows a log is no replica that could have tables.
    let tool = TestEnvironment::new();
    let following = ["tap", "--duration", "600s", "--floor-duration", "0s"];
    let (source, other) = (url(primary, ADMIN), url(named, ADMIN));
    let named_servers = ["--primary", &source, "--replica", &other];
    let mut following = tool.command(&[&following[..], &named_servers].concat());
    following.env("REPLIMETER_PASSWORD", password(primary));
    let following = following.spawn().unwrap();
    wait_until("a tap reads the binary log, too", LIMIT, || {
        value(primary, readers).as_deref() == Some("3")
    });
    let _ = run(&sandbox, [ADMIN, password(primary)], LOAD).with_code(0);
    // Dropping it would reach one that was not asked.
    sql(primary, "DROP DATABASE replimeter");
    kill_process(Pid::from_child(&following), Signal::INT).unwrap();
    let _ = wait(following, LIMIT);
    settle(&sandbox);
    // Users who exist on the primary only: they cannot ask the unnamed replica, whose own table stays. One sees no more than the
    // connections, and one not even these.
    on_replica_only(&sandbox, "CREATE TABLE replimeter.notes (mine INT)");
    let notes = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'replimeter' AND table_name = 'notes'";
    let kept = "the schema `replimeter` was not removed: ";
    let mut primary = session(primary);
    for statement in [
        "SET sql_log_bin=0",
        "CREATE USER admin@'127.0.0.1' IDENTIFIED BY 'pw'",
        "GRANT ALL ON *.* TO admin@'127.0.0.1'",
        "CREATE USER probe@'127.0.0.1' IDENTIFIED BY 'pw'",
        "GRANT PROCESS ON *.* TO probe@'127.0.0.1'",
        "GRANT ALL ON replimeter.* TO probe@'127.0.0.1'",
    ] {
        primary.run("test", statement).unwrap();
    }
    for (user, grants, fact) in [
        ("admin", &[][..], "can stop its replication"),
        (
            "probe",
            &[],
            "connections that read its binary log: 2, named replicas: 1",
        ),
        (
            "probe",
            &[
                "REVOKE PROCESS ON *.* FROM probe@'127.0.0.1'",
                "GRANT REPLICA MONITOR, BINLOG MONITOR ON *.* TO probe@'127.0.0.1'",
            ],
            "were not looked for",
        ),
    ] {
        for grant in grants {
            primary.run("test", grant).unwrap();
        }
        warned([user, "pw"], &[fact, kept]);
        settle(&sandbox);
        assert_eq!(value(replica, notes).as_deref(), Some("1"), "{user}");
        primary.run("test", "DROP DATABASE replimeter").unwrap();
        sql_alone(named, "DROP DATABASE replimeter");
    }
    // Tables of a workload have names that the replica could have as well.
    let _ = run(&sandbox, ["admin", "pw"], LOAD)
        .with_code(3)
        .stderr_contains("was not asked for its tables")
        .stderr_contains("--unasked-replicas");
    let allowed = format!("{LOAD} --unasked-replicas");
    let _ = run(&sandbox, ["admin", "pw"], &allowed).with_code(0);
    settle(&sandbox);
    assert_eq!(value(replica, notes).as_deref(), Some("1"));
    primary.run("test", "DROP DATABASE replimeter").unwrap();
    sql_alone(named, "DROP DATABASE replimeter");
    primary
        .run("test", "DROP USER admin@'127.0.0.1', probe@'127.0.0.1'")
        .unwrap();
    sql_alone(replica, "DROP DATABASE replimeter");
}
