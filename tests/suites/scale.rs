//! `replimeter scale` on real servers: its figures, its scaling law, and its
//! behavior on failures.

use std::{fs, path::Path, time::Duration};

use replimeter_suites::{CommandOutput, TestEnvironment, harness::Test, test, wait, wait_until};
use serde_json::Value;

pub(crate) const TESTS: &[Test] = &[
    test!(scale_reports_every_count_phase_and_server),
    test!(law_is_fitted_from_five_counts_and_checked).long(),
    test!(scale_works_on_mysql_and_semi_sync).long(),
    test!(killed_or_interrupted_scale_keeps_results),
    test!(invalid_scale_settings_are_refused),
    test!(cpu_shares_are_reported),
];

/// A short measurement.
fn scale(tool: &TestEnvironment, more: &[&str]) -> CommandOutput {
    let mut args = vec![
        "scale",
        "--duration",
        "1s",
        "--warm-up",
        "200ms",
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
    let tool = TestEnvironment::new();
    let ended = scale(
        &tool,
        &[
            "--replicas",
            "0..1",
            "--starts",
            "2",
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
            assert_eq!(
                (row["starts"].as_u64(), row["blocks"].as_u64()),
                (Some(2), Some(2)),
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
            if inserts {
                let (rate, ends) = (number(&row["inserts_per_s"]), &row["inserts_per_s_ci95"]);
                assert!(
                    number(&ends[0]) <= rate && rate <= number(&ends[1]),
                    "{row:#}"
                );
                assert!(number(&row["write_latency"]["p50_us"]) > 0.0);
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
                    number(&servers[1]["write_bytes_per_op"]) > 0.0,
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
    assert_eq!(order.len(), 2);
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
        "share the",
    ] {
        assert!(text.contains(wanted), "`{wanted}` is missing in {text}");
    }
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

/// Bytes in the binary log of the primary.
fn logged(tool: &TestEnvironment) -> u64 {
    let folders = fs::read_dir(tool.home().join("sandboxes"))
        .into_iter()
        .flatten()
        .flatten();
    let data = folders
        .flat_map(|folder| fs::read_dir(folder.path().join("primary/data")))
        .flatten()
        .flatten();
    let logs = data.filter(|file| file.file_name().to_string_lossy().starts_with("binlog.0"));
    logs.filter_map(|log| log.metadata().ok())
        .map(|meta| meta.len())
        .sum()
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
            "50",
            "--duration",
            "500ms",
            "--warm-up",
            "100ms",
            "--data-size",
            "1MB",
            "--mode",
            "mariadb/async",
            "--json",
        ];
        let child = tool.command(&args).spawn().unwrap();
        let runs = tool.folder().join("replimeter-runs");
        // The first servers are those of seeds; the samples grow once blocks are written.
        wait_until("both servers run", Duration::from_secs(120), || {
            tool.servers().len() == 2 && runs.is_dir()
        });
        // The data are 1 MB of it; each block adds some hundred kilobytes.
        wait_until("blocks are written", Duration::from_secs(120), || {
            logged(&tool) > 4_000_000
        });
        // A fast disk logs that within the first block, which takes 600 ms.
        std::thread::sleep(Duration::from_secs(2));
        let victim = if kill {
            tool.servers()[1]
        } else {
            i32::try_from(child.id()).unwrap()
        };
        let signal = if kill {
            rustix::process::Signal::KILL
        } else {
            rustix::process::Signal::INT
        };
        rustix::process::kill_process(rustix::process::Pid::from_raw(victim).unwrap(), signal)
            .unwrap();
        let ended = wait(child, Duration::from_secs(60));
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
            "0..1",
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
        // Where no control group may be made.
        let _ = ended.stderr_contains("control group");
        return;
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
                number(&server["cpu_percent"]) < 50.0,
                "no server has more than its share: {result:#}"
            );
        }
    }
    nothing_runs(&tool);
}
