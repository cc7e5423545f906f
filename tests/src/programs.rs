//! Programs other than servers.

use std::{fs, process::Child};

use replimeter_sandbox::{Search, binaries::split_path, programs};
use rustix::process::Pid;

use crate::servers;

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
