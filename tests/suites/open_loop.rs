//! The open loop: a stalled replica or primary does not stop the schedule, and
//! the delays that it causes are part of its figures.

use std::{thread, time::Duration};

use replimeter_instruments::lag::sample::{LagSample, Phase};
use replimeter_measurements::lag::samples;
use replimeter_model::time::Nanos;
use replimeter_sandbox::Sandbox;
use replimeter_suites::{
    LIMIT, TestEnvironment, clean, harness::Test, of_run, password, session, shared, sql, test,
    url, wait, wait_until,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

pub(crate) const TESTS: &[Test] = &[
    test!(stalled_server_does_not_stop_the_schedule),
    test!(stalled_primary_does_not_stop_the_schedule),
];

/// Duration of a stall, at least.
const STALL: Duration = Duration::from_secs(2);
const EVERY: Duration = Duration::from_millis(10);
/// Counted rows: eight seconds of the schedule.
const ROWS: usize = 800;
/// Rows that are written while a replica is stalled.
const WRITTEN_IN_STALL: u64 = 50;

/// Returns the number of rows of a run; 0 without its table.
fn written(servers: &Sandbox) -> u64 {
    let primary = &servers.nodes()[0];
    let rows = of_run(primary, "SELECT COUNT(*) FROM replimeter.probe");
    let rows = session(primary).value("test", &rows);
    let rows = rows.ok().flatten();
    rows.and_then(|rows| rows.parse().ok()).unwrap_or(0)
}

/// A run that writes a row every ten milliseconds, near the beginning of which something is stalled; its document and its
/// counted samples by intended start.
fn stalled(
    servers: &Sandbox,
    stall: impl FnOnce(),
    resume: impl FnOnce(),
) -> (Value, Vec<LagSample>) {
    let (primary, replica) = (&servers.nodes()[0], &servers.nodes()[1]);
    let tool = TestEnvironment::new();
    let (primary_url, replica_url) = (url(primary, "replimeter"), url(replica, "replimeter"));
    let (rows, interval) = (ROWS.to_string(), format!("{}ms", EVERY.as_millis()));
    let mut args = vec!["lag", "--primary", &primary_url, "--replica", &replica_url];
    args.extend(["--rounds", &rows, "--interval", &interval]);
    args.extend(["--row-arrivals", "constant", "--timeout", "2m"]);
    args.extend(["--warm-up", "10", "--floor-rounds", "0", "--json"]);
    let child = tool
        .command(&args)
        .env("REPLIMETER_PASSWORD", password(primary))
        .spawn()
        .unwrap();
    wait_until("rows are written", LIMIT, || written(servers) > 50);
    stall();
    thread::sleep(STALL);
    resume();
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

/// Checks that the schedule was kept: a row for each interval, none timed out.
fn assert_schedule(document: &Value, counted: &[LagSample]) {
    let row = &document["results"]["rows"][0];
    assert_eq!(
        (
            row["rounds"].as_u64(),
            row["timed_out"].as_u64(),
            counted.len()
        ),
        (Some(ROWS as u64), Some(0), ROWS)
    );
    let mut distances = counted
        .windows(2)
        .map(|pair| pair[1].write.intended - pair[0].write.intended);
    assert!(
        distances.all(|distance| distance == Nanos::from(EVERY)),
        "the schedule moved"
    );
}

/// Returns the number of rows of which a time is as long as half of the stall.
fn late(counted: &[LagSample], time: impl Fn(&LagSample) -> Nanos) -> u64 {
    let late = counted
        .iter()
        .filter(|sample| time(sample) >= Nanos::from(STALL / 2));
    late.count() as u64
}

fn from_ack(sample: &LagSample) -> Nanos {
    sample.from_ack().unwrap()
}

fn from_intended(sample: &LagSample) -> Nanos {
    sample.from_intended().unwrap()
}

/// Checks the sawtooth of a stall: each row that was due in it is late by the rest of the stall.
fn assert_saw_tooth(counted: &[LagSample]) {
    // All rows of the first half of the stall; one may have begun before it.
    let half = (STALL / 2).as_millis() / EVERY.as_millis();
    let found = late(counted, from_intended);
    assert!(u128::from(found) + 2 >= half, "{found} of {half}");
    let peak = counted
        .iter()
        .max_by_key(|sample| from_intended(sample))
        .unwrap();
    assert!(
        from_intended(peak) + Nanos::from(EVERY * 2) >= Nanos::from(STALL),
        "{peak:?}"
    );
    // Rows become visible in their order.
    let (from, until) = (peak.write.intended, peak.lower().unwrap());
    let due_in_it = counted
        .iter()
        .filter(|sample| (from..until).contains(&sample.write.intended));
    for sample in due_in_it {
        assert!(sample.upper().unwrap() >= until, "{peak:?} {sample:?}");
    }
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}

/// Checks the report on a replica that stalled: its windows, and the tail.
fn assert_stalled_replica(document: &Value, counted: &[LagSample]) {
    assert_schedule(document, counted);
    assert_saw_tooth(counted);
    // The writer was not delayed: it sent these rows while the replica was stopped, and the stall lasted from then on.
    let late = late(counted, from_ack);
    assert!(late >= WRITTEN_IN_STALL, "{late}");
    let row = &document["results"]["rows"][0];
    let least = STALL.as_micros() as f64 / 2.0;
    for figure in ["from_intended", "from_ack"] {
        // More than one row in twenty is late.
        assert!(number(&row[figure]["p95_us"]) >= least, "{row:#}");
    }
    let windows = row["windows"].as_array().unwrap();
    let top = windows.iter().map(|window| number(&window["max_us"]));
    let (top, whole) = (top.fold(0.0, f64::max), number(&row["from_ack"]["max_us"]));
    assert!(
        top >= least && (top - whole).abs() <= 0.01 * whole,
        "{top} of {whole}: {windows:#?}"
    );
}

fn stalled_server_does_not_stop_the_schedule() {
    let servers = shared("mariadb/async:1", &[]);
    let replica = servers.nodes()[1].clone();
    // A row that is due is sent although the replica shows none.
    let await_rows = || {
        let wanted = written(&servers) + WRITTEN_IN_STALL;
        wait_until("the writer continues", LIMIT, || {
            written(&servers) >= wanted
        });
    };

    eprintln!("the replica's applier is stopped");
    let stop = || {
        sql(&replica, "STOP SLAVE SQL_THREAD");
        await_rows();
    };
    let (document, counted) = stalled(&servers, stop, || sql(&replica, "START SLAVE SQL_THREAD"));
    assert_stalled_replica(&document, &counted);

    eprintln!("the replica's whole process is stopped");
    let process = Pid::from_raw(i32::try_from(servers.pids()[1]).unwrap()).unwrap();
    let signal = |signal| kill_process(process, signal).unwrap();
    let stop = || {
        signal(Signal::STOP);
        await_rows();
    };
    let (document, counted) = stalled(&servers, stop, || signal(Signal::CONT));
    assert_stalled_replica(&document, &counted);
}

fn stalled_primary_does_not_stop_the_schedule() {
    let servers = shared("mariadb/async:1", &[]);
    let primary = &servers.nodes()[0];
    let mut stalling = session(primary);
    let mut killing = session(primary);
    let holder = stalling.connection_id();
    let (document, counted) = stalled(
        &servers,
        || stalling.run("test", "FLUSH TABLES WITH READ LOCK").unwrap(),
        // The lock ends with its connection.
        || killing.run("test", &format!("KILL {holder}")).unwrap(),
    );
    assert_schedule(&document, &counted);
    assert_saw_tooth(&counted);
    // Most of these rows could not be sent at their time: the lag from their send does not show the stall.
    let begun_late = late(&counted, |sample| sample.write.send - sample.write.intended);
    let half = (STALL / 2).as_millis() / EVERY.as_millis();
    assert!(
        u128::from(begun_late) + 3 >= half,
        "{begun_late} of {half} rows were sent late"
    );
    for sample in &counted {
        let waited = sample.write.send - sample.write.intended;
        assert_eq!(sample.from_send().unwrap() + waited, from_intended(sample));
    }
    let row = &document["results"]["rows"][0];
    let least = STALL.as_micros() as f64 / 2.0;
    assert!(number(&row["from_intended"]["p95_us"]) >= least, "{row:#}");
    let lateness = &document["client"]["start_lateness"];
    assert!(number(&lateness["p95_us"]) >= least, "{lateness:#}");
}
