//! Connections that a run takes, and servers that refuse further ones in the middle of it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
};

use replimeter_engine::{ErrorKind, Node, Session};
use replimeter_model::target::Secret;
use replimeter_suites::{
    LIMIT, TestEnvironment, assert_run_described, await_no_connections, most_connections, session,
    sql, url, wait, wait_until,
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
        "GRANT REPLICA MONITOR, BINLOG MONITOR, REPLICATION SLAVE ON *.* TO prober@'127.0.0.1'",
    ] {
        sql(cluster.primary(), statement);
    }
    cluster.settle();
    case();
    sql(cluster.primary(), "DROP USER prober@'127.0.0.1'");
}

/// Takes every connection that the server has for the user, also those that the run frees, until it is dropped.
struct Crowd {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Crowd {
    /// Returns when the server has refused a connection.
    fn gather(node: &Node) -> Self {
        let node = Node {
            user: USER.to_owned(),
            password: Some(Secret::new(SECRET)),
            ..node.clone()
        };
        let (refused, full) = mpsc::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut taken = Vec::new();
            while !over.load(Ordering::Relaxed) {
                match Session::open(&node) {
                    Ok(session) => taken.push(session),
                    Err(error) => {
                        assert_eq!(error.kind, ErrorKind::Statement(1040), "{error}");
                        let _ = refused.send(());
                    }
                }
            }
        });
        full.recv_timeout(LIMIT).unwrap();
        Self {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

/// Runs a command, during which a server refuses connections from the time at which `begun` returns 1; returns its
/// document.
fn refused(cluster: &Cluster, node: &Node, line: &[&str], begun: &str) -> Value {
    let tool = TestEnvironment::new();
    let (primary, replica) = (url(cluster.primary(), USER), url(cluster.replica(), USER));
    let servers = ["--json", "--primary", &primary, "--replica", &replica];
    let mut command = tool.command(&[line, &servers].concat());
    let child = command.env("REPLIMETER_PASSWORD", SECRET).spawn().unwrap();
    let mut admin = session(node);
    wait_until("the run is under way", LIMIT, || {
        let found = session(cluster.primary()).value("test", begun);
        found.is_ok_and(|found| found.as_deref() == Some("1"))
    });
    let limit = admin.value("test", "SELECT @@max_connections").unwrap();
    admin
        .run("test", "SET GLOBAL max_connections = 10")
        .unwrap();
    let crowd = Crowd::gather(node);
    let ended = wait(child, LIMIT);
    drop(crowd);
    let restore = format!("SET GLOBAL max_connections = {}", limit.unwrap());
    admin.run("test", &restore).unwrap();
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
fn refused_by_the_primary(cluster: &Cluster, line: &[&str], begun: &str) -> Value {
    let document = refused(cluster, cluster.primary(), line, begun);
    let warnings = document["warnings"].to_string();
    assert!(!warnings.contains("clean-up-incomplete"), "{warnings}");
    cluster.assert_clean();
    document
}

const LAG: [&str; 5] = ["lag", "--floor-rounds", "200", "--duration", "1s"];
const LAG_BEGUN: &str = "SELECT COUNT(*) > 20 FROM replimeter.lag_probe";

pub(super) fn refused_connections_end_lag(cluster: &Cluster) {
    with_user(cluster, || {
        let _ = refused_by_the_primary(cluster, &LAG, LAG_BEGUN);
        // What the replica has in the schema cannot be seen.
        let document = refused(cluster, cluster.replica(), &LAG, LAG_BEGUN);
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
        let line = [
            "load",
            "--workload",
            "insert",
            "--threads",
            "1,4",
            "--duration",
            "1s",
            "--warm-up",
            "100ms",
        ];
        let begun = "SELECT COUNT(*) > 20 FROM replimeter.load_insert";
        let document = refused_by_the_primary(cluster, &line, begun);
        let rows = document["results"]["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 1, "{document:#}");
        assert!(rows[0]["passes"].as_u64() > Some(0), "{document:#}");
    });
}

pub(super) fn refused_connections_end_stale(cluster: &Cluster) {
    with_user(cluster, || {
        let line = [
            "stale",
            "--read-consistency=off,on",
            "--read-delays",
            "none",
            "--duration",
            "1s",
        ];
        let begun = "SELECT MAX(k) > 20 FROM replimeter.lag_probe";
        let document = refused_by_the_primary(cluster, &line, begun);
        let rows = document["results"]["rows"].as_array().unwrap();
        assert!(rows[0]["rounds"].as_u64() > Some(0), "{document:#}");
    });
}

/// `docs/reference/privileges.md` has these numbers, for the primary and for each replica.
const DOCUMENTED: [(&[&str], [u64; 2]); 4] = [
    (&["lag", "--floor-rounds", "50", "--duration", "1s"], [4, 2]),
    (
        &["stale", "--read-delays", "none", "--duration", "1s"],
        [4, 3],
    ),
    (&["exposure", "--duration", "1s"], [2, 2]),
    (
        &["tap", "--duration", "1s", "--floor-duration", "1s"],
        [3, 2],
    ),
];

pub(super) fn connections_are_as_many_as_documented(cluster: &Cluster) {
    with_user(cluster, || {
        for (line, most) in DOCUMENTED {
            let tool = TestEnvironment::new();
            let (primary, replica) = (url(cluster.primary(), USER), url(cluster.replica(), USER));
            let servers = ["--primary", &primary, "--replica", &replica];
            let nodes = [cluster.primary(), cluster.replica()];
            await_no_connections(&nodes, USER);
            let mut command = tool.command(&[line, &servers].concat());
            let mut child = command.env("REPLIMETER_PASSWORD", SECRET).spawn().unwrap();
            let seen = most_connections(&nodes, USER, &mut child);
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
