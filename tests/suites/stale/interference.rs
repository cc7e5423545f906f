//! Other clients and failing servers during a run.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use replimeter_engine::Session;
use replimeter_sandbox::Sandbox;
use replimeter_suites::{
    CommandOutput, LIMIT, TestEnvironment, clean, password, session, sql, start, value, wait,
    wait_until,
};
use rustix::process::{Pid, Signal, kill_process};

use super::{args, consistent, float, number, rows, warned};

/// Runs a measurement, and an action on its servers in the middle of it.
fn meanwhile(
    sandbox: &Sandbox,
    tool: &TestEnvironment,
    args: &[String],
    act: impl FnOnce() + Send,
) -> CommandOutput {
    let primary = &sandbox.nodes()[0];
    thread::scope(|scope| {
        let child = tool
            .command(args)
            .env("REPLIMETER_PASSWORD", password(primary))
            .spawn()
            .unwrap();
        scope.spawn(move || {
            wait_until("rounds are measured", LIMIT, || {
                let ours =
                    "SELECT 1 FROM information_schema.tables WHERE table_schema = 'replimeter' AND table_name = 'lag_probe'";
                value(primary, ours).is_some()
                    && value(primary, "SELECT MAX(k) > 100 FROM replimeter.lag_probe").as_deref() == Some("1")
            });
            act();
        });
        wait(child, LIMIT)
    })
}

pub(super) fn external_writes_are_distinguished() {
    let sandbox = start("mariadb/galera:3", &[]);
    let nodes = sandbox.nodes();
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let tool = TestEnvironment::new();
    let more = ["--rounds", "4000", "--read-delays", "none", "--json"];
    // Another node writes the same rows: certification conflicts, and values that are not ours.
    let ended = meanwhile(&sandbox, &tool, &args(&sandbox, true, &more), || {
        let mut other: Session = session(&nodes[1]);
        for id in (1..200).cycle().step_by(2).take(3000) {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            // It may lose as well, and at the end the table is gone.
            let done = other.run(
                "test",
                &format!("UPDATE replimeter.lag_probe SET k = 9000000 + k % 1000 WHERE id = {id}"),
            );
            written.fetch_add(u64::from(done.is_ok()), Ordering::Relaxed);
        }
    });
    stop.store(true, Ordering::Relaxed);
    let document = ended.with_code(0).json();
    assert!(written.load(Ordering::Relaxed) > 0);
    let foreign: u64 = rows(&document)
        .iter()
        .map(|row| number(&row["foreign"]))
        .sum();
    assert!(
        foreign > 0 && warned(&document, "changed-by-others"),
        "{document:#}"
    );
    for row in rows(&document) {
        assert!(number(&row["rounds"]) > 0);
        consistent(row);
    }
}

/// A global read lock stops the appliers of a node and not its reads: for its time every write is stale there, though it
/// is one round.
pub(super) fn stalled_applier_counts_with_its_time() {
    let sandbox = start("mariadb/galera:2", &[]);
    let tool = TestEnvironment::new();
    let mut given = vec!["--writer", "node1", "--reader", "node2"];
    given.extend(["--read-delays", "none", "--duration", "8s", "--json"]);
    // At least while the lock is held, at most from its request on: it waits for the appliers, which begin nothing more.
    let (at_least, at_most) = (AtomicU64::new(0), AtomicU64::new(0));
    let ended = meanwhile(&sandbox, &tool, &args(&sandbox, true, &given), || {
        let mut other: Session = session(&sandbox.nodes()[1]);
        let add = |to: &AtomicU64, since: Instant| {
            let micros = u64::try_from(since.elapsed().as_micros()).unwrap();
            to.fetch_add(micros, Ordering::Relaxed);
        };
        for _ in 0..3 {
            let requested = Instant::now();
            other.run("test", "FLUSH TABLES WITH READ LOCK").unwrap();
            let held = Instant::now();
            thread::sleep(Duration::from_millis(700));
            add(&at_least, held);
            other.run("test", "UNLOCK TABLES").unwrap();
            add(&at_most, requested);
            thread::sleep(Duration::from_millis(700));
        }
    });
    let document = ended.with_code(0).json();
    let row = &rows(&document)[0];
    let measured = float(&document["measured_us"]);
    let percent = |time: &AtomicU64| time.load(Ordering::Relaxed) as f64 / measured * 100.0;
    let (low, high) = (percent(&at_least), percent(&at_most));
    let of_rounds = float(&row["stale_percent"]);
    // Reads outside of the stalls can be stale, too, at most about as often as the rounds.
    let high = high + of_rounds * (1.0 - high / 100.0);
    let ends = &row["stale_percent_over_time_ci95"];
    assert!(
        float(&ends[0]) <= high && low <= float(&ends[1]),
        "{low} to {high}: {row:#}"
    );
    let over_time = float(&row["stale_percent_over_time"]);
    assert!(
        (0.8 * low..1.25 * high).contains(&over_time),
        "{low} to {high}: {row:#}"
    );
    assert!(number(&row["withheld_rounds"]) > 0 && float(&row["longest_round_us"]) > 600_000.0);
    // One round took more than 1 % of the time.
    assert!(row["fresh_after_us"]["p99"].is_null(), "{row:#}");
    consistent(row);
}

pub(super) fn external_rollback_is_not_counted_as_stale() {
    let sandbox = start("mariadb/galera:3", &[]);
    let tool = TestEnvironment::new();
    let nodes = sandbox.nodes();
    for more in [
        &["--rows", "50", "--rounds", "1200"][..],
        &[
            "--rows",
            "1",
            "--rounds",
            "800",
            "--read-consistency=before",
            "--timeout",
            "3s",
        ],
    ] {
        let mut given = vec!["--reader", "node2", "--read-delays", "none", "--json"];
        given.extend(more);
        let ended = meanwhile(&sandbox, &tool, &args(&sandbox, true, &given), || {
            let mut other: Session = session(&nodes[0]);
            for _ in 0..40 {
                // It may lose, and at the end the table is gone.
                let _ = other.run("test", "UPDATE replimeter.lag_probe SET k = 0");
                thread::sleep(Duration::from_millis(30));
            }
        });
        let document = ended.with_code(0).json();
        let row = &rows(&document)[0];
        assert!(
            number(&row["foreign"]) > 0 && warned(&document, "changed-by-others"),
            "{document:#}"
        );
        assert_eq!(
            number(&row["violations"]["monotonic_same_connection"]),
            0,
            "nobody went back: {row:#}"
        );
        // The next round begins when the last one was shown: more than one version behind cannot be.
        assert!(
            row["versions_behind"]
                .as_array()
                .unwrap()
                .iter()
                .all(|behind| number(&behind["versions"]) == 1),
            "{row:#}"
        );
        let warnings = document["warnings"].as_array().unwrap();
        assert_eq!(
            warnings
                .iter()
                .filter(|warning| warning["code"] == "changed-by-others")
                .count(),
            1,
            "{warnings:#?}"
        );
        assert!(number(&row["rounds"]) > 100, "{row:#}");
        consistent(row);
    }
}

pub(super) fn stalled_reader_ends_the_run_and_keeps_results() {
    let sandbox = start("mariadb/async:1", &[]);
    let replica = &sandbox.nodes()[1];
    let tool = TestEnvironment::new();
    let more = ["--rounds", "1000000", "--timeout", "2s", "--json"];
    let ended = meanwhile(&sandbox, &tool, &args(&sandbox, false, &more), || {
        sql(replica, "STOP SLAVE SQL_THREAD")
    });
    let ended = ended
        .with_code(3)
        .stderr_contains("replica1")
        .stderr_contains("still showed an older version")
        .stderr_contains("SQL thread No");
    let document = ended.json();
    assert_eq!(document["status"], "failed");
    assert!(
        number(&document["results"]["rows"][0]["rounds"]) > 50,
        "{document:#}"
    );
    assert!(clean(&sandbox.nodes()[0]));
    sql(replica, "START SLAVE SQL_THREAD");
}

pub(super) fn leaving_member_is_named_although_not_read() {
    let sandbox = start("mariadb/galera:3", &[]);
    let tool = TestEnvironment::new();
    let more = [
        "--reader",
        "node2",
        "--duration",
        "12s",
        "--read-delays",
        "none",
        "--read-consistency=before",
        "--json",
    ];
    let ended = meanwhile(&sandbox, &tool, &args(&sandbox, true, &more), || {
        let third = Pid::from_raw(i32::try_from(sandbox.pids()[2]).unwrap()).unwrap();
        kill_process(third, Signal::KILL).unwrap();
    });
    let document = ended.with_code(0).json();
    let warnings = document["warnings"].as_array().unwrap();
    let lost = warnings
        .iter()
        .find(|warning| warning["code"] == "server-lost");
    assert!(
        lost.is_some_and(|lost| lost["message"].as_str().unwrap().contains("node3")),
        "{warnings:#?}"
    );
    assert!(!warnings.iter().any(|warning| {
        warning["message"]
            .as_str()
            .unwrap()
            .contains("it will when replication resumes")
    }));
}
