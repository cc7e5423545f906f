//! Servers of the user that are named by their Unix sockets.

use std::process::Command;

use replimeter_engine::Node;
use replimeter_suites::{
    LIMIT, TestEnvironment, by_socket, harness::Test, password, shared, sql, start, test, url,
    value, wait,
};
use serde_json::Value;

pub(crate) const TESTS: &[Test] = &[
    test!(mariadb_is_measured_through_its_socket).starts(2),
    test!(mysql_is_measured_through_its_socket),
];

/// Runs a command on these servers, the primary first.
fn run(user: &str, secret: &str, nodes: &[&Node], args: &[&str]) -> Value {
    let tool = TestEnvironment::new();
    let mut words: Vec<String> = args.iter().map(|&word| word.to_owned()).collect();
    for (option, node) in ["--primary", "--replica"].into_iter().zip(nodes) {
        words.extend([option.to_owned(), url(node, user)]);
    }
    words.push("--json".to_owned());
    let mut command = tool.command(&words);
    let child = command.env("REPLIMETER_PASSWORD", secret).spawn().unwrap();
    wait(child, LIMIT).with_code(0).json()
}

/// Loads the primary through its socket; the process of the server is found by it.
fn assert_loaded(user: &str, secret: &str, node: &Node) {
    let args = "load --workload point-select --threads 2 --duration 1s --data-size 1000 --unasked-replicas";
    let args = Vec::from_iter(args.split(' '));
    let document = run(user, secret, &[node], &args);
    let row = &document["results"]["rows"][0];
    assert!(row["passes"].as_u64() > Some(0), "{row:#}");
    assert_eq!(row["failed"].as_u64(), Some(0), "{row:#}");
    let used = &row["servers"][0]["cpu_us_per_op"];
    assert!(used.is_number(), "{row:#}");
}

fn mariadb_is_measured_through_its_socket() {
    // Servers of its own: the account may be one of the sandbox's.
    let sandbox = start("mariadb/async:1", &[]);
    let [mut primary, replica] = [0, 1].map(|index| by_socket(&sandbox.members()[index]));
    // As a package of Debian creates its administrator: the system's user needs no password.
    let user = Command::new("id").arg("-un").output().unwrap().stdout;
    let user = String::from_utf8(user).unwrap().trim().to_owned();
    let name = format!("`{user}`@localhost");
    let node = &sandbox.nodes()[0];
    sql(
        node,
        &format!("CREATE OR REPLACE USER {name} IDENTIFIED VIA unix_socket"),
    );
    sql(node, &format!("GRANT ALL ON *.* TO {name}"));
    let position = value(node, "SELECT @@gtid_binlog_pos").unwrap();
    let arrived = format!("SELECT MASTER_GTID_WAIT('{position}', 240)");
    assert_eq!(value(&sandbox.nodes()[1], &arrived).as_deref(), Some("0"));

    let args = [
        "lag",
        "--rounds",
        "20",
        "--floor-rounds",
        "0",
        "--timeout",
        "60s",
    ];
    let document = run(&user, "", &[&primary, &replica], &args);
    let found = &document["results"]["rows"][0];
    assert_eq!(found["from_ack"]["count"].as_u64(), Some(20), "{found:#}");
    assert_loaded(&user, "", &primary);

    primary.endpoint.socket = Some("/missing.sock".into());
    let tool = TestEnvironment::new();
    let _ = tool
        .run(&["load", "--primary", &url(&primary, &user)])
        .with_code(3)
        .stderr_contains("/missing.sock")
        .stderr_contains("check that the server runs, and the path of its socket");
}

fn mysql_is_measured_through_its_socket() {
    let sandbox = shared("mysql/none", &[]);
    let node = &sandbox.nodes()[0];
    // The password is not in the server's cache, which therefore asks for it: a socket is as good as encryption.
    let secret = password(node);
    sql(
        node,
        &format!("CREATE USER local@localhost IDENTIFIED WITH caching_sha2_password BY '{secret}'"),
    );
    sql(node, "GRANT ALL ON *.* TO local@localhost");
    assert_loaded("local", secret, &by_socket(&sandbox.members()[0]));
    sql(node, "DROP USER local@localhost");
}
