//! What Replimeter writes to servers, as their binary logs have it: small transactions, in its own schema.

mod own_schema;

use std::{collections::BTreeMap, fs};

use replimeter_engine::Node;
use replimeter_suites::{
    LIMIT, TestEnvironment,
    binlog::{BinlogEvent, binlog_end, transactions_since},
    harness::Test,
    password, session, shared, test, url, wait,
};

pub(crate) const TESTS: &[Test] = &[
    test!(transactions_are_small_on_galera).long(),
    test!(transactions_are_small_in_a_group).long(),
    test!(own_schema::every_command_writes_only_its_schema_on_mariadb).long(),
    test!(own_schema::every_command_writes_only_its_schema_on_mysql).long(),
    test!(own_schema::commands_write_only_their_schema_on_a_mariadb_chain).long(),
    test!(own_schema::commands_write_only_their_schema_on_a_mysql_chain).long(),
    test!(own_schema::commands_write_only_their_schema_on_a_mariadb_ring).long(),
    test!(own_schema::commands_write_only_their_schema_on_a_mysql_ring).long(),
    test!(own_schema::mariadb_with_two_sources_gets_the_schema_only)
        .starts(1)
        .long(),
    test!(own_schema::mysql_with_two_sources_gets_the_schema_only)
        .starts(1)
        .long(),
    test!(tiny_rows_are_small_transactions_on_galera).long(),
    test!(tiny_rows_are_small_transactions_in_a_group).long(),
];

/// Rows of 8 bytes, more than a transaction may have, and an index over them.
const TINY: &str = r#"
size = 25000
[[table]]
name = "tiny"
create = "CREATE TABLE tiny (id INT NOT NULL PRIMARY KEY, k INT NOT NULL, KEY k (k)) ENGINE=InnoDB"
[table.columns]
id = {row = true}
k = {uniform = [1, 9]}
[[statement]]
sql = "UPDATE tiny SET k = k + 1 WHERE id = :id"
id = {uniform = [1, "rows"]}
"#;

/// Rows of which ten are a transaction; some have a tenth of the size.
const WIDE: &str = r#"
size = 40
[[table]]
name = "wide"
create = "CREATE TABLE wide (id INT NOT NULL PRIMARY KEY, k INT NOT NULL, t MEDIUMTEXT NOT NULL) ENGINE=InnoDB"
[table.columns]
id = {row = true}
k = {value = 1}
t = {text = [10000, 100000]}
[[statement]]
sql = "UPDATE wide SET k = k + 1 WHERE id = :id"
id = {uniform = [1, "rows"]}
"#;

/// The servers' limit of a transaction in bytes: 1 MiB of rows, and what a log adds to them. Rows of 8 bytes have more
/// of that than data.
const LARGEST: u64 = 3 << 19;

const GALERA: (&str, &[&str]) = (
    "galera:2",
    &[
        "wsrep_max_ws_size=1572864",
        "wsrep_max_ws_rows=10000",
        "binlog_annotate_row_events=OFF",
        "innodb_flush_log_at_trx_commit=0",
    ],
);
const GROUP: (&str, &[&str]) = (
    "group:2",
    &[
        "loose_group_replication_transaction_size_limit=1572864",
        "innodb_flush_log_at_trx_commit=0",
        "sync_binlog=0",
    ],
);

const MEMBERS: [&str; 2] = ["--node"; 2];

/// Runs a command on servers as their administrator; it must succeed.
fn run(nodes: &[Node], roles: [&str; 2], command: &[&str]) {
    let tool = TestEnvironment::new();
    for (name, text) in [("tiny.toml", TINY), ("wide.toml", WIDE)] {
        fs::write(tool.folder().join(name), text).unwrap();
    }
    let mut args: Vec<String> = command.iter().map(|arg| (*arg).to_owned()).collect();
    for (node, role) in nodes.iter().zip(roles) {
        args.extend([role.to_owned(), url(node, "replimeter")]);
    }
    finish(&tool, &nodes[0], &args);
}

/// Runs a command with the administrator's password to its end.
fn finish(tool: &TestEnvironment, node: &Node, args: &[String]) {
    let mut command = tool.command(args);
    command.env("REPLIMETER_PASSWORD", password(node));
    // 101,000 rows in a group take minutes on a busy machine.
    let _ = wait(command.spawn().unwrap(), 5 * LIMIT).with_code(0);
}

/// Checks the size of all transactions since a place, and prints the largest.
fn assert_small(node: &Node, since: &BTreeMap<String, u64>) {
    let transactions = transactions_since(node, since);
    let bytes = |events: &Vec<_>| {
        events
            .iter()
            .map(|event: &BinlogEvent| event.bytes)
            .sum::<u64>()
    };
    let largest = transactions
        .iter()
        .max_by_key(|events| bytes(events))
        .unwrap();
    println!(
        "{node}: the largest of {} transactions has {} bytes",
        transactions.len(),
        bytes(largest)
    );
    assert!(
        bytes(largest) <= LARGEST,
        "{:?}",
        &largest[..largest.len().min(9)]
    );
    // The test would also pass if the logs had nothing. 10,000 tiny rows are 261,196 bytes on MariaDB.
    assert!(bytes(largest) > 1 << 17, "{largest:?}");
}

fn transactions_are_small((shape, options): (&str, &[&str])) {
    let sandbox = shared(shape, options);
    let nodes = sandbox.nodes();
    let since = binlog_end(&nodes[0]);
    let load = |workload: &str, more: &[&str]| {
        let args = [
            "load",
            "--workload",
            workload,
            "--duration",
            "1s",
            "--threads",
            "2",
        ];
        run(nodes, MEMBERS, &[&args[..], more].concat());
    };
    let mut session = session(&nodes[0]);
    for (workload, column, values) in [
        ("tiny.toml", "id, k", "@row, 1"),
        ("wide.toml", "id, k, t", "@row, 1, REPEAT('x', 100000)"),
    ] {
        load(workload, &["--keep-data"]);
        let table = workload.trim_end_matches(".toml");
        // Rows as a load adds them, more than a transaction may have; ten statements for the server's limit.
        let rows = if table == "tiny" { 1250 } else { 5 };
        session.run("test", "SET @row = 30000").unwrap();
        for _ in 0..10 {
            let values: Vec<String> = (0..rows)
                .map(|_| format!("({})", values.replace("@row", "(@row := @row + 1)")))
                .collect();
            let sql = format!(
                "INSERT INTO replimeter.{table} ({column}) VALUES {}",
                values.join(",")
            );
            session.run("test", &sql).unwrap();
        }
        // Reuses the data without these rows, and removes it.
        load(workload, &[]);
    }
    let lag = [
        "lag",
        "--row-size",
        "500000",
        "--rounds",
        "140",
        "--floor-rounds",
        "140",
        "--pace",
        "ack",
        "--timeout",
        "60s",
    ];
    run(nodes, MEMBERS, &lag);
    assert_small(&nodes[0], &since);
}

fn transactions_are_small_on_galera() {
    transactions_are_small(GALERA);
}

fn transactions_are_small_in_a_group() {
    transactions_are_small(GROUP);
}

/// Empties the table at its limit of rows.
fn tiny_rows_are_small((shape, options): (&str, &[&str])) {
    let sandbox = shared(shape, options);
    let nodes = sandbox.nodes();
    let since = binlog_end(&nodes[0]);
    let lag = [
        "lag",
        "--row-size",
        "1",
        "--rounds",
        "101000",
        "--pace",
        "ack",
        "--writers",
        "8",
        "--timeout",
        "60s",
    ];
    run(nodes, MEMBERS, &lag);
    assert_small(&nodes[0], &since);
}

fn tiny_rows_are_small_transactions_on_galera() {
    tiny_rows_are_small(GALERA);
}

fn tiny_rows_are_small_transactions_in_a_group() {
    tiny_rows_are_small(GROUP);
}
