//! `replimeter cost` on real servers: its results, invalid blocks, and the self-test.

mod ends;

use std::{fs, path::Path};

use replimeter_suites::{CommandOutput, TestEnvironment, harness::Test, test};
use serde_json::Value;

pub(crate) const TESTS: &[Test] = &[
    test!(every_mode_has_a_row_a_step_and_resources).starts(4),
    test!(semi_sync_costs_more_than_async)
        .starts(4)
        .alone()
        .long(),
    test!(clusters_are_compared_with_their_own_version)
        .starts(4)
        .alone()
        .long(),
    test!(semi_sync_waits_for_the_link).starts(3),
    test!(link_delay_slows_only_waiting_modes).starts(4).long(),
    test!(fall_back_invalidates_its_blocks).starts(3),
    test!(mode_does_not_differ_from_itself)
        .starts(4)
        .alone()
        .long(),
    test!(ends::interrupted_run_keeps_its_results).starts(3),
    test!(ends::killed_server_ends_the_run_and_keeps_results).starts(4),
    test!(blocks_count_operations_by_their_start).starts(1),
    test!(replica_costs_include_what_it_applies_later).starts(3),
    test!(script_refused_by_the_server_has_no_cost).starts(1),
    test!(bad_input_is_refused_before_start),
];

fn row<'v>(document: &'v Value, mode: &str, threads: u64) -> &'v Value {
    let rows = document["results"]["rows"].as_array().unwrap();
    rows.iter()
        .find(|row| row["mode"] == mode && row["threads"] == threads)
        .unwrap_or_else(|| panic!("no {mode} at {threads} threads in {rows:#?}"))
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}

/// A run that is as short as possible.
fn quick(tool: &TestEnvironment, args: &[&str]) -> CommandOutput {
    let all: Vec<&str> = ["cost", "--block-duration", "400ms", "--warm-up", "300ms"]
        .iter()
        .chain(args)
        .copied()
        .collect();
    tool.run(&all)
}

/// Checks what holds for the rows of one thread that inserts.
fn consistent(rows: &[Value], starts: u64, blocks: u64) {
    for row in rows {
        assert_eq!(
            (&row["engine"], &row["durability"]),
            (&"mariadb".into(), &"relaxed".into())
        );
        assert_eq!(row["starts"], starts);
        assert_eq!(
            row["blocks"].as_u64().unwrap() + row["invalid_blocks"].as_u64().unwrap(),
            blocks
        );
        assert!(number(&row["throughput"]["mean"]) > 0.0, "{row:#}");
        assert_eq!(row["latency"]["count"], row["operations"]);
        assert!(
            number(&row["servers"][0]["cpu_us_per_op"]) > 0.0
                && number(&row["servers"][0]["context_switches_per_op"]) > 0.0
        );
        assert_eq!(row["relative"]["baseline"], "none");
    }
}

/// Checks the files of a run, of which one server has no binary log.
fn files_are_complete(run: &Path) {
    for file in [
        "plan.toml",
        "manifest.json",
        "samples.parquet",
        "summary.json",
        "report.html",
        "report.md",
    ] {
        assert!(run.join(file).exists(), "{file} is missing");
    }
    let manifest: Value =
        serde_json::from_str(&fs::read_to_string(run.join("manifest.json")).unwrap()).unwrap();
    let logs: Vec<&str> = manifest["servers"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|server| server["name"] == "primary")
        .map(|server| server["variables"]["log_bin"].as_str().unwrap())
        .collect();
    assert_eq!(
        logs.iter().filter(|log| **log == "OFF").count(),
        1,
        "only none is without a log: {logs:?}"
    );
}

fn modes(document: &Value) -> Vec<&str> {
    let rows = document["results"]["rows"].as_array().unwrap();
    let modes = rows.iter().map(|row| row["mode"].as_str().unwrap());
    modes.collect()
}

fn baselines(document: &Value) -> Vec<&str> {
    let steps = document["results"]["steps"].as_array().unwrap();
    let baselines = steps.iter().map(|step| step["baseline"].as_str().unwrap());
    baselines.collect()
}

fn every_mode_has_a_row_a_step_and_resources() {
    let tool = TestEnvironment::new();
    let ended = quick(
        &tool,
        &[
            "--modes",
            "mariadb/binlog,mariadb/async",
            "--threads",
            "1",
            "--duration",
            "400ms",
            "--starts",
            "1",
            "--json",
        ],
    );
    let document = ended.with_code(0).json();
    assert_eq!(
        (&document["schema"], &document["status"]),
        (&"replimeter.cost/1".into(), &"complete".into())
    );
    // `none` was added.
    assert_eq!(modes(&document), ["none", "binlog", "async"]);
    assert_eq!(baselines(&document), ["none", "binlog"]);
    let rows = document["results"]["rows"].as_array().unwrap();
    consistent(rows, 1, 1);
    assert_eq!(number(&rows[0]["relative"]["throughput"]), 1.0);
    for (row, servers) in rows.iter().zip([1, 1, 2]) {
        assert_eq!(row["servers"].as_array().unwrap().len(), servers);
    }
    assert_eq!(rows[2]["behind"][0]["name"], "replica1");
    assert_eq!(document["results"]["order"].as_array().unwrap().len(), 3);
    let run = tool.only_run();
    files_are_complete(&run);
    // The report of the run is rendered again without a server.
    let text = tool.run(&["report", run.to_str().unwrap()]).with_code(0);
    let words = text.words();
    for wanted in ["innodb_flush_log_at_trx_commit=2", "Added by each step"] {
        assert!(words.contains(wanted), "`{wanted}` is missing in {words}");
    }
}

/// Compares latencies of modes, which a busy machine would level.
fn semi_sync_costs_more_than_async() {
    let tool = TestEnvironment::new();
    let ended = quick(
        &tool,
        &[
            "--modes",
            "mariadb/binlog,mariadb/async,mariadb/semi-sync",
            "--threads",
            "1",
            "--duration",
            "2400ms",
            "--starts",
            "3",
            "--json",
        ],
    );
    let document = ended.with_code(0).json();
    assert_eq!(
        (&document["schema"], &document["status"]),
        (&"replimeter.cost/1".into(), &"complete".into())
    );
    // `none` was added, and semi-sync has both wait points.
    assert_eq!(
        modes(&document),
        ["none", "binlog", "async", "semi-sync", "semi-sync"]
    );
    let rows = document["results"]["rows"].as_array().unwrap();
    let points: Vec<Option<&str>> = rows.iter().map(|row| row["wait_point"].as_str()).collect();
    assert_eq!(
        points,
        [None, None, None, Some("after-commit"), Some("after-sync")]
    );
    consistent(rows, 3, 6);
    for row in rows {
        assert!(
            number(&row["throughput"]["ci95"][0]) <= number(&row["throughput"]["mean"]),
            "{row:#}"
        );
        assert!(
            number(&row["client"]["limit_per_s"]) > number(&row["throughput"]["mean"]),
            "{row:#}"
        );
    }
    let none = row(&document, "none", 1);
    assert_eq!(number(&none["relative"]["throughput"]), 1.0);
    assert_eq!(none["servers"].as_array().unwrap().len(), 1);
    for row in &rows[3..] {
        // One additional round trip to a replica, with a margin for a busy machine.
        assert!(
            number(&row["latency"]["p50_us"]) > 1.2 * number(&none["latency"]["p50_us"]),
            "{row:#}"
        );
        assert_eq!(row["servers"].as_array().unwrap().len(), 2);
        assert_eq!(row["behind"][0]["name"], "replica1");
    }
    assert_eq!(baselines(&document), ["none", "binlog", "async", "async"]);
    // Rounds of all modes, in varying order.
    let order = document["results"]["order"].as_array().unwrap();
    assert_eq!(order.len(), 15);
    let round = |number: u64| {
        order
            .iter()
            .filter(|start| start["round"] == number)
            .map(|start| start["mode"].to_string())
            .collect::<Vec<_>>()
    };
    assert!(
        (2..=3).any(|number| round(number) != round(1)),
        "{order:#?}"
    );
    let run = tool.only_run();
    files_are_complete(&run);
    // The report of the run is rendered again without a server.
    let markdown = tool
        .run(&["report", run.to_str().unwrap(), "--markdown"])
        .with_code(0)
        .stdout;
    assert!(
        markdown.starts_with("# Replimeter cost")
            && markdown.contains("| semi-sync after-sync | 1 |"),
        "{markdown}"
    );
    let text = tool.run(&["report", run.to_str().unwrap()]).with_code(0);
    let words = text.words();
    for wanted in [
        "to an insert",
        "innodb_flush_log_at_trx_commit=2",
        "Added by each step",
    ] {
        assert!(words.contains(wanted), "`{wanted}` is missing in {words}");
    }
}

/// Compares throughputs, which a busy machine would level.
fn clusters_are_compared_with_their_own_version() {
    let tool = TestEnvironment::new();
    let ended = quick(
        &tool,
        &[
            "--modes",
            "galera,group",
            "--threads",
            "2",
            "--duration",
            "800ms",
            "--starts",
            "2",
            "--json",
        ],
    );
    let document = ended.with_code(0).json();
    let rows: Vec<(&str, &str)> = document["results"]["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            (
                row["engine"].as_str().unwrap(),
                row["mode"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        rows,
        [
            ("mariadb", "none"),
            ("mariadb", "galera"),
            ("mysql", "none"),
            ("mysql", "group")
        ]
    );
    for mode in ["galera", "group"] {
        let row = row(&document, mode, 2);
        assert!(
            number(&row["relative"]["throughput"]) > 0.0
                && number(&row["relative"]["throughput"]) < 1.0,
            "{row:#}"
        );
        assert_eq!(row["servers"].as_array().unwrap().len(), 2);
    }
    // Two starts have wide intervals, with a warning.
    assert!(
        document["warnings"]
            .as_array()
            .unwrap()
            .iter()
            .any(|warning| warning["code"] == "few-starts")
    );
}

/// One-way delay of a link, in µs. A commit that waits for a replica contains it twice; another one contains it only on a
/// machine that stalls for that time in every commit.
const LINK_US: f64 = 50_000.0;

/// Returns the shortest latency of a mode over links with this delay.
fn shortest_us(document: &Value, mode: &str, delay: f64) -> f64 {
    let rows = document["results"]["rows"].as_array().unwrap();
    let of = |row: &&Value| row["mode"] == mode && row["link_delay_us"].as_f64() == Some(delay);
    let row = rows.iter().find(of);
    let row = row.unwrap_or_else(|| panic!("no {mode} over {delay}: {rows:#?}"));
    number(&row["latency"]["min_us"])
}

/// Measures modes of MariaDB over links with and without a delay.
fn over_links(tool: &TestEnvironment, modes: &str, starts: &str) -> Value {
    let args = [
        "--modes",
        modes,
        "--wait-point",
        "after-sync",
        "--threads",
        "1",
        "--link-delay",
        "0,50ms",
        "--duration",
        "800ms",
        "--starts",
        starts,
        "--json",
    ];
    let document = quick(tool, &args).with_code(0).json();
    assert!(shortest_us(&document, "semi-sync", LINK_US) > 1.9 * LINK_US);
    assert!(shortest_us(&document, "semi-sync", 0.0) < LINK_US);
    assert!(row(&document, "none", 1)["link_delay_us"].is_null());
    let page = fs::read_to_string(tool.only_run().join("report.html")).unwrap();
    assert!(page.contains("id=\"distance\""));
    document
}

fn semi_sync_waits_for_the_link() {
    let _ = over_links(&TestEnvironment::new(), "mariadb/semi-sync", "1");
}

fn link_delay_slows_only_waiting_modes() {
    let tool = TestEnvironment::new();
    let document = over_links(&tool, "mariadb/async,mariadb/semi-sync", "2");
    let shortest = shortest_us(&document, "async", LINK_US);
    assert!(shortest < LINK_US, "no commit waits: {shortest}");
}

fn fall_back_invalidates_its_blocks() {
    let tool = TestEnvironment::new();
    // The primary waits 1 ms for an acknowledgement that takes at least 10 ms.
    let args = [
        "--modes",
        "mariadb/semi-sync",
        "--wait-point",
        "after-sync",
        "--threads",
        "1",
        "--link-delay",
        "5ms",
        "--server-option",
        "primary:rpl_semi_sync_master_timeout=1",
    ];
    let all: Vec<&str> = args
        .iter()
        .copied()
        .chain(["--duration", "800ms", "--starts", "1", "--json"])
        .collect();
    let ended = quick(&tool, &all);
    assert!(matches!(ended.code, Some(1 | 3)), "{ended:#?}");
    assert!(
        ended.stderr.contains("fell back") || ended.stderr.contains("asynchronous"),
        "{ended:#?}"
    );
}

/// Compares throughputs, which other tests would change from start to start.
fn mode_does_not_differ_from_itself() {
    let tool = TestEnvironment::new();
    let ended = quick(
        &tool,
        &[
            "--modes",
            "mariadb/binlog",
            "--threads",
            "1",
            "--self-test",
            "4",
            "--starts",
            "2",
            "--duration",
            "800ms",
            "--json",
        ],
    );
    let document = ended.with_code(0).json();
    let test = &document["results"]["self_test"];
    assert_eq!(
        (
            test["comparisons"].as_array().unwrap().len(),
            &test["significant"]
        ),
        (4, &false.into())
    );
    assert_eq!(document["results"]["order"].as_array().unwrap().len(), 16);
    assert_eq!(row(&document, "binlog", 1)["starts"], 16);
}

/// A script is sent as text, which no server checks before it runs.
fn script_refused_by_the_server_has_no_cost() {
    let tool = TestEnvironment::new();
    std::fs::write(tool.folder().join("own.sql"), "SELECT 1;\nSELEC 2;\n").unwrap();
    let ended = tool.run(&[
        "cost",
        "--modes",
        "mariadb/none",
        "--workload",
        "own.sql",
        "--threads",
        "1",
        "--duration",
        "1s",
        "--starts",
        "1",
    ]);
    let _ = ended
        .with_code(3)
        .stderr_contains("line 2")
        .stderr_contains("SELEC 2");
    assert!(tool.runs().is_empty());
}

fn bad_input_is_refused_before_start() {
    let tool = TestEnvironment::new();
    for (args, code, said) in [
        (vec!["cost", "--modes", "ring"], 2, "unknown mode"),
        (vec!["cost", "--modes", "mysql/galera"], 2, "Galera"),
        (vec!["cost", "--threads", "0"], 2, "1 to 10000"),
        (
            vec!["cost", "--workload", "no-such-file.toml"],
            2,
            "no-such-file.toml",
        ),
        (vec!["cost", "--duration", "10"], 2, "unit"),
        (
            vec!["cost", "--modes", "async", "--servers", "/nonexistent"],
            2,
            "/nonexistent",
        ),
        (vec!["cost", "--raw"], 2, "--raw"),
        (
            vec!["cost", "--workload", "insert", "--data-size", "100MB"],
            2,
            "no workload has data",
        ),
    ] {
        let ended = tool.run(&args);
        assert_eq!(ended.code, Some(code), "{ended:#?}");
        assert!(
            ended.stderr.to_lowercase().contains(&said.to_lowercase()),
            "`{said}` is missing in {ended:#?}"
        );
    }
    assert!(tool.runs().is_empty());
}

/// Each thread starts an operation of 0.7 s at 0 s and at 0.7 s of each block. Counted by their ends, each block would have one
/// operation of each thread; by their starts alone, the throughput would be two fifths too high.
fn blocks_count_operations_by_their_start() {
    const THREADS: u64 = 2;
    const BLOCKS: u64 = 4;
    let tool = TestEnvironment::new();
    let text = "[[statement]]\nsql = 'SELECT SLEEP(0.7)'";
    fs::write(tool.folder().join("slow.toml"), text).unwrap();
    let mut args = vec![
        "cost",
        "--modes",
        "mariadb/none",
        "--workload",
        "slow.toml",
        "--json",
    ];
    args.extend(["--threads", "2", "--starts", "1", "--warm-up", "100ms"]);
    args.extend(["--duration", "4s", "--block-duration", "1s"]);
    let document = tool.run(&args).with_code(0).json();
    let row = row(&document, "none", 2);
    assert_eq!(row["latency"]["count"], row["operations"], "{row:#}");
    // A stall takes the second operation from the blocks that it is in.
    let operations = row["operations"].as_u64().unwrap();
    let one_each = THREADS * BLOCKS;
    assert!(
        operations > one_each && operations <= 2 * one_each,
        "{row:#}"
    );
    // No thread ends more than one in 0.7 s.
    let per_s = number(&row["throughput"]["mean"]);
    assert!(per_s * 0.7 / (THREADS as f64) < 1.01, "{row:#}");
}

/// A replica that applies statements one after another, each as slow as on the primary, where four run at
/// once: at the end of the load it has done about a quarter of the work.
fn replica_costs_include_what_it_applies_later() {
    let tool = TestEnvironment::new();
    let text = "size = 1
        [[table]]
        name = 'slept'
        create = 'CREATE TABLE slept (id INT AUTO_INCREMENT PRIMARY KEY, n INT)'
        columns = {n = 0}
        [[statement]]
        sql = 'INSERT INTO slept (n) SELECT SLEEP(0.04)'";
    fs::write(tool.folder().join("slow.toml"), text).unwrap();
    let mut args = vec![
        "cost",
        "--modes",
        "mariadb/async",
        "--workload",
        "slow.toml",
    ];
    args.extend([
        "--threads",
        "4",
        "--starts",
        "1",
        "--warm-up",
        "100ms",
        "--json",
    ]);
    args.extend(["--duration", "1s", "--block-duration", "1s"]);
    args.extend(["--server-option", "binlog_format=STATEMENT"]);
    args.extend(["--server-option", "slave_parallel_threads=0"]);
    let document = tool.run(&args).with_code(0).json();
    let row = row(&document, "async", 4);
    let written = |server: usize| number(&row["servers"][server]["rows_written_per_op"]);
    // It also writes the positions that it reached.
    assert!(written(1) >= written(0), "{row:#}");
    assert!(number(&row["behind"][0]["max"]) > 0.0, "{row:#}");
    // About a quarter, if nothing stalls.
    let sustained = number(&row["sustained"]["mean"]) / number(&row["throughput"]["mean"]);
    assert!(sustained > 0.0 && sustained < 0.9, "{sustained}: {row:#}");
}
