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
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

pub(crate) const TESTS: &[Test] = &[
    test!(workloads::every_built_in_workload_runs on mariadb),
    test!(workloads::every_built_in_workload_runs on mysql).long(),
    test!(workloads::oltp_mix_matches_sysbench on mariadb),
    test!(workloads::encrypted_oltp_mix_runs on mysql),
    test!(workloads::open_loop_schedules_are_kept on mariadb),
    test!(workloads::reads_are_spread_over_the_servers),
    test!(data::existing_data_is_reused on mariadb),
    test!(data::foreign_tables_are_kept on mariadb),
    test!(data::rows_of_a_file_equal_inserted_ones on mariadb),
    test!(data::rows_of_a_file_equal_inserted_ones on mysql).long(),
    test!(data::full_disk_ends_the_fill).starts(1),
    test!(data::interrupted_fill_leaves_nothing on mariadb),
    test!(data::interrupt_ends_a_long_statement_of_the_fill on mariadb),
    test!(data::interrupt_ends_the_fill_of_a_frozen_primary)
        .starts(1)
        .long(),
    test!(data::run_that_lost_its_lock_keeps_the_next_runs_tables on mariadb),
    test!(data::fill_that_lost_its_lock_ends on mariadb),
    test!(data::fill_of_a_background_load_ends_without_its_lock on mariadb).long(),
    test!(data::two_loads_on_two_galera_nodes_exclude_each_other).long(),
    test!(refusals::invalid_load_files_are_refused on mariadb),
    test!(refusals::too_many_connections_are_refused on mariadb),
    test!(refusals::refused_script_ends_before_measuring on mariadb),
    test!(refusals::invalid_shares_and_sizes_are_refused on mariadb),
    test!(refusals::data_larger_than_the_disk_is_refused on mariadb),
    test!(threads::connections_are_opened_at_their_rate on mariadb),
    test!(threads::threads_are_doubled_until_the_throughput_no_longer_rises on mariadb),
    test!(runs::load_plans_and_reports_round_trip on mariadb),
    test!(runs::interrupted_run_is_saved on mariadb),
    test!(runs::load_runs_during_a_measurement on mariadb),
    test!(runs::operation_across_the_end_is_counted on mariadb),
    test!(runs::endless_operation_counts_as_failed on mariadb).long(),
    test!(failures::deadlocks_are_retried on mariadb),
    test!(failures::errors_do_not_slow_a_load on mariadb),
    test!(failures::server_killed_under_load_leaves_partial_result).starts(1),
    test!(failures::replica_stopped_under_load_is_a_failure).starts(2),
    test!(failures::certification_failures_are_counted),
    test!(faults::closed_idle_connections_are_opened_again on mariadb),
    test!(faults::closed_idle_connections_of_mysql_are_opened_again).long(),
    test!(faults::long_answers_need_little_memory on mariadb),
    test!(faults::too_few_open_files_are_refused on mariadb),
    test!(settling::load_waits_until_mariadb_has_settled).starts(1),
    test!(settling::load_waits_until_mysql_has_settled).starts(1),
    test!(settling::interrupt_ends_the_wait_for_settling).starts(1),
];

const ADMIN: &str = "replimeter";
/// Durations of a load that runs until its document has what a test examines; whole seconds.
const DURATIONS: [&str; 4] = ["1s", "4s", "16s", "64s"];
/// The error of a load without a counted operation, such as one on a machine that stalled.
const NOTHING_COUNTED: &str = "no operation completed in the measured time";
/// Attempts of an operation before an error that a retry may help against fails it, and the numbers of such errors.
const ATTEMPTS: u64 = 11;
const RETRIED: [u64; 3] = [1020, 1205, 1213];

/// A load of sixty connections.
const SIXTY: [&str; 8] = [
    "--workload",
    "insert",
    "--threads",
    "60",
    "--rate",
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

/// Starts a load with a short warm-up.
fn spawn(tool: &TestEnvironment, nodes: &[Node], more: &[&str]) -> Child {
    spawn_after("200ms", tool, nodes, more)
}

/// Starts a load with this warm-up.
fn spawn_after(warm_up: &str, tool: &TestEnvironment, nodes: &[Node], more: &[&str]) -> Child {
    let urls: Vec<String> = nodes.iter().map(|node| url(node, ADMIN)).collect();
    let mut args = vec!["load", "--json", "--warm-up", warm_up];
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

/// Starts a load of `insert` that counts from its beginning, and waits until it has counted an operation: a thread has one in
/// progress.
fn counting(tool: &TestEnvironment, nodes: &[Node], threads: u32, more: &[&str]) -> Child {
    let number = threads.to_string();
    let insert = ["--workload", "insert", "--threads", &number];
    let child = spawn_after("0s", tool, nodes, &[&insert[..], more].concat());
    wait_until("the load has counted an operation", LIMIT, || {
        inserted(&nodes[0]) > u64::from(threads)
    });
    child
}

/// Returns the rows that a load of `insert` has written.
fn inserted(node: &Node) -> u64 {
    let rows = session(node).value("test", "SELECT COUNT(*) FROM replimeter.load_insert");
    let rows = rows.ok().flatten();
    rows.map_or(0, |rows| rows.parse().unwrap())
}

/// Interrupts a load that counts; returns its document.
fn interrupted(child: Child) -> Value {
    kill_process(pid(&child), Signal::INT).unwrap();
    let document = wait(child, LIMIT).with_code(130).json();
    assert_eq!(document["status"], "interrupted");
    document
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

/// Returns the document of a load that ended after its duration, whether or not it counted an operation.
fn finished(ended: CommandOutput) -> Value {
    let code = i32::from(ended.stderr.contains(NOTHING_COUNTED));
    ended.with_code(code).json()
}

/// Repeats a load, each time for longer, until its document has what a test examines, which a stall of the machine can keep out of
/// a short one.
fn until(run: impl Fn(&str) -> CommandOutput, holds: impl Fn(&Value) -> bool) -> Value {
    until_of(&DURATIONS, run, holds)
}

/// The same with other durations.
fn until_of(
    durations: &[&str],
    run: impl Fn(&str) -> CommandOutput,
    holds: impl Fn(&Value) -> bool,
) -> Value {
    let mut last = Value::Null;
    for duration in durations {
        last = finished(run(duration));
        if holds(&last) {
            return last;
        }
    }
    panic!("not within {}: {last:#}", durations[durations.len() - 1]);
}

/// Returns whether every workload has completed operations.
fn passed(document: &Value) -> bool {
    let rows = document["results"]["rows"].as_array().unwrap();
    rows.iter().all(|row| row["passes"].as_u64() > Some(0))
}

fn count(row: &Value, key: &str) -> u64 {
    row[key]
        .as_u64()
        .unwrap_or_else(|| panic!("{key} is no count in {row:#}"))
}

/// Returns the sum of a load's errors that have this property.
fn errors(row: &Value, wanted: impl Fn(&Value) -> bool) -> u64 {
    let errors = row["errors"].as_array().unwrap().iter();
    let wanted = errors.filter(|error| wanted(error));
    wanted.map(|error| count(error, "count")).sum()
}

/// Returns the failed operations of a load, without those that were in progress when it ended and the machine stalled for seconds.
pub(crate) fn failures_before_the_end(row: &Value) -> u64 {
    let unended = |error: &Value| {
        let message = error["message"].as_str().unwrap();
        message.contains("had not ended")
    };
    count(row, "failed") - errors(row, unended)
}

/// Checks that every error of a load is a retry or fails its operation, and that no operation fails before its last retry.
pub(crate) fn assert_retried(row: &Value) {
    let (answers, others) = (
        errors(row, |error| error["code"].is_u64()),
        errors(row, |error| error["code"].is_null()),
    );
    let (retries, failed) = (count(row, "retries"), count(row, "failed"));
    assert_eq!(answers + others, retries + failed, "{row:#}");
    assert!(
        answers >= ATTEMPTS * failed.saturating_sub(others),
        "{row:#}"
    );
    let retried = |error: &Value| RETRIED.iter().any(|code| error["code"] == *code);
    assert_eq!(errors(row, retried), answers, "{row:#}");
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

/// Runs a test on shared servers, and checks that no table of Replimeter remains.
fn with_shared(shape: &str, case: fn(&[Node])) {
    let servers = shared(shape, &[]);
    case(servers.nodes());
    assert_clean(servers.nodes());
}

fn mariadb(case: fn(&[Node])) {
    with_shared("mariadb/async:1", case);
}

fn mysql(case: fn(&[Node])) {
    with_shared("mysql/async:1", case);
}
