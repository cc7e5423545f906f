//! `compare`: differences of two runs, rejected comparisons, and conditions for continuous integration.

mod servers;

use std::{
    fs,
    path::{Path, PathBuf},
};

use replimeter_model::record::RunStatus;
use replimeter_suites::{
    CommandOutput, TestEnvironment,
    harness::Test,
    synthetic::{SyntheticSamples, lag_run},
    test,
};
use serde_json::{Value, json};

pub(crate) const TESTS: &[Test] = &[
    test!(shift_is_reported_in_every_format),
    test!(conditions_decide_the_exit_code),
    test!(run_sets_are_given_in_three_ways),
    test!(runs_decide_and_not_what_is_in_them),
    test!(incomparable_runs_are_refused_with_the_reason),
    test!(figures_of_only_one_side_are_named),
    test!(servers::one_start_of_slower_links_decides_nothing).starts(4),
    test!(servers::slower_link_is_detected_by_alternating_runs)
        .starts(4)
        .alone()
        .long(),
    test!(servers::equal_runs_differ_at_the_nominal_rate)
        .starts(2)
        .alone()
        .long(),
];

/// Returns the output with placeholders for values that change from run to run.
fn shown(ended: &CommandOutput, tool: &TestEnvironment) -> String {
    let text = format!(
        "exit code: {:?}\n--- stdout\n{}--- stderr\n{}",
        ended.code.unwrap(),
        ended.stdout,
        ended.stderr
    );
    text.replace(tool.folder().to_str().unwrap(), "FOLDER")
}

/// Creates a run directory of `lag` with this number of synthetic samples around `level` microseconds.
fn made_up(tool: &TestEnvironment, name: &str, seed: u64, count: i64, level: f64) -> PathBuf {
    let dir = tool.folder().join(name);
    lag_run(
        &dir,
        SyntheticSamples {
            seed,
            count,
            level_us: level,
            ..SyntheticSamples::default()
        },
    );
    dir
}

/// Edits the record of a run.
fn changed(dir: &Path, file: &str, change: impl Fn(&mut Value)) {
    let path = dir.join(file);
    let mut value: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    change(&mut value);
    fs::write(&path, value.to_string()).unwrap();
}

fn row<'a>(document: &'a Value, figure: &str) -> &'a Value {
    let rows = document["results"].as_array().unwrap();
    rows.iter()
        .find(|row| row["figure"] == figure)
        .unwrap_or_else(|| panic!("no {figure} in {document:#}"))
}

/// Creates the folders `before` and `after` with five runs each that alternate, around 200 and 240 microseconds.
fn made_up_sets(tool: &TestEnvironment) {
    for folder in ["before", "after"] {
        fs::create_dir(tool.folder().join(folder)).unwrap();
    }
    for (minute, side) in (0..).zip("ABBAABBAAB".chars()) {
        let (folder, level_us) = match side {
            'A' => ("before", 200.0),
            _ => ("after", 240.0),
        };
        let of = SyntheticSamples {
            seed: u64::from(minute) + 1,
            level_us,
            minute,
            ..SyntheticSamples::default()
        };
        lag_run(&tool.folder().join(format!("{folder}/{minute}")), of);
    }
}

fn shift_is_reported_in_every_format() {
    let tool = TestEnvironment::new();
    made_up_sets(&tool);
    let ended = tool
        .run(&["compare", "before", "after", "--run-dir", "text"])
        .with_code(0);
    let place = |wanted: &str| {
        ended
            .stdout
            .find(wanted)
            .unwrap_or_else(|| panic!("`{wanted}` is missing in {}", ended.stdout))
    };
    // No setting differs; the finding precedes the figures, and these precede the method.
    assert!(ended.words().contains("No setting differs."));
    assert!(place("p50 is ") < place("Figures, with 95 % intervals"));
    assert!(place("p50 is ") < place("Method") && place("slower") < place("Comparison kept in"));
    let document = tool
        .run(&["compare", "before", "after", "--run-dir", "json", "--json"])
        .with_code(0)
        .json();
    assert_eq!(document["schema"], "replimeter.compare/1");
    let median = row(&document, "lag.p50");
    assert_eq!(median["change"], "higher");
    let ratio = |end: usize| median["ratio"]["ci95"][end].as_f64().unwrap();
    assert!(
        ratio(0) < 1.2 && 1.2 < ratio(1) && ratio(0) > 1.1,
        "{median:#}"
    );
    assert_eq!(
        row(&document, "lag.write_latency.p50")["change"],
        "not-shown"
    );
    let markdown = tool
        .run(&[
            "compare",
            "before",
            "after",
            "--run-dir",
            "markdown",
            "--markdown",
        ])
        .with_code(0);
    assert!(
        markdown.stdout.starts_with("# Replimeter compare\n")
            && markdown.stdout.contains("| lag.p50 |")
    );
    for name in ["text", "json", "markdown"] {
        let dir = tool.folder().join(name);
        let page = fs::read_to_string(dir.join("report.html")).unwrap();
        assert!(page.contains("Comparison of A and B") && page.len() < 6_000_000);
        assert!(dir.join("report.md").exists() && dir.join("summary.json").exists());
    }
}

fn conditions_decide_the_exit_code() {
    let tool = TestEnvironment::new();
    made_up_sets(&tool);
    let compare = |more: &[&str]| {
        let mut args = vec!["compare", "before", "after"];
        args.extend(more);
        tool.run(&args)
    };
    let ended = compare(&[
        "--fail-if",
        "lag.p50 > +10%",
        "--fail-if",
        "lag.write_latency.p50 > +10%",
        "--run-dir",
        "failed",
    ]);
    let ended = ended
        .with_code(1)
        .stderr_contains("error: failed conditions: lag.p50 > +10% (lag.p50: +");
    // A sentence in a table is wrapped.
    let words: Vec<&str> = ended.stdout.split_whitespace().collect();
    let words = words.join(" ");
    for outcome in [
        "failed, the whole interval is beyond the limit",
        "passed, the whole interval is within the limit",
    ] {
        assert!(words.contains(outcome), "{}", ended.stdout);
    }
    // An increase of 20 % proves neither more nor less than 19 %.
    let ended = compare(&["--fail-if", "lag.p50 > +19%", "--json"])
        .with_code(0)
        .stderr_contains("warning: 1 of 1 conditions are inconclusive");
    let warnings = ended.json()["warnings"].to_string();
    assert!(warnings.contains("inconclusive"), "{warnings}");
    let _ = compare(&["--fail-if", "lag.p50 > +19%", "--fail-when", "possible"])
        .with_code(1)
        .stderr_contains("failed, the interval contains the limit");
    let _ = compare(&["--fail-if", "lag.p50 > +40%", "--fail-when", "possible"]).with_code(0);
    let _ = compare(&["--fail-if", "lag.p50 > +10us"]).with_code(1);
    let _ = compare(&["--fail-if", "lag.p50 of replica1 > 10ms"]).with_code(0);
    let _ = compare(&["--fail-if", "lag.p50 < +10%", "--fail-when", "estimated"]).with_code(0);
    let document = compare(&["--fail-if", "lag.p50 > +10%", "--json"])
        .with_code(1)
        .json();
    assert_eq!(document["conditions"][0]["outcome"], "failed");
}

fn runs_decide_and_not_what_is_in_them() {
    let tool = TestEnvironment::new();
    let run = |name: &str, minute: u8, starts: u32, level_us: f64| {
        let of = SyntheticSamples {
            seed: u64::from(minute),
            count: 3000,
            warm_up: 0,
            level_us,
            starts,
            between_starts: 0.05,
            minute,
            ..SyntheticSamples::default()
        };
        lag_run(&tool.folder().join(name), of);
    };
    run("one", 1, 1, 200.0);
    run("other", 2, 1, 260.0);
    run("ten", 3, 10, 200.0);
    run("same", 4, 10, 200.0);
    run("slower", 5, 10, 260.0);
    run("running", 6, 0, 200.0);
    run("running-slower", 7, 0, 260.0);
    fs::create_dir(tool.folder().join("equal")).unwrap();
    for minute in 10..15 {
        run(&format!("equal/{minute}"), minute, 10, 200.0);
    }
    let compared = |args: &[&str], code: i32| {
        let all = ["compare", "--fail-if", "lag.p50 > +5%", "--json"];
        tool.run(&[&all[..], args].concat()).with_code(code)
    };
    let changes = |document: &Value| -> Vec<Value> {
        let rows = document["results"].as_array().unwrap().iter();
        rows.map(|row| row["change"].clone()).collect()
    };
    // 3,000 samples of a start are still one start, and those of servers that ran already one time of them.
    for (a, b, verdict) in [
        ("one", "other", "cannot be told from one start each"),
        ("one", "slower", "cannot be told from one start of A"),
        (
            "running",
            "running-slower",
            "inconclusive: fewer than five alternating runs of servers that ran already",
        ),
    ] {
        let ended = compared(&[a, b], 0).stderr_contains("inconclusive");
        let document = ended.json();
        assert!(changes(&document).iter().all(|one| one == "unknown"), "{a}");
        assert_eq!(row(&document, "lag.p50")["verdict"], verdict);
        assert_eq!(document["conditions"][0]["outcome"], "inconclusive");
    }
    // Two runs differ, and nothing says whether by their settings.
    let document = compared(&["ten", "slower"], 0)
        .stderr_contains("inconclusive")
        .json();
    assert_eq!(document["basis"], "within-runs");
    let median = row(&document, "lag.p50");
    assert_eq!(
        (&median["change"], &median["a"]["starts"]),
        (&json!("differs"), &json!(10))
    );
    let verdict = median["verdict"].as_str().unwrap();
    assert!(
        verdict.contains("cause unknown") && !verdict.contains("slower"),
        "{verdict}"
    );
    let warnings = document["warnings"].to_string();
    assert!(
        warnings.contains("not-alternating") && warnings.contains("replimeter trial"),
        "{warnings}"
    );
    let document = compared(&["ten", "same"], 0).json();
    assert_eq!(row(&document, "lag.p50")["change"], "not-shown");
    // With five equal runs, it is more than those differ by.
    let known = ["--known-from", "equal"];
    let document = compared(&[&["ten", "slower"], &known[..]].concat(), 1).json();
    assert_eq!(
        (&document["basis"], &document["known_from"]),
        (&json!("known-spread"), &json!(5))
    );
    assert_eq!(row(&document, "lag.p50")["change"], "differs");
    assert_eq!(document["conditions"][0]["outcome"], "failed");
    let document = compared(&[&["ten", "same"], &known[..]].concat(), 0).json();
    assert_eq!(row(&document, "lag.p50")["change"], "not-shown");
    let _ = compared(&["ten", "slower", "--known-from", "equal/10,equal/11"], 2)
        .stderr_contains("fewer than 5");
    // One start each is enough, if the runs alternate.
    for side in ["A", "B"] {
        fs::create_dir(tool.folder().join(side)).unwrap();
    }
    for (minute, side) in (20..).zip("ABBAABBAAB".chars()) {
        let level_us = if side == 'A' { 200.0 } else { 260.0 };
        run(&format!("{side}/{minute}"), minute, 1, level_us);
    }
    let document = compared(&["A", "B"], 1).json();
    assert_eq!(document["basis"], "alternating-runs");
    assert_eq!(row(&document, "lag.p50")["change"], "higher");
}

fn run_sets_are_given_in_three_ways() {
    let tool = TestEnvironment::new();
    for (folder, level, seed) in [("a", 200.0, 10), ("b", 200.0, 20)] {
        fs::create_dir(tool.folder().join(folder)).unwrap();
        for run in 0..3 {
            made_up(&tool, &format!("{folder}/{run}"), seed + run, 1500, level);
        }
    }
    let figures = |args: &[&str]| {
        let mut all = vec!["compare", "--json"];
        all.extend(args);
        let document = tool.run(&all).with_code(0).json();
        assert_eq!(document["a"]["runs"].as_array().unwrap().len(), 3);
        assert_eq!(row(&document, "lag.p50")["a"]["runs"], 3);
        document["results"].clone()
    };
    let by_folder = figures(&["a", "b"]);
    assert_eq!(by_folder, figures(&["a/0,a/1,a/2", "b/0,b/1,b/2"]));
    assert_eq!(
        by_folder,
        figures(&["--a", "a/0", "--a", "a/1", "--a", "a/2", "--b", "b"])
    );
}

fn incomparable_runs_are_refused_with_the_reason() {
    let tool = TestEnvironment::new();
    let fresh = |name: &str| made_up(&tool, name, 1, 300, 200.0);
    fresh("good");
    fs::remove_file(fresh("killed").join("summary.json")).unwrap();
    fs::remove_file(fresh("sampleless").join("samples.parquet")).unwrap();
    changed(&fresh("newer"), "summary.json", |value| {
        value["schema"] = json!("replimeter.lag/2")
    });
    changed(&fresh("newer_manifest"), "manifest.json", |value| {
        value["schema"] = json!("replimeter.manifest/9")
    });
    changed(&fresh("stranger"), "summary.json", |value| {
        value["schema"] = json!("somebody.else/1")
    });
    changed(&fresh("tap"), "summary.json", |value| {
        value["schema"] = json!("replimeter.tap/1")
    });
    changed(&fresh("broken"), "summary.json", |value| {
        value["results"] = json!("none")
    });
    let status = |status: RunStatus, error: &'static str| {
        move |value: &mut Value| {
            value["status"] = json!(status);
            value["error"] = json!(error);
        }
    };
    changed(
        &fresh("failed"),
        "summary.json",
        status(RunStatus::Failed, "primary (db1): it went away"),
    );
    changed(
        &fresh("invalid"),
        "summary.json",
        status(RunStatus::Invalid, "semi-synchronous replication fell back"),
    );
    let half = fresh("half").join("samples.parquet");
    let bytes = fs::read(&half).unwrap();
    fs::write(&half, &bytes[..bytes.len() / 2]).unwrap();
    made_up(&tool, "empty", 1, 20, 200.0);
    fs::create_dir(tool.folder().join("nothing")).unwrap();
    fs::write(tool.folder().join("file"), "x").unwrap();
    fs::write(
        fresh("torn").join("manifest.json"),
        "{\"schema\": \"replimeter.man",
    )
    .unwrap();
    for (name, args) in [
        ("one_side", vec!["good"]),
        ("no_such_run", vec!["good", "no-such-run"]),
        ("no_run", vec!["good", "nothing"]),
        ("a_file", vec!["good", "file"]),
        ("killed", vec!["good", "killed"]),
        ("no_samples_file", vec!["good", "sampleless"]),
        ("newer_schema", vec!["good", "newer"]),
        ("newer_manifest", vec!["good", "newer_manifest"]),
        ("other_schema", vec!["good", "stranger"]),
        ("other_command", vec!["good", "tap"]),
        ("broken_record", vec!["good", "broken"]),
        ("torn_manifest", vec!["good", "torn"]),
        ("failed_run", vec!["good", "failed"]),
        ("invalid_run", vec!["good", "invalid"]),
        ("truncated", vec!["good", "half"]),
        ("no_samples", vec!["good", "empty"]),
        ("twice", vec!["good", "./good"]),
        (
            "unknown_figure",
            vec!["good", "good2", "--fail-if", "lag.p98 > +10%"],
        ),
        (
            "too_few_samples",
            vec!["good", "good2", "--fail-if", "lag.p99 > +10%"],
        ),
        (
            "other_commands_figure",
            vec!["good", "good2", "--fail-if", "cost.throughput < -5%"],
        ),
        (
            "unknown_word",
            vec!["good", "good2", "--fail-if", "lag.p50 of replica7 > +10%"],
        ),
        (
            "wrong_unit",
            vec!["good", "good2", "--fail-if", "lag.p50 > 10"],
        ),
        (
            "no_condition",
            vec!["good", "good2", "--fail-if", "lag.p50 +10%"],
        ),
        (
            "unwritable",
            vec!["good", "good2", "--run-dir", "/proc/replimeter"],
        ),
        (
            "not_empty",
            vec!["good", "good2", "--run-dir", "nothing/../good"],
        ),
    ] {
        if args.contains(&"good2") && !tool.folder().join("good2").exists() {
            made_up(&tool, "good2", 2, 300, 200.0);
        }
        let mut all = vec!["compare"];
        all.extend(args);
        let ended = tool.run(&all);
        assert!(matches!(ended.code, Some(2 | 3)), "{name}: {ended:#?}");
        assert_eq!(ended.stdout, "", "{name}: errors go to standard error");
        insta::assert_snapshot!(format!("compare_{name}"), shown(&ended, &tool));
        assert!(tool.runs().is_empty(), "{name}: something was left behind");
    }
}

fn figures_of_only_one_side_are_named() {
    let tool = TestEnvironment::new();
    made_up(&tool, "long", 1, 3000, 200.0);
    made_up(&tool, "short", 2, 600, 200.0);
    let document = tool
        .run(&["compare", "long", "short", "--json"])
        .with_code(0)
        .json();
    // 550 samples are too few for a 99th percentile.
    assert!(
        document["results"]
            .as_array()
            .unwrap()
            .iter()
            .all(|row| row["figure"] != "lag.p99")
    );
    assert_eq!(document["only_on"][0]["side"], "a");
    assert_eq!(document["differs"][0]["name"], "lag.rounds");
}
