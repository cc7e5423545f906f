//! Connections that a run takes, and servers that refuse further ones in the middle of it.

use std::{collections::BTreeSet, fs, process::Child, thread, time::Duration};

use replimeter_engine::{Node, Session};
use replimeter_suites::{
    LIMIT, TestEnvironment, assert_run_described, of_run_in, session, sql, url, wait, wait_until,
};
use serde_json::Value;

use super::Cluster;

/// A user without the privilege to connect above the limit.
const USER: &str = "prober";
const SECRET: &str = "pw";

/// Calls `case` while the user exists.
fn with_user(cluster: &Cluster, case: impl FnOnce()) {
    for statement in [
        "CREATE USER prober@'127.0.0.1' IDENTIFIED BY 'pw'",
        "GRANT CREATE, DROP, INSERT, UPDATE, DELETE, SELECT, EXECUTE, EVENT ON replimeter.* TO prober@'127.0.0.1'",
        "GRANT REPLICA MONITOR, BINLOG MONITOR, REPLICATION SLAVE, REPLICATION MASTER ADMIN ON *.* TO prober@'127.0.0.1'",
    ] {
        sql(cluster.primary(), statement);
    }
    cluster.settle();
    case();
    sql(cluster.primary(), "DROP USER prober@'127.0.0.1'");
}

/// More connections than a server with the smallest possible limit has, so that it accepts none, not even in place of one that the
/// run closes.
const CROWD: usize = 12;

/// A command of a length, such as its seconds.
type Line = fn(u32) -> String;

/// Runs a command, during which a server refuses connections from the time at which `begun` returns 1; returns its
/// document. A run that had all its connections by then, because the machine was busy, is repeated with a greater length.
fn refused(cluster: &Cluster, node: &Node, line: Line, begun: &str) -> Value {
    let mut admin = session(node);
    let crowd: Vec<Session> = (0..CROWD).map(|_| session(node)).collect();
    let limit = admin.value("test", "SELECT @@max_connections").unwrap();
    let restore = format!("SET GLOBAL max_connections = {}", limit.unwrap());
    let run = |length: u32, admin: &mut Session| {
        let tool = TestEnvironment::new();
        let line = line(length);
        let (primary, replica) = (url(cluster.primary(), USER), url(cluster.replica(), USER));
        let mut args: Vec<&str> = line.split(' ').collect();
        args.extend(["--json", "--primary", &primary, "--replica", &replica]);
        let mut command = tool.command(&args);
        let mut child = command.env("REPLIMETER_PASSWORD", SECRET).spawn().unwrap();
        let mut observer = session(cluster.primary());
        wait_until("the run is under way, or has ended", LIMIT, || {
            let begun = of_run_in(&mut observer, begun);
            let found = observer.value("test", &begun);
            found.is_ok_and(|found| found.as_deref() == Some("1"))
                || child.try_wait().unwrap().is_some()
        });
        admin
            .run("test", "SET GLOBAL max_connections = 10")
            .unwrap();
        let ended = wait(child, LIMIT);
        admin.run("test", &restore).unwrap();
        (tool, ended)
    };
    let (mut tool, mut ended) = run(1, &mut admin);
    for length in [4, 16, 64] {
        if ended.code == Some(0) {
            (tool, ended) = run(length, &mut admin);
        }
    }
    drop(crowd);
    let ended = ended
        .with_code(3)
        .stderr_contains(&format!("error: {} (", node.name))
        .stderr_contains("(error 1040")
        .stderr_contains("raise max_connections");
    let run = tool.only_run();
    assert_run_described(&run);
    assert!(run.join("report.html").exists() && run.join("samples.parquet").exists());
    ended.json()
}

/// Checks that the run left nothing although the primary refused connections until its end.
fn refused_by_the_primary(cluster: &Cluster, line: Line, begun: &str) -> Value {
    let document = refused(cluster, cluster.primary(), line, begun);
    let warnings = document["warnings"].to_string();
    assert!(!warnings.contains("clean-up-incomplete"), "{warnings}");
    cluster.assert_clean();
    document
}

/// The connections that are refused are those after the floor.
const LAG: Line = |length| {
    let rounds = length * 200;
    format!("lag --floor-rounds {rounds} --timeout 60s --duration 1s")
};
const LAG_BEGUN: &str = "SELECT COUNT(*) > 20 FROM replimeter.probe";

pub(super) fn refused_connections_end_lag(cluster: &Cluster) {
    with_user(cluster, || {
        let _ = refused_by_the_primary(cluster, LAG, LAG_BEGUN);
        // What the replica has in the schema cannot be seen.
        let document = refused(cluster, cluster.replica(), LAG, LAG_BEGUN);
        let warnings = document["warnings"].to_string();
        assert!(
            warnings.contains("the schema `replimeter` was not removed: replica1 ("),
            "{warnings}"
        );
        sql(cluster.primary(), "DROP DATABASE replimeter");
        cluster.assert_clean();
    });
}

pub(super) fn refused_connections_end_a_load(cluster: &Cluster) {
    with_user(cluster, || {
        let line: Line = |seconds| {
            format!("load --workload insert --threads 1,4 --warm-up 100ms --duration {seconds}s")
        };
        let begun = "SELECT COUNT(*) > 20 FROM replimeter.load_insert";
        let document = refused_by_the_primary(cluster, line, begun);
        let rows = document["results"]["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 1, "{document:#}");
        assert!(rows[0]["passes"].as_u64() > Some(0), "{document:#}");
    });
}

pub(super) fn refused_connections_end_stale(cluster: &Cluster) {
    with_user(cluster, || {
        let line: Line = |seconds| {
            format!(
                "stale --read-consistency=off,on --read-delays none --timeout 60s --duration {seconds}s"
            )
        };
        let begun = "SELECT MAX(k) > 20 FROM replimeter.probe";
        let document = refused_by_the_primary(cluster, line, begun);
        let rows = document["results"]["rows"].as_array().unwrap();
        assert!(rows[0]["rounds"].as_u64() > Some(0), "{document:#}");
    });
}

/// `docs/reference/privileges.md` has these numbers, for the primary and for each replica.
const DOCUMENTED: [(&str, [usize; 2]); 4] = [
    ("lag --floor-rounds 50 --timeout 60s --duration 1s", [4, 2]),
    (
        "stale --read-delays none --timeout 60s --duration 1s",
        [4, 3],
    ),
    ("exposure --duration 1s", [2, 2]),
    ("tap --duration 1s --floor-duration 1s", [3, 2]),
];

/// Interval between two counts of connections.
const INTERVAL: Duration = Duration::from_millis(20);
/// Counts in a row that a number must last.
const LASTS: usize = 5;

/// Returns the number of connections that a command has to a server, as its own system counts them: on a busy machine, the server
/// counts one that was closed for longer.
fn connections(child: &Child, node: &Node) -> usize {
    let proc = format!("/proc/{}", child.id());
    let open = fs::read_dir(format!("{proc}/fd")).into_iter().flatten();
    let sockets: BTreeSet<String> = open
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .filter_map(|target| {
            let inode = target.to_str()?.strip_prefix("socket:[")?;
            Some(inode.strip_suffix(']')?.to_owned())
        })
        .collect();
    let table = fs::read_to_string(format!("{proc}/net/tcp")).unwrap_or_default();
    let port = format!(":{:04X}", node.endpoint.port);
    let established = table.lines().skip(1).filter(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [remote, state, inode] = [2, 3, 9].map(|index| fields[index]);
        remote.ends_with(&port) && state == "01" && sockets.contains(inode)
    });
    established.count()
}

/// Waits for a command; returns the largest number of connections that it had to each server for some time.
fn most_connections(child: &mut Child, nodes: &[&Node]) -> Vec<usize> {
    let mut most = vec![0; nodes.len()];
    let mut counts: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    while child.try_wait().unwrap().is_none() {
        for ((node, counts), most) in nodes.iter().zip(&mut counts).zip(&mut most) {
            counts.push(connections(child, node));
            let lasted = counts.iter().rev().take(LASTS).copied().min();
            if counts.len() >= LASTS {
                *most = lasted.unwrap_or(0).max(*most);
            }
        }
        thread::sleep(INTERVAL);
    }
    most
}

pub(super) fn connections_are_as_many_as_documented(cluster: &Cluster) {
    with_user(cluster, || {
        for (line, most) in DOCUMENTED {
            let tool = TestEnvironment::new();
            let (primary, replica) = (url(cluster.primary(), USER), url(cluster.replica(), USER));
            let mut args: Vec<&str> = line.split(' ').collect();
            args.extend(["--primary", &primary, "--replica", &replica]);
            let mut command = tool.command(&args);
            let mut child = command.env("REPLIMETER_PASSWORD", SECRET).spawn().unwrap();
            let seen = most_connections(&mut child, &[cluster.primary(), cluster.replica()]);
            let _ = wait(child, LIMIT).with_code(0);
            assert!(
                seen.iter()
                    .zip(most)
                    .all(|(seen, most)| (1..=most).contains(seen)),
                "{line:?} took {seen:?} connections, and {most:?} are documented"
            );
        }
    });
}
