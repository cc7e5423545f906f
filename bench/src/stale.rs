//! `stale`: its rounds per second compared with a plain loop, the punctuality of its reads, and violations of guarantees.

use std::time::Instant;

use replimeter_engine::session::Bound;
use replimeter_sandbox::Sandbox;
use replimeter_suites::{TestEnvironment, password, session, sql, start, url};
use serde_json::Value;

use crate::{TIMES, figure, line};

/// Rounds of each repetition.
const ROUNDS: u64 = 5000;

/// Runs the tool on the servers of a sandbox as existing servers.
fn run(sandbox: &Sandbox, more: &[&str]) -> Value {
    let mut args = vec!["stale".to_owned()];
    for node in sandbox.nodes() {
        args.extend(["--node".to_owned(), url(node, "replimeter")]);
    }
    args.extend(more.iter().map(|arg| (*arg).to_owned()));
    let tool = TestEnvironment::new();
    let output = tool
        .command(&args)
        .env("REPLIMETER_PASSWORD", password(&sandbox.nodes()[0]))
        .output()
        .expect("the tool runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("a document")
}

/// Returns the rounds per second of a plain loop of the same statements.
fn by_hand(sandbox: &Sandbox) -> f64 {
    let (mut writer, mut reader) = (session(&sandbox.nodes()[0]), session(&sandbox.nodes()[1]));
    let update = "UPDATE bench.t SET k = ? WHERE id = ?";
    let update = writer.prepare("bench", update).expect("it is prepared");
    let select = "SELECT k FROM bench.t WHERE id = ?";
    let select = reader.prepare("bench", select).expect("it is prepared");
    let newest = "SELECT MAX(k) FROM bench.t";
    let newest = writer.value("bench", newest).expect("an answer");
    let base: u64 = newest.map_or(0, |k| k.parse().expect("a number"));
    let began = Instant::now();
    for round in base + 1..=base + ROUNDS {
        let id = 2 * (round.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) % 1000 + 1;
        let values = [round, id].map(Bound::Number);
        writer.execute("bench", &update, values).expect("it writes");
        while reader
            .number("bench", &select, [Bound::Number(id)])
            .expect("it reads")
            != Some(round)
        {}
    }
    ROUNDS as f64 / began.elapsed().as_secs_f64()
}

pub(crate) fn stale() {
    let sandbox = start("mariadb/galera:3", &[]);
    let writer = &sandbox.nodes()[0];
    for statement in [
        "CREATE DATABASE bench",
        "CREATE TABLE bench.t (id BIGINT UNSIGNED NOT NULL PRIMARY KEY, k BIGINT UNSIGNED NOT NULL, pad CHAR(60) NOT NULL DEFAULT '') ENGINE=InnoDB",
    ] {
        sql(writer, statement);
    }
    let rows: Vec<String> = (0..500)
        .map(|number| format!("({}, 0, REPEAT('x', 60))", 2 * number + 1))
        .collect();
    sql(
        writer,
        &format!("INSERT INTO bench.t VALUES {}", rows.join(", ")),
    );
    let rounds = ROUNDS.to_string();
    let (mut ratios, mut ours, mut theirs) = (vec![], vec![], vec![]);
    for _ in 0..TIMES {
        let tool = run(
            &sandbox,
            &[
                "--reader",
                "node2",
                "--rounds",
                &rounds,
                "--read-delays",
                "none",
                "--json",
            ],
        );
        let tool = tool["results"]["rows"][0]["rounds_per_s"]
            .as_f64()
            .expect("a rate");
        let hand = by_hand(&sandbox);
        ratios.push(tool / hand);
        ours.push(tool);
        theirs.push(hand);
    }
    line("stale: rounds per s on galera:3", figure(&ours).1, "");
    line(
        "the same statements in a plain loop, rounds per s",
        figure(&theirs).1,
        "",
    );
    line("stale / the loop, alternately", figure(&ratios).1, "≥ 0.9");
    let curve = [
        "--reader",
        "node2",
        "--rounds",
        "1000",
        "--read-delays",
        "100us,500us,1ms,5ms",
        "--curve-rounds",
        "2000",
        "--json",
    ];
    let document = run(&sandbox, &curve);
    let late = document["results"]["rows"][0]["read_delay_error"]["p99_us"]
        .as_f64()
        .expect("a figure");
    line(
        "stale: reads issued after their time, p99 (µs)",
        format!("{late:.1}"),
        "≤ 20",
    );
    let group = start("mysql/group:3", &[]);
    for (name, sandbox) in [("galera", &sandbox), ("group", &group)] {
        let sync = [
            "--reader",
            "node2",
            "--rounds",
            "100000",
            "--read-consistency=before",
            "--read-delays",
            "none",
            "--json",
        ];
        let document = run(sandbox, &sync);
        let row = &document["results"]["rows"][0];
        let violations = &row["violations"];
        let bound = violations["read_your_writes_percent_upper_bound"]
            .as_f64()
            .expect("a bound");
        let figure = format!(
            "stale --read-consistency=before on {name}: violations in {} rounds",
            row["rounds"]
        );
        line(
            &figure,
            format!("{} (< {bound:.4} %)", violations["read_your_writes"]),
            "0",
        );
    }
}
