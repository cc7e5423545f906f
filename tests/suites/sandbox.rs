//! Sandboxes in use: `lag --sandbox`, the run directory, `report`.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use replimeter_instruments::lag::results::LagDocument;
use replimeter_measurements::lag::samples;
use replimeter_suites::{
    CommandOutput, LIMIT, TestEnvironment, binary, folder, harness::Test, test, wait,
};
use serde_json::Value;

pub(crate) const TESTS: &[Test] = &[
    test!(sandbox_run_works_end_to_end).starts(3),
    test!(terminal_report_of_a_fixed_run_is_stable),
    test!(standalone_server_is_its_own_null_replica).starts(1),
    test!(temporary_tables_of_other_servers_are_kept).starts(1),
    test!(short_published_size_sweep_runs).starts(2),
    test!(filter_that_excludes_the_schema_ends_the_start).starts(2),
    test!(full_disk_ends_a_sandbox).starts(4),
    test!(damaged_run_directories_are_explained),
];

fn json(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// The keys of every distribution.
fn assert_distribution(value: &Value) {
    for key in [
        "count", "min_us", "mean_us", "stdev_us", "p50_us", "p90_us", "p95_us", "p99_us",
        "p999_us", "max_us",
    ] {
        assert!(value.get(key).is_some(), "{key} is missing in {value:#}");
    }
}

fn sandbox_run_works_end_to_end() {
    let tool = TestEnvironment::new();
    let args = [
        "lag",
        "--sandbox",
        "mariadb/async:2",
        "--rounds",
        "300",
        "--interval",
        "3ms",
        "--starts",
        "1",
        "--timeout",
        "60s",
        "--json",
    ];
    let ended = tool
        .run(
            &[
                &args[..],
                &[
                    "--server-option",
                    "sync_binlog=1",
                    "--server-option",
                    "innodb_page_size=8k",
                ],
            ]
            .concat(),
        )
        .with_code(0);
    let document = ended.json();
    assert_eq!(document["schema"], "replimeter.lag/1");
    assert_eq!(document["status"], "complete");
    let rows = document["results"]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    for (row, name) in rows.iter().zip(["replica1", "replica2"]) {
        assert_eq!(
            (row["shape"].as_str(), row["replica"].as_str()),
            (Some("mariadb/async:2"), Some(name))
        );
        assert_eq!(
            (row["method"].as_str(), row["size_bytes"].as_u64()),
            (Some("poll"), Some(1000))
        );
        assert_eq!(
            (row["rounds"].as_u64(), row["timed_out"].as_u64()),
            (Some(300), Some(0))
        );
        for key in [
            "from_ack",
            "from_send",
            "from_intended",
            "bracket_us",
            "estimate",
        ] {
            assert_distribution(&row[key]);
        }
        assert!(row.get("stages").is_some());
        // Every row was sent before it was seen, and the bracket has a width.
        assert!(row["from_send"]["min_us"].as_f64().unwrap() > 0.0);
        assert!(row["bracket_us"]["min_us"].as_f64().unwrap() > 0.0);
        let (ack, send) = (
            row["from_ack"]["mean_us"].as_f64().unwrap(),
            row["from_send"]["mean_us"].as_f64().unwrap(),
        );
        let insert = row["write_latency"]["mean_us"].as_f64().unwrap();
        assert!(
            (send - ack - insert).abs() < 1e-3 * send,
            "from send = insert + from ack: {send} {insert} {ack}"
        );
        assert!(row["from_intended"]["mean_us"].as_f64().unwrap() >= send);
        assert!(
            row["from_ack"]["p99_us"].is_null(),
            "three samples beyond are too few"
        );
        assert!(row["from_ack"]["p90_us"].is_number());
    }
    assert_eq!(
        document["results"]["floors"][0]["rounds"].as_u64(),
        Some(200)
    );
    assert_eq!(document["target"]["fresh_starts"], 1);
    let warm_up = 50;
    assert_eq!(document["results"]["warm_up_rounds"], warm_up);

    let run = tool.only_run();
    assert_eq!(document["run_dir"].as_str(), run.to_str());
    assert_eq!(
        fs::metadata(&run).unwrap().permissions().mode() & 0o777,
        0o700
    );
    assert_eq!(json(&run.join("summary.json")), document);
    let manifest = json(&run.join("manifest.json"));
    assert_eq!(manifest["servers"].as_array().unwrap().len(), 3);
    for server in manifest["servers"].as_array().unwrap() {
        assert_eq!(server["variables"]["sync_binlog"], "1");
        assert_eq!(
            server["variables"]["innodb_page_size"], "8192",
            "the seed is made for its options"
        );
        assert_eq!(server["variables"]["binlog_format"], "ROW");
        assert!(
            server["variables"].as_object().unwrap().len() > 300,
            "every effective value"
        );
    }
    let mut counts = (0, 0, 0);
    let total = samples::read(&run.join("samples.parquet"), |_, name, sample| match sample
        .write
        .phase
        .name()
    {
        "measure" if name == "replica1" => counts.0 += 1,
        "measure" if name == "replica2" => counts.1 += 1,
        "floor" => counts.2 += 1,
        _ => {}
    });
    assert_eq!(counts, (300, 300, 200));
    // And the warm-up on both replicas, the rows of the reference queries, and the first row of the start.
    let all = (300 + 200 + warm_up + 1) * 2;
    assert_eq!(total.unwrap() as u64, all);

    // Rendered again without a server, to the same figures.
    fs::remove_file(run.join("report.html")).unwrap();
    let again = tool
        .run(&["report", run.to_str().unwrap(), "--json"])
        .with_code(0)
        .json();
    assert_eq!(again, document);
    assert!(fs::metadata(run.join("report.html")).unwrap().len() < 6 << 20);
    let text = tool
        .run(&["report", run.to_str().unwrap()])
        .with_code(0)
        .stdout;
    assert!(
        text.contains("lag from ack") && text.contains("█"),
        "{text}"
    );

    // The stored plan runs again unchanged.
    let plan = fs::read_to_string(run.join("plan.toml")).unwrap();
    let again = tool
        .run(&["run", "--dry-run", run.join("plan.toml").to_str().unwrap()])
        .with_code(0);
    assert_eq!(again.planned(), plan);
}

fn terminal_report_of_a_fixed_run_is_stable() {
    // Times differ from run to run; a stored document does not.
    let document: LagDocument = serde_json::from_str(include_str!("data/summary.json")).unwrap();
    insta::assert_snapshot!(
        "terminal",
        replimeter_render::terminal::render(&replimeter_measurements::lag::report::report(
            &document, true
        ))
    );
}

fn standalone_server_is_its_own_null_replica() {
    let tool = TestEnvironment::new();
    let args = [
        "lag",
        "--sandbox",
        "none",
        "--rounds",
        "50",
        "--interval",
        "2ms",
        "--floor-rounds",
        "0",
        "--timeout",
        "60s",
        "--json",
    ];
    let document = tool.run(&args).with_code(0).json();
    assert_eq!(
        document["results"]["rows"][0]["replica"],
        "primary (null replica)"
    );
    assert!(document["results"]["floors"].as_array().unwrap().is_empty());
}

/// MariaDB removes the temporary tables in its folder when it starts.
fn temporary_tables_of_other_servers_are_kept() {
    let temporary = folder();
    fs::set_permissions(temporary.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let table = temporary.path().join("#sql-temptable-1-2-3.MAD");
    fs::write(&table, "rows").unwrap();
    let args = "lag --sandbox mariadb/none --rounds 20 --floor-rounds 0 --timeout 60s";
    let tool = TestEnvironment::new();
    let child = tool
        .command(&args.split(' ').collect::<Vec<_>>())
        .env("TMPDIR", temporary.path())
        .spawn();
    let _ = wait(child.unwrap(), LIMIT).with_code(0);
    assert_eq!(fs::read_to_string(&table).unwrap(), "rows");
}

fn short_published_size_sweep_runs() {
    let tool = TestEnvironment::new();
    let plan =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../plans/size-sweep.toml"))
            .unwrap();
    let short = plan
        .replace("sweeps = 10", "sweeps = 2\ntimeout = \"60s\"")
        .replace("200ms", "20ms");
    fs::write(tool.folder().join("short.toml"), short).unwrap();
    let text = tool
        .run(&["run", "short.toml", "--raw"])
        .with_code(0)
        .stdout;
    let raw = text
        .lines()
        .skip_while(|line| !line.trim_start().starts_with("step  row id"))
        .skip(1)
        .take_while(|line| !line.is_empty());
    assert_eq!(raw.count(), 22, "one raw line for each step of both sweeps");
    let document = json(&tool.only_run().join("summary.json"));
    let loops = document["results"]["size_sweep"][0]["loops"]
        .as_array()
        .unwrap();
    assert_eq!(loops.len(), 22);
    let sizes: Vec<u64> = loops
        .iter()
        .take(11)
        .map(|row| row["size_bytes"].as_u64().unwrap())
        .collect();
    assert_eq!(
        sizes,
        [
            1000, 1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000, 9000, 10_000
        ]
    );
    for row in loops {
        let part = |key: &str| row[key].as_f64().unwrap();
        assert!(
            (part("total_us") - part("insert_us") - part("retrieval_us") - part("bare_us")).abs()
                < 1e-6
        );
    }
    // A row for all sizes together, and one for each.
    assert_eq!(document["results"]["rows"].as_array().unwrap().len(), 11);
    assert!(document["results"]["rows"][0]["size_bytes"].is_null());
}

fn filter_that_excludes_the_schema_ends_the_start() {
    let tool = TestEnvironment::new();
    let ended = tool
        .run(&[
            "lag",
            "--server-option",
            "replicate_ignore_db=replimeter",
            "--sandbox",
            "mariadb/async:1",
        ])
        .with_code(3);
    let _ = ended
        .stderr_contains("replica1 does not replicate")
        .stderr_contains("ignores the schema");
    assert!(tool.runs().is_empty());
}

/// Runs `lag` with its run directory on a file system of this size, and lists the files that are left there.
fn on_small_disk(tool: &TestEnvironment, size: &str, rounds: u32) -> CommandOutput {
    // As root directly, otherwise in a user namespace.
    let script = format!(
        "mount -t tmpfs -o size={size} tmpfs {small} && {binary} lag --sandbox async:1 --starts 1 --timeout 60s --pace visible --rounds {rounds} --run-dir {small}/run; code=$?; find {small} -mindepth 1 -printf 'left: %f\\n'; exit $code",
        small = tool.folder().join("small").display(),
        binary = binary().display()
    );
    let mut command = std::process::Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--map-current-user", "--keep-caps"]);
    }
    let output = command
        .args(["--mount", "sh", "-c", &script])
        .env("REPLIMETER_HOME", tool.home())
        .output()
        .unwrap();
    CommandOutput::of(output)
        .with_code(3)
        .stderr_contains("No space left")
        .stderr_contains("--run-dir")
}

fn full_disk_ends_a_sandbox() {
    let tool = TestEnvironment::new();
    fs::create_dir(tool.folder().join("small")).unwrap();
    // Before the first row, and in the middle of the run: the samples or the journal, whichever is written first.
    for (size, file, kept) in [("8k", "manifest.json", false), ("256k", "small/run/", true)] {
        let ended = on_small_disk(&tool, size, 200_000).stderr_contains(file);
        let lines = ended.stdout.lines();
        let left: Vec<&str> = lines
            .filter_map(|line| line.strip_prefix("left: "))
            .collect();
        assert_eq!(left.contains(&"run.journal"), kept, "{left:?}");
        let hidden = |name: &&str| name.starts_with('.') || name.ends_with(".partial");
        assert!(!left.iter().any(hidden), "{left:?}");
        let words = ended.words();
        for text in ["Replimeter lag", "The run failed"] {
            assert_eq!(words.contains(text), kept, "{size}: {ended:#?}");
        }
        assert_eq!(tool.servers(), [0; 0]);
    }
}

fn damaged_run_directories_are_explained() {
    let tool = TestEnvironment::new();
    let run = tool.folder().join("run");
    fs::create_dir(&run).unwrap();
    let _ = tool
        .run(&["report", "run"])
        .with_code(2)
        .stderr_contains("summary.json");
    let report = || tool.run(&["report", "run"]).with_code(3);
    fs::write(run.join("summary.json"), "{").unwrap();
    let _ = report().stderr_contains("summary.json");
    fs::write(
        run.join("summary.json"),
        r#"{"schema":"replimeter.lag/99"}"#,
    )
    .unwrap();
    let _ = report().stderr_contains("replimeter.lag/99");
    fs::write(run.join("summary.json"), include_str!("data/summary.json")).unwrap();
    let _ = report().stderr_contains("manifest.json");
    fs::write(
        run.join("manifest.json"),
        include_str!("data/manifest.json"),
    )
    .unwrap();
    let _ = report().stderr_contains("plan.toml");
    fs::write(run.join("plan.toml"), "").unwrap();
    let _ = report().stderr_contains("samples.parquet");
    fs::write(run.join("samples.parquet"), b"PAR1").unwrap();
    let _ = report().stderr_contains("samples.parquet");
    assert!(!run.join("report.html").exists());
}
