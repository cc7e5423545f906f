//! `scale` and `stale` through a web site: HAProxy, fronts, `ab` and visitors of Replimeter.

mod remedies;

use std::{env, fs, os::unix::fs::PermissionsExt, path::PathBuf};

use replimeter_suites::{
    CommandOutput, LIMIT, TestEnvironment, children_named, folder, folders_left,
    harness::{Test, skip},
    has_ended, has_program, test, wait, wait_until,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

pub(crate) const TESTS: &[Test] = &[
    test!(scale_through_http_reports_the_site).starts(2),
    test!(ab_keeps_its_connections).starts(2),
    test!(visitors_keep_their_rate_and_fronts_cost_what_was_asked).starts(3),
    test!(killed_site_ends_scale_and_leaves_nothing).starts(4),
    test!(interrupted_ab_keeps_results_and_leaves_nothing).starts(2),
    test!(killed_scale_through_http_leaves_nothing).starts(3),
    test!(remedies::posts_are_missing_without_a_remedy).starts(3),
    test!(remedies::posts_are_missing_without_a_remedy_on_mysql_and_galera)
        .starts(4)
        .long(),
    test!(invalid_settings_of_a_site_are_refused),
    test!(programs_that_are_too_old_are_explained).starts(2),
];

const NO_PROGRAMS: &str = "no HAProxy or ab: run scripts/get-servers web";

fn has_programs() -> bool {
    has_program("haproxy") && has_program("ab")
}

const SCALE: [&str; 9] = [
    "scale",
    "--through",
    "http",
    "--data-size",
    "2MB",
    "--starts",
    "1",
    "--mode",
    "mariadb/async",
];

fn scale(more: &[&'static str]) -> Vec<&'static str> {
    SCALE.iter().chain(more).copied().collect()
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}

fn rows(document: &Value) -> &Vec<Value> {
    document["results"]["rows"].as_array().unwrap()
}

/// Returns the rows with answers. On a machine that stalls for seconds a block can be without any, or the site leaves out a server, and
/// the block does not count.
fn counted(document: &Value) -> Vec<&Value> {
    let mut counted: Vec<&Value> = rows(document).iter().collect();
    counted.retain(|row| row["blocks"] != 0 && answered(row) > 0.0);
    for kind in ["inserts_per_s", "selects_per_s"] {
        let has_some = |row: &&Value| row[kind].as_f64().is_some_and(|per_s| per_s > 0.0);
        assert!(counted.iter().any(has_some), "{kind}: {document:#}");
    }
    counted
}

/// Returns the kinds of requests of a row.
fn kinds(row: &Value) -> Vec<&'static str> {
    let phase = row["phase"].as_str().unwrap();
    let mut kinds = vec!["insert", "select"];
    kinds.retain(|kind| phase == "mixed" || phase == *kind);
    kinds
}

/// Returns the requests of a row that had an answer.
fn answered(row: &Value) -> f64 {
    let per_s = kinds(row)
        .into_iter()
        .map(|kind| number(&row[format!("{kind}s_per_s")]));
    per_s.sum::<f64>() * number(&row["counted_us"]) / 1e6
}

/// Returns whether the server of this name answered selects.
fn selects(row: &Value, name: &str) -> bool {
    let mut servers = row["servers"].as_array().unwrap().iter();
    let server = servers.find(|server| server["name"] == name);
    server.is_some_and(|server| server["selects_per_s"].is_number())
}

/// Returns the sum of a figure over the servers of a role.
fn of_role(row: &Value, role: &str, figure: &str) -> f64 {
    let servers = row["servers"].as_array().unwrap().iter();
    let of_role = servers.filter(|server| server["role"] == role);
    of_role.map(|server| number(&server[figure])).sum()
}

fn ab_keeps_its_connections() {
    if !has_programs() {
        return skip(NO_PROGRAMS);
    }
    let tool = TestEnvironment::new();
    let args = scale(&[
        "--replicas",
        "1",
        "--threads",
        "1",
        "--duration",
        "1s",
        "--keep-alive",
        "on",
        "--json",
    ]);
    let document = tool.run(&args).with_code(0).json();
    for row in counted(&document) {
        assert!(number(&row["failed"]) < answered(row), "{row:#}");
    }
    let (mut complete, mut kept) = (0, 0);
    for file in fs::read_dir(tool.only_run().join("ab")).unwrap().flatten() {
        let path = file.path();
        if path.extension().is_some_and(|end| end == "txt") {
            let text = fs::read_to_string(&path).unwrap();
            let count = |name: &str| -> u64 {
                let mut lines = text.lines();
                let count = lines.find_map(|line| line.strip_prefix(name)).unwrap();
                count.trim().parse().unwrap()
            };
            complete += count("Complete requests:");
            kept += count("Keep-Alive requests:");
        }
    }
    // A connection that is idle for seconds ends.
    assert!(kept > 0 && 2 * kept >= complete, "{kept} of {complete}");
}

fn scale_through_http_reports_the_site() {
    if !has_programs() {
        return skip(NO_PROGRAMS);
    }
    let tool = TestEnvironment::new();
    let args = scale(&[
        "--replicas",
        "1",
        "--threads",
        "1",
        "--duration",
        "1s",
        "--json",
    ]);
    let document = tool.run(&args).with_code(0).json();
    assert_eq!(rows(&document).len(), 3, "{document:#}");
    for row in counted(&document) {
        for kind in ["insert", "select"] {
            let runs = kinds(row).contains(&kind);
            assert_eq!(row[format!("{kind}s_per_s")].is_number(), runs, "{row:#}");
        }
        assert!(number(&row["failed"]) < answered(row), "{row:#}");
        for role in ["primary", "front", "balancer"] {
            assert!(of_role(row, role, "cpu_us_per_op") > 0.0, "{role}: {row:#}");
        }
        assert!(!selects(row, "primary"), "{row:#}");
        let reads = row["selects_per_s"]
            .as_f64()
            .is_some_and(|per_s| per_s > 0.0);
        assert_eq!(selects(row, "replica1"), reads, "{row:#}");
        assert!(number(&row["client_cpu_percent"]) > 0.0, "{row:#}");
        // `ab` gives percentiles only.
        assert_eq!(row["select_latency"]["count"], 0, "{row:#}");
    }
    let run = tool.only_run();
    let kept: Vec<_> = fs::read_dir(run.join("ab")).unwrap().flatten().collect();
    // Two files for each kind of requests in each block; one that was disturbed is measured again.
    let wanted = rows(&document).iter().map(|row| {
        let blocks = ["blocks", "invalid_blocks"].map(|key| row[key].as_u64().unwrap());
        2 * kinds(row).len() as u64 * (blocks[0] + blocks[1])
    });
    assert_eq!(kept.len() as u64, wanted.sum::<u64>(), "{kept:?}");
    for file in kept {
        let text = fs::read_to_string(file.path()).unwrap();
        let wanted = match file.path().extension().unwrap().to_str().unwrap() {
            "csv" => "Percentage served,Time in ms",
            _ => "Complete requests:",
        };
        assert!(text.contains(wanted), "{}: {text}", file.path().display());
    }
    let configuration = fs::read_to_string(run.join("haproxy.cfg")).unwrap();
    assert!(configuration.contains("server front2 "), "{configuration}");
    let run = run.to_str().unwrap();
    let text = tool.run(&["report", run]).with_code(0).words();
    for wanted in [
        "Processor time per request",
        "sent by ab",
        "HAProxy passes them to 2 fronts in turn",
    ] {
        assert!(text.contains(wanted), "`{wanted}` is missing in {text}");
    }
    assert_eq!(tool.servers(), Vec::<i32>::new());
}

fn visitors_keep_their_rate_and_fronts_cost_what_was_asked() {
    let tool = TestEnvironment::new();
    let args = scale(&[
        "--replicas",
        "0..1",
        "--threads",
        "4",
        "--duration",
        "1s",
        "--fronts",
        "1",
        "--driver",
        "replimeter",
        "--rate",
        "100",
        "--keep-alive",
        "on",
        "--front-cost",
        "1ms",
        "--json",
    ]);
    let document = tool.run(&args).with_code(0).json();
    assert_eq!(rows(&document).len(), 6, "{document:#}");
    let mut costs = Vec::new();
    for row in counted(&document) {
        for kind in kinds(row) {
            // At most the arrivals of a Poisson process, 100 with four standard deviations; a closed loop has several times more.
            let rate = number(&row[format!("{kind}s_per_s")]);
            assert!(rate < 140.0, "{kind}: {row:#}");
        }
        let reads = row["selects_per_s"]
            .as_f64()
            .is_some_and(|per_s| per_s > 0.0);
        let latency = match row["phase"].as_str() {
            Some("select") => &row["select_latency"],
            _ => &row["write_latency"],
        };
        if latency["count"] != 0 {
            assert!(number(&latency["min_us"]) > 1000.0, "{row:#}");
        }
        costs.push(of_role(row, "front", "cpu_us_per_op"));
        assert_eq!(
            of_role(row, "balancer", "cpu_us_per_op"),
            0.0,
            "there is none"
        );
        // Selects are answered by the replica, if there is one.
        let none = row["replicas"] == 0;
        assert_eq!(selects(row, "primary"), reads && none, "{row:#}");
        assert_eq!(selects(row, "replica1"), reads && !none, "{row:#}");
    }
    // A request costs what was asked for, and some 100 us; of a block that stalls at its end the last ones are not seen.
    let least = |cost: &f64| *cost > 900.0;
    let most = |cost: &f64| *cost < 5000.0;
    assert!(
        costs.iter().any(least) && costs.iter().all(most),
        "{costs:?}"
    );
    let run = tool.only_run();
    let report = tool.run(&["report", run.to_str().unwrap()]).with_code(0);
    let text = report.words();
    assert!(text.contains("Percent of no replica"), "{text}");
}

/// Starts a run of `ab` behind two fronts that does not end by itself, and waits until it has counted a block.
fn long_run(tool: &TestEnvironment) -> std::process::Child {
    let args = scale(&[
        "--replicas",
        "1",
        "--threads",
        "1",
        "--duration",
        "1s",
        "--blocks",
        "1000",
        "--json",
    ]);
    let mut child = tool.command(&args).spawn().unwrap();
    wait_until("the first blocks are there", LIMIT, || {
        assert!(child.try_wait().unwrap().is_none(), "it ended");
        let runs = tool.folder().join("replimeter-runs");
        let runs = fs::read_dir(runs).into_iter().flatten().flatten();
        let mut blocks = runs.flat_map(|run| fs::read_dir(run.path().join("ab")));
        // The counted part of the first block is kept in the same files as its warm-up.
        blocks.any(|block| block.count() >= 4)
    });
    wait_until("ab runs", LIMIT, || {
        !children_named(&child, "ab").is_empty()
    });
    child
}

/// Returns the bytes in the primary's binary log.
fn logged(tool: &TestEnvironment) -> u64 {
    let folders = fs::read_dir(tool.home().join("sandboxes"));
    let folders = folders.into_iter().flatten().flatten();
    let data = folders
        .flat_map(|folder| fs::read_dir(folder.path().join("primary/data")))
        .flatten()
        .flatten();
    let logs = data.filter(|file| file.file_name().to_string_lossy().starts_with("binlog.0"));
    let sizes = logs.filter_map(|log| Some(log.metadata().ok()?.len()));
    sizes.sum()
}

fn killed_site_ends_scale_and_leaves_nothing() {
    if !has_programs() {
        return skip(NO_PROGRAMS);
    }
    let tool = TestEnvironment::new();
    let child = long_run(&tool);
    let [balancer] = children_named(&child, "haproxy")[..] else {
        panic!("one HAProxy runs");
    };
    kill_process(balancer, Signal::KILL).unwrap();
    let ended = wait(child, LIMIT)
        .with_code(3)
        .stderr_contains("HAProxy ended (signal: 9 (SIGKILL)");
    assert_eq!(ended.json()["status"], "failed");
    assert_eq!(tool.servers(), Vec::<i32>::new());
    // The visitor of `stale` names the site, not only the request that failed.
    let args = ["stale", "--through", "http", "--sandbox", "mariadb/async:1"];
    let more = ["--duration", "600s", "--starts", "1", "--timeout", "60s"];
    let child = tool
        .command(&[&args[..], &more[..]].concat())
        .spawn()
        .unwrap();
    // The table of posts is filled before.
    wait_until("HAProxy runs", LIMIT, || {
        !children_named(&child, "haproxy").is_empty()
    });
    let before = logged(&tool);
    wait_until("the visitor posts", LIMIT, || {
        logged(&tool) > before + 10_000
    });
    for balancer in children_named(&child, "haproxy") {
        let _ = kill_process(balancer, Signal::KILL);
    }
    let _ = wait(child, LIMIT)
        .with_code(3)
        .stderr_contains("HAProxy ended (signal: 9 (SIGKILL)");
}

fn interrupted_ab_keeps_results_and_leaves_nothing() {
    end_while_ab_runs(Signal::INT);
}

fn killed_scale_through_http_leaves_nothing() {
    end_while_ab_runs(Signal::KILL);
}

/// Ends a run while `ab` sends requests, and checks that all its programs end and its files are removed.
fn end_while_ab_runs(signal: Signal) {
    if !has_programs() {
        return skip(NO_PROGRAMS);
    }
    let tool = TestEnvironment::new();
    let child = long_run(&tool);
    let programs = ["ab", "haproxy"].map(|name| children_named(&child, name));
    // Between two blocks there is no `ab`.
    assert!(!programs[1].is_empty(), "{programs:?}");
    let process = Pid::from_raw(child.id().cast_signed()).unwrap();
    kill_process(process, signal).unwrap();
    if signal == Signal::INT {
        let ended = wait(child, LIMIT).with_code(130);
        assert_eq!(ended.json()["status"], "interrupted");
    } else {
        let _ = child.wait_with_output();
    }
    wait_until("the programs end with the tool", LIMIT, || {
        programs.iter().flatten().all(|program| has_ended(*program))
    });
    wait_until("the servers end", LIMIT, || tool.servers().is_empty());
    assert_eq!(tool.runs().len(), 1);
    // Those of the programs, too; a killed run's are removed by the next one.
    let left: Vec<PathBuf> = if signal == Signal::INT {
        let sandboxes = fs::read_dir(tool.home().join("sandboxes")).unwrap();
        let paths = sandboxes.map(|entry| entry.unwrap().path());
        paths.filter(|path| path.is_dir()).collect()
    } else {
        folders_left(&tool)
    };
    assert_eq!(left, Vec::<PathBuf>::new(), "{signal:?}");
}

fn invalid_settings_of_a_site_are_refused() {
    let tool = TestEnvironment::new();
    for (args, wanted) in [
        (
            vec!["scale", "--fronts", "2"],
            "fronts requires through = http",
        ),
        (
            vec!["scale", "--driver", "ab"],
            "driver requires through = http",
        ),
        (scale(&["--updates"]), "the site has no updates"),
        (
            scale(&["--duration", "1500ms"]),
            "ab runs for whole seconds",
        ),
        (
            scale(&["--rate", "10"]),
            "rate requires driver = replimeter",
        ),
        (scale(&["--fronts", "17"]), "fronts must be from 1 to 16"),
        (
            scale(&["--front-cost", "2s"]),
            "front-cost must be at most 1s",
        ),
        (
            vec!["stale", "--remedy", "sticky"],
            "remedy requires through = http",
        ),
        (
            vec!["stale", "--through", "http", "--reader", "replica1"],
            "reader is of reads by statements",
        ),
        (
            vec![
                "stale",
                "--through",
                "http",
                "--remedy",
                "none",
                "--primary-for",
                "1s",
            ],
            "primary-for requires remedy = primary-for",
        ),
        (
            vec!["stale", "--through", "http", "--load", "select:1@primary"],
            "has the table of the site's posts",
        ),
        (
            vec![
                "stale",
                "--through",
                "http",
                "--primary",
                "mysql://u@127.0.0.1:1/",
                "--replica",
                "mysql://u@127.0.0.1:2/",
            ],
            "needs a sandbox",
        ),
        (
            vec!["stale", "--through", "http", "--remedy", "sticky,sticky"],
            "given twice",
        ),
    ] {
        let _ = tool.run(&args).with_code(2).stderr_contains(wanted);
    }
    assert!(!tool.folder().join("replimeter-runs").exists());
}

fn programs_that_are_too_old_are_explained() {
    if !has_programs() {
        return skip(NO_PROGRAMS);
    }
    for (name, says, wanted) in [
        (
            "haproxy",
            "[ALERT] : parsing [haproxy.cfg:12] : unknown keyword 'option httpchk'",
            ["HAProxy refuses its configuration", "2.0 or newer"],
        ),
        (
            "ab",
            "ab: invalid option -- 'l'",
            [
                "ab is too old",
                "2.4.7 or newer, or use --driver replimeter",
            ],
        ),
    ] {
        let programs = folder();
        let old = programs.path().join(name);
        fs::write(&old, format!("#!/bin/sh\necho \"{says}\" >&2\nexit 22\n")).unwrap();
        fs::set_permissions(&old, fs::Permissions::from_mode(0o755)).unwrap();
        let paths = [
            programs.path().display().to_string(),
            env::var("PATH").unwrap(),
        ]
        .join(":");
        let tool = TestEnvironment::new();
        let args = scale(&["--replicas", "0", "--duration", "1s"]);
        let child = tool.command(&args).env("PATH", paths).spawn().unwrap();
        let ended = wait(child, LIMIT);
        assert_ne!(ended.code, Some(0));
        let ended = ended.stderr_contains(says);
        let _ = wanted
            .into_iter()
            .fold(ended, CommandOutput::stderr_contains);
        assert_eq!(tool.servers(), Vec::<i32>::new());
    }
}
