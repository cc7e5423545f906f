//! Load during a measurement, and the backlog that a replica catches up with.

mod applier;
mod background;
mod backlog;
mod interruptions;
mod slow_stop;

use std::{
    fs,
    io::{BufRead, BufReader},
    ops::Deref,
    os::unix::process::CommandExt,
    process::Child,
    sync::{Arc, Mutex},
    thread,
};

use replimeter_engine::Node;
use replimeter_sandbox::Sandbox;
use replimeter_suites::{
    CommandOutput, LIMIT, TestEnvironment, clean, harness::Test, of_run, password, session, shared,
    sql, start, test, url, value, wait, wait_until,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

pub(crate) const TESTS: &[Test] = &[
    test!(background::open_loop_holds_its_rate on mariadb),
    test!(background::two_loads_share_the_script_data on mariadb),
    test!(background::deadlocks_are_retried_and_counted on mariadb),
    test!(background::errors_are_counted_by_code on mariadb),
    test!(background::always_failing_load_ends_before_the_run on mariadb),
    test!(background::replica_accepts_only_reads on mariadb),
    test!(background::bad_scripts_and_names_are_refused on mariadb),
    test!(background::interrupted_or_panicked_run_removes_script_data on mariadb),
    test!(background::stalled_primary_delays_an_open_loop on mariadb),
    test!(backlog::replica_catches_up on mariadb_backlog),
    test!(backlog::replica_catches_up on mysql_backlog),
    test!(backlog::missing_privileges_are_named on mariadb_backlog),
    test!(backlog::missing_privileges_are_named on mysql_backlog),
    test!(backlog::delayed_replica_is_refused on mariadb_backlog),
    test!(backlog::backlog_without_replica_is_refused on mariadb_backlog),
    test!(interruptions::interrupted_backlog_starts_the_applier on mariadb_backlog),
    test!(interruptions::interrupted_backlog_starts_the_applier on mysql_backlog).long(),
    test!(interruptions::suspended_backlog_starts_the_applier on mariadb_backlog),
    test!(interruptions::suspended_backlog_starts_the_applier on mysql_backlog).long(),
    test!(interruptions::killed_backlog_starts_the_applier on mariadb_backlog),
    test!(interruptions::killed_backlog_starts_the_applier on mysql_backlog).long(),
    test!(interruptions::applier_that_was_left_stopped_is_named on mariadb_backlog),
    test!(interruptions::panic_during_backlog_starts_the_applier on mariadb_backlog),
    test!(interruptions::panic_during_backlog_starts_the_applier on mysql_backlog).long(),
    test!(interruptions::second_signal_ends_run_with_frozen_primary on mariadb_backlog),
    test!(interruptions::second_signal_ends_run_with_frozen_primary on mysql_backlog).long(),
    test!(interruptions::failed_applier_ends_the_backlog on mariadb_backlog),
    test!(applier::frozen_replica_applies_again on mariadb_backlog),
    test!(applier::frozen_replica_applies_again on mysql_backlog).long(),
    test!(applier::exit_starts_the_applier_the_run_could_not on mariadb_backlog),
    test!(applier::exit_starts_the_applier_the_run_could_not on mysql_backlog).long(),
    test!(applier::killed_replica_prints_restore_statements).starts(2),
    test!(applier::killed_connection_does_not_end_a_backlog on mariadb_backlog),
    test!(applier::killed_connection_does_not_end_a_backlog on mysql_backlog).long(),
    test!(applier::panic_prints_how_to_start_the_applier on mariadb_backlog),
    test!(applier::panic_prints_how_to_start_the_applier on mysql_backlog).long(),
    test!(slow_stop::unanswered_stop_prints_restore_statements).starts(2),
    test!(slow_stop::slow_stop_is_awaited on mariadb_backlog),
    test!(slow_stop::slow_stop_is_awaited on mysql_backlog),
    test!(backlog::backlog_refuses_cluster_members).starts(1),
];

const ADMIN: &str = "replimeter";

/// Existing servers.
struct Servers {
    sandbox: Box<dyn Deref<Target = Sandbox>>,
    mysql: bool,
}

impl Servers {
    fn borrow(shape: &str) -> Self {
        Self {
            sandbox: Box::new(shared(shape, &[])),
            mysql: shape.starts_with("mysql"),
        }
    }

    fn primary(&self) -> &Node {
        &self.sandbox.nodes()[0]
    }

    fn replica(&self) -> &Node {
        &self.sandbox.nodes()[1]
    }

    /// Returns the arguments of a command on these servers.
    fn spawn_as(
        &self,
        tool: &TestEnvironment,
        user: &str,
        secret: &str,
        fault: Option<&str>,
        line: &[&str],
    ) -> Child {
        let (primary, replica) = (url(self.primary(), user), url(self.replica(), user));
        let args = [line, &["--primary", &primary, "--replica", &replica]].concat();
        let mut command = tool.command(&args);
        // A group of its own, as of a shell's job.
        command
            .process_group(0)
            .env("REPLIMETER_PASSWORD", secret)
            .envs(fault.map(|fault| ("REPLIMETER_FAULT", fault)));
        command.spawn().unwrap()
    }

    fn spawn(&self, tool: &TestEnvironment, line: &[&str]) -> Child {
        self.spawn_as(tool, ADMIN, password(self.primary()), None, line)
    }

    fn run(&self, tool: &TestEnvironment, line: &[&str]) -> CommandOutput {
        wait(self.spawn(tool, line), LIMIT)
    }

    /// Runs a short measurement of rounds during a script's load.
    fn under(&self, script: &str, threads: u32, more: &[&str]) -> CommandOutput {
        let tool = TestEnvironment::new();
        fs::write(tool.folder().join("load.sql"), script).unwrap();
        let load = format!("load.sql:{threads}@primary");
        let mut args = vec![
            "lag",
            "--rounds",
            "100",
            "--floor-rounds",
            "10",
            "--timeout",
            "60s",
            "--json",
            "--load",
            &load,
        ];
        args.extend(more);
        let ended = self.run(&tool, &args);
        self.assert_clean();
        ended
    }

    /// Checks that both servers have no tables of Replimeter.
    fn assert_clean(&self) {
        wait_until("the schema is gone everywhere", LIMIT, || {
            clean(self.primary()) && clean(self.replica())
        });
    }

    fn workers_variable(&self) -> &'static str {
        if self.mysql {
            "replica_parallel_workers"
        } else {
            "slave_parallel_threads"
        }
    }

    fn workers(&self) -> String {
        value(
            self.replica(),
            &format!("SELECT @@GLOBAL.{}", self.workers_variable()),
        )
        .unwrap()
    }

    fn applying(&self) -> bool {
        let (statement, column) = if self.mysql {
            ("SHOW REPLICA STATUS FOR CHANNEL ''", "Replica_SQL_Running")
        } else {
            ("SHOW ALL SLAVES STATUS", "Slave_SQL_Running")
        };
        session(self.replica()).rows("test", statement).unwrap()[0][column] == "Yes"
    }

    fn stop_and_start(&self, between: &str) {
        let (word, channel) = self.words();
        for statement in [
            &format!("STOP {word}{channel}"),
            between,
            &format!("START {word}{channel}"),
        ] {
            sql(self.replica(), statement);
        }
    }

    /// Returns the word for a replica in statements, and the clause for its default channel.
    fn words(&self) -> (&'static str, &'static str) {
        if self.mysql {
            ("REPLICA", " FOR CHANNEL ''")
        } else {
            ("SLAVE", "")
        }
    }

    /// Gives a replica of MySQL another channel, which its administrator has stopped: no command may start it.
    fn add_stopped_channel(&self) {
        if self.mysql {
            sql(
                self.replica(),
                "CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT=1 FOR CHANNEL 'stopped'",
            );
        }
    }

    fn remove_stopped_channel(&self) {
        if self.mysql {
            let status = session(self.replica())
                .rows("test", "SHOW REPLICA STATUS FOR CHANNEL 'stopped'")
                .unwrap();
            assert_eq!(
                (
                    status[0]["Replica_IO_Running"].as_str(),
                    status[0]["Replica_SQL_Running"].as_str()
                ),
                ("No", "No")
            );
            sql(self.replica(), "RESET REPLICA ALL FOR CHANNEL 'stopped'");
        }
    }

    /// Returns whether a backlog with five workers has stopped the applier.
    fn is_held(&self) -> bool {
        self.workers() == "5" && !self.applying()
    }

    fn await_stopped_applier(&self) {
        wait_until("the applier is stopped", LIMIT, || self.is_held());
    }

    /// Waits until the replica's grants for the user `prober` are those of the primary.
    fn await_grants(&self) {
        let grants = |node: &Node| {
            let grants = session(node).rows("test", "SHOW GRANTS FOR prober@'127.0.0.1'");
            grants.ok()
        };
        wait_until("the grants have arrived", LIMIT, || {
            let wanted = grants(self.primary());
            wanted.is_some() && wanted == grants(self.replica())
        });
    }

    /// Returns the number of rows that the built-in workload `insert` has written.
    fn loaded(&self) -> u64 {
        let rows =
            session(self.primary()).value("test", "SELECT COUNT(*) FROM replimeter.load_insert");
        rows.ok()
            .flatten()
            .and_then(|rows| rows.parse().ok())
            .unwrap_or(0)
    }

    fn await_load(&self, rows: u64) {
        wait_until("the load has written rows", LIMIT, || self.loaded() >= rows);
    }

    /// Waits until operations of the load were counted, during `lag`: its own rows begin when counting does, and each thread has
    /// at most one earlier operation in progress then.
    fn await_counted(&self, threads: u64) {
        wait_until("the measurement writes", LIMIT, || {
            let row = of_run(self.primary(), "SELECT 1 FROM replimeter.probe LIMIT 1");
            let row = session(self.primary()).value("test", &row);
            row.ok().flatten().is_some()
        });
        self.await_load(self.loaded() + threads + 1);
    }

    /// Checks that the replica applies with its original settings.
    fn assert_as_it_was(&self, workers: &str) {
        assert_eq!(self.workers(), workers);
        assert!(self.applying());
    }
}

fn pid(child: &Child) -> Pid {
    Pid::from_child(child)
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}

/// Runs a test on the shared servers, and checks that no table of Replimeter remains.
fn mariadb(case: fn(&Servers)) {
    let servers = Servers::borrow("mariadb/async:1");
    case(&servers);
    servers.assert_clean();
}

/// Waits until the table of the built-in workload `insert` has rows.
fn under_way(servers: &Servers) {
    servers.await_load(10);
}

/// Runs a backlog on a replica with three workers, and checks that it has three afterwards, and that its other channel is
/// still stopped.
fn with_backlog(shape: &str, case: fn(&Servers)) {
    let servers = Servers::borrow(shape);
    let (variable, workers) = (servers.workers_variable(), servers.workers());
    servers.stop_and_start(&format!("SET GLOBAL {variable} = 3"));
    servers.add_stopped_channel();
    case(&servers);
    servers.assert_as_it_was("3");
    servers.remove_stopped_channel();
    servers.assert_clean();
    servers.stop_and_start(&format!("SET GLOBAL {variable} = {workers}"));
}

fn mariadb_backlog(case: fn(&Servers)) {
    with_backlog("mariadb/async:1", case);
}

fn mysql_backlog(case: fn(&Servers)) {
    with_backlog("mysql/async:1", case);
}

/// The running tool, whose standard error can be read during the run.
struct RunningCommand {
    child: Child,
    said: Arc<Mutex<String>>,
    reader: thread::JoinHandle<()>,
}

impl RunningCommand {
    fn new(mut child: Child) -> Self {
        let said = Arc::new(Mutex::new(String::new()));
        let (stderr, heard) = (child.stderr.take().unwrap(), Arc::clone(&said));
        let reader = thread::spawn(move || {
            for line in BufReader::new(stderr).lines() {
                *heard.lock().unwrap() += &format!("{}\n", line.unwrap());
            }
        });
        Self {
            child,
            said,
            reader,
        }
    }

    fn until_it_says(&self, wanted: &str) {
        let said = || self.said.lock().unwrap().clone();
        wait_until(&format!("standard error has `{wanted}`"), LIMIT, || {
            said().contains(wanted)
        });
    }

    fn has_ended(&self) -> bool {
        self.reader.is_finished()
    }

    /// Waits until standard error has a text, or the command has ended; returns whether it has.
    fn says_before_its_end(&self, wanted: &str) -> bool {
        let mut says = false;
        wait_until(&format!("`{wanted}`, or the end"), LIMIT, || {
            let ended = self.has_ended();
            says = self.said.lock().unwrap().contains(wanted);
            says || ended
        });
        says
    }

    fn wait(self) -> CommandOutput {
        let ended = wait(self.child, LIMIT);
        self.reader.join().unwrap();
        let stderr = self.said.lock().unwrap().clone();
        eprintln!("{stderr}");
        CommandOutput { stderr, ..ended }
    }
}

impl Servers {
    /// Sets three workers, for a backlog with five.
    fn of_three_workers(shape: &str) -> Self {
        let servers = Self {
            sandbox: Box::new(Box::new(start(shape, &[]))),
            mysql: shape.starts_with("mysql"),
        };
        servers.stop_and_start(&format!("SET GLOBAL {} = 3", servers.workers_variable()));
        servers
    }

    /// Starts a run with time limits of a few seconds, and waits until the applier is stopped and the load runs.
    fn holding(&self, tool: &TestEnvironment, grow: &str) -> RunningCommand {
        let args = [
            "backlog",
            "--build-up",
            grow,
            "--workers",
            "5",
            "--load",
            "insert:2@primary",
            "--rate",
            "50",
            "--timeout",
            "60s",
        ];
        let secret = password(self.primary());
        let child = RunningCommand::new(self.spawn_as(
            tool,
            ADMIN,
            secret,
            Some("impatient-backlog"),
            &args,
        ));
        self.await_stopped_applier();
        under_way(self);
        child
    }

    fn signal_replica(&self, signal: Signal) {
        let replica = Pid::from_raw(i32::try_from(self.sandbox.pids()[1]).unwrap()).unwrap();
        kill_process(replica, signal).unwrap();
    }

    /// Privileges that a user needs to stop the applier, set its workers, and read its state.
    fn grants(&self) -> (&'static str, &'static str) {
        if self.mysql {
            (
                "REPLICATION_SLAVE_ADMIN, SYSTEM_VARIABLES_ADMIN",
                "REPLICATION CLIENT",
            )
        } else {
            ("REPLICATION SLAVE ADMIN", "REPLICA MONITOR, BINLOG MONITOR")
        }
    }

    /// Statements with which a user restarts the applier.
    fn statements(&self) -> String {
        let (word, channel) = self.words();
        let set = format!("SET GLOBAL {} = 3", self.workers_variable());
        format!(
            "run on replica1: STOP {word} SQL_THREAD{channel}; {set}; START {word} SQL_THREAD{channel};"
        )
    }
}
