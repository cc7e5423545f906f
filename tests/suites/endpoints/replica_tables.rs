//! Tables that the user creates on a replica only.

use replimeter_suites::{
    LIMIT, TestEnvironment, clean, session, sql, url, value, wait, wait_until,
};

use super::{ADMIN, Cluster, tables};

/// The moment at which the user creates a table on the replica only.
#[derive(Clone, Copy, Debug, PartialEq)]
enum TableCreation {
    Never,
    BeforeTheRun,
    DuringTheRun,
}

pub(super) const LAG: [&str; 7] = [
    "lag",
    "--duration",
    "1s",
    "--floor-rounds",
    "20",
    "--warm-up",
    "5",
];

pub(super) const LOAD: [&str; 9] = [
    "load",
    "--workload",
    "insert",
    "--threads",
    "1",
    "--duration",
    "1s",
    "--warm-up",
    "200ms",
];

pub(super) fn lag_keeps_tables_only_on_a_replica(cluster: &Cluster) {
    keeps_tables_of_a_replica_alone(
        cluster,
        &LAG,
        &[TableCreation::BeforeTheRun, TableCreation::DuringTheRun],
    );
}

pub(super) fn load_keeps_tables_only_on_a_replica(cluster: &Cluster) {
    keeps_tables_of_a_replica_alone(
        cluster,
        &LOAD,
        &[
            TableCreation::BeforeTheRun,
            TableCreation::DuringTheRun,
            TableCreation::Never,
        ],
    );
}

pub(super) fn background_load_keeps_tables_only_on_a_replica(cluster: &Cluster) {
    let lag = [&LAG[..], &["--load", "insert:1@primary", "--rate", "50"]].concat();
    keeps_tables_of_a_replica_alone(cluster, &lag, &[TableCreation::DuringTheRun]);
    let stale = [
        "stale",
        "--duration",
        "1s",
        "--read-delays",
        "none",
        "--load",
        "insert:1@writer",
    ];
    keeps_tables_of_a_replica_alone(
        cluster,
        &stale,
        &[TableCreation::DuringTheRun, TableCreation::Never],
    );
}

/// Runs a command while the user creates a table on the replica only.
fn keeps_tables_of_a_replica_alone(cluster: &Cluster, command: &[&str], moments: &[TableCreation]) {
    let on_replica = |statements: &[&str]| {
        let mut session = session(cluster.replica());
        session.run("test", "SET sql_log_bin=0").unwrap();
        statements
            .iter()
            .for_each(|statement| session.run("test", statement).unwrap());
    };
    let make = || {
        on_replica(&[
            "CREATE DATABASE IF NOT EXISTS replimeter",
            "CREATE TABLE replimeter.notes (mine INT)",
            "INSERT INTO replimeter.notes VALUES (42)",
        ]);
    };
    for made in moments.iter().copied() {
        eprintln!("case {made:?}: {}", command.join(" "));
        if made == TableCreation::BeforeTheRun {
            make();
        }
        let tool = TestEnvironment::new();
        let (primary, replica) = (url(cluster.primary(), ADMIN), url(cluster.replica(), ADMIN));
        let args = [
            command,
            &["--primary", &primary, "--replica", &replica, "--json"],
        ]
        .concat();
        let child = tool
            .command(&args)
            .env("REPLIMETER_PASSWORD", cluster.password())
            .spawn()
            .unwrap();
        if made == TableCreation::DuringTheRun {
            wait_until("the schema has arrived", LIMIT, || {
                !clean(cluster.replica())
            });
            make();
        }
        let document = wait(child, LIMIT).with_code(0).json();
        cluster.settle();
        let warnings = document["warnings"].to_string();
        assert_eq!(
            warnings
                .matches("the schema `replimeter` was not removed: replica1 (")
                .count(),
            usize::from(made != TableCreation::Never),
            "{warnings}"
        );
        if made == TableCreation::Never {
            cluster.assert_clean();
            continue;
        }
        assert_eq!(
            value(cluster.replica(), "SELECT mine FROM replimeter.notes").as_deref(),
            Some("42")
        );
        assert_eq!(
            (
                tables(cluster.primary()),
                tables(cluster.replica()).as_deref()
            ),
            (None, Some("notes"))
        );
        on_replica(&["DROP TABLE replimeter.notes"]);
        sql(cluster.primary(), "DROP DATABASE replimeter");
        cluster.assert_clean();
    }
}
