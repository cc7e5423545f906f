//! Existing servers: a MariaDB primary with a replica, reached by URL like any other
//! server.

mod access;
mod crowded;
mod failures;
mod frozen;
mod locks;
mod preconditions;
mod replica_tables;
mod run_files;
mod runs;
mod schema;
mod silent;
mod sources;
mod unnamed;

use std::process::Child;

use replimeter_engine::Node;
use replimeter_suites::{
    CommandOutput, LIMIT, Shared, TestEnvironment, clean, harness::Test, of_run, password, session,
    shared, sql, test, url, value, wait, wait_until,
};
use rustix::process::{Pid, Signal, kill_process};

pub(crate) const TESTS: &[Test] = &[
    test!(runs::lag_measures_and_leaves_nothing on cluster),
    test!(access::passwords_are_read_from_every_source on cluster),
    test!(access::refused_login_names_where_it_came_from on cluster),
    test!(preconditions::same_server_twice_is_refused on cluster),
    test!(preconditions::replica_of_another_primary_is_refused on cluster).starts(2),
    test!(access::missing_privileges_are_named on cluster),
    test!(preconditions::read_only_primary_is_refused on cluster),
    test!(preconditions::foreign_table_is_refused on cluster),
    test!(runs::user_schema_is_kept on cluster),
    test!(runs::leftover_of_an_earlier_run_is_removed on cluster),
    test!(runs::second_concurrent_run_is_refused on cluster),
    test!(runs::interrupted_run_keeps_results_and_cleans_up on cluster),
    test!(runs::interruption_in_the_warm_up_measures_nothing on cluster),
    test!(runs::panic_still_cleans_up on cluster),
    test!(preconditions::stopped_replica_is_refused on cluster),
    test!(preconditions::replica_that_was_behind_is_named on cluster),
    test!(failures::frozen_replica_ends_the_run on cluster),
    test!(failures::replica_that_breaks_ends_the_run on cluster),
    test!(silent::interrupt_ends_a_run_with_a_frozen_primary on cluster),
    test!(silent::interrupt_ends_runs_whose_packets_are_lost on cluster).long(),
    test!(crowded::refused_connections_end_lag on cluster),
    test!(crowded::refused_connections_end_a_load on cluster),
    test!(crowded::refused_connections_end_stale on cluster),
    test!(frozen::stalled_primary_is_in_the_lag on cluster).long(),
    test!(frozen::stalled_replica_is_in_the_lag on cluster).long(),
    test!(frozen::stalled_primary_is_in_the_latency_of_a_load on cluster).long(),
    test!(frozen::stalled_primary_is_in_the_writes_of_stale on cluster).long(),
    test!(crowded::connections_are_as_many_as_documented on cluster).long(),
    test!(preconditions::filter_that_excludes_the_schema_is_refused on cluster),
    test!(preconditions::delayed_replica_is_refused on cluster),
    test!(preconditions::too_large_payload_is_clamped on cluster),
    test!(run_files::killed_run_has_figures on cluster),
    test!(run_files::fifth_run_of_a_plan_shows_how_much_runs_differ on cluster),
    test!(run_files::full_disk_is_explained_at_every_write on cluster),
    test!(failures::killed_replica_ends_the_run).starts(2),
    test!(replica_tables::lag_keeps_tables_only_on_a_replica on cluster),
    test!(replica_tables::load_keeps_tables_only_on_a_replica on cluster),
    test!(replica_tables::background_load_keeps_tables_only_on_a_replica on cluster),
    test!(schema::routines_and_events_of_the_user_are_kept on cluster),
    test!(schema::schema_is_removed_if_everything_in_it_is_visible on cluster),
    test!(schema::empty_schema_of_the_user_is_kept on cluster),
    test!(schema::schema_of_the_primary_alone_is_refused on cluster),
    test!(schema::schema_is_checked_and_dropped_under_one_lock on cluster),
    test!(sources::primary_that_is_a_replica_is_refused),
    test!(sources::mysql_primary_that_is_a_replica_is_refused),
    test!(sources::runs_on_two_sources_of_a_replica_exclude_each_other on cluster),
    test!(unnamed::leftovers_on_an_unnamed_replica_do_not_stop_it),
    test!(unnamed::leftovers_on_an_unnamed_mysql_replica_do_not_stop_it).long(),
    test!(unnamed::unnamed_replicas_are_warned_of),
    test!(locks::open_transaction_on_the_primary_bounds_the_run),
    test!(locks::open_transaction_on_the_replica_bounds_the_run),
    test!(locks::open_transactions_on_mysql_bound_the_run).long(),
    test!(runs::tiny_rows_are_removed_in_small_transactions on cluster).long(),
];

const ADMIN: &str = "replimeter";

/// A test on the cluster.
type Case = fn(&Cluster);

/// The user's cluster, and arguments for the tool to reach it.
struct Cluster {
    sandbox: Shared,
}

impl Cluster {
    fn primary(&self) -> &Node {
        &self.sandbox.nodes()[0]
    }

    fn replica(&self) -> &Node {
        &self.sandbox.nodes()[1]
    }

    fn password(&self) -> &str {
        password(self.primary())
    }

    /// Returns the arguments for a short run as `user`. Without a timeout in `more`, a row may take as long as a busy machine needs.
    fn args(&self, user: &str, more: &[&str]) -> Vec<String> {
        let mut args = vec![
            "lag".to_owned(),
            "--primary".to_owned(),
            url(self.primary(), user),
        ];
        args.extend(["--replica".to_owned(), url(self.replica(), user)]);
        args.extend(["--floor-rounds", "20", "--warm-up", "5"].map(str::to_owned));
        if !more.contains(&"--timeout") {
            args.extend(["--timeout", "60s"].map(str::to_owned));
        }
        args.extend(more.iter().map(|arg| (*arg).to_owned()));
        args
    }

    fn spawn(&self, tool: &TestEnvironment, more: &[&str]) -> Child {
        tool.command(&self.args(ADMIN, more))
            .env("REPLIMETER_PASSWORD", self.password())
            .spawn()
            .unwrap()
    }

    fn run(&self, tool: &TestEnvironment, more: &[&str]) -> CommandOutput {
        let ended = wait(self.spawn(tool, more), LIMIT);
        assert!(!ended.stderr.contains(self.password()) && !ended.stdout.contains(self.password()));
        ended
    }

    /// Checks that both servers have no tables of Replimeter.
    fn assert_clean(&self) {
        wait_until("the schema is gone everywhere", LIMIT, || {
            clean(self.primary()) && clean(self.replica())
        });
    }

    /// Checks that an interrupted run left no table, and no schema or a warning about it: it waits for a replica no longer than a
    /// second. Returns whether the servers are clean; without the schema, they are now.
    fn clean_or_named(&self, ended: &CommandOutput) -> bool {
        wait_until("the tables are gone everywhere", LIMIT, || {
            [self.primary(), self.replica()].map(tables) == [None, None]
        });
        let clean = clean(self.primary());
        let kept = "the schema `replimeter` was not removed";
        assert!(
            clean || ended.words().contains(kept) || ended.stderr.contains(kept),
            "{ended:#?}"
        );
        sql(self.primary(), "DROP DATABASE IF EXISTS replimeter");
        clean
    }

    /// Waits until the replica runs and has applied everything.
    fn settle(&self) {
        wait_until("the replica runs", LIMIT, || {
            let row = session(self.replica())
                .rows("test", "SHOW ALL SLAVES STATUS")
                .unwrap()
                .remove(0);
            row["Slave_SQL_Running"] == "Yes" && row["Slave_IO_Running"] == "Yes"
        });
        let position = value(self.primary(), "SELECT @@gtid_binlog_pos").unwrap();
        let applied = format!("SELECT MASTER_GTID_WAIT('{position}', 1)");
        wait_until("the replica has applied everything", LIMIT, || {
            value(self.replica(), &applied).as_deref() == Some("0")
        });
    }
}

/// Runs a test on the shared cluster, and restores the cluster afterwards.
fn cluster(case: Case) {
    let cluster = Cluster {
        sandbox: shared("mariadb/async:1", &[]),
    };
    case(&cluster);
    cluster.settle();
    cluster.assert_clean();
}

/// Starts a run that ends only if it is stopped or fails, and waits until it writes.
fn under_way(cluster: &Cluster, tool: &TestEnvironment, more: &[&str]) -> Child {
    let child = cluster.spawn(tool, &[more, &["--duration", "1000s"][..]].concat());
    await_rows(cluster.primary());
    child
}

/// Runs a command, and calls `work` while the command is stopped in the middle: a query of the primary, `begun`, returns 1 from its
/// first rows until it removes their table, which it does before it checks the schema. `spawn` starts it for a time; a run that a
/// busy machine let end too early is repeated with a longer time.
fn during_a_run(
    cluster: &Cluster,
    begun: &str,
    spawn: impl Fn(&str) -> Child,
    work: impl FnOnce(),
) -> CommandOutput {
    let has_begun = || {
        let begun = of_run(cluster.primary(), begun);
        let found = session(cluster.primary()).value("test", &begun);
        found.is_ok_and(|found| found.as_deref() == Some("1"))
    };
    for duration in ["1s", "4s", "16s", "64s"] {
        let mut child = spawn(duration);
        let mut ended = false;
        wait_until("the run is under way, or has ended", LIMIT, || {
            ended = child.try_wait().unwrap().is_some();
            ended || has_begun()
        });
        if !ended {
            kill_process(pid(&child), Signal::STOP).unwrap();
            if has_begun() {
                wait_until("the schema has arrived", LIMIT, || {
                    !clean(cluster.replica())
                });
                work();
                kill_process(pid(&child), Signal::CONT).unwrap();
                return wait(child, LIMIT);
            }
            kill_process(pid(&child), Signal::CONT).unwrap();
        }
        let _ = wait(child, LIMIT).with_code(0);
        sql(cluster.primary(), "DROP DATABASE IF EXISTS replimeter");
        cluster.assert_clean();
    }
    panic!("no run lasted until something could be done during it");
}

/// Ends a run that cannot clean up, and waits until its lock is free: the server notices the end of its connections later.
fn kill(cluster: &Cluster, child: Child) {
    kill_process(pid(&child), Signal::KILL).unwrap();
    let _ = wait(child, LIMIT);
    wait_until("the lock is free", LIMIT, || {
        value(cluster.primary(), "SELECT IS_USED_LOCK('replimeter.run')").is_none()
    });
}

/// Waits until a run has written more than a hundred rows.
fn await_rows(primary: &Node) {
    wait_until("rows are written", LIMIT, || {
        let count = of_run(primary, "SELECT COUNT(*) FROM replimeter.probe");
        let count = session(primary).value("test", &count);
        count
            .ok()
            .flatten()
            .and_then(|count| count.parse().ok())
            .is_some_and(|count: u64| count > 100)
    });
}

fn pid(child: &Child) -> Pid {
    Pid::from_child(child)
}

/// Returns the names of the tables in the schema.
fn tables(node: &Node) -> Option<String> {
    let tables = "SELECT GROUP_CONCAT(table_name) FROM information_schema.tables WHERE table_schema = 'replimeter'";
    value(node, tables)
}
