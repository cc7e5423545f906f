//! What a run leaves in its directory if it is killed, or the disk is full.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use replimeter_render::reading;
use replimeter_suites::{CommandOutput, LIMIT, TestEnvironment, binary, wait_until};
use serde_json::Value;

use super::{ADMIN, Cluster, kill, under_way};

/// Copies a run, and changes its journal.
fn with_journal(run: &Path, to: &Path, change: impl FnOnce(&mut Vec<u8>)) -> String {
    fs::create_dir(to).unwrap();
    for file in fs::read_dir(run).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
    let journal = to.join("run.journal");
    let mut bytes = fs::read(&journal).unwrap();
    change(&mut bytes);
    fs::write(journal, bytes).unwrap();
    to.to_str().unwrap().to_owned()
}

fn summary(run: &Path) -> Value {
    let text = fs::read_to_string(run.join("summary.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn results(run: &Path) -> Value {
    summary(run)["results"].take()
}

pub(super) fn fifth_run_of_a_plan_shows_how_much_runs_differ(cluster: &Cluster) {
    let tool = TestEnvironment::new();
    let measure = |rounds: &str| {
        let ended = cluster.run(&tool, &["--rounds", rounds, "--json"]);
        ended.with_code(0).json()
    };
    for _ in 0..4 {
        assert_eq!(measure("40")["equal_runs"], Value::Null);
    }
    assert_eq!(measure("41")["equal_runs"], Value::Null, "another plan");
    let fifth = measure("40");
    let equal = &fifth["equal_runs"];
    assert_eq!(
        (&equal["runs"], &equal["figure"], &equal["unit"]),
        (&5.into(), &"replica1".into(), &"us".into())
    );
    let [min, max] = ["min", "max"].map(|end| equal[end].as_f64().unwrap());
    let own = fifth["results"]["rows"][0]["estimate"]["p50_us"].as_f64();
    assert!(min <= own.unwrap() && own.unwrap() <= max, "{fifth:#}");
    let headline = fifth["headline"].as_str().unwrap();
    assert!(headline.contains("5 runs of this plan here"), "{headline}");
}

pub(super) fn killed_run_has_figures(cluster: &Cluster) {
    let tool = TestEnvironment::new();
    let child = under_way(cluster, &tool, &["--interval", "2ms"]);
    let dir = tool.only_run();
    let (journal, samples) = (dir.join("run.journal"), dir.join("samples.parquet"));
    wait_until("counted rows are on the disk", LIMIT, || {
        fs::metadata(&journal).is_ok_and(|file| file.len() > 20_000)
    });
    let report = |run: &str| tool.run(&["report", run]);
    let run = dir.to_str().unwrap();
    let _ = report(run).with_code(3).stderr_contains("is still active");
    kill(cluster, child);
    // Without an end, and with a last write that was cut off.
    let copied = |name: &str| tool.folder().join(name);
    let cut = with_journal(&dir, &copied("cut"), |bytes| bytes.truncate(99));
    let torn = with_journal(&dir, &copied("torn"), |bytes| {
        bytes.extend(bytes[..99].to_vec())
    });
    let unread = with_journal(&dir, &copied("unread"), |_| ());
    let _ = report(&cut)
        .with_code(3)
        .stderr_contains("it was cut off before `lag` had results")
        .stderr_contains("plan.toml again");
    assert!(!copied("cut").join("summary.json").exists());
    let first = report(run).with_code(0);
    assert!(first.words().contains("was killed"), "{first:#?}");
    assert_eq!(report(run).with_code(0).stdout, first.stdout);
    let _ = report(&torn).with_code(0);
    let found = results(&dir);
    assert_eq!(found, results(&copied("torn")));
    let lag = &found["rows"][0]["from_ack"];
    let p50 = lag["p50_us"].as_f64().unwrap();
    // Rows that depend on each other too much, as on a busy machine, have no interval.
    if let Some(ends) = lag["p50_us_ci95"].as_array() {
        let [low, high] = [0, 1].map(|end| ends[end].as_f64().unwrap());
        assert!(low <= p50 && p50 <= high && low < high, "{lag}");
    }
    let mut measured = 0;
    let rows = reading::read(&samples, &["phase"], |columns, rows| {
        let phases = (0..rows).filter(|row| columns[0].word(*row) == "measure");
        measured += phases.count() as u64;
    });
    assert!(rows.unwrap() > measured && measured > 50);
    assert_eq!(lag["count"].as_u64(), Some(measured));
    let names: Vec<_> = fs::read_dir(&dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert!(names.len() == 7 && !journal.exists(), "{names:?}");
    let host = &summary(&dir)["client"]["host"];
    let window = &host["windows"][0];
    assert!(window["cpu_percent"].as_f64() > Some(0.0), "{host}");
    assert!(window["end_us"].as_f64() > window["begin_us"].as_f64());
    assert!(host["flush_before"].is_null(), "no sandbox: {host}");
    // The next run removes the table.
    let _ = cluster
        .run(&tool, &["--rounds", "20", "--run-dir", "next"])
        .with_code(0);
    let _ = tool.run(&["compare", "next", &unread]).with_code(0);
    assert_eq!(found, results(&copied("unread")));
}

/// Runs `lag` with its run directory on a file system of this size, and copies the directory.
fn on_small_disk(
    cluster: &Cluster,
    tool: &TestEnvironment,
    kib: u32,
    copy: &Path,
) -> CommandOutput {
    let rows = "--rounds 100 --interval 2ms";
    let args = cluster.args(ADMIN, &rows.split(' ').collect::<Vec<_>>());
    let small = tool.folder().join(format!("small-{kib}"));
    fs::create_dir(&small).unwrap();
    let small = small.display();
    let script = format!(
        "mount -t tmpfs -o size={kib}k tmpfs {small} && \"$@\" --run-dir {small}/run; code=$?; cp -r {small}/run {}; exit $code",
        copy.display()
    );
    let mut command = Command::new("unshare");
    // As root directly, otherwise in a user namespace.
    if !rustix::process::geteuid().is_root() {
        command.args(["--map-current-user", "--keep-caps"]);
    }
    let output = command
        .args(["--mount", "sh", "-c", &script, "sh"])
        .arg(binary())
        .args(args)
        .env("REPLIMETER_HOME", tool.home())
        .env("REPLIMETER_PASSWORD", cluster.password())
        .output();
    CommandOutput::of(output.unwrap())
}

/// Files of a run in the order in which they fill a disk. The journal is complete before the histograms are written.
const FILES: [&str; 6] = [
    "manifest.json",
    "samples.parquet",
    "run.journal",
    "histograms.hlog",
    "summary.json",
    "report.html",
];

/// Where a disk became full: the place in [`FILES`] of the file whose write failed, and whether `report` finds results.
type FullAt = (usize, bool);

fn place(file: &str) -> usize {
    FILES.iter().position(|other| *other == file).unwrap()
}

/// Runs on a disk of this size, which becomes full, and checks what is left.
fn full_disk(cluster: &Cluster, tool: &TestEnvironment, name: &str, kib: u32) -> FullAt {
    let copy = tool.folder().join(name);
    let ended = on_small_disk(cluster, tool, kib, &copy)
        .with_code(3)
        .stderr_contains("No space left")
        .stderr_contains("--run-dir");
    let mut files = FILES.iter();
    let file = files.position(|name| ended.stderr.contains(name));
    let file = file.unwrap_or_else(|| panic!("{kib} KiB: {ended:#?}"));
    let Ok(entries) = fs::read_dir(&copy) else {
        // Nothing was measured, so nothing is kept.
        assert_eq!(FILES[file], "manifest.json");
        return (file, false);
    };
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names: Vec<String> = names.collect();
    let hidden = |name: &String| name.starts_with('.') || name.ends_with(".partial");
    assert!(!names.iter().any(hidden), "{kib} KiB: {names:?}");
    // With space, the rest is made, and a record is kept.
    let record = || fs::read_to_string(copy.join("summary.json")).ok();
    let before = record();
    let report = tool.run(&["report", copy.to_str().unwrap()]);
    if report.code == Some(3) {
        // There was no room for the journal either.
        let _ = report.stderr_contains("it was cut off before `lag` had results");
        let earlier = file < place("report.html");
        assert!(earlier && before.is_none(), "{kib} KiB: {ended:#?}");
        return (file, false);
    }
    let report = report.with_code(0);
    assert!(report.words().contains("p50"), "{kib} KiB: {report:#?}");
    assert!(results(&copy)["rows"][0]["from_ack"]["count"].as_u64() > Some(0));
    assert!(before.is_none() || before == record(), "{kib} KiB");
    assert_eq!(fs::read_dir(&copy).unwrap().count(), 7, "{kib} KiB");
    (file, true)
}

pub(super) fn full_disk_is_explained_at_every_write(cluster: &Cluster) {
    let tool = TestEnvironment::new();
    let mut number = 0;
    let mut full_at = |kib| {
        number += 1;
        full_disk(cluster, &tool, &format!("copy-{number}"), kib)
    };
    let mut found: BTreeMap<u32, FullAt> = [8, 72, 108, 400].map(|kib| (kib, full_at(kib))).into();
    let (samples, summary) = (place("samples.parquet"), place("summary.json"));
    // The record is made from the journal if there is no room for the record only.
    for wanted in [
        (samples, false)..=(samples, true),
        (summary, true)..=(summary, true),
    ] {
        // Bisection, in pages of memory; the sizes of the files differ between runs.
        for _ in 0..20 {
            if found.values().any(|at| wanted.contains(at)) {
                break;
            }
            let (low, _) = found.iter().rfind(|(_, at)| *at < wanted.start()).unwrap();
            let (high, _) = found.iter().find(|(_, at)| *at > wanted.end()).unwrap();
            let (low, high) = (*low.min(high), *low.max(high));
            if high - low <= 4 {
                found.retain(|kib, _| [8, 400].contains(kib) || ![low, high].contains(kib));
            } else {
                let middle = (low + high) / 8 * 4;
                found.insert(middle, full_at(middle));
            }
        }
        assert!(
            found.values().any(|at| wanted.contains(at)),
            "no disk was full at {wanted:?}: {found:?}"
        );
    }
    let ends = [found[&8].0, found[&400].0];
    assert_eq!(ends, ["manifest.json", "report.html"].map(place));
}
