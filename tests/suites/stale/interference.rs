//! Other clients and failing servers during a run.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    thread,
    time::Duration,
};

use replimeter_engine::{Node, Session};
use replimeter_sandbox::Sandbox;
use replimeter_suites::{
    CommandOutput, LIMIT, TestEnvironment, clean, of_run, password, session, shared, sql, start,
    value, wait, wait_until,
};
use rustix::process::{Pid, Signal, kill_process};

use super::{args, consistent, float, number, rows, warned};

/// Runs a measurement, and an action on its servers after the rounds that are not counted; then, if the run ends for no other
/// reason, interrupts it.
fn measure_during(
    sandbox: &Sandbox,
    tool: &TestEnvironment,
    args: &[String],
    interrupt: bool,
    act: impl FnOnce() + Send,
) -> CommandOutput {
    let primary = &sandbox.nodes()[0];
    thread::scope(|scope| {
        let child = tool
            .command(args)
            .env("REPLIMETER_PASSWORD", password(primary))
            .spawn()
            .unwrap();
        let process = Pid::from_child(&child);
        scope.spawn(move || {
            wait_until("rounds are counted", LIMIT, || {
                let newest = of_run(primary, "SELECT MAX(k) > 500 FROM replimeter.probe");
                let newest = session(primary).value("test", &newest);
                newest.is_ok_and(|found| found.as_deref() == Some("1"))
            });
            let acted = catch_unwind(AssertUnwindSafe(act));
            if let Err(panic) = acted {
                kill_process(process, Signal::KILL).unwrap();
                resume_unwind(panic);
            }
            if interrupt {
                kill_process(process, Signal::INT).unwrap();
            }
        });
        wait(child, LIMIT)
    })
}

/// Runs a measurement until an action on its servers has ended.
fn measure_until(
    sandbox: &Sandbox,
    tool: &TestEnvironment,
    args: &[String],
    act: impl FnOnce() + Send,
) -> CommandOutput {
    let ended = measure_during(sandbox, tool, args, true, act);
    ended.with_code(130)
}

/// Waits until a node of a run has no row for which this holds: the run has written them again.
fn await_no_row(node: &Node, which: &str) {
    let sql = of_run(
        node,
        &format!("SELECT COUNT(*) FROM replimeter.probe WHERE {which}"),
    );
    wait_until("the run has written its rows again", LIMIT, || {
        // A node of a cluster ends a read that a write of another node conflicts with.
        let rows = session(node).value("test", &sql);
        rows.is_ok_and(|rows| rows.as_deref() == Some("0"))
    });
}

pub(super) fn external_writes_are_distinguished() {
    let sandbox = shared("mariadb/galera:3", &[]);
    let nodes = sandbox.nodes();
    let tool = TestEnvironment::new();
    let mut more = vec!["--rows", "20", "--duration", "600s"];
    more.extend(["--read-delays", "none", "--json"]);
    // Another node writes the same rows: certification conflicts, and values that are not of the run.
    let ended = measure_until(&sandbox, &tool, &args(&sandbox, true, &more), || {
        let mut other: Session = session(&nodes[1]);
        for id in (1..40).step_by(2).cycle().take(200) {
            let update =
                format!("UPDATE replimeter.probe SET k = 9000000 + k % 1000 WHERE id = {id}");
            let update = of_run(&nodes[1], &update);
            // It may lose as well.
            wait_until("another client writes", LIMIT, || {
                other.run("test", &update).is_ok()
            });
        }
        await_no_row(&nodes[0], "k >= 9000000");
    });
    let document = ended.json();
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
    const HELD: Duration = Duration::from_millis(700);
    let sandbox = shared("mariadb/galera:3", &[]);
    let [writer, reader, ..] = sandbox.nodes() else {
        panic!("three nodes");
    };
    let tool = TestEnvironment::new();
    let mut given = vec!["--writer", "node1", "--reader", "node2"];
    given.extend(["--read-delays", "none", "--duration", "600s", "--json"]);
    let ended = measure_until(&sandbox, &tool, &args(&sandbox, true, &given), || {
        let mut other: Session = session(reader);
        let number = |node: &Node, sql: &str| -> u64 { value(node, sql).unwrap().parse().unwrap() };
        let newest = |node| number(node, &of_run(node, "SELECT MAX(k) FROM replimeter.probe"));
        let reads = "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'Com_stmt_execute'";
        for _ in 0..2 {
            other.run("test", "FLUSH TABLES WITH READ LOCK").unwrap();
            wait_until("a write is missing", LIMIT, || {
                newest(writer) > newest(reader)
            });
            let before = number(reader, reads);
            wait_until("the run reads", LIMIT, || {
                number(reader, reads) > before + 1
            });
            thread::sleep(HELD);
            other.run("test", "UNLOCK TABLES").unwrap();
            let round = newest(writer);
            wait_until("rounds follow", LIMIT, || newest(writer) > round + 2);
        }
    });
    let document = ended.json();
    let row = &rows(&document)[0];
    let (rounds, stale, added) = (
        float(&row["rounds"]),
        float(&row["stale"]),
        float(&row["withheld_rounds"]),
    );
    // The two rounds stand for those that would have begun: many, unless each round takes as long as the stalls.
    assert!(stale >= 2.0 && added >= 10.0, "{row:#}");
    let over_time = float(&row["stale_percent_over_time"]);
    let counted = (stale + added) / (rounds + added) * 100.0;
    assert!((over_time - counted).abs() < 1e-6, "{counted}: {row:#}");
    let ends = &row["stale_percent_over_time_ci95"];
    assert!(
        float(&ends[0]) <= over_time && over_time <= float(&ends[1]),
        "{row:#}"
    );
    // It is rounded.
    let held_us = HELD.as_secs_f64() * 1e6;
    assert!(float(&row["longest_round_us"]) > 0.95 * held_us, "{row:#}");
    // One round took more than 1 % of the time.
    assert!(row["fresh_after_us"]["p99"].is_null(), "{row:#}");
    consistent(row);
}

pub(super) fn external_rollback_is_not_counted_as_stale() {
    let sandbox = shared("mariadb/galera:3", &[]);
    let tool = TestEnvironment::new();
    let nodes = sandbox.nodes();
    for more in [
        &["--rows", "50"][..],
        &["--rows", "1", "--read-consistency=before"],
    ] {
        let mut given = vec!["--reader", "node2", "--read-delays", "none"];
        given.extend(["--duration", "600s", "--json"]);
        given.extend(more);
        let ended = measure_until(&sandbox, &tool, &args(&sandbox, true, &given), || {
            let mut other: Session = session(&nodes[0]);
            for _ in 0..20 {
                // It may lose.
                wait_until("another client writes", LIMIT, || {
                    let update = of_run(&nodes[0], "UPDATE replimeter.probe SET k = 0");
                    other.run("test", &update).is_ok()
                });
                thread::sleep(Duration::from_millis(30));
            }
            await_no_row(&nodes[0], "k = 0");
        });
        let document = ended.json();
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
        assert!(number(&row["rounds"]) > 0, "{row:#}");
        consistent(row);
    }
}

pub(super) fn stalled_reader_ends_the_run_and_keeps_results() {
    let sandbox = shared("mariadb/async:1", &[]);
    let replica = &sandbox.nodes()[1];
    let tool = TestEnvironment::new();
    // Long enough for every round before.
    let more = ["--rounds", "1000000", "--timeout", "5s", "--json"];
    let args = args(&sandbox, false, &more);
    let ended = measure_during(&sandbox, &tool, &args, false, || {
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
        number(&document["results"]["rows"][0]["rounds"]) > 0,
        "{document:#}"
    );
    assert!(clean(&sandbox.nodes()[0]));
    sql(replica, "START SLAVE SQL_THREAD");
}

pub(super) fn leaving_member_is_named_although_not_read() {
    let sandbox = start("mariadb/galera:3", &[]);
    let first = &sandbox.nodes()[0];
    let tool = TestEnvironment::new();
    let more = [
        "--reader",
        "node2",
        "--rounds",
        "1500",
        "--read-delays",
        "none",
        "--read-consistency=before",
        "--json",
    ];
    let args = args(&sandbox, true, &more);
    let ended = measure_during(&sandbox, &tool, &args, false, || {
        // The run waits for the locks, so that it does not end before the member has left.
        let mut other: Session = session(first);
        other.run("test", "START TRANSACTION").unwrap();
        let locks = of_run(first, "SELECT COUNT(*) FROM replimeter.probe FOR UPDATE");
        let _ = other.value("test", &locks).unwrap();
        let third = Pid::from_raw(sandbox.pids()[2].cast_signed()).unwrap();
        kill_process(third, Signal::KILL).unwrap();
        let members = "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'wsrep_cluster_size'";
        wait_until("the member has left", LIMIT, || {
            let mut asking = session(first);
            asking.value("test", members).ok().flatten().as_deref() == Some("2")
        });
        other.run("test", "ROLLBACK").unwrap();
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
