//! Compares the load engine with sysbench 1.0, alternately on one server: throughput, processor
//! time and memory of the client, and the rate of filling a data set.

mod fill;

use std::{
    fs,
    io::Read,
    path::Path,
    process::{Child, Command, Stdio},
    slice,
    sync::atomic::AtomicBool,
    thread,
    time::{Duration, Instant},
};

use replimeter_engine::{Node, source::Servers};
use replimeter_instruments::{
    clock::Clock,
    load::{Workload, fill_sandbox, loop_accuracy, recording_cost},
    reference::Reference,
};
use replimeter_model::{load::DataSize, time::Nanos};
use replimeter_stats::signed::SignedHistogram;
use replimeter_suites::{TestEnvironment, by_socket, memory_kib, password, sql, start, url};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;

use crate::{TIMES, figure, line, ratio};

/// Rows of sysbench's table.
pub(crate) const ROWS: u64 = 100_000;
/// Counted time of a repetition, and the warm-up before it.
pub(crate) const COUNTED: Duration = Duration::from_secs(3);
pub(crate) const RAMP: Duration = Duration::from_secs(1);
const CONNECTIONS: [u32; 4] = [1, 8, 64, 512];
/// Time between two readings of a client's processor time.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// Server options: no flushes, and all rows in memory, so that the disk has no effect.
const OPTIONS: [&str; 4] = [
    "innodb_flush_log_at_trx_commit=0",
    "sync_binlog=0",
    "innodb_buffer_pool_size=1G",
    "max_connections=700",
];

fn named(argument: &str) -> Option<String> {
    std::env::args().skip_while(|arg| arg != argument).nth(1)
}

fn rounds() -> usize {
    named("--rounds")
        .and_then(|number| number.parse().ok())
        .unwrap_or(TIMES)
}

/// Returns whether `--only WHAT,WHAT` selects this; without it everything is selected.
fn wanted(what: &str) -> bool {
    named("--only").is_none_or(|only| only.split(',').any(|one| one == what))
}

pub(crate) fn load() {
    assert!(
        Command::new("sysbench")
            .arg("--version")
            .stdout(Stdio::null())
            .status()
            .is_ok(),
        "sysbench is missing: run scripts/get-test-tools"
    );
    let cost = recording_cost(5_000_000);
    line(
        "load: recording one operation, including the clock (ns)",
        format!("{:.0}", cost.as_nanos()),
        "≤ 100",
    );
    if wanted("loop") {
        event_loop();
    }
    if wanted("connections") {
        many_connections();
    }
    let sandbox = start("mariadb/none", &OPTIONS);
    let node = &sandbox.nodes()[0];
    let stop = AtomicBool::new(false);
    let workload = Workload::named("point-select").unwrap();
    let set = fill_sandbox(
        slice::from_ref(node),
        &workload,
        DataSize::Rows(ROWS),
        &mut |_| {},
        &stop,
    )
    .unwrap();
    for workload in ["point-select", "oltp-mix", "update-key", "insert"] {
        for connections in CONNECTIONS.into_iter().filter(|_| wanted(workload)) {
            compare_with_sysbench(node, workload, connections);
        }
    }
    if wanted("socket") {
        let node = by_socket(&sandbox.members()[0]);
        for connections in CONNECTIONS {
            compare_with_sysbench(&node, "point-select", connections);
        }
    }
    drop(set.remove(node));
    if wanted("memory") {
        memory(node);
    }
    drop(sandbox);
    for engine in ["mariadb", "mysql"] {
        if wanted("fill") {
            fill::filling(engine);
        }
    }
}

/// Compares the delay that an event loop measures with arrivals that are known, at about half a core.
fn event_loop() {
    for connections in [1, 8, 64] {
        let found = loop_accuracy(
            connections,
            50_000.0,
            Duration::from_micros(5),
            Duration::from_secs(5),
        )
        .unwrap();
        let what = format!("load: loop delay, {connections} connections");
        let us = |delay: Option<Nanos>| delay.map_or(f64::NAN, Nanos::as_micros);
        let [truth, known] = [&found.true_delay, &found.measured_delay];
        let mean = |delays: &SignedHistogram| delays.mean().unwrap_or(f64::NAN) / 1e3;
        line(
            &format!(
                "{what}: mean, true and measured (µs, share of a core {:.2})",
                found.share
            ),
            format!("{:.2} {:.2}", mean(truth), mean(known)),
            "",
        );
        line(
            &format!(
                "{what}: true minus measured, mean (µs, ± {:.1})",
                found.uncertainty.as_micros()
            ),
            format!("{:.2}", mean(truth) - mean(known)),
            "± 2",
        );
        line(
            &format!("{what}: p99, true and measured (µs)"),
            format!(
                "{:.1} {:.1}",
                us(truth.quantile(0.99)),
                us(known.quantile(0.99))
            ),
            "≤ 50",
        );
    }
}

/// Operations per second, and the client's processor time per operation, in µs.
#[derive(Clone, Copy)]
struct LoadResult {
    per_s: f64,
    cpu_us: f64,
}

/// Measures both alternately; for point selects a bare loop, too.
fn compare_with_sysbench(node: &Node, workload: &str, connections: u32) {
    let (mut ours, mut theirs, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds() {
        // The order alternates, so that a drift of the machine affects both.
        for first in [round % 2 == 0, round % 2 != 0] {
            if first {
                ours.push(replimeter(node, workload, connections))
            } else {
                theirs.push(sysbench(node, workload, connections))
            }
        }
        if workload == "point-select" {
            bare.push(bare_loop(node, connections));
        }
    }
    let way = node
        .endpoint
        .socket
        .as_ref()
        .map_or("TCP", |_| "Unix socket");
    let what = format!("load: {workload}, {connections} connections, {way}");
    let of = |results: &[LoadResult], pick: fn(&LoadResult) -> f64| {
        results.iter().map(pick).collect::<Vec<_>>()
    };
    let mean = |values: Vec<f64>| figure(&values).0;
    line(
        &format!("{what}: per s, Replimeter and sysbench"),
        format!(
            "{:.0} {:.0}",
            mean(of(&ours, |result| result.per_s)),
            mean(of(&theirs, |result| result.per_s))
        ),
        "",
    );
    let ratio = |a: &[LoadResult], b: &[LoadResult], pick: fn(&LoadResult) -> f64| {
        ratio(of(a, pick).into_iter().zip(of(b, pick)))
    };
    line(
        &format!("{what}: throughput / sysbench"),
        ratio(&ours, &theirs, |result| result.per_s),
        "low ≥ 0.97",
    );
    line(
        &format!("{what}: client CPU (µs), Replimeter and sysbench"),
        format!(
            "{:.2} {:.2}",
            mean(of(&ours, |result| result.cpu_us)),
            mean(of(&theirs, |result| result.cpu_us))
        ),
        "",
    );
    line(
        &format!("{what}: client CPU / sysbench"),
        ratio(&ours, &theirs, |result| result.cpu_us),
        "≤ 0.90",
    );
    if !bare.is_empty() {
        line(
            &format!("{what}: client CPU / bare event loop"),
            ratio(&ours, &bare, |result| result.cpu_us),
            "≤ 1.15",
        );
        line(
            &format!("{what}: throughput / bare event loop"),
            ratio(&ours, &bare, |result| result.per_s),
            "",
        );
    }
}

/// Returns the processor time of all tasks of a process, in seconds.
pub(crate) fn cpu_of(child: &Child) -> Option<f64> {
    let tasks = fs::read_dir(format!("/proc/{}/task", child.id())).ok()?;
    let mut sum = 0.0;
    for task in tasks {
        let text = fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        sum += text.split_whitespace().next()?.parse::<f64>().ok()? / 1e9;
    }
    Some(sum)
}

/// Waits for a client; returns its output, and the share of a core that it used at full speed:
/// in the busiest window of 80 % of the counted time.
fn watched(mut child: Child) -> (String, f64) {
    let began = Instant::now();
    let mut output = child.stdout.take().unwrap();
    let reader = thread::spawn(move || {
        let mut text = String::new();
        output.read_to_string(&mut text).unwrap();
        text
    });
    let mut readings: Vec<(f64, f64)> = Vec::new();
    while child.try_wait().unwrap().is_none() {
        if let Some(cpu) = cpu_of(&child) {
            readings.push((began.elapsed().as_secs_f64(), cpu));
        }
        thread::sleep(POLL_INTERVAL);
    }
    assert!(child.wait().unwrap().success());
    let window = COUNTED.as_secs_f64() * 0.8;
    let mut busiest = 0.0f64;
    for (index, (at, cpu)) in readings.iter().enumerate() {
        if let Some((end, then)) = readings[index..].iter().find(|(end, _)| end - at >= window) {
            busiest = busiest.max((then - cpu) / (end - at));
        }
    }
    (reader.join().unwrap(), busiest)
}

fn replimeter(node: &Node, workload: &str, connections: u32) -> LoadResult {
    let tool = TestEnvironment::new();
    let (address, threads) = (url(node, "replimeter"), connections.to_string());
    let (counted, ramp) = (
        format!("{}s", COUNTED.as_secs()),
        format!("{}s", RAMP.as_secs()),
    );
    let mut args = vec![
        "load",
        "--primary",
        &address,
        "--workload",
        workload,
        "--threads",
        &threads,
        "--json",
    ];
    args.extend([
        "--duration",
        &counted,
        "--warm-up",
        &ramp,
        "--keep-awake",
        "off",
    ]);
    let child = tool
        .command(&args)
        .env("REPLIMETER_PASSWORD", password(node))
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let (text, share) = watched(child);
    let document: Value = serde_json::from_str(&text).unwrap();
    let row = &document["results"]["rows"][0];
    assert_eq!(row["failed"], 0, "{row:#}");
    let per_s = row["throughput"]["mean"].as_f64().unwrap();
    LoadResult {
        per_s,
        cpu_us: share * 1e6 / per_s,
    }
}

fn sysbench_command(node: &Node, schema: &str) -> Command {
    let mut command = Command::new("sysbench");
    match &node.endpoint.socket {
        Some(path) => command.arg(format!("--mysql-socket={}", path.display())),
        None => command
            .arg("--mysql-host=127.0.0.1")
            .arg(format!("--mysql-port={}", node.endpoint.port)),
    };
    command
        .args([
            "--db-driver=mysql",
            "--mysql-user=replimeter",
            "--mysql-ssl=off",
        ])
        .arg(format!("--mysql-password={}", password(node)))
        .arg(format!("--mysql-db={schema}"))
        .stdout(Stdio::piped());
    command
}

fn sysbench(node: &Node, workload: &str, connections: u32) -> LoadResult {
    let script = match workload {
        "point-select" => "oltp_point_select".to_owned(),
        "oltp-mix" => "oltp_read_write".to_owned(),
        "update-key" => "oltp_update_index".to_owned(),
        _ => {
            // The table of the workload.
            sql(node, "DROP TABLE IF EXISTS replimeter.load_insert");
            sql(
                node,
                "CREATE TABLE replimeter.load_insert (id INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, data VARCHAR(255) NOT NULL, \
                 ts TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, KEY ts (ts)) ENGINE=InnoDB",
            );
            Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("insert.lua")
                .display()
                .to_string()
        }
    };
    let mut command = sysbench_command(node, "replimeter");
    command
        .arg(format!("--threads={connections}"))
        .arg(format!("--time={}", (RAMP + COUNTED).as_secs()))
        .arg("--report-interval=1");
    if !script.ends_with(".lua") {
        command
            .args(["--tables=1", "--rand-type=special"])
            .arg(format!("--table-size={ROWS}"));
    }
    command.args([&script, "run"]);
    let (text, share) = watched(command.spawn().unwrap());
    if workload == "insert" {
        sql(node, "DROP TABLE replimeter.load_insert");
    }
    // Version 1.0 has no warm-up: uses the seconds after it, each as "[ 2s ] thds: 8 tps: 1234.56 …".
    let seconds: Vec<f64> = text
        .lines()
        .filter(|line| line.starts_with("[ "))
        .filter_map(|line| {
            line.split("tps: ")
                .nth(1)?
                .split_whitespace()
                .next()?
                .parse()
                .ok()
        })
        .collect();
    let counted = &seconds[RAMP.as_secs() as usize..];
    assert!(!counted.is_empty(), "{text}");
    let per_s = counted.iter().sum::<f64>() / counted.len() as f64;
    LoadResult {
        per_s,
        cpu_us: share * 1e6 / per_s,
    }
}

fn bare_loop(node: &Node, connections: u32) -> LoadResult {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .arg("--bare")
        .arg(url(node, "replimeter"))
        .arg(connections.to_string())
        .env("REPLIMETER_PASSWORD", password(node));
    let (text, share) = watched(command.stdout(Stdio::piped()).spawn().unwrap());
    let per_s: f64 = text.trim().parse().unwrap();
    LoadResult {
        per_s,
        cpu_us: share * 1e6 / per_s,
    }
}

/// Measures the memory and the processor time of the tool with 10,000 connections to the reference server, of which few are
/// busy at a time.
fn many_connections() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            ..limit
        },
    )
    .unwrap();
    let reference = Reference::start(Clock::start(), 0).unwrap();
    let node = &reference.members()[0].node;
    let tool = TestEnvironment::new();
    fs::write(
        tool.folder().join("one.toml"),
        "[[statement]]\nsql = 'SELECT 1'",
    )
    .unwrap();
    let address = format!(
        "mysql://reference@127.0.0.1:{}/?ssl-mode=disabled",
        node.endpoint.port
    );
    let args = [
        "load",
        "--primary",
        &address,
        "--workload",
        "one.toml",
        "--threads",
        "10000",
        "--rate",
        "100",
        "--duration",
        "20s",
        "--json",
    ];
    let mut child = tool
        .command(&args)
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let mut output = child.stdout.take().unwrap();
    let mut most = 0.0f64;
    while child.try_wait().unwrap().is_none() {
        most = most.max(resident(&child).unwrap_or(0.0));
        thread::sleep(POLL_INTERVAL);
    }
    assert!(child.wait().unwrap().success());
    let mut text = String::new();
    output.read_to_string(&mut text).unwrap();
    let document: Value = serde_json::from_str(&text).unwrap();
    let row = &document["results"]["rows"][0];
    assert_eq!(
        (&row["failed"], &row["threads"]),
        (&0.into(), &10_000.into()),
        "{row:#}"
    );
    line(
        "load: memory with 10,000 connections (MB)",
        format!("{most:.0}"),
        "≤ 150",
    );
    let share = row["client"]["cpu_share"].as_f64().unwrap_or(f64::NAN);
    line(
        "load: share of the cores for 10,000 connections, 100 operations per s (%)",
        format!("{:.2}", share * 100.0),
        "",
    );
}

/// Returns the resident memory of a process, in MB.
fn resident(child: &Child) -> Option<f64> {
    Some(memory_kib(child.id(), "VmRSS")? as f64 * 1.024e-3)
}

/// Measures the resident memory of the tool in MB, with 64 connections, early and late in a run.
fn memory(node: &Node) {
    let long = std::env::args().any(|arg| arg == "--long");
    let (early, late) = if long { (10, 600) } else { (10, 60) };
    let tool = TestEnvironment::new();
    let address = url(node, "replimeter");
    let counted = format!("{}s", late + 3);
    let mut args = vec![
        "load",
        "--primary",
        &address,
        "--workload",
        "point-select",
        "--threads",
        "64",
        "--json",
    ];
    args.extend([
        "--duration",
        &counted,
        "--warm-up",
        "0s",
        "--keep-awake",
        "off",
    ]);
    let began = Instant::now();
    let mut child = tool
        .command(&args)
        .env("REPLIMETER_PASSWORD", password(node))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut readings = Vec::new();
    for after in [early, late] {
        thread::sleep(Duration::from_secs(after).saturating_sub(began.elapsed()));
        readings.push(resident(&child).unwrap());
    }
    assert!(child.wait().unwrap().success());
    line(
        &format!("load: memory with 64 connections after {early} s (MB)"),
        format!("{:.1}", readings[0]),
        "≤ 40",
    );
    line(
        &format!("load: memory with 64 connections after {late} s (MB)"),
        format!("{:.1}", readings[1]),
        "the same",
    );
}
