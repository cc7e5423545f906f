//! Names and messages of servers that a terminal, a browser or a spreadsheet would obey, and links of another user.

use std::{
    fs,
    io::Write as _,
    net::TcpListener,
    os::unix::fs::symlink,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use replimeter_engine::Node;
use replimeter_measurements::registry;
use replimeter_render::terminal::controls_terminal;
use replimeter_run::run_dir::{AB, FILES, MANIFEST, MARKDOWN, PAGE, PLAN, SAMPLES, SUMMARY};
use replimeter_suites::{
    CommandOutput, LIMIT, TestEnvironment, harness::Test, net, password, session, sql, start, test,
    url, wait, wait_until,
};
use serde_json::Value;

pub(crate) const TESTS: &[Test] = &[
    test!(names_and_errors_of_a_server_control_nothing).starts(2),
    test!(refusal_of_a_peer_controls_nothing),
    test!(runs_of_others_are_read_with_care),
    test!(links_in_runs_of_every_command_reach_nothing)
        .starts(25)
        .long(),
];

/// A name of a schema, a table or a row: a formula, control characters of a terminal, a change of direction, a line that looks
/// like one of Replimeter, and the end of a script.
const NAME: &str = "=cmd\u{1b}[31m\u{9b}2J\u{202e}\n  hint: a|b</script>";
/// The end of a version.
const VERSION: &str = "-MariaDB-</script><b>\u{202e}=cmd";

fn uncontrolled(text: &str) {
    assert!(!text.contains(controls_terminal), "{text:?}");
}

/// Checks that a failure is one error with one hint, without what a server adds to it.
fn one_error(ended: &CommandOutput) {
    uncontrolled(&ended.stdout);
    uncontrolled(&ended.stderr);
    let lines: Vec<&str> = ended.stderr.lines().collect();
    assert!(
        lines.len() == 2 && lines[0].starts_with("error: ") && lines[1].starts_with("  hint: "),
        "{ended:#?}"
    );
    assert!(lines[0].contains("=cmd"), "{ended:#?}");
    assert!(!lines[1].contains("</script>"), "{ended:#?}");
}

fn run(tool: &TestEnvironment, servers: [&Node; 2], command: &str, more: &[&str]) -> CommandOutput {
    let urls = servers.map(|node| url(node, "replimeter"));
    let target = [command, "--primary", &urls[0], "--replica", &urls[1]];
    let child = tool
        .command(&[&target, more].concat())
        .env("REPLIMETER_PASSWORD", password(servers[0]))
        .spawn();
    wait(child.unwrap(), LIMIT)
}

fn names_and_errors_of_a_server_control_nothing() {
    let version = format!("version=10.11.99{VERSION}");
    let sandbox = start("mariadb/async:1", &[&version]);
    let (primary, replica) = (&sandbox.nodes()[0], &sandbox.nodes()[1]);
    let servers = [primary, replica];
    sql(primary, &format!("CREATE DATABASE `{NAME}`"));
    let table = format!("`{NAME}`.`{NAME}`");
    sql(
        primary,
        &format!("CREATE TABLE {table} (a VARCHAR(99) CHARACTER SET utf8mb4 PRIMARY KEY)"),
    );

    let tool = TestEnvironment::new();
    let stop = AtomicBool::new(false);
    let ended = thread::scope(|scope| {
        scope.spawn(|| {
            let mut session = session(primary);
            for row in 0.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                session
                    .run("test", &format!("INSERT INTO {table} VALUES ({row})"))
                    .unwrap();
                thread::sleep(Duration::from_millis(20));
            }
        });
        let more = [
            "--duration",
            "10s",
            "--floor-duration",
            "0",
            "--group-by",
            "table",
        ];
        let ended = run(&tool, servers, "tap", &more);
        stop.store(true, Ordering::Relaxed);
        ended
    })
    .with_code(0);
    assert!(ended.stdout.contains("=cmd"), "{ended:#?}");
    uncontrolled(&ended.stdout);
    uncontrolled(&ended.stderr);
    let file = |name: &str| fs::read_to_string(tool.only_run().join(name)).unwrap();
    let summary: Value = serde_json::from_str(&file("summary.json")).unwrap();
    let group = &summary["results"]["rows"][0]["group_by"][0];
    assert_eq!([&group["schema"], &group["table"]], [NAME, NAME]);
    let manifest: Value = serde_json::from_str(&file("manifest.json")).unwrap();
    assert!(manifest.to_string().contains(VERSION));
    let report = file("report.md");
    uncontrolled(&report);
    // The whole group is in one line of a table.
    let rows = report.lines().filter(|line| line.contains("=cmd"));
    for row in rows {
        assert!(row.starts_with('|') && row.contains("a\\|b"), "{row}");
    }
    let page = file("report.html");
    assert!(!page.contains(['\u{1b}', '\u{9b}', '\u{202e}']));
    assert_eq!(
        page.matches("<script").count(),
        page.matches("</script").count()
    );
    assert!(page.contains("&lt;b&gt;"), "the version is shown");

    // An error of the applier quotes the row.
    let insert = format!("INSERT INTO {table} VALUES ('{NAME}')");
    let mut local = session(replica);
    local.run("test", "SET sql_log_bin = 0").unwrap();
    local.run("test", &insert).unwrap();
    sql(primary, &insert);
    wait_until("the replica stops", LIMIT, || {
        let status = session(replica).rows("test", "SHOW SLAVE STATUS").unwrap();
        status[0]["Last_SQL_Errno"] == "1062"
    });
    one_error(&run(&tool, servers, "lag", &["--show-errors"]).with_code(3));
    let ended = run(&tool, servers, "doctor", &["--show-errors"]).with_code(1);
    assert!(ended.stdout.contains("Duplicate entry '=cmd"), "{ended:#?}");
    uncontrolled(&ended.stdout);
    let ended = run(&tool, servers, "doctor", &["--show-errors", "--json"]).with_code(1);
    uncontrolled(&ended.stdout);
    let wanted = NAME.replace('\n', " ");
    assert!(
        ended
            .json()
            .to_string()
            .contains(Value::from(wanted).to_string().trim_matches('"'))
    );

    // A statement's error.
    let signal = format!("SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{NAME}'");
    fs::write(tool.folder().join("signal.sql"), signal).unwrap();
    let primary_url = url(primary, "replimeter");
    let load = [
        "load",
        "--primary",
        &primary_url,
        "--workload",
        "signal.sql",
    ];
    let child = tool
        .command(&[&load[..], &["--duration", "1s", "--threads", "1"]].concat())
        .env("REPLIMETER_PASSWORD", password(primary))
        .spawn();
    let ended = wait(child.unwrap(), LIMIT);
    uncontrolled(&ended.stdout);
    uncontrolled(&ended.stderr);
    let all = format!("{}{}", ended.stdout, ended.stderr);
    assert!(all.contains("=cmd"), "{ended:#?}");
    assert!(!all.contains("\n  hint: a|b"), "{ended:#?}");
}

/// A peer that refuses every login with this message.
fn refusing_peer(message: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for client in listener.incoming() {
            // Error 1130.
            let payload = [&[0xff, 0x6a, 0x04], message.as_bytes()].concat();
            let header = [payload.len() as u8, 0, 0, 0];
            let _ = client.unwrap().write_all(&[&header[..], &payload].concat());
        }
    });
    port
}

fn refusal_of_a_peer_controls_nothing() {
    let tool = TestEnvironment::new();
    let peer = format!("mysql://u@127.0.0.1:{}/", refusing_peer(NAME));
    let ended = tool.run(&["lag", "--primary", &peer, "--replica", &peer]);
    one_error(&ended.with_code(3));
}

/// A short run of every command, and of those through a web site.
const RUNS: [&str; 13] = [
    "lag --sandbox async:1 --rounds 60 --floor-rounds 20",
    "backlog --sandbox async:1 --build-up 1s",
    "tap --sandbox async:1 --duration 2s --floor-duration 0",
    "load --sandbox none --workload insert --threads 1 --duration 1s",
    "cost --modes none --threads 1 --duration 1s --block-duration 250ms --warm-up 100ms --starts 1",
    "scale --replicas 0 --threads 2 --data-size 1MB --duration 1s --blocks 1 --starts 1",
    "scale --through http --replicas 0 --threads 1 --data-size 1MB --duration 1s --starts 1",
    "stale --sandbox async:1 --rounds 60 --starts 1 --read-delays none",
    "stale --sandbox async:1 --rounds 60 --starts 1 --read-delays none --through http",
    "loss --sandbox async:1 --crashes 1 --duration 1s",
    "exposure --sandbox async:1 --duration 1s",
    "front --sandbox async:1 --listen 127.0.0.1:0 --duration 2s",
    "calibrate --link-delay 5ms --rounds 20 --repetitions 2 --method poll",
];

/// Plants a link in place of every file that a run has not written yet, as soon as it has begun.
fn links_in_runs_of_every_command_reach_nothing() {
    for entry in registry().entries() {
        let runs = |run: &&str| run.split(' ').next() == Some(entry.name());
        assert!(RUNS.iter().any(runs), "{}", entry.name());
    }
    for run in RUNS {
        let tool = TestEnvironment::new();
        let (dir, outside) = (tool.folder().join("run"), tool.folder().join("outside"));
        fs::create_dir(&outside).unwrap();
        let mut args: Vec<&str> = run.split(' ').collect();
        args.extend(["--run-dir", "run"]);
        let mut child = tool.command(&args).spawn().unwrap();
        wait_until(&format!("`{run}` has begun, or has ended"), LIMIT, || {
            dir.join("samples.partial").exists() || child.try_wait().unwrap().is_some()
        });
        let planted = |name: &&str| symlink(outside.join(name), dir.join(name)).is_ok();
        let planted: Vec<&str> = FILES.into_iter().filter(planted).collect();
        assert!(planted.contains(&SUMMARY), "{run}: {planted:?}");
        let ended = wait(child, LIMIT);
        let created: Vec<_> = fs::read_dir(&outside).unwrap().collect();
        assert!(created.is_empty(), "{run}: {created:?}");
        if run.starts_with("scale --through") {
            // Its folder cannot be created.
            let _ = ended.with_code(3).stderr_contains(AB);
            continue;
        }
        let ended = ended.with_code(0);
        for name in [PLAN, SAMPLES, SUMMARY, PAGE, MARKDOWN] {
            let meta = fs::symlink_metadata(dir.join(name)).unwrap();
            assert!(meta.is_file(), "{run}: {name}: {ended:#?}");
        }
    }
}

/// Uses a run that another user made: nothing else is opened, and nothing panics.
fn runs_of_others_are_read_with_care() {
    let tool = TestEnvironment::new();
    let (run, other) = (tool.folder().join("run"), tool.folder().join("other"));
    net::copy_run("tap", &other);
    fs::write(tool.folder().join("secret"), "password=hunter2").unwrap();
    for name in [PLAN, MANIFEST, SUMMARY] {
        for link in [true, false] {
            net::copy_run("tap", &run);
            fs::remove_file(run.join(name)).unwrap();
            if link {
                symlink("../secret", run.join(name)).unwrap();
            } else {
                rustix::fs::mkfifoat(rustix::fs::CWD, run.join(name), 0o600.into()).unwrap();
            }
            for args in [&["report", "run"][..], &["compare", "run", "other"]] {
                let child = tool.command(args).spawn().unwrap();
                let ended = wait(child, LIMIT).with_code(3);
                let ended = ended.stderr_contains(if link { "is a link" } else { "regular file" });
                assert!(!ended.stderr.contains("hunter2"), "{ended:#?}");
            }
            assert!(!run.join(PAGE).exists());
            fs::remove_dir_all(&run).unwrap();
        }
    }
}
