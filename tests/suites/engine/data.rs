//! Data sets: filled, reused, stored and removed.

use std::{process::Child, thread};

use replimeter_engine::Node;
use replimeter_suites::{
    LIMIT, TestEnvironment, password, session, shared, sql, start, url, value, wait, wait_until,
};
use rustix::{
    fs::statvfs,
    process::{Pid, Signal, kill_process},
};

use super::{
    ADMIN, assert_clean, codes, counting, errors, finished, inserted, interrupted, load, load_with,
    number, pid, run_file, spawn, statements_of, with_global,
};

pub(super) fn existing_data_is_reused(nodes: &[Node]) {
    let rows = || value(&nodes[0], "SELECT COUNT(*) FROM replimeter.post").unwrap();
    let run = |size: &str, workload: &str| {
        let args = [
            "--workload",
            workload,
            "--data-size",
            size,
            "--keep-data",
            "--duration",
            "300ms",
            "--threads",
            "1",
            "--reads",
            "primary",
        ];
        finished(load(nodes, &args))
    };
    let document = run("5000", "post-insert");
    assert_eq!(
        (
            document["results"]["data"][0]["reused"].as_bool(),
            document["results"]["data"][0]["rows"].as_u64()
        ),
        (Some(false), Some(5000))
    );
    sql(
        &nodes[0],
        "INSERT INTO replimeter.post (title) VALUES ('one more')",
    );
    // Another workload on the same data, which is unchanged.
    let document = run("5000", "select");
    assert_eq!(
        document["results"]["data"][0]["reused"].as_bool(),
        Some(true),
        "{document:#}"
    );
    assert_eq!(rows(), "5000", "what loads added is gone");
    assert!(!codes(&document).contains(&"data-replaced"));
    // For another size the data set is filled again, with a message.
    let document = run("3000", "select");
    assert!(
        codes(&document).contains(&"data-replaced")
            && document.to_string().contains("5000 rows in post"),
        "{document:#}"
    );
    assert_eq!(rows(), "3000");
    // A data set with missing rows is not reused.
    sql(&nodes[0], "DELETE FROM replimeter.post WHERE idpost = 7");
    let document = run("3000", "select");
    assert!(codes(&document).contains(&"data-replaced"), "{document:#}");
    assert_eq!(rows(), "3000");
    // A size in bytes is about that size.
    let document = run("5MB", "select");
    let bytes = number(&document["results"]["data"][0]["bytes"]);
    assert!((3.5e6..8e6).contains(&bytes), "{bytes}");
    // A run leaves a data set that it found; another size, or a run without --keep-data, removes it.
    let args = "--workload select --data-size 100 --threads 1 --duration 300ms";
    let _ = finished(load(nodes, &args.split(' ').collect::<Vec<_>>()));
}

pub(super) fn foreign_tables_are_kept(nodes: &[Node]) {
    sql(&nodes[0], "CREATE DATABASE replimeter");
    sql(
        &nodes[0],
        "CREATE TABLE replimeter.sbtest1 (id INT PRIMARY KEY)",
    );
    let ended = load(nodes, &["--workload", "point-select", "--duration", "1s"]).with_code(3);
    let _ = ended.stderr_contains("`sbtest1` was not created by Replimeter");
    assert!(value(&nodes[0], "SELECT COUNT(*) FROM replimeter.sbtest1").is_some());
    sql(&nodes[0], "DROP DATABASE replimeter");
}

/// Returns the size of a data set that takes long to fill, and for which the server's disk has room.
fn large(node: &Node) -> String {
    let folder = value(node, "SELECT @@datadir").unwrap();
    let disk = statvfs(folder.as_str()).unwrap();
    let free_mb = disk.f_bavail * disk.f_frsize / 1_000_000;
    format!("{}MB", (free_mb / 2).min(4000))
}

fn await_rows(node: &Node) {
    wait_until("the data set is being filled", LIMIT, || {
        let rows = session(node).value("test", "SELECT 1 FROM replimeter.sbtest1 LIMIT 1");
        rows.ok().flatten().is_some()
    });
}

pub(super) fn interrupted_fill_leaves_nothing(nodes: &[Node]) {
    let tool = TestEnvironment::new();
    let size = large(&nodes[0]);
    let args = ["--workload", "point-select", "--data-size", &size];
    let child = spawn(&tool, nodes, &args);
    await_rows(&nodes[0]);
    kill_process(pid(&child), Signal::INT).unwrap();
    let _ = wait(child, LIMIT).with_code(130);
    assert!(tool.runs().is_empty());
}

/// Texts that a file and SQL write differently; then tables whose columns a file would fill with something else.
const KINDS: &str = r#"size = 20000
[[table]]
name = "kinds"
create = """CREATE TABLE kinds (id INT PRIMARY KEY, word VARCHAR(40), bytes VARBINARY(40), amount DECIMAL(12,3),
  made DATETIME, fixed CHAR(5) NOT NULL) CHARACTER SET utf8mb4"""
[table.columns]
id = {row = true}
word = {choice = ["it's", "back\\slash", "a\ttab\nand a line", "\\N", "NULL", "é€😀", ""]}
bytes = {pattern = "a##\\@@"}
amount = {uniform = [1, "rows"]}
made = "1970-01-01 12:00:00"
fixed = {text = [0, 5]}
"#;
const UNLIKE: &str = r#"[[table]]
name = "bits"
create = "CREATE TABLE bits (id INT PRIMARY KEY, flags BIT(8))"
[table.columns]
id = {row = true}
flags = 5
[[table]]
name = "counted"
create = "CREATE TABLE counted (id INT AUTO_INCREMENT PRIMARY KEY, word VARCHAR(40))"
[table.columns]
word = "x"
"#;

pub(super) fn rows_of_a_file_equal_inserted_ones(nodes: &[Node]) {
    let primary = &nodes[0];
    let counters = || statements_of(primary, ["load", "insert"]);
    let statement = "[[statement]]\nsql = \"SELECT 1\"\n";
    let load_once = |tables: &str, setting| {
        let text = format!("{tables}{statement}");
        with_global(primary, "local_infile", setting, || {
            let once = ["--duration", "300ms", "--keep-data", "--threads", "1"];
            run_file(nodes, &text, &once)
        })
    };
    // Returns a checksum, and how many files and inserts filled the tables.
    let filled = |tables: &str, check: &str, setting| {
        let before = counters();
        let _ = finished(load_once(tables, setting));
        let after = counters();
        let found = session(primary).rows("test", check).unwrap();
        sql(primary, "DROP DATABASE replimeter");
        let checked: Vec<String> = found[0].values().cloned().collect();
        (checked, [0, 1].map(|index| after[index] - before[index]))
    };
    let checksum = "CHECKSUM TABLE replimeter.kinds";
    let (file, [loads, inserts]) = filled(KINDS, checksum, 1);
    assert!(loads >= 2 && inserts == 0, "{loads}, {inserts}");
    let (statements, [loads, inserts]) = filled(KINDS, checksum, 0);
    assert!(loads == 0 && inserts >= 2, "{loads}, {inserts}");
    assert_eq!(file, statements);

    let check = "SELECT COUNT(*), MAX(c.id), MIN(flags = 5) FROM replimeter.bits b JOIN replimeter.counted c ON c.id = b.id";
    let (rows, [loads, _]) = filled(&format!("size = 20000\n{UNLIKE}"), check, 1);
    assert_eq!(loads, 0);
    assert_eq!(rows, ["20000", "20000", "1"]);

    let ended = load_once(&KINDS.replace("CHAR(5)", "CHAR(3)"), 1).with_code(3);
    let _ = ended.stderr_contains("Data too long for column 'fixed'");
    assert_clean(nodes);
}

/// A tablespace that may not grow simulates a full disk.
pub(super) fn full_disk_ends_the_fill() {
    let options = [
        "innodb_file_per_table=0",
        "innodb_data_file_path=ibdata1:12M:autoextend:max:40M",
    ];
    let sandbox = start("mariadb/none", &options);
    let nodes = sandbox.nodes();
    let ended = load(
        nodes,
        &["--workload", "point-select", "--data-size", "100MB"],
    )
    .with_code(3);
    let _ = ended
        .stderr_contains("is full")
        .stderr_contains("rows of `sbtest1`")
        .stderr_contains("disk space");
    assert_clean(nodes);
}

/// Statements that take longer than [`LIMIT`], as an index over a large table does.
const SLOW_INDEX: &str = "size = 25\n[[table]]\nname = 'slow'\ncreate = 'CREATE TABLE slow (id INT PRIMARY KEY)'\n\
     after = ['DO SLEEP(1000)']\n[table.columns]\nid = {row = true}\n[[statement]]\nsql = 'SELECT 1'";

/// Starts a load, and waits until it runs the statement after the rows.
fn slow_index(tool: &TestEnvironment, nodes: &[Node]) -> Child {
    std::fs::write(tool.folder().join("slow.toml"), SLOW_INDEX).unwrap();
    let child = spawn(
        tool,
        nodes,
        &["--workload", "slow.toml", "--duration", "1s"],
    );
    wait_until("the statement runs", LIMIT, || sleeping(&nodes[0]));
    child
}

fn sleeping(node: &Node) -> bool {
    let rows = session(node).rows("test", "SHOW PROCESSLIST").unwrap();
    rows.iter().any(|row| row["Info"] == "DO SLEEP(1000)")
}

pub(super) fn interrupt_ends_a_long_statement_of_the_fill(nodes: &[Node]) {
    let tool = TestEnvironment::new();
    let child = slow_index(&tool, nodes);
    kill_process(pid(&child), Signal::INT).unwrap();
    let _ = wait(child, LIMIT).with_code(130);
    wait_until("the statement has ended", LIMIT, || !sleeping(&nodes[0]));
    assert!(tool.runs().is_empty());
}

pub(super) fn interrupt_ends_the_fill_of_a_frozen_primary() {
    let sandbox = start("mariadb/none", &[]);
    let tool = TestEnvironment::new();
    let child = slow_index(&tool, sandbox.nodes());
    let primary = Pid::from_raw(i32::try_from(sandbox.pids()[0]).unwrap()).unwrap();
    kill_process(primary, Signal::STOP).unwrap();
    kill_process(pid(&child), Signal::INT).unwrap();
    let ended = wait(child, LIMIT);
    kill_process(primary, Signal::CONT).unwrap();
    let _ = ended.with_code(130);
    let next = load(
        sandbox.nodes(),
        &["--workload", "insert", "--duration", "1s"],
    );
    let _ = finished(next);
}

/// Checks that a load of `insert` which is under way still writes its rows, and that none of its statements failed.
fn assert_unharmed(load: Child, node: &Node) {
    let before = inserted(node);
    wait_until("the load continues", LIMIT, || inserted(node) > before);
    let document = interrupted(load);
    let row = &document["results"]["rows"][0];
    assert_eq!(errors(row, |_| true), 0, "{row:#}");
}

fn lock_holder(node: &Node) -> Option<String> {
    value(node, "SELECT IS_USED_LOCK('replimeter.run')")
}

pub(super) fn run_that_lost_its_lock_keeps_the_next_runs_tables(nodes: &[Node]) {
    let primary = &nodes[0];
    let table = || {
        let comment = "SELECT table_comment FROM information_schema.tables WHERE table_schema = 'replimeter' AND table_name = 'load_insert'";
        value(primary, comment)
    };
    let (first, second) = (TestEnvironment::new(), TestEnvironment::new());
    let loses = counting(&first, nodes, 1, &["--rate", "20", "--duration", "10s"]);
    // It cannot take the lock again before the other run has it.
    kill_process(pid(&loses), Signal::STOP).unwrap();
    let (holder, old_table) = (lock_holder(primary).unwrap(), table());
    sql(primary, &format!("KILL {holder}"));
    let on_replica = lock_holder(&nodes[1]).expect("the lock is held on the replica too");
    sql(&nodes[1], &format!("KILL {on_replica}"));
    let args = "--workload insert --threads 1 --rate 20 --duration 600s";
    let takes = spawn(&second, nodes, &args.split(' ').collect::<Vec<_>>());
    wait_until("the other run has a table of its own", LIMIT, || {
        table().is_some_and(|now| Some(now) != old_table) && inserted(primary) > 0
    });
    assert!(lock_holder(primary).is_some_and(|now| now != holder));
    kill_process(pid(&loses), Signal::CONT).unwrap();
    let refused = wait(loses, LIMIT).with_code(3);
    let _ = refused.stderr_contains("another Replimeter run is measuring this server");
    assert_unharmed(takes, primary);
}

pub(super) fn fill_that_lost_its_lock_ends(nodes: &[Node]) {
    loses_its_lock_while_filling(nodes, |tool| {
        let size = large(&nodes[0]);
        spawn(
            tool,
            nodes,
            &["--workload", "point-select", "--data-size", &size],
        )
    });
}

pub(super) fn fill_of_a_background_load_ends_without_its_lock(nodes: &[Node]) {
    loses_its_lock_while_filling(nodes, |tool| {
        let (primary, replica) = (url(&nodes[0], ADMIN), url(&nodes[1], ADMIN));
        let size = large(&nodes[0]);
        let args = [
            "lag",
            "--primary",
            &primary,
            "--replica",
            &replica,
            "--timeout",
            "60s",
            "--load",
            "point-select:1@primary",
            "--load-data-size",
            &size,
        ];
        tool.command(&args)
            .env("REPLIMETER_PASSWORD", password(&nodes[0]))
            .spawn()
            .unwrap()
    });
}

/// Ends the connection that holds the lock of a run while the run fills its tables, and takes the lock as another run.
fn loses_its_lock_while_filling(nodes: &[Node], begin: impl FnOnce(&TestEnvironment) -> Child) {
    let tool = TestEnvironment::new();
    let child = begin(&tool);
    await_rows(&nodes[0]);
    let holder = lock_holder(&nodes[0]).unwrap();
    // It waits for the lock, and so has it before the run asks for it again.
    let mut other_run = session(&nodes[0]);
    let waiting = format!(
        "SELECT COUNT(*) FROM information_schema.processlist WHERE id = {} AND info LIKE '%GET_LOCK%'",
        other_run.connection_id()
    );
    let taking = thread::spawn(move || {
        let taken = other_run.value("test", "SELECT GET_LOCK('replimeter.run', 240)");
        (other_run, taken)
    });
    wait_until("the other run waits for the lock", LIMIT, || {
        value(&nodes[0], &waiting).as_deref() == Some("1")
    });
    sql(&nodes[0], &format!("KILL {holder}"));
    let (_other_run, taken) = taking.join().unwrap();
    assert_eq!(taken.unwrap().as_deref(), Some("1"));
    let ended = wait(child, LIMIT).with_code(3);
    let _ = ended.stderr_contains("another Replimeter run is measuring this server");
    assert!(
        tool.runs()
            .iter()
            .all(|run| !run.join("samples.parquet").exists()),
        "nothing was measured"
    );
}

pub(super) fn two_loads_on_two_galera_nodes_exclude_each_other() {
    let sandbox = shared("mariadb/galera:2", &[]);
    let nodes = sandbox.nodes();
    let other = [nodes[1].clone(), nodes[0].clone()];
    let (first, second) = (TestEnvironment::new(), TestEnvironment::new());
    let running = counting(&first, nodes, 1, &["--rate", "20", "--duration", "600s"]);
    let refused = load_with(
        &second,
        &other,
        &["--workload", "insert", "--duration", "1s"],
    );
    assert_unharmed(running, &nodes[0]);
    let _ = refused
        .with_code(3)
        .stderr_contains("another Replimeter run is measuring this server");
    assert_clean(nodes);
}
