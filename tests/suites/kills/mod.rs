//! SIGKILL at random moments of every command. `REPLIMETER_TEST_SEED` repeats a run's moments.

mod on_endpoints;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Child,
    thread,
    time::{Duration, Instant, SystemTime},
};

use replimeter_model::random::Random;
use replimeter_suites::{
    CommandOutput, LIMIT, TestEnvironment, folders_left, harness::Test, test, wait, wait_until,
};

pub(crate) const TESTS: &[Test] = &[
    test!(kill_of_few_commands_leaves_nothing).starts(4),
    test!(on_endpoints::kill_at_few_moments_on_endpoints_is_explained).long(),
    test!(kill_of_every_command_leaves_nothing).starts(4).long(),
    test!(on_endpoints::kill_at_a_hundred_moments_on_mariadb_leaves_nothing).long(),
    test!(on_endpoints::kill_at_a_hundred_moments_on_mysql_leaves_nothing).long(),
];

/// Every command that starts servers; all but `doctor` run for longer than the latest kill takes.
const COMMANDS: [&str; 18] = [
    "lag --duration 60s",
    "lag --sandbox chain:2 --link-delay 1ms --duration 60s",
    "lag --sandbox galera:2 --method all --duration 60s",
    "lag --sandbox mysql/group:2 --duration 60s",
    "lag --load oltp-mix:2@primary --load-data-size 5000 --duration 60s",
    "tap --duration 60s",
    "stale --duration 60s",
    "stale --sandbox mysql/async:1 --check-load-reads=4:8 --duration 60s",
    "backlog --build-up 60s",
    "exposure --sandbox semi-sync:1 --duration 60s",
    "front --sandbox async:1 --duration 60s --listen 127.0.0.1:0",
    "load --workload oltp-mix --sandbox async:1 --data-size 5000 --duration 60s",
    "cost",
    "scale --data-size 1000",
    "loss",
    "calibrate",
    "doctor --sandbox async:2",
    "reproduce",
];

/// Returns random numbers whose seed is printed.
fn random() -> Random {
    let now = || SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let seed =
        env::var("REPLIMETER_TEST_SEED").map_or_else(|_| now(), |seed| seed.parse().unwrap());
    println!("REPLIMETER_TEST_SEED={seed}");
    Random::new(seed)
}

/// Returns the processes that use a folder: in it, started from it, or with it in their arguments.
fn processes_of(folder: &Path) -> Vec<String> {
    let name = folder.to_string_lossy();
    let all = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .map(|entry| entry.path());
    all.filter_map(|process| {
        let arguments = fs::read(process.join("cmdline")).ok()?;
        let arguments = String::from_utf8_lossy(&arguments).replace('\0', " ");
        let inside = ["cwd", "exe"].iter().any(|link| {
            fs::read_link(process.join(link)).is_ok_and(|path| path.starts_with(folder))
        });
        // A killed process has no arguments until its parent has waited for it.
        (!arguments.is_empty() && (inside || arguments.contains(&*name)))
            .then(|| format!("{}: {arguments}", process.display()))
    })
    .collect()
}

fn kill(mut child: Child) -> CommandOutput {
    child.kill().unwrap();
    wait(child, LIMIT)
}

/// Whether the kill of this number waits until it certainly meets a run: every fifth, so that each command is among them,
/// and the last.
fn is_certain(number: u64, kills: u64) -> bool {
    number % 5 == 4 || number + 1 == kills
}

/// Kills commands at random times; most of them have started servers by then.
fn kills_of_commands(commands: &[&str], kills: u64) {
    let mut random = random();
    let tool = TestEnvironment::new();
    let outer = tool.folder().parent().unwrap().to_owned();
    let mut with_servers = 0;
    for number in 0..kills {
        let command = commands[(number % commands.len() as u64) as usize];
        let moment = Duration::from_millis(random.between(0, 6000));
        let mut child = tool
            .command(&command.split(' ').collect::<Vec<_>>())
            .spawn()
            .unwrap();
        if is_certain(number, kills) {
            wait_until("servers run, or the command has ended", LIMIT, || {
                !tool.servers().is_empty() || child.try_wait().unwrap().is_some()
            });
        }
        with_servers += u64::from(!tool.servers().is_empty());
        thread::sleep(moment);
        let context = format!("kill {number} of `{command}` after {moment:?}");
        // On a quick machine a command can have ended; only `doctor` may have found something.
        if let Some(status) = child.try_wait().unwrap() {
            let ended = wait(child, LIMIT);
            assert!(
                ended.code == Some(0) || command.starts_with("doctor"),
                "{context}: {status}, {ended:#?}"
            );
        } else {
            let _ = kill(child);
        }
        let (began, mut left) = (Instant::now(), processes_of(&outer));
        while !left.is_empty() && began.elapsed() < LIMIT {
            thread::sleep(Duration::from_millis(20));
            left = processes_of(&outer);
        }
        assert!(left.is_empty(), "{context}: {left:#?}");
    }
    println!("{with_servers} of {kills} kills met running servers");
    assert!(with_servers > 0, "no kill met running servers");
    // The next start removes what the last ones left.
    assert_eq!(folders_left(&tool), Vec::<PathBuf>::new());
    assert_eq!(processes_of(&outer), [""; 0]);
    // A run directory is explained, whenever its run was killed.
    for run in tool.runs() {
        assert_explained(&tool, &run, "a sandbox's run");
    }
}

fn kill_of_few_commands_leaves_nothing() {
    let commands = [
        "lag --sandbox none --duration 60s --starts 1",
        "backlog --build-up 60s --rate 50",
    ];
    kills_of_commands(&commands, 2);
}

fn kill_of_every_command_leaves_nothing() {
    kills_of_commands(&COMMANDS, 200);
}

/// Checks that `report` renders a run directory or names what it has.
fn assert_explained(tool: &TestEnvironment, run: &Path, context: &str) {
    let report = tool.run(&["report", run.to_str().unwrap()]);
    let names = || -> Vec<_> {
        let entries = fs::read_dir(run).unwrap();
        entries.map(|entry| entry.unwrap().file_name()).collect()
    };
    let explained = matches!(report.code, Some(2 | 3))
        && report.stderr.contains("error: ")
        && report.stderr.contains("hint: ");
    assert!(
        report.code == Some(0) || explained,
        "{context}: {:?}, {report:#?}",
        names()
    );
}
