//! The command `load` on real servers: workloads, data sets, schedules, and what goes
//! wrong.

mod data;
mod failures;
mod faults;
mod refusals;
mod runs;
mod settling;
mod threads;
mod workloads;

use std::{fs, process::Child};

use replimeter_engine::{Node, Session};
use replimeter_suites::{
    CommandOutput, LIMIT, TestEnvironment, clean, harness::Test, password, session, shared, sql,
    test, url, value, wait, wait_until,
};
use rustix::process::Pid;
use serde_json::Value;

pub(crate) const TESTS: &[Test] = &[
    test!(workloads::every_built_in_workload_runs on mariadb),
    test!(workloads::oltp_mix_matches_sysbench on mariadb),
    test!(data::existing_data_is_reused on mariadb),
    test!(data::foreign_tables_are_kept on mariadb),
    test!(data::rows_of_a_file_equal_inserted_ones on mariadb),
    test!(data::rows_of_a_file_equal_inserted_ones_on_mysql).long(),
    test!(workloads::open_loop_schedules_are_kept on mariadb).alone(),
    test!(refusals::invalid_load_files_are_refused on mariadb),
    test!(failures::deadlocks_are_retried on mariadb),
    test!(refusals::too_many_connections_are_refused on mariadb),
    test!(threads::connections_are_opened_at_their_rate on mariadb),
    test!(threads::threads_are_doubled_until_the_throughput_no_longer_rises on mariadb).alone(),
    test!(runs::load_plans_and_reports_round_trip on mariadb),
    test!(runs::interrupted_run_is_saved on mariadb),
    test!(runs::load_runs_during_a_measurement on mariadb),
    test!(runs::operation_across_the_end_is_counted on mariadb),
    test!(runs::endless_operation_counts_as_failed on mariadb).long(),
    test!(failures::errors_do_not_slow_a_load on mariadb),
    test!(faults::closed_idle_connections_are_opened_again on mariadb),
    test!(faults::long_answers_need_little_memory on mariadb),
    test!(faults::too_few_open_files_are_refused on mariadb),
    test!(faults::closed_idle_connections_of_mysql_are_opened_again).long(),
    test!(refusals::refused_script_ends_before_measuring on mariadb),
    test!(data::run_that_lost_its_lock_keeps_the_next_runs_tables on mariadb),
    test!(data::fill_that_lost_its_lock_ends on mariadb),
    test!(data::fill_of_a_background_load_ends_without_its_lock on mariadb).long(),
    test!(data::two_loads_on_two_galera_nodes_exclude_each_other).long(),
    test!(data::interrupted_fill_leaves_nothing on mariadb),
    test!(data::interrupt_ends_a_long_statement_of_the_fill on mariadb),
    test!(data::interrupt_ends_the_fill_of_a_frozen_primary).long(),
    test!(refusals::invalid_shares_and_sizes_are_refused on mariadb),
    test!(workloads::reads_are_spread_on_mysql),
    test!(workloads::every_built_in_workload_runs_on_mysql).long(),
    test!(failures::server_killed_under_load_leaves_partial_result),
    test!(failures::replica_stopped_under_load_is_a_failure),
    test!(data::full_disk_ends_the_fill),
    test!(settling::load_waits_until_mariadb_has_settled),
    test!(settling::load_waits_until_mysql_has_settled),
    test!(settling::interrupt_ends_the_wait_for_settling),
    test!(failures::certification_failures_are_counted),
];

const ADMIN: &str = "replimeter";
/// Options of servers that rarely flush, so that the duration of a suite does not depend on the disk.
const RELAXED: [&str; 2] = ["sync_binlog=0", "innodb_flush_log_at_trx_commit=0"];
const BUILT_IN: [&str; 8] = [
    "insert",
    "select",
    "post-insert",
    "point-select",
    "oltp-mix",
    "update-key",
    "big-update",
    "mix",
];

/// A load of sixty connections.
const SIXTY: [&str; 6] = [
    "--workload",
    "insert",
    "--threads",
    "60",
    "--duration",
    "1s",
];

/// Sets a global variable while `case` runs; it is set back also if the case has taken every connection, of which one is
/// reserved for the administrator.
fn with_global<T>(node: &Node, name: &str, setting: u32, case: impl FnOnce() -> T) -> T {
    let was = value(node, &format!("SELECT @@GLOBAL.{name}")).unwrap();
    sql(node, &format!("SET GLOBAL {name} = {setting}"));
    let done = case();
    wait_until("the server accepts a connection again", LIMIT, || {
        Session::open(node)
            .and_then(|mut session| session.run("test", &format!("SET GLOBAL {name} = {was}")))
            .is_ok()
    });
    done
}

/// Returns how many statements of these kinds the server ran.
fn statements_of<const N: usize>(node: &Node, kinds: [&str; N]) -> [u64; N] {
    kinds.map(|kind| {
        let sql = format!("SHOW GLOBAL STATUS LIKE 'Com_{kind}'");
        let counts = session(node).pairs("test", &sql).unwrap();
        counts.values().next().unwrap().parse().unwrap()
    })
}

fn spawn(tool: &TestEnvironment, nodes: &[Node], more: &[&str]) -> Child {
    let urls: Vec<String> = nodes.iter().map(|node| url(node, ADMIN)).collect();
    let mut args = vec!["load", "--json", "--warm-up", "200ms"];
    let member = nodes[0].name.starts_with("node");
    for (index, url) in urls.iter().enumerate() {
        let option = match index {
            _ if member => "--node",
            0 => "--primary",
            _ => "--replica",
        };
        args.extend([option, url]);
    }
    args.extend(more);
    tool.command(&args)
        .env("REPLIMETER_PASSWORD", password(&nodes[0]))
        .spawn()
        .unwrap()
}

fn load_with(tool: &TestEnvironment, nodes: &[Node], more: &[&str]) -> CommandOutput {
    wait(spawn(tool, nodes, more), LIMIT)
}

fn load(nodes: &[Node], more: &[&str]) -> CommandOutput {
    load_with(&TestEnvironment::new(), nodes, more)
}

/// Runs statements of the caller.
fn run_file(nodes: &[Node], text: &str, more: &[&str]) -> CommandOutput {
    let tool = TestEnvironment::new();
    fs::write(tool.folder().join("own.toml"), text).unwrap();
    load_with(&tool, nodes, &[&["--workload", "own.toml"], more].concat())
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id() as i32).unwrap()
}

fn assert_clean(nodes: &[Node]) {
    wait_until("all tables are removed", LIMIT, || nodes.iter().all(clean));
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}

fn codes(document: &Value) -> Vec<&str> {
    document["warnings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|warning| warning["code"].as_str().unwrap())
        .collect()
}

/// Runs a test on the shared servers, and checks that no table of Replimeter remains.
fn mariadb(case: fn(&[Node])) {
    let servers = shared("mariadb/async:1", &RELAXED);
    case(servers.nodes());
    assert_clean(servers.nodes());
}
