//! Passwords of the user's servers: every character works, and nothing repeats them.

use std::{
    fs,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Child, Command},
    thread,
    time::Duration,
};

use replimeter_engine::Node;
use replimeter_suites::{
    CommandOutput, LIMIT, TestEnvironment,
    harness::{Test, skip},
    shared, sql, test, value, wait, wait_until,
};
use rustix::process::{Pid, Signal, kill_process};

pub(crate) const TESTS: &[Test] = &[
    test!(every_special_character_works_in_every_source),
    test!(password_is_nowhere_but_in_its_source),
    test!(password_of_backlog_is_nowhere_but_in_its_source).long(),
    test!(core_dump_of_a_run_with_a_password_is_refused),
];

/// Every special character, also at both ends.
const SPECIAL: &str = " :@/?#%&=+ '\"\\\\s`$!*;|<>(){}[]^~,.-_%41 äß€😀\u{a0}# ";

/// A password that occurs nowhere by chance.
const CANARY: &str = "Xk9QvT2zCanary";

/// Creates a user with all privileges, on replicas too.
fn create_user(servers: &[Node], name: &str, password: &str) {
    let literal = password.replace('\\', "\\\\").replace('\'', "\\'");
    let host = "'127.0.0.1'";
    sql(
        &servers[0],
        &format!("CREATE USER {name}@{host} IDENTIFIED BY '{literal}'"),
    );
    sql(&servers[0], &format!("GRANT ALL ON *.* TO {name}@{host}"));
    let position = value(&servers[0], "SELECT @@gtid_binlog_pos").unwrap();
    for replica in &servers[1..] {
        let arrived = format!("SELECT MASTER_GTID_WAIT('{position}', 240)");
        assert_eq!(value(replica, &arrived).as_deref(), Some("0"));
    }
}

/// Removes a user that a test has created on shared servers.
fn drop_user(servers: &[Node], name: &str) {
    sql(&servers[0], &format!("DROP USER {name}@'127.0.0.1'"));
}

/// Writes an option file that only its owner can read.
fn option_file(tool: &TestEnvironment, name: &str, password: &str) -> PathBuf {
    let path = tool.folder().join(name);
    let value = password.replace('\\', "\\\\").replace('"', "\\\"");
    fs::write(&path, format!("[client]\npassword = \"{value}\"\n")).unwrap();
    path
}

fn every_special_character_works_in_every_source() {
    let sandbox = shared("mariadb/async:1", &[]);
    let node = &sandbox.nodes()[0];
    create_user(sandbox.nodes(), "special", SPECIAL);
    let encoded =
        |text: &str| -> String { text.bytes().map(|byte| format!("%{byte:02x}")).collect() };
    let address = node.endpoint.address();
    let plain = format!("mysql://special@{address}/");
    for (password, want) in [
        // The login succeeds, and the next check fails.
        (SPECIAL.to_owned(), "is the same server as primary"),
        (format!("{SPECIAL}Xk9QvT2z"), "Access denied"),
    ] {
        let in_url = format!("mysql://special:{}@{address}/", encoded(&password));
        let tool = TestEnvironment::new();
        let file = option_file(&tool, "password.cnf", &password);
        let file = ["--defaults-file", file.to_str().unwrap()];
        for (source, url, more, variable) in [
            ("URL", &in_url, &[][..], None),
            ("option file", &plain, &file, None),
            ("variable", &plain, &[], Some("REPLIMETER_PASSWORD")),
            (
                "own variable",
                &plain,
                &[],
                Some("REPLIMETER_PRIMARY_PASSWORD"),
            ),
            ("client's variable", &plain, &[], Some("MYSQL_PWD")),
        ] {
            let args = [&["lag", "--primary", url, "--replica", url][..], more].concat();
            let mut command = tool.command(&args);
            command.envs(variable.map(|name| (name, &password)));
            if variable == Some("REPLIMETER_PRIMARY_PASSWORD") {
                command.env("REPLIMETER_REPLICA1_PASSWORD", &password);
            }
            let ended = wait(command.spawn().unwrap(), LIMIT);
            assert!(
                ended.code == Some(3) && ended.stderr.contains(want),
                "{source}: {ended:#?}"
            );
            for shown in [&ended.stdout, &ended.stderr] {
                assert!(
                    !shown.contains(SPECIAL.trim()) && !shown.contains("Xk9QvT2z"),
                    "{source}: {ended:#?}"
                );
            }
        }
    }
    // Other encodings are refused rather than changed.
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt};
    let tool = TestEnvironment::new();
    let mut command = tool.command(&["lag", "--primary", &plain, "--replica", &plain]);
    command.env("REPLIMETER_PASSWORD", OsStr::from_bytes(b"Xk9QvT2z\xff"));
    let ended = CommandOutput::of(command.output().unwrap()).with_code(2);
    let ended = ended.stderr_contains("the password in REPLIMETER_PASSWORD is not UTF-8");
    assert!(!ended.stderr.contains("Xk9"), "{ended:#?}");
    drop_user(sandbox.nodes(), "special");
}

/// The processes below one, by their parents.
fn family(of: u32) -> Vec<u32> {
    let mut found = vec![of];
    let mut next = 0;
    while let Some(parent) = found.get(next) {
        let tasks = fs::read_dir(format!("/proc/{parent}/task"))
            .into_iter()
            .flatten();
        let children: String = tasks
            .flatten()
            .filter_map(|task| fs::read_to_string(task.path().join("children")).ok())
            .collect();
        found.extend(
            children
                .split_whitespace()
                .filter_map(|pid| pid.parse::<u32>().ok()),
        );
        next += 1;
    }
    found
}

fn contains(path: &Path, text: &str) -> bool {
    let bytes = fs::read(path).unwrap_or_default();
    bytes
        .windows(text.len())
        .any(|window| window == text.as_bytes())
}

/// Waits for the tool and fails when the canary gets into the environment or the arguments of a process.
fn watch(tool: Child, name: &str) -> CommandOutput {
    let pid = tool.id();
    let waiting = thread::spawn(move || wait(tool, LIMIT));
    while !waiting.is_finished() {
        for process in family(pid) {
            for file in ["environ", "cmdline"] {
                let path = format!("/proc/{process}/{file}");
                assert!(!contains(Path::new(&path), CANARY), "{name}: {path}");
            }
        }
        thread::sleep(Duration::from_millis(20));
    }
    waiting.join().unwrap()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found
}

fn password_is_nowhere_but_in_its_source() {
    let rounds = "--rounds 20 --floor-rounds 0";
    assert_no_canary(&[
        ("doctor", "", false),
        ("lag", rounds, false),
        ("lag", &format!("{rounds} --method stamp,wait,tap"), false),
        ("lag", rounds, true),
        ("tap", "--duration 1s --floor-duration 0", false),
        ("exposure", "--duration 1s", false),
        ("stale", "--duration 1s", false),
        ("load", "--duration 1s --warm-up 0s --threads 1", false),
        ("front", "--duration 1s --listen 127.0.0.1:0", false),
    ]);
}

fn password_of_backlog_is_nowhere_but_in_its_source() {
    assert_no_canary(&[("backlog", "--build-up 1s --rate 50", false)]);
}

/// Runs commands with their options, and with a panic or not, and searches everything that they leave.
fn assert_no_canary(commands: &[(&str, &str, bool)]) {
    let sandbox = shared("mariadb/async:1", &[]);
    create_user(sandbox.nodes(), "canary", CANARY);
    // A statement in a variable, which the manifest lists.
    sql(
        &sandbox.nodes()[0],
        &format!("SET GLOBAL init_connect = 'SET @password = \\'{CANARY}\\''"),
    );
    let urls: Vec<String> = sandbox
        .nodes()
        .iter()
        .map(|node| format!("mysql://canary@{}/", node.endpoint.address()))
        .collect();
    for &(command, more, fault) in commands {
        let more: Vec<&str> = more.split_whitespace().collect();
        let tool = TestEnvironment::new();
        let file = option_file(&tool, "password.cnf", CANARY);
        let file = file.to_str().unwrap();
        let target = ["--primary", &urls[0], "--replica", &urls[1]];
        let args = [&[command][..], &target, &["--defaults-file", file], &more].concat();
        let mut process = tool.command(&args);
        if fault {
            process.env("REPLIMETER_FAULT", "panic-while-measuring");
        }
        let ended = watch(process.spawn().unwrap(), command);
        let name = format!("{command} {more:?}");
        assert_ne!(ended.code, Some(2), "{name}: {ended:#?}");
        let shown = format!("{}{}", ended.stdout, ended.stderr);
        assert!(!shown.contains(CANARY), "{name}: {ended:#?}");
        assert_eq!(shown.contains("panic"), fault, "{name}: {ended:#?}");
        fs::remove_file(file).unwrap();
        let with = files(tool.folder());
        assert!(command == "doctor" || fault || !with.is_empty(), "{name}");
        for path in with {
            assert!(!contains(&path, CANARY), "{name}: {}", path.display());
        }
    }
    sql(&sandbox.nodes()[0], "SET GLOBAL init_connect = ''");
    drop_user(sandbox.nodes(), "canary");
}

fn core_dump_of_a_run_with_a_password_is_refused() {
    // Whether this machine writes core dumps at all.
    let dumps = |program: &mut Command, ready: &dyn Fn(Pid) -> bool| {
        let mut child = program.spawn().unwrap();
        let pid = Pid::from_child(&child);
        wait_until("it has begun", LIMIT, || ready(pid));
        kill_process(pid, Signal::ABORT).unwrap();
        child.wait().unwrap().core_dumped()
    };
    let shell = |words: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -c unlimited; exec {words}")]);
        command
    };
    let folder = replimeter_suites::folder();
    let mut sleep = shell("sleep 100");
    let sleeps = |pid: Pid| {
        let name = fs::read_to_string(format!("/proc/{}/comm", pid.as_raw_nonzero()));
        name.is_ok_and(|name| name == "sleep\n")
    };
    if !dumps(sleep.current_dir(folder.path()), &sleeps) {
        return skip("core dumps are off on this machine");
    }
    let sandbox = shared("mariadb/async:1", &[]);
    create_user(sandbox.nodes(), "canary", CANARY);
    let tool = TestEnvironment::new();
    let file = option_file(&tool, "password.cnf", CANARY);
    let url = |node: &Node| format!("mysql://canary@{}/", node.endpoint.address());
    let [primary, replica] = [0, 1].map(|index| url(&sandbox.nodes()[index]));
    let args = [
        "tap",
        "--primary",
        &primary,
        "--replica",
        &replica,
        "--defaults-file",
    ];
    let args = [&args[..], &[file.to_str().unwrap(), "--duration", "60s"]].concat();
    let command = tool.command(&args);
    let words: Vec<String> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| format!("'{}'", word.to_str().unwrap()))
        .collect();
    let mut limited = shell(&words.join(" "));
    limited.current_dir(tool.folder());
    limited.envs(
        command
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    // It has read the password when it is connected.
    let begun = |_: Pid| {
        let connections =
            "SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'canary'";
        value(&sandbox.nodes()[0], connections).is_some_and(|count| count != "0")
    };
    assert!(!dumps(&mut limited, &begun), "a core dump was written");
    drop_user(sandbox.nodes(), "canary");
}
