//! The open loop: a stalled replica or primary does not stop the schedule, and
//! the delays that it causes are part of its figures.

use std::{process::Child, thread, time::Duration};

use replimeter_measurements::lag::samples;
use replimeter_model::{
    sample::{LagSample, Phase},
    time::Nanos,
};
use replimeter_sandbox::Sandbox;
use replimeter_suites::{
    LIMIT, TestEnvironment, clean, harness::Test, password, session, sql, start, test, url, wait,
    wait_until,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

pub(crate) const TESTS: &[Test] = &[test!(stalled_server_does_not_stop_the_schedule).alone()];

/// Duration of a stall.
const STALL: Duration = Duration::from_secs(2);
const EVERY: Duration = Duration::from_millis(5);
const SECOND: i64 = 1_000_000_000;

/// A run of six seconds that writes a row every five milliseconds, in the middle of
/// which something is stalled; its document and its counted samples by intended start.
fn stalled(
    servers: &Sandbox,
    stall: impl FnOnce(),
    go_on: impl FnOnce(),
) -> (Value, Vec<LagSample>) {
    let (primary, replica) = (&servers.nodes()[0], &servers.nodes()[1]);
    let tool = TestEnvironment::new();
    let (primary_url, replica_url) = (url(primary, "replimeter"), url(replica, "replimeter"));
    let args = [
        "lag",
        "--primary",
        &primary_url,
        "--replica",
        &replica_url,
        "--duration",
        "6s",
        "--interval",
        "5ms",
        "--row-arrivals",
        "constant",
        "--json",
    ];
    let more = ["--warm-up", "10", "--floor-rounds", "0"];
    let child: Child = tool
        .command(&[&args[..], &more[..]].concat())
        .env("REPLIMETER_PASSWORD", password(primary))
        .spawn()
        .unwrap();
    wait_until("rows are written", LIMIT, || {
        let rows = session(primary).value("test", "SELECT COUNT(*) FROM replimeter.lag_probe");
        rows.ok()
            .flatten()
            .and_then(|rows| rows.parse().ok())
            .is_some_and(|rows: u64| rows > 100)
    });
    thread::sleep(Duration::from_millis(1000));
    stall();
    thread::sleep(STALL);
    go_on();
    let document = wait(child, LIMIT).with_code(0).json();
    let mut counted = Vec::new();
    let file = tool.only_run().join("samples.parquet");
    samples::read(&file, |_, _, sample| {
        if sample.write.phase == Phase::Measure {
            counted.push(*sample);
        }
    })
    .unwrap();
    counted.sort_by_key(|sample| sample.write.intended);
    wait_until("the schema is gone everywhere", LIMIT, || {
        servers.nodes().iter().all(clean)
    });
    (document, counted)
}

/// Checks that the schedule was kept: a round for each interval, none timed out.
fn assert_all_beats(document: &Value, counted: &[LagSample]) {
    let row = &document["results"]["rows"][0];
    let beats = 6.0 / EVERY.as_secs_f64();
    let rounds = row["rounds"].as_f64().unwrap();
    assert!(
        (beats * 0.95..=beats * 1.05).contains(&rounds),
        "{rounds} rounds of {beats} beats"
    );
    assert_eq!(
        (row["timed_out"].as_u64(), counted.len() as f64),
        (Some(0), rounds)
    );
    let distances = counted
        .windows(2)
        .map(|pair| pair[1].write.intended - pair[0].write.intended);
    assert!(
        distances
            .into_iter()
            .all(|distance| distance == Nanos::from(EVERY)),
        "the beat moved"
    );
}

/// Checks the sawtooth of a stall of two seconds: the first row waited longest, and each
/// later row less, by the time that it came later.
fn assert_saw_tooth(points: &[(Nanos, Nanos)]) {
    let (peak_at, peak) = points.iter().copied().max_by_key(|(_, lag)| *lag).unwrap();
    assert!(
        (1.5e9..4.0e9).contains(&(peak.0 as f64)),
        "the peak is {peak:?}"
    );
    let before: Vec<Nanos> = points
        .iter()
        .filter(|(at, _)| *at < peak_at - Nanos(SECOND / 10))
        .map(|(_, lag)| *lag)
        .collect();
    let late = before
        .iter()
        .filter(|lag| **lag > Nanos(SECOND / 4))
        .count();
    assert!(
        late * 10 <= before.len(),
        "{late} of {} were late before the stall",
        before.len()
    );
    // After the peak the lag falls by about one second per second.
    let near = |after: i64| {
        let at = peak_at + Nanos(after);
        points
            .iter()
            .min_by_key(|(point, _)| (*point - at).0.abs())
            .unwrap()
            .1
    };
    let fallen = (peak - near(SECOND)).0 as f64;
    assert!(
        (0.6e9..1.5e9).contains(&fallen),
        "it fell by {fallen} ns within a second"
    );
    let mut ahead = peak;
    for step in 1..=3 {
        let lag = near(step * SECOND / 2);
        assert!(
            lag < ahead,
            "after {step} halves of a second it is {lag:?}, and was {ahead:?}"
        );
        ahead = lag;
    }
    assert!(
        points.last().unwrap().1 < Nanos(SECOND),
        "it has not recovered: {:?}",
        points.last()
    );
}

fn by(counted: &[LagSample], lag: impl Fn(&LagSample) -> Option<Nanos>) -> Vec<(Nanos, Nanos)> {
    counted
        .iter()
        .map(|sample| (sample.write.intended, lag(sample).unwrap()))
        .collect()
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}

/// Checks the report on a replica that stalled: its windows, and the tail.
fn assert_stalled_replica(document: &Value, counted: &[LagSample]) {
    assert_all_beats(document, counted);
    // The writer was not delayed: it sent its rows while the replica was stopped.
    let late = &document["client"]["start_lateness"];
    assert!(number(&late["p99_us"]) < 3e5, "{late:#}");
    assert_saw_tooth(&by(counted, LagSample::from_ack));
    assert_saw_tooth(&by(counted, LagSample::from_intended));
    let row = &document["results"]["rows"][0];
    assert!(number(&row["from_intended"]["p99_us"]) > 1e6, "{row:#}");
    assert!(number(&row["from_ack"]["p99_us"]) > 1e6, "{row:#}");
    assert!(
        number(&row["from_ack"]["p50_us"]) < 1e6,
        "most of the time it was well"
    );
    let windows = row["windows"].as_array().unwrap();
    let tops: Vec<f64> = windows
        .iter()
        .map(|window| number(&window["max_us"]))
        .collect();
    let (peak, top) = tops
        .iter()
        .copied()
        .enumerate()
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .unwrap();
    assert!(top > 1.5e6, "{tops:?}");
    let length = number(&windows[0]["end_us"]) - number(&windows[0]["start_us"]);
    // One second of windows later the lag is about one second less.
    let later = tops[(peak + (1e6 / length) as usize).min(tops.len() - 1)];
    assert!((0.6e6..1.5e6).contains(&(top - later)), "{tops:?}");
}

fn stalled_server_does_not_stop_the_schedule() {
    let servers = start(
        "mariadb/async:1",
        &["sync_binlog=0", "innodb_flush_log_at_trx_commit=0"],
    );
    let (primary, replica) = (servers.nodes()[0].clone(), servers.nodes()[1].clone());

    eprintln!("the replica's applier is stopped");
    let stop = || sql(&replica, "STOP SLAVE SQL_THREAD");
    let (document, counted) = stalled(&servers, stop, || sql(&replica, "START SLAVE SQL_THREAD"));
    assert_stalled_replica(&document, &counted);

    eprintln!("the replica's whole process stands still");
    let process = Pid::from_raw(i32::try_from(servers.pids()[1]).unwrap()).unwrap();
    let signal = |signal| kill_process(process, signal).unwrap();
    let (document, counted) = stalled(&servers, || signal(Signal::STOP), || signal(Signal::CONT));
    assert_stalled_replica(&document, &counted);

    eprintln!("the primary takes no writes");
    let mut stalling = session(&primary);
    let mut going_on = session(&primary);
    let holder = stalling.connection_id();
    let (document, counted) = stalled(
        &servers,
        || stalling.run("test", "FLUSH TABLES WITH READ LOCK").unwrap(),
        // The lock ends with its connection.
        || going_on.run("test", &format!("KILL {holder}")).unwrap(),
    );
    assert_all_beats(&document, &counted);
    assert_saw_tooth(&by(&counted, LagSample::from_intended));
    let row = &document["results"]["rows"][0];
    // The replica was healthy all the time; lag from the acknowledgement or the send of the writes
    // that were sent does not show the others, which could not be sent.
    assert!(number(&row["from_ack"]["max_us"]) < 1e6, "{row:#}");
    let from_send = number(&row["from_send"]["p99_us"]);
    let from_intended = number(&row["from_intended"]["p99_us"]);
    assert!(
        from_intended > 1e6 && from_send < from_intended / 5.0,
        "{from_send} against {from_intended}"
    );
}
