//! `replimeter sandbox`: servers for the user's own work, and their end.

mod commands;
mod ends;
mod setup;

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use replimeter_suites::{
    CommandOutput, LIMIT, TestEnvironment, harness::Test, servers, servers_below, test, wait,
    wait_until,
};
use rustix::process::Pid;
use serde_json::Value;

pub(crate) const TESTS: &[Test] = &[
    test!(commands::two_sandboxes_run_at_once).starts(4),
    test!(commands::links_are_cut_and_healed).starts(2),
    test!(commands::run_with_semi_sync_fall_back_is_invalid).starts(2),
    test!(ends::killing_the_supervisor_ends_everything).starts(4),
    test!(ends::killing_the_supervisor_ends_a_cut_link).starts(4),
    test!(ends::killed_backlog_with_a_cut_link_starts_the_applier).starts(2),
    test!(ends::backlog_outlives_a_link_cut_for_a_minute)
        .starts(2)
        .long(),
    test!(setup::sandbox_up_closes_inherited_files).starts(1),
    test!(ends::ended_server_is_named_with_its_sandbox).starts(2),
    test!(ends::server_that_ends_during_a_run_is_named).starts(2),
    test!(ends::frozen_supervisor_can_be_ended).starts(1),
    test!(ends::interrupting_sandbox_up_removes_the_sandbox).starts(4),
    test!(ends::interrupting_sandbox_up_at_any_time_removes_it)
        .starts(4)
        .long(),
    test!(ends::programs_started_by_servers_are_ended).starts(4),
    test!(setup::node_without_data_gets_state_transfer)
        .starts(4)
        .long(),
    test!(setup::private_folder_longer_than_a_socket_address_works).starts(1),
    test!(setup::sandbox_processes_inherit_no_environment).starts(4),
    test!(setup::programs_of_one_version_have_separate_templates).starts(2),
];

/// A user with a private folder; all sandboxes end when dropped.
struct TestUser {
    tool: TestEnvironment,
    home: PathBuf,
}

impl Drop for TestUser {
    fn drop(&mut self) {
        let _ = self.run(&["sandbox", "down", "--all"]);
    }
}

impl TestUser {
    /// Returns a user with the templates that tests share.
    fn new() -> Self {
        let tool = TestEnvironment::new();
        let home = tool.home().to_owned();
        Self { tool, home }
    }

    /// Returns a user without templates, whose private folder has this path.
    fn without_templates(path: &str) -> Self {
        let tool = TestEnvironment::new();
        let home = tool.home().join(path);
        fs::create_dir_all(&home).unwrap();
        for part in home.ancestors().take_while(|part| *part != tool.home()) {
            fs::set_permissions(part, fs::Permissions::from_mode(0o755)).unwrap();
        }
        symlink(servers(), home.join("servers")).unwrap();
        Self { tool, home }
    }

    fn home(&self) -> &Path {
        &self.home
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.tool.command(args);
        command.env("REPLIMETER_HOME", self.home());
        command
    }

    fn run(&self, args: &[&str]) -> CommandOutput {
        wait(self.command(args).spawn().unwrap(), LIMIT)
    }

    fn list(&self) -> Vec<Value> {
        self.run(&["sandbox", "list", "--json"]).with_code(0).json()["results"]
            .as_array()
            .unwrap()
            .clone()
    }

    fn sandboxes(&self) -> PathBuf {
        self.home().join("sandboxes")
    }

    fn servers(&self) -> usize {
        servers_below(self.home()).len()
    }

    /// Returns the supervisor's process, found by its open lock file.
    fn supervisor(&self, name: &str) -> Pid {
        let number = fs::read_to_string(self.sandboxes().join(name).join("lock")).unwrap();
        Pid::from_raw(number.trim().parse().unwrap()).unwrap()
    }

    fn assert_nothing_runs(&self, when: &str) {
        wait_until(&format!("nothing runs ({when})"), LIMIT, || {
            self.servers() == 0 && self.marked().is_empty()
        });
    }

    /// Returns the processes that have the mark of a sandbox in this home.
    fn marked(&self) -> Vec<i32> {
        let mark = format!("REPLIMETER_SANDBOX_FOLDER={}", self.sandboxes().display());
        let numbers = fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
        numbers
            .filter(|number: &i32| {
                let environment = fs::read(format!("/proc/{number}/environ")).unwrap_or_default();
                String::from_utf8_lossy(&environment).contains(&mark)
            })
            .collect()
    }
}

/// A program that `exec` runs; `mysql` is the sandbox's client.
fn query(user: &TestUser, name: &str, node: &str, sql: &str) -> String {
    user.run(&[
        "sandbox", "exec", name, node, "--", "mysql", "-N", "-e", sql,
    ])
    .with_code(0)
    .stdout
    .trim()
    .to_owned()
}
