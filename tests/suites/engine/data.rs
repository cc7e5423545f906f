//! Data sets: filled, reused, stored and removed.

use std::{process::Child, time::Duration};

use replimeter_engine::Node;
use replimeter_suites::{
    LIMIT, TestEnvironment, password, session, sql, start, url, value, wait, wait_until,
};
use rustix::process::{Pid, Signal, kill_process};

use super::{
    ADMIN, RELAXED, assert_clean, codes, load, load_with, number, pid, run_file, spawn,
    statements_of, with_global,
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
            "1s",
            "--threads",
            "2",
            "--reads",
            "primary",
        ];
        load(nodes, &args).with_code(0).json()
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
    let _ = load(
        nodes,
        &[
            "--workload",
            "select",
            "--data-size",
            "100",
            "--duration",
            "1s",
        ],
    )
    .with_code(0);
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

pub(super) fn interrupted_fill_leaves_nothing(nodes: &[Node]) {
    let tool = TestEnvironment::new();
    let child = spawn(
        &tool,
        nodes,
        &[
            "--workload",
            "point-select",
            "--data-size",
            "4GB",
            "--duration",
            "1s",
        ],
    );
    wait_until("the data set is being filled", LIMIT, || {
        let rows = session(&nodes[0]).value("test", "SELECT 1 FROM replimeter.sbtest1 LIMIT 1");
        rows.ok().flatten().is_some()
    });
    kill_process(pid(&child), Signal::INT).unwrap();
    let _ = wait(child, Duration::from_secs(60)).with_code(130);
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
            let once = ["--duration", "1s", "--keep-data", "--threads", "1"];
            run_file(nodes, &text, &once)
        })
    };
    // Returns a checksum, and how many files and inserts filled the tables.
    let filled = |tables: &str, check: &str, setting| {
        let before = counters();
        let _ = load_once(tables, setting).with_code(0);
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

pub(super) fn rows_of_a_file_equal_inserted_ones_on_mysql() {
    let sandbox = start("mysql/none", &RELAXED);
    rows_of_a_file_equal_inserted_ones(sandbox.nodes());
}

/// A tablespace that may not grow simulates a full disk.
pub(super) fn full_disk_ends_the_fill() {
    let options = [
        RELAXED.as_slice(),
        &[
            "innodb_file_per_table=0",
            "innodb_data_file_path=ibdata1:12M:autoextend:max:40M",
        ],
    ]
    .concat();
    let sandbox = start("mariadb/none", &options);
    let nodes = sandbox.nodes();
    let ended = load(
        nodes,
        &[
            "--workload",
            "point-select",
            "--data-size",
            "200MB",
            "--duration",
            "1s",
        ],
    )
    .with_code(3);
    let _ = ended
        .stderr_contains("is full")
        .stderr_contains("rows of `sbtest1`")
        .stderr_contains("disk space");
    assert_clean(nodes);
}

/// Statements that take longer than any test, as an index over a large table does.
const SLOW_INDEX: &str = "size = 25\n[[table]]\nname = 'slow'\ncreate = 'CREATE TABLE slow (id INT PRIMARY KEY)'\n\
     after = ['DO SLEEP(300)']\n[table.columns]\nid = {row = true}\n[[statement]]\nsql = 'SELECT 1'";

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
    rows.iter().any(|row| row["Info"] == "DO SLEEP(300)")
}

pub(super) fn interrupt_ends_a_long_statement_of_the_fill(nodes: &[Node]) {
    let tool = TestEnvironment::new();
    let child = slow_index(&tool, nodes);
    kill_process(pid(&child), Signal::INT).unwrap();
    let _ = wait(child, Duration::from_secs(15)).with_code(130);
    assert!(!sleeping(&nodes[0]), "it does not run any more");
    assert!(tool.runs().is_empty());
}

pub(super) fn interrupt_ends_the_fill_of_a_frozen_primary() {
    let sandbox = start("mariadb/none", &RELAXED);
    let tool = TestEnvironment::new();
    let child = slow_index(&tool, sandbox.nodes());
    let primary = Pid::from_raw(i32::try_from(sandbox.pids()[0]).unwrap()).unwrap();
    kill_process(primary, Signal::STOP).unwrap();
    kill_process(pid(&child), Signal::INT).unwrap();
    let ended = wait(child, Duration::from_secs(40));
    kill_process(primary, Signal::CONT).unwrap();
    let _ = ended.with_code(130);
    let next = load(
        sandbox.nodes(),
        &["--workload", "insert", "--duration", "1s"],
    );
    let _ = next.with_code(0);
}

/// Starts a load of `insert`, and waits until it writes.
fn inserts(tool: &TestEnvironment, nodes: &[Node], duration: &str) -> Child {
    let child = spawn(
        tool,
        nodes,
        &["--workload", "insert", "--duration", duration],
    );
    wait_until("the load writes", LIMIT, || {
        let rows = session(&nodes[0]).value("test", "SELECT 1 FROM replimeter.load_insert LIMIT 1");
        rows.ok().flatten().is_some()
    });
    child
}

pub(super) fn run_that_lost_its_lock_keeps_the_next_runs_tables(nodes: &[Node]) {
    let (first, second) = (TestEnvironment::new(), TestEnvironment::new());
    let loses = inserts(&first, nodes, "5s");
    let holder = value(&nodes[0], "SELECT IS_USED_LOCK('replimeter.run')").unwrap();
    sql(&nodes[0], &format!("KILL {holder}"));
    let takes = spawn(
        &second,
        nodes,
        &["--workload", "insert", "--duration", "9s"],
    );
    let refused = wait(loses, LIMIT).with_code(3);
    let _ = refused.stderr_contains("another Replimeter run is measuring this server");
    let _ = wait(takes, LIMIT).with_code(0);
}

pub(super) fn fill_that_lost_its_lock_ends(nodes: &[Node]) {
    loses_its_lock_while_filling(nodes, |tool| {
        let large = ["--workload", "point-select", "--data-size", "4GB"];
        spawn(tool, nodes, &large)
    });
}

pub(super) fn fill_of_a_background_load_ends_without_its_lock(nodes: &[Node]) {
    loses_its_lock_while_filling(nodes, |tool| {
        let (primary, replica) = (url(&nodes[0], ADMIN), url(&nodes[1], ADMIN));
        let large = [
            "--load",
            "point-select:1@primary",
            "--load-data-size",
            "4GB",
        ];
        tool.command(
            &[
                &["lag", "--primary", &primary, "--replica", &replica],
                &large[..],
            ]
            .concat(),
        )
        .env("REPLIMETER_PASSWORD", password(&nodes[0]))
        .spawn()
        .unwrap()
    });
}

/// Ends the connection that holds the lock of a run while the run fills its tables, and takes the lock as another run.
fn loses_its_lock_while_filling(nodes: &[Node], begin: impl FnOnce(&TestEnvironment) -> Child) {
    let tool = TestEnvironment::new();
    let child = begin(&tool);
    wait_until("the data set is being filled", LIMIT, || {
        let rows = session(&nodes[0]).value("test", "SELECT 1 FROM replimeter.sbtest1 LIMIT 1");
        rows.ok().flatten().is_some()
    });
    let holder = value(&nodes[0], "SELECT IS_USED_LOCK('replimeter.run')").unwrap();
    let mut other_run = session(&nodes[0]);
    for statement in [
        &format!("KILL {holder}"),
        "DO GET_LOCK('replimeter.run', 10)",
    ] {
        other_run.run("test", statement).unwrap();
    }
    let ended = wait(child, Duration::from_secs(60)).with_code(3);
    let _ = ended.stderr_contains("another Replimeter run is measuring this server");
    assert!(
        tool.runs()
            .iter()
            .all(|run| !run.join("samples.parquet").exists()),
        "nothing was measured"
    );
}

pub(super) fn two_loads_on_two_galera_nodes_exclude_each_other() {
    let sandbox = start("mariadb/galera:2", &RELAXED);
    let nodes = sandbox.nodes();
    let other = [nodes[1].clone(), nodes[0].clone()];
    let (first, second) = (TestEnvironment::new(), TestEnvironment::new());
    let running = inserts(&first, nodes, "5s");
    let refused = load_with(
        &second,
        &other,
        &["--workload", "insert", "--duration", "1s"],
    );
    let _ = wait(running, LIMIT).with_code(0);
    let _ = refused
        .with_code(3)
        .stderr_contains("another Replimeter run is measuring this server");
}
