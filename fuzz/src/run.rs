//! Run directories that another user wrote.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    sync::{LazyLock, Mutex, PoisonError, atomic::AtomicBool},
};

use flate2::{Compression, write::GzEncoder};
use replimeter_measurements::registry;
use replimeter_render::{markdown, terminal};
use replimeter_run::{
    Recorded, of_files,
    run_dir::{FILES, MANIFEST, PLAN, SAMPLES, SUMMARY},
};
use serde_json::{Value, json};

/// A recorded run.
struct Case {
    plan: &'static str,
    manifest: &'static str,
    summary: &'static str,
    samples: &'static [u8],
}

macro_rules! cases {
    ($($name:literal)*) => {
        [$(Case {
            plan: include_str!(concat!("../../tests/net/", $name, "/run/plan.toml")),
            manifest: include_str!(concat!("../../tests/net/", $name, "/run/manifest.json")),
            summary: include_str!(concat!("../../tests/net/", $name, "/run/summary.json")),
            samples: include_bytes!(concat!("../../tests/net/", $name, "/run/samples.parquet")),
        }),*]
    };
}

/// One of every command, in the order of the first bytes of seeds.
const CASES: [Case; 11] = cases![
    "lag-shapes" "backlog" "tap" "load" "cost" "scale" "stale-pools" "loss" "exposure" "front" "calibrate"
];

/// The end of a journal.
const END: &str = r#"{"cut_off":{"run_dir":"run","keep_awake":false,"real_time":false,"clock_step":{"secs":0,"nanos":30},"at":4000000000,"warnings":[],"failure":null}}"#;

/// The directory, which one run uses at a time.
static DIR: LazyLock<Mutex<PathBuf>> = LazyLock::new(|| {
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() {
        memory.to_owned()
    } else {
        std::env::temp_dir()
    };
    let dir = parent.join(format!("replimeter-fuzz-{}", std::process::id()));
    fs::create_dir(&dir).expect("a new folder");
    Mutex::new(dir)
});

static GOES_ON: AtomicBool = AtomicBool::new(false);

/// Uses the run as `report` does, and removes its files.
fn used(dir: &Path) {
    let shown = of_files(|| {
        let run = Recorded::open(registry(), dir, &GOES_ON)?.run;
        let report = run.report(run.has_raw());
        drop((terminal::render(&report), markdown::render(&report)));
        drop(
            run.charts(&dir.join(SAMPLES))
                .map_err(|error| error.to_string()),
        );
        run.json()
    });
    if let Err(failure) = shown {
        assert!(!failure.message.is_empty() && !failure.hint.is_empty());
    }
    for name in FILES
        .into_iter()
        .chain([".replayed", ".replayed.partial", "samples.partial"])
    {
        let _ = fs::remove_file(dir.join(name));
    }
}

fn write(dir: &Path, name: &str, content: impl AsRef<[u8]>) {
    fs::write(dir.join(name), content).expect("space for a small file");
}

/// A journal: the first byte is the run, the rest are lines.
pub fn journal(input: &[u8]) {
    let [case, lines @ ..] = input else { return };
    let case = &CASES[usize::from(*case) % CASES.len()];
    let dir = DIR.lock().unwrap_or_else(PoisonError::into_inner);
    write(&dir, PLAN, case.plan);
    write(&dir, MANIFEST, case.manifest);
    let mut chunk = GzEncoder::new(Vec::new(), Compression::fast());
    let text = [lines, b"\n", END.as_bytes(), b"\n"].concat();
    chunk.write_all(&text).expect("memory for a chunk");
    write(
        &dir,
        "run.journal",
        chunk.finish().expect("memory for a chunk"),
    );
    used(&dir);
}

/// Values that a run does not have.
fn replacement(number: u8) -> Value {
    let all = [
        json!(null),
        json!(true),
        json!(0),
        json!(1),
        json!(-1),
        json!(i64::MAX),
        json!(i64::MIN),
        json!(u64::MAX),
        json!(1e308),
        json!(-1e308),
        json!(5e-324),
        json!(0.5),
        json!(""),
        json!("-"),
        json!("9223372036854775807s"),
        json!([]),
        json!([null]),
        json!({}),
    ];
    all[usize::from(number) % all.len()].clone()
}

/// Adds the paths of a value and of all in it.
fn paths(value: &Value, path: String, found: &mut Vec<String>) {
    match value {
        Value::Array(all) => {
            for (index, inner) in all.iter().enumerate() {
                paths(inner, format!("{path}/{index}"), found);
            }
        }
        Value::Object(all) => {
            for (key, inner) in all {
                paths(
                    inner,
                    format!("{path}/{}", key.replace('~', "~0").replace('/', "~1")),
                    found,
                );
            }
        }
        _ => {}
    }
    found.push(path);
}

/// Returns a document with other values at places: two bytes say where, one says what.
fn edited(text: &str, edits: &[u8]) -> String {
    let mut document: Value = serde_json::from_str(text).expect("a recorded document");
    let mut all = Vec::new();
    paths(&document, String::new(), &mut all);
    for edit in edits.chunks_exact(3) {
        let path = &all[usize::from(u16::from_le_bytes([edit[0], edit[1]])) % all.len()];
        if let Some(place) = document.pointer_mut(path) {
            *place = replacement(edit[2]);
        }
    }
    document.to_string()
}

/// A run directory: the first byte is the run, the second the file that is edited, or replaced as a whole.
pub fn run_directory(input: &[u8]) {
    let [case, file, rest @ ..] = input else {
        return;
    };
    let case = &CASES[usize::from(*case) % CASES.len()];
    let dir = DIR.lock().unwrap_or_else(PoisonError::into_inner);
    write(&dir, PLAN, case.plan);
    write(&dir, MANIFEST, case.manifest);
    write(&dir, SUMMARY, case.summary);
    write(&dir, SAMPLES, case.samples);
    match file % 6 {
        0 => write(&dir, SUMMARY, edited(case.summary, rest)),
        1 => write(&dir, MANIFEST, edited(case.manifest, rest)),
        2 => write(&dir, PLAN, rest),
        3 => write(&dir, SUMMARY, rest),
        4 => write(&dir, MANIFEST, rest),
        _ => {
            let mut samples = case.samples.to_vec();
            for edit in rest.chunks_exact(3) {
                let at = usize::from(u16::from_le_bytes([edit[0], edit[1]])) % samples.len();
                // The end has the file's structure.
                let at = samples.len() - 1 - at;
                samples[at] = edit[2];
            }
            write(&dir, SAMPLES, samples);
        }
    }
    used(&dir);
}
