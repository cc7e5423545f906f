//! Replays recorded runs: their results are computed again, and must equal the recorded ones.
//!
//! Each folder of `tests/net` that holds `calls.jsonl.gz` is a run on real servers, recorded by `scripts/record-net` with
//! `REPLIMETER_RECORD`. Its files:
//!
//! - `calls.jsonl.gz`, the input of the summary, in order: a line for each [`Call`](replimeter_run::Measurement::Call)
//!   of the measurement (shapes, samples, blocks, rounds, windows, crashes, outcomes), and in the last line how the run
//!   ended (`Ended`): clock, keep-awake, priority, its failure, and the warnings of checks and clean-up;
//! - `readings.jsonl.gz`, for measurements that summarize some data before the calls: that data;
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
    cell::RefCell,
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

const CALLS: &str = "calls.jsonl.gz";
/// Maximum number of differences that are shown for a document.
const SHOWN: usize = 20;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/net")
}

/// The recorded runs.
fn cases() -> Vec<PathBuf> {
    let folders = fs::read_dir(root())
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut cases: Vec<PathBuf> = folders
        .filter(|folder| folder.join(CALLS).exists())
        .collect();
    cases.sort();
    cases
}

fn lines(path: &Path) -> Vec<Value> {
    let file = BufReader::new(GzDecoder::new(File::open(path).unwrap()));
    file.lines()
        .map(|line| serde_json::from_str(&line.unwrap()).unwrap())
        .collect()
}

/// Paths that were renamed since runs were recorded, as `old = "new"`.
///
/// In a path `[]` stands for every index; a path stands for all below it, and the longest match applies. `COMMAND:old` is
/// for that command alone. `-old` are removed paths; their value is the reason.
struct Renamed {
    entries: BTreeMap<String, String>,
    used: RefCell<BTreeSet<String>>,
}

impl Renamed {
    fn of(text: &str) -> Self {
        let entries: BTreeMap<String, String> = toml::from_str(text).unwrap();
        Self {
            entries,
            used: RefCell::default(),
        }
    }

    fn read(name: &str) -> Self {
        Self::of(&fs::read_to_string(root().join(name)).unwrap())
    }

    /// Returns the entry for a path after the prefix `sign`: its replacement, and the rest of the path.
    fn entry<'a>(&self, sign: &str, command: &str, path: &'a str) -> Option<(&str, &'a str)> {
        let ends = path
            .match_indices(['.', '['])
            .map(|(at, _)| at)
            .chain([path.len()])
            .collect::<Vec<_>>();
        ends.into_iter().rev().find_map(|end| {
            let (head, rest) = path.split_at(end);
            [format!("{command}:{sign}{head}"), format!("{sign}{head}")]
                .into_iter()
                .find_map(|key| {
                    let new = self.entries.get(&key)?;
                    self.used.borrow_mut().insert(key);
                    Some((new.as_str(), rest))
                })
        })
    }

    /// Returns the leaves of a recorded value by their current paths.
    fn today(&self, command: &str, recorded: &Value) -> BTreeMap<String, Value> {
        let mut today = BTreeMap::new();
        for (path, value) in leaves(recorded) {
            let (generic, indexes) = generic(&path);
            if self.entry("-", command, &generic).is_some() {
                continue;
            }
            let path = match self.entry("", command, &generic) {
                Some((new, rest)) => specific(&format!("{new}{rest}"), &indexes),
                None => path,
            };
            today.insert(path, value);
        }
        today
    }

    /// Returns a recorded value with its current names.
    fn renamed(&self, command: &str, recorded: Value) -> Value {
        if self.entries.is_empty() {
            return recorded;
        }
        let mut value = Value::Null;
        for (path, leaf) in self.today(command, &recorded) {
            put(&mut value, &path, leaf);
        }
        value
    }

    /// Returns the unused entries.
    fn unused(&self) -> Vec<&String> {
        self.entries
            .keys()
            .filter(|key| !self.used.borrow().contains(*key))
            .collect()
    }
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
    fn walk(value: &Value, path: String, found: &mut BTreeMap<String, Value>) {
        match value {
            Value::Object(map) if !map.is_empty() => {
                for (key, value) in map {
                    walk(
                        value,
                        if path.is_empty() {
                            key.clone()
                        } else {
                            format!("{path}.{key}")
                        },
                        found,
                    );
                }
            }
            Value::Array(all) if !all.is_empty() => {
                all.iter()
                    .enumerate()
                    .for_each(|(index, value)| walk(value, format!("{path}[{index}]"), found));
            }
            leaf => _ = found.insert(path, leaf.clone()),
        }
    }
    let mut found = BTreeMap::new();
    walk(value, String::new(), &mut found);
    found
}

/// Returns a path with `[]` for every index, and the indexes.
fn generic(path: &str) -> (String, Vec<&str>) {
    let (mut generic, mut indexes) = (String::new(), Vec::new());
    for (number, part) in path.split('[').enumerate() {
        match part.split_once(']') {
            Some((index, rest)) if number > 0 => {
                indexes.push(index);
                generic.push_str("[]");
                generic.push_str(rest);
            }
            _ => generic.push_str(part),
        }
    }
    (generic, indexes)
}

/// Returns a path with these indexes.
fn specific(generic: &str, indexes: &[&str]) -> String {
    assert_eq!(
        generic.matches("[]").count(),
        indexes.len(),
        "{generic}: a renamed path has as many indexes as before"
    );
    let mut indexes = indexes.iter();
    let parts = generic.split("[]").enumerate();
    parts
        .map(|(number, part)| {
            if number == 0 {
                part.to_owned()
            } else {
                format!("[{}]{part}", indexes.next().unwrap())
            }
        })
        .collect()
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
    *place = leaf;
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
    dir: PathBuf,
    command: &'static str,
    plan: String,
    manifest: Manifest,
    calls: Vec<Value>,
    scratch: TempDir,
}

impl Recorded {
    fn open(dir: &Path, renamed: &Renamed) -> Self {
        let text = fs::read_to_string(dir.join("run").join(PLAN)).unwrap();
        let manifest =
            serde_json::from_str(&fs::read_to_string(dir.join("run").join(MANIFEST)).unwrap())
                .unwrap();
        let command = command(&text);
        let calls = lines(&dir.join(CALLS))
            .into_iter()
            .map(|call| renamed.renamed(command, call))
            .collect();
        Self {
            dir: dir.to_owned(),
            command,
            plan: text,
            manifest,
            calls,
            scratch: TempDir::new().unwrap(),
        }
    }

    /// Returns the path of its recorded results.
    fn summary(&self) -> PathBuf {
        self.dir.join("run").join(SUMMARY)
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
    let calls = Renamed::read("renamed-calls.toml");
    let update = env::var("UPDATE_NET").is_ok_and(|part| part == "runs");
    let mut wrong = Vec::new();
    for dir in cases() {
        let recorded = Recorded::open(&dir, &calls);
        let now = recorded.replay().run.unwrap().json().unwrap();
        let now: Value = serde_json::from_str(&now).unwrap();
        if update {
            fs::write(recorded.summary(), format!("{now}\n")).unwrap();
        }
        let summary = fs::read_to_string(recorded.summary()).unwrap();
        let differences = differences(&serde_json::from_str(&summary).unwrap(), &now);
        if !differences.is_empty() {
            wrong.push(format!(
                "{}: {} values differ\n  {}",
                dir.file_name().unwrap().display(),
                differences.len(),
                differences[..differences.len().min(SHOWN)].join("\n  ")
            ));
        }
    }
    wrong.extend(
        calls
            .unused()
            .iter()
            .map(|key| format!("renamed-calls.toml: `{key}` is unused")),
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Runs that end before their first figure do not have partial results.
#[test]
fn interruption_without_a_figure_is_not_partial() {
    let renamed = Renamed::read("renamed-calls.toml");
    for (case, row) in [
        ("backlog", "/shape_ended/rows"),
        ("cost", "/block"),
        ("exposure", "/outcome/row"),
        ("scale", "/block"),
    ] {
        let mut recorded = Recorded::open(&root().join(case), &renamed);
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
    let calls = Renamed::read("renamed-calls.toml");
    let update = env::var("UPDATE_NET").is_ok_and(|part| part == "runs");
    for dir in cases() {
        let recorded = Recorded::open(&dir, &calls);
        let Some(histograms) = recorded.replay().histograms else {
            assert!(
                !dir.join("run").join(HISTOGRAMS).exists(),
                "{}",
                dir.display()
            );
            continue;
        };
        let took = Duration::from_nanos(histograms.took.0.unsigned_abs());
        let now =
            replimeter_render::histograms::log(SystemTime::UNIX_EPOCH, took, &histograms.series)
                .unwrap();
        let kept = dir.join("run").join(HISTOGRAMS);
        if update && bars(&now) != bars(&fs::read(&kept).unwrap()) {
            fs::write(&kept, &now).unwrap();
        }
        let before = fs::read(kept).unwrap();
        assert_eq!(bars(&now), bars(&before), "{}", dir.display());
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
    let calls = Renamed::read("renamed-calls.toml");
    let update = env::var("UPDATE_NET").is_ok_and(|part| part == "runs");
    for dir in cases() {
        let recorded = Recorded::open(&dir, &calls);
        recorded.replay();
        let kept = dir.join("run").join(SAMPLES);
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
        assert!(different.is_none(), "{}: {different:?}", dir.display());
        assert!(
            now.0 == before.0 && now.1.len() == before.1.len(),
            "{}: {} and {} rows",
            dir.display(),
            now.1.len(),
            before.1.len()
        );
    }
}

#[test]
fn every_command_has_recorded_runs() {
    let commands: BTreeSet<String> = cases()
        .iter()
        .map(|dir| {
            let text = fs::read_to_string(dir.join("run").join(PLAN)).unwrap();
            command(&text).to_owned()
        })
        .collect();
    let wanted = registry().entries().map(|entry| entry.name().to_owned());
    assert_eq!(commands, wanted.collect());
}

#[test]
fn path_is_renamed_by_the_longest_entry() {
    let map = "answer = \"headline\"\n\"results[]\" = \"results.rows[]\"\n\"loss:results[].missing\" = \"results.rows[].lost\"\n\"-old\" = \"why\"\n";
    let renamed = Renamed::of(map);
    let recorded = serde_json::json!({"answer": "a", "old": [1, 2], "results": [{"missing": 1, "n": null}, {"missing": 2, "n": []}]});
    let now = serde_json::json!({"headline": "a", "results": {"rows": [{"lost": 1, "n": null}, {"lost": 2, "n": []}]}});
    assert_eq!(renamed.renamed("loss", recorded.clone()), now);
    assert!(renamed.unused().is_empty());
    let of_lag = renamed.renamed("lag", recorded);
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
