//! Servers that close idle connections or send long answers, and a client with few open files.

use std::{cell::Cell, fs, process::Child, thread, time::Duration};

use replimeter_engine::Node;
use replimeter_suites::{CommandOutput, LIMIT, TestEnvironment, memory_kib, password, url, wait};

use super::{
    ADMIN, codes, count, failures_before_the_end, mysql, passed, run_file, spawn, until, until_of,
    with_global,
};

fn spawn_file(tool: &TestEnvironment, nodes: &[Node], text: &str, more: &[&str]) -> Child {
    fs::write(tool.folder().join("own.toml"), text).unwrap();
    spawn(tool, nodes, &[&["--workload", "own.toml"], more].concat())
}

/// Each connection has an operation about every 1.3 s, at random, and the server closes it after one second: some connections are
/// closed, some are not. The sessions of the run itself are idle for longer.
pub(super) fn closed_idle_connections_are_opened_again(nodes: &[Node]) {
    let args = "--threads 4 --rate 3 --arrivals poisson --reads primary --duration";
    let args: Vec<&str> = args.split(' ').collect();
    let run = |duration: &str| {
        with_global(&nodes[0], "wait_timeout", 1, || {
            let text = "[[statement]]\nsql = 'SELECT 1'";
            run_file(nodes, text, &[&args[..], &[duration]].concat())
        })
    };
    let document = until_of(&["6s", "60s"], run, |document| {
        passed(document) && count(&document["results"]["rows"][0], "failed") > 0
    });
    assert_eq!(document["status"], "complete");
    assert!(codes(&document).contains(&"load-errors"), "{document:#}");
    let row = &document["results"]["rows"][0];
    let failed = row["failed"].as_u64();
    let errors = row["errors"].as_array().unwrap();
    // Nothing but lost connections, each of which is one failed operation.
    assert_eq!(errors.len(), 1, "{row:#}");
    assert!(errors[0]["code"].is_null(), "{row:#}");
    assert_eq!(errors[0]["count"].as_u64(), failed, "{row:#}");
    let message = errors[0]["message"].as_str().unwrap();
    assert!(!message.contains("invalid answer"), "{message}");
}

/// MySQL sends an error before it closes an idle connection.
pub(super) fn closed_idle_connections_of_mysql_are_opened_again() {
    mysql(closed_idle_connections_are_opened_again);
}

/// Returns the largest resident memory of a process until it ends, in KiB.
fn peak_kib(child: &mut Child) -> u64 {
    let mut peak = 0;
    while child.try_wait().unwrap().is_none() {
        peak = peak.max(memory_kib(child.id(), "VmHWM").unwrap_or(0));
        thread::sleep(Duration::from_millis(20));
    }
    peak
}

pub(super) fn long_answers_need_little_memory(nodes: &[Node]) {
    with_global(&nodes[0], "max_allowed_packet", 256 << 20, || {
        // 100 MB in one row, and in 10,000.
        let text = "[[operation]]
            name = 'both'
            [[operation.statement]]
            sql = \"SELECT REPEAT('x', 100000000)\"
            [[operation.statement]]
            sql = \"WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000) SELECT REPEAT('x', 10000) FROM n\"";
        let peak = Cell::new(0);
        let run = |duration: &str| {
            let tool = TestEnvironment::new();
            // The limit of a packet is raised on this server.
            let more = [
                "--threads",
                "2",
                "--reads",
                "primary",
                "--duration",
                duration,
            ];
            let mut child = spawn_file(&tool, nodes, text, &more);
            peak.set(peak_kib(&mut child));
            wait(child, LIMIT)
        };
        let document = until(run, passed);
        let (row, peak) = (&document["results"]["rows"][0], peak.get());
        assert_eq!(failures_before_the_end(row), 0, "{row:#}");
        println!("{peak} KiB after {} passes", row["passes"]);
        assert!((1..90_000).contains(&peak), "{peak} KiB");
    });
}

/// Runs the tool with at most 300 open files.
fn limited(tool: &TestEnvironment, nodes: &[Node], args: &[&str]) -> CommandOutput {
    let mut command = tool.command_with_files(300, args);
    command.env("REPLIMETER_PASSWORD", password(&nodes[0]));
    wait(command.spawn().unwrap(), LIMIT)
}

pub(super) fn too_few_open_files_are_refused(nodes: &[Node]) {
    let tool = TestEnvironment::new();
    let [primary, replica] = [0, 1].map(|index| url(&nodes[index], ADMIN));
    let servers = ["--primary", &primary, "--replica", &replica];
    let load = ["load", "--workload", "insert", "--threads", "60"];
    let background = [
        "lag",
        "--load",
        "insert:60@primary",
        "--load",
        "insert:60@primary",
    ];
    for (line, threads, needed) in [(&load[..], 60, 316), (&background[..], 120, 376)] {
        let ended = limited(&tool, nodes, &[line, &servers].concat()).with_code(3);
        let wanted =
            format!("{threads} threads need {needed} open files, and this process may have 300");
        let _ = ended.stderr_contains(&wanted).stderr_contains("ulimit -Hn");
    }
    assert!(tool.runs().is_empty(), "nothing was measured");
}
