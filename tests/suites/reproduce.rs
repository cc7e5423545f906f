//! `reproduce`: published experiments on real servers, compared with the published results.

use std::{
    fs,
    path::Path,
    process::{Child, Command},
    time::Duration,
};

use replimeter_suites::{
    LIMIT, TestEnvironment, assert_run_described, harness::Test, has_ended, servers_of, test, wait,
    wait_until,
};
use rustix::{
    process::{Pid, Signal, kill_process},
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};
use serde_json::Value;

pub(crate) const TESTS: &[Test] = &[
    test!(experiments_are_compared_with_published_results)
        .starts(4)
        .long(),
    test!(experiments_before_an_interrupt_are_kept)
        .starts(4)
        .long(),
    test!(interrupted_experiment_is_compared_as_far_as_it_went).starts(2),
    test!(reproduce_errors_are_reported_before_start),
];

/// A whole experiment takes minutes on a busy machine.
const EXPERIMENT_LIMIT: Duration = Duration::from_secs(1800);

/// Checks the first experiment of a reproduction in the folder `out`, and that it can be rendered again; `run_dirs` are the
/// runs that it must have.
fn assert_first_experiment(tool: &TestEnvironment, document: &Value, run_dirs: &[&str]) {
    let experiment = &document["experiments"][0];
    assert_eq!(experiment["number"], 1);
    assert_eq!(experiment["run_dirs"], serde_json::json!(run_dirs));
    for table in ["published", "ours"] {
        let width = experiment[table]["headings"].as_array().unwrap().len();
        let lines = experiment[table]["lines"].as_array().unwrap();
        assert!(
            !lines.is_empty()
                && lines
                    .iter()
                    .all(|line| line.as_array().unwrap().len() == width),
            "{experiment:#}"
        );
    }
    let claims = experiment["claims"].as_array().unwrap();
    assert_eq!(claims.len(), 2, "{document:#}");
    for claim in claims {
        // A result that differs has a reason, one that agrees has none.
        assert_eq!(
            claim["verdict"] == "agrees",
            claim["why"] == "",
            "{claim:#}"
        );
        assert!(
            claim["ours"]
                .as_str()
                .unwrap()
                .contains(|letter: char| letter.is_ascii_digit()),
            "{claim:#}"
        );
    }
    let out = tool.folder().join("out");
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    let ticket = fs::read_to_string(out.join("report.md")).unwrap();
    let title = experiment["title"].as_str().unwrap();
    assert!(page.contains(title) && ticket.contains(title), "{title}");
    // Each is an ordinary run.
    for dir in run_dirs {
        assert_run_described(&out.join(dir));
    }
    let dir = out.join(run_dirs[0]);
    let again = tool
        .run(&["report", dir.to_str().unwrap(), "--json"])
        .with_code(0)
        .json();
    assert_eq!(again["headline"], experiment["headline"]);
    assert!(page.len() < 6_000_000, "{}", page.len());
    // The reproduction can be rendered again, with the same output.
    fs::remove_file(out.join("report.html")).unwrap();
    let again = tool.run(&["report", "out", "--json"]).with_code(0).json();
    assert_eq!(&again, document);
    assert!(
        fs::read_to_string(out.join("report.html")).unwrap() == page,
        "the page is another one"
    );
    let _ = tool
        .run(&["report", "out", "--csv"])
        .with_code(2)
        .stderr_contains("each is a run");
}

fn experiments_are_compared_with_published_results() {
    let tool = TestEnvironment::new();
    let args = ["reproduce", "--experiments", "1", "--run-dir", "out"];
    let child = tool.command(&[&args[..], &["--json"]].concat()).spawn();
    let ended = wait(child.unwrap(), EXPERIMENT_LIMIT).with_code(0);
    let document = ended.json();
    assert_eq!(document["status"], "complete");
    assert_eq!(document["experiments"].as_array().unwrap().len(), 1);
    assert!(document["experiments"][0]["error"].is_null());
    // As it is, and with a link.
    let run_dirs = ["1-size-sweep", "1-size-sweep-later"];
    assert_first_experiment(&tool, &document, &run_dirs);
}

/// Starts two experiments, which run in the order of their numbers, regardless of the order on the command line.
fn two_experiments(tool: &TestEnvironment) -> Child {
    let args = ["reproduce", "--experiments", "3,1", "--run-dir", "out"];
    let args = [&args[..], &["--json"]].concat();
    tool.command(&args).spawn().unwrap()
}

/// Interrupts a reproduction; returns its document. Its servers have ended.
fn interrupted(child: Child) -> Value {
    let servers = servers_of(&child);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let document = wait(child, LIMIT).with_code(130).json();
    for server in servers {
        let process = Pid::from_raw(server).unwrap();
        assert!(has_ended(process), "server {server} was left behind");
    }
    assert_eq!(document["status"], "interrupted");
    document
}

fn interrupted_experiment_is_compared_as_far_as_it_went() {
    let tool = TestEnvironment::new();
    let child = two_experiments(&tool);
    // On one core: its threads that keep idle cores awake take all of their time.
    let mut allowed = sched_getaffinity(None).unwrap();
    let first = (0..CpuSet::MAX_CPU).find(|core| allowed.is_set(*core));
    allowed.clear();
    allowed.set(first.unwrap());
    sched_setaffinity(Some(Pid::from_child(&child)), &allowed).unwrap();
    let journal = tool.folder().join("out/1-size-sweep/run.journal");
    wait_until("two sweeps are in the journal", LIMIT, || {
        // Its last part may be incomplete.
        let text = Command::new("gzip").arg("-dcq").arg(&journal).output();
        let text = String::from_utf8_lossy(&text.unwrap().stdout).into_owned();
        text.contains(r#""phase":"measure","sweep":2,"#)
    });
    let document = interrupted(child);
    assert_eq!(document["experiments"].as_array().unwrap().len(), 1);
    let error = document["experiments"][0]["error"].as_str();
    assert!(
        error.is_some_and(|error| error.contains("interrupted")),
        "{document:#}"
    );
    assert_first_experiment(&tool, &document, &["1-size-sweep"]);
}

fn experiments_before_an_interrupt_are_kept() {
    let tool = TestEnvironment::new();
    let child = two_experiments(&tool);
    let out = tool.folder().join("out");
    let is_under_way = |second: &Path| second.exists() && !servers_of(&child).is_empty();
    wait_until("the second experiment has begun", EXPERIMENT_LIMIT, || {
        is_under_way(&out.join("3-lag-histogram"))
    });
    let document = interrupted(child);
    assert!(
        document["experiments"][0]["error"].is_null(),
        "the first was whole"
    );
    assert!(
        !document["experiments"][0]["claims"]
            .as_array()
            .unwrap()
            .is_empty()
    );
    let written = fs::read_to_string(out.join("summary.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), document);
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("Size sweep by polling"));
}

fn reproduce_errors_are_reported_before_start() {
    let tool = TestEnvironment::new();
    let _ = tool
        .run(&["reproduce", "--experiments", "6"])
        .with_code(2)
        .stderr_contains("6 is not in 1..=5");
    let _ = tool
        .run(&["reproduce", "--size", "huge"])
        .with_code(2)
        .stderr_contains("small, full");
    fs::create_dir(tool.folder().join("full")).unwrap();
    fs::write(tool.folder().join("full/mine.txt"), "mine").unwrap();
    let _ = tool
        .run(&["reproduce", "--experiments", "1", "--run-dir", "full"])
        .with_code(2)
        .stderr_contains("full");
    assert_eq!(
        fs::read_to_string(tool.folder().join("full/mine.txt")).unwrap(),
        "mine"
    );
    assert_eq!(fs::read_dir(tool.folder().join("full")).unwrap().count(), 1);
}
