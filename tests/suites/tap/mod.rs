//! `replimeter tap`: the lag of other clients' traffic, from the binary logs.

mod clusters;
mod interruptions;
mod output;
mod refusals;
mod ring;
mod transactions;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{BufRead, BufReader, Read},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use replimeter_engine::Node;
use replimeter_sandbox::Sandbox;
use replimeter_suites::{
    LIMIT, TestEnvironment, harness::Test, password, session, sql, test, url, value, wait,
    wait_until,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

pub(crate) const TESTS: &[Test] = &[
    test!(transactions::mariadb_tap_follows_rotations_and_tables),
    test!(transactions::mysql_tap_follows_tags_and_compression),
    test!(transactions::tap_follows_a_replica_of_a_replica),
    test!(clusters::tap_on_galera_needs_gtid_mode),
    test!(interruptions::tap_survives_a_stopped_replica),
    test!(interruptions::lost_connection_is_restored_and_reported),
    test!(interruptions::tap_survives_a_server_restart).starts(3),
    test!(interruptions::tap_survives_a_server_restart_on_mysql)
        .starts(3)
        .long(),
    test!(transactions::tap_filters_by_schema_and_table),
    test!(transactions::transaction_in_group_commit_is_not_foreign),
    test!(transactions::tap_awaits_nothing_that_a_filter_left_out),
    test!(clusters::tap_follows_group_members),
    test!(refusals::unfollowable_servers_are_refused).starts(4),
    test!(refusals::server_without_binary_log_is_refused).starts(2),
    test!(refusals::tap_checks_privileges_and_server_ids),
    test!(output::tap_streams_end_properly),
    test!(interruptions::purged_positions_are_reported).starts(2),
    test!(interruptions::stream_by_gtid_resumes_without_repeats),
    test!(ring::mysql_replica_that_writes_has_no_lag_of_its_own),
    test!(ring::mariadb_replica_that_writes_has_no_lag_of_its_own)
        .starts(2)
        .long(),
];

/// Creates tables for the traffic, on the replicas too.
fn tables(primary: &Node) {
    for statement in [
        "CREATE DATABASE shop",
        "CREATE TABLE shop.orders (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(200))",
        "CREATE TABLE shop.carts (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(200))",
    ] {
        sql(primary, statement);
    }
}

/// Number of transactions that the traffic has committed, by their table.
#[derive(Default)]
struct Written {
    orders: AtomicU64,
    carts: AtomicU64,
}

impl Written {
    fn orders(&self) -> u64 {
        self.orders.load(Ordering::Relaxed)
    }

    fn carts(&self) -> u64 {
        self.carts.load(Ordering::Relaxed)
    }

    fn all(&self) -> u64 {
        self.orders() + self.carts()
    }
}

/// Writes over three connections until it is stopped, two rows to `orders` for each to `carts`.
fn traffic(nodes: &[&Node], prefix: &[&str], stop: &AtomicBool, written: &Written) {
    thread::scope(|scope| {
        for writer in 0..3 {
            let node = nodes[writer % nodes.len()];
            scope.spawn(move || {
                let mut session = session(node);
                for statement in prefix {
                    session.run("test", statement).unwrap();
                }
                let tables = [
                    ("orders", &written.orders),
                    ("orders", &written.orders),
                    ("carts", &written.carts),
                ];
                for (table, count) in tables.into_iter().cycle() {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let insert = format!("INSERT INTO shop.{table} (v) VALUES ('x')");
                    session.run("test", &insert).unwrap();
                    count.fetch_add(1, Ordering::Relaxed);
                    thread::sleep(Duration::from_millis(2));
                }
            });
        }
    });
}

/// The command line for a sandbox's servers; the first is the primary.
fn args(sandbox: &Sandbox, more: &[&str]) -> Vec<String> {
    let nodes = sandbox.nodes();
    let mut args = vec![
        "tap".to_owned(),
        "--primary".to_owned(),
        url(&nodes[0], "replimeter"),
    ];
    for node in &nodes[1..] {
        args.extend(["--replica".to_owned(), url(node, "replimeter")]);
    }
    args.extend(more.iter().map(|arg| (*arg).to_owned()));
    args
}

/// Returns the ids of the connections that read a server's binary log.
fn dumps(node: &Node) -> BTreeSet<u64> {
    let ids = "SELECT GROUP_CONCAT(id) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'";
    let ids = value(node, ids).unwrap_or_default();
    let ids = ids.split_terminator(',');
    ids.map(|id| id.parse().unwrap()).collect()
}

/// What a command has printed so far.
struct Printed {
    text: Arc<Mutex<String>>,
    reader: JoinHandle<()>,
}

impl Printed {
    /// Reads the output of a command from now on.
    fn from(pipe: impl Read + Send + 'static) -> Self {
        let mut pipe = BufReader::new(pipe);
        let text = Arc::<Mutex<String>>::default();
        let kept = Arc::clone(&text);
        let reader = thread::spawn(move || {
            let mut line = String::new();
            while pipe.read_line(&mut line).unwrap() > 0 {
                kept.lock().unwrap().push_str(&line);
                line.clear();
            }
        });
        Self { text, reader }
    }

    fn so_far(&self) -> String {
        self.text.lock().unwrap().clone()
    }

    /// Returns everything, after the command has ended.
    fn all(self) -> String {
        self.reader.join().unwrap();
        self.text.lock().unwrap().clone()
    }
}

/// What the windows of a run show of a replica (`--stream samples`).
#[derive(Clone, Copy, Default)]
struct Shown {
    /// Transactions of the primary in all windows.
    transactions: u64,
    /// Transactions that the replica had not shown at the end of the last window.
    pending: u64,
}

/// A run that follows servers while there is traffic.
struct Following<'a> {
    tool: Pid,
    printed: &'a Printed,
    written: &'a Written,
}

impl Following<'_> {
    /// Waits until further transactions were written.
    fn await_traffic(&self) {
        let now = self.written.all();
        wait_until("there is traffic", LIMIT, || self.written.all() > now + 200);
    }

    /// Returns what the run has shown of each replica so far.
    fn shown(&self) -> BTreeMap<String, Shown> {
        let mut shown = BTreeMap::<String, Shown>::new();
        for line in self.printed.so_far().lines() {
            let window: Value = serde_json::from_str(line).unwrap();
            let name = window["replica"].as_str().unwrap().to_owned();
            let replica = shown.entry(name).or_default();
            replica.transactions += number(&window["transactions"]);
            replica.pending = number(&window["pending"]);
        }
        shown
    }

    /// Waits until the run awaits more than a hundred transactions of a replica, which it has seen on the primary.
    fn await_pending(&self, replica: &str) {
        wait_until("the replica is behind", LIMIT, || {
            let shown = self.shown();
            shown.get(replica).is_some_and(|shown| shown.pending > 100)
        });
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.tool, signal).unwrap();
    }
}

/// Follows a sandbox from before the traffic begins, while it lasts and `during` happens, until the run has everything that was
/// written; returns its document.
fn followed(
    sandbox: &Sandbox,
    args: &[String],
    prefix: &[&str],
    during: impl FnOnce(&Following<'_>),
) -> (TestEnvironment, Value) {
    let writers = [&sandbox.nodes()[0]];
    let (tool, document, _) = followed_on(sandbox, &writers, args, prefix, Written::all, during);
    (tool, document)
}

/// The same with traffic on these servers, of which the run counts some; also returns the number of those.
fn followed_on(
    sandbox: &Sandbox,
    writers: &[&Node],
    args: &[String],
    prefix: &[&str],
    counted: fn(&Written) -> u64,
    during: impl FnOnce(&Following<'_>),
) -> (TestEnvironment, Value, u64) {
    let tool = TestEnvironment::new();
    let nodes = sandbox.nodes();
    let mut command = tool.command(args);
    command.args(["--stream", "samples", "--report-interval", "500ms"]);
    command.env("REPLIMETER_PASSWORD", password(&nodes[0]));
    let mut child = command.spawn().unwrap();
    let printed = Printed::from(child.stdout.take().unwrap());
    let errors = Printed::from(child.stderr.take().unwrap());
    let (stop, written) = (AtomicBool::new(false), Written::default());
    let following = Following {
        tool: Pid::from_child(&child),
        printed: &printed,
        written: &written,
    };
    let replicas = nodes.len() - 1;
    wait_until("every server is followed", LIMIT, || {
        assert_eq!(child.try_wait().unwrap(), None, "{}", errors.so_far());
        following.shown().len() == replicas
    });
    let happened = thread::scope(|scope| {
        let writing = scope.spawn(|| traffic(writers, prefix, &stop, &written));
        // The traffic must end whatever happens, or the scope waits for it.
        let happened = catch_unwind(AssertUnwindSafe(|| {
            following.await_traffic();
            during(&following);
            following.await_traffic();
        }));
        stop.store(true, Ordering::Relaxed);
        writing.join().unwrap();
        happened
    });
    if let Err(panic) = happened {
        child.kill().unwrap();
        resume_unwind(panic);
    }
    let expected = counted(&written);
    wait_until("the run has what was written", LIMIT, || {
        let shown = following.shown();
        let mut shown = shown.values();
        shown.all(|shown| shown.transactions >= expected && shown.pending == 0)
    });
    following.signal(Signal::INT);
    let code = wait(child, LIMIT).code;
    assert_eq!(code, Some(0), "{}", errors.all());
    let summary = fs::read_to_string(tool.only_run().join("summary.json")).unwrap();
    (tool, serde_json::from_str(&summary).unwrap(), expected)
}

fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("no number: {value}"))
}

/// Every transaction of the primary is accounted for, and all have a lag.
fn all_matched(document: &Value) {
    assert!(!document["results"]["rows"].as_array().unwrap().is_empty());
    for row in document["results"]["rows"].as_array().unwrap() {
        assert!(number(&row["transactions"]) > 100, "{row:#}");
        assert_eq!(row["matched"], row["transactions"], "{row:#}");
        assert_eq!(
            (number(&row["unmatched"]), number(&row["pending"])),
            (0, 0),
            "{row:#}"
        );
        assert_eq!(row["lag"]["count"], row["matched"]);
    }
}
