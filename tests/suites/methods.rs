//! `lag` by every method in every replication mode, and conditions that exclude a method.

use std::time::Duration;

use replimeter_sandbox::Sandbox;
use replimeter_suites::{
    CommandOutput, LIMIT, TestEnvironment, harness::Test, password, shared, start, test, url, wait,
    wait_until,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

pub(crate) const TESTS: &[Test] = &[
    test!(all_methods_work_on_mariadb_and_in_a_chain).starts(3),
    test!(all_methods_work_on_mysql).starts(2).long(),
    test!(galera_supports_wait_tap_and_stamp),
    test!(group_supports_all_methods_but_stamp),
    test!(each_method_alone_can_pace_the_writer),
    test!(every_row_of_eight_writers_is_seen),
    test!(missing_requirement_is_reported_with_its_setting).starts(3),
    test!(size_sweep_works_with_tap),
    test!(calibration_is_saved_and_rendered_again).starts(2),
    test!(reference_instants_lie_inside_the_brackets),
    // Alone, because its threads have real-time priority and take the cores from other tests.
    test!(reference_holds_for_sixty_four_observers)
        .alone()
        .long(),
    test!(run_whose_reference_ends_keeps_its_results),
    test!(interrupted_reference_keeps_its_results),
    test!(settings_of_the_reference_are_checked),
];

/// Arguments of a short measurement with these methods.
fn short<'a>(method: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut args = vec!["lag", "--method", method, "--rounds", "100"];
    args.extend(["--floor-rounds", "20", "--timeout", "2m"]);
    args.extend(["--keep-awake", "off", "--json"]);
    args.extend(more);
    args
}

/// Runs a short measurement in a sandbox of its own.
fn lag(shape: &str, method: &str, more: &[&str]) -> CommandOutput {
    let tool = TestEnvironment::new();
    let args = [&["--sandbox", shape], more].concat();
    let child = tool.command(&short(method, &args)).spawn().unwrap();
    wait(child, LIMIT)
}

/// Runs a command on servers that run already.
pub(crate) fn run_on(sandbox: &Sandbox, args: &[&str]) -> CommandOutput {
    let nodes = sandbox.nodes();
    let is_cluster = nodes[0].name.starts_with("node");
    let urls = nodes.iter().enumerate().flat_map(|(index, node)| {
        let option = match index {
            _ if is_cluster => "--node",
            0 => "--primary",
            _ => "--replica",
        };
        [option.to_owned(), url(node, "replimeter")]
    });
    let tool = TestEnvironment::new();
    let child = tool
        .command(args)
        .args(urls)
        .env("REPLIMETER_PASSWORD", password(&nodes[0]))
        .spawn()
        .unwrap();
    wait(child, LIMIT)
}

/// Runs a short measurement on servers that run already.
fn lag_on(sandbox: &Sandbox, method: &str, more: &[&str]) -> CommandOutput {
    run_on(sandbox, &short(method, more))
}

fn rows(document: &Value) -> &Vec<Value> {
    document["results"]["rows"].as_array().unwrap()
}

/// Returns the rows of one replica by method; each must have observed every round.
fn methods<'d>(document: &'d Value, replica: &str) -> Vec<&'d str> {
    let of_replica = rows(document)
        .iter()
        .filter(|row| row["replica"] == replica);
    of_replica
        .map(|row| {
            assert_eq!(
                (row["rounds"].as_u64(), row["timed_out"].as_u64()),
                (Some(100), Some(0)),
                "{row:#}"
            );
            row["method"].as_str().unwrap()
        })
        .collect()
}

fn row<'d>(document: &'d Value, replica: &str, method: &str) -> &'d Value {
    rows(document)
        .iter()
        .find(|row| row["replica"] == replica && row["method"] == method)
        .unwrap()
}

/// Checks what holds for every method's figures on the same rows, regardless of the machine's load.
fn assert_consistent(document: &Value, replica: &str) {
    for one in rows(document)
        .iter()
        .filter(|row| row["replica"] == replica)
    {
        // No row is visible before it was sent; a stamp may be off by its error.
        let slack = if one["method"] == "stamp" {
            one["bracket_us"]["max_us"].as_f64().unwrap()
        } else {
            0.0
        };
        assert!(
            one["from_send"]["min_us"].as_f64().unwrap() + slack > 0.0,
            "{one:#}"
        );
        let like_for_like = one["from_primary"]["count"].as_u64().unwrap();
        let expected = if matches!(one["method"].as_str(), Some("stamp" | "tap")) {
            100
        } else {
            0
        };
        assert_eq!(like_for_like, expected, "{one:#}");
        if one["method"] != "poll" {
            assert_eq!(one["method_differences"]["method"], "poll");
            assert_eq!(one["method_differences"]["difference"]["count"], 100);
        }
        let in_bins: u64 = one["histogram_100us"]
            .as_array()
            .unwrap()
            .iter()
            .map(|bar| bar["count"].as_u64().unwrap())
            .sum();
        assert_eq!(in_bins, 100, "every row is in experiment 3's histogram");
    }
    if rows(document).iter().any(|row| row["method"] == "wait") {
        let wait = row(document, replica, "wait");
        assert_eq!(wait["estimator"], "upper-ends");
        // Rows that a read showed before the wait were not waited for.
        let readable = &wait["readable"];
        if !readable.is_null() {
            assert!((1..=100).contains(&readable["rounds"].as_u64().unwrap()));
            assert!(
                readable["gap"]["min_us"].as_f64().unwrap() > 0.0,
                "a read takes time: {readable:#}"
            );
        }
    }
    if rows(document).iter().any(|row| row["method"] == "stamp") {
        // A statement runs before its row is visible: on the same rows, beyond the errors of both methods. Half of the rows
        // have at least the median difference, and most of them no larger errors than these.
        let stamp = row(document, replica, "stamp");
        let error = |method: &str| {
            let bracket = &row(document, replica, method)["bracket_us"];
            bracket["p90_us"]
                .as_f64()
                .or(bracket["max_us"].as_f64())
                .unwrap()
        };
        let earlier = stamp["method_differences"]["difference"]["p50_us"]
            .as_f64()
            .unwrap();
        assert!(earlier < error("stamp") + error("poll"), "{stamp:#}");
    }
}

fn all_methods_work_on_mariadb_and_in_a_chain() {
    // An intermediate replica forwards statements only if it logs statements.
    let statements = ["--server-option", "replica1:binlog_format=STATEMENT"];
    let more = [&statements[..], &["--link-delay", "20ms"]].concat();
    let document = lag("mariadb/chain:2", "all", &more).with_code(0).json();
    for (replica, delay_us) in [("replica1", 20_000.0), ("replica2", 40_000.0)] {
        assert_eq!(
            methods(&document, replica),
            ["poll", "wait", "stamp", "tap"]
        );
        assert_consistent(&document, replica);
        // The second replica of a chain is later than the first, by every method.
        for method in ["poll", "wait", "stamp", "tap"] {
            let earliest = &row(&document, replica, method)["from_send"]["min_us"];
            assert!(
                earliest.as_f64().unwrap() >= delay_us,
                "{replica} {method}: {earliest} µs"
            );
        }
    }
    let floors: Vec<&str> = document["results"]["floors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|floor| floor["method"].as_str().unwrap())
        .collect();
    assert_eq!(floors.len(), 3, "a stamp has no null replica: {floors:?}");
    // A sandbox has Replimeter's function only with an option, and the report states it.
    let warnings = document["warnings"].as_array().unwrap();
    let left_out: Vec<&Value> = warnings
        .iter()
        .filter(|warning| warning["code"] == "method-left-out")
        .collect();
    assert_eq!(left_out.len(), 1, "{warnings:#?}");
    assert!(
        left_out[0]["message"]
            .as_str()
            .unwrap()
            .contains("stamp-udf was left out"),
        "{warnings:#?}"
    );
}

fn all_methods_work_on_mysql() {
    let document = lag("mysql/async:1", "all", &["--stages"])
        .with_code(0)
        .json();
    assert_eq!(
        methods(&document, "replica1"),
        ["poll", "wait", "stamp", "tap"]
    );
    assert_consistent(&document, "replica1");
    let stages = &row(&document, "replica1", "poll")["stages"];
    let names: Vec<&str> = stages["stages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|stage| stage["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["commit", "transfer", "queue", "apply", "show"]);
    assert!(stages["covered"].as_u64() > Some(0), "{stages:#}");
    // Conservation: the residue is within the error bars of the stages, of which half are below twice their mean.
    let residue = stages["residue"]["p50_us"].as_f64().unwrap();
    let bars: f64 = stages["stages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|stage| stage["error_mean_us"].as_f64().unwrap())
        .sum();
    assert!(residue.abs() <= 2.0 * bars, "{residue} of {bars}");
    assert!(row(&document, "replica1", "wait")["stages"].is_null());
}

fn galera_supports_wait_tap_and_stamp() {
    let cluster = shared("galera:2", &[]);
    let ended = lag_on(&cluster, "all", &["--stages"]);
    let document = ended.with_code(0).json();
    assert_eq!(
        methods(&document, "node2"),
        ["poll", "wait", "stamp", "tap"]
    );
    assert_consistent(&document, "node2");
    let stages = &row(&document, "node2", "poll")["stages"];
    let names: Vec<&str> = stages["stages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|stage| stage["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["replicate and certify", "apply"]);
}

fn group_supports_all_methods_but_stamp() {
    let cluster = shared("mysql/group:2", &[]);
    let ended = lag_on(&cluster, "all", &["--stages"]);
    let document = ended.with_code(0).json();
    assert_eq!(methods(&document, "node2"), ["poll", "wait", "tap"]);
    assert_consistent(&document, "node2");
    let warnings = document["warnings"].to_string();
    assert!(
        warnings.contains("method-left-out") && warnings.contains("3098"),
        "{warnings}"
    );
    let _ = lag_on(&cluster, "stamp", &[])
        .with_code(3)
        .stderr_contains("3098")
        .stderr_contains("use --method poll");
}

fn each_method_alone_can_pace_the_writer() {
    let servers = shared("mariadb/async:1", &[]);
    for method in ["wait", "stamp", "tap"] {
        let ended = lag_on(&servers, method, &["--pace", "visible"]);
        let document = ended.with_code(0).json();
        assert_eq!(methods(&document, "replica1"), [method]);
        assert!(row(&document, "replica1", method)["method_differences"].is_null());
    }
}

fn every_row_of_eight_writers_is_seen() {
    let servers = shared("mariadb/async:1", &[]);
    let mut args = vec!["lag", "--method", "poll,wait,tap", "--writers", "8"];
    args.extend(["--rounds", "2000", "--interval", "500us"]);
    args.extend(["--warm-up", "0", "--floor-rounds", "0"]);
    args.extend(["--timeout", "2m", "--json"]);
    let document = run_on(&servers, &args).with_code(0).json();
    assert_eq!(rows(&document).len(), 3);
    for row in rows(&document) {
        assert_eq!(
            (row["rounds"].as_u64(), row["timed_out"].as_u64()),
            (Some(2000), Some(0)),
            "{row:#}"
        );
    }
    assert_eq!(document["settings"]["writers"], 8);
}

fn missing_requirement_is_reported_with_its_setting() {
    let _ = lag("mariadb/none", "stamp", &[])
        .with_code(3)
        .stderr_contains("no replica whose stamps can be compared");
    let options = ["replica1:log_slave_updates=0", "sysdate_is_now=1"];
    let servers = start("mariadb/async:1", &options);
    let _ = lag_on(&servers, "tap", &[])
        .with_code(3)
        .stderr_contains("log_slave_updates")
        .stderr_contains("replica1");
    let _ = lag_on(&servers, "stamp", &[])
        .with_code(3)
        .stderr_contains("sysdate");
    let _ = lag_on(&servers, "stamp-udf", &[])
        .with_code(3)
        .stderr_contains("it has no function NOW_USEC()")
        .stderr_contains("CREATE FUNCTION now_usec");
}

fn size_sweep_works_with_tap() {
    let servers = shared("mariadb/async:1", &[]);
    let mut args = vec!["lag", "--method", "poll,tap", "--row-sizes", "100..300:100"];
    args.extend(["--sweeps", "2", "--step-pause", "50ms"]);
    args.extend(["--floor-rounds", "20", "--timeout", "2m", "--json"]);
    let document = run_on(&servers, &args).with_code(0).json();
    // A row for all sizes and one for each, by both methods.
    assert_eq!(rows(&document).len(), 8);
    assert!(rows(&document).iter().all(|row| row["timed_out"] == 0));
    assert_eq!(
        document["results"]["size_sweep"][0]["loops"]
            .as_array()
            .unwrap()
            .len(),
        6
    );
}

fn calibration_is_saved_and_rendered_again() {
    let tool = TestEnvironment::new();
    let args = [
        "calibrate",
        "--link-delay",
        "100ms,200ms",
        "--rounds",
        "40",
        "--repetitions",
        "2",
        "--method",
        "poll,wait,tap",
        "--keep-awake",
        "off",
        "--json",
    ];
    let ended = wait(tool.command(&args).spawn().unwrap(), LIMIT);
    let document = ended.with_code(0).json();
    assert_eq!(document["schema"], "replimeter.calibrate/1");
    let found = rows(&document);
    assert_eq!(found.len(), 9, "three methods at three delays");
    for row in found {
        assert_eq!(
            (row["rounds"].as_u64(), row["timed_out"].as_u64()),
            (Some(80), Some(0)),
            "{row:#}"
        );
        let injected = row["injected_us"].as_f64().unwrap();
        let earliest = row["measured"]["min_us"].as_f64().unwrap();
        match row["error_p50_us"].as_f64() {
            None => assert_eq!(injected, 0.0),
            // `make bench` measures the accuracy; this test checks that the delay is visible.
            // It has no interval where rounds depend on one another for too long.
            Some(error) => assert!(error > -injected, "{row:#}"),
        }
        if row["method"] == "poll" && injected > 0.0 {
            assert!(earliest >= injected, "{row:#}");
        }
    }
    let run = tool.only_run();
    let again = tool.run(&["report", run.to_str().unwrap()]).with_code(0);
    assert!(
        again
            .words()
            .contains("Measured lag and error by injected delay")
    );
    assert!(
        std::fs::read_to_string(run.join("report.html"))
            .unwrap()
            .contains("Error of p50")
    );
    let plan = run.join("plan.toml");
    let dry = tool
        .run(&["run", "--dry-run", plan.to_str().unwrap()])
        .with_code(0);
    assert!(dry.words().contains("command = \"calibrate\""));

    let _ = tool
        .run(&["calibrate", "--sandbox", "galera:3"])
        .with_code(2)
        .stderr_contains("async:N only");
}

/// Observers, and neighbors that compute without a pause, share few cores.
const REFERENCE_LIMIT: Duration = Duration::from_secs(600);
/// Without a server on the machine, threads would have real-time priority, and take the cores from other tests.
const SHARED_CORES: [&str; 4] = ["--real-time", "off", "--keep-awake", "off"];

/// Runs a calibration against the reference, and returns its rows.
fn reference(tool: &TestEnvironment, more: &[&str]) -> Vec<Value> {
    let mut args = vec!["calibrate", "--reference", "--json"];
    args.extend(more);
    let child = tool.command(&args).spawn().unwrap();
    let ended = wait(child, REFERENCE_LIMIT).with_code(0);
    let rows = ended.json()["results"]["reference"].clone();
    rows.as_array().unwrap().clone()
}

/// Checks what holds on any machine, however busy: the brackets contain the true instants.
fn check_reference(rows: &[Value]) {
    for row in rows {
        assert_eq!(row["timed_out"], 0, "{row:#}");
        let (all, outside) = (row["rounds"].as_f64(), row["outside"].as_f64());
        let (all, outside) = (all.unwrap(), outside.unwrap());
        assert!(outside <= all * 1e-3, "{row:#}");
        if row["method"] == "wait" {
            // A wait ends after the instant, by what the server needs to answer; a row that a read shows needs none.
            assert_ne!(
                row["answered_late_us"]["min_us"]
                    .as_f64()
                    .map(|us| us < 0.0),
                Some(true),
                "{row:#}"
            );
            assert!(row["error_us"]["min_us"].as_f64() >= Some(0.0), "{row:#}");
        }
        // The insert chooses the instant before it is acknowledged.
        let true_us = row["true_p50_us"].as_f64().unwrap();
        match row["delays"].as_str() {
            Some("0s") => assert!(true_us <= 0.0, "{row:#}"),
            Some("20ms") => assert!(true_us <= 20_000.0, "{row:#}"),
            _ => {}
        }
        let (bias, bracket) = (
            row["bias_p50_us"].as_f64(),
            row["bracket_us"]["max_us"].as_f64(),
        );
        // `make bench` compares the bias with half of a bracket, on cores that nothing else uses.
        if row["method"] == "poll" {
            assert!(bias.unwrap().abs() <= bracket.unwrap(), "{row:#}");
        }
    }
}

fn reference_instants_lie_inside_the_brackets() {
    let tool = TestEnvironment::new();
    let more = ["--observers", "1,8", "--row-delay", "20ms"];
    let more = [&more[..], &["--rounds", "40", "--interval", "5ms"]].concat();
    let rows = reference(&tool, &[&more[..], &SHARED_CORES].concat());
    assert_eq!(rows.len(), 2 * 2 * 2, "methods, observers, neighbors");
    check_reference(&rows);
    for row in &rows {
        let observers = row["observers"].as_u64().unwrap();
        assert_eq!(row["rounds"].as_u64(), Some(40 * observers), "{row:#}");
    }
    let run = tool.only_run();
    let again = tool.run(&["report", run.to_str().unwrap()]).with_code(0);
    assert!(
        again
            .words()
            .contains("Error of each method against the true instants")
    );
    let page = std::fs::read_to_string(run.join("report.html")).unwrap();
    assert!(page.contains("middle of the bracket less the true instant"));
    let plan = run.join("plan.toml");
    let dry = tool
        .run(&["run", "--dry-run", plan.to_str().unwrap()])
        .with_code(0);
    assert!(
        dry.words()
            .contains("serves a primary and up to 8 replicas itself")
    );
}

fn reference_holds_for_sixty_four_observers() {
    let tool = TestEnvironment::new();
    let more = [
        "--observers",
        "1,8,64",
        "--row-delay",
        "0,bimodal",
        "--rounds",
        "100",
    ];
    let rows = reference(&tool, &more);
    assert_eq!(rows.len(), 2 * 3 * 2 * 2);
    check_reference(&rows);
}

fn run_whose_reference_ends_keeps_its_results() {
    let tool = TestEnvironment::new();
    let args = ["calibrate", "--reference", "--method", "poll"];
    let mut command = tool.command(&[&args[..], &SHARED_CORES].concat());
    command.env("REPLIMETER_FAULT", "reference-ends");
    let ended = wait(command.spawn().unwrap(), LIMIT).with_code(3);
    let _ = ended.stderr_contains("replica1 (127.0.0.1:");
    let summary = std::fs::read_to_string(tool.only_run().join("summary.json")).unwrap();
    let document: Value = serde_json::from_str(&summary).unwrap();
    assert_eq!(document["status"], "failed");
    let row = &document["results"]["reference"][0];
    assert!(row["rounds"].as_u64() >= Some(20), "{row:#}");
    assert!(row["bracket_us"]["count"].as_u64() > Some(0), "{row:#}");
}

fn interrupted_reference_keeps_its_results() {
    let tool = TestEnvironment::new();
    let mut args = vec!["calibrate", "--reference", "--observers", "1"];
    args.extend(["--rounds", "100000", "--interval", "1ms"]);
    args.extend(SHARED_CORES);
    let child = tool.command(&args).spawn().unwrap();
    // Rows are written in groups; the first has thousands.
    wait_until("samples", LIMIT, || {
        let samples = tool.runs().first().map(|run| run.join("samples.partial"));
        samples.is_some_and(|path| path.metadata().is_ok_and(|file| file.len() > 10_000))
    });
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let _ = wait(child, LIMIT).with_code(130);
    let summary = std::fs::read_to_string(tool.only_run().join("summary.json")).unwrap();
    let document: Value = serde_json::from_str(&summary).unwrap();
    assert_eq!(document["status"], "interrupted");
    let row = &document["results"]["reference"][0];
    let (all, outside) = (row["rounds"].as_f64(), row["outside"].as_f64());
    assert!(
        all > Some(10.0) && outside <= all.map(|all| all * 1e-3),
        "{row:#}"
    );
}

fn settings_of_the_reference_are_checked() {
    let tool = TestEnvironment::new();
    for (more, cause) in [
        (["--sandbox", "async:1"], "remove the target"),
        (["--link-delay", "1ms"], "row-delays"),
        (["--method", "tap"], "poll and wait only"),
        (["--observers", "0"], "from 1 to 256"),
        (["--row-delay", "2s"], "at most 1s"),
    ] {
        let args = [["calibrate", "--reference"], more].concat();
        let _ = tool.run(&args).with_code(2).stderr_contains(cause);
    }
}
