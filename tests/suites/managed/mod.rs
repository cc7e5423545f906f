//! `replimeter sandbox`: servers for the user's own work, and their end.

mod commands;
mod ends;
mod setup;

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf, process::Command, time::Duration};

use replimeter_suites::{
    CommandOutput, LIMIT, TestEnvironment, folder, harness::Test, servers, servers_below, test,
    wait, wait_until,
};
use rustix::process::Pid;
use serde_json::Value;

pub(crate) const TESTS: &[Test] = &[
    test!(commands::two_sandboxes_run_at_once),
    test!(commands::links_are_cut_and_healed),
    test!(commands::run_with_semi_sync_fall_back_is_invalid),
    test!(ends::killing_the_supervisor_ends_everything),
    test!(ends::killing_the_supervisor_ends_a_cut_link),
    test!(ends::killed_backlog_with_a_cut_link_starts_the_applier),
    test!(ends::backlog_outlives_a_link_cut_for_a_minute).long(),
    test!(setup::sandbox_up_closes_inherited_files),
    test!(ends::ended_server_is_named_with_its_sandbox),
    test!(ends::server_that_ends_during_a_run_is_named),
    test!(ends::frozen_supervisor_can_be_ended),
    test!(ends::interrupting_sandbox_up_removes_the_sandbox),
    test!(ends::programs_started_by_servers_are_ended),
    test!(setup::node_without_data_gets_state_transfer).long(),
    test!(setup::private_folder_longer_than_a_socket_address_works),
    test!(setup::sandbox_processes_inherit_no_environment),
    test!(setup::programs_of_one_version_have_separate_templates),
];

/// A user with a separate private folder; all sandboxes end when dropped.
struct TestUser {
    tool: TestEnvironment,
    folder: tempfile::TempDir,
}

impl Drop for TestUser {
    fn drop(&mut self) {
        let _ = self.run(&["sandbox", "down", "--all"]);
    }
}

impl TestUser {
    fn new() -> Self {
        Self::in_folder("home")
    }

    /// Returns a user with a private folder of this path.
    fn in_folder(path: &str) -> Self {
        let folder = folder();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let own = folder.path().join(path);
        fs::create_dir_all(&own).unwrap();
        for part in own.ancestors().take_while(|part| *part != folder.path()) {
            fs::set_permissions(part, fs::Permissions::from_mode(0o755)).unwrap();
        }
        std::os::unix::fs::symlink(servers(), own.join("servers")).unwrap();
        std::os::unix::fs::symlink(&own, folder.path().join("here")).unwrap();
        Self {
            tool: TestEnvironment::new(),
            folder,
        }
    }

    fn home(&self) -> PathBuf {
        self.folder.path().join("here").canonicalize().unwrap()
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
        servers_below(&self.home()).len()
    }

    /// Returns the supervisor's process, found by its open lock file.
    fn supervisor(&self, name: &str) -> Pid {
        let number = fs::read_to_string(self.sandboxes().join(name).join("lock")).unwrap();
        Pid::from_raw(number.trim().parse().unwrap()).unwrap()
    }

    fn assert_nothing_runs(&self, when: &str) {
        wait_until(
            &format!("nothing runs ({when})"),
            Duration::from_secs(15),
            || self.servers() == 0 && self.marked().is_empty(),
        );
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
