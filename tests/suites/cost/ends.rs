//! Runs that end early.

use std::{
    collections::BTreeSet,
    fs,
    path::PathBuf,
    process::{Child, Stdio},
    thread,
    time::Duration,
};

use replimeter_suites::{LIMIT, TestEnvironment, servers_of, wait, wait_until};
use rustix::process::{Pid, Signal, kill_process};

use super::number;

/// Starts a run of many starts of one server, each with one block.
fn many_starts(tool: &TestEnvironment) -> Child {
    let args = [
        "cost",
        "--modes",
        "mariadb/none",
        "--threads",
        "1",
        "--duration",
        "40s",
        "--starts",
        "100",
        "--block-duration",
        "400ms",
        "--warm-up",
        "100ms",
        "--json",
    ];
    tool.command(&args).stderr(Stdio::piped()).spawn().unwrap()
}

/// Returns the server whose tables a run has created.
fn server_in_use(child: &Child) -> Option<i32> {
    let has_tables = |server: &i32| {
        let command = fs::read(format!("/proc/{server}/cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).into_owned();
        let data = command
            .split('\0')
            .find_map(|word| word.strip_prefix("--datadir="));
        data.is_some_and(|data| PathBuf::from(data).join("replimeter").is_dir())
    };
    let servers = servers_of(child);
    assert!(
        servers.len() <= 1,
        "only the mode that is measured runs: {servers:?}"
    );
    servers.into_iter().find(has_tables)
}

/// Waits until the block of a first server is over, and another server is in use; returns that server.
fn await_second_start(child: &Child) -> i32 {
    let mut seen = BTreeSet::new();
    let mut last = None;
    wait_until("a second server is in use", LIMIT, || {
        last = server_in_use(child);
        seen.extend(last);
        seen.len() > 1
    });
    last.unwrap()
}

pub(super) fn interrupted_run_keeps_its_results() {
    let tool = TestEnvironment::new();
    let child = many_starts(&tool);
    let _ = await_second_start(&child);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ended = wait(child, LIMIT).with_code(130);
    let document = ended.json();
    assert_eq!(document["status"], "interrupted");
    assert!(number(&document["results"]["rows"][0]["operations"]) > 0.0);
    assert!(
        document["headline"]
            .as_str()
            .unwrap()
            .contains("interrupted")
    );
}

pub(super) fn killed_server_ends_the_run_and_keeps_results() {
    let tool = TestEnvironment::new();
    let mut child = many_starts(&tool);
    let mut server = Some(await_second_start(&child));
    // One that the run has just stopped ends nothing; then it is the turn of the next.
    while child.try_wait().unwrap().is_none() {
        if let Some(pid) = server.take().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
        thread::sleep(Duration::from_millis(20));
        server = server_in_use(&child);
    }
    let ended = wait(child, LIMIT).with_code(3).stderr_contains("primary");
    let document = ended.json();
    assert_eq!(document["status"], "failed");
    assert!(number(&document["results"]["rows"][0]["operations"]) > 0.0);
}
