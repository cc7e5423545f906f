//! Several fronts behind HAProxy.

use std::fs;

use replimeter_suites::{
    LIMIT, TestEnvironment, children_named, harness::skip, has_ended, has_program, shared, value,
    wait, wait_until,
};
use rustix::process::{Pid, Signal, kill_process};

use super::{Front, row, serve};

const NO_HAPROXY: &str = "no HAProxy: run scripts/get-servers web";

/// Returns the process of HAProxy that a front started.
fn balancer_of(front: &Front) -> Option<Pid> {
    children_named(&front.child, "haproxy").first().copied()
}

pub(super) fn several_fronts_share_the_work_behind_a_balancer() {
    if !has_program("haproxy") {
        return skip(NO_HAPROXY);
    }
    let sandbox = shared("mariadb/async:1", &[]);
    let tool = TestEnvironment::new();
    let args = [
        "--fronts",
        "2",
        "--remedy",
        "wait-for-gtid",
        "--connections",
        "2",
    ];
    let front = serve(&tool, Some(sandbox.nodes()), &args);
    let mut visitor = front.visitor();
    let mut of_replica = 0;
    for _ in 0..20 {
        let posted = visitor.form("/insert", "title=mine");
        assert_eq!(posted.status, 200, "{posted:?}");
        // The front that reads is not the one that wrote.
        let page = visitor.page().json();
        assert_eq!(page["own"]["shown"], true, "{page}");
        assert_eq!(page["own"]["post"], posted.json()["post"]);
        of_replica += u64::from(page["server"] == "replica1");
    }
    // Both have connections to the primary.
    let connections =
        "SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'replimeter'";
    let count: u64 = value(&sandbox.nodes()[0], connections)
        .unwrap()
        .parse()
        .unwrap();
    assert!(count >= 4, "{count}");
    assert!(balancer_of(&front).is_some());
    let run = tool.runs();
    let configuration = fs::read_to_string(run[0].join("haproxy.cfg")).unwrap();
    assert!(
        configuration.contains("server front2 127.0.0.1:"),
        "{configuration}"
    );
    let (document, _) = front.end();
    let results = &document["results"];
    assert_eq!(row(&document, "insert", "primary")["requests"], 20);
    assert!(
        results["balancer_cpu_per_request_us"].as_f64().unwrap() > 0.0,
        "{results:#}"
    );
    // A replica that is late by a second is not waited for; without the post's GTID it would never be asked.
    assert!(of_replica > 0, "{results:#}");
    assert_eq!(results["freshness"]["fell_back"], 20 - of_replica);
}

pub(super) fn killed_balancer_ends_the_run_and_leaves_nothing() {
    if !has_program("haproxy") {
        return skip(NO_HAPROXY);
    }
    let sandbox = shared("mariadb/async:1", &[]);
    let tool = TestEnvironment::new();
    let front = serve(&tool, Some(sandbox.nodes()), &["--fronts", "2"]);
    assert_eq!(front.visitor().form("/insert", "title=a").status, 200);
    kill_process(balancer_of(&front).unwrap(), Signal::KILL).unwrap();
    let output = wait(front.child, LIMIT).with_code(3);
    let stderr = front.rest.join().unwrap();
    assert!(
        stderr.contains("HAProxy ended (signal: 9 (SIGKILL)"),
        "{stderr}"
    );
    assert_eq!(output.json()["status"], "failed");
    // And killed together with the tool.
    let front = serve(&tool, Some(sandbox.nodes()), &["--fronts", "2"]);
    let balancer = balancer_of(&front).unwrap();
    let process = Pid::from_raw(front.child.id().cast_signed()).unwrap();
    kill_process(process, Signal::KILL).unwrap();
    wait_until("HAProxy ends with the tool", LIMIT, || has_ended(balancer));
}
