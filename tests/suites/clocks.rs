//! Servers' clocks, and clocks that are set during a run.

use std::{
    fs, thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use replimeter_engine::Node;
use replimeter_instruments::{
    clock::{Calendar, Clock},
    clock_offset::{ClockStep, ServerClock},
};
use replimeter_model::{engine::Engine, sandbox::SandboxSpec, time::Nanos};
use replimeter_suites::{
    LIMIT, NO_FAKETIME, TestEnvironment,
    harness::{Test, skip},
    libfaketime, of_run, password, servers_with_a_clock_to_set, session, set_clock, sql,
    start_spec, test, url, value, wait, wait_until,
};
use rustix::process::{Pid, Signal, kill_process};

pub(crate) const TESTS: &[Test] = &[
    test!(one_clock_per_machine_until_one_is_set).starts(2),
    test!(one_clock_per_machine_until_one_is_set_on_mysql)
        .starts(2)
        .long(),
    test!(clock_set_during_a_run_is_reported).starts(2),
    test!(clocks_set_by_an_hour_change_neither_tap_nor_exposure)
        .starts(2)
        .long(),
];

const SECOND: i64 = 1_000_000_000;

fn one_clock_per_machine_until_one_is_set() {
    one_clock_until_it_is_set(Engine::MariaDb);
}

fn one_clock_per_machine_until_one_is_set_on_mysql() {
    one_clock_until_it_is_set(Engine::MySql);
}

/// Returns how far a time service may move a clock in this time against the test's reading of it (adjtimex(2): 500 ppm).
fn slewed(passed: Nanos) -> Nanos {
    Nanos(passed.0.abs() / 2_000 + 1)
}

fn one_clock_until_it_is_set(engine: Engine) {
    let Some(folder) = servers_with_a_clock_to_set(engine) else {
        return skip(NO_FAKETIME);
    };
    let spec = SandboxSpec {
        replica_server: Some(folder.display().to_string()),
        ..SandboxSpec::of(format!("{}/async:1", engine.name()).parse().unwrap())
    };
    let sandbox = start_spec(spec).unwrap_or_else(|error| panic!("{error}\n{}", error.hint()));
    let clock = Clock::start();
    let mut sessions = [session(&sandbox.nodes()[0]), session(&sandbox.nodes()[1])];
    let calendar = Calendar::calibrate();
    // A busy machine sometimes answers late.
    let narrow = |index: usize, session: &mut replimeter_engine::Session| {
        let node = &sandbox.nodes()[index];
        let mut measure = || {
            ServerClock::measure(session, node, &clock)
                .unwrap()
                .unwrap()
        };
        let mut server = measure();
        wait_until("a clock is known to 20 ms", LIMIT, || {
            server = measure();
            server.last().bound < Nanos(20_000_000)
        });
        server
    };
    let tied = clock.now();
    let [first, second] = &mut sessions;
    let (primary, mut replica) = (narrow(0, first), narrow(1, second));
    // The test reads the same clock, between two readings of the run.
    let (before, ours, after) = (clock.now(), calendar.now(), clock.now());
    for server in [&primary, &replica] {
        let bound = server.last().bound + calendar.bound() + slewed(after - tied);
        let (offset, early, late) = (server.last().offset, ours - after, ours - before);
        assert!(
            early - offset <= bound && offset - late <= bound,
            "{engine:?}: {offset:?} is not within {early:?} to {late:?} ± {bound:?}"
        );
    }
    let (apart, bound) = replica.last().difference_to(&primary.last());
    let bound = bound + slewed(replica.last().at - primary.last().at);
    assert!(
        apart.0.abs() <= bound.0,
        "{engine:?}: {apart:?} ± {bound:?}"
    );
    assert_eq!(replica.remeasure(&mut sessions[1], &clock).unwrap(), None);
    // A moment at which the clock was read: between it and the step the offset is unknown.
    let before = replica.first().at;

    let set = |seconds: f64,
               replica: &mut ServerClock,
               sessions: &mut [replimeter_engine::Session; 2]| {
        set_clock(&sandbox.members()[1], seconds);
        let mut step = None;
        wait_until("the clock is set", LIMIT, || {
            thread::sleep(Duration::from_millis(200));
            step = replica.remeasure(&mut sessions[1], &clock).unwrap();
            step.is_some()
        });
        step.unwrap()
    };
    let allowed = |step: &ClockStep| (step.bound + slewed(step.between.1 - step.between.0)).0;
    let step = set(1.0, &mut replica, &mut sessions);
    assert!(
        (step.by.0 - SECOND).abs() <= allowed(&step),
        "{engine:?}: {step:?}"
    );
    assert!(
        step.between.0 < step.between.1 && step.between.1 > before,
        "{step:?}"
    );
    // The offset during the step is unknown; after it it is known.
    assert_eq!(replica.at(step.between.0.midpoint(step.between.1)), None);
    assert!(replica.at(clock.now()).is_some() && replica.at(before).is_some());
    let back = set(0.0, &mut replica, &mut sessions);
    assert!(
        (back.by.0 + SECOND).abs() <= allowed(&back),
        "{engine:?}: {back:?}"
    );
    assert_eq!(replica.steps(), [step, back]);
    sandbox.close().unwrap();
}

fn clock_set_during_a_run_is_reported() {
    let Some(folder) = servers_with_a_clock_to_set(Engine::MariaDb) else {
        return skip(NO_FAKETIME);
    };
    let spec = SandboxSpec {
        replica_server: Some(folder.display().to_string()),
        ..SandboxSpec::of("mariadb/async:1".parse().unwrap())
    };
    let sandbox = start_spec(spec).unwrap_or_else(|error| panic!("{error}\n{}", error.hint()));
    let (primary, replica) = (&sandbox.nodes()[0], &sandbox.nodes()[1]);
    let (primary_url, replica_url) = (url(primary, "replimeter"), url(replica, "replimeter"));
    let tool = TestEnvironment::new();
    let args = [
        "lag",
        "--primary",
        &primary_url,
        "--replica",
        &replica_url,
        "--method",
        "poll,stamp",
        "--floor-rounds",
        "0",
        "--timeout",
        "2m",
        "--duration",
        "30m",
        "--json",
    ];
    let child = tool
        .command(&args)
        .env("REPLIMETER_PASSWORD", password(primary))
        .spawn()
        .unwrap();
    wait_until("rows are written", LIMIT, || {
        let rows = of_run(primary, "SELECT COUNT(*) FROM replimeter.probe");
        let rows = session(primary).value("test", &rows);
        rows.ok()
            .flatten()
            .and_then(|rows| rows.parse().ok())
            .is_some_and(|rows: u64| rows > 100)
    });
    // The run has measured the clock before its first row. It sets the time zone of its session each time that it does, and
    // each time that it reads stamps.
    let mut asking = session(replica);
    let before = ahead_of_this_machine(replica);
    set_clock(&sandbox.members()[1], 1.0);
    wait_until("the clock is set", LIMIT, || {
        ahead_of_this_machine(replica) - before > 0.5
    });
    let mut measurements = || -> u64 {
        let count = asking.pairs("test", "SHOW GLOBAL STATUS LIKE 'Com_set_option'");
        count.unwrap()["Com_set_option"].parse().unwrap()
    };
    let first = measurements();
    wait_until(
        "the run has measured the clock after the step",
        LIMIT,
        || measurements() >= first + 5,
    );
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let document = wait(child, LIMIT).with_code(130).json();
    let warnings = document["warnings"].to_string();
    assert!(
        warnings.contains("clock-stepped") && warnings.contains("replica1"),
        "{warnings}"
    );
    let row = |method: &str| {
        document["results"]["rows"]
            .as_array()
            .unwrap()
            .iter()
            .find(|row| row["method"] == method)
            .unwrap()
            .clone()
    };
    // A stamp that is a second off is not accepted; reads need no clock of the server.
    assert_eq!(row("poll")["timed_out"], 0);
    let worst = row("stamp")["from_primary"]["max_us"].as_f64().unwrap();
    let polled = row("poll")["from_send"]["max_us"].as_f64().unwrap();
    assert!(
        worst < polled + 500_000.0,
        "a row is {worst} µs late by its stamp and {polled} µs by reading"
    );
}

/// Returns how far a server's clock is ahead of this machine's, in seconds, about.
fn ahead_of_this_machine(node: &Node) -> f64 {
    let text = value(node, "SELECT UNIX_TIMESTAMP(SYSDATE(6))").unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    text.parse::<f64>().unwrap() - now.as_secs_f64()
}

/// The clocks of both servers and of the tool are set, forward and back, while it runs.
fn clocks_set_by_an_hour_change_neither_tap_nor_exposure() {
    let Some(folder) = servers_with_a_clock_to_set(Engine::MariaDb) else {
        return skip(NO_FAKETIME);
    };
    let spec = SandboxSpec {
        servers: Some(folder.clone()),
        ..SandboxSpec::of("mariadb/async:1".parse().unwrap())
    };
    let sandbox = start_spec(spec).unwrap_or_else(|error| panic!("{error}\n{}", error.hint()));
    let (primary, replica) = (&sandbox.nodes()[0], &sandbox.nodes()[1]);
    let (primary_url, replica_url) = (url(primary, "replimeter"), url(replica, "replimeter"));
    for statement in [
        "CREATE DATABASE shop",
        "CREATE TABLE shop.orders (id INT AUTO_INCREMENT PRIMARY KEY)",
    ] {
        sql(primary, statement);
    }
    let tools = [TestEnvironment::new(), TestEnvironment::new()];
    // Other dump threads than the replica's: one on each server for `tap`, one on the primary for `exposure`.
    let dumps =
        "SELECT COUNT(*) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'";
    let children = [("exposure", &tools[0]), ("tap", &tools[1])].map(|(name, tool)| {
        let clock = tool.folder().join("clock");
        fs::write(&clock, "+0\n").unwrap();
        let servers = ["--primary", &primary_url, "--replica", &replica_url];
        let line = [&[name, "--duration", "20s", "--json"][..], &servers].concat();
        let mut command = tool.command(&line);
        command
            .env("REPLIMETER_PASSWORD", password(primary))
            .env("LD_PRELOAD", libfaketime().unwrap())
            .env("FAKETIME_TIMESTAMP_FILE", clock)
            .env("FAKETIME_CACHE_DURATION", "1")
            .env("DONT_FAKE_MONOTONIC", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        command.spawn().unwrap()
    });
    wait_until("both runs follow the binary logs", LIMIT, || {
        let threads = [primary, replica].map(|node| value(node, dumps));
        threads == [Some("3".to_owned()), Some("1".to_owned())]
    });
    let mut writer = session(primary);
    let mut write = |rows: u32| {
        for _ in 0..rows {
            writer
                .run("test", "INSERT INTO shop.orders VALUES ()")
                .unwrap();
            thread::sleep(Duration::from_millis(10));
        }
    };
    write(100);
    let begun = ahead_of_this_machine(primary);
    for seconds in [3600.0, -3600.0] {
        for member in sandbox.members() {
            set_clock(member, seconds);
        }
        for tool in &tools {
            let made = tool.folder().join("clock.new");
            fs::write(&made, format!("{seconds:+}\n")).unwrap();
            fs::rename(made, tool.folder().join("clock")).unwrap();
        }
        wait_until("the clocks are set", LIMIT, || {
            write(1);
            [primary, replica]
                .iter()
                .all(|node| (ahead_of_this_machine(node) - begun - seconds).abs() < 600.0)
        });
        // The tools read their clocks again after a second.
        write(200);
    }
    let documents = children.map(|child| wait(child, LIMIT).with_code(0).json());
    // By a clock that was set a figure would be an hour.
    for (document, figure) in documents.iter().zip(["age", "lag"]) {
        let length = document["measured_us"].as_f64().unwrap();
        assert!((15e6..1800e6).contains(&length), "{document:#}");
        let row = &document["results"]["rows"][0];
        let worst = row[figure]["max_us"].as_f64().unwrap();
        assert!((0.0..1800e6).contains(&worst), "{document:#}");
    }
    sandbox.close().unwrap();
}
