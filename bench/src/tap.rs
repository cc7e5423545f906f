//! Processor time and memory of following the binary logs.

use std::{
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use replimeter_instruments::tap::{Arrival, Match, Matcher};
use replimeter_model::time::Nanos;
use replimeter_suites::{TestEnvironment, memory_kib, password, session, sql, start, url};
use serde_json::Value;

use crate::line;

/// Closed-loop writers.
const WRITERS: usize = 8;
/// Time during which they write.
const WRITING: Duration = Duration::from_secs(15);
/// Transactions of ten minutes at 22,000 per second.
const BEHIND: u64 = 13_000_000;

/// Measures processor time per transaction and the share of matched transactions with closed-loop
/// writers, then the memory of pending transactions.
pub(crate) fn tap() {
    for (real_time, rest) in [
        ("on", "0"),
        ("off", "0"),
        ("on", "1ms"),
        ("on", "2ms"),
        ("off", "5ms"),
    ] {
        let document = under_load(real_time, rest);
        let row = &document["results"]["rows"][0];
        let of = |name: &str| row[name].as_u64().unwrap();
        let rate = of("transactions") as f64 / WRITING.as_secs_f64();
        let share = of("matched") as f64 / of("transactions").max(1) as f64 * 100.0;
        let what = format!("tap, {WRITERS} writers, real-time {real_time}, coalesce {rest}");
        line(
            &format!("{what}: transactions per s"),
            format!("{rate:.0}"),
            "",
        );
        line(
            &format!("{what}: matched (%)"),
            format!("{share:.4}"),
            "100",
        );
        let cpu = document["results"]["cpu_us_per_transaction"]
            .as_f64()
            .unwrap();
        line(
            &format!("{what}: CPU of Replimeter per transaction (µs)"),
            format!("{cpu:.2}"),
            "≤ 4",
        );
        for stream in document["results"]["streams"].as_array().unwrap() {
            let name = stream["name"].as_str().unwrap();
            let cpu = stream["cpu_us_per_transaction"]
                .as_f64()
                .unwrap_or(f64::NAN);
            line(
                &format!("  for reading {name} (µs)"),
                format!("{cpu:.2}"),
                "",
            );
        }
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .arg("--pending")
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).unwrap();
    let mut numbers = text
        .split_whitespace()
        .map(|number| number.parse::<f64>().unwrap());
    let mut next = || numbers.next().unwrap();
    // The arrivals are synthetic; the matcher and its file are the real ones.
    line(
        "matcher alone, 13 million pending (synthetic): resident (MB)",
        format!("{:.1}", next()),
        "≤ 64",
    );
    line(
        "  on disk at the same time (MB)",
        format!("{:.1}", next()),
        "",
    );
    line(
        "  matched after the replica has caught up (%)",
        format!("{:.4}", next()),
        "100",
    );
}

fn under_load(real_time: &str, rest: &str) -> Value {
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
    let stop = AtomicBool::new(false);
    let tool = TestEnvironment::new();
    let seconds = format!("{}s", WRITING.as_secs() + 15);
    let (primary_url, replica_url) = (url(primary, "replimeter"), url(replica, "replimeter"));
    let mut args = vec![
        "tap",
        "--primary",
        &primary_url,
        "--replica",
        &replica_url,
        "--duration",
        &seconds,
        "--floor-duration",
        "0",
    ];
    args.extend([
        "--keep-awake",
        "off",
        "--real-time",
        real_time,
        "--coalesce",
        rest,
        "--json",
    ]);
    let output = thread::scope(|scope| {
        let child = tool
            .command(&args)
            .env("REPLIMETER_PASSWORD", password(primary))
            .spawn()
            .unwrap();
        thread::sleep(Duration::from_secs(1));
        for _ in 0..WRITERS {
            scope.spawn(|| {
                let mut session = session(primary);
                while !stop.load(Ordering::Relaxed) {
                    session
                        .run("bench", "INSERT INTO load_test.t (v) VALUES ('0123456789012345678901234567890123456789')")
                        .unwrap();
                }
            });
        }
        thread::sleep(WRITING);
        stop.store(true, Ordering::Relaxed);
        child.wait_with_output().unwrap()
    });
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Stores the pending transactions of a replica that is far behind, lets it catch up, and prints
/// the peak memory and the size of the file, in MB, and the share of matched transactions in percent.
pub(crate) fn pending() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let mut matcher = Matcher::new(1, "", Some(folder.path())).unwrap();
    let arrival = |number: u64, late: i64| {
        let gtid = replimeter_engine::position::CommitId::Domain(
            replimeter_engine::position::DomainCommit {
                domain: 0,
                server: 1,
                sequence: number,
            },
        );
        // Distances between neighbors vary.
        let at = number as i64 * 46_000
            + (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 50) as i64
            + late;
        Arrival {
            commit_id: gtid,
            at: Some(Nanos(at)),
            set: 0,
        }
    };
    let mut matched = 0u64;
    for number in 1..=BEHIND {
        matcher
            .primary(&arrival(number, 0), &mut |_: Match| {})
            .unwrap();
    }
    assert_eq!(matcher.pending(0).unwrap().0, BEHIND);
    let spilled = matcher.spilled_bytes();
    for number in 1..=BEHIND {
        matcher
            .replica(0, &arrival(number, 1_000), Nanos(0), &mut |one| {
                matched += u64::from(one.lag() == Nanos(1_000))
            })
            .unwrap();
        if number % 20_000 == 0 {
            matcher.expire(Nanos(0), None);
        }
    }
    let peak = memory_kib(std::process::id(), "VmHWM").unwrap();
    println!(
        "{} {} {}",
        peak as f64 * 1024.0 / 1e6,
        spilled as f64 / 1e6,
        matched as f64 / BEHIND as f64 * 100.0
    );
}
