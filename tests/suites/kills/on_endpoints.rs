//! SIGKILL of every command on a user's servers: what it leaves, and that the next run leaves nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Child,
    thread,
    time::{Duration, Instant},
};

use replimeter_engine::Node;
use replimeter_suites::{
    LIMIT, TestEnvironment, clean, session, shared, sql, url, value, wait, wait_until,
};

use super::{assert_explained, is_certain, kill, random};

/// A command that runs for longer than the latest kill takes, and a short run of it.
type Commands = (&'static str, &'static str);

/// Those of few kills.
const FEW: [Commands; 2] = [
    (
        "lag --duration 60s --timeout 60s",
        "lag --rounds 5 --floor-rounds 5 --timeout 60s",
    ),
    BACKLOG,
];

const LAG: &str = "lag --rounds 5 --floor-rounds 5 --timeout 60s";
const STALE: &str = "stale --rounds 5 --curve-rounds 1 --timeout 60s";
const LOAD: &str = "load --workload oltp-mix --data-size 100 --duration 1s";

const BACKLOG: Commands = (
    "backlog --build-up 60s --load update-key:1@primary --load-data-size 20000 --timeout 60s",
    "backlog --build-up 1s --load update-key:1@primary --load-data-size 100 --timeout 60s",
);

/// All that accept a user's servers, with those of their options that create something there.
const ALL: [Commands; 15] = [
    ("lag --duration 60s --timeout 60s", LAG),
    (
        "lag --method all --stages --duration 60s --timeout 60s",
        LAG,
    ),
    (
        "lag --method stamp --join federated --duration 60s --timeout 60s",
        LAG,
    ),
    (
        "lag --load oltp-mix:2@primary --load-data-size 20000 --duration 60s --timeout 60s",
        "lag --rounds 5 --floor-rounds 5 --timeout 60s --load oltp-mix:2@primary --load-data-size 100",
    ),
    ("stale --duration 60s --timeout 60s", STALE),
    (
        "stale --read-consistency --session-reset reset --duration 60s --timeout 60s",
        STALE,
    ),
    (
        "stale --check-load-reads=2:2 --load-data-size 20000 --duration 60s --timeout 60s",
        "stale --check-load-reads=2:2 --load-data-size 100 --duration 1s --timeout 60s",
    ),
    (
        "load --workload oltp-mix --data-size 20000 --duration 60s",
        LOAD,
    ),
    (
        "load --workload insert --threads 4 --duration 60s",
        "load --workload insert --duration 300ms",
    ),
    BACKLOG,
    (
        "backlog --workers 2,4 --build-up 60s --timeout 60s",
        "backlog --build-up 1s --timeout 60s",
    ),
    (
        "front --data-size 5000 --duration 60s --listen 127.0.0.1:0",
        "front --data-size 100 --duration 300ms --listen 127.0.0.1:0",
    ),
    ("tap --duration 60s", "tap --duration 300ms"),
    ("exposure --duration 60s", "exposure --duration 300ms"),
    ("doctor", "doctor"),
];

/// The account of the tool; the tests' sessions have another.
const USER: &str = "probe";
const PASSWORD: &str = "probe";

fn spawn(nodes: &[Node], tool: &TestEnvironment, command: &str) -> Child {
    let [primary, replica] = [&nodes[0], &nodes[1]].map(|node| url(node, USER));
    tool.command(&command.split(' ').collect::<Vec<_>>())
        .args(["--primary", &primary, "--replica", &replica])
        .env("REPLIMETER_PASSWORD", PASSWORD)
        .spawn()
        .unwrap()
}

/// What a command can leave.
const KINDS: [&str; 7] = [
    "tables",
    "schema",
    "locks",
    "connections",
    "stopped applier",
    "settings",
    "accounts and functions",
];

/// Global settings of a server, but what it changes itself; and its accounts, loadable functions, plugins and events.
fn settings(node: &Node) -> [BTreeSet<String>; 2] {
    let mut session = session(node);
    let mut names = |sql: &str| -> Vec<String> {
        let rows = session.rows("test", sql).unwrap();
        rows.into_iter()
            .map(|row| row.values().cloned().collect::<Vec<_>>().join(" "))
            .collect()
    };
    let variables = names("SHOW GLOBAL VARIABLES");
    let own = |line: &String| {
        !["gtid", "timestamp", "last_", "identity"]
            .iter()
            .any(|word| line.to_ascii_lowercase().contains(word))
    };
    let mut others = names("SELECT CONCAT(user, '@', host) AS name FROM mysql.user");
    others.extend(names("SELECT name FROM mysql.func"));
    others.extend(names("SELECT plugin_name FROM information_schema.plugins"));
    others.extend(names("SELECT event_name FROM information_schema.events"));
    [
        variables.into_iter().filter(own).collect(),
        others.into_iter().collect(),
    ]
}

/// A user's servers before any run.
struct Servers<'a> {
    nodes: &'a [Node],
    mysql: bool,
    before: Vec<[BTreeSet<String>; 2]>,
}

impl Servers<'_> {
    fn applies(&self) -> bool {
        let (status, column) = if self.mysql {
            ("SHOW REPLICA STATUS", "Replica_SQL_Running")
        } else {
            ("SHOW ALL SLAVES STATUS", "Slave_SQL_Running")
        };
        session(&self.nodes[1]).rows("test", status).unwrap()[0][column] == "Yes"
    }

    fn tables(&self) -> u64 {
        let count = |node| -> u64 {
            let sql =
                "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'replimeter'";
            value(node, sql).unwrap().parse().unwrap()
        };
        self.nodes.iter().map(count).max().unwrap_or(0)
    }

    /// Returns which of [`KINDS`] are there now.
    fn left(&self) -> [bool; KINDS.len()] {
        let any = |sql: &str| self.nodes.iter().any(|node| value(node, sql).is_some());
        let connections =
            format!("SELECT 1 FROM information_schema.processlist WHERE user = '{USER}' LIMIT 1");
        let now: Vec<_> = self.nodes.iter().map(settings).collect();
        let differs = |kind: usize| {
            now.iter()
                .zip(&self.before)
                .any(|(now, before)| now[kind] != before[kind])
        };
        [
            self.tables() > 0,
            !self.nodes.iter().all(clean),
            any("SELECT IS_USED_LOCK('replimeter.run')"),
            any(&connections),
            !self.applies(),
            differs(0),
            differs(1),
        ]
    }

    /// Waits until nothing is left; names what is.
    fn await_nothing(&self, context: &str) {
        let mut last = self.left();
        let limit = Instant::now() + LIMIT;
        while last != [false; KINDS.len()] {
            let named: Vec<_> = KINDS.iter().zip(last).filter(|(_, left)| *left).collect();
            assert!(Instant::now() < limit, "{context}: {named:?}");
            thread::sleep(Duration::from_millis(50));
            last = self.left();
        }
    }
}

/// Kills commands in turn; after each one another run works, nothing is left, and a row of a user is replicated.
fn kills(mysql: bool, commands: &[Commands], kills: u64) {
    let mut random = random();
    let (shape, federated) = if mysql {
        ("mysql/async:1", "federated")
    } else {
        ("mariadb/async:1", "plugin_load_add=ha_federatedx")
    };
    let sandbox = shared(shape, &[federated]);
    let nodes = sandbox.nodes();
    for statement in [
        &format!("CREATE USER {USER}@'%' IDENTIFIED BY '{PASSWORD}'"),
        &format!("GRANT ALL ON *.* TO {USER}@'%'"),
        "CREATE DATABASE users",
        "CREATE TABLE users.t (id BIGINT UNSIGNED PRIMARY KEY)",
    ] {
        sql(&nodes[0], statement);
    }
    let arrived = |row: u64| {
        wait_until("the row of a user arrives", LIMIT, || {
            let found = session(&nodes[1])
                .value("test", &format!("SELECT 1 FROM users.t WHERE id = {row}"));
            found.is_ok_and(|found| found.is_some())
        });
    };
    sql(&nodes[0], &format!("INSERT INTO users.t VALUES ({kills})"));
    arrived(kills);
    let servers = Servers {
        nodes,
        mysql,
        before: nodes.iter().map(settings).collect(),
    };
    let mut table: BTreeMap<&str, (u64, [u64; KINDS.len()], u64)> = BTreeMap::new();
    for number in 0..kills {
        let (command, next) = commands[number as usize % commands.len()];
        let reads = ["tap", "exposure", "doctor"].contains(&command.split(' ').next().unwrap());
        let tool = TestEnvironment::new();
        let moment = match command {
            "doctor" => random.between(0, 200),
            _ => random.between(0, 3000),
        };
        let moment = Duration::from_millis(moment);
        let context = format!("kill {number} of `{command}` on {shape} after {moment:?}");
        let child = spawn(nodes, &tool, command);
        // Whole rounds of the commands, so that each has such a kill.
        let certain = is_certain(
            number / commands.len() as u64,
            kills.div_ceil(commands.len() as u64),
        );
        if certain && !reads {
            wait_until("the run has a table", LIMIT, || servers.tables() > 0);
        }
        thread::sleep(moment);
        let _ = kill(child);
        let left = servers.left();
        let row = table.entry(command).or_default();
        row.0 += 1;
        row.1
            .iter_mut()
            .zip(left)
            .for_each(|(count, left)| *count += u64::from(left));
        for run in tool.runs() {
            assert_explained(&tool, &run, &context);
        }
        // The process that starts an applier after a SIGKILL does so before any other run.
        wait_until(
            &format!("the replica applies after {context}"),
            LIMIT,
            || servers.applies(),
        );
        // The server may not yet have noticed that the killed run's connections are closed.
        wait_until("the lock is free", LIMIT, || !servers.left()[2]);
        let ended = wait(spawn(nodes, &tool, next), LIMIT);
        assert_eq!(ended.code, Some(0), "{next}, after {context}: {ended:#?}");
        // A kill between the creation of the schema and of its first table leaves a schema that may be the user's.
        if servers.tables() == 0 && !clean(&nodes[0]) {
            println!("{context}: {next} left the empty schema");
            row.2 += 1;
            assert!(!left[0], "{context}: {ended:#?}");
            sql(&nodes[0], "DROP DATABASE replimeter");
        }
        servers.await_nothing(&context);
        sql(&nodes[0], &format!("INSERT INTO users.t VALUES ({number})"));
        arrived(number);
    }
    println!(
        "| {shape} | kills | {} | empty schema after the next start |",
        KINDS.join(" | ")
    );
    println!("|---|---|{}---|", "---|".repeat(KINDS.len()));
    for (command, (kills, left, schemas)) in &table {
        let left: Vec<_> = left.iter().map(u64::to_string).collect();
        println!(
            "| `{command}` | {kills} | {} | {schemas} |",
            left.join(" | ")
        );
    }
    println!(
        "after the next start of {kills} kills on {shape}, nothing else was left, and a row of a user arrived"
    );
    sql(&nodes[0], &format!("DROP USER {USER}@'%'"));
}

pub(super) fn kill_at_few_moments_on_endpoints_is_explained() {
    kills(false, &FEW, 2);
}

pub(super) fn kill_at_a_hundred_moments_on_mariadb_leaves_nothing() {
    kills(false, &ALL, 100);
}

pub(super) fn kill_at_a_hundred_moments_on_mysql_leaves_nothing() {
    kills(true, &ALL, 100);
}
