//! Replays recorded runs: their results are computed again, and must equal the recorded ones.
//!
//! Each folder of `tests/net` that has a folder `run` is a run on real servers, recorded by `scripts/record-net` with
//! `REPLIMETER_RECORD`. Its files:
//!
//! - `calls.jsonl.gz`, the input of the summary, in order: a line for each [`Call`](replimeter_run::Measurement::Call)
//!   of the measurement (shapes, samples, blocks, rounds, windows, crashes, outcomes), and in the last line how the run
//!   ended (`Ended`): clock, keep-awake, priority, its failure, and the warnings of checks and clean-up;
//! - `run/`, the run's directory: plan, manifest, results, samples, histograms.
//!
//! A live run and a replay share one function that takes the calls (`Measurement::take`) and one that makes the results from the
//! gathered state (`Measurement::conclude`). New code takes the same calls, through an adapter where its types differ, and must make
//! the same results. Names may change, through `tests/net/renamed-calls.toml` for the calls; in the results they are changed in
//! `run/summary.json` too, which `report` reads, by `UPDATE_NET=runs`. Numbers may not: the suite `net_values` checks each of them
//! under its first name.
//!
//! Nothing depends on the clock: bootstraps are seeded by constants, orders by the plan. Facts of the environment (dates,
//! paths, cores) are in the record, in which the machine's own names are replaced.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    fs::{self, File},
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
    time::{Duration, SystemTime},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use flate2::read::GzDecoder;
use hdrhistogram::{
    Histogram,
    serialization::{
        Deserializer,
        interval_log::{IntervalLogHistogram, IntervalLogIterator, LogEntry},
    },
};
use parquet::file::reader::{FileReader, SerializedFileReader};
use replimeter_engine::manifest::complete;
use replimeter_measurements::registry;
use replimeter_model::manifest::Manifest;
use replimeter_run::{
    Replayed,
    cli_error::CliError,
    options::CommandLineSettings,
    run_dir::{HISTOGRAMS, MANIFEST, PLAN, SAMPLES, SUMMARY},
};
use serde_json::{Map, Value};
use tempfile::TempDir;

use super::{RenamedKeys, cases, root};

const CALLS: &str = "calls.jsonl.gz";
const CALL_NAMES: &str = "renamed-calls.toml";
/// Maximum number of differences that are shown for a document.
const SHOWN: usize = 20;

fn lines(path: &Path) -> Vec<Value> {
    let file = BufReader::new(GzDecoder::new(File::open(path).unwrap()));
    file.lines()
        .map(|line| serde_json::from_str(&line.unwrap()).unwrap())
        .collect()
}

/// Returns a recorded value with the names of today.
fn renamed(names: &RenamedKeys, command: &str, recorded: Value) -> Value {
    let mut roots = recorded.as_object().into_iter().flat_map(Map::keys);
    if !roots.any(|root| names.may_rename(root)) {
        return recorded;
    }
    let mut value = Value::Null;
    for (path, part) in parts(&recorded, &|path| names.go_below(path)) {
        if let Some(path) = names.today(command, &path) {
            put(&mut value, &path, part);
        }
    }
    value
}

/// Returns the differences between two documents.
fn differences(recorded: &Value, now: &Value) -> Vec<String> {
    let (recorded, now) = (leaves(recorded), leaves(now));
    let paths: BTreeSet<&String> = recorded.keys().chain(now.keys()).collect();
    let word = |value: Option<&Value>| value.map_or_else(|| "nothing".to_owned(), Value::to_string);
    paths
        .into_iter()
        .filter(|path| recorded.get(*path) != now.get(*path))
        .map(|path| {
            format!(
                "{path}: {} was recorded, the same calls now give {}",
                word(recorded.get(path)),
                word(now.get(path))
            )
        })
        .collect()
}

/// Returns every value that is neither an object nor a list, and every empty one, by path.
fn leaves(value: &Value) -> BTreeMap<String, Value> {
    parts(value, &|_| true)
}

/// Returns the same, and objects and lists that are not `divided`, as a whole.
fn parts(value: &Value, divided: &dyn Fn(&str) -> bool) -> BTreeMap<String, Value> {
    type Divided<'a> = &'a dyn Fn(&str) -> bool;
    fn walk(
        value: &Value,
        path: String,
        divided: Divided<'_>,
        found: &mut BTreeMap<String, Value>,
    ) {
        match value {
            Value::Object(map) if !map.is_empty() && divided(&path) => {
                for (key, value) in map {
                    let path = match path.as_str() {
                        "" => key.clone(),
                        _ => format!("{path}.{key}"),
                    };
                    walk(value, path, divided, found);
                }
            }
            Value::Array(all) if !all.is_empty() && divided(&path) => {
                for (index, value) in all.iter().enumerate() {
                    walk(value, format!("{path}[{index}]"), divided, found);
                }
            }
            whole => _ = found.insert(path, whole.clone()),
        }
    }
    let mut found = BTreeMap::new();
    walk(value, String::new(), divided, &mut found);
    found
}

/// Inserts a leaf at its path.
fn put(mut place: &mut Value, path: &str, leaf: Value) {
    for step in path
        .replace('[', ".[")
        .split('.')
        .filter(|step| !step.is_empty())
    {
        if let Some(index) = step
            .strip_prefix('[')
            .and_then(|step| step.strip_suffix(']'))
            .and_then(|step| step.parse::<usize>().ok())
        {
            if place.is_null() {
                *place = Value::Array(Vec::new());
            }
            let all = place.as_array_mut().unwrap();
            if all.len() <= index {
                all.resize(index + 1, Value::Null);
            }
            place = &mut all[index];
        } else {
            if place.is_null() {
                *place = Value::Object(Map::new());
            }
            place = place
                .as_object_mut()
                .unwrap()
                .entry(step)
                .or_insert(Value::Null);
        }
    }
    match (place, leaf) {
        // A part that came from elsewhere is there.
        (Value::Object(place), Value::Object(leaf)) => place.extend(leaf),
        (place, leaf) => *place = leaf,
    }
}

/// Returns the measurement of a plan.
fn command(plan: &str) -> &'static str {
    registry()
        .plan(plan, &CommandLineSettings::default())
        .unwrap()
        .name()
}

/// A recorded run.
struct Recorded {
    /// Its run directory.
    run: PathBuf,
    command: &'static str,
    plan: String,
    manifest: Manifest,
    calls: Vec<Value>,
    scratch: TempDir,
}

impl Recorded {
    fn open(case: &str, names: &RenamedKeys) -> Self {
        let folder = root().join(case);
        let run = folder.join("run");
        let plan = fs::read_to_string(run.join(PLAN)).unwrap();
        let manifest = fs::read_to_string(run.join(MANIFEST)).unwrap();
        let mut manifest: Manifest = serde_json::from_str(&manifest).unwrap();
        complete(&mut manifest.servers);
        let command = command(&plan);
        let calls = lines(&folder.join(CALLS))
            .into_iter()
            .map(|call| renamed(names, command, call))
            .collect();
        Self {
            run,
            command,
            plan,
            manifest,
            calls,
            scratch: TempDir::new().unwrap(),
        }
    }

    /// Returns the path to which its rows are written again.
    fn samples(&self) -> PathBuf {
        self.scratch.path().join(SAMPLES)
    }

    /// Computes its results again, and writes its samples again.
    fn replay(&self) -> Replayed {
        let entry = registry().get(self.command).unwrap();
        entry
            .replay(
                &self.plan,
                &self.manifest,
                &mut self.calls.iter().cloned().map(Ok),
                &self.samples(),
                &AtomicBool::new(false),
            )
            .unwrap_or_else(|failure| panic!("{}", failure.message))
    }
}

#[test]
fn recorded_runs_reproduce_the_same_results() {
    let names = RenamedKeys::read(CALL_NAMES);
    let update = env::var("UPDATE_NET").is_ok_and(|part| part == "runs");
    let mut wrong = Vec::new();
    for case in cases() {
        let recorded = Recorded::open(&case, &names);
        let now = recorded.replay().run.unwrap().json().unwrap();
        let now: Value = serde_json::from_str(&now).unwrap();
        let kept = recorded.run.join(SUMMARY);
        if update {
            fs::write(&kept, format!("{now}\n")).unwrap();
        }
        let summary = fs::read_to_string(kept).unwrap();
        let differences = differences(&serde_json::from_str(&summary).unwrap(), &now);
        if !differences.is_empty() {
            wrong.push(format!(
                "{case}: {} values differ\n  {}",
                differences.len(),
                differences[..differences.len().min(SHOWN)].join("\n  ")
            ));
        }
    }
    wrong.extend(
        names
            .unused()
            .iter()
            .map(|key| format!("{CALL_NAMES}: `{key}` is unused")),
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Runs that end before their first figure do not have partial results.
#[test]
fn interruption_without_a_figure_is_not_partial() {
    let names = RenamedKeys::read(CALL_NAMES);
    for (case, row) in [
        ("backlog", "/shape_ended/rows"),
        ("cost", "/block"),
        ("exposure", "/outcome/row"),
        ("scale", "/block"),
    ] {
        let mut recorded = Recorded::open(case, &names);
        recorded.calls.retain(|call| call.get("block").is_none());
        for call in &mut recorded.calls {
            let rows = match call.pointer_mut(row) {
                Some(Value::Array(rows)) => rows.iter_mut().collect(),
                Some(row) => vec![row],
                None => Vec::new(),
            };
            for row in rows {
                for rate in ["load_per_s", "sustained_per_s", "catch_up_per_s"] {
                    if let Some(mean) = row.pointer_mut(&format!("/{rate}/mean")) {
                        *mean = Value::Null;
                    }
                }
                if let Some(polls) = row.get_mut("polls") {
                    *polls = 0.into();
                }
            }
            if let Some(failure) = call.pointer_mut("/ended/failure") {
                *failure = serde_json::to_value(CliError::partial()).unwrap();
            }
        }
        // A run that has nothing to report ends without a document.
        let Some(run) = recorded.replay().run else {
            assert!(["cost", "scale"].contains(&case), "{case}");
            continue;
        };
        let document = run.json().unwrap();
        assert!(!document.contains("partial"), "{case}: {document}");
        let document: Value = serde_json::from_str(&document).unwrap();
        assert_eq!(
            document["headline"], "The run was interrupted before anything was measured.",
            "{case}"
        );
    }
}

/// Returns the contents of a histogram log: for each name its duration and its bars.
fn bars(log: &[u8]) -> BTreeMap<String, (Duration, Vec<(u64, u64)>)> {
    let intervals = IntervalLogIterator::new(log).filter_map(|entry| match entry.unwrap() {
        LogEntry::Interval(interval) => Some(interval),
        LogEntry::StartTime(_) | LogEntry::BaseTime(_) => None,
    });
    let of = |interval: IntervalLogHistogram<'_>| {
        let packed = BASE64_STANDARD
            .decode(interval.encoded_histogram())
            .unwrap();
        let histogram: Histogram<u64> = Deserializer::new()
            .deserialize(&mut packed.as_slice())
            .unwrap();
        let bars = histogram
            .iter_recorded()
            .map(|bar| (bar.value_iterated_to(), bar.count_at_value()))
            .collect();
        (
            interval.tag().unwrap().as_str().to_owned(),
            (interval.duration(), bars),
        )
    };
    intervals.map(of).collect()
}

#[test]
fn recorded_runs_reproduce_the_same_histograms() {
    let names = RenamedKeys::read(CALL_NAMES);
    let update = env::var("UPDATE_NET").is_ok_and(|part| part == "runs");
    for case in cases() {
        let recorded = Recorded::open(&case, &names);
        let kept = recorded.run.join(HISTOGRAMS);
        let Some(histograms) = recorded.replay().histograms else {
            assert!(!kept.exists(), "{case}");
            continue;
        };
        let took = Duration::from_nanos(histograms.took.0.unsigned_abs());
        let now =
            replimeter_render::histograms::log(SystemTime::UNIX_EPOCH, took, &histograms.series)
                .unwrap();
        if update && bars(&now) != bars(&fs::read(&kept).unwrap()) {
            fs::write(&kept, &now).unwrap();
        }
        let before = fs::read(kept).unwrap();
        assert_eq!(bars(&now), bars(&before), "{case}");
    }
}

/// Returns the schema of a file of samples, and its rows as texts.
fn rows(path: &Path) -> (String, Vec<String>) {
    let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
    let columns = reader
        .metadata()
        .file_metadata()
        .schema_descr()
        .columns()
        .iter()
        .map(|column| format!("{column:?}"))
        .collect();
    (
        columns,
        reader
            .get_row_iter(None)
            .unwrap()
            .map(|row| row.unwrap().to_string())
            .collect(),
    )
}

#[test]
fn recorded_runs_reproduce_the_same_samples() {
    let names = RenamedKeys::read(CALL_NAMES);
    let update = env::var("UPDATE_NET").is_ok_and(|part| part == "runs");
    for case in cases() {
        let recorded = Recorded::open(&case, &names);
        recorded.replay();
        let kept = recorded.run.join(SAMPLES);
        // Only if columns were renamed: a file that is written again never has the same bytes.
        if update && rows(&recorded.samples()).0 != rows(&kept).0 {
            fs::copy(recorded.samples(), &kept).unwrap();
        }
        let (now, before) = (rows(&recorded.samples()), rows(&kept));
        let different = now
            .1
            .iter()
            .zip(&before.1)
            .find(|(now, before)| now != before);
        assert!(different.is_none(), "{case}: {different:?}");
        assert!(
            now.0 == before.0 && now.1.len() == before.1.len(),
            "{case}: {} and {} rows",
            now.1.len(),
            before.1.len()
        );
    }
}

#[test]
fn every_command_has_recorded_runs() {
    let commands: BTreeSet<String> = cases()
        .iter()
        .map(|case| {
            let text = fs::read_to_string(root().join(case).join("run").join(PLAN)).unwrap();
            command(&text).to_owned()
        })
        .collect();
    let wanted = registry().entries().map(|entry| entry.name().to_owned());
    assert_eq!(commands, wanted.collect());
}

#[test]
fn recorded_call_gets_the_names_of_today() {
    let map = "answer = \"headline\"\n\"results[]\" = \"results.rows[]\"\n\"loss:results[].missing\" = \"results.rows[].lost\"\n\"-old\" = \"why\"\n";
    let names = RenamedKeys::of(map);
    let recorded = serde_json::json!({"answer": "a", "old": [1, 2], "results": [{"missing": 1, "n": null}, {"missing": 2, "n": []}]});
    let now = serde_json::json!({"headline": "a", "results": {"rows": [{"lost": 1, "n": null}, {"lost": 2, "n": []}]}});
    assert_eq!(renamed(&names, "loss", recorded.clone()), now);
    assert!(names.unused().is_empty());
    let of_lag = renamed(&names, "lag", recorded);
    assert_eq!(
        differences(&of_lag, &now).len(),
        4,
        "`missing` is renamed for loss alone"
    );
}

#[test]
fn changed_number_is_a_difference() {
    let (one, other) = (
        serde_json::json!({"a": [{"b": 1.5}]}),
        serde_json::json!({"a": [{"b": 1.500_000_000_000_000_2}]}),
    );
    assert_eq!(differences(&one, &other).len(), 1);
    assert!(differences(&one, &one).is_empty());
    assert_eq!(differences(&one, &serde_json::json!({"a": []})).len(), 2);
}
