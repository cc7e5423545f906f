//! Comparisons of runs on real servers.

use std::{fs, path::PathBuf};

use replimeter_stats::binomial::Excess;
use replimeter_suites::{CommandOutput, TestEnvironment, password, start, url};
use serde_json::{Value, json};

use super::row;

/// Runs `lag` with these arguments and returns its directory.
fn lag(tool: &TestEnvironment, name: &str, args: &[&str], password: Option<&str>) -> PathBuf {
    let mut all = vec!["lag", "--run-dir", name, "--floor-rounds", "20", "--json"];
    all.extend(args);
    let mut command = tool.command(&all);
    command.envs(password.map(|password| ("REPLIMETER_PASSWORD", password)));
    let ended = CommandOutput::of(command.output().unwrap()).with_code(0);
    drop(ended);
    tool.folder().join(name)
}

/// Two runs of one start each, of which one contains the delay of its link, however the machine stalls.
pub(super) fn one_start_of_slower_links_decides_nothing() {
    let tool = TestEnvironment::new();
    let args = ["--sandbox", "mariadb/async:1", "--rounds", "100"];
    let more = ["--starts", "1", "--timeout", "60s", "--link-delay"];
    for (name, delay) in [("near", "0"), ("far", "50ms")] {
        lag(&tool, name, &[&args[..], &more, &[delay]].concat(), None);
    }
    let condition = ["--fail-if", "lag.p50 > +1ms", "--json"];
    let ended = tool.run(&[&["compare", "near", "far"][..], &condition].concat());
    let ended = ended.with_code(0).stderr_contains("inconclusive");
    let document = ended.json();
    let median = row(&document, "lag.p50");
    assert_eq!(median["verdict"], "cannot be told from one start each");
    assert_eq!(median["b"]["starts"], 1);
    assert!(
        median["b"]["value"].as_f64().unwrap() > 25_000.0,
        "{median:#}"
    );
    let differs = document["differs"].as_array().unwrap();
    let named = |name: &str| {
        let mut names = differs.iter().map(|one| one["name"].as_str().unwrap());
        names.any(|one| one.contains(name))
    };
    assert!(named("link-delay"), "{differs:#?}");
    assert!(!named("server_id") && !named("port"), "{differs:#?}");
}

/// Compares runs that alternate; starts on a busy machine would differ by more than the link.
pub(super) fn slower_link_is_detected_by_alternating_runs() {
    let tool = TestEnvironment::new();
    let args = ["--sandbox", "mariadb/async:1", "--rounds", "150"];
    let more = ["--starts", "2", "--link-delay"];
    for (number, side) in "ABBAABBAAB".chars().enumerate() {
        // A link has an overhead without a delay, too.
        let (name, delay) = match side {
            'A' => ("near", "0"),
            _ => ("far", "20ms"),
        };
        let all = [&args[..], &more, &[delay]].concat();
        lag(&tool, &format!("{name}{number}"), &all, None);
    }
    let ended = tool
        .run(&[
            "compare",
            "near0,near3,near4,near7,near8",
            "far1,far2,far5,far6,far9",
            "--run-dir",
            "text",
            "--fail-if",
            "lag.p50 > +1ms",
        ])
        .with_code(1);
    assert!(
        ended.words().contains("slower") && ended.stdout.contains("link-delay"),
        "{}",
        ended.stdout
    );
    let summary = fs::read_to_string(tool.folder().join("text/summary.json")).unwrap();
    let document: Value = serde_json::from_str(&summary).unwrap();
    let median = row(&document, "lag.p50");
    assert_eq!(median["change"], "higher");
    // The link adds its one-way delay. The medians of starts differ by up to 1.3 ms on a busy machine,
    // and an idle one wakes a thread that waits for a distant row late (0.6 to 0.9 ms).
    let added = |end: usize| median["difference"]["ci95"][end].as_f64().unwrap();
    assert!(added(0) < 40_000.0 && added(1) > 18_000.0, "{median:#}");
    // By its own interval: among ten figures, few runs on a busy machine may show one only.
    let sent = &row(&document, "lag.from_send.p50")["ratio"]["ci95"];
    assert!(sent[0].as_f64().unwrap() > 1.0, "{sent}");
    assert!(
        document["differs"]
            .as_array()
            .unwrap()
            .iter()
            .all(|one| one["name"] != "server_id" && one["name"] != "port")
    );
    assert_eq!(
        (&median["a"]["runs"], &median["a"]["starts"]),
        (&json!(5), &json!(10))
    );
    // The page has the headline of the document.
    assert!(
        fs::read_to_string(tool.folder().join("text/report.html"))
            .unwrap()
            .contains("1 of 1 condition failed")
    );
    // A run of `stale` cannot be compared with it.
    let stale = [
        "stale",
        "--sandbox",
        "mariadb/async:1",
        "--rounds",
        "100",
        "--starts",
        "1",
        "--read-delays",
        "none",
        "--run-dir",
        "other",
        "--json",
    ];
    let _ = tool.run(&stale).with_code(0);
    let _ = tool
        .run(&["compare", "near0", "other"])
        .with_code(2)
        .stderr_contains("one of `stale`");
}

/// Sets of equal runs: three alarms among them are too many.
const SETS: u64 = 8;

/// Compares runs that should be equal, which other tests would make differ.
pub(super) fn equal_runs_differ_at_the_nominal_rate() {
    let tool = TestEnvironment::new();
    let sandbox = start("mariadb/async:1", &[]);
    let (primary, replica) = (&sandbox.nodes()[0], &sandbox.nodes()[1]);
    let urls = [url(primary, "replimeter"), url(replica, "replimeter")];
    let args = [
        "--primary",
        &urls[0],
        "--replica",
        &urls[1],
        "--rounds",
        "500",
        "--interval",
        "4ms",
        "--keep-awake",
        "on",
    ];
    // The first run warms the servers up and is discarded.
    lag(&tool, "first", &args, Some(password(primary)));
    let order = "ABBAABBAAB";
    let mut alarms = 0;
    for set in 0..SETS {
        let mut sides = [Vec::new(), Vec::new()];
        for (number, side) in order.chars().enumerate() {
            let name = format!("{set}-{side}{number}");
            lag(&tool, &name, &args, Some(password(primary)));
            sides[usize::from(side == 'B')].push(name);
        }
        let [a, b] = sides.map(|names| names.join(","));
        let document = tool.run(&["compare", &a, &b, "--json"]).with_code(0).json();
        assert_eq!(document["basis"], "alternating-runs");
        let rows = document["results"].as_array().unwrap().iter();
        let differing: Vec<_> = rows
            .filter(|row| matches!(row["change"].as_str(), Some("higher" | "lower")))
            .map(|row| row["verdict"].as_str().unwrap().to_owned())
            .collect();
        println!("{a} {b}: {differing:?}");
        alarms += u64::from(!differing.is_empty());
    }
    println!("{alarms} of {SETS} sets of equal runs differ");
    assert!(!Excess::over(alarms, SETS, 0.05).significant(), "{alarms}");
    drop(sandbox);
}
