//! `replimeter scale` on real servers: its figures, its scaling law, and its
//! behavior on failures.

use std::{fs, path::Path};

use replimeter_suites::{
    CommandOutput, LIMIT, TestEnvironment,
    harness::{Test, skip},
    test, wait, wait_until,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

pub(crate) const TESTS: &[Test] = &[
    test!(scale_reports_every_count_phase_and_server).starts(3),
    test!(two_starts_of_scale_give_intervals).starts(4).long(),
    test!(law_is_fitted_from_five_counts_and_checked)
        .starts(4)
        .long(),
    test!(scale_works_on_mysql_and_semi_sync).starts(4).long(),
    test!(killed_or_interrupted_scale_keeps_results).starts(4),
    test!(invalid_scale_settings_are_refused),
    test!(cpu_shares_are_reported).starts(2),
];

/// A short measurement.
fn scale(tool: &TestEnvironment, more: &[&str]) -> CommandOutput {
    measured(tool, "1s", more)
}

fn measured(tool: &TestEnvironment, duration: &str, more: &[&str]) -> CommandOutput {
    let mut args = vec![
        "scale",
        "--duration",
        duration,
        "--warm-up",
        "100ms",
        "--blocks",
        "1",
        "--data-size",
        "2MB",
        "--threads",
        "6",
    ];
    args.extend(more);
    tool.run(&args)
}

fn row<'d>(document: &'d Value, replicas: u64, phase: &str) -> &'d Value {
    let rows = document["results"]["rows"].as_array().unwrap().iter();
    let mut rows = rows.filter(|row| row["replicas"] == replicas && row["phase"] == phase);
    rows.next()
        .unwrap_or_else(|| panic!("no row for {replicas} and {phase} in {document:#}"))
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}

fn nothing_runs(tool: &TestEnvironment) {
    assert_eq!(tool.servers(), Vec::<i32>::new(), "nothing runs on");
}

fn scale_reports_every_count_phase_and_server() {
    report_every_count_phase_and_server(1);
}

fn two_starts_of_scale_give_intervals() {
    report_every_count_phase_and_server(2);
}

fn report_every_count_phase_and_server(starts: u64) {
    let tool = TestEnvironment::new();
    let given = starts.to_string();
    let ended = measured(
        &tool,
        "100ms",
        &[
            "--replicas",
            "0..1",
            "--starts",
            &given,
            "--updates",
            "--mode",
            "mariadb/async",
            "--json",
        ],
    );
    let document = ended.with_code(0).json();
    assert_eq!(document["schema"], "replimeter.scale/1");
    for replicas in 0..=1 {
        for phase in ["insert", "select", "mixed", "update", "mixed-update"] {
            let row = row(&document, replicas, phase);
            // A block that is measured again counts once.
            assert_eq!(
                (row["starts"].as_u64(), row["blocks"].as_u64()),
                (Some(starts), Some(starts)),
                "{row:#}"
            );
            let (reads, inserts) = (
                phase != "insert" && phase != "update",
                phase == "insert" || phase == "mixed",
            );
            assert_eq!(
                row["selects_per_s"].as_f64().is_some_and(|rate| rate > 0.0),
                reads,
                "{row:#}"
            );
            assert_eq!(
                row["inserts_per_s"].as_f64().is_some_and(|rate| rate > 0.0),
                inserts,
                "{row:#}"
            );
            assert_eq!(
                row["updates_per_s"].as_f64().is_some_and(|rate| rate > 0.0),
                phase.contains("update"),
                "{row:#}"
            );
            let (rate, ends) = (&row["inserts_per_s"], &row["inserts_per_s_ci95"]);
            if inserts && starts > 1 {
                let [low, rate, high] = [&ends[0], rate, &ends[1]].map(number);
                assert!(low <= rate && rate <= high, "{row:#}");
            } else {
                assert!(ends.is_null(), "{row:#}");
            }
            if inserts {
                assert!(number(&row["write_latency"]["max_us"]) > 0.0);
            }
            let servers = row["servers"].as_array().unwrap();
            assert_eq!(servers.len() as u64, replicas + 1);
            for server in servers {
                assert!(
                    number(&server["cpu_percent"]) >= 0.0 && server["cpu_us_per_op"].is_number(),
                    "{server:#}"
                );
            }
            assert_eq!(servers[0]["role"], "primary");
            // Who answered the selects: the replicas, or the primary where there is none.
            let readers: Vec<bool> = servers
                .iter()
                .map(|server| server["selects_per_s"].is_number())
                .collect();
            let wanted: Vec<bool> = (0..=replicas)
                .map(|index| reads && (index > 0 || replicas == 0))
                .collect();
            assert_eq!(readers, wanted, "{row:#}");
            if replicas > 0 && phase != "select" {
                assert!(number(&row["caught_up_after_us"]) >= 0.0);
                assert!(
                    number(&servers[1]["rows_written_per_op"]) > 0.0,
                    "a replica writes what it applies: {servers:#?}"
                );
            }
        }
    }
    assert_eq!(
        row(&document, 0, "insert")["percent_of_none"]["inserts"].as_f64(),
        Some(100.0)
    );
    let percent = &row(&document, 1, "insert")["percent_of_none"];
    let ratio = number(&row(&document, 1, "insert")["inserts_per_s"])
        / number(&row(&document, 0, "insert")["inserts_per_s"]);
    assert!(
        (number(&percent["inserts"]) / (ratio * 100.0) - 1.0).abs() < 1e-6,
        "{percent:#}"
    );
    // Two numbers of replicas are too few for a scaling law, and the report states it.
    let fits = document["results"]["fits"].as_array().unwrap();
    assert!(
        !fits.is_empty()
            && fits
                .iter()
                .all(|fit| fit["refused"].as_str().unwrap().contains("5 are needed")),
        "{fits:#?}"
    );
    // Every number of replicas once in each round.
    let order = document["results"]["order"].as_array().unwrap();
    assert_eq!(order.len() as u64, starts);
    for round in order {
        let mut round: Vec<u64> = round
            .as_array()
            .unwrap()
            .iter()
            .map(|count| count.as_u64().unwrap())
            .collect();
        round.sort_unstable();
        assert_eq!(round, [0, 1]);
    }
    nothing_runs(&tool);
    kept(&tool, &document);
}

/// A stored run can be rendered again, and its plan gives the same plan.
fn kept(tool: &TestEnvironment, document: &Value) {
    let run = tool.only_run();
    for name in [
        "plan.toml",
        "manifest.json",
        "samples.parquet",
        "summary.json",
        "report.html",
        "report.md",
    ] {
        assert!(run.join(name).is_file(), "{name}");
    }
    let run_text = run.to_str().unwrap();
    let text = tool.run(&["report", run_text]).with_code(0).words();
    for wanted in [
        "insert while selecting/s",
        "Percent of no replica",
        "Resources of each server",
        "No law is fitted",
    ] {
        assert!(text.contains(wanted), "`{wanted}` is missing in {text}");
    }
    // Two servers and the load need three cores.
    let manifest = fs::read_to_string(run.join("manifest.json")).unwrap();
    let manifest: Value = serde_json::from_str(&manifest).unwrap();
    let few = number(&manifest["machine"]["cores"]) < 3.0;
    let shared = text.contains("up to 2 servers and the load share");
    assert_eq!(shared, few, "{text}");
    assert_eq!(
        &tool
            .run(&["report", run_text, "--json"])
            .with_code(0)
            .json()["results"]["rows"],
        &document["results"]["rows"]
    );
    let markdown = tool
        .run(&["report", run_text, "--markdown"])
        .with_code(0)
        .stdout;
    assert!(
        markdown.starts_with("# Replimeter scale")
            && markdown.contains("| replicas | insert alone/s |"),
        "{markdown}"
    );
    let page = fs::read_to_string(run.join("report.html")).unwrap();
    for id in ["throughput", "percent", "processors", "writes"] {
        assert!(page.contains(&format!("id=\"{id}\"")), "{id}");
    }
    let plan = fs::read_to_string(run.join("plan.toml")).unwrap();
    assert_eq!(
        tool.run(&["run", "--dry-run", run.join("plan.toml").to_str().unwrap()])
            .with_code(0)
            .planned(),
        plan
    );
    samples(&run.join("samples.parquet"));
}

/// The file of blocks: a row for each kind of operation and server, and for each second.
fn samples(path: &Path) {
    // The first and the last bytes of a Parquet file are its mark.
    let bytes = fs::read(path).unwrap();
    assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1") && bytes.len() > 1000);
}

fn law_is_fitted_from_five_counts_and_checked() {
    let tool = TestEnvironment::new();
    let more = [
        "--replicas",
        "0..4",
        "--starts",
        "1",
        "--mode",
        "mariadb/async",
        "--reads",
        "all",
        "--check-prediction",
        "--json",
    ];
    let document = scale(&tool, &more).with_code(0).json();
    let fits = document["results"]["fits"].as_array().unwrap();
    let named = |phase: &str, figure: &str| {
        fits.iter()
            .find(|fit| fit["phase"] == phase && fit["figure"] == figure)
            .unwrap_or_else(|| panic!("{fits:#?}"))
    };
    for (phase, figure) in [
        ("insert", "inserts"),
        ("select", "selects"),
        ("mixed", "inserts"),
        ("mixed", "selects"),
    ] {
        let fit = named(phase, figure);
        if let Some(refused) = fit["refused"].as_str() {
            assert!(refused.contains("does not fit"), "{fit:#}");
            continue;
        }
        assert_eq!(
            (
                fit["residuals"].as_array().unwrap().len(),
                fit["freedom"].as_u64()
            ),
            (5, Some(2)),
            "{fit:#}"
        );
        assert!(number(&fit["lambda"]["value"]) > 0.0);
        let prediction = &fit["prediction"];
        assert_eq!(prediction["replicas"], 5);
        assert_eq!(
            fit["peak_replicas"].is_object(),
            figure == "selects",
            "{fit:#}"
        );
        if prediction["predicted"]["value"].is_null() {
            // On a busy machine the starts may deviate too much from any law.
            assert!(prediction["holds"].is_null(), "{fit:#}");
            continue;
        }
        let (low, high) = (
            number(&prediction["predicted"]["ci95"][0]),
            number(&prediction["predicted"]["ci95"][1]),
        );
        let measured = number(&prediction["measured_per_s"]);
        assert_eq!(
            prediction["holds"].as_bool(),
            Some(low <= measured && measured <= high),
            "{fit:#}"
        );
    }
    // The block that checks the law is not one of its rows.
    assert!(
        document["results"]["rows"]
            .as_array()
            .unwrap()
            .iter()
            .all(|row| row["replicas"].as_u64().unwrap() <= 4)
    );
    nothing_runs(&tool);
}

fn scale_works_on_mysql_and_semi_sync() {
    let tool = TestEnvironment::new();
    for mode in ["mysql/async", "mariadb/semi-sync"] {
        let document = scale(
            &tool,
            &["--replicas", "1", "--starts", "1", "--mode", mode, "--json"],
        )
        .with_code(0)
        .json();
        let mixed = row(&document, 1, "mixed");
        assert!(
            number(&mixed["inserts_per_s"]) > 0.0 && number(&mixed["selects_per_s"]) > 0.0,
            "{mixed:#}"
        );
        assert!(
            mixed["inserts_per_s_ci95"].is_null() && mixed["percent_of_none"]["inserts"].is_null(),
            "one start, and no other count: {mixed:#}"
        );
    }
    nothing_runs(&tool);
}

/// Returns whether the rows that the first block added are removed, after which the block counts.
fn first_block_is_over(tool: &TestEnvironment) -> bool {
    let folders = fs::read_dir(tool.home().join("sandboxes"));
    let folders = folders.into_iter().flatten().flatten();
    let data = folders
        .flat_map(|folder| fs::read_dir(folder.path().join("primary/data")))
        .flatten()
        .flatten();
    let mut logs = data.filter(|file| file.file_name().to_string_lossy().starts_with("binlog.0"));
    logs.any(|log| {
        // With the row events of a statement, MariaDB logs its text.
        let delete = b"DELETE FROM `replimeter`.`post`";
        let log = fs::read(log.path()).unwrap_or_default();
        log.windows(delete.len()).any(|bytes| bytes == delete)
    })
}

fn killed_or_interrupted_scale_keeps_results() {
    for kill in [true, false] {
        let tool = TestEnvironment::new();
        let args = [
            "scale",
            "--replicas",
            "1",
            "--starts",
            "1",
            "--blocks",
            "1000",
            "--duration",
            "500ms",
            "--warm-up",
            "100ms",
            "--data-size",
            "1MB",
            "--threads",
            "2",
            "--mode",
            "mariadb/async",
            "--json",
        ];
        let child = tool.command(&args).spawn().unwrap();
        wait_until("the first block is over", LIMIT, || {
            first_block_is_over(&tool)
        });
        let (victim, signal) = if kill {
            (tool.servers()[1], Signal::KILL)
        } else {
            (child.id().cast_signed(), Signal::INT)
        };
        kill_process(Pid::from_raw(victim).unwrap(), signal).unwrap();
        let ended = wait(child, LIMIT);
        let ended = if kill {
            ended.with_code(3).stderr_contains("exited")
        } else {
            ended.with_code(130).stderr_contains("are kept")
        };
        let document = ended.json();
        assert_eq!(
            document["status"],
            if kill { "failed" } else { "interrupted" }
        );
        assert!(
            row(&document, 1, "insert")["blocks"].as_u64().unwrap() > 0,
            "{document:#}"
        );
        assert!(document["headline"].as_str().unwrap().contains("partial"));
        nothing_runs(&tool);
    }
}

fn invalid_scale_settings_are_refused() {
    let tool = TestEnvironment::new();
    for (args, wanted) in [
        (vec!["scale", "--threads", "0"], "threads must be"),
        (vec!["scale", "--replicas", "3..1"], "is descending"),
        (
            vec!["scale", "--replicas", "0..2", "--check-prediction"],
            "5 numbers of replicas",
        ),
        (vec!["scale", "--mode", "galera"], "no read replicas"),
        (vec!["scale", "--data-size", "much"], "is not a size"),
        (vec!["scale", "--data-size", "0"], "makes an empty data set"),
        (
            vec!["scale", "--replicas", "0..4", "--threads", "2"],
            "2 clients cannot read from 4 servers",
        ),
        (
            vec!["scale", "--reads", "nowhere"],
            "is not a place for reads",
        ),
        (vec!["scale", "--duration", "1ms"], "is mostly startup"),
        (vec!["scale", "--raw"], "--raw"),
        (
            vec!["scale", "--cpus-per-server", "0.01"],
            "is not a number of cores",
        ),
    ] {
        let _ = tool.run(&args).with_code(2).stderr_contains(wanted);
    }
    let ended = tool
        .run(&["scale", "--replicas", "0..2", "--cpus-per-server", "1000"])
        .with_code(3);
    let _ = ended.stderr_contains("exceed the cores");
    assert!(
        tool.runs().is_empty(),
        "nothing is left of a run that never began"
    );
}

fn cpu_shares_are_reported() {
    let tool = TestEnvironment::new();
    let ended = scale(
        &tool,
        &[
            "--replicas",
            "1",
            "--starts",
            "1",
            "--cpus-per-server",
            "0.4",
            "--mode",
            "mariadb/async",
            "--json",
        ],
    );
    if ended.code == Some(3) {
        let _ = ended.stderr_contains("needs a control group, which cannot be created");
        return skip("no control group can be created here");
    }
    let document = ended.with_code(0).json();
    assert!(
        document["results"]["cpus_per_server"]
            .as_str()
            .unwrap()
            .starts_with("0.4"),
        "{document:#}"
    );
    for result in document["results"]["rows"].as_array().unwrap() {
        for server in result["servers"].as_array().unwrap() {
            assert!(
                number(&server["cpu_percent"]) < 60.0,
                "no server has more than its share: {result:#}"
            );
        }
    }
    nothing_runs(&tool);
}
