//! The server that is measured is the one that was named, also behind a load balancer.

use std::process::Child;

use replimeter_engine::Node;
use replimeter_suites::{
    Balancer, CommandOutput, LIMIT, TestEnvironment, clean, harness::Test, password, shared, sql,
    test, url, value, wait, wait_until,
};

use rustix::process::{Pid, Signal, kill_process};

pub(crate) const TESTS: &[Test] = &[
    test!(servers_behind_a_balancer_are_not_mixed),
    test!(servers_behind_a_balancer_are_not_mixed_on_mysql),
    test!(what_no_connection_met_is_reported_at_the_end),
];

const ADMIN: &str = "replimeter";

/// Commands of a primary and a replica, each as it is run, and whether it takes a replica.
const COMMANDS: [(&str, bool); 7] = [
    ("tap --duration 1s --floor-duration 0", true),
    ("lag --rounds 20 --floor-rounds 5 --warm-up 5", true),
    ("stale --rows 4 --duration 500ms --read-delays none", true),
    ("exposure --duration 1s", true),
    ("backlog --build-up 1s", true),
    ("front --listen 127.0.0.1:0 --duration 1s", true),
    ("load --workload insert --threads 4 --duration 1s", false),
];

/// Starts a command on the servers with these URLs, the primary first.
fn begin(tool: &TestEnvironment, node: &Node, line: &str, urls: &[String]) -> Child {
    let mut args: Vec<String> = line.split(' ').map(str::to_owned).collect();
    for (role, url) in ["--primary", "--replica"].into_iter().zip(urls) {
        args.extend([role.to_owned(), url.clone()]);
    }
    let mut command = tool.command(&args);
    let begun = command.env("REPLIMETER_PASSWORD", password(node)).spawn();
    begun.unwrap()
}

/// Returns what the server has written, in its own notation.
fn written(shape: &str, node: &Node) -> Option<String> {
    let sql = match shape.starts_with("mysql") {
        true => "SELECT @@GLOBAL.gtid_executed",
        false => "SELECT @@GLOBAL.gtid_binlog_pos",
    };
    value(node, sql)
}

/// Checks that a failure names both servers, and what to do.
fn refused(ended: CommandOutput, nodes: &[Node]) {
    let ended = ended
        .with_code(3)
        .stderr_contains("two connections reached different servers (")
        .stderr_contains("name the servers behind the load balancer");
    for node in nodes {
        let port = format!(":{} ", node.endpoint.port);
        assert!(ended.stderr.contains(&port), "{port}: {ended:#?}");
    }
}

fn servers_behind_a_balancer_are_not_mixed() {
    not_mixed("mariadb/async:1");
}

fn servers_behind_a_balancer_are_not_mixed_on_mysql() {
    not_mixed("mysql/async:1");
}

fn not_mixed(shape: &str) {
    let sandbox = shared(shape, &[]);
    let nodes = sandbox.nodes();
    let [primary, replica] = nodes else {
        panic!("not a primary and a replica");
    };
    let tool = TestEnvironment::new();
    let before = written(shape, primary);
    for (line, takes_replica) in COMMANDS {
        // Every second connection to the named server reaches the other one.
        let ended = if takes_replica {
            let balancer = Balancer::start(&[replica, primary]);
            let named = [url(primary, ADMIN), balancer.url(ADMIN)];
            wait(begin(&tool, primary, line, &named), LIMIT)
        } else {
            let balancer = Balancer::start(&[primary, replica]);
            wait(begin(&tool, primary, line, &[balancer.url(ADMIN)]), LIMIT)
        };
        refused(ended, nodes);
        assert_eq!(written(shape, primary), before, "{shape}: {line}");
    }
    assert!(clean(primary) && clean(replica));

    // The replica fails over to the primary while it is followed.
    let balancer = Balancer::start(&[replica]);
    let named = [url(primary, ADMIN), balancer.url(ADMIN)];
    let run = begin(
        &tool,
        primary,
        "tap --duration 600s --floor-duration 0",
        &named,
    );
    let streams =
        "SELECT COUNT(*) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'";
    wait_until("the replica is followed", LIMIT, || {
        value(replica, streams).as_deref() != Some("0")
    });
    balancer.redirect_to(&[primary]);
    balancer.cut();
    refused(wait(run, LIMIT), nodes);
}

/// Returns statements that change a replica without a trace in what `exposure` reads, and those that restore it. `GTIDS` stands for what the
/// primary has executed.
fn changes(shape: &str) -> [&'static [&'static str]; 2] {
    match shape {
        "mysql/async:1" => [
            &[
                "STOP REPLICA",
                "RESET BINARY LOGS AND GTIDS",
                "SET GLOBAL gtid_purged = 'GTIDS'",
                "CHANGE REPLICATION SOURCE TO SOURCE_HOST = 'localhost'",
                "SET GLOBAL read_only = NOT @@GLOBAL.read_only",
            ],
            &[
                "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1'",
                "START REPLICA",
            ],
        ],
        _ => [
            &[
                "STOP SLAVE",
                "RESET MASTER",
                "CHANGE MASTER TO MASTER_HOST = 'localhost'",
                "SET GLOBAL read_only = NOT @@GLOBAL.read_only",
            ],
            &["CHANGE MASTER TO MASTER_HOST = '127.0.0.1'", "START SLAVE"],
        ],
    }
}

fn what_no_connection_met_is_reported_at_the_end() {
    for shape in ["mariadb/async:1", "mysql/async:1"] {
        let sandbox = shared(shape, &[]);
        let [primary, replica] = sandbox.nodes() else {
            panic!("not a primary and a replica");
        };
        let settings = ["read_only", "super_read_only"]
            .into_iter()
            .take(if shape.starts_with("mysql") { 2 } else { 1 })
            .map(|name| {
                let before = value(replica, &format!("SELECT @@GLOBAL.{name}")).unwrap();
                format!("SET GLOBAL {name} = {before}")
            });
        let settings: Vec<String> = settings.collect();
        sql(primary, "CREATE DATABASE shop");
        wait_until("the replica has it", LIMIT, || {
            let found = "SELECT 1 FROM information_schema.schemata WHERE schema_name = 'shop'";
            value(replica, found).is_some()
        });
        let tool = TestEnvironment::new();
        let streams =
            "SELECT COUNT(*) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'";
        let streams = || value(primary, streams).unwrap();
        let before = streams();
        let named = [primary, replica].map(|node| url(node, ADMIN));
        let run = begin(&tool, primary, "exposure --json --duration 600s", &named);
        wait_until("the run follows the primary", LIMIT, || streams() != before);
        let [change, restore] = changes(shape);
        for statement in change {
            let statement = match statement.contains("GTIDS'") {
                true => statement.replace(
                    "GTIDS'",
                    &format!(
                        "{}'",
                        value(primary, "SELECT @@GLOBAL.gtid_executed").unwrap()
                    ),
                ),
                false => (*statement).to_owned(),
            };
            sql(replica, &statement);
        }
        kill_process(Pid::from_child(&run), Signal::INT).unwrap();
        let ended = wait(run, LIMIT);
        for statement in restore {
            sql(replica, statement);
        }
        settings
            .iter()
            .for_each(|statement| sql(replica, statement));
        let warnings = ended.with_code(130).json()["warnings"].to_string();
        for fact in [
            "its binary log was reset during the run",
            "replicates from localhost:",
            "became ",
        ] {
            assert!(warnings.contains(fact), "{shape}, {fact}: {warnings}");
        }
    }
}
