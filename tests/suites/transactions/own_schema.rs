//! Every command on every topology: all that it writes is in its own schema, as the binary logs of all servers have it.

use std::{collections::BTreeMap, fs};

use replimeter_engine::Node;
use replimeter_suites::{
    LIMIT, TestEnvironment,
    binlog::{BinlogEvent, binlog_end, transactions_since},
    password, session, shared, sql, start, url, value, wait_until,
};

use super::finish;

/// Short runs of every command that accepts a user's servers, and of their options that write.
const COMMANDS: [&str; 13] = [
    "doctor",
    "lag --rounds 20 --floor-rounds 20 --timeout 60s --method all --stages",
    "lag --duration 1s --floor-rounds 20 --timeout 60s --load oltp-mix:2@primary --load-data-size 1000",
    "lag --row-size 100000 --writers 3 --rounds 20 --floor-rounds 20 --timeout 60s",
    "stale --rounds 20 --curve-rounds 2 --warm-up 0 --timeout 60s",
    "stale --rounds 20 --curve-rounds 2 --read-consistency --session-reset reset --timeout 60s",
    "stale --check-load-reads=2:2 --duration 1s --timeout 60s",
    "load --workload oltp-mix --data-size 1000 --duration 1s --keep-data",
    "load --workload insert --duration 1s --reads primary",
    "backlog --build-up 1s --timeout 60s --load update-key:2@primary --load-data-size 1000",
    "tap --duration 1s --floor-duration 1s",
    "exposure --duration 1s",
    "front --duration 1s --listen 127.0.0.1:0",
];

/// The channel of the second source of a replica.
const SECOND: &str = "second";

/// Servers that replicate, and how a command names those that it uses.
struct Topology<'a> {
    name: String,
    /// The first is the writer.
    named: Vec<&'a Node>,
    /// Whether a topology file names them.
    by_file: bool,
    /// Further servers, to which nothing may be written.
    others: Vec<&'a Node>,
}

impl Topology<'_> {
    /// Runs a command on the servers as their administrator; it must succeed.
    fn run(&self, command: &str) {
        let tool = TestEnvironment::new();
        let mut args: Vec<String> = command.split(' ').map(str::to_owned).collect();
        if self.by_file {
            let mut file = String::new();
            for (index, node) in self.named.iter().enumerate() {
                let role = if index == 0 {
                    "role = \"primary\"\n"
                } else {
                    ""
                };
                let url = url(node, "replimeter");
                file += &format!("[[node]]\nname = \"server{index}\"\nurl = \"{url}\"\n{role}");
            }
            fs::write(tool.folder().join("servers.toml"), file).unwrap();
            args.extend(["--topology", "servers.toml"].map(str::to_owned));
        } else {
            for (index, node) in self.named.iter().enumerate() {
                let role = if index == 0 { "--primary" } else { "--replica" };
                args.extend([role.to_owned(), url(node, "replimeter")]);
            }
        }
        finish(&tool, self.named[0], &args);
    }

    /// Runs every command, and checks each event of all servers' logs.
    fn check(&self) {
        let all = || self.named.iter().chain(&self.others);
        let since: Vec<_> = all().map(|node| binlog_end(node)).collect();
        let logged = |index: usize| transactions_since(all().nth(index).unwrap(), &since[index]);
        let mut transactions = 0;
        for command in COMMANDS {
            let before = logged(0).len();
            self.run(command);
            transactions = logged(0).len();
            let reads = ["doctor", "tap", "exposure"].contains(&command.split(' ').next().unwrap());
            assert_eq!(
                transactions == before,
                reads,
                "{command}: {before}, then {transactions}"
            );
        }
        let writer = value(self.named[0], "SELECT @@server_id").unwrap();
        println!(
            "| {} | transactions | events with a schema | outside of it |",
            self.name
        );
        println!("|---|---|---|---|");
        for (index, node) in all().enumerate() {
            let named = index < self.named.len();
            let wanted = if named { transactions } else { 0 };
            wait_until(&format!("{node} has everything"), LIMIT, || {
                logged(index).len() >= wanted
            });
            let log = logged(index);
            let schemas: Vec<_> = log
                .iter()
                .flatten()
                .filter_map(BinlogEvent::schemas)
                .collect();
            let outside = |names: &&Vec<String>| names.iter().any(|name| name != "replimeter");
            let outside = schemas.iter().filter(outside).count();
            println!("| {node} | {} | {} | {outside} |", log.len(), schemas.len());
            assert_eq!((log.len(), outside), (wanted, 0), "{node}");
            // Nothing was written on a replica itself.
            for event in log.iter().flatten() {
                assert_eq!(event.server_id, writer, "{event:?}");
            }
        }
        self.assert_decoded(&since[0], transactions);
    }

    /// Checks that events of other schemas would be seen.
    fn assert_decoded(&self, since: &BTreeMap<String, u64>, transactions: usize) {
        let writer = self.named[0];
        sql(writer, "CREATE DATABASE other");
        sql(writer, "CREATE TABLE other.t (id INT PRIMARY KEY)");
        sql(writer, "INSERT INTO other.t VALUES (1)");
        let log = transactions_since(writer, since);
        let other: Vec<_> = log[transactions..]
            .iter()
            .flatten()
            .filter_map(BinlogEvent::schemas)
            .collect();
        assert_eq!(other, [["other"], ["other"], ["other"]]);
        // It must not be left behind when replication is changed.
        for node in &self.named[1..] {
            wait_until("the row has arrived", LIMIT, || {
                let table = "SELECT 1 FROM information_schema.tables WHERE table_schema = 'other'";
                value(node, table).is_some()
            });
        }
    }
}

/// Makes a server replicate what another one writes from now on, by a channel of this name.
fn replicate(mysql: bool, to: &Node, from: &Node, channel: &str) {
    let rows = session(from)
        .rows(
            "test",
            if mysql {
                "SHOW BINARY LOG STATUS"
            } else {
                "SHOW MASTER STATUS"
            },
        )
        .unwrap();
    let (file, position) = (&rows[0]["File"], &rows[0]["Position"]);
    let (host, port, secret) = ("127.0.0.1", from.endpoint.port, password(from));
    let statements = if mysql {
        [
            format!(
                "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '{host}', SOURCE_PORT = {port}, SOURCE_USER = 'replimeter', \
                 SOURCE_PASSWORD = '{secret}', SOURCE_AUTO_POSITION = 0, SOURCE_LOG_FILE = '{file}', \
                 SOURCE_LOG_POS = {position}, SOURCE_SSL = 1 FOR CHANNEL '{channel}'"
            ),
            format!("START REPLICA FOR CHANNEL '{channel}'"),
        ]
    } else {
        [
            format!(
                "CHANGE MASTER '{channel}' TO MASTER_HOST = '{host}', MASTER_PORT = {port}, MASTER_USER = 'replimeter', \
                 MASTER_PASSWORD = '{secret}', MASTER_USE_GTID = no, MASTER_LOG_FILE = '{file}', \
                 MASTER_LOG_POS = {position}, MASTER_SSL = 0"
            ),
            format!("START SLAVE '{channel}'"),
        ]
    };
    statements.iter().for_each(|statement| sql(to, statement));
    let (status, running) = if mysql {
        (
            format!("SHOW REPLICA STATUS FOR CHANNEL '{channel}'"),
            "Replica_IO_Running",
        )
    } else {
        (format!("SHOW SLAVE '{channel}' STATUS"), "Slave_IO_Running")
    };
    wait_until("the channel runs", LIMIT, || {
        session(to).rows("test", &status).unwrap()[0][running] == "Yes"
    });
}

/// Removes a channel.
fn forget(mysql: bool, node: &Node, channel: &str) {
    let statements = if mysql {
        [
            format!("STOP REPLICA FOR CHANNEL '{channel}'"),
            format!("RESET REPLICA ALL FOR CHANNEL '{channel}'"),
        ]
    } else {
        [
            format!("STOP SLAVE '{channel}'"),
            format!("RESET SLAVE '{channel}' ALL"),
        ]
    };
    statements.iter().for_each(|statement| sql(node, statement));
}

fn engine(mysql: bool) -> &'static str {
    if mysql { "mysql" } else { "mariadb" }
}

fn on_a_pair(mysql: bool) {
    let shape = format!("{}/async:1", engine(mysql));
    let sandbox = shared(&shape, &[]);
    let topology = Topology {
        name: shape,
        named: sandbox.nodes().iter().collect(),
        by_file: false,
        others: Vec::new(),
    };
    topology.check();
}

fn on_a_chain(mysql: bool) {
    let shape = format!("{}/chain:2", engine(mysql));
    let sandbox = shared(&shape, &[]);
    let topology = Topology {
        name: shape,
        named: sandbox.nodes().iter().collect(),
        by_file: true,
        others: Vec::new(),
    };
    topology.check();
}

/// Two servers that replicate from each other.
fn on_a_ring(mysql: bool) {
    let sandbox = shared(&format!("{}/async:1", engine(mysql)), &[]);
    let nodes = sandbox.nodes();
    let channel = if mysql { "" } else { SECOND };
    replicate(mysql, &nodes[0], &nodes[1], channel);
    let topology = Topology {
        name: format!("{}, ring", engine(mysql)),
        named: nodes.iter().collect(),
        by_file: true,
        others: Vec::new(),
    };
    topology.check();
    forget(mysql, &nodes[0], channel);
}

/// A replica with a second source, which is not named.
fn on_a_multi_source_replica(mysql: bool) {
    let sandbox = shared(&format!("{}/async:1", engine(mysql)), &[]);
    let other = start(&format!("{}/none", engine(mysql)), &[]);
    let (nodes, other) = (sandbox.nodes(), &other.nodes()[0]);
    if !mysql {
        sql(other, "SET GLOBAL gtid_domain_id = 7");
    }
    replicate(mysql, &nodes[1], other, SECOND);
    let topology = Topology {
        name: format!("{}, multi-source replica", engine(mysql)),
        named: nodes.iter().collect(),
        by_file: false,
        others: vec![other],
    };
    topology.check();
    forget(mysql, &nodes[1], SECOND);
}

pub(super) fn every_command_writes_only_its_schema_on_mariadb() {
    on_a_pair(false);
}

pub(super) fn every_command_writes_only_its_schema_on_mysql() {
    on_a_pair(true);
}

pub(super) fn commands_write_only_their_schema_on_a_mariadb_chain() {
    on_a_chain(false);
}

pub(super) fn commands_write_only_their_schema_on_a_mysql_chain() {
    on_a_chain(true);
}

pub(super) fn commands_write_only_their_schema_on_a_mariadb_ring() {
    on_a_ring(false);
}

pub(super) fn commands_write_only_their_schema_on_a_mysql_ring() {
    on_a_ring(true);
}

pub(super) fn mariadb_with_two_sources_gets_the_schema_only() {
    on_a_multi_source_replica(false);
}

pub(super) fn mysql_with_two_sources_gets_the_schema_only() {
    on_a_multi_source_replica(true);
}
