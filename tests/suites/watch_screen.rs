//! What `replimeter watch` shows while it lasts: a screen on a terminal, a line for each poll in a pipe.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
};

use replimeter_engine::Node;
use replimeter_suites::{
    CommandOutput, LIMIT, TestEnvironment, harness::Test, password, shared, test, url, wait,
    wait_until,
};
use serde_json::Value;

pub(crate) const TESTS: &[Test] = &[
    test!(screen_shows_servers_and_gives_the_terminal_back),
    test!(watch_in_a_pipe_prints_lines_until_it_is_closed),
];

/// The user of the sandboxes.
const ADMIN: &str = "replimeter";

fn watch(tool: &TestEnvironment, nodes: &[Node]) -> Command {
    let [primary, replica] = [&nodes[0], &nodes[1]].map(|node| url(node, ADMIN));
    let args = ["watch", "--primary", &primary, "--replica", &replica];
    let mut command = tool.command(&[&args[..], &["--poll-interval", "100ms"]].concat());
    command.env("REPLIMETER_PASSWORD", password(&nodes[0]));
    command
}

fn quoted(word: &OsStr) -> String {
    format!("'{}'", word.to_str().unwrap())
}

fn screen_shows_servers_and_gives_the_terminal_back() {
    let sandbox = shared("mariadb/async:1", &[]);
    let tool = TestEnvironment::new();
    let command = watch(&tool, sandbox.nodes());
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<String> = words.map(quoted).collect();
    let script = format!("stty rows 24 cols 80; exec {}", words.join(" "));
    let output = tool.folder().join("screen.txt");
    let mut terminal = Command::new("script");
    terminal
        .args(["--quiet", "--return", "--command", &script, "/dev/null"])
        .current_dir(tool.folder())
        .envs(
            command
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(File::create(&output).unwrap())
        .stderr(Stdio::piped());
    let mut child = terminal.spawn().unwrap();
    let mut keys = child.stdin.take().unwrap();
    let shown = || String::from_utf8_lossy(&fs::read(&output).unwrap()).into_owned();
    let wait_for = |text: &str| wait_until(text, LIMIT, || shown().contains(text));
    // Spaces are moves of the cursor.
    wait_for("\u{1b}[?1049h");
    wait_for("replica1");
    keys.write_all(b"\x1b[B\r").unwrap();
    wait_for("trend,");
    keys.write_all(b"qq").unwrap();
    let _ = wait(child, LIMIT).with_code(0);
    let text = shown();
    let (_, after) = text.rsplit_once("\u{1b}[?1049l").unwrap();
    assert!(after.contains("stopping and cleaning up"), "{text:?}");
    assert!(after.contains("Run kept in"), "{text:?}");
    assert!(tool.only_run().join("summary.json").exists());
}

fn watch_in_a_pipe_prints_lines_until_it_is_closed() {
    let sandbox = shared("mariadb/async:1", &[]);
    let tool = TestEnvironment::new();
    let mut child = watch(&tool, sandbox.nodes())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for line in lines.take(3) {
        let line = line.unwrap();
        assert!(
            line.contains(" replica1 ") && !line.contains('\u{1b}'),
            "{line}"
        );
    }
    let ended: CommandOutput = wait(child, LIMIT).with_code(0);
    let summary = fs::read(tool.only_run().join("summary.json")).unwrap();
    let document: Value = serde_json::from_slice(&summary).unwrap();
    let warnings = document["warnings"].to_string();
    assert!(
        warnings.contains("closed the pipe"),
        "{warnings}: {ended:#?}"
    );
}
