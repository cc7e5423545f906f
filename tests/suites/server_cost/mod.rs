//! What each command costs a user's servers: the table of docs/reference/server-cost.md.

mod stalls;

use std::{
    collections::BTreeMap,
    fs,
    process::Child,
    time::{Duration, Instant},
};

use replimeter_engine::Node;
use replimeter_sandbox::Sandbox;
use replimeter_suites::{
    LIMIT, TestEnvironment, await_no_connections, binlog::binlog_end, harness::Test,
    most_connections, session, sql, start, test, url, value, wait,
};

pub(crate) const TESTS: &[Test] = &[
    test!(dry_run_states_the_connections).starts(2).long(),
    test!(stalls::stalls_of_mariadb_open_no_more_connections)
        .starts(6)
        .long(),
    test!(stalls::stalls_of_mysql_open_no_more_connections)
        .starts(6)
        .long(),
    // Alone, because it prints figures for a page.
    test!(cost_of_every_command_is_measured)
        .starts(4)
        .alone()
        .long(),
];

/// Every command that accepts a user's servers, with its defaults; those without an end have one.
const COMMANDS: [&str; 11] = [
    "doctor",
    "lag",
    "lag --method all --stages",
    "stale",
    "tap --duration 15s",
    "exposure --duration 15s",
    "watch --duration 15s",
    "watch --duration 15s --probe 1s",
    "front --duration 15s --listen 127.0.0.1:0",
    "load --workload oltp-mix --duration 15s",
    "backlog --build-up 10s",
];

/// The account of the tool; the tests' sessions have another.
const USER: &str = "probe";
const PASSWORD: &str = "probe";

fn spawn(tool: &TestEnvironment, nodes: &[Node], command: &str, more: &[&str]) -> Child {
    tool.command(&command.split(' ').collect::<Vec<_>>())
        .args([
            "--primary",
            &url(&nodes[0], USER),
            "--replica",
            &url(&nodes[1], USER),
        ])
        .args(more)
        .env("REPLIMETER_PASSWORD", PASSWORD)
        .spawn()
        .unwrap()
}

/// Starts a primary and a replica that count what an account does.
fn servers(shape: &str) -> Sandbox {
    let sandbox = start(
        shape,
        &[
            "performance_schema=ON",
            "performance_schema_instrument='transaction=ON'",
        ],
    );
    let primary = &sandbox.nodes()[0];
    sql(
        primary,
        &format!("CREATE USER {USER}@'%' IDENTIFIED BY '{PASSWORD}'"),
    );
    sql(primary, &format!("GRANT ALL ON *.* TO {USER}@'%'"));
    sandbox
}

/// Commands of this suite take up to a minute.
const COMMAND_LIMIT: Duration = Duration::from_secs(600);

/// Runs a command to its end; returns the largest number of its connections to each server, and its duration.
fn counted(nodes: &[Node], command: &str) -> (Vec<u64>, Duration) {
    let tool = TestEnvironment::new();
    let all: Vec<&Node> = nodes.iter().collect();
    await_no_connections(&all, USER);
    let began = Instant::now();
    let mut child = spawn(&tool, nodes, command, &[]);
    let most = most_connections(&all, USER, &mut child);
    let took = began.elapsed();
    let ended = wait(child, COMMAND_LIMIT);
    assert!(matches!(ended.code, Some(0 | 1)), "{command}: {ended:#?}");
    (most, took)
}

/// Returns the number of connections that a dry run states for each server.
fn stated(nodes: &[Node], command: &str) -> Vec<u64> {
    let ended = wait(
        spawn(&TestEnvironment::new(), nodes, command, &["--dry-run"]),
        LIMIT,
    );
    let stated = |role: &str| {
        let start = format!("#   cost     {role}: up to ");
        let line = ended
            .stdout
            .lines()
            .find_map(|line| line.strip_prefix(&start));
        let line = line.unwrap_or_else(|| panic!("no line of {role}: {ended:#?}"));
        line.split(' ').next().unwrap().parse().unwrap()
    };
    vec![stated("primary"), stated("each replica")]
}

fn dry_run_states_the_connections() {
    let sandbox = servers("mariadb/async:1");
    let nodes = sandbox.nodes();
    for command in [
        "lag --rounds 500 --floor-rounds 50 --timeout 2m",
        "lag --rounds 500 --floor-rounds 50 --timeout 2m --writers 3",
        "lag --rounds 500 --floor-rounds 50 --timeout 2m --method all --stages",
        "stale --rounds 1000 --curve-rounds 10",
        "stale --rounds 1000 --curve-rounds 10 --read-consistency",
        "tap --duration 5s",
        "exposure --duration 5s",
        "watch --duration 5s",
        "watch --duration 5s --probe 1s",
        "front --duration 5s --listen 127.0.0.1:0 --connections 5",
        "load --workload oltp-mix --data-size 1000 --duration 5s",
        "backlog --build-up 5s",
    ] {
        let (most, _) = counted(nodes, command);
        let stated = stated(nodes, command);
        println!("{command}: {most:?} connections, stated {stated:?}");
        for (most, stated) in most.iter().zip(&stated) {
            assert!(
                most <= stated,
                "{command}: {most} connections, {stated} stated"
            );
        }
        // A command that states more than it ever uses would never fail. Loads may be on any server.
        assert!(
            stated[0] <= most[0] + 4,
            "{command}: {most:?} connections, {stated:?} stated"
        );
    }
}

/// What a server has done so far.
struct Reading {
    status: BTreeMap<String, f64>,
    log: u64,
    cpu: Duration,
}

fn reading(node: &Node, pid: u32) -> Reading {
    let status = session(node).pairs("test", "SHOW GLOBAL STATUS").unwrap();
    let number = |(name, value): (String, String)| Some((name, value.parse().ok()?));
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    // User and system time, in hundredths of a second.
    let ticks: u64 = fields[11..13]
        .iter()
        .map(|ticks| ticks.parse::<u64>().unwrap())
        .sum();
    Reading {
        status: status.into_iter().filter_map(number).collect(),
        log: binlog_end(node).values().sum(),
        cpu: Duration::from_millis(ticks * 10),
    }
}

/// Returns the longest transaction, or statement that defines something, of the tool, in milliseconds.
fn longest_ms(node: &Node) -> f64 {
    let longest = |sql: &str| -> f64 {
        value(node, sql)
            .and_then(|longest| longest.parse().ok())
            .unwrap_or(0.0)
    };
    let transaction = format!(
        "SELECT MAX(max_timer_read_write) FROM performance_schema.events_transactions_summary_by_account_by_event_name WHERE user = '{USER}'"
    );
    let definition = format!(
        "SELECT MAX(max_timer_wait) FROM performance_schema.events_statements_summary_by_account_by_event_name WHERE user = '{USER}' \
         AND event_name REGEXP 'sql/(create|drop|alter|truncate|analyze)'"
    );
    longest(&transaction).max(longest(&definition)) / 1e9
}

fn cost_of_every_command_is_measured() {
    println!(
        "| server | command | role | connections | writes/s | statements/s | network kB/s | binary log kB/s | CPU | longest lock |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for shape in ["mariadb/async:1", "mysql/async:1"] {
        let sandbox = servers(shape);
        let nodes = sandbox.nodes();
        let read = || -> Vec<Reading> {
            let members = sandbox.members();
            nodes
                .iter()
                .zip(members)
                .map(|(node, member)| reading(node, member.pid))
                .collect()
        };
        for command in COMMANDS {
            for node in nodes {
                for table in ["transactions", "statements"] {
                    let table = format!("events_{table}_summary_by_account_by_event_name");
                    sql(node, &format!("TRUNCATE TABLE performance_schema.{table}"));
                }
            }
            let before = read();
            let (most, took) = counted(nodes, command);
            for (index, (before, after)) in before.iter().zip(read()).enumerate() {
                let per_second = |names: &[&str]| {
                    let sum = |reading: &Reading| {
                        names.iter().map(|name| reading.status[*name]).sum::<f64>()
                    };
                    (sum(&after) - sum(before)) / took.as_secs_f64()
                };
                let writes = ["Com_insert", "Com_update", "Com_delete"];
                println!(
                    "| {} | `{command}` | {} | {} | {:.0} | {:.0} | {:.0} | {:.1} | {:.1} % | {:.1} ms |",
                    shape.split('/').next().unwrap(),
                    ["primary", "replica"][index],
                    most[index],
                    per_second(&writes),
                    per_second(&["Questions"]),
                    per_second(&["Bytes_received", "Bytes_sent"]) / 1e3,
                    (after.log - before.log) as f64 / took.as_secs_f64() / 1e3,
                    (after.cpu - before.cpu).as_secs_f64() / took.as_secs_f64() * 100.0,
                    longest_ms(&nodes[index]),
                );
            }
        }
    }
}
