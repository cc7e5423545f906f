//! Primaries that are themselves replicas of a server that is not named.

use std::fs;

use replimeter_suites::{LIMIT, TestEnvironment, clean, password, shared, sql, url, value, wait};

use super::ADMIN;

/// Every command that writes to a user's servers.
const WRITING: [&str; 5] = [
    "lag --rounds 5",
    "stale --rounds 5 --curve-rounds 2",
    "backlog --build-up 1s",
    "load --workload insert --duration 300ms",
    "front --duration 1s --listen 127.0.0.1:0",
];

/// `position` is a query of all that the server has executed; `writable` and `restore` are statements.
fn is_refused(shape: &str, position: &str, [writable, restore]: [&str; 2]) {
    let sandbox = shared(shape, &[]);
    let replica = &sandbox.nodes()[1];
    sql(replica, writable);
    let tool = TestEnvironment::new();
    let file = format!(
        "[[node]]\nname = \"middle\"\nurl = \"{}\"\n",
        url(replica, ADMIN)
    );
    fs::write(tool.folder().join("one.toml"), file).unwrap();
    let run = |command: &str| {
        let mut args = Vec::from_iter(command.split(' '));
        args.extend(["--topology", "one.toml"]);
        let mut command = tool.command(&args);
        let child = command
            .env("REPLIMETER_PASSWORD", password(replica))
            .spawn();
        wait(child.unwrap(), LIMIT)
    };
    let before = value(replica, position);
    for command in WRITING {
        let _ = run(command)
            .with_code(3)
            .stderr_contains("middle (")
            .stderr_contains("which is not named: that server does not get what a run writes here")
            .stderr_contains("--write-to-replica");
    }
    let _ = run("doctor").with_code(1);
    let allowed = run("doctor --json --write-to-replica").with_code(0).json();
    assert!(
        allowed["findings"].to_string().contains("source-not-named"),
        "{allowed:#}"
    );
    assert_eq!(value(replica, position), before);
    assert!(clean(replica));
    sql(replica, restore);
}

pub(super) fn primary_that_is_a_replica_is_refused() {
    is_refused(
        "mariadb/async:1",
        "SELECT CONCAT(@@gtid_binlog_pos, ' ', @@gtid_current_pos)",
        ["SET GLOBAL read_only = 0", "SET GLOBAL read_only = 1"],
    );
}

pub(super) fn mysql_primary_that_is_a_replica_is_refused() {
    is_refused(
        "mysql/async:1",
        "SELECT @@global.gtid_executed",
        ["SET GLOBAL read_only = 0", "SET GLOBAL super_read_only = 1"],
    );
}
