//! Effect of a measurement on the primary: its latency at half its capacity, alternately with
//! and without the tap or a method of `lag`.

use std::{
    fs,
    process::{Child, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use replimeter_sandbox::Sandbox;
use replimeter_suites::{TestEnvironment, password, session, sql, start, url};

use crate::{TIMES, line, ratio};

/// Connections of the load.
const WRITERS: u32 = 8;
/// Duration of a counted repetition.
const REPETITION: Duration = Duration::from_secs(4);
/// Time before each repetition that is not counted, in which the measurement starts.
const SETTLE: Duration = Duration::from_millis(1500);
/// The tap with the fewest wake-ups, at the cost of later timestamps.
const GENTLE: &str = "tap --coalesce 5ms --real-time off";

const INSERT: &str =
    "INSERT INTO load_test.t (v) VALUES ('0123456789012345678901234567890123456789')";

/// Returns the processor time that a process has used, in milliseconds.
fn cpu_ms(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let ticks: f64 = after
        .split(' ')
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<f64>().ok())
        .sum();
    // A tick is 10 ms on every Linux that matters.
    ticks * 10.0
}

/// Returns the transactions per second of the writers in a closed loop.
fn capacity(sandbox: &Sandbox) -> f64 {
    let stop = AtomicBool::new(false);
    let count = Mutex::new(0u64);
    thread::scope(|scope| {
        for _ in 0..WRITERS {
            scope.spawn(|| {
                let mut session = session(&sandbox.nodes()[0]);
                let mut own = 0;
                while !stop.load(Ordering::Relaxed) {
                    session.run("bench", INSERT).unwrap();
                    own += 1;
                }
                *count.lock().unwrap() += own;
            });
        }
        thread::sleep(REPETITION);
        stop.store(true, Ordering::Relaxed);
    });
    let count = *count.lock().unwrap();
    count as f64 / REPETITION.as_secs_f64()
}

/// Runs one repetition; returns p50 and p99 of the response, in µs, and the number of inserts.
fn repetition(sandbox: &Sandbox, rate: f64) -> (f64, f64, usize) {
    let all = Mutex::new(Vec::new());
    let every = Duration::from_secs_f64(f64::from(WRITERS) / rate);
    let begin = Instant::now() + Duration::from_millis(50);
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let all = &all;
            scope.spawn(move || {
                let mut session = session(&sandbox.nodes()[0]);
                let mut own = Vec::new();
                let mut due = begin + every * writer / WRITERS;
                while due < begin + SETTLE + REPETITION {
                    if let Some(left) = due.checked_duration_since(Instant::now()) {
                        thread::sleep(left);
                    }
                    session.run("bench", INSERT).unwrap();
                    if due >= begin + SETTLE {
                        own.push(due.elapsed().as_secs_f64() * 1e6);
                    }
                    // Open loop: a slow insert does not delay the intended start of the next one.
                    due += every;
                }
                all.lock().unwrap().extend(own);
            });
        }
    });
    let mut all = all.into_inner().unwrap();
    all.sort_by(f64::total_cmp);
    (all[all.len() / 2], all[all.len() * 99 / 100], all.len())
}

/// Measures with and without each measurement, in alternating order.
pub(crate) fn disturbance() {
    let sandbox = start(
        "mariadb/async:1",
        &[
            "innodb_flush_log_at_trx_commit=2",
            "replica1:slave_parallel_threads=8",
        ],
    );
    let (primary, replica) = (&sandbox.nodes()[0], &sandbox.nodes()[1]);
    sql(primary, "CREATE DATABASE load_test");
    sql(
        primary,
        "CREATE TABLE load_test.t (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(100))",
    );
    let half = capacity(&sandbox) / 2.0;
    line(
        "half the throughput of 8 closed-loop writers (per s)",
        format!("{half:.0}"),
        "",
    );
    let (primary_url, replica_url) = (url(primary, "replimeter"), url(replica, "replimeter"));
    let pid = sandbox.members()[0].pid;
    for what in [
        "tap",
        GENTLE,
        "poll",
        "wait",
        "stamp",
        "tap at 100 probes/s",
    ] {
        let (mut p50, mut p99, mut server, mut own) = (vec![], vec![], vec![], vec![]);
        for pair in 0..TIMES {
            let mut results = [(0.0, 0.0, 0); 2];
            let mut cpu = [0.0; 2];
            for step in 0..2 {
                // The order alternates between pairs.
                let attached = (step + pair) % 2 == 0;
                let tool = TestEnvironment::new();
                let child: Option<Child> = attached.then(|| {
                    let common = [
                        "--primary",
                        &primary_url,
                        "--replica",
                        &replica_url,
                        "--keep-awake",
                        "off",
                    ];
                    let method = if what == "tap at 100 probes/s" {
                        "tap"
                    } else {
                        what
                    };
                    let args: Vec<&str> = if what == "tap" {
                        [
                            &["tap", "--duration", "60s", "--floor-duration", "0"][..],
                            &common[..],
                        ]
                        .concat()
                    } else if what == GENTLE {
                        let gentle = [
                            "tap",
                            "--duration",
                            "60s",
                            "--floor-duration",
                            "0",
                            "--coalesce",
                            "5ms",
                            "--real-time",
                            "off",
                        ];
                        [&gentle[..], &common[..]].concat()
                    } else {
                        [
                            &[
                                "lag",
                                "--duration",
                                "60s",
                                "--interval",
                                "10ms",
                                "--floor-rounds",
                                "0",
                                "--method",
                                method,
                            ][..],
                            &common[..],
                        ]
                        .concat()
                    };
                    let mut command = tool.command(&args);
                    command
                        .env("REPLIMETER_PASSWORD", password(primary))
                        .stdout(Stdio::null())
                        .stderr(Stdio::null());
                    command.spawn().unwrap()
                });
                if attached {
                    thread::sleep(Duration::from_millis(1500));
                }
                // Processor time includes the settling time, the count of transactions does not.
                let share = 1e3 * REPETITION.as_secs_f64() / (REPETITION + SETTLE).as_secs_f64();
                let before = cpu_ms(pid);
                let tool_before = child.as_ref().map_or(0.0, |child| cpu_ms(child.id()));
                let measured = repetition(&sandbox, half);
                let index = usize::from(!attached);
                results[index] = measured;
                cpu[index] = (cpu_ms(pid) - before) * share / measured.2 as f64;
                if let Some(mut child) = child {
                    own.push((cpu_ms(child.id()) - tool_before) * share / measured.2 as f64);
                    let pid = rustix::process::Pid::from_child(&child);
                    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
                    let _ = child.wait();
                }
            }
            p50.push((results[0].0, results[1].0));
            p99.push((results[0].1, results[1].1));
            server.push(cpu[0] - cpu[1]);
        }
        let middle = |values: &mut Vec<f64>| {
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        line(
            &format!("{what}: the primary's p50 with / without [95 %]"),
            ratio(p50.iter().copied()),
            "≤ 1.03",
        );
        line(
            &format!("{what}: the primary's p99 with / without [95 %]"),
            ratio(p99.iter().copied()),
            "",
        );
        line(
            &format!("{what}: additional CPU of the primary per transaction (µs)"),
            format!("{:.1}", middle(&mut server)),
            "",
        );
        line(
            &format!("{what}: CPU of Replimeter per transaction (µs)"),
            format!("{:.1}", middle(&mut own)),
            "",
        );
    }
    sandbox.close().expect("the sandbox is removed");
}
