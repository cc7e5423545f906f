//! Tables that the user creates on a replica only.

use replimeter_suites::{LIMIT, TestEnvironment, session, sql, url, value, wait};

use super::{ADMIN, Cluster, during_a_run, tables};

/// The moment at which the user creates a table on the replica only.
#[derive(Clone, Copy, Debug, PartialEq)]
enum TableCreation {
    Never,
    BeforeTheRun,
    DuringTheRun,
}

/// A command without its duration, and a query that returns 1 on the primary from its first rows until it removes their table.
pub(super) type Line = [&'static str; 2];

/// The rows of `lag` and `stale`; the replica has those of `lag` from the second one on.
const PROBE_ROWS: &str = "SELECT COUNT(*) > 5 FROM replimeter.probe";

pub(super) const LAG: Line = [
    "lag --floor-rounds 20 --warm-up 5 --timeout 60s",
    PROBE_ROWS,
];

pub(super) const LOAD: Line = [
    "load --workload insert --threads 1 --warm-up 200ms",
    "SELECT COUNT(*) > 20 FROM replimeter.load_insert",
];

const LAG_UNDER_LOAD: Line = [
    "lag --floor-rounds 20 --warm-up 5 --timeout 60s --load insert:1@primary --rate 50",
    PROBE_ROWS,
];

const STALE_UNDER_LOAD: Line = [
    "stale --read-delays none --timeout 60s --load insert:1@writer",
    "SELECT COUNT(*) > 0 FROM replimeter.probe",
];

pub(super) fn lag_keeps_tables_only_on_a_replica(cluster: &Cluster) {
    keeps_tables_of_a_replica_alone(
        cluster,
        LAG,
        &[TableCreation::BeforeTheRun, TableCreation::DuringTheRun],
    );
}

pub(super) fn load_keeps_tables_only_on_a_replica(cluster: &Cluster) {
    keeps_tables_of_a_replica_alone(
        cluster,
        LOAD,
        &[
            TableCreation::BeforeTheRun,
            TableCreation::DuringTheRun,
            TableCreation::Never,
        ],
    );
}

pub(super) fn background_load_keeps_tables_only_on_a_replica(cluster: &Cluster) {
    keeps_tables_of_a_replica_alone(cluster, LAG_UNDER_LOAD, &[TableCreation::DuringTheRun]);
    keeps_tables_of_a_replica_alone(
        cluster,
        STALE_UNDER_LOAD,
        &[TableCreation::DuringTheRun, TableCreation::Never],
    );
}

/// Runs a command while the user creates a table on the replica only.
fn keeps_tables_of_a_replica_alone(
    cluster: &Cluster,
    [command, begun]: Line,
    moments: &[TableCreation],
) {
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
        eprintln!("case {made:?}: {command}");
        if made == TableCreation::BeforeTheRun {
            make();
        }
        let tool = TestEnvironment::new();
        let spawn = |duration: &str| {
            let (primary, replica) = (url(cluster.primary(), ADMIN), url(cluster.replica(), ADMIN));
            let mut args: Vec<&str> = command.split(' ').collect();
            args.extend(["--duration", duration, "--json"]);
            args.extend(["--primary", &primary, "--replica", &replica]);
            tool.command(&args)
                .env("REPLIMETER_PASSWORD", cluster.password())
                .spawn()
                .unwrap()
        };
        let ended = match made {
            TableCreation::DuringTheRun => during_a_run(cluster, begun, spawn, make),
            _ => wait(spawn("1s"), LIMIT),
        };
        let document = ended.with_code(0).json();
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
