//! `make bench`: measures the performance goals of a version, as ratios and counts, next to
//! the alternatives in the same run. Run it on an otherwise idle machine.

mod ablation;
mod bare;
mod compare;
mod disturbance;
mod front;
mod hosts;
mod load;
mod loss;
mod methods;
mod page;
mod shapes;
mod stale;
mod tap;

use std::{
    fs,
    path::Path,
    process::Command,
    sync::atomic::AtomicBool,
    thread,
    time::{Duration, Instant},
};

use replimeter_instruments::{clock::Clock, host::HostWatch};
use replimeter_model::estimate::Estimate;
use replimeter_run::machine;
use replimeter_sandbox::{Home, Install, Sandbox, Search, Settings};
use replimeter_stats::student::{geometric_mean, mean};
use replimeter_suites::{TestEnvironment, home, memory_kib};
use serde_json::Value;

/// Repetitions of a measurement, and turns of alternatives: fewer give intervals that show nothing.
const TIMES: usize = 8;

fn main() {
    if std::env::args().any(|arg| arg == "--pending") {
        return tap::pending();
    }
    if std::env::args().any(|arg| arg == "--bare") {
        return bare::bare();
    }
    let parts: [(&str, fn()); 19] = [
        ("starts", starts),
        ("shapes", shapes::starts),
        ("links", shapes::links),
        ("floor", floor),
        ("memory", memory),
        ("calibrate", methods::calibrate),
        ("reference", methods::reference),
        ("writes", methods::writes),
        ("tap", tap::tap),
        ("disturbance", disturbance::disturbance),
        ("ablation", ablation::ablation),
        ("hosts", hosts::hosts),
        ("load", load::load),
        ("loss", loss::loss),
        ("exposure", loss::exposure),
        ("stale", stale::stale),
        ("front", front::front),
        ("page", page::page),
        ("compare", compare::compare),
    ];
    let named = asked(&parts.map(|(name, _)| name));
    machine();
    println!("{:<58} {:>12}  {:<12}", "figure", "mean, 95 %", "goal");
    // A fresh clone with empty caches takes minutes, so it needs an option.
    if std::env::args().any(|arg| arg == "--demo") {
        demo();
    }
    for (_, part) in parts
        .iter()
        .filter(|(name, _)| named.is_empty() || named.iter().any(|named| named == name))
    {
        part();
    }
}

/// Returns the parts named on the command line. Prints the usage and exits on `--help` or an unknown part.
fn asked(parts: &[&str]) -> Vec<String> {
    let usage = format!(
        "parts: {}\noptions: --demo (also run `make demo` from a fresh clone); for load: --rounds N, --only WHAT; for load and page: --long",
        parts.join(", ")
    );
    let mut named = Vec::new();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--help" | "-h" => {
                println!("{usage}");
                std::process::exit(0);
            }
            "--rounds" | "--only" => drop(args.next()),
            "--demo" | "--long" => {}
            part if parts.contains(&part) => named.push(arg),
            other => {
                eprintln!("unknown part or option `{other}`\n{usage}");
                std::process::exit(2);
            }
        }
    }
    named
}

/// Measures `make demo` from a fresh clone with an empty cache.
fn demo() {
    let folder = tempfile::Builder::new()
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .tempdir_in("/var/tmp")
        .unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let clone = folder.path().join("clone");
    assert!(
        Command::new("git")
            .args(["clone", "--quiet"])
            .arg(source)
            .arg(&clone)
            .status()
            .unwrap()
            .success()
    );
    let began = Instant::now();
    let mut make = Command::new("make");
    make.arg("demo")
        .current_dir(&clone)
        .env("CARGO_HOME", folder.path().join("cargo"))
        .env("REPLIMETER_HOME", folder.path().join("home"));
    let output = make
        .env_remove("MAKEFLAGS")
        .env_remove("CARGO_TARGET_DIR")
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let took = began.elapsed().as_secs_f64() / 60.0;
    let runs: Vec<_> = fs::read_dir(clone.join("replimeter-runs"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    let summary: Value =
        serde_json::from_str(&fs::read_to_string(runs[0].join("summary.json")).unwrap()).unwrap();
    line(
        "make demo, fresh clone and empty caches (min)",
        format!("{took:.1}"),
        "≤ 6",
    );
    line(
        "its measurement alone (s)",
        format!("{:.1}", summary["measured_us"].as_f64().unwrap() / 1e6),
        "≤ 20",
    );
}

fn line(figure: &str, measured: String, goal: &str) {
    println!("{figure:<58} {measured:>12}  {goal:<12}");
}

/// Returns the geometric mean of several repetitions of a positive figure, and its text with a 95 % interval. Alternatives are measured in
/// turns, and the ratio of each turn is one figure.
fn figure(values: &[f64]) -> (f64, String) {
    let mean = geometric_mean(values);
    (mean.value.unwrap_or(f64::NAN), text(mean))
}

/// Returns the mean of differences, in the same form.
fn difference(values: &[f64]) -> String {
    text(mean(values))
}

fn text(mean: Estimate) -> String {
    let value = mean.value.unwrap_or(f64::NAN);
    mean.ends().map_or_else(
        || format!("{value:.3}"),
        |[low, high]| format!("{value:.3} [{low:.3}, {high:.3}]"),
    )
}

/// Returns the ratio of two alternatives, measured in turns.
fn ratio(pairs: impl IntoIterator<Item = (f64, f64)>) -> String {
    let ratios = pairs.into_iter().map(|(of, to)| of / to);
    figure(&ratios.collect::<Vec<_>>()).1
}

/// Prints what the figures depend on.
fn machine() {
    let machine = machine::describe();
    let folder = home();
    let flush = HostWatch::new(&Clock::start()).flush(&folder);
    let flush = flush.map_or_else(
        || "unknown".to_owned(),
        |flush| format!("{:.0} µs", flush.p50_us),
    );
    let commit = Command::new("git")
        .args(["describe", "--always", "--dirty", "--abbrev=12"])
        .output();
    let commit = commit.map_or_else(
        |_| String::new(),
        |output| String::from_utf8_lossy(&output.stdout).into_owned(),
    );
    println!(
        "{}, {} cores, {:.0} GiB; {}, {}; a flush of the disk takes {flush}; commit {}",
        machine.cpu,
        machine.cores,
        machine.memory_bytes as f64 / f64::from(1 << 30),
        machine.kernel,
        machine.distribution,
        commit.trim()
    );
}

/// Starts and removes a sandbox; returns the seconds that each took.
fn once(root: &Path, servers: &Path) -> (f64, f64) {
    let search = Search {
        servers: Some(servers.to_owned()),
        ..Search::default()
    };
    let settings = Settings::of(
        "mariadb/async:1".parse().unwrap(),
        search,
        Home::at(root.to_owned()).unwrap(),
    );
    let sandbox = Sandbox::start(&settings, &AtomicBool::new(false)).unwrap();
    let start = sandbox.record().start_us / 1e6;
    let began = Instant::now();
    sandbox.close().unwrap();
    (start, began.elapsed().as_secs_f64())
}

/// Compares the start of sandbox `async:1`, until the sentinel is visible, with a shell script.
fn starts() {
    let servers = home().join("servers");
    let search = Search {
        servers: Some(servers.clone()),
        ..Search::default()
    };
    let install = Install::find(
        &search,
        Some(
            "mariadb/async:1"
                .parse::<replimeter_model::shape::Shape>()
                .unwrap()
                .engine()
                .unwrap(),
        ),
    )
    .unwrap();
    let unpacked = install.base.parent().unwrap().to_owned();
    let (mut warm, mut cold, mut down, mut by_hand) = (vec![], vec![], vec![], vec![]);
    for _ in 0..TIMES {
        let folder = tempfile::Builder::new()
            .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .tempdir_in("/var/tmp")
            .unwrap();
        let (start, removal) = once(&folder.path().join("home"), &servers);
        cold.push(start);
        down.push(removal);
        let (start, removal) = once(&folder.path().join("home"), &servers);
        warm.push(start);
        down.push(removal);
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("by-hand.sh");
        let output = Command::new(script).arg(&unpacked).output().unwrap();
        let millis: f64 = String::from_utf8(output.stdout)
            .unwrap()
            .trim()
            .parse()
            .expect("by-hand.sh prints milliseconds");
        by_hand.push(millis / 1e3);
    }
    let to_by_hand = |starts: &[f64]| {
        let pairs = starts.iter().copied().zip(by_hand.iter().copied());
        ratio(pairs)
    };
    let (warm_ratio, cold_ratio) = (to_by_hand(&warm), to_by_hand(&cold));
    let [warm_text, cold_text, hand_text] =
        [&warm, &cold, &by_hand].map(|seconds| figure(seconds).1);
    line(
        "sandbox async:1, warm: start to sentinel visible (s)",
        warm_text,
        "≤ 2.5",
    );
    line(
        "sandbox async:1, cold: start to sentinel visible (s)",
        cold_text,
        "≤ 5",
    );
    line("the same in a shell script (s)", hand_text, "");
    line(
        "cold start / script (both make data directories)",
        cold_ratio,
        "",
    );
    line("warm start / script", warm_ratio, "");
    line("removal (s)", figure(&down).1, "≤ 1");
}

fn run(args: &[&str]) -> Value {
    TestEnvironment::new().run(args).with_code(0).json()
}

/// Compares the null replica with the round trip of a point select in the same run.
fn floor() {
    let (mut idle_width, mut idle_middle, mut ack_width, mut ack_middle) =
        (vec![], vec![], vec![], vec![]);
    for _ in 0..TIMES {
        let document = run(&[
            "lag",
            "--sandbox",
            "mariadb/async:1",
            "--rounds",
            "20",
            "--floor-rounds",
            "1000",
            "--json",
        ]);
        let floor = &document["results"]["floors"][0];
        let p50 = |key: &str| floor[key]["p50_us"].as_f64().unwrap();
        let (idle, at_ack) = (p50("point_select"), p50("point_select_at_ack"));
        idle_width.push(p50("bracket_us") / idle);
        idle_middle.push(p50("midpoint_abs") / idle);
        ack_width.push(p50("bracket_us") / at_ack);
        ack_middle.push(p50("midpoint_abs") / at_ack);
    }
    line(
        "floor: |midpoint from ack| / point select at the ack (p50)",
        figure(&ack_middle).1,
        "≤ 1",
    );
    line(
        "floor: bracket width / point select at the ack (p50)",
        figure(&ack_width).1,
        "≤ 2",
    );
    line(
        "floor: |midpoint from ack| / point select, idle (p50)",
        figure(&idle_middle).1,
        "≤ 1",
    );
    line(
        "floor: bracket width / point select, idle (p50)",
        figure(&idle_width).1,
        "≤ 2",
    );
}

/// Runs the tool to its end; returns its duration in seconds and its peak memory in MiB.
fn watched(tool: &TestEnvironment, args: &[&str]) -> (f64, f64) {
    let began = Instant::now();
    let mut child = tool
        .command(args)
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("the tool runs");
    let mut peak = 0.0f64;
    let status = loop {
        // The peak can be read until the process has ended.
        let kib = memory_kib(child.id(), "VmHWM").unwrap_or(0);
        peak = peak.max(kib as f64 / 1024.0);
        if let Some(status) = child.try_wait().expect("it is waited for") {
            break status;
        }
        // A page is rendered within milliseconds of the end.
        thread::sleep(Duration::from_micros(500));
    };
    let took = began.elapsed().as_secs_f64();
    assert!(status.success(), "{args:?}: {status}");
    (took, peak)
}

/// Returns the peak memory of the tool, in MiB, in a run of `rounds` rounds.
fn peak(rounds: &str) -> f64 {
    let args = [
        "lag",
        "--sandbox",
        "mariadb/async:1",
        "--pace",
        "visible",
        "--rounds",
        rounds,
        "--floor-rounds",
        "0",
    ];
    watched(&TestEnvironment::new(), &args).1
}

/// Compares the memory of 100,000 rounds with that of 1,000.
fn memory() {
    let (few, many) = (peak("1000"), peak("100000"));
    line("peak memory, 1,000 rounds (MiB)", format!("{few:.1}"), "");
    line(
        "peak memory, 100,000 rounds (MiB)",
        format!("{many:.1}"),
        "",
    );
    line(
        "difference (MB)",
        format!("{:.1}", (many - few) * 1.048_576),
        "within ± 5",
    );
}
