//! Programs other than servers, and the tool as another user.

use std::{
    fs,
    os::unix::fs::chown,
    path::PathBuf,
    process::{Child, Command},
};

use replimeter_sandbox::{Search, binaries::split_path, programs};
use rustix::process::Pid;

use crate::{CommandOutput, TestEnvironment, binary, folder, servers};

/// Whether a program other than a server can be found here, such as HAProxy.
#[must_use]
pub fn has_program(name: &str) -> bool {
    let search = Search {
        path: split_path(std::env::var_os("PATH")),
        private: servers().to_owned(),
        ..Search::default()
    };
    programs::find(&search, name).is_ok()
}

/// Returns the children of a tool that run a program of this name.
#[must_use]
pub fn children_named(tool: &Child, name: &str) -> Vec<Pid> {
    let tasks = fs::read_dir(format!("/proc/{}/task", tool.id()));
    let tasks = tasks.into_iter().flatten().flatten();
    let children = tasks.flat_map(|task| {
        let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        let pids = children.split_whitespace().map(|pid| pid.parse().unwrap());
        pids.collect::<Vec<i32>>()
    });
    let named = children.filter(|pid| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name)
    });
    named.filter_map(Pid::from_raw).collect()
}

/// Whether a process has ended, or only waits for its parent.
#[must_use]
pub fn has_ended(process: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero()));
    status.map_or(true, |status| status.contains(") Z "))
}

/// Starts a sandbox, which removes what killed runs left; returns the folders that are still there after it.
///
/// # Panics
/// If the sandbox does not start.
#[must_use]
pub fn folders_left(tool: &TestEnvironment) -> Vec<PathBuf> {
    let args = "lag --sandbox none --rounds 1 --floor-rounds 0 --timeout 60s";
    let _ = tool.run(&args.split(' ').collect::<Vec<_>>()).with_code(0);
    let sandboxes = fs::read_dir(tool.home().join("sandboxes")).unwrap();
    let left = sandboxes.map(|entry| entry.unwrap().path());
    left.filter(|path| path.is_dir()).collect()
}

/// Runs the tool as a user without privileges, with the servers of the tests; only root can.
///
/// # Panics
/// If the tool cannot be started.
#[must_use]
pub fn run_unprivileged(args: &[&str]) -> CommandOutput {
    const USER: u32 = 31_245;
    let folder = folder();
    chown(folder.path(), Some(USER), Some(USER)).unwrap();
    let program = folder.path().join("replimeter");
    fs::copy(binary(), &program).unwrap();
    let mut command = Command::new("setpriv");
    command
        .args([format!("--reuid={USER}"), format!("--regid={USER}")])
        .arg("--clear-groups")
        .arg(&program)
        .args(args)
        .arg("--servers")
        .arg(servers())
        .current_dir(folder.path())
        .env("HOME", folder.path())
        .env("REPLIMETER_HOME", folder.path().join("home"));
    CommandOutput::of(command.output().unwrap())
}
