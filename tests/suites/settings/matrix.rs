//! Every command on servers whose defaults for sessions are changed.

use std::fs;

use replimeter_engine::Node;
use replimeter_model::engine::Engine;
use replimeter_suites::{
    LIMIT, TestEnvironment, clean,
    http::{Visitor, served_address},
    password, session, shared, sql, url, value, wait, wait_until,
};
use rustix::process::{Pid, Signal, kill_process};

use super::{await_clean, replica_of_the_first, run};

/// Settings that Replimeter's sessions do not inherit, with another value than its own; those that a server lacks are left out.
const OWN: &[(&str, &str)] = &[
    ("autocommit", "0"),
    ("completion_type", "2"),
    (
        "sql_mode",
        "'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT,IGNORE_SPACE,TRADITIONAL'",
    ),
    ("tx_isolation", "'READ-UNCOMMITTED'"),
    ("transaction_isolation", "'READ-UNCOMMITTED'"),
    ("tx_read_only", "1"),
    ("transaction_read_only", "1"),
    ("time_zone", "'+05:30'"),
    ("sql_quote_show_create", "0"),
    ("sql_auto_is_null", "1"),
    ("sql_safe_updates", "1"),
    ("sql_big_selects", "0"),
    ("sql_select_limit", "1"),
    ("lock_wait_timeout", "1"),
    ("innodb_lock_wait_timeout", "1"),
    ("net_read_timeout", "1"),
    ("net_write_timeout", "1"),
    ("wait_timeout", "1"),
    ("max_statement_time", "0.001"),
    ("max_execution_time", "1"),
    ("idle_transaction_timeout", "1"),
    ("idle_readonly_transaction_timeout", "1"),
    ("idle_write_transaction_timeout", "1"),
    ("alter_algorithm", "'INSTANT'"),
    ("query_cache_type", "1"),
    ("wsrep_OSU_method", "'RSU'"),
    ("information_schema_stats_expiry", "86400"),
    ("character_set_client", "'latin1'"),
    ("character_set_results", "'latin1'"),
    ("collation_connection", "'latin1_swedish_ci'"),
];

/// Further settings that change the meaning or the time of statements, which sessions inherit.
const INHERITED: &[(&str, &str)] = &[
    ("sql_mode", "''"),
    ("sql_mode", "'ORACLE'"),
    ("tx_isolation", "'SERIALIZABLE'"),
    ("transaction_isolation", "'SERIALIZABLE'"),
    ("max_join_size", "1"),
    ("sql_require_primary_key", "1"),
    ("sql_generate_invisible_primary_key", "1"),
    ("innodb_force_primary_key", "1"),
    ("default_storage_engine", "'MyISAM'"),
    ("character_set_server", "'utf32'"),
    ("collation_server", "'utf8mb4_bin'"),
    ("binlog_format", "'MIXED'"),
    ("binlog_row_image", "'MINIMAL'"),
    ("group_concat_max_len", "4"),
    ("div_precision_increment", "0"),
    ("max_error_count", "0"),
    ("sql_warnings", "1"),
    ("sql_notes", "0"),
    ("sql_buffer_result", "1"),
    ("sql_if_exists", "1"),
    ("big_tables", "1"),
    ("foreign_key_checks", "0"),
    ("unique_checks", "0"),
    ("low_priority_updates", "1"),
    ("explicit_defaults_for_timestamp", "0"),
    ("innodb_strict_mode", "0"),
    ("innodb_snapshot_isolation", "1"),
    ("auto_increment_increment", "7"),
    ("lc_messages", "'de_DE'"),
    ("cte_max_recursion_depth", "0"),
    ("max_recursive_iterations", "0"),
    ("session_track_gtids", "'ALL_GTIDS'"),
    ("session_track_state_change", "1"),
    ("session_track_transaction_info", "'CHARACTERISTICS'"),
    ("interactive_timeout", "1"),
];

/// Every command that connects to servers of a user, briefly. `front` is apart, since it serves until it is ended.
const COMMANDS: &[&str] = &[
    "doctor",
    "lag --rounds 20 --floor-rounds 10 --warm-up 5 --timeout 60s --load mix:1@primary",
    "load --workload oltp-mix --data-size 200 --threads 2 --warm-up 50ms --duration 200ms",
    "stale --rows 4 --duration 200ms --timeout 60s",
    "backlog --build-up 200ms --load insert:1@primary --timeout 60s",
    "tap --duration 300ms",
    "exposure --duration 300ms",
];

/// A script whose rows show the settings that its statements have.
const SCRIPT: &str = "-- setup
CREATE TABLE modes (id INT AUTO_INCREMENT PRIMARY KEY, mode VARCHAR(999)) ENGINE=InnoDB;
INSERT INTO modes (mode) VALUES (@@SESSION.sql_mode);
-- run
INSERT INTO modes (mode) VALUES (@@SESSION.sql_mode);
";

/// Changes a default on every server for a time; does nothing if they do not have the setting.
fn with_default(nodes: &[Node], name: &str, setting: &str, work: &mut dyn FnMut()) {
    let former: Vec<Option<String>> = nodes
        .iter()
        .map(|node| {
            let known = session(node).value("test", &format!("SELECT @@GLOBAL.{name}"));
            let former = known.ok().flatten()?;
            let set = format!("SET GLOBAL {name} = {setting}");
            session(node).run("test", &set).ok().map(|()| former)
        })
        .collect();
    if former.iter().all(Option::is_some) {
        work();
    }
    for (node, former) in nodes.iter().zip(former) {
        if let Some(former) = former {
            let quoted = match former.parse::<f64>() {
                Ok(_) => former,
                Err(_) => format!("'{former}'"),
            };
            sql(node, &format!("SET GLOBAL {name} = {quoted}"));
        }
    }
}

/// Changes several defaults at the same time.
fn with_defaults(nodes: &[Node], settings: &[(&str, &str)], work: &mut dyn FnMut()) {
    match settings.split_first() {
        None => work(),
        Some(((name, setting), rest)) => {
            let mut done = false;
            with_default(nodes, name, setting, &mut || {
                done = true;
                with_defaults(nodes, rest, work);
            });
            if !done {
                with_defaults(nodes, rest, work);
            }
        }
    }
}

fn assert_own_settings(node: &Node) {
    for (name, _) in OWN {
        let differs = format!("SELECT NOT @@SESSION.{name} <=> @@GLOBAL.{name}");
        let differs = session(node).value("test", &differs).ok().flatten();
        assert!(
            differs.as_deref().is_none_or(|differs| differs == "1"),
            "{node}: {name}"
        );
    }
}

/// Runs scripts of users, whose statements have the server's `sql_mode`.
fn assert_defaults_of_scripts(nodes: &[Node]) {
    let run_script = &mut || {
        let tool = TestEnvironment::new();
        fs::write(tool.folder().join("modes.sql"), SCRIPT).unwrap();
        let mut command = tool.command(&["load", "--workload", "modes.sql", "--duration", "100ms"]);
        command.args(["--primary", &url(&nodes[0], "replimeter")]);
        let child = command
            .env("REPLIMETER_PASSWORD", password(&nodes[0]))
            .spawn();
        let _ = wait(child.unwrap(), LIMIT).with_code(0);
        let modes = "SELECT GROUP_CONCAT(DISTINCT mode = @@GLOBAL.sql_mode) FROM replimeter.modes";
        assert_eq!(value(&nodes[0], modes).as_deref(), Some("1"));
        sql(&nodes[0], "DROP DATABASE replimeter");
    };
    with_default(nodes, "sql_mode", "'ANSI_QUOTES'", run_script);
}

pub(super) fn sessions_have_their_own_settings() {
    have_their_own_settings("mariadb/async:1");
}

pub(super) fn sessions_have_their_own_settings_on_mysql() {
    have_their_own_settings("mysql/async:1");
}

fn have_their_own_settings(shape: &str) {
    let sandbox = shared(shape, &[]);
    let nodes = sandbox.nodes();
    with_defaults(nodes, OWN, &mut || {
        assert_own_settings(&nodes[0]);
        let document = run(nodes, replica_of_the_first, "doctor --json").json();
        let findings = document["findings"].as_array().unwrap().iter();
        let errors: Vec<_> = findings
            .filter(|finding| finding["severity"] == "error")
            .map(|finding| finding["code"].as_str().unwrap())
            .collect();
        // Only `backlog` is refused, which would stop an applier that cannot be started again.
        assert_eq!(errors, ["transactions-read-only"], "{shape}");
        for command in [COMMANDS[1], COMMANDS[2]] {
            let _ = run(nodes, replica_of_the_first, command).with_code(0);
            await_clean(&sandbox);
        }
    });
    assert_defaults_of_scripts(nodes);
    await_clean(&sandbox);
}

/// Starts a front, posts and reads, and ends it.
fn run_front(nodes: &[Node]) {
    let tool = TestEnvironment::new();
    let mut command = tool.command(&["front", "--listen", "127.0.0.1:0", "--data-size", "50"]);
    for (index, node) in nodes.iter().enumerate() {
        command.args([replica_of_the_first(index), &url(node, "replimeter")]);
    }
    let mut child = command
        .env("REPLIMETER_PASSWORD", password(&nodes[0]))
        .spawn()
        .unwrap();
    let (address, rest) = served_address(&mut child);
    let mut visitor = Visitor::new(address);
    assert_eq!(visitor.form("/insert", "title=a").status, 200);
    wait_until("the post is on the replica", LIMIT, || {
        let page = visitor.page();
        page.status == 200 && page.json()["own"]["shown"] == true
    });
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let _ = wait(child, LIMIT).with_code(0);
    let _ = rest.join().unwrap();
}

/// Returns the exit code of a command with one of these settings. A replica whose transactions begin read-only could not start its
/// applier again, so that `backlog` must not stop it.
fn expected_code(command: &str, name: &str) -> i32 {
    match (command.split(' ').next(), name) {
        (Some("doctor"), "tx_read_only" | "transaction_read_only") => 1,
        (Some("backlog"), "tx_read_only" | "transaction_read_only") => 3,
        _ => 0,
    }
}

/// Runs every command with one default changed at a time, and names all that fail.
fn every_command_runs(engine: Engine) {
    let (shape, start) = match engine {
        Engine::MariaDb => ("mariadb/async:1", "START SLAVE"),
        Engine::MySql => ("mysql/async:1", "START REPLICA"),
    };
    let sandbox = shared(shape, &[]);
    let nodes = sandbox.nodes();
    let (mut failed, mut settings) = (Vec::new(), 0);
    for (name, setting) in OWN.iter().chain(INHERITED) {
        with_default(nodes, name, setting, &mut || {
            settings += 1;
            for command in COMMANDS {
                let ended = run(nodes, replica_of_the_first, command);
                if ended.code != Some(expected_code(command, name)) {
                    failed.push(format!("{shape}, {name} = {setting}: {command}: {ended:?}"));
                    // Without its applier, all later commands would fail too.
                    sql(&nodes[1], start);
                }
            }
            run_front(nodes);
            assert!(clean(&nodes[0]), "{name} = {setting}");
        });
    }
    println!(
        "{shape}: {settings} settings, {} commands failed",
        failed.len()
    );
    assert!(failed.is_empty(), "{failed:#?}");
    await_clean(&sandbox);
}

pub(super) fn commands_run_with_any_defaults_of_mariadb() {
    every_command_runs(Engine::MariaDb);
}

pub(super) fn commands_run_with_any_defaults_of_mysql() {
    every_command_runs(Engine::MySql);
}
