//! Servers that close idle connections or send long answers, and a client with few open files.

use std::{
    fs,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use replimeter_engine::Node;
use replimeter_suites::{
    CommandOutput, LIMIT, TestEnvironment, memory_kib, password, start, url, wait,
};

use super::{ADMIN, RELAXED, codes, spawn, with_global};

fn spawn_file(tool: &TestEnvironment, nodes: &[Node], text: &str, more: &[&str]) -> Child {
    fs::write(tool.folder().join("own.toml"), text).unwrap();
    spawn(tool, nodes, &[&["--workload", "own.toml"], more].concat())
}

/// Each connection has an operation every two seconds, and the server closes it after one. The sessions of the run itself are
/// idle for longer.
pub(super) fn closed_idle_connections_are_opened_again(nodes: &[Node]) {
    with_global(&nodes[0], "wait_timeout", 1, || {
        let tool = TestEnvironment::new();
        let more = [
            "--threads",
            "4",
            "--rate",
            "2",
            "--duration",
            "12s",
            "--reads",
            "primary",
        ];
        let text = "[[statement]]\nsql = 'SELECT 1'";
        let ended = wait(spawn_file(&tool, nodes, text, &more), LIMIT).with_code(0);
        let document = ended.json();
        assert_eq!(document["status"], "complete");
        assert!(codes(&document).contains(&"load-errors"), "{document:#}");
        let row = &document["results"]["rows"][0];
        let failed = row["failed"].as_u64().unwrap();
        assert!(failed > 0, "{row:#}");
        let errors = row["errors"].as_array().unwrap();
        // Nothing but lost connections, each of which is one failed operation.
        assert_eq!(errors.len(), 1, "{row:#}");
        assert!(errors[0]["code"].is_null(), "{row:#}");
        assert_eq!(errors[0]["count"].as_u64(), Some(failed), "{row:#}");
        let message = errors[0]["message"].as_str().unwrap();
        assert!(!message.contains("invalid answer"), "{message}");
    });
}

/// MySQL sends an error before it closes an idle connection.
pub(super) fn closed_idle_connections_of_mysql_are_opened_again() {
    let sandbox = start("mysql/none", &RELAXED);
    closed_idle_connections_are_opened_again(sandbox.nodes());
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
        let tool = TestEnvironment::new();
        // 100 MB in one row, and in 10,000.
        let text = "[[operation]]
            name = 'row'
            [[operation.statement]]
            sql = \"SELECT REPEAT('x', 100000000)\"
            [[operation]]
            name = 'rows'
            [[operation.statement]]
            sql = \"WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000) SELECT REPEAT('x', 10000) FROM n\"";
        let more = ["--threads", "2", "--duration", "8s"];
        let mut child = spawn_file(&tool, nodes, text, &more);
        let peak = peak_kib(&mut child);
        let document = wait(child, LIMIT).with_code(0).json();
        let row = &document["results"]["rows"][0];
        assert!(row["passes"].as_u64() > Some(0), "{row:#}");
        assert_eq!(row["failed"], 0, "{row:#}");
        println!("{peak} KiB after {} passes", row["passes"]);
        assert!((1..90_000).contains(&peak), "{peak} KiB");
    });
}

/// Runs the tool with at most 300 open files.
fn limited(tool: &TestEnvironment, nodes: &[Node], args: &[&str]) -> CommandOutput {
    let replimeter = tool.command(args);
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "ulimit -n 300; exec \"$0\" \"$@\""])
        .arg(replimeter.get_program())
        .args(replimeter.get_args())
        .envs(
            replimeter
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .env("REPLIMETER_PASSWORD", password(&nodes[0]))
        .current_dir(tool.folder())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    wait(shell.spawn().unwrap(), LIMIT)
}

pub(super) fn too_few_open_files_are_refused(nodes: &[Node]) {
    let tool = TestEnvironment::new();
    let [primary, replica] = [0, 1].map(|index| url(&nodes[index], ADMIN));
    let servers = ["--primary", &primary, "--replica", &replica];
    let load = ["load", "--workload", "insert", "--threads", "60"];
    let beside = [
        "lag",
        "--load",
        "insert:60@primary",
        "--load",
        "insert:60@primary",
    ];
    for (line, threads, needed) in [(&load[..], 60, 316), (&beside[..], 120, 376)] {
        let ended = limited(&tool, nodes, &[line, &servers].concat()).with_code(3);
        let wanted =
            format!("{threads} threads need {needed} open files, and this process may have 300");
        let _ = ended.stderr_contains(&wanted).stderr_contains("ulimit -Hn");
    }
    assert!(tool.runs().is_empty(), "nothing was measured");
}
