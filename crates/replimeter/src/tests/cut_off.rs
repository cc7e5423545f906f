//! Runs that were cut off: `report` completes them from their journal.

use std::{
    collections::BTreeMap,
    io::{Read as _, Write},
};

use flate2::{Compression, read::GzDecoder, write::GzEncoder};

use super::*;

const JOURNAL: &str = "run.journal";

/// Writes a journal of these calls.
fn journal(dir: &Path, calls: &[Value]) {
    let mut chunk = GzEncoder::new(Vec::new(), Compression::fast());
    for call in calls {
        writeln!(chunk, "{call}").unwrap();
    }
    fs::write(dir.join(JOURNAL), chunk.finish().unwrap()).unwrap();
}

/// Returns a run that was killed when it had all its replies.
fn killed() -> TempDir {
    let dir = TempDir::new().unwrap();
    begun(dir.path());
    journal(dir.path(), &calls(dir.path(), 100));
    dir
}

/// Returns the files of a folder, by name.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(dir).unwrap().map(|file| file.unwrap().path());
    let named = files.map(|path| {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        (name, fs::read(path).unwrap())
    });
    named.collect()
}

fn count(dir: &Path) -> u64 {
    reading::read(&dir.join(SAMPLES), &["server"], |_, _| ()).unwrap()
}

#[test]
fn record_is_kept_if_only_the_samples_are_missing() {
    let dir = TempDir::new().unwrap();
    recorded(dir.path(), 100);
    let summary = files(dir.path()).remove(SUMMARY);
    // As on a full disk: the end is missing, or is an earlier one.
    let mut calls = calls(dir.path(), 100);
    let ended = calls.pop().unwrap();
    let cut_off = json!({"cut_off": ended["ended"]});
    calls.truncate(300);
    for end in [None, Some(cut_off)] {
        fs::remove_file(dir.path().join(SAMPLES)).unwrap();
        calls.extend(end);
        journal(dir.path(), &calls);
        Recorded::open(registry(), dir.path(), &GOES_ON)
            .unwrap_or_else(|failure| panic!("{}", failure.message));
        assert_eq!(files(dir.path()).remove(SUMMARY), summary);
        assert_eq!(count(dir.path()), 300);
        assert!(!dir.path().join(JOURNAL).exists());
    }
}

#[test]
fn report_completes_what_a_killed_one_began() {
    let dir = killed();
    for left in [".replayed", ".replayed.partial", "samples.partial"] {
        fs::write(dir.path().join(left), "left").unwrap();
    }
    Recorded::open(registry(), dir.path(), &GOES_ON)
        .unwrap_or_else(|failure| panic!("{}", failure.message));
    assert_eq!(count(dir.path()), 800);
    let files = files(dir.path());
    let names: Vec<&str> = files.keys().map(String::as_str).collect();
    assert_eq!(names, [MANIFEST, PLAN, SAMPLES, SUMMARY]);
}

#[test]
fn interrupted_report_changes_nothing() {
    let dir = killed();
    let before = files(dir.path());
    let failure = Recorded::open(registry(), dir.path(), &AtomicBool::new(true))
        .err()
        .unwrap();
    assert_eq!(failure.kind, FailureKind::Interrupted);
    assert_eq!(files(dir.path()), before);
}

#[test]
fn impossible_histogram_in_a_journal_is_an_error() {
    let case = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/net/load");
    let mut text = String::new();
    let recorded = fs::File::open(case.join("calls.jsonl.gz")).unwrap();
    GzDecoder::new(recorded).read_to_string(&mut text).unwrap();
    assert!(text.contains(r#""digits":3"#));
    for (digits, right) in [(3, true), (9, false)] {
        let dir = TempDir::new().unwrap();
        for name in [PLAN, MANIFEST] {
            fs::copy(case.join("run").join(name), dir.path().join(name)).unwrap();
        }
        // Names that have changed since the run was recorded.
        let calls = text.replace(r#"{"stretch":"#, r#"{"threads":"#);
        let calls = calls.replace(r#""course":"#, r#""timeline":"#);
        let calls = calls.replace(r#""digits":3"#, &format!(r#""digits":{digits}"#));
        let calls = calls
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        journal(dir.path(), &calls.collect::<Vec<_>>());
        let registry = replimeter_measurements::registry();
        let message = Recorded::open(registry, dir.path(), &GOES_ON)
            .err()
            .map(|failure| failure.message);
        match (right, message) {
            (true, None) => {}
            (false, Some(message)) => assert!(message.contains("significant digits"), "{message}"),
            (_, message) => panic!("{digits}: {message:?}"),
        }
    }
}
