//! `scale` and `stale` through a web site: HAProxy, fronts, `ab` and visitors of our own.

use std::{
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use replimeter_suites::{
    CommandOutput, LIMIT, TestEnvironment, children_named, folder, folders_left,
    harness::{Test, skip},
    has_ended, has_program, test, wait, wait_until,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

pub(crate) const TESTS: &[Test] = &[
    test!(scale_through_http_reports_the_site),
    test!(ab_keeps_its_connections),
    test!(visitors_keep_their_rate_and_fronts_cost_what_was_asked),
    test!(killed_site_ends_scale_and_leaves_nothing),
    test!(interrupted_ab_keeps_results_and_leaves_nothing),
    test!(posts_are_missing_without_a_remedy),
    test!(posts_are_missing_without_a_remedy_on_mysql_and_galera).long(),
    test!(invalid_settings_of_a_site_are_refused),
    test!(programs_that_are_too_old_are_explained),
];

const NO_PROGRAMS: &str = "no HAProxy or ab: run scripts/get-servers web";

fn has_programs() -> bool {
    has_program("haproxy") && has_program("ab")
}

const SCALE: [&str; 11] = [
    "scale",
    "--through",
    "http",
    "--data-size",
    "2MB",
    "--threads",
    "4",
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
        "--duration",
        "1s",
        "--keep-alive",
        "on",
        "--json",
    ]);
    let document = tool.run(&args).with_code(0).json();
    assert!(
        rows(&document).iter().all(|row| row["failed"] == 0),
        "{document:#}"
    );
    for file in fs::read_dir(tool.only_run().join("ab")).unwrap().flatten() {
        let path = file.path();
        if path.extension().is_some_and(|end| end == "txt") {
            let text = fs::read_to_string(&path).unwrap();
            let kept = text
                .lines()
                .find_map(|line| line.strip_prefix("Keep-Alive requests:"));
            let kept: u64 = kept.unwrap().trim().parse().unwrap();
            assert!(kept > 10, "{text}");
        }
    }
}

fn scale_through_http_reports_the_site() {
    if !has_programs() {
        return skip(NO_PROGRAMS);
    }
    let tool = TestEnvironment::new();
    let args = scale(&["--replicas", "0..1", "--duration", "1s", "--json"]);
    let document = tool.run(&args).with_code(0).json();
    assert_eq!(rows(&document).len(), 6, "{document:#}");
    for row in rows(&document) {
        let (phase, replicas) = (row["phase"].as_str().unwrap(), row["replicas"].as_u64());
        for (kind, in_phase) in [("inserts_per_s", "insert"), ("selects_per_s", "select")] {
            let runs = phase == "mixed" || phase == in_phase;
            assert_eq!(row[kind].is_number(), runs, "{row:#}");
        }
        assert_eq!(row["failed"], 0, "{row:#}");
        for role in ["primary", "front", "balancer"] {
            assert!(of_role(row, role, "cpu_us_per_op") > 0.0, "{role}: {row:#}");
        }
        // Selects are answered by the replica, if there is one.
        let servers = row["servers"].as_array().unwrap();
        let answered = |name: &str| {
            let mut servers = servers.iter();
            let server = servers.find(|server| server["name"] == name);
            server.is_some_and(|server| server["selects_per_s"].is_number())
        };
        let selects = phase != "insert";
        assert_eq!(
            answered("primary"),
            selects && replicas == Some(0),
            "{row:#}"
        );
        assert_eq!(
            answered("replica1"),
            selects && replicas == Some(1),
            "{row:#}"
        );
        assert!(number(&row["client_cpu_percent"]) > 0.0, "{row:#}");
        // `ab` gives percentiles only.
        assert_eq!(row["select_latency"]["count"], 0, "{row:#}");
    }
    let run = tool.only_run();
    let kept: Vec<_> = fs::read_dir(run.join("ab")).unwrap().flatten().collect();
    // Four kinds of requests in the phases of each of two starts, each with two files.
    assert_eq!(kept.len(), 16, "{kept:?}");
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
        "Percent of no replica",
    ] {
        assert!(text.contains(wanted), "`{wanted}` is missing in {text}");
    }
    assert_eq!(tool.servers(), Vec::<i32>::new());
}

fn visitors_keep_their_rate_and_fronts_cost_what_was_asked() {
    let tool = TestEnvironment::new();
    let args = scale(&[
        "--replicas",
        "1",
        "--duration",
        "2s",
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
    for row in rows(&document) {
        let mut requests = 0.0;
        for kind in ["inserts_per_s", "selects_per_s"] {
            if let Some(rate) = row[kind].as_f64() {
                // 200 arrivals of a Poisson process: four standard deviations are 28 %.
                assert!((72.0..128.0).contains(&rate), "{kind}: {row:#}");
                requests += rate;
            }
        }
        assert!(requests > 0.0, "{row:#}");
        let latency = if row["phase"] == "select" {
            &row["select_latency"]
        } else {
            &row["write_latency"]
        };
        assert!(number(&latency["p50_us"]) > 1000.0, "{row:#}");
        // At least what was asked for, and not as much again.
        let cost = of_role(row, "front", "cpu_us_per_op");
        assert!((1000.0..2000.0).contains(&cost), "{cost}: {row:#}");
        assert_eq!(
            of_role(row, "balancer", "cpu_us_per_op"),
            0.0,
            "there is none"
        );
    }
}

/// Starts a long run of `ab` behind two fronts, and waits until it sends requests.
fn long_run(tool: &TestEnvironment) -> std::process::Child {
    let args = scale(&[
        "--replicas",
        "1",
        "--duration",
        "4s",
        "--blocks",
        "3",
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
    let more = ["--duration", "60s", "--starts", "1"];
    let child = tool
        .command(&[&args[..], &more[..]].concat())
        .spawn()
        .unwrap();
    let mut balancers = Vec::new();
    wait_until("HAProxy runs", LIMIT, || {
        balancers = children_named(&child, "haproxy");
        // Master and worker, or one process.
        !balancers.is_empty()
    });
    std::thread::sleep(std::time::Duration::from_secs(1));
    for balancer in children_named(&child, "haproxy") {
        let _ = kill_process(balancer, Signal::KILL);
    }
    let _ = wait(child, LIMIT)
        .with_code(3)
        .stderr_contains("HAProxy ended (signal: 9 (SIGKILL)");
}

fn interrupted_ab_keeps_results_and_leaves_nothing() {
    if !has_programs() {
        return skip(NO_PROGRAMS);
    }
    for signal in [Signal::INT, Signal::KILL] {
        let tool = TestEnvironment::new();
        let child = long_run(&tool);
        let programs = ["ab", "haproxy"].map(|name| children_named(&child, name));
        assert!(programs.iter().all(|of| !of.is_empty()), "{programs:?}");
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
        let runs = tool.folder().join("replimeter-runs");
        assert!(fs::read_dir(runs).unwrap().count() == 1);
        // Those of the programs, too.
        assert_eq!(folders_left(&tool), Vec::<PathBuf>::new(), "{signal:?}");
    }
}

/// Runs `stale` through a site whose replicas are 10 ms behind; returns its document.
fn stale(tool: &TestEnvironment, shape: &str, more: &[&str]) -> Value {
    let mut args = vec![
        "stale",
        "--through",
        "http",
        "--sandbox",
        shape,
        "--link-delay",
        "10ms",
        "--rounds",
        "40",
        "--starts",
        "1",
        "--warm-up",
        "5",
        "--read-delays",
        "none",
        "--json",
    ];
    args.extend(more);
    tool.run(&args).with_code(0).json()
}

fn cost<'a>(document: &'a Value, remedy: &str) -> &'a Value {
    let mut costs = document["results"]["site"].as_array().unwrap().iter();
    costs
        .find(|cost| cost["read_consistency"] == remedy)
        .unwrap_or_else(|| panic!("{remedy}: {document:#}"))
}

/// Checks what each remedy gives and costs with replicas that are 10 ms behind.
fn checked(document: &Value) {
    for row in rows(document) {
        let remedy = row["read_consistency"].as_str().unwrap();
        assert_eq!(
            (&row["reader"], &row["rounds"]),
            (&"site".into(), &40.into()),
            "{row:#}"
        );
        let cost = cost(document, remedy);
        assert_eq!(cost["rounds"], 40, "{cost:#}");
        let pages = number(&cost["pages"]);
        if matches!(remedy, "none" | "sticky") {
            // A page comes back long before the post is on a replica.
            assert!(row["stale"].as_u64().unwrap() >= 38, "{row:#}");
            assert!(number(&row["staleness"]["p50_us"]) > 9_000.0, "{row:#}");
            assert!(pages > 80.0 && cost["primary_pages"] == 0, "{cost:#}");
        } else {
            assert_eq!(row["stale"], 0, "{row:#}");
            assert_eq!(row["violations"]["monotonic_reads"], 0, "{row:#}");
            assert!((pages - 40.0).abs() < 0.5, "{cost:#}");
        }
        match remedy {
            "sticky" => assert_eq!(row["violations"]["monotonic_reads"], 0, "{row:#}"),
            "wait-for-gtid" => {
                assert!(number(&row["read_latency"]["p50_us"]) > 9_000.0, "{row:#}");
                assert!(number(&cost["wait"]["p50_us"]) > 8_000.0, "{cost:#}");
            }
            "primary-for" | "primary-always" => {
                assert_eq!(cost["primary_percent"], 100.0, "{cost:#}");
                assert!(number(&row["read_latency"]["p50_us"]) < 9_000.0, "{row:#}");
            }
            _ => {}
        }
        for role in ["primary", "front", "balancer"] {
            assert!(
                of_role(cost, role, "cpu_us_per_op") > 0.0,
                "{role}: {cost:#}"
            );
        }
    }
}

fn posts_are_missing_without_a_remedy() {
    if !has_program("haproxy") {
        return skip(NO_PROGRAMS);
    }
    let tool = TestEnvironment::new();
    let document = stale(&tool, "mariadb/async:2", &[]);
    // Five remedies, each over connections that are kept and over new ones.
    assert_eq!(rows(&document).len(), 10, "{document:#}");
    for connections in ["keep-alive", "new-connections"] {
        let of = rows(&document)
            .iter()
            .filter(|row| row["session_reset"] == connections);
        assert_eq!(of.count(), 5, "{connections}");
    }
    checked(&document);
    let run = tool.only_run();
    for name in ["haproxy.cfg", "samples.parquet", "report.html"] {
        assert!(run.join(name).is_file(), "{name}");
    }
    let text = tool
        .run(&["report", run.to_str().unwrap()])
        .with_code(0)
        .words();
    for wanted in [
        "Cost of the remedies",
        "POST /insert (post ",
        "GET /",
        "HAProxy passes requests",
    ] {
        assert!(text.contains(wanted), "`{wanted}` is missing in {text}");
    }
    same_plan(&tool, &run);
    assert_eq!(tool.servers(), Vec::<i32>::new());
}

/// The plan of a run gives the same plan.
fn same_plan(tool: &TestEnvironment, run: &Path) {
    let path = run.join("plan.toml");
    let planned = tool.run(&["run", "--dry-run", path.to_str().unwrap()]);
    let planned = planned.with_code(0);
    assert_eq!(planned.planned(), fs::read_to_string(path).unwrap());
}

fn posts_are_missing_without_a_remedy_on_mysql_and_galera() {
    if !has_program("haproxy") {
        return skip(NO_PROGRAMS);
    }
    let tool = TestEnvironment::new();
    checked(&stale(&tool, "mysql/async:2", &["--keep-alive", "on"]));
    // A commit of Galera waits for the link, so that pages are less late than it.
    let tool = TestEnvironment::new();
    let document = stale(&tool, "galera:3", &["--keep-alive", "on"]);
    for row in rows(&document) {
        let remedy = row["read_consistency"].as_str().unwrap();
        if !matches!(remedy, "none" | "sticky") {
            assert_eq!(row["stale"], 0, "{row:#}");
        }
    }
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
