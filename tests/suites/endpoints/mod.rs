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
mod unnamed;

use replimeter_engine::Node;
use replimeter_suites::{
    CommandOutput, LIMIT, Shared, TestEnvironment, clean, harness::Test, password, session, shared,
    test, url, value, wait, wait_until,
};
use rustix::process::Pid;

pub(crate) const TESTS: &[Test] = &[
    test!(runs::lag_measures_and_leaves_nothing on cluster),
    test!(access::passwords_are_read_from_every_source on cluster),
    test!(access::refused_login_names_where_it_came_from on cluster),
    test!(preconditions::same_server_twice_is_refused on cluster),
    test!(preconditions::replica_of_another_primary_is_refused on cluster),
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
    test!(run_files::full_disk_is_explained_at_every_write on cluster),
    test!(failures::killed_replica_ends_the_run),
    test!(replica_tables::lag_keeps_tables_only_on_a_replica on relaxed),
    test!(replica_tables::load_keeps_tables_only_on_a_replica on relaxed),
    test!(replica_tables::background_load_keeps_tables_only_on_a_replica on relaxed),
    test!(schema::routines_and_events_of_the_user_are_kept on relaxed),
    test!(schema::schema_is_removed_if_everything_in_it_is_visible on relaxed),
    test!(schema::empty_schema_of_the_user_is_kept on relaxed),
    test!(schema::schema_of_the_primary_alone_is_refused on relaxed),
    test!(schema::schema_is_checked_and_dropped_under_one_lock on relaxed),
    test!(unnamed::leftovers_on_an_unnamed_replica_do_not_stop_it),
    test!(unnamed::unnamed_replicas_are_warned_of),
    test!(locks::open_transaction_on_the_primary_bounds_the_run),
    test!(locks::open_transaction_on_the_replica_bounds_the_run),
    test!(locks::open_transactions_on_mysql_bound_the_run).long(),
    test!(runs::tiny_rows_are_removed_in_small_transactions),
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

    /// Returns the arguments for a short run as `user`.
    fn args(&self, user: &str, more: &[&str]) -> Vec<String> {
        let mut args = vec![
            "lag".to_owned(),
            "--primary".to_owned(),
            url(self.primary(), user),
        ];
        args.extend(["--replica".to_owned(), url(self.replica(), user)]);
        args.extend(["--floor-rounds", "20", "--warm-up", "5"].map(str::to_owned));
        args.extend(more.iter().map(|arg| (*arg).to_owned()));
        args
    }

    fn run(&self, tool: &TestEnvironment, more: &[&str]) -> CommandOutput {
        let child = tool
            .command(&self.args(ADMIN, more))
            .env("REPLIMETER_PASSWORD", self.password())
            .spawn()
            .unwrap();
        let ended = wait(child, LIMIT);
        assert!(!ended.stderr.contains(self.password()) && !ended.stdout.contains(self.password()));
        ended
    }

    /// Checks that both servers have no tables of Replimeter.
    fn assert_clean(&self) {
        wait_until("the schema is gone everywhere", LIMIT, || {
            clean(self.primary()) && clean(self.replica())
        });
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
        assert_eq!(
            value(
                self.replica(),
                &format!("SELECT MASTER_GTID_WAIT('{position}', 30)")
            )
            .as_deref(),
            Some("0")
        );
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

/// Starts a run and waits until it writes.
fn under_way(cluster: &Cluster, tool: &TestEnvironment, more: &[&str]) -> std::process::Child {
    let args = cluster.args(ADMIN, more);
    let child = tool
        .command(&args)
        .env("REPLIMETER_PASSWORD", cluster.password())
        .spawn()
        .unwrap();
    await_rows(cluster.primary());
    child
}

/// Waits until a run has written more than a hundred rows.
fn await_rows(primary: &Node) {
    wait_until("rows are written", LIMIT, || {
        let count = session(primary).value("test", "SELECT COUNT(*) FROM replimeter.lag_probe");
        count
            .ok()
            .flatten()
            .and_then(|count| count.parse().ok())
            .is_some_and(|count: u64| count > 100)
    });
}

fn pid(child: &std::process::Child) -> Pid {
    Pid::from_child(child)
}

/// Returns the names of the tables in the schema.
fn tables(node: &Node) -> Option<String> {
    let tables = "SELECT GROUP_CONCAT(table_name) FROM information_schema.tables WHERE table_schema = 'replimeter'";
    value(node, tables)
}

/// Runs a test on shared servers that rarely flush.
fn relaxed(case: Case) {
    let cluster = Cluster {
        sandbox: shared(
            "mariadb/async:1",
            &["sync_binlog=0", "innodb_flush_log_at_trx_commit=0"],
        ),
    };
    case(&cluster);
    cluster.settle();
    cluster.assert_clean();
}
