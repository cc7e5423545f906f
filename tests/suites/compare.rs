//! `compare`: differences of two runs, rejected comparisons, and conditions for continuous integration.

use std::{
    fs,
    path::{Path, PathBuf},
};

use replimeter_model::record::RunStatus;
use replimeter_stats::binomial::Excess;
use replimeter_suites::{
    CommandOutput, TestEnvironment,
    harness::Test,
    password, start,
    synthetic::{SyntheticSamples, lag_run},
    test, url,
};
use serde_json::{Value, json};

pub(crate) const TESTS: &[Test] = &[
    test!(shift_is_reported_in_every_format),
    test!(conditions_decide_the_exit_code),
    test!(run_sets_are_given_in_three_ways),
    test!(starts_decide_and_not_their_samples),
    test!(incomparable_runs_are_refused_with_the_reason),
    test!(figures_of_only_one_side_are_named),
    test!(one_start_of_slower_links_decides_nothing).starts(4),
    test!(slower_link_is_detected_between_two_runs)
        .starts(4)
        .alone()
        .long(),
    test!(equal_runs_differ_at_the_nominal_rate)
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

fn shift_is_reported_in_every_format() {
    let tool = TestEnvironment::new();
    made_up(&tool, "before", 1, 3000, 200.0);
    made_up(&tool, "after", 2, 3000, 240.0);
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
    made_up(&tool, "before", 1, 3000, 200.0);
    made_up(&tool, "after", 2, 3000, 240.0);
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
        "passed, a part of the interval is within the limit",
    ] {
        assert!(words.contains(outcome), "{}", ended.stdout);
    }
    // An increase of 20 % proves neither more nor less than 19 %.
    let _ = compare(&["--fail-if", "lag.p50 > +19%"]).with_code(0);
    let _ = compare(&["--fail-if", "lag.p50 > +19%", "--fail-when", "possible"])
        .with_code(1)
        .stderr_contains("failed, a part of the interval is beyond the limit");
    let _ = compare(&["--fail-if", "lag.p50 > +40%", "--fail-when", "possible"]).with_code(0);
    let _ = compare(&["--fail-if", "lag.p50 > +10us"]).with_code(1);
    let _ = compare(&["--fail-if", "lag.p50 of replica1 > 10ms"]).with_code(0);
    let _ = compare(&["--fail-if", "lag.p50 < +10%", "--fail-when", "estimated"]).with_code(0);
    let document = compare(&["--fail-if", "lag.p50 > +10%", "--json"])
        .with_code(1)
        .json();
    assert_eq!(document["conditions"][0]["outcome"], "failed");
}

fn starts_decide_and_not_their_samples() {
    let tool = TestEnvironment::new();
    let run = |name: &str, seed: u64, starts: u32, level_us: f64| {
        let of = SyntheticSamples {
            seed,
            count: 3000,
            warm_up: 0,
            level_us,
            starts,
            between_starts: 0.05,
            ..SyntheticSamples::default()
        };
        lag_run(&tool.folder().join(name), of);
    };
    run("one", 1, 1, 200.0);
    run("other", 2, 1, 260.0);
    run("ten", 3, 10, 200.0);
    run("same", 4, 10, 200.0);
    run("slower", 5, 10, 260.0);
    let compared = |a: &str, b: &str, code: i32| {
        let args = ["compare", a, b, "--fail-if", "lag.p50 > +5%", "--json"];
        tool.run(&args).with_code(code)
    };
    // 3,000 samples of a start are still one start.
    for (a, b, told) in [
        ("one", "other", "cannot be told from one start each"),
        ("one", "slower", "cannot be told from one start of A"),
    ] {
        let ended = compared(a, b, 0).stderr_contains("inconclusive");
        let document = ended.json();
        let rows = document["results"].as_array().unwrap();
        assert!(
            rows.iter().all(|row| row["change"] == "unknown"),
            "{rows:#?}"
        );
        assert_eq!(row(&document, "lag.p50")["verdict"], told);
        assert_eq!(document["conditions"][0]["outcome"], "not-judged");
        assert_eq!(document["warnings"][0]["code"], "few-starts");
    }
    let document = compared("ten", "slower", 1).json();
    assert_eq!(row(&document, "lag.p50")["change"], "higher");
    assert_eq!(row(&document, "lag.p50")["a"]["starts"], 10);
    let document = compared("ten", "same", 0).json();
    assert_eq!(row(&document, "lag.p50")["change"], "not-shown");
    // Several runs of one start each are as good as one run of several starts.
    let ended = tool.run(&["compare", "one,ten", "other,slower", "--json"]);
    let document = ended.with_code(0).json();
    assert_eq!(row(&document, "lag.p50")["change"], "higher");
    assert_eq!(row(&document, "lag.p50")["b"]["starts"], 11);
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
fn one_start_of_slower_links_decides_nothing() {
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

/// Compares the lag of several starts; starts on a busy machine would differ by more than the link.
fn slower_link_is_detected_between_two_runs() {
    let tool = TestEnvironment::new();
    let args = [
        "--sandbox",
        "mariadb/async:1",
        "--rounds",
        "300",
        "--starts",
        "6",
    ];
    // A link has an overhead without a delay, too.
    lag(
        &tool,
        "near",
        &[&args[..], &["--link-delay", "0"]].concat(),
        None,
    );
    lag(
        &tool,
        "far",
        &[&args[..], &["--link-delay", "20ms"]].concat(),
        None,
    );
    let ended = tool
        .run(&[
            "compare",
            "near",
            "far",
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
    // By its own interval: among ten figures, four starts on a busy machine may show one only.
    let sent = &row(&document, "lag.from_send.p50")["ratio"]["ci95"];
    assert!(sent[0].as_f64().unwrap() > 1.0, "{sent}");
    assert!(
        document["differs"]
            .as_array()
            .unwrap()
            .iter()
            .all(|one| one["name"] != "server_id" && one["name"] != "port")
    );
    assert_eq!(median["a"]["starts"], 6);
    // One start shows no difference, however many rows it has.
    let single = [&args[..3], &["100", "--starts", "1", "--link-delay", "0"]].concat();
    lag(&tool, "single", &single, None);
    let condition = ["--fail-if", "lag.p50 > +1ms"];
    let args = [&["compare", "single", "far"][..], &condition].concat();
    let ended = tool.run(&args).with_code(0);
    assert!(
        ended.words().contains("cannot be told from one start of A"),
        "{}",
        ended.stdout
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
        .run(&["compare", "near", "other"])
        .with_code(2)
        .stderr_contains("one of `stale`");
}

/// Compares runs that should be equal, which other tests would make differ.
fn equal_runs_differ_at_the_nominal_rate() {
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
    let names: Vec<String> = (0..9).map(|number| format!("run{number}")).collect();
    for name in &names {
        lag(&tool, name, &args, Some(password(primary)));
    }
    let alarms = |a: &str, b: &str| {
        let document = tool.run(&["compare", a, b, "--json"]).with_code(0).json();
        let rows = document["results"].as_array().unwrap().clone();
        let differing: Vec<Value> = rows
            .into_iter()
            .filter(|row| matches!(row["change"].as_str(), Some("higher" | "lower")))
            .collect();
        differing
            .iter()
            .for_each(|row| println!("{a} {b}: {}", row["verdict"]));
        !differing.is_empty()
    };
    let pairs = [[1, 2], [3, 4], [5, 6], [7, 8]].map(|[a, b]| alarms(&names[a], &names[b]));
    println!("pairs of single runs: {pairs:?}");
    // Sets that alternate include the variation between runs.
    let sets = [
        alarms("run1,run3,run5,run7", "run2,run4,run6,run8"),
        alarms("run1,run4,run5,run8", "run2,run3,run6,run7"),
    ];
    let count = sets.iter().filter(|alarm| **alarm).count() as u64;
    assert!(
        !Excess::over(count, sets.len() as u64, 0.05).significant(),
        "{pairs:?} {sets:?}"
    );
    drop(sandbox);
}
