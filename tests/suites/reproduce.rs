//! `reproduce`: published experiments on real servers, compared with the published results.

use std::{fs, time::Duration};

use replimeter_suites::{
    TestEnvironment, assert_run_described, harness::Test, servers_of, test, wait, wait_until,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

pub(crate) const TESTS: &[Test] = &[
    test!(experiments_are_compared_with_published_results),
    test!(experiments_before_an_interrupt_are_kept),
    test!(reproduce_errors_are_reported_before_start),
];

fn experiments_are_compared_with_published_results() {
    let tool = TestEnvironment::new();
    let document = tool
        .run(&[
            "reproduce",
            "--experiments",
            "1",
            "--run-dir",
            "out",
            "--json",
        ])
        .with_code(0)
        .json();
    assert_eq!(document["status"], "complete");
    let experiments = document["experiments"].as_array().unwrap();
    assert_eq!(experiments.len(), 1);
    assert_eq!(
        experiments[0]["run_dirs"],
        serde_json::json!(["1-size-sweep", "1-size-sweep-later"]),
        "as it is, and with a link"
    );
    let mut verdicts = 0;
    for experiment in experiments {
        assert!(experiment["error"].is_null(), "{experiment:#}");
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
        for claim in experiment["claims"].as_array().unwrap() {
            verdicts += 1;
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
    }
    assert_eq!(verdicts, 2, "{document:#}");
    let out = tool.folder().join("out");
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    let ticket = fs::read_to_string(out.join("report.md")).unwrap();
    for experiment in experiments {
        let title = experiment["title"].as_str().unwrap();
        assert!(page.contains(title) && ticket.contains(title), "{title}");
        // Each is an ordinary run.
        let dirs = experiment["run_dirs"].as_array().unwrap();
        for dir in dirs {
            assert_run_described(&out.join(dir.as_str().unwrap()));
        }
        let dir = out.join(dirs[0].as_str().unwrap());
        let again = tool
            .run(&["report", dir.to_str().unwrap(), "--json"])
            .with_code(0)
            .json();
        assert_eq!(again["headline"], experiment["headline"]);
    }
    assert!(page.len() < 6_000_000, "{}", page.len());
    // The reproduction can be rendered again, with the same output.
    fs::remove_file(out.join("report.html")).unwrap();
    let again = tool.run(&["report", "out", "--json"]).with_code(0).json();
    assert_eq!(again, document);
    assert!(
        fs::read_to_string(out.join("report.html")).unwrap() == page,
        "the page is another one"
    );
    let _ = tool
        .run(&["report", "out", "--csv"])
        .with_code(2)
        .stderr_contains("each is a run");
}

fn experiments_before_an_interrupt_are_kept() {
    let tool = TestEnvironment::new();
    let child = tool
        // In the order of their numbers, regardless of the order on the command line.
        .command(&["reproduce", "--experiments", "3,1", "--run-dir", "out"])
        .spawn()
        .unwrap();
    let second = tool.folder().join("out/3-lag-histogram");
    wait_until(
        "the second experiment has begun",
        Duration::from_secs(240),
        || second.exists() && !servers_of(&child).is_empty(),
    );
    kill_process(Pid::from_raw(child.id() as i32).unwrap(), Signal::INT).unwrap();
    let servers = servers_of(&child);
    let ended = wait(child, Duration::from_secs(60));
    assert_eq!(ended.code, Some(130), "{ended:#?}");
    for server in servers {
        assert!(
            !std::path::Path::new(&format!("/proc/{server}/cmdline")).exists(),
            "server {server} was left behind"
        );
    }
    let text = fs::read_to_string(tool.folder().join("out/summary.json")).unwrap();
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["status"], "interrupted");
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
    assert!(
        fs::read_to_string(tool.folder().join("out/report.html"))
            .unwrap()
            .contains("Size sweep by polling")
    );
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
