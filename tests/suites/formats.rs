//! Files for other programs and for users: schemas, tables, histograms, queries, plans,
//! completions, the manual, the handbook and the package.

use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use replimeter_suites::{
    CommandOutput, LIMIT, TestEnvironment, assert_plan_described, assert_run_described, binary,
    harness::{Test, skip},
    password, shared, test, url, violations, wait,
};
use serde_json::{Value, json};

pub(crate) const TESTS: &[Test] = &[
    test!(plans_validate_against_their_schema),
    test!(dry_run_lists_effects_and_is_a_valid_plan),
    test!(all_plans_are_checked_before_the_first_run),
    test!(plan_errors_show_line_column_and_suggestion),
    test!(run_files_are_read_by_other_tools),
    test!(stream_ends_with_the_figures_of_the_document),
    test!(completions_and_the_manual_are_usable),
    test!(handbook_builds_as_a_book),
    test!(package_contains_a_working_program).long(),
];

const COMMANDS: [&str; 11] = [
    "lag",
    "backlog",
    "calibrate",
    "tap",
    "load",
    "scale",
    "cost",
    "stale",
    "loss",
    "exposure",
    "front",
];

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

/// Returns Python with the packages of the documents' queries, which `scripts/get-test-tools` installs.
fn python() -> Option<PathBuf> {
    let folder = binary().ancestors().nth(2).unwrap().join("tools/python");
    let installed = fs::read_to_string(folder.join("requirements.txt")).unwrap_or_default();
    let wanted = fs::read_to_string(root().join("tests/requirements.txt")).unwrap();
    (installed == wanted).then(|| folder.join("bin/python"))
}

/// Reason why a test that needs [`python`] cannot run without it.
const NO_PYTHON: &str = "target/tools/python is missing: scripts/get-test-tools installs it";

/// Runs a Python program in a folder.
fn run_python(python: &Path, folder: &Path, program: &str, args: &[&str]) -> CommandOutput {
    let mut command = Command::new(python);
    command
        .arg("-")
        .args(args)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(program.as_bytes())
        .unwrap();
    CommandOutput::of(child.wait_with_output().unwrap())
}

/// Returns the code blocks of a language on a page of the documents.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join("docs").join(page)).unwrap();
    let fence = format!("```{language}\n");
    text.split(&fence)
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap().to_owned())
        .collect()
}

/// Returns the value and the samples of a figure at each time of a stream of CSV, for the first replica, reader or load.
fn figure_over_time(stream: &str, figure: &str) -> Vec<(f64, u64)> {
    let mut table = csv::Reader::from_reader(stream.as_bytes());
    let header = table.headers().unwrap().clone();
    let column = |name: &str| header.iter().position(|known| known == name).unwrap();
    let [time, name, value, samples] = ["time", "figure", "value", "samples"].map(column);
    let mut found = BTreeMap::new();
    for record in table.records().map(Result::unwrap) {
        if &record[name] == figure {
            let known = (
                record[value].parse().unwrap(),
                record[samples].parse().unwrap(),
            );
            found.entry(record[time].to_owned()).or_insert(known);
        }
    }
    found.into_values().collect()
}

fn stream_ends_with_the_figures_of_the_document() {
    let sandbox = shared("mariadb/async:1", &[]);
    let [primary, replica] = sandbox.nodes() else {
        panic!("two servers");
    };
    let lag = "lag --interval 5ms --floor-rounds 0 --duration 4s";
    for (line, figure, value, samples) in [
        (lag, "lag.p50", "/from_ack/p50_us", "/from_ack/count"),
        (
            "stale --rounds 1000 --read-delays 0",
            "stale.read_latency.p50",
            "/read_latency/p50_us",
            "/read_latency/count",
        ),
        (
            "load --workload insert --threads 2 --warm-up 0 --duration 3s",
            "load.throughput",
            "/throughput/mean",
            "/passes",
        ),
        (
            "exposure --duration 3s",
            "exposure.percent",
            "/exposed_percent",
            "/polls",
        ),
    ] {
        let tool = TestEnvironment::new();
        let mut command = tool.command(&line.split(' ').collect::<Vec<_>>());
        command.args(["--primary", &url(primary, "replimeter")]);
        command.args(["--replica", &url(replica, "replimeter"), "--stream", "csv"]);
        command.env("REPLIMETER_PASSWORD", password(primary));
        let ended = wait(command.spawn().unwrap(), LIMIT).with_code(0);
        let document = fs::read_to_string(tool.only_run().join("summary.json")).unwrap();
        let document: Value = serde_json::from_str(&document).unwrap();
        let row = &document["results"]["rows"][0];
        let known = |path| row.pointer(path).and_then(Value::as_f64).unwrap();
        let shown = figure_over_time(&ended.stdout, figure);
        let last = shown.last().unwrap();
        assert_eq!(*last, (known(value), known(samples) as u64), "{line}");
        assert!(
            shown.len() > 1 && shown.is_sorted_by_key(|(_, samples)| *samples),
            "{line}: {shown:?}"
        );
    }
}

fn plans_validate_against_their_schema() {
    let tool = TestEnvironment::new();
    let mut plans = 0;
    for entry in fs::read_dir(root().join("plans")).unwrap() {
        let path = entry.unwrap().path();
        assert_plan_described(&fs::read_to_string(&path).unwrap());
        let dry = tool
            .run(&["run", "--dry-run", path.to_str().unwrap()])
            .with_code(0);
        assert_plan_described(&dry.stdout);
        plans += 1;
    }
    assert!(plans >= 5, "{plans}");
    for wrong in [
        json!({}),
        json!({ "command": "lga" }),
        json!({ "command": "lag", "lag": { "rouns": 5 } }),
        json!({ "command": "lag", "lag": { "pace": "every now and then" } }),
        json!({ "command": "lag", "lag": { "for": 10 } }),
        json!({ "command": "lag", "target": { "sandbox": 1 } }),
    ] {
        assert!(!violations("plan", &wrong).is_empty(), "{wrong}");
    }
    let printed = tool.run(&["schema", "plan"]).with_code(0).stdout;
    assert_eq!(
        printed,
        fs::read_to_string(root().join("docs/schema/plan.json")).unwrap()
    );
    let _ = tool
        .run(&["schema", "plans"])
        .with_code(2)
        .stderr_contains("plan");
}

fn dry_run_lists_effects_and_is_a_valid_plan() {
    let tool = TestEnvironment::new();
    for command in COMMANDS {
        let plan = tool.folder().join("plan.toml");
        fs::write(&plan, format!("command = \"{command}\"\n")).unwrap();
        let first = tool
            .run(&["run", "--dry-run", "plan.toml"])
            .with_code(0)
            .stdout;
        for want in [
            "# Effects of this run:",
            "#   servers  ",
            "#   files    a new folder replimeter-runs/TIME-",
        ] {
            assert!(
                first.contains(want),
                "{command}: `{want}` is missing in {first}"
            );
        }
        let what = if command == "tap" {
            "#   writes   nothing"
        } else {
            "#   writes   schema `replimeter`"
        };
        assert!(first.contains(what), "{command}: {first}");
        assert_plan_described(&first);
        fs::write(&plan, &first).unwrap();
        assert_eq!(
            tool.run(&["run", "--dry-run", "plan.toml"])
                .with_code(0)
                .stdout,
            first,
            "{command}"
        );
    }
    let more = [
        "--primary",
        "mysql://u@db1/",
        "--replica",
        "mysql://u@db2:3307/",
        "--run-dir",
        "here",
    ];
    fs::write(
        tool.folder().join("plan.toml"),
        "command = \"lag\"\n[lag]\nload = [\"oltp-mix:8@primary\"]\nrate = 100\n",
    )
    .unwrap();
    let yours = tool
        .run(&[&["run", "--dry-run", "plan.toml"][..], &more[..]].concat())
        .with_code(0)
        .stdout;
    for want in [
        "connects to primary (db1:3306), replica1 (db2:3307)",
        "table `probe_…`",
        "dropped at the end unless they existed before",
        "8 connections run oltp-mix on primary, 100 per second",
        "of the workload oltp-mix",
        "the folder here",
    ] {
        assert!(yours.contains(want), "`{want}` is missing in {yours}");
    }
    assert!(tool.runs().is_empty() && !tool.folder().join("here").exists());
}

fn all_plans_are_checked_before_the_first_run() {
    let tool = TestEnvironment::new();
    let folder = tool.folder().join("plans");
    fs::create_dir(&folder).unwrap();
    let _ = tool
        .run(&["run", "plans"])
        .with_code(2)
        .stderr_contains("there is no plan (*.toml) in it");
    for (name, title) in [
        ("b.toml", "second"),
        ("a.toml", "first"),
        ("c.txt", "no plan"),
    ] {
        fs::write(
            folder.join(name),
            format!("command = \"lag\"\ntitle = \"{title}\"\n"),
        )
        .unwrap();
    }
    let both = tool.run(&["run", "--dry-run", "plans"]).with_code(0).stdout;
    assert!(
        both.find("# plans/a.toml").unwrap() < both.find("# plans/b.toml").unwrap(),
        "{both}"
    );
    assert!(
        both.find("first").unwrap() < both.find("second").unwrap() && !both.contains("no plan"),
        "{both}"
    );
    let _ = tool
        .run(&["run", "plans", "--json"])
        .with_code(2)
        .stderr_contains("single plan");
    fs::write(
        folder.join("b.toml"),
        "command = \"lag\"\n[target]\nlink-delay = \"10m\"\n",
    )
    .unwrap();
    let ended = tool
        .run(&["run", "plans"])
        .with_code(2)
        .stderr_contains("plans/b.toml")
        .stderr_contains("line 3, column 1")
        .stderr_contains("write 10ms for milliseconds");
    assert_eq!(ended.stdout, "");
    assert!(tool.runs().is_empty(), "the first plan has begun");
}

fn plan_errors_show_line_column_and_suggestion() {
    let tool = TestEnvironment::new();
    for (text, wants) in [
        (
            "command = \"lag\"\n[lag]\nrouns = 5\n",
            ["line 3, column 1", "did you mean `rounds`?"],
        ),
        (
            "command = \"lag\"\nrounds = 5\n",
            ["line 2, column 1", "`rounds` is a key of [lag]"],
        ),
        (
            "command = \"lag\"\n[lag]\nmethod = \"pol\"\n",
            ["line 3, column 10", "did you mean `poll`?"],
        ),
        (
            "command = \"lag\"\n[lag]\nduration = \"10\"\n",
            ["line 3, column 12", "a number with a unit"],
        ),
        (
            "command = \"lag\"\n[lag]\npace = \"interval 10m\"\n",
            ["line 3, column 1", "`m` is minutes: write 10ms"],
        ),
        (
            "command = \"exposur\"\n",
            ["line 1, column 11", "did you mean `exposure`?"],
        ),
    ] {
        fs::write(tool.folder().join("plan.toml"), text).unwrap();
        let ended = tool.run(&["run", "plan.toml"]).with_code(2);
        for want in wants {
            assert!(
                ended.stderr.contains(want),
                "`{want}` is missing for {text}: {ended:#?}"
            );
        }
    }
}

fn run_files_are_read_by_other_tools() {
    let Some(python) = python() else {
        return skip(NO_PYTHON);
    };
    let sandbox = shared("mariadb/async:1", &[]);
    let [primary, replica] = [0, 1].map(|index| url(&sandbox.nodes()[index], "replimeter"));
    let tool = TestEnvironment::new();
    let mut args = vec!["lag", "--primary", &primary, "--replica", &replica];
    args.extend(["--method", "poll,tap", "--rounds", "300"]);
    args.extend(["--interval", "3ms", "--floor-rounds", "20"]);
    args.extend(["--timeout", "60s", "--csv"]);
    let child = tool
        .command(&args)
        .env("REPLIMETER_PASSWORD", password(&sandbox.nodes()[0]))
        .spawn();
    let printed = wait(child.unwrap(), LIMIT).with_code(0).stdout;
    let run = tool.only_run();
    assert_run_described(&run);

    // The table, as it was printed and again from the directory.
    assert_eq!(
        tool.run(&["report", run.to_str().unwrap(), "--csv"])
            .with_code(0)
            .stdout,
        printed
    );
    fs::write(tool.folder().join("lag.csv"), &printed).unwrap();
    let program =
        "import csv, json\nprint(json.dumps(list(csv.DictReader(open('lag.csv', newline='')))))";
    let rows = run_python(&python, tool.folder(), program, &[]).with_code(0);
    let rows: Value = serde_json::from_str(&rows.stdout).unwrap();
    let summary: Value =
        serde_json::from_str(&fs::read_to_string(run.join("summary.json")).unwrap()).unwrap();
    let results = summary["results"]["rows"].as_array().unwrap();
    assert_eq!(rows.as_array().unwrap().len(), results.len());
    for (row, result) in rows.as_array().unwrap().iter().zip(results) {
        assert_eq!(row["method"], result["method"]);
        let number = |text: &Value| text.as_str().unwrap().parse::<f64>().unwrap();
        assert_eq!(
            number(&row["from_ack.p50_us"]),
            result["from_ack"]["p50_us"].as_f64().unwrap()
        );
        assert_eq!(
            number(&row["from_ack.count"]),
            result["from_ack"]["count"].as_f64().unwrap()
        );
    }

    // A public tool computes the same quantiles from the histograms.
    let program = "
import json, sys
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader
found = {}
reader = HistogramLogReader(sys.argv[1], HdrHistogram(1, 3600 * 1000 ** 3, 3))
while True:
    histogram = reader.get_next_interval_histogram()
    if histogram is None:
        break
    values = [histogram.get_value_at_percentile(percentile) for percentile in (48, 52)]
    found[histogram.get_tag()] = [histogram.get_total_count(), values]
print(json.dumps(found))";
    let found = run_python(&python, &run, program, &["histograms.hlog"]).with_code(0);
    let found: BTreeMap<String, (u64, [f64; 2])> = serde_json::from_str(&found.stdout).unwrap();
    for result in results {
        let tag = format!(
            "{}/replica1/{}/lag",
            result["shape"].as_str().unwrap(),
            result["method"].as_str().unwrap()
        );
        let (count, [low_ns, high_ns]) = found[&tag];
        let below = found
            .get(&format!("{tag}-below-zero"))
            .map_or(0, |(count, _)| *count);
        assert_eq!(
            count + below,
            result["rounds"].as_u64().unwrap() - result["timed_out"].as_u64().unwrap(),
            "{found:?}"
        );
        let ours = result["from_ack"]["p50_us"].as_f64().unwrap() * 1e3;
        // If no value is below zero, the median of the series is the median; a histogram rounds its values to a thousandth.
        let (low, high) = (low_ns * 0.998, high_ns * 1.002);
        assert!(
            below > 0 || (low..=high).contains(&ours),
            "{tag}: {ours} ns is not in {low}..{high}"
        );
    }

    // The queries of the documents, unchanged.
    let (queries, programs) = (
        blocks("guides/query-samples.md", "sql"),
        blocks("guides/query-samples.md", "python"),
    );
    assert!(queries.len() >= 2 && !programs.is_empty());
    // One process: loading the libraries takes longest.
    let run_queries = "
import duckdb, sys
for query in sys.argv[1:]:
    rows = duckdb.sql(query).fetchall()
    print(query, rows)
    assert 'replica1' in str(rows)";
    let queries: Vec<&str> = queries.iter().map(String::as_str).collect();
    let _ = run_python(&python, tool.folder(), run_queries, &queries).with_code(0);
    for program in programs {
        let ended = run_python(&python, tool.folder(), &program, &[]).with_code(0);
        assert!(ended.stdout.contains("replica1"), "{program}: {ended:#?}");
    }
}

fn completions_and_the_manual_are_usable() {
    let tool = TestEnvironment::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = tool.run(&["completions", shell]).with_code(0).stdout;
        assert!(
            script.contains("exposure") && script.contains("link-delay"),
            "{shell}"
        );
    }
    let complete = "
eval \"$($0 completions bash)\"
COMP_WORDS=(replimeter lag --me); COMP_CWORD=2
_replimeter replimeter --me lag
echo \"${COMPREPLY[@]}\"";
    let ended = Command::new("bash")
        .args(["-c", complete])
        .arg(binary())
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&ended.stdout).trim(),
        "--method",
        "{ended:?}"
    );
    let _ = tool.run(&["man", "pages/man1"]).with_code(0);
    let pages = tool.folder().join("pages/man1");
    for page in [
        "replimeter.1",
        "replimeter-lag.1",
        "replimeter-sandbox-up.1",
        "replimeter-servers-add.1",
    ] {
        let text = fs::read_to_string(pages.join(page)).unwrap();
        assert!(text.contains(".SH SYNOPSIS"), "{page}");
    }
    assert!(
        fs::read_to_string(pages.join("replimeter-lag.1"))
            .unwrap()
            .contains("floor")
    );
    let _ = tool
        .run(&["man", "/proc/replimeter"])
        .with_code(2)
        .stderr_contains("/proc/replimeter");
}

fn handbook_builds_as_a_book() {
    let Some(python) = python() else {
        return skip(NO_PYTHON);
    };
    let tool = TestEnvironment::new();
    let built = Command::new(python.with_file_name("mdbook"))
        .arg("build")
        .arg("--dest-dir")
        .arg(tool.folder())
        .arg(root())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&built.stderr);
    assert!(
        built.status.success() && !said.contains("WARN") && !said.contains("ERROR"),
        "{said}"
    );
    let mut pages = 0;
    for folder in ["", "guides", "reference", "concepts"] {
        for entry in fs::read_dir(root().join("docs").join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|ending| ending == "md")
                && !path.ends_with("SUMMARY.md")
            {
                let html = path.with_extension("html");
                let page = tool.folder().join(folder).join(html.file_name().unwrap());
                assert!(
                    fs::metadata(&page).is_ok_and(|page| page.len() > 1000),
                    "{}",
                    page.display()
                );
                pages += 1;
            }
        }
    }
    assert!(pages > 25, "{pages}");
}

fn package_contains_a_working_program() {
    let tool = TestEnvironment::new();
    let made = Command::new(root().join("scripts/make-deb"))
        .arg(tool.folder())
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let entries = fs::read_dir(tool.folder())
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let package = entries
        .into_iter()
        .find(|path| path.extension().is_some_and(|kind| kind == "deb"))
        .unwrap();
    let inside = tool.folder().join("root");
    let unpacked = Command::new("dpkg-deb")
        .arg("-x")
        .arg(&package)
        .arg(&inside)
        .output()
        .unwrap();
    assert!(unpacked.status.success(), "{unpacked:?}");
    for path in [
        "usr/lib/replimeter/libreplimeter_udf.so",
        "usr/share/man/man1/replimeter.1.gz",
        "usr/share/man/man1/replimeter-lag.1.gz",
        "usr/share/bash-completion/completions/replimeter",
        "usr/share/zsh/vendor-completions/_replimeter",
        "usr/share/fish/vendor_completions.d/replimeter.fish",
        "usr/share/doc/replimeter/copyright",
        "usr/share/doc/replimeter/plans/lag-histogram.toml",
        "usr/share/doc/replimeter/concepts/methodology.md",
        "usr/share/doc/replimeter/schema/plan.json",
    ] {
        assert!(inside.join(path).is_file(), "{path} is missing");
    }
    let run = |args: &[&str]| {
        CommandOutput::of(
            Command::new(inside.join("usr/bin/replimeter"))
                .args(args)
                .output()
                .unwrap(),
        )
        .with_code(0)
    };
    assert_eq!(run(&["--version"]).stdout, tool.run(&["--version"]).stdout);
    let plans = inside.join("usr/share/doc/replimeter/plans");
    assert!(
        run(&["run", "--dry-run", plans.to_str().unwrap()])
            .stdout
            .contains("size-sweep.toml")
    );
    let control = Command::new("dpkg-deb")
        .arg("-f")
        .arg(&package)
        .output()
        .unwrap();
    let control = String::from_utf8(control.stdout).unwrap();
    assert!(
        control.contains("Package: replimeter") && control.contains("Depends: libc6"),
        "{control}"
    );
}
